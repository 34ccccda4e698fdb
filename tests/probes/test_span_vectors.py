"""Vectors of spans, and probes of several labels that can hold at once."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from probekit.errors import UsageError
from probekit.metrics import metric
from probekit.probes import spans
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.multilabel import evaluate_label_sets
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.protocol.rows import probe_rows
from probekit.probes.spans import SpanVectors, span_vectors


def drawn(m: int = 40, k: int = 2, t: int = 100, d: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    first = rng.integers(0, t - 6, (m, k))
    return rng.normal(size=(t, d)).astype(np.float16), first, first + rng.integers(0, 6, (m, k))


@pytest.mark.parametrize("mean", [False, True])
def test_vectors_of_spans_equal_a_loop(mean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x, first, last = drawn()
    expected = [
        np.concatenate(
            [
                x[a : b + 1].astype(np.float32).mean(0) if mean else np.concatenate([x[a], x[b]])
                for a, b in zip(one, other, strict=True)
            ]
        )
        for one, other in zip(first, last, strict=True)
    ]
    np.testing.assert_allclose(span_vectors(x, first, last, mean=mean), expected, rtol=1e-6)
    monkeypatch.setattr(spans, "IN_MEMORY", 0)
    lazy = span_vectors(x, first, last, mean=mean)
    assert isinstance(lazy, SpanVectors)
    assert lazy.shape == (40, 10 if mean else 20)
    rows = np.array([3, 3, 17])
    np.testing.assert_array_equal(lazy[rows], np.asarray(lazy)[rows])
    assert lazy[np.array([], dtype=int)].shape == (0, lazy.shape[1])


LABELS = ("a", "b", "rare")
ABOUT = {"task": "t", "split": "dev", "model": "m", "representation": "ends"}


def planted(n: int, seed: int, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.random((n, 3)) < (0.5, 0.2, 0.002)
    return (y @ np.array([[2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 2, 0]]) + noise * rng.normal(size=(n, 4))), y


def evaluated(controls: int = 2, **options: object) -> object:
    (x, y), (x_dev, y_dev) = planted(600, 0), planted(400, 1)
    sets, code = np.unique(np.concatenate([y, y_dev]), axis=0, return_inverse=True)
    code = code.reshape(-1)
    types = np.random.default_rng(2).integers(0, 30, 1000)
    groups = np.arange(1000) // 4
    train = Labels(code[:600], groups[:600], types=types[:600])
    dev = Labels(code[600:], groups[600:], types=types[600:])
    noise = np.random.default_rng(3).normal(size=(1000, 4))
    return evaluate_label_sets(
        {"0": noise[:600], "1": x}, train, {"0": noise[600:], "1": x_dev}, dev, sets,
        Question("span-labelling", ("micro-f1",), LABELS, ABOUT),
        options=ProbeOptions(controls=controls, **options),  # type: ignore[arg-type]
    )  # fmt: skip


def test_each_label_has_its_own_logistic_regression() -> None:
    found = evaluated(controls=0, penalties=(1.0,))
    (x, y), (x_dev, y_dev) = planted(600, 0), planted(400, 1)
    scale = x.std(0)
    ours = found.predicted[-1].reshape(400, 3)  # type: ignore[attr-defined]
    for label in range(2):
        theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit((x - x.mean(0)) / scale, y[:, label])
        agree = (theirs.predict((x_dev - x.mean(0)) / scale) == ours[:, label]).mean()
        assert agree > 0.995
    assert not ours[:, 2].any()  # too rare for every fold: always "no"
    assert metric("micro-f1")(found.gold[-1], found.predicted[-1]) == f1_score(  # type: ignore[attr-defined]
        y_dev, ours.astype(bool), average="micro"
    )
    assert found.ids[:4].tolist() == ["0/a", "0/b", "0/rare", "1/a"]  # type: ignore[attr-defined]


def test_noise_is_no_better_than_shuffled_labels_and_signal_is() -> None:
    rows = probe_rows(evaluated())  # type: ignore[arg-type]
    value = rows[(rows["metric"] == "micro-f1") & rows["draw"].isna()].set_index(["layer", "target"])["value"]
    assert value[1, "gold"] > 0.9
    assert value[0, "gold"] < 0.7
    assert value[1, "gold"] - value[1, "shuffled"] > 0.25
    gain = rows[(rows["metric"] == "above-shuffled(micro-f1)") & (rows["layer"] == 1)].iloc[0]
    assert gain["ci_low"] > 0.2
    gold = rows[(rows["metric"] == "micro-f1") & (rows["target"] == "gold")]
    assert ((gold["ci_low"] <= gold["value"]) & (gold["value"] <= gold["ci_high"])).all()
    assert gold.set_index("layer").loc[1, "p"] < 0.01  # the label sets of sentences are permuted


def test_options_that_do_not_apply_are_refused() -> None:
    with pytest.raises(UsageError, match="leave out calibrate"):
        evaluated(calibrate=True)
    with pytest.raises(UsageError, match="ridge"):
        evaluated(estimator="ridge")
