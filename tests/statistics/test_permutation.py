"""What chance gives: each draw against the metric's own function, and p-values that are known exactly."""

from dataclasses import replace
from math import comb

import numpy as np
import pandas as pd
import pytest

from probekit.errors import UsageError
from probekit.metrics import metric
from probekit.probes.protocol.diagnostic import evaluate_layers
from probekit.probes.protocol.labels import Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.protocol.rows import probe_rows
from probekit.statistics.comparisons import Null, above_noise, compare_predictions, compare_tables, paired
from probekit.statistics.multiplicity import holm
from probekit.statistics.options import CompareOptions, Correction
from probekit.statistics.permutation import exchanged
from probekit.statistics.predictions import Predictions, join
from probekit.statistics.relabelling import _bins, above_chance, relabelled, shuffles

TAGS = ("O", "B-X", "I-X", "B-Y")


def table(gold, predicted, metrics=("matthews",), groups=None, names=(), **more):
    fits = {"task": "toy", "split": "dev", "model": "m", "target": "gold", **more}
    frame = pd.DataFrame({**fits, "layer": range(len(predicted))})
    return Predictions(
        frame, np.arange(predicted.shape[1]).astype(str), gold, predicted, metrics, groups, label_names=names
    )


def score(name, gold, predicted, groups=None):
    if name != "span-f1":
        return metric(name).function(gold, predicted)
    cut = np.flatnonzero(np.diff(groups)) + 1
    both = ([[TAGS[t] for t in s] for s in np.split(y, cut)] for y in (gold, predicted))
    return metric(name).function(*both)


