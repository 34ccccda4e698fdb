"""Perceptrons trained together are perceptrons trained alone; what they can learn, and what they cannot."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.solvers import mlp
from probekit.probes.solvers.mlp import MLP, MLPOptions, path, regression_path

QUICK = MLPOptions(hidden=8, batch=64, rounds=6, steps=4, patience=2)


def xor(n=1500, d=6, seed=0):
    """Float32 (n, d), and whether the first two coordinates differ in sign, (n,)."""
    x = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return x, ((x[:, 0] > 0) ^ (x[:, 1] > 0)).astype(int)


def targets(n=300, classes=3, seed=0):
    """Features, a learnable target and a shuffled one, as codes (2, n)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5)).astype(np.float32)
    y = (x @ rng.normal(size=(5, classes))).argmax(1)
    return x, np.stack([y, rng.permutation(y)])


def twin(x, y, w, classes, decay, held, options, seed):
    """The same training in plain torch: one model, autograd, the module's draws. Log probabilities, held-out loss."""
    rng = np.random.default_rng(seed)
    mlp.hold_out(len(x), None, options.held_out, rng)
    draw = torch.Generator().manual_seed(seed)
    w1, b1, w2, b2 = (p.requires_grad_() for p in mlp._first_weights(x.shape[1], options.hidden, classes, draw))
    adam = torch.optim.AdamW(
        [{"params": [w1, w2], "weight_decay": decay}, {"params": [b1, b2], "weight_decay": 0.0}],
        lr=options.learning_rate,
    )
    inputs, labels, weight = torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(w)
    best, stale, log_proba = np.inf, 0, None
    for _ in range(options.rounds):
        for rows in mlp.batches_of(np.flatnonzero(~held), options, rng):
            gate = mlp._gate(draw, options.hidden, len(rows), options.dropout)
            logits = (torch.relu(inputs[rows] @ w1.T + b1) * gate.T) @ w2.T + b2
            loss = torch.nn.functional.cross_entropy(logits, labels[rows], reduction="none")
            adam.zero_grad()
            ((loss * weight[rows]).mean() / weight[~held].mean()).backward()
            adam.step()
        with torch.no_grad():
            now = torch.log_softmax(torch.relu(inputs @ w1.T + b1) @ w2.T + b2, 1)
        at_gold = now[torch.arange(len(x)), labels][held]
        loss = -float((at_gold * weight[held]).sum() / weight[held].sum())
        best, stale, log_proba = (loss, 0, now.numpy()) if loss < best else (best, stale + 1, log_proba)
        if stale == options.patience:
            break
    return log_proba, best


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_many_at_once_are_the_plain_loop(dropout):
    x, codes = targets()
    options = MLPOptions(hidden=8, batch=64, rounds=12, steps=4, patience=2, dropout=dropout, learning_rate=0.03)
    w = np.random.default_rng(1).random(codes.shape).astype(np.float32)
    decays, seeds = (0.0, 3.0), (5, 9)
    many = path(x, codes, 3, decays, seed=seeds, weights=w, options=options)
    log_proba = many.log_proba(x)
    assert len(np.unique(many.rounds)) > 1  # some stopped early and left the batch
    for t, code in enumerate(codes):
        for s, decay in enumerate(decays):
            held = mlp.hold_out(len(x), None, options.held_out, np.random.default_rng(seeds[0]))
            if t:  # the order of the batches is the first seed's: only that target has a twin to the letter
                alone = path(x, code[None].repeat(2, 0), 3, (decay,), seed=seeds, weights=w[[t, t]], options=options)
                other, loss = alone.log_proba(x)[1, 0], alone.loss[1, 0]
            else:
                other, loss = twin(x, code, w[t], 3, decay, held, options, seeds[0])
            np.testing.assert_allclose(log_proba[t, s], other, atol=2e-4)  # rounding, grown over 48 steps: 1e-5
            assert many.loss[t, s] == pytest.approx(loss, abs=1e-4)


def test_gradients_are_those_of_autograd():
    rng = np.random.default_rng(2)
    shapes = (3, 4, 5), (3, 4), (3, 2, 4), (3, 2)
    params = [torch.from_numpy(rng.normal(size=s).astype(np.float32)).requires_grad_() for s in shapes]
    x, weights = torch.randn(7, 5), torch.rand(3, 7)
    codes, gate = torch.from_numpy(rng.integers(2, size=(3, 7))), mlp._gate(torch.Generator(), 4, 7, 0.5)
    w1, b1, w2, b2 = params
    hidden = torch.relu(torch.einsum("mhd,nd->mhn", w1, x) + b1[:, :, None]) * gate
    logits = torch.einsum("mkh,mhn->mkn", w2, hidden) + b2[:, :, None]
    loss = torch.nn.functional.cross_entropy(logits, codes, reduction="none")
    (loss * weights).mean(1).sum().backward()
    wanted = [p.grad.clone() for p in params]
    with torch.no_grad():
        mlp._gradients(params, x, codes, weights, gate)
    for p, grad in zip(params, wanted, strict=True):
        torch.testing.assert_close(p.grad, grad)


