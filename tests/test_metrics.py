"""Metrics against numbers worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from probekit.errors import UsageError
from probekit.metrics import METRICS, metric, unordered


def test_classes() -> None:
    gold, guess = (
        [1, 1, 0, 0, 1],
        [1, 0, 0, 1, 1],
    )  # 2 true positives, 1 false positive, 1 false negative, 1 true negative
    assert metric("accuracy").function(gold, guess) == pytest.approx(3 / 5)
    assert metric("f1").function(gold, guess) == pytest.approx(2 / 3)
    assert metric("macro-f1").function(gold, guess) == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert metric("balanced-accuracy").function(gold, guess) == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert metric("balanced-accuracy").function([0, 0], [0, 1]) == 1 / 2  # of the class that occurs
    assert metric("matthews").function(gold, guess) == pytest.approx((2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2))


def test_a_metric_of_ordered_classes() -> None:
    rng = np.random.default_rng(0)
    gold = rng.integers(5, size=80)
    guess = np.clip(gold + rng.integers(-1, 2, size=80), 0, 4)
    wanted = cohen_kappa_score(gold, guess, weights="quadratic")
    assert metric("quadratic-kappa").function(gold, guess) == pytest.approx(wanted)
    assert metric("quadratic-kappa").function(gold, np.full(80, 2)) == pytest.approx(0)
    names = ("quadratic-kappa", "accuracy")
    assert "quadratic-kappa is for ordered classes, and a, b … have no order" in unordered(
        names, "classification", ("a", "b")
    )
    assert unordered(names, "classification", ("1", "2")) == ""
    assert unordered(names, "classification", ("a", "b"), ("spearman", "accuracy")) == ""


def test_the_positive_class_of_f1_is_1() -> None:
    assert metric("f1").function([1, 0, 0], [1, 1, 1]) == pytest.approx(1 / 2)
    assert metric("f1").function([0, 1, 1], [0, 0, 0]) == 0


def test_numbers() -> None:
    gold = np.array([1.0, 2.0, 3.0, 4.0])
    assert metric("pearson").function(gold, 3 - 2 * gold) == pytest.approx(-1)
    assert metric("pearson").function(gold, gold**3) == pytest.approx(np.corrcoef(gold, gold**3)[0, 1])
    assert metric("spearman").function(gold, gold**3) == pytest.approx(1)
    assert metric("rmse").function(gold, gold + np.array([1, -1, 1, -1])) == pytest.approx(1)
    assert metric("rmse").better == "lower"


@pytest.mark.parametrize("name", ["pearson", "spearman", "matthews"])
def test_constant_predictions_score_0_without_a_warning(name: str) -> None:
    assert metric(name).function([0, 1, 0, 1], [1, 1, 1, 1]) == 0


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_constant_gold_or_broken_predictions_have_no_correlation(name: str) -> None:
    assert math.isnan(metric(name).function([1.0, 1.0], [0.1, 0.2]))
    assert math.isnan(metric(name).function([1.0, 2.0], [0.1, float("nan")]))


def test_one_class_only_gives_no_warning() -> None:
    for name in ("accuracy", "f1", "macro-f1"):
        assert metric(name).function([1, 1], [1, 1]) == 1
    assert metric("matthews").function([1, 1], [1, 1]) == 0
    assert metric("f1").function([0, 0], [0, 0]) == 0


def test_spans_count_whole_entities() -> None:
    gold = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "B-LOC"]]
    guess = [["B-PER", "O", "O"], ["B-LOC", "O", "O"]]  # 1 of 2 found is right, 1 of 3 gold is found
    assert metric("span-f1").function(gold, guess) == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert metric("token-accuracy").function(gold, guess) == pytest.approx(4 / 6)
    assert metric("token-accuracy").function([0, 1, 2], [0, 1, 1]) == pytest.approx(2 / 3)
    assert metric("span-f1").function([["O", "O"]], [["O", "O"]]) == 0
    assert metric("span-f1").function([["O"]], [["B-PER"]]) == 0


@pytest.mark.parametrize(
    ("name", "gold", "guess", "message"),
    [
        ("accuracy", [1, 0], [1], "the same shape"),
        ("accuracy", [], [], "at least one example"),
        ("accuracy", [1, -1], [1, 0], "1 of 2 gold labels are missing"),
        ("pearson", [1.0, float("nan")], [1.0, 2.0], "1 of 2 gold labels are missing"),
        ("f1", [0, 2], [0, 1], "use macro-f1"),
        ("span-f1", [["O"]], [["O", "O"]], "must have the same sentences"),
        ("span-f1", [], [], "at least one word"),
    ],
)
def test_what_cannot_be_scored(name: str, gold: list, guess: list, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        metric(name).function(gold, guess)


def test_unknown_names_get_the_closest() -> None:
    with pytest.raises(UsageError, match="did you mean matthews"):
        metric("mathews")
    assert all(name == m.name and m.range[0] < m.range[1] for name, m in METRICS.items())


GORODKIN = Path(__file__).parent / "../../shared/goldens/regularisation/gorodkin.json"


@pytest.mark.shared
@pytest.mark.skipif(not GORODKIN.exists(), reason=f"the recorded values are not at {GORODKIN}")
def test_matthews_is_the_r_k_of_gorodkin():
    for case in json.loads(GORODKIN.read_text()):
        assert metric("matthews")(case["y"], case["p"]) == pytest.approx(case["formula"], abs=1e-12)
