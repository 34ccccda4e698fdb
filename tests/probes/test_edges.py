"""Edge probes: the model is the slow twin's, training together is training alone, planted signals are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.edges import train as training
from probekit.probes.edges.depth import (
    _fieller,
    centre_of_gravity,
    expected_layer,
    expected_layer_of,
    over_seeds,
    rare_class,
)
from probekit.probes.edges.evaluate import MIX, evaluate_edges
from probekit.probes.edges.model import Probes, first_weights, gates, logits, mix_weights
from probekit.probes.edges.options import EdgeOptions
from probekit.probes.edges.spans import SpanLayers
from probekit.probes.protocol.labels import Labels, Question
from probekit.statistics.predictions import Predictions
from tests import naive

SMALL = EdgeOptions(projection=5, hidden=7, batch=16, check=5, steps=40, dropout=0.3, learning_rate=0.02)
ABOUT = {"task": "t", "split": "dev", "model": "m", "representation": ""}


def spans(m: int, k: int = 2, layers: int = 3, d: int = 4, seed: int = 0, longest: int = 4) -> SpanLayers:
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=(6 * m, d)).astype(np.float32) for _ in range(layers)]
    first = rng.integers(0, 6 * m - longest, size=(m, k))
    return SpanLayers(x, first, first + rng.integers(0, longest, size=(m, k)))


@pytest.mark.parametrize("probe", ["mlp", "linear"])
@pytest.mark.parametrize("mixed", [False, True])
def test_logits_are_those_of_one_probe_and_one_target_at_a_time(probe: str, mixed: bool) -> None:
    options, some = replace(SMALL, probe=probe), spans(9)
    some = replace(some, centre=np.full((3, 1, 4), 0.5, np.float32), scale=np.full((3, 1, 4), 2.0, np.float32))
    reads = np.tril(np.ones((3, 3), dtype=bool)) if mixed else np.eye(3, dtype=bool)[[2, 0, 1]]
    draws = [torch.Generator().manual_seed(seed) for seed in range(3)]
    alone = [first_weights(some.shape, 6, options, draw, mixed=mixed) for draw in draws]
    if mixed:
        for i, w in enumerate(alone):
            w["mix"], w["gamma"] = torch.tensor([0.3, -1.0, 2.0]) * (i + 1), torch.tensor([1.5 + i])
    gate = gates(options, 9, draws[0]) if probe == "mlp" else None
    stacked = {name: torch.stack([w[name] for w in alone]) for name in alone[0]}
    found = logits(stacked, torch.from_numpy(reads), some.batch(np.arange(9)), 9, gate)
    for i, w in enumerate(alone):
        wanted = naive.edge_logits(w, reads[i], some, np.arange(9), gate)
        torch.testing.assert_close(found[i], wanted, atol=2e-6, rtol=1e-5)  # measured 5e-7


def twin(
    some: SpanLayers, y: np.ndarray, reads: np.ndarray, held: np.ndarray, options: EdgeOptions, *, mixed: bool
) -> tuple[float, dict[str, torch.Tensor], int]:
    """The training of one probe in plain torch, on the module's draws: held-out loss and the best weights."""
    draw = torch.Generator().manual_seed(options.seed)
    w = first_weights(some.shape, y.shape[1], options, draw, mixed=mixed)
    w = {name: x.clone().requires_grad_() for name, x in w.items()}
    mix = [x for name, x in w.items() if name in ("mix", "gamma")]
    rest = [x for name, x in w.items() if name not in ("mix", "gamma")]
    groups = [{"params": rest, "lr": options.learning_rate}]
    groups += [{"params": mix, "lr": options.learning_rate * options.mix_rate}] if mixed else []
    adam = torch.optim.Adam(groups)
    labels, order = (
        torch.from_numpy(y.astype(np.float32)),
        training._batches(np.flatnonzero(~held), options.batch, np.random.default_rng(options.seed)),
    )
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    best, best_w, stale = np.inf, None, 0
    for step in range(1, options.steps + 1):
        rows = next(order)
        gate = gates(options, len(rows), draw) if "hidden" in w else None
        out = naive.edge_logits(w, reads, some, rows, gate)
        adam.zero_grad()
        loss_of(out, labels[rows], reduction="none").sum(1).mean().backward()
        torch.nn.utils.clip_grad_norm_(list(w.values()), training.CLIP)
        adam.step()
        if step % options.check and step != options.steps:
            continue
        with torch.no_grad():
            at = np.flatnonzero(held)
            now = float(loss_of(naive.edge_logits(w, reads, some, at), labels[at], reduction="none").sum(1).mean())
        better = now < best
        best, stale = (now, 0) if better else (best, stale + 1)
        best_w = {name: x.detach().clone() for name, x in w.items()} if better else best_w
        if stale and stale % options.halve == 0:
            for group in adam.param_groups:
                group["lr"] *= 0.5
        if stale == options.patience:
            break
    return best, best_w, step


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True])
def test_training_together_is_training_alone(mixed: bool) -> None:
    some, rng = spans(60), np.random.default_rng(1)
    sets = np.eye(3, dtype=bool)
    first = some.layers[1][some.first[:, 0]][:, :3].argmax(1)
    codes, held = np.stack([first, rng.permutation(first)]), rng.random(60) < 0.2
    options = replace(SMALL, patience=2, steps=60)
    reads = (np.tril(np.ones((3, 3), dtype=bool)) if mixed else np.eye(3, dtype=bool))[[0, 1, 2, 1]]
    probes = Probes(reads, np.array([0, 0, 0, 1]), np.zeros(4, dtype=int), mixed)
    found = training.fit(some, codes, sets, probes, held, options=options)
    assert len(np.unique(found.steps)) > 1  # some stopped early and left the batch
    for i in range(4):
        loss, weights, steps = twin(some, sets[codes[probes.target[i]]], reads[i], held, options, mixed=mixed)
        assert found.steps[i] == steps
        assert found.loss[i] == pytest.approx(loss, abs=1e-4)
        for name, w in weights.items():
            torch.testing.assert_close(found.weights[name][i], w, atol=2e-3, rtol=0)  # rounding that Adam magnifies


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    some, held = spans(60), np.arange(60) < 12
    codes = np.random.default_rng(0).integers(2, size=(1, 60))
    probes = Probes(np.eye(3, dtype=bool), np.zeros(3, dtype=int), np.array([0, 0, 0]), mixed=False)
    runs = [
        training.fit(some, codes, np.eye(2, dtype=bool), replace(probes, seed=np.full(3, s)), held, options=SMALL)
        for s in (0, 0, 1)
    ]
    a, b, c = (one.weights["out"].numpy().tobytes() for one in runs)
    assert a == b
    assert a != c


