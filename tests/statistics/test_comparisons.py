"""Paired comparisons: the arithmetic of each, what is held against what, and the command line."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from probekit.errors import UsageError
from probekit.metrics import metric
from probekit.rows import read_card, read_rows
from probekit.statistics.comparisons import Drawn, Null, _judged, compare_predictions, paired
from probekit.statistics.multiplicity import adjust, tails
from probekit.statistics.options import BASELINES, CompareOptions, Correction, Tails
from probekit.statistics.predictions import Predictions, join

ABOUT = {"task": "toy", "split": "dev", "representation": "mean", "estimator": "logistic", "seed": 0}


def table(accuracies, n=400, seed=0, *, model="m", checkpoint="", controls=0, gold=None, ids=None, **more):
    """Fits whose predictions are right with the probabilities given, a layer each; then controls at one half."""
    rng = np.random.default_rng(seed)
    gold = np.random.default_rng(77).integers(2, size=n) if gold is None else gold
    hard = rng.random(n)
    fits, golds, predicted = [], [], []
    for draw in [None, *range(controls)]:
        target = "gold" if draw is None else "shuffled"
        labels = gold if target == "gold" else rng.permutation(gold)
        for layer, p in enumerate(accuracies):
            right = hard < p if target == "gold" else rng.random(n) < 0.5
            fits.append({**ABOUT, "model": model, "checkpoint": checkpoint, "target": target, "draw": draw,
                         "layer": layer, **more})  # fmt: skip
            golds.append(labels)
            predicted.append(np.where(right, labels, 1 - labels))
    ids = np.array([f"dev-{i}" for i in range(n)]) if ids is None else ids
    return Predictions(pd.DataFrame(fits), ids, np.stack(golds), np.stack(predicted), ("accuracy", "matthews"))


def compare(e, other=None, **options):
    return compare_predictions(e, other, CompareOptions(**options))


def score(e, fit, name="accuracy"):
    return metric(name).function(e.gold[fit], e.predicted[fit])


@pytest.mark.parametrize("name", ["accuracy", "matthews"])
def test_against_a_layer(name):
    e = table([0.6, 0.7, 0.7, 0.9])
    rows = compare(e, metric=name)
    assert rows["layer"].tolist() == [1, 2, 3]
    assert rows["value"].tolist() == pytest.approx([score(e, f, name) - score(e, 0, name) for f in (1, 2, 3)])
    assert set(rows["metric"]) == {f"difference({name})"}
    assert set(rows["analysis"]) == {"compare"}
    assert set(rows["against"]) == {"layer 0"}
    assert (rows["p_adjusted"] >= rows["p"]).all()
    assert rows["p_adjusted"].max() < 0.01
    assert (rows["joint_low"] < rows["ci_low"]).all()
    other = compare(e, metric=name, against="layer-2").set_index("layer")
    assert other.loc[1, "value"] == 0  # the same predictions: no difference, and none is found
    assert other.loc[1, ["p", "p_adjusted"]].tolist() == [1, 1]


def test_pairing_cancels_what_examples_share():
    """The interval of the difference is far narrower than those of the two accuracies suggest."""
    e = table([0.80, 0.82], n=1000)
    [row] = compare(e).to_dict("records")
    apart = 2 * 1.96 * np.sqrt(0.8 * 0.2 / 1000 + 0.82 * 0.18 / 1000)
    assert row["ci_high"] - row["ci_low"] < 0.4 * apart


def test_against_control_tasks_is_against_their_mean():
    e = table([0.5, 0.8], controls=3)
    e = replace(e, fits=e.fits.assign(target=e.fits["target"].replace("shuffled", "control-task")))
    rows = compare(e, against="control-task", tails="better").set_index("layer")
    for layer in (0, 1):
        mean = np.mean([score(e, 2 * (i + 1) + layer) for i in range(3)])
        assert rows.loc[layer, "value"] == pytest.approx(score(e, layer) - mean)
    assert rows.loc[1, "p_adjusted"] < 0.005
    assert rows.loc[0, "p_adjusted"] > 0.05  # the control that must fail: no better than chance
    one = compare(e.take([0, 1, 4, 5]), against="control-task").set_index("layer")  # a single draw
    assert one.loc[1, "value"] == pytest.approx(score(e, 1) - score(e, 5))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy", "macro-f1", "f1", "matthews"])
def test_against_shuffled_labels_is_above_what_permuted_ones_give(name):
    """The value is the mean distance to permuted labels, to their own error, with or without probes trained on some."""
    e = table([0.5, 0.8, 0.9], controls=2, gold=(np.arange(400) < 100).astype(int))
    e = replace(e, metrics=(name,))
    rows = compare(e, against="shuffled", resamples=4000).set_index("layer")
    rng = np.random.default_rng(0)
    for layer in (0, 1, 2):
        by_chance = [metric(name).function(rng.permutation(e.gold[layer]), e.predicted[layer]) for _ in range(1000)]
        error = np.std(by_chance) / np.sqrt(1000)
        assert rows.loc[layer, "value"] == pytest.approx(score(e, layer, name) - np.mean(by_chance), abs=4 * error)
    inside = (rows["ci_low"] < rows["value"]) & (rows["value"] < rows["ci_high"])
    assert inside.all()
    assert rows["ci_low"].loc[[1, 2]].min() > 0 > rows.loc[0, "ci_low"]
    alone = compare(e.take(np.flatnonzero(e.is_gold)), against="shuffled", resamples=4000).set_index("layer")
    pd.testing.assert_frame_equal(alone, rows)


def test_two_that_say_the_same_may_still_differ_by_three_of_n():
    """The interval of Bonett & Price for no discordant pair is ± 2.77 / (n + 2), the rule of three's 3 / n."""
    e = table([0.9, 0.9], n=200)
    [row] = compare(e).to_dict("records")
    assert row["value"] == 0
    assert row["ci_low"] < 0 < row["ci_high"]
    assert 1.5 / 200 < row["ci_high"] < 3.5 / 200
    assert row["p"] == 1


