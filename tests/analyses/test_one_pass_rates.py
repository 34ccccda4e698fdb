"""From features to p: what a stream says of labels that know nothing of the vectors, and whether intervals cover."""

import numpy as np
import pytest
from scipy.stats import binomtest

from probekit.analyses.stream.layers import cka_rows
from probekit.analyses.stream.options import StreamOptions
from probekit.analyses.stream.probes import PROBES, Dev, Table, bin_labels, fit_layers
from probekit.analyses.stream.state import State, layout_of
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.rows import probe_rows
from probekit.similarity import cka
from probekit.statistics.controls import shuffled
from probekit.statistics.moments import LayerMoments
from probekit.statistics.streams import Reservoir, uniform


def state_of(layers, codes, seed, *, classes=2, bins=512, sample=200, across=False, unit=None):
    """A state of vectors and labels, as a pass over texts leaves it; ``unit`` numbers what is kept together."""
    n = len(codes)
    spec = {
        "layers": [str(i) for i in range(len(layers))], "widths": [x.shape[1] for x in layers], "columns": classes,
        "folds": 5, "bins": bins, "across": across, "seed": seed, "sample": sample,
    }  # fmt: skip
    unit = np.random.default_rng([seed, 9]).integers(1 << 63, size=n, dtype=np.uint64) if unit is None else unit
    fold, bin_ = ((uniform(unit, 0, 1, [seed, i])[0] * k).astype(int) for i, k in ((1, 5), (2, bins)))
    sums = LayerMoments.empty(layout_of(spec), [x[:50].mean(0) for x in layers])
    sums.add(layers, np.eye(classes)[codes], fold, bin_)
    kept = Reservoir(sample)
    priority = uniform(unit, 0, 1, [seed, 3])[0]
    rows = {"priority": priority, "y": codes.astype(float), "fold": fold, "bin": bin_, "unit": unit}
    kept.add(rows | {f"x/{i}": x for i, x in enumerate(layers)})
    counts = {"rows": n, "unlabelled": 0}
    return State(spec, ((1, 1),), sums, kept, np.zeros(0, bool), complete=True, counts=counts)


def judged(seed, *, bins, controls=19, n=400, d=20, of_dev=150):
    """Of pure noise: p of each estimator, and the rank of gold labels among random ones."""
    rng = np.random.default_rng(seed)
    x, x_dev = (rng.standard_normal((m, d)).astype(np.float32) for m in (n, of_dev))
    y, y_dev = ((rng.random(m) < 0.5).astype(int) for m in (n, of_dev))
    state = state_of([x], y, seed, bins=bins)
    options = StreamOptions(
        shrinkages=(1.0, 0.1), alphas=(1.0, 100.0, 10000.0), controls=controls, threads=1, resamples=100, seed=seed
    )
    sets = np.concatenate([y_dev[None], shuffled(y_dev, controls, (seed, 1))])
    dev = Dev(Labels(y_dev), sets, np.zeros(of_dev, bool), 0)
    found = {}
    for name in PROBES:
        table = Table(state, fit_layers(state, (name,), options), dev)
        table.add({"0": x_dev}, slice(0, of_dev))
        rows = probe_rows(table.predictions(question("matthews")), resamples=100, seed=seed)
        rows = rows[(rows["metric"] == "matthews") & (rows["estimator"] == name)]
        gold = rows[rows["target"] == "gold"].iloc[0]
        drawn = rows.loc[rows["draw"].notna(), "value"].to_numpy()
        noise = rng.random(controls + 1) * 1e-9  # ties: probes that predict one class
        found[name] = gold["p"], (1 + (drawn + noise[1:] >= gold["value"] + noise[0]).sum()) / (1 + controls)
    return found


ABOUT = {"task": "noise", "split": "dev", "model": "none", "representation": "mean"}


def question(metric):
    return Question("classification", (metric,), ("no", "yes"), ABOUT | {"analysis": "probe"})