def planted(m: int, k: int, layers: int, seed: int) -> tuple[SpanLayers, Labels]:
    """Spans of one to three pieces whose label is in all pieces of layer k; the other layers are noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=m)
    length = rng.integers(1, 4, size=m)
    last = np.cumsum(length) - 1
    x = rng.normal(size=(layers, int(length.sum()), 6)).astype(np.float32)
    x[k, :, :3] += 3 * np.eye(3, dtype=np.float32)[np.repeat(y, length)]
    types = rng.integers(10, size=m)
    return SpanLayers(list(x), (last - length + 1)[:, None], last[:, None]), Labels(y, np.arange(m) // 2, types)


def question(*metrics: str) -> Question:
    return Question("span-labelling", metrics, ("a", "b", "c"), ABOUT)


LAYERS = {"0": 0, "1": 1, "2": 2, "3": 3}
PLANTED = EdgeOptions(projection=8, hidden=16, steps=600, check=50, learning_rate=5e-3, patience=4, controls=1)


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("probe", ["mlp", "linear"])
def test_a_label_in_one_layer_is_found_there(k: int, probe: str) -> None:
    train, dev = planted(600, k, 4, 0), planted(300, k, 4, 1)
    options = replace(PLANTED, probe=probe)
    found, mixes = evaluate_edges(LAYERS, *train, *dev, np.eye(3, dtype=bool), question("accuracy"), options=options)
    accuracy = (found.predicted == found.gold).mean(1)
    of = found.fits.assign(accuracy=accuracy)
    gold = of[(of["target"] == "gold") & (of["representation"] == "attention")]["accuracy"].to_numpy()
    assert gold.argmax() == k
    assert gold[k] > 0.9
    assert np.delete(gold, k).max() < 0.45  # chance 1/3, standard error .027
    assert of.loc[of["target"] == "shuffled", "accuracy"].max() < 0.45
    at = of.index[of["target"] == "control-task"]  # random types are not in the vectors: nothing beats one label
    assert of.loc[at, "accuracy"].max() < np.bincount(found.gold[at[0]]).max() / 300 + 0.08
    steps = of[(of["target"] == "gold") & (of["representation"] == MIX)]["accuracy"].to_numpy()
    assert steps[:k].max(initial=0) < 0.45
    assert steps[k:].min() > 0.85
    of_mix = found.take(found.is_gold & (found.fits["representation"] == MIX).to_numpy(dtype=bool))
    value, low, high = expected_layer_of(of_mix, "accuracy", resamples=200, level=0.95, seed=0)
    assert value == pytest.approx(k, abs=0.25)
    assert low <= value <= high
    assert mixes is not None
    assert mixes.weights[0].sum() == pytest.approx(1)
    assert centre_of_gravity(mixes.layers, mixes.weights)[0] == pytest.approx(k, abs=0.35)


def test_attention_finds_the_piece_that_says_it() -> None:
    """Each span has one marked piece whose sign is the label; the mean of five pieces drowns it in the others."""

    def data(m: int, seed: int) -> tuple[SpanLayers, Labels, np.ndarray]:
        rng = np.random.default_rng(seed)
        y, at = rng.integers(2, size=m), rng.integers(5, size=m)
        x = np.zeros((m, 5, 3), dtype=np.float32)
        x[..., 0] = rng.choice([-1.0, 1.0], size=(m, 5))
        x[np.arange(m), at] = np.stack([2.0 * y - 1, np.full(m, 2.0), np.zeros(m)], 1)
        x += 0.1 * rng.normal(size=x.shape).astype(np.float32)
        first = 5 * np.arange(m)[:, None]
        return SpanLayers([x.reshape(-1, 3)], first, first + 4), Labels(y, np.arange(m)), x

    (train, y, _), (dev, y_dev, x) = data(500, 0), data(300, 1)
    options = replace(PLANTED, probe="linear", controls=0, learning_rate=0.02)
    asked = Question("span-labelling", ("accuracy",), ("no", "yes"), ABOUT)
    found, mixes = evaluate_edges({"0": 0}, train, y, dev, y_dev, np.eye(2, dtype=bool), asked, options=options)
    assert mixes is None
    assert (found.predicted[1] == y_dev.y).mean() > 0.95
    assert ((x[..., 0].mean(1) > 0) == y_dev.y).mean() < 0.85


@pytest.mark.slow
def test_several_labels_at_once_are_pairs_of_a_target_and_a_label() -> None:
    (train, y), (dev, y_dev) = planted(200, 1, 2, 0), planted(100, 1, 2, 1)
    sets = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 1]], dtype=bool)
    found, _ = evaluate_edges(
        {"0": 0, "1": 1},
        train,
        y,
        dev,
        y_dev,
        sets,
        question("micro-f1"),
        several=True,
        options=replace(PLANTED, controls=0),
    )
    assert found.predicted.shape == (len(found.fits), 300)
    at = found.fits.index[(found.fits["layer"] == 1) & (found.fits["target"] == "gold")][0]
    np.testing.assert_array_equal(found.gold[at].reshape(100, 3), sets[y_dev.y])
    assert (found.gold[at] == found.predicted[at]).mean() > 0.9
    assert found.predicted[0].reshape(100, 3).tolist() == [[0, 0, 1]] * 100  # the third holds of all
    out = found.log_loss[at].reshape(100, 3)
    wrong = (found.gold[at] != found.predicted[at]).reshape(100, 3)
    assert (out[wrong] > np.log(2)).all()
    assert (out[~wrong] < np.log(2)).all()


def test_the_expected_layer_and_the_centre_of_gravity_are_the_papers() -> None:
    layers = np.array([0, 1, 2, 4])
    scores = np.array([[0.2, 0.5], [0.5, 0.5], [0.9, 0.5], [0.8, 0.5]])
    by_hand = (1 * 0.3 + 2 * 0.4 - 4 * 0.1) / 0.6
    np.testing.assert_allclose(expected_layer(layers, scores), [by_hand, np.nan])
    assert centre_of_gravity(layers, np.array([0.1, 0.2, 0.3, 0.4])) == pytest.approx(0.2 + 0.6 + 1.6)
    mean, low, high = over_seeds(np.array([1.0, 2.0, 3.0]), 0.95)
    assert (mean, high - mean) == (2, pytest.approx(4.302653 / np.sqrt(3)))
    assert low == pytest.approx(4 - high)
    assert np.isnan(over_seeds(np.array([1.5]), 0.95)[1])
    reads = torch.tensor([[True, True, False]])
    shares = mix_weights({"mix": torch.log(torch.tensor([[1.0, 3.0, 99.0]]))}, reads)
    torch.testing.assert_close(shares, torch.tensor([[0.25, 0.75, 0.0]]))


def fits_of(right: np.ndarray) -> Predictions:
    """Predictions that are right where ``right`` (L, n) says so."""
    fits = pd.DataFrame([{**ABOUT, "layer": i, "representation": MIX, "estimator": "mlp", "target": "gold"}
                         for i in range(len(right))])  # fmt: skip
    gold = np.zeros(right.shape[1], dtype=int)
    return Predictions(fits, gold.astype(str), gold, 1 - right.astype(int), ("accuracy",))


def test_a_mix_that_is_not_better_than_the_first_layer_has_no_expected_layer() -> None:
    rng = np.random.default_rng(0)
    flat = fits_of(rng.random((3, 400)) < 0.7)
    assert np.isnan(expected_layer_of(flat, "accuracy", resamples=200, level=0.95, seed=0)[1:]).all()
    rising = fits_of(rng.random((3, 400)) < np.array([0.3, 0.6, 0.9])[:, None])
    value, low, high = expected_layer_of(rising, "accuracy", resamples=500, level=0.95, seed=0)
    assert low < value < high
    assert value == pytest.approx(1.5, abs=0.15)


def test_a_rare_class_leaves_macro_f1_without_an_interval_and_accuracy_with_one() -> None:
    rising = fits_of(np.random.default_rng(0).random((3, 400)) < np.array([0.3, 0.6, 0.9])[:, None])
    for rare, said in ((9, "9 examples of b; intervals need at least 10"), (10, "")):
        gold = (np.arange(400) < rare).astype(int)
        predicted = np.where(rising.predicted == 0, gold, 1 - gold)
        of = Predictions(rising.fits, rising.ids, gold, predicted, ("macro-f1",), label_names=("a", "b"))
        assert rare_class(of, "macro-f1") == said
        assert rare_class(of, "accuracy") == ""
        value, low, _ = expected_layer_of(of, "macro-f1", resamples=200, level=0.95, seed=0)
        assert np.isfinite(value)
        assert np.isnan(low) == bool(said)


def test_bad_vectors_and_labels_are_refused() -> None:
    (train, y), (dev, y_dev) = planted(40, 1, 2, 0), planted(20, 1, 2, 1)
    one, more = {"0": 0, "1": 1}, {"options": SMALL}

    def of(*given: object) -> None:
        evaluate_edges(one, *given, np.eye(3, dtype=bool), question("accuracy"), **more)  # type: ignore[arg-type]

    bad = SpanLayers([dev.layers[0], np.where(np.arange(len(dev.layers[1]))[:, None] == 7, np.inf, dev.layers[1])],
                     dev.first, dev.last)  # fmt: skip
    with pytest.raises(NonFiniteError, match="layer 1 of dev contains NaN or infinity, first in row 7"):
        of(train, y, bad, y_dev)
    with pytest.raises(UsageError, match="at least two different labels in train"):
        of(train, replace(y, y=np.zeros(40, dtype=int)), dev, y_dev)
    with pytest.raises(UsageError, match="0 labelled targets in dev"):
        of(train, y, dev, replace(y_dev, y=np.full(20, -1)))
    wide = SpanLayers([train.layers[0], train.layers[1][:, :4]], train.first, train.last)
    with pytest.raises(UsageError, match=r"different widths \(0 has 6, 1 has 4\)"):
        of(wide, y, dev, y_dev)
    for wrong in ({"probe": "cubic"}, {"dropout": 1.0}, {"held_out": 0.0}, {"seeds": 0}, {"learning_rate": 0}):
        with pytest.raises(UsageError):
            EdgeOptions(**wrong)


def in_sentences(m: int, rng: np.random.Generator) -> tuple[SpanLayers, Labels]:
    """Words in sentences of four with common noise; layer 1 has a part of the label, layer 2 another one."""
    y, noise = rng.integers(2, size=m), np.repeat(rng.normal(size=(m // 4, 3, 4)), 4, 0).transpose(1, 0, 2)
    x = (rng.normal(size=(3, m, 4)) + noise).astype(np.float32)
    x[1, :, 0] += 2 * (2 * y - 1)
    x[2, :, 1] += 3 * (2 * y - 1)
    at = np.arange(m)[:, None]
    return SpanLayers(list(x), at, at), Labels(y, np.arange(m) // 4)


@pytest.mark.slow
def test_the_interval_of_the_expected_layer_covers_that_of_the_population() -> None:
    """From features to intervals: 400 dev sets of 100 sentences, for trained probes."""
    rng, size = np.random.default_rng(0), 400
    options = replace(PLANTED, probe="linear", steps=200, controls=0, learning_rate=0.02)
    asked, layers = Question("span-labelling", ("accuracy",), ("no", "yes"), ABOUT), {"0": 0, "1": 1, "2": 2}
    train, everyone = in_sentences(800, rng), in_sentences(400 * size, rng)
    found, _ = evaluate_edges(layers, *train, *everyone, np.eye(2, dtype=bool), asked, options=options)
    mixes = found.take((found.fits["representation"] == MIX).to_numpy(dtype=bool))
    truth = expected_layer(np.arange(3), (mixes.predicted == mixes.gold).mean(1)[:, None])[0]
    assert 1.1 < truth < 1.9
    covered = []
    for at in range(0, len(mixes.ids), size):
        some = slice(at, at + size)
        groups = None if mixes.groups is None else mixes.groups[some]
        dev = Predictions(
            mixes.fits, mixes.ids[some], mixes.gold[some], mixes.predicted[:, some], ("accuracy",), groups
        )
        _, low, high = expected_layer_of(dev, "accuracy", resamples=200, level=0.95, seed=at)
        covered.append(low <= truth <= high)
    assert len(covered) == 400
    assert 0.92 < np.mean(covered) < 0.98  # standard error .011


def test_both_ends_of_fiellers_interval_are_t_standard_errors_away():
    above, below, t = 3.0, 2.0, 1.9
    cov = np.array([[0.09, 0.05], [0.05, 0.04]])
    ends = _fieller(above / below, cov, below, t)
    assert ends[0] < above / below < ends[1]
    for e in ends:
        assert (above - e * below) ** 2 == pytest.approx(t**2 * (cov[0, 0] - 2 * e * cov[0, 1] + e**2 * cov[1, 1]))
