"""Metrics of scores against scikit-learn, and their tests against the definition."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from probekit.errors import UsageError
from probekit.probes.protocol.labels import Question
from probekit.statistics.bootstrap import bounds, estimates
from probekit.statistics.calibration import calibration_error
from probekit.statistics.comparisons import compare_predictions
from probekit.statistics.detection import area_interval, mean_area_interval, too_few_above
from probekit.statistics.options import CompareOptions
from probekit.statistics.permutation import exchanged
from probekit.statistics.predictions import Predictions
from probekit.statistics.relabelling import relabelled, shuffles
from probekit.statistics.scored import CALIBRATION, SORTED, Scores, measured, ranks_of


def table(classes: int = 2, n: int = 120, groups: np.ndarray | None = None) -> Predictions:
    """Two layers with gold labels, and one control; coarse scores, so that some are equal."""
    rng = np.random.default_rng(classes)
    gold = rng.integers(classes, size=n)
    scores = np.round(1.5 * rng.normal(size=(3, n, classes)) + 2 * np.eye(classes)[gold], 1)
    log_p = scores - np.log(np.exp(scores).sum(2, keepdims=True))
    labels = np.stack([gold, gold, rng.permutation(gold)])
    loss = -np.take_along_axis(log_p, labels[..., None], 2)[..., 0]
    fits = {"task": "t", "split": "dev", "model": "m", "layer": [0, 1, 1], "draw": [None, None, 0]}
    frame = pd.DataFrame({**fits, "target": ["gold", "gold", "shuffled"]})
    return Predictions(
        frame, np.arange(n).astype(str), labels, log_p.argmax(2), ("auroc", "accuracy"), groups, loss,
        tuple("abcd"[:classes]), probabilities=np.exp(log_p[:2]).astype(np.float32),
    )  # fmt: skip


def by_sklearn(name: str, gold: np.ndarray, scores: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Of one column of scores for class 1, or of one for each class."""
    if scores.shape[1] > 1:
        columns = [(gold == c, scores[:, [c]]) for c in range(scores.shape[1])]
        return float(np.mean([by_sklearn(name, y.astype(int), s, weights) for y, s in columns]))
    if name == "auroc":
        return roc_auc_score(gold, scores[:, 0], sample_weight=weights)
    if name == "average-precision":
        return average_precision_score(gold, scores[:, 0], sample_weight=weights)
    false, true, _ = roc_curve(gold, scores[:, 0], sample_weight=weights, drop_intermediate=False)
    return true[false <= float(name.rsplit("-", 1)[1]) + 1e-12].max()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", [name for name in SORTED if name != "recall-at-fpr-0.01"])
def test_values_are_those_of_scikit_learn(name: str, classes: int) -> None:
    e = table(classes)
    scores = e.scores.part(0, 2)
    if classes == 2 or name in ("auroc", "average-precision"):
        want = [by_sklearn(name, e.gold[0], one) for one in scores]
        assert estimates(metric=name, **e.take([0, 1]).sample()) == pytest.approx(want, abs=1e-12)
        weights = np.random.default_rng(0).integers(0, 3, size=(4, 120))
        want = [by_sklearn(name, e.gold[0], scores[0], w) for w in weights]
        assert measured(name, e.gold[0], scores[0], weights) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_macro_area_is_scikit_learns_and_the_calibration_error_ours(classes: int) -> None:
    e, p = table(classes), table(classes).probabilities
    area, error = (estimates(metric=name, **e.sample()) for name in ("auroc", CALIBRATION))
    of = {"multi_class": "ovr"} if classes > 2 else {}
    assert area[0] == pytest.approx(roc_auc_score(e.gold[0], p[0] if of else p[0, :, 1], **of), abs=1e-9)
    assert error[:2] == pytest.approx(calibration_error(np.log(p), e.gold[0]), abs=1e-6)
    assert np.isnan(area[2]) == (classes > 2)  # controls keep their losses, which are scores of two classes only


def test_losses_of_two_classes_are_scores() -> None:
    e = table()
    from_losses = Predictions(
        e.fits, e.ids, e.gold, e.predicted, e.metrics, None, e.log_loss.astype(np.float32), e.label_names
    )
    assert from_losses.scores.part(0, 2) == pytest.approx(e.scores.part(0, 2), abs=1e-5)
    area = [estimates(metric="auroc", **one.sample())[:2] for one in (e, from_losses)]
    assert area[0] == pytest.approx(area[1], abs=1e-12)  # equal scores are equal again
    rng, gold = np.random.default_rng(0), (np.arange(50_000) % 10 == 0).astype(int)  # as under a strong penalty:
    odds = -2.2 + 1e-3 * (rng.normal(size=len(gold)) + gold)
    loss = np.logaddexp(0, np.where(gold == 1, -odds, odds)).astype(np.float32)
    near = Scores(gold[None], loss[None], None, np.array([-1]), 2).part(0, 1)[0]
    assert measured("auroc", gold, near)[0] == pytest.approx(roc_auc_score(gold, odds), abs=1e-5)
    assert measured("average-precision", gold, near)[0] == pytest.approx(average_precision_score(gold, odds), abs=5e-4)
    with pytest.raises(UsageError, match="auroc needs probabilities of classes"):
        estimates(metric="auroc", **Predictions(e.fits, e.ids, e.gold, e.predicted, ("accuracy",)).sample())