def test_xor_is_learnt_where_a_line_fails_and_noise_is_not():
    x, y = xor()
    shuffled = np.random.default_rng(3).permutation(y[:1000])
    probe = MLP((0.1, 1.0), options=MLPOptions(learning_rate=0.01)).fit(x[:1000], np.stack([y[:1000], shuffled], 1))
    accuracy = (probe.predict(x[1000:]) == y[1000:]).mean(-1)
    assert LogisticRegression().fit(x[:1000], y[:1000]).score(x[1000:], y[1000:]) < 0.6
    assert accuracy[0].min() > 0.9
    assert abs(accuracy[1] - 0.5).max() < 0.09  # standard error .022
    assert probe.predict_proba(x).sum(-1) == pytest.approx(1, abs=1e-5)
    loss = -probe.predict_log_proba(x[1000:])[1][:, np.arange(500), y[1000:]].mean(-1)
    assert loss == pytest.approx(np.log(2), abs=0.06)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not():
    x, codes = targets()
    one, two, three = (path(x, codes, 3, (0.1,), seed=s, options=QUICK).log_proba(x) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert abs(one - three).max() > 0.01


def test_what_weighs_nothing_or_is_unlabelled_is_not_looked_at():
    x, codes = targets()
    out = np.random.default_rng(4).random(len(x)) < 0.3
    unlabelled = path(x, np.where(out, -1, codes), 3, (0.1,), options=QUICK).log_proba(x)
    weightless = path(x, np.where(out, 0, codes), 3, (0.1,), weights=~out, options=QUICK).log_proba(x)
    np.testing.assert_array_equal(unlabelled, weightless)


def test_values_are_predicted_where_they_depend_on_x():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1500, 4)).astype(np.float32)
    y = np.stack([100 + 20 * abs(x[:, 0]), rng.normal(size=1500)])  # even in x: no line sees it
    y[0, :50] = np.nan
    fit = regression_path(x[:1000], y[:, :1000], (0.01, 1.0), options=MLPOptions(learning_rate=0.01))
    guess = fit.outputs(x[1000:])[..., 0]
    left = ((guess - y[:, None, 1000:]) ** 2).mean(-1) / y[:, 1000:].var(1)[:, None]
    assert left[0].max() < 0.05
    assert left[1].min() > 0.95
    assert left[1].max() < 1.1
    with pytest.raises(UsageError, match="target 1 is constant"):
        regression_path(x, np.stack([x[:, 0], np.ones(1500)]))


def test_groups_are_held_out_whole():
    groups = np.arange(100) // 7
    held = mlp.hold_out(100, groups, 0.2, np.random.default_rng(0))
    assert set(groups[held]).isdisjoint(groups[~held])
    assert len(set(groups[held])) == 3


def test_ten_examples_and_a_memory_map(tmp_path):
    x, codes = targets(n=10, classes=2)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    fit = path(mapped, codes[:1], 2, (0.1,), options=QUICK)
    np.testing.assert_array_equal(fit.log_proba(mapped), path(x, codes[:1], 2, (0.1,), options=QUICK).log_proba(x))


def test_rounds_that_run_out_are_told():
    x, codes = targets()
    fit = path(x, codes[:1], 3, (0.0,), options=MLPOptions(rounds=2))
    assert fit.rounds.tolist() == [[2]]
    assert not fit.converged.any()


def test_what_cannot_be_is_said():
    x, codes = targets()
    with pytest.raises(UsageError, match="fewer than two classes"):
        path(x, np.zeros_like(codes), 3)
    with pytest.raises(UsageError, match="one for each of the 2 targets, not 3"):
        path(x, codes, 3, seed=[1, 2, 3])
    with pytest.raises(UsageError, match="weight decays must be from 0"):
        path(x, codes, 3, (-1.0,))
    with pytest.raises(UsageError, match="it must be from 0 to below 1|between 0 and 1|above 0"):
        MLPOptions(dropout=1.0)
    x[3, 1] = np.inf
    with pytest.raises(NonFiniteError, match="between rows 0 and 299"):
        MLP().fit(x, codes.T)