def test_against_the_best_asks_all_pairs():
    e = table([0.6, 0.9, 0.895, 0.7], n=500)
    rows = compare(e, against="best").set_index("layer")
    best = int(np.argmax([score(e, f) for f in range(4)]))
    assert best not in rows.index
    assert len(rows) == 3
    assert (rows["value"] <= 0).all()
    assert set(rows["against"]) == {f"layer {best} (best)"}
    close = [layer for layer in (1, 2) if layer != best]
    assert rows.loc[close, "p_adjusted"].min() > 0.05 > rows.loc[[0, 3], "p_adjusted"].max()


def test_two_models_layer_by_layer_whatever_the_order():
    a, b = table([0.6, 0.9], checkpoint="fine-tuned"), table([0.6, 0.7])
    order = np.random.default_rng(3).permutation(400)
    turned = Predictions(b.fits, b.ids[order], b.gold[:, order], b.predicted[:, order], b.metrics)
    rows, again = compare(a, b), compare(a, turned)
    pd.testing.assert_frame_equal(rows, again)
    assert rows["value"].tolist() == pytest.approx([score(a, f) - score(b, f) for f in (0, 1)])
    assert set(rows["checkpoint"]) == {"fine-tuned"}
    assert set(rows["against"]) == {"m, pretrained"}
    assert set(compare(b, b)["against"]) == {"m"}
    with pytest.raises(UsageError, match="different examples"):
        compare(a, table([0.6, 0.7], ids=np.array([f"test-{i}" for i in range(400)])))


