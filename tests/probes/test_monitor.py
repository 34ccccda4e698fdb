"""Monitors: scores of pieces become one as slow loops say; better than means where few pieces tell the label."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probekit.errors import UsageError
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.solvers.attention import Sequences
from probekit.probes.solvers.logistic import fit_logistic
from probekit.probes.solvers.monitor import path
from probekit.probes.solvers.scores import Score


def slow(name, number, scores):
    """The score of one text, from a list."""
    if name == "ema":
        seen = [scores[0]]
        for score in scores[1:]:
            seen.append(number * seen[-1] + (1 - number) * score)
        return max(seen)
    if name == "rolling":
        width = min(number, len(scores))
        return max(sum(scores[k : k + width]) / width for k in range(len(scores) - width + 1))
    return {"mean": sum(scores) / len(scores), "last": scores[-1], "max": max(scores)}[name]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.floats(-50, 50), min_size=1, max_size=7), min_size=1, max_size=5),
    st.sampled_from([("mean", None), ("last", None), ("max", None), ("ema", 0.25), ("rolling", 1), ("rolling", 3)]),
)
def test_scores_are_those_of_slow_loops(texts, how):
    name, number = how
    scores = np.array([[x, -x] for text in texts for x in text])
    found = Score.parse(name if number is None else f"{name}:{number}").of(scores, np.array([len(t) for t in texts]))
    right = [[slow(name, number, text), slow(name, number, [-x for x in text])] for text in texts]
    np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-9)


def burst(n, seed=0, shift=0.0):
    """Texts of 20 to 60 pieces, of which four neighbouring ones tell the label of half the texts."""
    rng = np.random.default_rng(seed)
    length, y = rng.integers(20, 60, n), np.arange(n) % 2
    start = np.cumsum(length) - length
    values = rng.normal(size=(int(length.sum()), 8)).astype(np.float32) + np.float32(shift)
    for i in np.flatnonzero(y):
        at = start[i] + rng.integers(0, length[i] - 4)
        values[at : at + 4, 0] += 3
    return Sequences(values, np.arange(len(values)), start, length), y


def test_the_mean_of_scores_is_the_score_of_the_mean():
    x, y = burst(200, shift=2)
    found = path(x, y[None], 2, [0.1, 1.0], score=Score.parse("mean"))
    plain = fit_logistic(x[:], y[None], 2, [0.1, 1.0])
    logits = plain.logits(x[:])[0, :, 0]
    np.testing.assert_allclose(found.scores(x).T, logits, atol=2e-4)
    p = np.exp(found.log_proba(x))
    np.testing.assert_allclose(p.sum(-1), 1, atol=1e-6)
    z = found.slope[:, None] * found.scores(x).T + found.shift[:, None]
    np.testing.assert_allclose(p[0, :, :, 1], 1 / (1 + np.exp(-z)), atol=1e-6)


def test_a_rolling_maximum_finds_what_a_mean_dilutes():
    (x, y), (dev, y_dev) = burst(400), burst(400, seed=1)
    right = {}
    for how in ("mean", "max", "ema:0.5", "rolling:4"):
        fit = path(x, y[None], 2, [1.0], score=Score.parse(how))
        log_p = fit.log_proba(dev)[0, 0]
        right[how] = float((log_p.argmax(-1) == y_dev).mean())
        loss = -log_p[np.arange(len(y_dev)), y_dev].mean()
        assert loss < np.log(2)  # calibrated: better than a guess, although a maximum is larger than a mean
    assert right["rolling:4"] > 0.9  # measured: .9775
    assert right["rolling:4"] > right["mean"] + 0.1  # measured: .7325


@pytest.mark.parametrize("text", ["median", "ema:1", "ema:0", "rolling:0", "rolling:x", "max:3", ""])
def test_what_is_no_score(text):
    with pytest.raises(UsageError, match=r"expected mean, last, max, ema:DECAY .*, rolling:PIECES .* or cusum:DRIFT"):
        Score.parse(text)


def test_what_cannot_be_fitted():
    x, y = burst(40)
    with pytest.raises(UsageError, match="monitors tell two classes apart, not 3"):
        path(x, y[None], 3, score=Score("max"))
    fit = path(x, y[None], 2, [1.0], score=Score("max"))
    with pytest.raises(UsageError, match="text 7 has no pieces"):
        fit.scores(Sequences(x.values, x.piece, x.start, np.where(np.arange(40) == 7, 0, x.length)))
    with pytest.raises(UsageError, match="scores are those of a monitor; add --estimator monitor"):
        ProbeOptions(scores="max")
    with pytest.raises(UsageError, match="scores is 'top'"):
        ProbeOptions(estimator="monitor", scores="top")
