"""Several labels or numbers of a text: fits and metrics are scikit-learn's, labels of an example move together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probekit.errors import UsageError
from probekit.metrics import metric
from probekit.probes.protocol.by_label import by_label_rows
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.multilabel import evaluate_label_sets
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.protocol.rows import probe_rows
from probekit.statistics.bootstrap import estimates
from probekit.statistics.over_labels import rows_by_label
from probekit.statistics.permutation import exchanged
from probekit.statistics.predictions import Predictions
from probekit.statistics.relabelling import relabelled, shuffles

ABOUT = {"task": "t", "split": "dev", "model": "m", "representation": "mean"}
NAMES = ("common", "half", "rare")


def probed(*, numbers: bool = False, metrics: tuple[str, ...] = ()) -> tuple[Predictions, dict[str, np.ndarray]]:
    """Probes of two layers with one penalty, of 120 and 90 texts, the last of train unlabelled; and the data."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(210, 6)), rng.normal(size=(210, 6))
    scores = x[:, :3] + 0.3 * x[:, [0]] + 0.7 * rng.normal(size=(210, 3))
    y = np.round(scores, 2) if numbers else scores > np.array([-0.5, 0, 1.6])
    sets, number = np.unique(y, axis=0, return_inverse=True)
    number = number.reshape(-1)
    number[119] = -1
    options = ProbeOptions(controls=1, penalties=(10.0,) if numbers else (0.05,), seed=1)
    question = Question("multi-output" if numbers else "multi-label", metrics or ("micro-f1",), NAMES, ABOUT)
    layers = [{"0": z[rows], "1": x[rows]} for rows in (slice(120), slice(120, 210))]
    found = evaluate_label_sets(
        layers[0], Labels(number[:120]), layers[1], Labels(number[120:]), sets, question, options=options
    )
    return found, {"x": x, "y": y}


def table(e: Predictions, layer: int) -> np.ndarray:
    """Predictions of gold labels on a layer, (n, labels)."""
    at = np.flatnonzero(e.is_gold & (e.fits["layer"] == layer).fillna(value=False).to_numpy(dtype=bool))[0]
    return e.predicted[at].reshape(-1, len(NAMES))


def test_fits_and_metrics_are_those_of_one_against_the_rest() -> None:
    e, data = probed(metrics=("micro-f1", "macro-f1", "auroc", "average-precision"))
    plain = make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression(C=0.05, tol=1e-10, max_iter=5000)))
    fitted = plain.fit(data["x"][:119], data["y"][:119].astype(int))
    gold, proba = data["y"][120:].astype(int), fitted.predict_proba(data["x"][120:])
    np.testing.assert_array_equal(table(e, 1), fitted.predict(data["x"][120:]))
    at = int(np.flatnonzero(e.is_gold)[-1])
    loss = -np.log(np.where(gold == 1, proba, 1 - proba))
    np.testing.assert_allclose(e.log_loss[at].reshape(-1, 3), loss, atol=1e-4)
    wanted = {
        "micro-f1": f1_score(gold, table(e, 1), average="micro"),
        "macro-f1": f1_score(gold, table(e, 1), average="macro"),
        "auroc": roc_auc_score(gold, proba, average="macro"),
        "average-precision": average_precision_score(gold, proba, average="macro"),
    }
    for name, value in wanted.items():
        assert estimates(metric=name, **e.sample())[at] == pytest.approx(value, abs=1e-9)