def test_a_second_table_with_random_weights_or_another_pooling():
    """Trained is compared with trained; rows of random weights in the second table do not enter its reference."""
    a, b = table([0.6, 0.9], checkpoint="tuned"), table([0.6, 0.7])
    random = table([0.5, 0.5], seed=4, checkpoint="random-0", random_weights=0)
    alone = compare(a, b)
    pd.testing.assert_frame_equal(compare(a, join(b, random))[list(alone)], alone)
    assert set(compare(a, random)["against"]) == {"m, random weights"}  # the only ones there
    last = compare(a, replace(b, fits=b.fits.assign(representation="last")))
    assert last["value"].tolist() == pytest.approx([score(a, f) - score(b, f) for f in (0, 1)])
    assert set(last["against"]) == {"m, pretrained, last"}
    with pytest.raises(UsageError, match=r"2 curves for toy \(checkpoint none; checkpoint early\).* rows of one model"):
        compare(a, join(b, table([0.6, 0.8], checkpoint="early")))


def test_against_the_random_model():
    a, b = table([0.6, 0.9]), table([0.5, 0.5], seed=4, checkpoint="random-0", random_weights=0)
    rows = compare(a, b, against="random")
    assert rows["value"].tolist() == pytest.approx([score(a, f) - score(b, f) for f in (0, 1)])
    assert set(rows["against"]) == {"m, random weights"}
    assert set(rows["checkpoint"]) == {""}


def test_several_initialisations_are_one_model():
    """Three that lie 8 points apart: the error of their mean, Student's t with two degrees of freedom, is in all."""
    trained = table([0.6, 0.75], n=1000)
    seeds = [
        table([p, p], n=1000, seed=9, checkpoint=f"random-{i}", random_weights=i)
        for i, p in enumerate((0.52, 0.6, 0.68))
    ]
    rows = compare(join(trained, *seeds), against="random").set_index("layer")
    one = compare(join(trained, seeds[1]), against="random").set_index("layer")
    assert set(rows["null"]) == {Null.INITIALISATIONS}
    assert set(one["null"]) == {Null.EXCHANGEABLE}
    means = [score(x, 1) for x in seeds]
    assert rows.loc[1, "value"] == pytest.approx(score(trained, 1) - np.mean(means))
    error = np.std(means, ddof=1) / np.sqrt(3)
    half = (rows.loc[1, "ci_high"] - rows.loc[1, "ci_low"]) / 2
    assert half > 0.9 * stats.t.ppf(0.975, 2) * error  # and the examples' own
    assert one.loc[1, "p"] < 0.001
    assert rows.loc[1, "p"] > 0.03  # t is about 4 with two degrees of freedom: p .06
    alike = compare(join(trained, *(replace(seeds[1], fits=x.fits) for x in seeds)), against="random")
    assert alike["p"].iloc[1] < 0.001  # seeds that agree leave no error


def test_against_the_random_model_of_the_same_name():
    a = table([0.6, 0.8])
    own = table([0.5, 0.5], seed=3, checkpoint="random-0", random_weights=0)
    other = table([0.9, 0.9], seed=4, model="n", checkpoint="random-0", random_weights=0)
    rows = compare(join(a, own, other), against="random")
    assert rows["value"].tolist() == compare(join(a, own), against="random")["value"].tolist()
    assert set(compare(join(a, other), against="random")["against"]) == {"n, random weights"}  # the only one there


@pytest.mark.parametrize("name", BASELINES)
def test_against_a_baseline_is_the_difference_of_two_fits(name):
    a, bag = table([0.6, 0.9]), table([0.7])
    bag = replace(bag, fits=bag.fits.assign(layer=None, site="", representation=BASELINES[name]))
    both = join(a, bag)
    both = replace(both, fits=both.fits.drop(columns="source"))
    rows = compare(both, against=name).set_index("layer")
    assert rows["value"].tolist() == pytest.approx([score(both, f) - score(both, 2) for f in (0, 1)])
    assert set(rows["against"]) == {name}
    assert set(rows["null"]) == {str(Null.EXCHANGEABLE)}
    same = paired(both, [(0, [2]), (1, [2])], "accuracy")
    assert rows["p_adjusted"].tolist() == same.p_adjusted.tolist()
    if not name.endswith("-of-pieces"):
        with pytest.raises(UsageError, match=f"{name} is compared by accuracy, .* not by macro-f1; compare with"):
            compare(both, against=name, metric="macro-f1")
    with pytest.raises(UsageError, match="Bags of word pieces are fitted where texts are labelled; probe those with"):
        compare(a, against="bag-of-pieces")
    with pytest.raises(UsageError, match="Tf-idf of word pieces is fitted where texts are labelled; probe those with"):
        compare(a, against="tf-idf-of-pieces")


