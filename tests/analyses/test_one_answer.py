"""Figure, interval, p and sentence of a probe say one thing: planted cases, each held against the others."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from probekit.analyses.verdict import sentences
from probekit.metrics import metric as metric_called
from probekit.plots import curve_rows, layer_curve
from probekit.plots.layer_captions import PERMUTED
from probekit.plots.noise import NOT_ABOVE
from probekit.probes.protocol.rows import probe_rows
from probekit.report.curves import by_layer
from probekit.rows import make_rows
from probekit.statistics.comparisons import above_noise, compare_predictions
from probekit.statistics.multiplicity import adjust, critical, tails
from probekit.statistics.options import CompareOptions
from probekit.statistics.predictions import Predictions

LAYERS = 5


def evaluated(seed, *, rate=0.5, n=120, metrics=("accuracy",), copies=1, **about):
    """Predictions of five layers that know nothing to a lot, of labels with the share ``rate`` of the second class, and
    of one draw of shuffled labels; ``copies`` of each example form a group."""
    rng = np.random.default_rng(seed)
    gold = np.repeat((rng.random(n // copies) < rate).astype(int), copies)
    known = np.linspace(0, rng.uniform(0, 0.5), LAYERS)[:, None] > np.repeat(rng.random(n // copies), copies)
    guess = np.repeat(rng.random((2 * LAYERS, n // copies)) < rate, copies, axis=1).astype(int)
    logits = rng.normal(np.where(known, gold, guess[:LAYERS]) * 2 - 1, 0.3)
    p = 1 / (1 + np.exp(-logits))
    head = {"analysis": "probe", "task": "toy", "split": "dev", "model": "m", "representation": "mean"} | about
    targets = [{"target": "gold"}] * LAYERS + [{"target": "shuffled", "draw": 0}] * LAYERS
    fits = [head | {"estimator": "logistic", "layer": i % LAYERS, **t} for i, t in enumerate(targets)]
    extra = {"penalty": 1.0, "penalty_at_edge": False, "held_out": 0.0, "converged": True, "digest": ""}
    loss = -np.log(np.where(gold, p, 1 - p))
    return Predictions(
        pd.DataFrame([fit | extra for fit in fits]), np.arange(n).astype(str), gold,
        np.concatenate([(p > 0.5).astype(int), guess[LAYERS:]]), metrics,
        np.repeat(np.arange(n // copies), copies) if copies > 1 else None,
        label_names=("no", "yes"), log_loss=np.concatenate([loss, loss]),
        probabilities=np.stack([1 - p, p], axis=2),
    )  # fmt: skip


CASES = [
    *({"metrics": (name,)} for name in ("f1", "log-loss")), {"copies": 3},
    *(pytest.param({"metrics": (name,)}, marks=pytest.mark.slow) for name in ("accuracy", "macro-f1", "matthews")),
    pytest.param({"rate": 0.05}, marks=pytest.mark.slow),
    *(pytest.param(case, marks=pytest.mark.slow) for case in ({"rate": 0.7, "n": 400}, {"n": 24})),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_band_marker_interval_p_and_sentence_agree(case, seed):
    e = evaluated(seed, **case)
    name = e.metrics[0]
    sign, rows = metric_called(name).sign, probe_rows(e, resamples=400)
    gold = rows[(rows["target"] == "gold") & (rows["metric"] == name)].set_index("layer")
    above = rows[rows["metric"] == f"above-permuted({name})"].set_index("layer")
    filled = gold["p_adjusted"] <= 0.05
    # the test, and what is drawn
    assert (sign * gold["value"] > sign * gold["null_edge"] + 1e-9).tolist() == filled.tolist()
    assert (sign * gold["null_edge"] >= sign * gold["null_mean"] - 1e-9).all()
    edges = probe_rows(e, resamples=400, level=0.99)["null_edge"]  # whatever the level of intervals
    assert edges.dropna().tolist() == rows["null_edge"].dropna().tolist()
    points = curve_rows(rows)
    curve, band = points[points["role"] == "curve"], points[points["role"] == "control"]
    assert (curve["hollow"] == NOT_ABOVE).tolist() == (~filled).tolist()
    assert set(band["target"]) == {"permuted"}
    ends = band.set_index("layer")[["ci_low", "ci_high"]].sort_index()
    np.testing.assert_allclose(ends, np.sort(gold[["null_mean", "null_edge"]], axis=1))
    # the distance from noise, its intervals and the same p
    np.testing.assert_allclose(above["value"], gold["value"] - gold["null_mean"])
    assert above[["p", "p_adjusted"]].equals(gold[["p", "p_adjusted"]])
    for p, low, high in (("p", "ci_low", "ci_high"), ("p_adjusted", "joint_low", "joint_high")):
        known = above[low].notna()
        beyond = (above[low] if sign > 0 else -above[high])[known] > 0
        assert beyond.tolist() == (above[p] <= 0.05)[known].tolist()
    # the words, and the page
    said = sentences(rows)[0]
    assert ("no layer beats permuted labels" in said) == (not filled.any())
    assert (by_layer(rows)["verdict"] == "above noise").tolist() == filled.tolist()


def test_several_curves_are_corrected_in_figures_as_in_words():
    """What one curve shows with p of .05 / 2 to .05 is hollow beside a second one, and not named."""
    rows = [probe_rows(evaluated(1, model=name), resamples=200) for name in ("a", "b")]
    rows = make_rows(pd.concat(rows, ignore_index=True))
    planted = (rows["target"] == "gold") & (rows["metric"] == "accuracy") & (rows["model"] == "a")
    for p, said in ((0.03, "a: no layer beats permuted labels"), (0.02, "a: every layer beats permuted labels")):
        rows.loc[planted, "p_adjusted"] = p
        points = curve_rows(rows)
        curve = points[points["role"] == "curve"]
        filled = curve["hollow"] == ""
        assert filled.tolist() == (2 * curve["p_adjusted"] <= 0.05).tolist()
        assert filled[curve["model"] == "a"].all() == (p == 0.02)
        assert said in sentences(rows)[0]
        assert (by_layer(rows)["verdict"] == "above noise").tolist() == filled.tolist()


def test_probes_of_shuffled_labels_are_drawn_when_asked_for_and_have_no_p():
    rows = probe_rows(evaluated(1), resamples=200)
    other = rows[rows["metric"] == "above-shuffled(accuracy)"]
    assert len(other) == LAYERS
    assert other[["p", "p_adjusted", "null_mean", "null_edge"]].isna().all(axis=None)

    def names(shuffled):
        ax = layer_curve(rows, shuffled=shuffled, ax=Figure().subplots())
        return {str(x.get_label()) for x in ax.containers if "labels" in str(x.get_label())}

    assert names(False) == {"permuted labels: mean to p = 0.05"}
    assert names(True) == {"permuted labels: mean to p = 0.05", "shuffled labels: middle 95 %"}
    assert "permuted labels" in PERMUTED


def test_the_critical_p_is_where_adjusted_p_pass():
    rng = np.random.default_rng(0)
    for draws in (19, 99, 400):
        for size in (1, 3, 8):
            shift = rng.uniform(0, 4, size)
            observed, null = (
                rng.normal(shift),
                rng.integers(-3, 4, (size, draws)) + 0.1 * rng.normal(size=(size, draws)),
            )
            p, by_chance = tails(observed, null)
            assert ((p + 1e-9 < critical(p, by_chance, 0.05)) == (adjust(p, by_chance) <= 0.05 + 1e-12)).all()
    assert critical(np.array([0.1]), np.full((1, 9), 0.5), 0.05) == [0]  # nine draws reject nothing


@pytest.mark.parametrize("tails", ["two-sided", pytest.param("better", marks=pytest.mark.slow)])
@pytest.mark.parametrize("against", ["permuted", "layer-0"])
def test_intervals_of_differences_hold_0_where_the_test_says_so(tails, against):
    found = set()
    for seed in range(6):
        how = CompareOptions(against, tails=tails, resamples=300, seed=seed)
        rows = compare_predictions(evaluated(seed, n=60), options=how)
        for p, low, high in (("p", "ci_low", "ci_high"), ("p_adjusted", "joint_low", "joint_high")):
            beyond = (rows[low] > 0) | ((rows[high] < 0) if tails == "two-sided" else False)
            assert beyond.tolist() == (rows[p] <= 0.05).tolist()
            found |= set(beyond)
        inside = (rows["ci_low"] <= rows["value"]) & (rows["value"] <= rows["ci_high"])
        assert inside.all()
    assert found == {True, False}


def test_the_old_name_of_permuted_labels_means_the_same():
    e = evaluated(0)
    both = [compare_predictions(e, options=CompareOptions(name, resamples=200)) for name in ("shuffled", "permuted")]
    pd.testing.assert_frame_equal(*both)
    assert set(both[0]["against"]) == {"permuted"}
    same = above_noise(e, list(range(LAYERS)), "accuracy", draws=200, seed=0).above
    np.testing.assert_allclose(same.value, both[0]["value"])