@pytest.mark.parametrize("name", ["auroc", "average-precision", "recall-at-fpr-0.1"])
def test_permuted_labels_and_exchanged_ranks_against_the_definition(name: str) -> None:
    unit = np.repeat(np.arange(60), 2)
    e = table(groups=unit)
    scores = e.scores.part(0, 2)
    observed, null = relabelled(e, [1, 0], name, draws=20, seed=1)
    orders = np.concatenate(list(shuffles(120, unit, draws=20, seed=1)))
    want = [[by_sklearn(name, e.gold[0][order], scores[f]) for order in orders] for f in (1, 0)]
    assert null == pytest.approx(np.array(want), abs=1e-12)
    assert observed == pytest.approx([by_sklearn(name, e.gold[0], scores[f]) for f in (1, 0)])
    observed, null = exchanged(e, [(1, [0])], name, draws=20, seed=3)
    assert observed == pytest.approx([by_sklearn(name, e.gold[0], scores[1]) - by_sklearn(name, e.gold[0], scores[0])])
    ranks, n = ranks_of(scores), 120
    slots = np.random.default_rng([3, 2]).integers(2, size=(20, 60), dtype=np.int32)[:, unit]
    for slot, value in zip(slots, null[0], strict=True):
        one, other = (ranks[(1 + turn + slot) % 2, np.arange(n)] for turn in (0, 1))
        if name == "auroc":  # the difference of mean ranks, which is linear in them
            y = e.gold[0] == 1
            means = [(r[y, 0].mean() - r[~y, 0].mean()) / n for r in (one, other)]
            assert value == pytest.approx(means[0] - means[1], abs=1e-12)
        else:
            assert value == pytest.approx(by_sklearn(name, e.gold[0], one) - by_sklearn(name, e.gold[0], other))


def test_intervals_and_why_there_is_none() -> None:
    e = table()
    y, scores = e.gold[0], e.scores.part(0, 1)[0]
    low, high, _ = area_interval(y, scores.T)
    assert bounds(metric="auroc", **e.take([0]).sample()).ci[0] == pytest.approx([low[0], high[0]])
    assert mean_area_interval((y == 1)[None], scores.T) == pytest.approx((low[0], high[0]))
    three = table(3, n=400).take([0, 1])
    found = bounds(metric="auroc", **three.sample())
    assert (found.ci[:, 0] < found.value).all()
    assert (found.value < found.ci[:, 1]).all()
    copies = Predictions(
        three.fits, np.arange(1600).astype(str), np.repeat(three.gold, 4, 1), np.repeat(three.predicted, 4, 1),
        three.metrics, np.repeat(np.arange(400), 4), np.repeat(three.log_loss, 4, 1), three.label_names,
        probabilities=np.repeat(three.probabilities, 4, 1),
    )  # fmt: skip
    assert bounds(metric="auroc", **copies.sample()).ci == pytest.approx(found.ci, abs=1e-9)
    y, scores = np.repeat([0, 1], 150), np.repeat(np.random.default_rng(0).normal(size=50), 6)
    copied = np.arange(300) // 6
    assert too_few_above(y, scores, 0.05) == ""
    assert too_few_above(y, scores, 0.05, copied).endswith("need 5 groups")
    assert too_few_above(y, scores, 0.05, copied).startswith("7 of the 150 negatives (of 2 groups) lie above")
    few = table(n=30)
    for name, why in (
        ("auroc", ""), ("recall-at-fpr-0.1", "1 of the"), (CALIBRATION, "30 examples; calibration errors need 10 for")
    ):  # fmt: skip
        assert str(bounds(metric=name, **few.sample()).why[0])[: len(why)] == why


def test_what_is_refused() -> None:
    with pytest.raises(UsageError, match="recall-at-fpr-0.05 is for two classes, and these labels have 3"):
        Question("classification", ("recall-at-fpr-0.05",), tuple("abc"))
    with pytest.raises(UsageError, match="name another metric before it"):
        Question("classification", (CALIBRATION,), tuple("ab"))
    with pytest.raises(UsageError, match="choose accuracy"):
        compare_predictions(table(), options=CompareOptions(metric=CALIBRATION))