def test_nothing_to_hold_against_is_said():
    with pytest.raises(UsageError, match=r"nothing to compare with for 'control-task'.*layers 0, 1, the target"):
        compare(table([0.5, 0.6]), against="control-task")


def test_losses_are_better_when_lower():
    e = table([0.5, 0.8])
    loss = np.where(e.predicted == e.gold, 0.2, 1.5).astype(np.float32)
    e = Predictions(e.fits, e.ids, e.gold, e.predicted, e.metrics, None, loss)
    [row] = compare(e, metric="log-loss", tails="better").to_dict("records")
    assert row["value"] < 0
    assert row["p"] < 0.01
    [back] = compare(e, metric="log-loss", against="layer-1", tails=Tails.BETTER).to_dict("records")
    assert back["p"] > 0.99


def test_step_down_against_its_definition():
    rng = np.random.default_rng(0)
    null, t = rng.normal(size=(6, 500)), np.array([3.1, 0.2, 2.4, 2.9, -1.0, 2.4])
    p, by_chance = tails(t, null)
    every = np.column_stack([t, null])
    np.testing.assert_allclose(p, (every >= t[:, None]).mean(1))
    np.testing.assert_allclose(by_chance[2, 7], (every[2] >= null[2, 7]).mean())
    order, before, want = sorted(range(6), key=lambda k: p[k]), 0.0, np.empty(6)
    for i, k in enumerate(order):
        rest = by_chance[order[i:]].min(0)
        before = want[k] = max(before, (1 + (rest <= p[k] + 1e-9).sum()) / 501)
    np.testing.assert_allclose(adjust(p, by_chance), want)
    assert np.isnan(adjust(np.array([np.nan, 0.01]), by_chance[:2])).tolist() == [True, False]


def test_few_differences_are_the_sign_test():
    """Three examples that differ, all in favour: of eight ways to sign them two are as extreme."""
    e = table([0.5, 0.5], n=500)
    wrong = np.flatnonzero(e.predicted[0] != e.gold[0])[:3]
    e.predicted[1, wrong] = e.gold[1, wrong]
    p = paired(e, [(1, [0])], "accuracy", options=CompareOptions(resamples=20_000)).p[0]
    assert p == pytest.approx(2 / 8, abs=0.01)  # three standard errors of 20,000 draws
    one_sided = CompareOptions(resamples=20_000, tails="better")
    assert paired(e, [(1, [0])], "accuracy", options=one_sided).p[0] == pytest.approx(1 / 8, abs=0.01)


def test_undefined_values_have_no_p():
    rng = np.random.default_rng(0)
    y, e = rng.normal(size=100), table([0.5, 0.6, 0.7], n=100)
    predicted = np.stack([y + rng.normal(size=100), np.full(100, np.nan), y])
    rows = compare(Predictions(e.fits, e.ids, y, predicted, ("pearson",))).set_index("layer")
    assert rows.loc[1, ["value", "ci_low", "p", "p_adjusted"]].isna().all()
    assert rows.loc[2, "p_adjusted"] < 0.01