def test_several_numbers_are_ridge_regressions() -> None:
    e, data = probed(numbers=True, metrics=("pearson", "rmse", "r2"))
    plain = make_pipeline(StandardScaler(), Ridge(alpha=10.0)).fit(data["x"][:119], data["y"][:119])
    said, gold = plain.predict(data["x"][120:]), data["y"][120:]
    np.testing.assert_allclose(table(e, 1), said, atol=1e-6)
    at = int(np.flatnonzero(e.is_gold)[-1])
    for name in ("pearson", "rmse", "r2"):
        mean = np.mean([metric(name)(gold[:, k], said[:, k]) for k in range(3)])
        assert estimates(metric=name, **e.sample())[at] == pytest.approx(mean, abs=1e-6)
    rows = probe_rows(e, resamples=100, by_label=None)
    one = rows[(rows["metric"] == "by-label(r2)") & (rows["layer"] == 1)].set_index("label")
    assert one.loc["half", "value"] == pytest.approx(metric("r2")(gold[:, 1], said[:, 1]), abs=1e-6)


@pytest.mark.parametrize("name", ["macro-f1", "auroc", "average-precision"])
def test_tests_move_whole_label_sets(name: str) -> None:
    e, data = probed(metrics=(name,))
    gold = data["y"][120:].astype(int)
    at = [int(i) for i in np.flatnonzero(e.is_gold)[1:]]

    def value(labels: np.ndarray, fit: int) -> float:
        if name == "macro-f1":
            return f1_score(labels, e.predicted[fit].reshape(-1, 3), average="macro", zero_division=0)
        odds = e.scores.part(fit, fit + 1)[0].reshape(-1, 3)
        score = roc_auc_score if name == "auroc" else average_precision_score
        return float(score(labels, odds, average="macro"))

    observed, null = relabelled(e, at, name, draws=10, seed=2)
    orders = np.concatenate(list(shuffles(270, e.groups, draws=10, seed=2)))
    assert observed == pytest.approx([value(gold, fit) for fit in at])
    want = [[value(gold.ravel()[order].reshape(-1, 3), fit) for order in orders] for fit in at]
    assert null == pytest.approx(np.array(want), abs=1e-9)
    difference, drawn = exchanged(e, [(at[1], [at[0]])], name, draws=10, seed=0)
    assert difference == pytest.approx([value(gold, at[1]) - value(gold, at[0])])
    assert np.isfinite(drawn).all()


def test_labels_that_are_absent_or_cannot_be_fitted_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    y = np.stack([x[:, 0] > 0, x[:, 1] > 0.3, x[:, 2] > 0, np.arange(120) == 70], axis=1)
    y[60:, 1] = False  # not in dev; the last one not in train
    sets, number = np.unique(y, axis=0, return_inverse=True)
    number, names = number.reshape(-1), ("a", "no-dev", "c", "no-train")
    question = Question("multi-label", ("macro-f1", "auroc"), names, ABOUT)
    layers = [{"0": x[rows], "1": -x[rows]} for rows in (slice(60), slice(60, 120))]
    e = evaluate_label_sets(
        layers[0], Labels(number[:60]), layers[1], Labels(number[60:]), sets, question, options=ProbeOptions(controls=0)
    )
    rows = probe_rows(e, resamples=100, by_label=None)
    whole = rows[rows["label"].isna() & rows["layer"].eq(1).fillna(value=False)].set_index("metric")
    for name in ("macro-f1", "auroc"):
        assert "no evaluated example is of 1 of the 4 labels (no-dev)" in whole.loc[name, "warning"]
        assert "too few examples of 1 of the 4 labels (no-train)" in whole.loc[name, "warning"]
    at = int(np.flatnonzero(e.fits["layer"].eq(1).fillna(value=False).to_numpy(dtype=bool))[0])
    gold, said, odds = (
        v.reshape(-1, 4)[:, [0, 2, 3]] for v in (e.gold[at], e.predicted[at], e.scores.part(at, at + 1))
    )
    assert whole.loc["macro-f1", "value"] == pytest.approx(f1_score(gold, said, average="macro"))
    assert whole.loc["auroc", "value"] == pytest.approx(roc_auc_score(gold, odds, average="macro"))
    value = estimates(metric="auroc", **e.sample())
    assert exchanged(e, [(at, [0])], "auroc", draws=5, seed=0)[0] == pytest.approx(value[at] - value[0])
    alone = rows[rows["metric"].eq("by-label(f1)") & rows["layer"].eq(1).fillna(value=False)].set_index("label")
    assert alone["penalty"].isna().tolist() == [False, False, False, True]
    assert "predicted by its frequency" in alone.loc["no-train", "warning"]
    monkeypatch.setattr("os.sysconf", lambda name: 1)
    with pytest.raises(UsageError, match=r"4 labels of 60 evaluated texts, for 2 layers and 0 controls, need about"):
        evaluate_label_sets(
            layers[0],
            Labels(number[:60]),
            layers[1],
            Labels(number[60:]),
            sets,
            question,
            options=ProbeOptions(controls=0),
        )