def test_controls_have_the_class_frequencies_of_the_rows():
    """Bins have unequal numbers of rows; labels of whole bins miss the frequencies by half a bin at most."""
    codes = (np.random.default_rng(0).random(400) < 0.3).astype(int)
    state = state_of([np.zeros((400, 1), np.float32)], codes, 0, bins=64)
    weight = state.sums.arrays["bin_weight"].sum(0)
    assert weight.min() < weight.max() / 2
    positive = bin_labels(state, 50) @ weight
    assert np.abs(positive - codes.sum()).max() <= weight.max() / 2
    assert len(np.unique(positive)) > 1


@pytest.mark.slow
def test_false_positives_from_features():
    runs, bins = 100, 64  # six rows in a bin
    found = [judged(seed, bins=bins) for seed in range(runs)]
    for name in PROBES:
        for which, kind in enumerate(("p of permuted dev labels", "rank among random labels")):
            count = sum(one[name][which] <= 0.05 for one in found)
            assert binomtest(count, runs, 0.05, alternative="greater").pvalue > 0.001, (name, kind, count)


def judged_in_clusters(seed, *, n=600, of_dev=150, controls=10):
    """p of noise: 60 clusters share vectors and labels, a tenth of them positive; 15 other clusters are dev."""
    rng = np.random.default_rng(seed)

    def drawn(n, clusters):
        of = rng.permutation(np.sort(rng.integers(0, clusters, n)))
        x = rng.standard_normal((clusters, 6))[of] + 0.7 * rng.standard_normal((n, 6))
        label = rng.permutation(np.arange(clusters) < max(1, round(0.1 * clusters))).astype(int)
        return x.astype(np.float32), label[of], of

    (x, y, of), (x_dev, y_dev, of_dev_) = drawn(n, 60), drawn(of_dev, 15)
    if len(np.unique(y_dev)) < 2:
        return None
    unit = of.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = state_of([x], y, seed, sample=4096, unit=unit)
    options = StreamOptions(controls=controls, threads=1, resamples=200, seed=seed)
    groups = np.unique(of_dev_, return_inverse=True)[1].astype(np.int32)
    sets = np.concatenate([y_dev[None], shuffled(y_dev, controls, (seed, 1), groups=groups, ordered=False)])
    found = []
    for name in ("ridge", "mass-mean"):
        dev = Dev(Labels(y_dev, groups), sets, np.zeros(of_dev, bool), 0)
        table = Table(state, fit_layers(state, (name,), options), dev)
        table.add({"0": x_dev}, slice(0, of_dev))
        rows = probe_rows(table.predictions(question("macro-f1")), resamples=200, seed=seed)
        gold = rows[(rows["metric"] == "macro-f1") & (rows["estimator"] == name) & (rows["target"] == "gold")]
        found.append(gold.iloc[0]["p"])
    return found


@pytest.mark.slow
def test_false_positives_with_clusters_and_few_positives():
    found = np.array([p for seed in range(100) if (p := judged_in_clusters(seed)) is not None])
    for count in (found <= 0.05).sum(0):
        assert binomtest(int(count), len(found), 0.05, alternative="greater").pvalue > 0.001, count


@pytest.mark.slow
def test_intervals_of_cka_cover():
    """The population's value is that of many more rows; the sample has a fifth of the rows."""

    def drawn(rng, n):
        z = rng.standard_normal((n, 6)).astype(np.float32)
        mixed = np.random.default_rng(0).standard_normal((6, 8))
        return z, (z @ mixed + 2 * rng.standard_normal((n, 8)) + z[:, :1] ** 2).astype(np.float32)

    truth = cka(*drawn(np.random.default_rng(1 << 20), 400_000))
    runs, covered = 300, 0
    for seed in range(runs):
        layers = drawn(np.random.default_rng(seed), 2000)
        state = state_of(layers, np.arange(2000) % 2, seed, sample=400, across=True, bins=4)
        rows = cka_rows(state, ABOUT, StreamOptions(resamples=200, threads=1, seed=seed))
        one = rows[(rows["metric"] == "cka") & (rows["layer"] == 0) & (rows["layer_b"] == 1)].iloc[0]
        covered += one["ci_low"] <= truth <= one["ci_high"]
    assert binomtest(int(covered), runs, 0.95).pvalue > 0.001, covered