def test_holm_against_a_worked_example():
    """Of independent, equal evidence Holm and max-T nearly agree; of copies of one layer max-T costs nothing."""
    e = table([0.5, 0.58, 0.58, 0.58])
    pairs = [(k, [0]) for k in (1, 2, 3)]
    holm = paired(e, pairs, "accuracy", options=CompareOptions(correction=Correction.HOLM))
    max_t = paired(e, pairs, "accuracy")
    np.testing.assert_allclose(max_t.p_adjusted, max_t.p)
    np.testing.assert_allclose(holm.p_adjusted, np.minimum(1, 3 * holm.p))
    assert np.isnan(holm.joint).all()


def test_the_same_layer_fitted_twice_is_refused():
    e = table([0.5, 0.6])
    twice = Predictions(e.fits.assign(layer=0), e.ids, e.gold, e.predicted, e.metrics)
    with pytest.raises(UsageError, match="layer 0 of m was fitted more than once"):
        compare(twice)


def whole(e, run):
    """As a training run leaves it: no layer, and its own head."""
    return replace(e, fits=e.fits.assign(site="", layer=None, checkpoint=run, estimator=f"head of {run}"))


def test_whole_models_have_no_layers():
    a, b = table([0.8]), table([0.7], seed=1)
    [row] = compare(whole(a, "a"), whole(b, "b")).to_dict("records")
    family = paired(join(a, b), [(0, [1])], "accuracy")
    assert row["value"] == pytest.approx(score(a, 0) - score(b, 0))
    assert (row["ci_low"], row["ci_high"], row["p"]) == (*family.ci[0], family.p[0])
    assert (row["checkpoint"], row["against"], row["site"]) == ("a", "m, b", "")
    with pytest.raises(UsageError, match=r"for 'layer-0': the rows hold no layers"):
        compare(whole(a, "a"))
    other = whole(b, "b")
    with pytest.raises(UsageError, match="nothing to compare with for 'other'"):
        compare(whole(a, "a"), replace(other, fits=other.fits.assign(split="test")))


def drawn(observed, draws):
    """Differences of so many layers whose draws of chance are normal."""
    rng = np.random.default_rng(5)
    observed = np.asarray(observed, dtype=float)
    noise = np.where(np.isnan(observed)[:, None], np.nan, rng.normal(size=(len(observed), draws)))
    return Drawn(observed, rng.normal(size=(len(observed), 200)), (observed, noise), 100, 1)


@pytest.mark.parametrize("correction", ["min-p", "max-t", "holm"])
def test_an_undefined_layer_costs_the_others_nothing(correction):
    options = CompareOptions(correction=correction)
    (alone,) = _judged([drawn([9, 0.1], 999)], options)
    (beside,) = _judged([drawn([9, 0.1, np.nan], 999)], options)
    assert alone.p_adjusted[0] == pytest.approx(0.001, abs=2e-3)
    assert beside.p_adjusted[:2] == pytest.approx(alone.p_adjusted, abs=0.05)
    assert np.isnan(beside.p_adjusted[2])


def test_curves_with_other_numbers_of_draws_are_no_family():
    with pytest.raises(UsageError, match="19 and 999 draws under the null.*--family curve"):
        _judged([drawn([9], 999), drawn([1], 19)], CompareOptions(family="task"))


def test_curves_of_many_and_of_few_examples_are_a_family():
    one, other = _judged([drawn([9], 2500), drawn([0.1], 3000)], CompareOptions(family="task"))
    assert one.p_adjusted[0] == pytest.approx(1 / 2501, abs=1e-3)
    assert other.p_adjusted[0] > 0.05


@pytest.mark.parametrize("groups", [2, 4, 5])
def test_few_groups_have_no_interval(groups):
    found = compare(replace(table([0.6, 0.9]), groups=np.arange(400) % groups), against="layer-0")
    assert np.isnan(found["ci_low"]).all() == (groups < 5)