def test_many_labels_are_corrected_together_and_found_fast() -> None:
    names = [f"label {k}" for k in range(30)]
    gold = np.random.default_rng(0).integers(2, size=60 * 30).astype(np.int8)
    fits = pd.DataFrame([{**ABOUT, "layer": 1, "target": "gold", "seed": 0}])
    e = Predictions(
        fits, np.arange(1800).astype(str), gold, gold[None], ("f1",), np.repeat(np.arange(60), 30), None,
        ("no", "yes"), of_label=np.tile(np.array(names), 60),
    )  # fmt: skip
    rows = by_label_rows(e, resamples=100, level=0.95, seed=0)
    assert (rows["p"] == 1 / 101).all()
    assert (rows["p_adjusted"] == rows["p"]).all()  # by Bonferroni 0.3
    assert (rows["value"] > rows["null_edge"]).all()
    assert (rows["null_edge"] > rows["null_mean"]).all()
    for of in (e.of_label, np.random.default_rng(0).permutation(e.of_label)):
        want = {name: np.flatnonzero(of == name).tolist() for name in dict.fromkeys(of.tolist())}
        assert {name: its.tolist() for name, its in rows_by_label(of).items()} == want


def test_each_class_and_each_entity_type_alone() -> None:
    rng = np.random.default_rng(0)
    gold, said = rng.integers(3, size=60), rng.integers(3, size=(1, 60))
    fits = pd.DataFrame([{**ABOUT, "layer": 1, "target": "gold", "seed": 0}])
    ids = np.arange(60).astype(str)
    e = Predictions(fits, ids, gold, said, ("accuracy",), label_names=("a", "b", "c"))
    rows = by_label_rows(e, resamples=100, level=0.95, seed=0).set_index("label")
    assert rows["value"].tolist() == pytest.approx(f1_score(gold, said[0], average=None).tolist())
    assert rows["support"].tolist() == np.bincount(gold).tolist()
    some = np.where(np.arange(60) < 12, gold, said)  # beyond the edge exactly where the corrected p is at most .05
    better = by_label_rows(replace(e, predicted=some), resamples=200, level=0.95, seed=0)
    beyond = better["value"] > better["null_edge"] + 1e-9
    assert beyond.tolist() == (better["p_adjusted"] <= 0.05).tolist()
    assert beyond.nunique() == 2
    tags, sentence = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"), np.repeat(np.arange(12), 5)
    gold, said = rng.integers(5, size=60), rng.integers(5, size=(1, 60))
    e = Predictions(fits, ids, gold, said, ("span-f1",), sentence, label_names=tags)
    rows = by_label_rows(e, resamples=100, level=0.95, seed=0).set_index("label")
    for kind in ("PER", "LOC"):
        own = [
            [[tag if tag.endswith(kind) else "O" for tag in np.array(tags)[row]] for row in y.reshape(12, 5)]
            for y in (gold, said[0])
        ]
        assert rows.loc[kind, "value"] == pytest.approx(metric("span-f1")(*own))
    numbers = Predictions(fits, ids, rng.normal(size=60), rng.normal(size=(1, 60)), ("pearson",))
    with pytest.raises(UsageError, match="by_label is for classes"):
        by_label_rows(numbers, resamples=0, level=0.95, seed=0)
