"""The words for what rows show: what is planted is named, and noise names nothing more often than its level allows."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from probekit.analyses.structural.sentences import sentences as structural
from probekit.analyses.verdict import sentences
from probekit.analyses.verdict.curves import Curve
from probekit.analyses.verdict.words import adjusted, at_least, at_most, listed, number, p_value
from probekit.information.curves import layer_information
from probekit.information.options import InformationOptions
from probekit.probes.codes.mdl import mdl_rows
from probekit.probes.codes.options import CodeOptions
from probekit.probes.protocol.baselines import Baselines
from probekit.probes.protocol.diagnostic import evaluate_layers
from probekit.probes.protocol.labels import Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.protocol.rows import probe_rows
from probekit.rows import Result, make_rows, read
from probekit.statistics.comparisons import compare_predictions
from probekit.statistics.curves import curve_summary
from probekit.statistics.options import CompareOptions, SummaryOptions
from probekit.statistics.predictions import join

ABOUT = {"task": "toy", "split": "dev", "model": "m", "representation": "mean"}
NUMBER = r"-?\d?\.\d+"
PROBED = {}
P = r"over \d+ (layers|pairs of layers) [≤<=] \.\d+"


def features(rng, signals, labels):
    """Layers (n, 6) whose first feature is the label as strongly as asked for, in noise that layers share in part."""
    shared = rng.normal(size=(len(labels), 6))
    layers = []
    for signal in signals:
        x = 0.7 * shared + 0.7 * rng.normal(size=shared.shape)
        x[:, 0] += signal * (labels - 0.5)
        layers.append(x.astype(np.float32))
    return {str(i): x for i, x in enumerate(layers)}


def probed(signals, *, n=300, seed=0, metric="accuracy", labels=None, about=ABOUT, baselines=Baselines(), **options):
    """Rows and predictions of probes on such layers, from features on; what was probed already is not probed again."""
    key = str((signals, n, seed, metric, about, options))
    if labels is None and key in PROBED:
        rows, found = PROBED[key]
        return rows.copy(), found
    rng = np.random.default_rng(seed)
    y, y_dev = labels or (rng.integers(2, size=n), rng.integers(2, size=n))
    train, dev = features(rng, signals, y), features(rng, signals, y_dev)
    how = ProbeOptions(**{"controls": 1, "penalties": (0.01, 0.1, 1.0), "folds": 3, "resamples": 400} | options)
    found = evaluate_layers(
        train, y, dev, y_dev, Question("classification", (metric,), ("no", "yes"), about),
        baselines=baselines, options=how,
    )  # fmt: skip
    about_analysis = probe_rows(found, resamples=how.resamples, seed=how.seed).assign(analysis="probe")
    if labels is None:
        PROBED[key] = about_analysis.copy(), found
    return about_analysis, found


def said(*args, **options):
    rows, found = probed(*args, **options)
    return but_layer_0(sentences(rows, [found]))


def but_layer_0(texts):
    """The sentences except those on layer 0, which have a test of their own."""
    return [text for text in texts if not re.search(r"beats? layer 0 \(p", text)]


def test_a_planted_layer_is_named():
    [text] = said([0, 0, 2.5, 0])
    assert re.fullmatch(
        rf"toy: layer 2 beats permuted labels \(p adjusted {P}\); "
        rf"layer 2 is best \(accuracy {NUMBER} on 300 examples, joint interval {NUMBER} to {NUMBER}, "
        rf"majority {NUMBER}\), clearly above all others\.",
        text,
    )


def test_the_best_of_several_layers_has_the_interval_of_all_of_them_and_a_rare_class_its_count():
    rows, found = probed([0, 0, 2.5, 0])
    best = rows[(rows["metric"] == "accuracy") & (rows["layer"] == 2) & (rows["target"] == "gold")].iloc[0]
    assert best["joint_low"] < best["ci_low"]
    [text] = but_layer_0(sentences(rows, [found]))
    assert f", joint interval {number(best['joint_low'])} to {number(best['joint_high'])}, majority" in text
    gold = np.where(np.arange(300) < 9, 1, 0)
    rare = replace(found, gold=gold if found.gold.ndim == 1 else np.tile(gold, (len(found), 1)))
    [text] = but_layer_0(sentences(rows.assign(n_groups=12), [rare]))
    assert " on 300 examples in 12 groups, 9 of them 'yes', joint interval " in text
    [text] = but_layer_0(sentences(rows.drop(columns=["joint_low", "joint_high"]), [found]))
    assert "interval" not in text


def test_classes_without_an_example_are_named():
    rows, found = probed([2.5], n=60, metric="macro-f1")
    assert "warning" not in rows
    found = replace(found, label_names=("no", "yes", "perhaps"))
    rows = probe_rows(found, resamples=100).assign(analysis="probe")
    text = "no evaluated example is of 1 of the 3 classes (perhaps): macro-f1 and its interval are not about these"
    assert set(rows.loc[rows["metric"] == "macro-f1", "warning"]) == {text}
    assert sentences(rows, [found])[-1] == f"toy: {text}."


def test_noise_names_no_layer():
    [text] = said([0, 0, 0, 0], seed=3)
    assert re.fullmatch(
        rf"toy: no layer beats permuted labels \(best accuracy {NUMBER} at layer \d on 300 examples, "
        rf"joint interval {NUMBER} to {NUMBER}, majority {NUMBER}, "
        rf"p adjusted over 4 layers ≥ {NUMBER}\)\.",
        text,
    )


def test_a_handful_of_groups_is_called_too_few_and_not_a_null():
    rows, found = probed([0, 0, 0])
    few = replace(found, groups=np.arange(len(found.ids)) % 3)
    assert sentences(rows, [few])[0].startswith(
        "toy: the evaluated examples are in 3 groups, too few to test whether a layer beats permuted labels; evaluate "
        "on at least 5 (best accuracy "
    )


def with_bag(signals, bag_signal, seed=0, **options):
    """Rows and predictions of probes, with one on a bag of pieces of which one is the label as often as asked for."""
    rng = np.random.default_rng(seed)
    labels = [rng.integers(2, size=300) for _ in range(2)]
    bag = tuple(
        sparse.csr_matrix(
            np.column_stack([np.where(rng.random(len(y)) < bag_signal, y, 1 - y), rng.integers(2, size=(len(y), 3))]),
            dtype=np.float32,
        )
        for y in labels
    )
    return probed(signals, seed=seed, labels=labels, baselines=Baselines(bag=bag), **options)


def test_layers_are_compared_with_the_bag_of_word_pieces_as_compare_does():
    rows, found = with_bag([0, 2.5], 0.6)
    texts = sentences(rows, [found])
    assert "bag of word pieces ." in texts[0]
    assert re.fullmatch(rf"toy: layer 1 beats a bag of word pieces \(p adjusted {P}\)\.", texts[1])
    how = CompareOptions(against="bag-of-pieces", tails="better")
    p = compare_predictions(found, options=how).set_index("layer")["p_adjusted"][1]
    assert texts[1].endswith(f"({adjusted(p_value(p), 2)}).")
    rows, found = with_bag([0, 2.5], 0.95)
    assert re.fullmatch(
        rf"toy: no layer is shown to beat a bag of word pieces \(p adjusted over 2 layers [≥=] ({NUMBER}|1)\)\.",
        sentences(rows, [found])[1],
    )
    assert len(sentences(rows)) == 1  # without predictions nothing is said


def trained_and_random(signals, random_signals, *, seeds=1, **options):
    """The sentences for a trained model and one with random weights, from features on."""
    labels = [np.random.default_rng(5).integers(2, size=300) for _ in range(2)]
    rows, found = zip(
        probed(signals, labels=labels, **options),
        *(
            probed(
                random_signals, labels=labels, seed=1 + s,
                about=ABOUT | {"checkpoint": f"random-{s}", "random_weights": s}, **options,
            )
            for s in range(seeds)
        ),
        strict=True,
    )  # fmt: skip
    return sentences(make_rows(pd.concat(rows, ignore_index=True)), [join(*found)])


@pytest.mark.slow
def test_trained_layers_are_compared_with_random_weights():
    texts = trained_and_random([1, 1, 3], [1, 1, 1])
    assert texts[1].startswith("toy: with random weights ")
    assert re.fullmatch(
        rf"toy: layer 2 beats the same layer with random weights \(one initialisation; p adjusted {P}\)\.", texts[2]
    )
    texts = trained_and_random([3, 3], [0, 0], seeds=2)
    assert re.fullmatch(
        rf"toy: every layer beats the same layer with random weights \(mean of 2 initialisations; p adjusted {P}\)\.",
        texts[2],
    )
    texts = trained_and_random([2.5, 2.5], [2.5, 2.5])
    assert "every layer beats permuted labels" in texts[0]
    assert texts[2].startswith("toy: no layer is shown to beat the same layer with random weights (one initialisation;")


@pytest.mark.slow
def test_trained_layers_no_better_than_random_weights_are_named_no_more_often_than_the_level_allows():
    """From features to sentences, both models equally good; 0.05 and two Monte Carlo errors of 40 runs."""
    runs, named, how = 40, 0, {"controls": 0, "resamples": 100, "folds": 2, "penalties": (0.1,), "threads": 1}
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        labels = rng.integers(2, size=1500), rng.integers(2, size=100)
        about = ABOUT | {"checkpoint": "random-0", "random_weights": 0}
        one, random = (
            probed([1.5] * 2, labels=labels, seed=1000 * i + seed, about=[ABOUT, about][i], **how) for i in (0, 1)
        )
        rows = make_rows(pd.concat([one[0], random[0]], ignore_index=True))
        [text] = [text for text in sentences(rows, [join(one[1], random[1])]) if "the same layer" in text]
        named += "no layer is shown" not in text
    assert named / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)


def test_layer_0_is_a_reference_where_some_layer_beats_noise():
    def of(signals, **options):
        rows, found = probed(signals, **options)
        return [text for text in sentences(rows, [found]) if text not in but_layer_0([text])]

    assert re.fullmatch(r"toy: layer 2 beats layer 0 \(p adjusted over 2 layers < \.001\)\.", of([0, 0, 2.5])[0])
    assert re.fullmatch(
        rf"toy: no layer is shown to beat layer 0 \(p adjusted over 2 layers ≥ {NUMBER}\)\.", of([2.5, 2.5, 2.5])[0]
    )
    assert of([0, 0, 0]) == []


def test_a_selection_of_layers_is_not_every_layer():
    rows, found = probed([0, 0, 2.5])
    rows, kept = rows[(rows["layer"] != 1).fillna(True)], (found.fits["layer"] != 1).fillna(True).to_numpy(dtype=bool)
    text = sentences(rows, [found.take(np.flatnonzero(kept))])[0]
    assert text.endswith("clearly above layer 0.")
    assert "every" not in text


def test_near_ties_are_not_called_apart():
    [text] = said([0, 1.5, 1.5, 1.5, 0])
    assert "layers 1–3 beat permuted labels" in text
    best, near = re.search(r"layer (\d) is best .*, not clearly above (.*)\.", text).groups()
    assert {best, *near.split(" and ")} == {"1", "2", "3"}
    [text] = said([1.5, 1.5, 1.5])
    assert "every layer beats permuted labels" in text
    assert "no layer is clearly the best" in text


def test_without_predictions_layers_are_not_compared():
    rows, found = probed([0, 0.8, 2.5, 0.8])
    bare = sentences(rows)[0]
    assert "is layer 2's" in bare
    assert "not compared with the others" in bare
    assert "layer 2 is best" in sentences(rows, [found])[0]


def test_what_was_not_tested_is_called_so():
    [text] = said([0, 2.5], resamples=0)
    assert "not tested against permuted labels" in text
    assert "beat" not in text.replace("best", "")


def test_undetermined_values_and_layers():
    rows, found = probed([0, 2.5, 2.5])
    gold = (rows["metric"] == "accuracy") & (rows["target"] == "gold")
    gone = rows.assign(value=rows["value"].mask(gold & (rows["layer"] == 1)), p=rows["p"])
    gone.loc[gold & (rows["layer"] == 1), "p_adjusted"] = np.nan
    assert sentences(gone, [found])[0].endswith("undetermined at layer 1.")
    nothing = rows.assign(value=rows["value"].mask(gold))
    assert sentences(nothing)[0] == "toy: accuracy is undetermined at every layer."


def test_what_no_shuffled_labels_were_fitted_for_beats_permuted_ones():
    [text] = said([0, 2.5], controls=0)
    assert text.startswith("toy: layer 1 beats permuted labels (p adjusted over 2 layers ")


@pytest.mark.parametrize("seen", [300, 200, 20])
def test_a_dev_split_that_train_holds_is_named(seen):
    rows, found = probed([0, 2.5])
    part = rows.assign(seen_in_train=seen, value_unseen=np.nan if seen == 300 else rows["value"])
    texts = but_layer_0(sentences(part, [found]))
    if seen == 20:
        assert len(texts) == 1
        return
    told = f"toy: {seen} of 300 evaluated examples are not new (train has their text, a near copy, or their group)"
    assert texts[1].startswith(told)
    assert ("nothing is shown for new texts" in texts[1]) is (seen == 300)
    assert bool(re.search(r"on the other 100 the best accuracy is \.\d+ at layer 1", texts[1])) is (seen == 200)


def test_one_class_shows_nothing():
    rng = np.random.default_rng(0)
    [text] = said([2.5, 2.5], labels=(rng.integers(2, size=200), np.ones(100, dtype=int)))
    assert text == "toy: all 100 labels of dev are 'yes', so no layer can be tested."


def test_random_weights_are_the_control_and_are_corrected_for():
    rows, found = probed([0, 2.5])
    random, _ = probed([0, 0], seed=1, about=ABOUT | {"checkpoint": "random-0"})
    random["random_weights"] = 0
    both = make_rows(pd.concat([rows, random], ignore_index=True))
    first, second = but_layer_0(sentences(both, [found]))
    assert "layer 1 beats permuted labels" in first
    assert second == "toy: with random weights no layer is shown to beat permuted labels."
    known = both.assign(p_adjusted=0.03)
    assert "p adjusted over 4 layers ≥ .060)" in sentences(known)[0]  # .03 for each of two curves is .06
    alone = known[known["random_weights"].isna()]
    assert "every layer beats permuted labels (p adjusted over 2 layers ≤ .030)" in sentences(alone)[0]
    knows, _ = probed([2.5, 2.5], seed=1, about=ABOUT | {"checkpoint": "random-0"})
    knows["random_weights"] = 0
    both = make_rows(pd.concat([rows, knows], ignore_index=True))
    assert sentences(both, [found])[1] == "toy: with random weights layers 0 and 1 beat permuted labels too."


def test_curves_are_named_and_many_are_counted():
    parts = [probed([0, 2.5 * (i < 2)], seed=i, about=ABOUT | {"step": 10 * i})[0] for i in range(6)]
    few = sentences(pd.concat(parts[:2], ignore_index=True))
    assert [text.split(": ")[1] for text in few] == ["step 0", "step 10"]
    [text] = sentences(pd.concat(parts, ignore_index=True))
    assert text == (
        "toy: in 2 of 6 curves some layer beats permuted labels (p adjusted over 12 layers): step 0, step 10."
    )


def test_tasks_have_a_sentence_each_and_the_main_metric_speaks():
    one, two = probed([0, 2.5], metric="matthews")[0], probed([0, 0], about=ABOUT | {"task": "grammar:other"})[0]
    first, second = sentences(pd.concat([one, two], ignore_index=True))
    assert "best (matthews ." in first or "value is" in first
    assert "majority" not in first  # it is 0
    assert second.startswith("other: no layer")


def test_words_of_comparisons():
    found = probed([0, 0, 2.5])[1]
    against = compare_predictions(found, options=CompareOptions(against="layer-0", resamples=200))
    assert re.fullmatch(rf"toy: layer 2 is better than layer 0 by accuracy \(p adjusted {P}\)\.", sentences(against)[0])
    best = compare_predictions(found, options=CompareOptions(against="best", resamples=200))
    assert "layers 0 and 1 are worse than layer 2 (best)" in sentences(best)[0]
    same = compare_predictions(probed([1, 1])[1], options=CompareOptions(against="layer-0", resamples=200))
    assert "no layer is shown to differ from layer 0" in sentences(same)[0]
    tuned = probed([2.5, 2.5], about=ABOUT | {"checkpoint": "toy.0", "regime": "fine-tune"})[1]
    states = compare_predictions(tuned, probed([0, 0])[1], options=CompareOptions(resamples=200))
    assert "m (fine-tuned, run toy.0): layers 0 and 1 are better than m (pretrained) by " in sentences(states)[0]


def test_two_steps_of_one_run_are_told_apart():
    run = ABOUT | {"checkpoint": "toy.0", "regime": "fine-tune"}
    last, first = (probed(of, about=run | {"step": step})[1] for of, step in (([2.5, 2.5], 38), ([0, 0], 0)))
    rows = compare_predictions(last, first, options=CompareOptions(resamples=200))
    assert set(rows["against"]) == {"m, toy.0, step 0"}
    text = "m (fine-tuned, run toy.0) at step 38: layers 0 and 1 are better than m (toy.0, step 0) by accuracy"
    assert text in sentences(rows)[0]


def test_a_pretrained_curve_next_to_its_checkpoints_is_named():
    tuned = probed([0, 2.5], about=ABOUT | {"checkpoint": "toy.0"})[0]
    texts = sentences(pd.concat([probed([0, 2.5])[0], tuned], ignore_index=True))
    assert [text.split(": ")[1] for text in texts] == ["pretrained", "toy.0"]


def test_random_curves_that_differ_in_more_than_their_seed_are_not_seeds():
    about = ABOUT | {"checkpoint": "random-0", "random_weights": 0}
    parts = [probed([0, 0])[0]]
    parts += [probed([2.5, 0], about=about | {"representation": name})[0] for name in ("mean", "last")]
    assert "layers of 2 of 2 curves beat" in " ".join(sentences(pd.concat(parts, ignore_index=True)))


def test_words_of_a_summary():
    [text] = sentences(curve_summary(probed([0, 0, 2.5])[1], SummaryOptions(resamples=200)))
    assert re.fullmatch(rf"toy: layer 2 is best \(accuracy {NUMBER}\), clearly above all others\.", text)
    [text] = sentences(curve_summary(probed([0, 1.5, 1.5])[1], SummaryOptions(resamples=200)))
    assert re.search(
        r"layer [12] has the best value .*, not clearly above [12]; whether it beats permuted labels", text
    )


def test_the_summary_of_one_layer_has_no_others():
    [text] = sentences(curve_summary(probed([2.5])[1], SummaryOptions(resamples=200)))
    assert re.fullmatch(
        rf"toy: layer 0 is the only one \(accuracy {NUMBER}\), so that nothing is said of others\.", text
    )


def test_words_of_information():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=300)
    about = ABOUT | {"analysis": "mi"}
    how = InformationOptions(draws=100)
    rows = layer_information(features(rng, [0, 0, 3], y), y, about=about, options=how)
    [text] = sentences(rows)
    assert re.fullmatch(rf"toy: layer 2 holds information about the labels \(p adjusted {P}\): 0\.\d+ bits\.", text)
    many = sentences(rows.assign(p_adjusted=0.01, value=rows["value"].abs() + 0.01))[0]
    assert re.search(r"the highest estimate of these is \d\.\d+ bits at layer 2, but which layer holds most", many)
    noise = layer_information(features(rng, [0, 0], y), rng.permutation(y), about=about, options=how)
    assert "no layer is shown to hold information" in sentences(noise)[0]
    few = rows.assign(p=0.05, p_adjusted=0.15, shuffles=19)
    assert "19 shuffled label sets are too few for a significant p" in sentences(few)[0]


def test_words_of_code_lengths():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    about = ABOUT | {"analysis": "mdl"}
    rows = mdl_rows(features(rng, [0, 3], y), y, about=about, options=CodeOptions(controls=0))
    assert "layer 1 sends the labels in fewer bits than the class frequencies do" in sentences(rows)[0]
    once = mdl_rows(features(rng, [0], y), y, about=about, options=CodeOptions(controls=0, orders=1))
    assert "not tested, because one order gives no p" in sentences(once)[0]


def test_the_card_keeps_the_words_and_the_notebook_shows_them(tmp_path):
    rows, found = probed([0, 2.5])
    result = Result(rows, (found,))
    saved = result.save(tmp_path / "rows.parquet")
    assert json.loads((tmp_path / "rows.parquet.json").read_text())["verdict"] == list(result.verdict)
    assert read(tmp_path / "rows.parquet").verdict == result.verdict == saved.verdict
    assert result.verdict[0] in saved._repr_html_()
    assert replace(result, rows=rows.iloc[:0]).verdict == ()


@pytest.mark.slow
def test_noise_is_named_no_more_often_than_the_level_allows():
    """From features to sentences, trained and random weights; 0.05 and two Monte Carlo errors of 40 runs."""
    runs, named, how = 40, 0, {"n": 60, "controls": 0, "resamples": 100, "folds": 2, "penalties": (0.1,), "threads": 1}
    for seed in range(runs):
        one, found = probed([0, 0], seed=seed, **how)
        random, _ = probed([0, 0], seed=1000 + seed, about=ABOUT | {"checkpoint": "random-0"}, **how)
        texts = sentences(make_rows(pd.concat([one, random.assign(random_weights=0)], ignore_index=True)), [found])
        named += not ("no layer beats" in texts[0] and "no layer is shown" in texts[1])
    assert named / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)


def test_numbers_in_words():
    assert [number(v) for v in (0.5671, -0.02, 1.0, 0.99961, 12.5)] == [".567", "-.020", "1.000", "1.000", "12.500"]
    assert [p_value(v) for v in (0.00099, 0.0049, 0.049, 0.0504, 0.12, 1.0)] == [
        "< .001",
        ".005",
        ".049",
        ".051",
        ".12",
        "1",
    ]
    assert [at_least(v) for v in ([0.1299, 0.5], [0.0769, 0.2], [0.127])] == ["≥ .12", "≥ .076", ".13"]
    assert [at_most(np.array(v)) for v in ([0.002, 0.01398], [0.0301], [0.0004])] == ["≤ .014", ".031", "< .001"]
    assert listed(["2", "3", "4", "7", "final_norm"]) == "2–4, 7 and final_norm"
    assert listed(["2", "3"]) == "2 and 3"


@pytest.mark.parametrize(("layers", "said"), [(1, "above the linear chain"), (6, "not shown to be above")])
def test_the_best_layer_of_trees_has_an_interval_that_holds_for_all_layers(layers, said):
    """.50 [.41, .59] is [.379, .621] at 99.2 %; whether it is above the chain is said by the test of the difference."""
    about = {
        "analysis": "structural",
        "task": "ud",
        "split": "dev",
        "model": "m",
        "metric": "uuas",
        "target": "gold",
        "n": 50,
    }
    rows = [about | {"layer": None, "representation": "none", "estimator": "linear-chain", "value": 0.4}]
    probe = {"representation": "mean", "estimator": "structural-8", "rank": 8, "value": 0.5}
    rows += [about | probe | {"layer": layer, "ci_low": 0.41, "ci_high": 0.59} for layer in range(layers)]
    assert "not tested against the linear chain" in next(structural(make_rows(rows), ()))
    rows += [
        row | {"metric": "difference(uuas)", "value": 0.1, "p_adjusted": 0.03 if layers == 1 else 0.18}
        for row in rows[1:]
    ]
    [sentence] = structural(make_rows(rows), ())
    assert said in sentence
    assert ("(37.9–62.1)" if layers == 6 else "(41.0–59.0)") in sentence


def test_a_layer_below_nothing_beats_nothing_whatever_its_p():
    curve = SimpleNamespace(p=np.array([0.01, 0.01, 0.5]), layers=["0", "1", "2"])
    assert Curve.beating(curve) == ["0", "1"]
    assert Curve.beating(curve, np.array([True, False, True])) == ["0"]


def test_the_verdict_of_words_names_their_baselines():
    """The majority of each word type, and how far the best layer is above the control task."""
    head = {"analysis": "probe", "task": "pos", "split": "dev", "model": "m", "representation": "mean", "n": 500}
    head |= {"estimator": "logistic", "target": "gold", "metric": "accuracy", "p_adjusted": 0.01}
    rows = [head | {"layer": layer, "value": value} for layer, value in ((0, 0.8), (1, 0.9))]
    rows += [
        row | {"metric": "selectivity(accuracy)", "value": value} for row, value in zip(rows, (0.1, 0.3), strict=True)
    ]
    none = {"layer": None, "p_adjusted": float("nan")}
    rows += [head | none | {"representation": "none", "estimator": "majority", "value": 0.2}]
    rows += [head | none | {"representation": "word-type", "estimator": "type-majority", "value": 0.85}]
    (text,) = sentences(make_rows(rows))
    assert "(accuracy .900 on 500 examples, majority .200, majority by word type .850, selectivity .300)" in text