def silent(metric, gold=0, **more):
    """Against permuted labels: the row of a fit that says 0 of every example."""
    gold, predicted = np.full((2, 60), gold), np.zeros((2, 60), dtype=int)
    fits = pd.DataFrame([{**ABOUT, "target": "gold", "draw": None, "layer": i} for i in range(2)])
    ids = np.array([f"dev-{i}" for i in range(60)])
    return compare(Predictions(fits, ids, gold, predicted, (metric,), **more), against="shuffled", metric=metric).iloc[
        0
    ]


@pytest.mark.parametrize("metric", ["f1", "span-f1", "accuracy", "rmse"])
def test_fits_that_nothing_could_speak_for(metric):
    """No example is, or is called, positive; no span; one class; one number: nothing found, and no interval."""
    words = {"label_names": ("O", "B-X"), "sentences": np.arange(60) // 6} if metric == "span-f1" else {}
    row = silent(metric, **words)
    assert (row["value"], row["p"]) == (0, 1)
    assert np.isnan([row["ci_low"], row["ci_high"], row["joint_low"]]).all()


def test_command_line(tmp_path, call):
    a = table([0.6, 0.9, 0.7], controls=2).write(tmp_path / "a.examples.parquet")
    b = table([0.6, 0.7, 0.7], seed=2, checkpoint="other").write(tmp_path / "b.examples.parquet")
    assert call("compare", a, "--against", "shuffled", "--tails", "better", "--out", tmp_path / "c.parquet").status == 0
    rows = read_rows(tmp_path / "c.parquet")
    assert rows["value"].tolist() == pytest.approx(compare(Predictions.read(a), against="shuffled")["value"].tolist())
    recipe = read_card(tmp_path / "c.parquet")["recipe"]
    assert (recipe["arguments"]["tails"], recipe["defaults"]["correction"]) == ("better", "min-p")
    words = ("--metric", "matthews", "--correction", "holm", "--out", tmp_path / "d.csv")
    shown = call("compare", a, b, *words)
    assert (shown.status, "p adjusted: corrected over the layers of each curve (holm)." in shown.out) == (0, True)
    assert set(read_rows(tmp_path / "d.csv")["correction"]) == {"holm"}
    shown = call("summary", a, b, "--out", tmp_path / "s.parquet")
    assert shown.status == 0
    best = read_rows(tmp_path / "s.parquet").query("metric == 'best-layer'")
    assert best["value"].iloc[0] == 1
    assert "best-layer" in shown.out
    for run in ("m", "m, other"):  # which curve each line below the table is of
        assert re.search(rf"^toy, {run}, mean: best accuracy 0\.\d+ at layer \d, between ", shown.out, re.MULTILINE)
    for words, why in ((("--correction", "bonferroni"), "holm"), (("--resamples", 10), "--resamples is 10")):
        refused = call("compare", a, *words)
        assert refused.status == 2
        assert why in refused.err


@pytest.mark.parametrize(
    ("one", "other", "n"),
    [
        (5, 0, 40),
        pytest.param(5, 0, 100, marks=pytest.mark.slow),
        pytest.param(6, 0, 200, marks=pytest.mark.slow),
        (9, 1, 200),
        pytest.param(4, 0, 40, marks=pytest.mark.slow),
    ],
)
def test_two_sided_exchange_is_mcnemars_exact_test(one, other, n):
    """Exchanges of the examples that tell two fits apart are a binomial; no seed leaves one of two sides out."""
    gold = np.ones(n, dtype=int)
    said = np.ones((2, n), dtype=int)
    said[0, :one], said[1, one : one + other] = 0, 0
    fits = pd.DataFrame({"task": "t", "split": "dev", "model": "m", "layer": [0, 1], "target": "gold"})
    e = Predictions(fits, np.arange(n).astype(str), gold, said, ("accuracy",))
    exact = stats.binomtest(one, one + other).pvalue
    for seed in range(6):
        [row] = compare_predictions(e, options=CompareOptions(against="layer-0", seed=seed)).to_dict("records")
        assert row["p"] == pytest.approx(exact, abs=4 * np.sqrt(exact / 10_000) + 1e-4)