def made(rng, name, fits, n):
    """Gold of each fit, predictions, and groups for spans."""
    if metric(name).needs == "numbers":
        return rng.normal(size=(fits, n)), rng.normal(size=(fits, n)), None
    groups = np.sort(rng.integers(n // 6, size=n)) if name == "span-f1" else None
    classes = 2 if name == "f1" else 4
    return rng.integers(classes, size=(fits, n)), rng.integers(classes, size=(fits, n)), groups


NAMES = (
    "accuracy",
    "f1",
    "macro-f1",
    "balanced-accuracy",
    "quadratic-kappa",
    "matthews",
    "span-f1",
    "pearson",
    "spearman",
    "rmse",
)


@pytest.mark.parametrize("name", NAMES)
def test_permuted_labels_against_the_definition(name):
    gold, predicted, groups = made(np.random.default_rng(0), name, 3, 120)
    observed, null = relabelled(table(gold[0], predicted, (name,), groups, TAGS), [2, 0], name, draws=30, seed=1)
    orders = np.concatenate(list(shuffles(120, groups, draws=30, seed=1)))
    assert observed == pytest.approx([score(name, gold[0], predicted[f], groups) for f in (2, 0)])
    want = [[score(name, gold[0][order], predicted[f], groups) for order in orders] for f in (2, 0)]
    np.testing.assert_allclose(null, want, atol=1e-12)


def test_groups_with_the_same_labels_are_named(caplog):
    """Labels of pairs that are true, then false, stay where they are when whole pairs are exchanged."""
    gold, groups = np.tile([1, 0], 30), np.repeat(np.arange(30), 2)
    _, null = relabelled(table(gold, gold[None], ("accuracy",), groups), [0], "accuracy", draws=20, seed=0)
    assert (null == 1).all()
    assert "the same labels in the same order" in caplog.text
    caplog.clear()
    gold[:2] = 0, 1  # one pair the other way round: labels move
    relabelled(table(gold, gold[None], ("accuracy",), groups), [0], "accuracy", draws=20, seed=0)
    assert not caplog.text


@pytest.mark.parametrize("name", ["accuracy", "macro-f1", "balanced-accuracy", "quadratic-kappa", "rmse", "span-f1"])
def test_exchanged_outcomes_against_the_definition(name):
    """A fit and two others, then two alone: gold moves with what was predicted; groups stay together."""
    gold, predicted, groups = made(np.random.default_rng(1), name, 3, 120)
    groups = np.repeat(np.arange(60), 2) if groups is None else groups
    unit = np.unique(groups, return_inverse=True)[1]
    e = table(gold, predicted, (name,), groups, TAGS)
    observed, null = exchanged(e, [(0, [1, 2]), (1, [0])], name, draws=20, seed=3)
    own = [score(name, gold[f], predicted[f], groups) for f in range(3)]
    assert observed == pytest.approx([own[0] - (own[1] + own[2]) / 2, own[1] - own[0]])
    for k, fits in enumerate(([0, 1, 2], [1, 0])):
        slots = np.random.default_rng([3, len(fits)]).integers(len(fits), size=(20, unit.max() + 1), dtype=np.int32)
        for r, slot in enumerate(slots):
            from_ = [np.array(fits)[(i + slot[unit]) % len(fits)] for i in range(len(fits))]
            after = [score(name, gold[f, np.arange(120)], predicted[f, np.arange(120)], groups) for f in from_]
            assert null[k, r] == pytest.approx(after[0] - np.mean(after[1:]), abs=1e-12)


def test_correlations_exchange_what_enters_them():
    """The scale of a fit's predictions is no part of a correlation, and does not matter for its exchange."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    said = y + rng.normal(size=(2, 200))
    for name in ("pearson", "spearman"):
        one, two = (
            exchanged(table(y, x, (name,)), [(0, [1])], name, draws=200, seed=0) for x in (said, said * [[1], [1e3]])
        )
        np.testing.assert_allclose(one[1], two[1], atol=1e-9)
        assert np.abs(one[1]).max() < 0.2  # raw predictions of two scales would swamp each other
        assert one[0][0] == pytest.approx(score(name, y, said[0]) - score(name, y, said[1]))


def test_two_right_calls_of_a_minority_class_are_not_much():
    """The case in which flipped signs of pseudo-values found p = .0005: exact are 1/2, and C(322, 2) / C(1043, 2)."""
    gold = (np.arange(1043) >= 322).astype(int)
    none, two = np.ones(1043, int), np.where(np.arange(1043) < 2, 0, 1)
    e, how = table(gold, np.stack([two, none])), CompareOptions(resamples=4000)
    assert paired(e, [(0, [1])], "matthews", options=how).p[0] == pytest.approx(0.5, abs=0.03)  # four standard errors
    above = above_noise(e, [0, 1], "matthews", draws=4000, seed=0).above
    p, adjusted = above.p, above.p_adjusted
    assert p[0] == pytest.approx(comb(322, 2) / comb(1043, 2), abs=0.02)
    assert p[1] == adjusted[1] == 1  # the constant answer: nothing that chance could change
    assert adjusted[0] == pytest.approx(p[0])  # so it costs the other nothing


def test_labels_of_a_group_stay_together():
    """Equal sizes change places; of rare sizes, a longer one is cut and a shorter one begins again."""
    size = np.array([3] * 20 + [2] * 15 + [7, 9])
    groups = np.repeat(np.arange(len(size)), size)
    start = np.cumsum(size) - size
    seen = set()
    for order in np.concatenate(list(shuffles(len(groups), groups, draws=40, seed=0))):
        for g in range(20):
            source = groups[order[start[g]]]
            assert size[source] in (3, 7, 9)
            place = np.arange(3) % size[source]
            assert order[start[g] : start[g] + 3].tolist() == (start[source] + place).tolist()
            seen.add(source)
        assert {size[groups[order[start[g]]]] for g in range(20, 35)} == {2}
    assert len(seen) == 22
    mixed = np.random.default_rng(0).permutation(groups)  # rows of a group need not be neighbours
    for order in np.concatenate(list(shuffles(len(groups), mixed, draws=3, seed=0))):
        assert all(len(set(mixed[order[mixed == g]])) == 1 for g in range(len(size)))


def probed(metrics=("matthews", "accuracy"), controls=2, know=0.0):
    rng = np.random.default_rng(5)
    y, y_dev = ((rng.random(n) < 0.2).astype(int) for n in (200, 150))
    train, dev = ({str(i): rng.normal(size=(n, 8)) for i in range(3)} for n in (200, 150))
    train["2"][:, 0] += know * y
    dev["2"][:, 0] += know * y_dev
    about = {"task": "toy", "split": "dev", "model": "m", "representation": "mean"}
    options = ProbeOptions(controls=controls, penalties=(0.01, 1.0), folds=2, resamples=0, threads=1)
    return evaluate_layers(train, y, dev, y_dev, Question("classification", metrics, (), about), options=options)


def test_from_features_to_the_p_of_log_loss(tmp_path):
    """Fits, their file, and the share of permuted labels that the stored probabilities predict as well."""
    e = Predictions.read(probed(know=1.5).write(tmp_path / "a.examples.parquet"))
    rows = compare_predictions(
        e, options=CompareOptions("shuffled", "log-loss", tails="better", resamples=500)
    ).set_index("layer")
    assert set(rows["null"]) == {Null.INDEPENDENT}
    orders = np.concatenate(list(shuffles(150, None, draws=500, seed=0)))
    layer = e.fits.index[(e.fits["layer"] == 1) & e.is_gold][0]
    p = e.take([layer]).probabilities[0].astype(float)
    gold = e.gold[layer]
    np.testing.assert_allclose(-np.log(p[np.arange(150), gold]), e.log_loss[layer], rtol=1e-4)
    loss = -np.log(p[np.arange(150), gold]).mean()
    null = -np.log(p[np.arange(150), gold[orders]]).mean(1)
    assert rows.loc[1, "p"] == pytest.approx((1 + (null <= loss + 1e-9).sum()) / 501)
    assert rows.loc[2, "p_adjusted"] < 0.01
    assert rows.loc[[0, 1], "p_adjusted"].min() > 0.05


@pytest.mark.parametrize("name", [pytest.param("matthews", marks=pytest.mark.slow), "log-loss"])
def test_rows_hold_the_p_of_compare(name):
    """What makes a marker hollow is the test of compare, on each layer's row and on its distance to permuted labels."""
    e = probed(know=1.5)
    rows = probe_rows(e, resamples=300)
    how = CompareOptions("shuffled", name, tails="better", resamples=300)
    tested = compare_predictions(e, options=how).set_index("layer")
    for metric_name in (name, f"above-permuted({name})"):
        own = rows[(rows["metric"] == metric_name) & (rows["target"] == "gold") & rows["layer"].notna()]
        own = own.set_index("layer")
        for column in ("p", "p_adjusted"):
            assert own[column].tolist() == tested[column].tolist()
    rest = rows[(rows["target"] != "gold") | rows["layer"].isna()]
    assert rest["p"].isna().all()
    assert probe_rows(e, resamples=0)["p"].isna().all()


@pytest.mark.parametrize("found", [0, 1])
def test_interval_noise_band_and_p_of_spans_say_one_thing(found):
    """100 sentences of 12 words with a span each; gold finds none, or all, and three probes of shuffled labels none."""
    start, n = np.arange(100) * 12 + np.random.default_rng(0).integers(12, size=100), 1200
    gold = np.bincount(start, minlength=n)
    e = table(gold, np.stack([found * gold, *np.zeros((3, n), dtype=int)]), ("span-f1",), np.arange(n) // 12, TAGS[:2])
    fits = e.fits.assign(layer=0, target=["gold", *["shuffled"] * 3], draw=[None, 0, 1, 2], converged=True)
    rows = probe_rows(replace(e, fits=fits), resamples=400)
    one, noise = (rows[(rows["metric"] == "span-f1") & (rows["target"] == name) & rows["draw"].isna()].iloc[0]
                  for name in ("gold", "shuffled"))  # fmt: skip
    gain = rows[rows["metric"] == "above-shuffled(span-f1)"].iloc[0]
    assert noise["value"] == 0
    assert noise["ci_high"] < 0.1
    assert one["ci_low"] <= one["value"] == found <= one["ci_high"]
    above = one["p"] < 0.05, one["ci_low"] > noise["ci_high"], gain["ci_low"] > 0
    assert above == (bool(found),) * 3


def test_probabilities_are_of_gold_fits_alone():
    e = probed()
    assert e.probabilities.shape == (e.is_gold.sum(), 150, 2)
    assert e.probabilities.dtype == np.float32
    assert e.is_gold.sum() == 4 < len(e)  # the constant answer, three layers
    np.testing.assert_allclose(e.probabilities.sum(2), 1, rtol=1e-5)
    layers = np.flatnonzero(e.is_gold)[1:]
    assert (e.probabilities[1:].argmax(2) == e.predicted[layers]).all()
    picked = e.take([len(e) - 1, layers[2], layers[0]])  # a control in between does not shift them
    np.testing.assert_array_equal(picked.probabilities, e.probabilities[[3, 1]])
    both = join(e, e)
    np.testing.assert_array_equal(both.probabilities, np.concatenate([e.probabilities] * 2))
    with pytest.raises(UsageError, match="probabilities have the shape"):
        replace(e, probabilities=e.probabilities[:2])


def test_log_loss_without_probabilities_is_ranked_or_refused():
    few, many = (replace(probed(controls=k), probabilities=None) for k in (2, 19))
    how = CompareOptions("shuffled", "log-loss", tails="better")
    with pytest.raises(UsageError, match=r"which these files do not contain, or 19 draws .* there are 2"):
        compare_predictions(few, options=how)
    rows = compare_predictions(many, options=how).set_index("layer")
    assert set(rows["null"]) == {Null.RANK}
    for layer in range(3):
        own = (many.fits["layer"] == layer).fillna(value=False).to_numpy(dtype=bool)
        loss = many.log_loss[own].mean(1)
        assert rows.loc[layer, "p"] == pytest.approx((loss <= loss[0]).sum() / 20)  # gold comes first


@pytest.mark.slow
def test_families_reach_over_tasks_and_models():
    rng = np.random.default_rng(4)
    gold = rng.integers(2, size=300)
    said = np.where(rng.random((4, 3, 300)) < [[0.5], [0.56], [0.6]], gold, 1 - gold)
    names = [(t, m) for t in "ab" for m in "xy"]
    tables = [(table(gold, x, ("accuracy",), task=t, model=m), None) for x, (t, m) in zip(said, names, strict=True)]
    alone = compare_tables(tables)
    for over, key in (("curve", ["task", "model"]), ("task", ["task"]), ("model", ["model"]), ("all", ["analysis"])):
        rows = compare_tables(tables, CompareOptions(family=over, correction=Correction.HOLM))
        assert rows["p"].tolist() == alone["p"].tolist()
        for _, part in rows.groupby(key):
            assert part["p_adjusted"].tolist() == holm(part["p"].to_numpy()).tolist()
        wide = compare_tables(tables, CompareOptions(family=over))
        assert (wide["p_adjusted"] >= alone["p_adjusted"] - 1e-12).all()
        assert (wide["joint_low"] <= alone["joint_low"] + 1e-12).all()
    same = [(table(gold, said[0], ("accuracy",), task=t, model=m), None) for t, m in names]
    copies = compare_tables(same, CompareOptions(family="all"))["p_adjusted"]  # min-p knows that they are copies
    assert copies.tolist() == compare_tables(same)["p_adjusted"].tolist()


@pytest.mark.parametrize(
    ("kind", "wanted", "told"),
    [
        ("classes", "pearson", "whose labels are classes; choose accuracy, macro-f1, balanced-accuracy, matthews"),
        ("classes", "f1", "classes"),
        ("numbers", "accuracy", "whose labels are numbers; choose pearson, rmse, spearman"),
        ("tags", "rmse", "whose labels are tags"),
    ],
)
def test_a_metric_of_other_labels_is_refused(kind, wanted, told):
    rng = np.random.default_rng(0)
    gold, said = rng.integers(3, size=50), rng.integers(3, size=(2, 50))
    e = {
        "classes": table(gold, said, ("accuracy",)),
        "numbers": table(gold * 1.5, said * 0.5, ("pearson",)),
        "tags": table(gold, said, ("span-f1",), np.arange(50) // 5, TAGS[:3]),
    }[kind]
    with pytest.raises(UsageError, match=told):
        compare_predictions(e, options=CompareOptions(metric=wanted))


def label_sets(rng, said, sentences=40, shares=(0.6, 0.2, 0.03)):
    """Label sets of one to four examples a sentence, as pairs of an example and a label, and predictions of them."""
    of = np.repeat(np.arange(sentences), np.tile([1, 2, 3, 4], sentences // 4))
    gold = (rng.random((len(of), len(shares))) < shares).astype(np.int64)
    ids = np.arange(gold.size).astype(str)
    fits = pd.DataFrame({"task": "t", "split": "dev", "model": "m", "layer": [0], "target": "gold"})
    predicted = said(gold).reshape(1, -1)
    return Predictions(fits, ids, gold.ravel(), predicted, ("micro-f1",), np.repeat(of, len(shares)))


def test_label_sets_move_as_wholes():
    """A probe that says the frequent label of every example knows the frequencies of labels, and nothing else."""
    e = label_sets(np.random.default_rng(0), lambda gold: np.tile([1, 0, 0], (len(gold), 1)), shares=(1, 0.2, 0.03))
    observed, null = relabelled(e, [0], "micro-f1", draws=200, seed=0)
    np.testing.assert_allclose(null, np.broadcast_to(observed[:, None], null.shape), atol=0.05)
    torn = replace(e, groups=None)  # the control that must fail: pairs permuted one by one
    assert observed[0] > relabelled(torn, [0], "micro-f1", draws=200, seed=0)[1].max() + 0.2


@pytest.mark.slow
def test_several_labels_have_a_p():
    known = label_sets(np.random.default_rng(0), lambda gold: gold * (np.arange(len(gold)) % 3 > 0)[:, None])
    how = CompareOptions(against="shuffled", tails="better", resamples=400)
    assert compare_predictions(known, options=how)["p"].iloc[0] < 0.01
    rng = np.random.default_rng(1)
    noise = [label_sets(rng, lambda gold: (rng.random(gold.shape) < [0.5, 0.2, 0.1]).astype(int)) for _ in range(100)]
    ps = [compare_predictions(e, options=how)["p"].iloc[0] for e in noise]
    assert np.mean(np.array(ps) <= 0.05) <= 0.05 + 3 * 0.022


def test_groups_of_similar_size_exchange_where_ten_are_enough():
    bins = _bins(np.repeat(np.arange(20), [1] * 10 + [2] * 10))
    assert [len(members) for members, *_ in bins] == [10, 10]
    assert [len(members) for members, *_ in _bins(np.repeat(np.arange(19), [1] * 10 + [2] * 9))] == [19]


def test_log_loss_above_chance_is_that_of_independent_labels():
    rng = np.random.default_rng(0)
    gold, p = rng.integers(3, size=60), rng.dirichlet(np.ones(3), size=60)[None]
    fits = pd.DataFrame([{"task": "t", "split": "dev", "target": "gold", "model": "m"}])
    e = Predictions(fits, np.arange(60).astype(str), gold, p.argmax(2), ("log-loss",), probabilities=p)
    value, again = above_chance(
        e, [0], "log-loss", relabelled(e, [0], "log-loss", draws=99, seed=0), resamples=200, seed=0
    )
    loss, share = -np.log(p[0]), np.bincount(gold, minlength=3) / 60
    np.testing.assert_allclose(value, loss[np.arange(60), gold].mean() - loss.mean(0) @ share, rtol=1e-6)
    assert np.abs(again).max() < 3
