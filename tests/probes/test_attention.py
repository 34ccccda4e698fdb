"""Attention probes find the piece that says it; many at once are the plain loop, padded and with autograd."""

import numpy as np
import pytest
import torch

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.protocol.diagnostic import layer_rows
from probekit.probes.protocol.labels import Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.solvers import attention, mlp
from probekit.probes.solvers.attention import Sequences, path
from probekit.probes.solvers.mlp import MLPOptions

QUICK = MLPOptions(batch=32, rounds=6, steps=4, patience=2, learning_rate=0.01)


def needles(n=300, d=8, seed=0):
    """Texts of 1 to 40 pieces of noise: a marked one says the label, the others together its opposite."""
    rng = np.random.default_rng(seed)
    length, y = rng.integers(1, 41, n), rng.integers(2, size=n)
    start = np.cumsum(length) - length
    values = rng.normal(size=(length.sum(), d)).astype(np.float32)
    values[:, 0] = 0
    needle = start + rng.integers(length)
    values[needle, 0] = 4  # the mark
    values[:, 1] -= np.repeat((2 * y - 1) / length, length) * 2
    values[needle, 1] = 2 * (2 * y - 1)
    return Sequences(values, np.arange(len(values)), start, length), y, needle


def twin(x, y, w, decay, held, options, seed):
    """One probe in plain torch: padded texts, autograd, the module's draws. Logits (n, K), held-out loss."""
    rng = np.random.default_rng(seed)
    mlp.hold_out(x.shape[0], None, options.held_out, rng)
    vectors = (x.values - x.values.mean(0)) / x.values.std(0)
    padded = torch.zeros(x.shape[0], int(x.length.max()), x.shape[1])
    for i, (a, m) in enumerate(zip(x.start, x.length, strict=True)):
        padded[i, :m] = torch.from_numpy(vectors[a : a + m])
    outside = (torch.arange(padded.shape[1]) >= torch.from_numpy(x.length)[:, None])[:, :, None]
    k = y.max() + 1 if y.max() > 1 else 1
    q, v, b = (torch.zeros(*shape, requires_grad=True) for shape in ((k, x.shape[1]), (k, x.shape[1]), (k,)))
    adam = torch.optim.AdamW(
        [{"params": [q, v], "weight_decay": decay}, {"params": [b], "weight_decay": 0.0}], lr=options.learning_rate
    )

    def logits(rows):
        weight = (padded[rows] @ q.T).masked_fill(outside[rows], -torch.inf).softmax(1)
        out = (weight * (padded[rows] @ v.T)).sum(1) + b
        return torch.cat([torch.zeros_like(out), out], 1) if k == 1 else out

    labels, weight = torch.from_numpy(y), torch.from_numpy(w)
    best, stale, now = np.inf, 0, None
    for _ in range(options.rounds):
        for rows in mlp.batches_of(np.flatnonzero(~held), options, rng):
            loss = torch.nn.functional.cross_entropy(logits(rows), labels[rows], reduction="none")
            adam.zero_grad()
            ((loss * weight[rows]).mean() / weight[~held].mean()).backward()
            adam.step()
        with torch.no_grad():
            log_p = torch.log_softmax(logits(np.arange(len(y))), 1)
        at_gold = log_p[torch.arange(len(y)), labels][held]
        loss = -float((at_gold * weight[held]).sum() / weight[held].sum())
        best, stale, now = (loss, 0, log_p.numpy()) if loss < best else (best, stale + 1, now)
        if stale == options.patience:
            break
    return now, best


@pytest.mark.parametrize("classes", [2, 3])
def test_many_at_once_are_the_plain_loop(classes, monkeypatch):
    monkeypatch.setattr(attention, "PIECES", 100)  # several blocks a step
    x, y, _ = needles(120)
    rng = np.random.default_rng(1)
    codes = np.stack([(y + np.arange(120) % (classes - 1)) % classes, rng.permutation(np.arange(120) % classes)])
    w = rng.uniform(0.5, 2, size=codes.shape).astype(np.float32)
    fit = path(x, codes, classes, [0.1, 10.0], seed=3, weights=w, options=QUICK)
    held = mlp.hold_out(120, None, QUICK.held_out, np.random.default_rng(3))
    for t in range(2):
        for s, decay in enumerate((0.1, 10.0)):
            log_p, loss = twin(x, codes[t], w[t], decay, held, QUICK, 3)
            np.testing.assert_allclose(fit.log_proba(x)[t, s], log_p, atol=2e-5)  # measured: 4.5e-6
            np.testing.assert_allclose(fit.loss[t, s], loss, atol=2e-6)  # measured: 3.9e-7


@pytest.mark.slow
def test_it_looks_at_the_piece_that_says_it_where_the_mean_says_nothing():
    x, y, _ = needles(400)
    dev, y_dev, needle_dev = needles(200, seed=1)
    options = ProbeOptions(estimator="attention", penalties=(3.0,), controls=4, resamples=0)
    question = Question("classification", ("accuracy",), ("no", "yes"), {})
    rows = layer_rows({"1": x}, y, {"1": dev}, y_dev, question, options=options)
    of = rows[(rows["layer"] == 1) & (rows["metric"] == "accuracy")].set_index("target")["value"]
    assert of["gold"] > 0.9  # measured: .945
    assert of["shuffled"].max() < 0.65  # chance is .5
    plain = layer_rows(
        {"1": x[:]}, y, {"1": dev[:]}, y_dev, question, options=ProbeOptions(penalties=(1.0,), controls=0, resamples=0)
    )
    assert plain[plain["layer"] == 1]["value"].iloc[0] < 0.75
    weights = path(x, y[None], 2, [3.0]).weights(dev)[0, 0, 0]
    np.testing.assert_allclose(np.add.reduceat(weights, dev.start), 1, atol=1e-5)
    assert weights[needle_dev].mean() > 0.25  # measured: .36; of a mean .11


def test_what_cannot_be_fitted():
    x, y, _ = needles(50)
    empty = Sequences(x.values, x.piece, x.start, np.where(np.arange(50) == 7, 0, x.length))
    with pytest.raises(UsageError, match="text 7 has no pieces"):
        path(empty, y[None], 2)
    with pytest.raises(UsageError, match="fewer than two classes"):
        path(x, 0 * y[None], 2)
    with pytest.raises(UsageError, match="codes must be whole numbers from 0 to 1"):
        path(x, y[None] + 1, 2)
    with pytest.raises(UsageError, match=r"weight decays must be from 0 to below 333.333 \(1 / learning rate\)"):
        path(x, y[None], 2, [1000.0])
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        path(Sequences(np.where(x.values > 3, np.nan, x.values), x.piece, x.start, x.length), y[None], 2)
