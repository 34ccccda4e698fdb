"""False positives and what intervals cover, counted over many samples: the bounds allow for chance alone."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from probekit.information.estimators import mutual_information

pytestmark = pytest.mark.slow  # five minutes

RUNS = 1000
SIZES = [(50, 3), (200, 10)]


def labels(kind, rng, n):
    match kind:
        case "numbers":
            return rng.standard_normal(n)
        case "10:90":
            return (rng.permutation(n) < n // 10).astype(int)
        case _:
            return rng.permutation(np.arange(n) % kind)


@pytest.mark.parametrize(("n", "d"), SIZES)
@pytest.mark.parametrize("kind", [2, "10:90", 5, 20, "numbers"])
def test_false_positives(kind, n, d):
    """At most 6 % of 1,000 independent pairs are significant at 5 %, and few are reported with an interval above 0."""
    positive = wrong = 0
    for seed in range(RUNS):
        rng = np.random.default_rng([n, d, seed])
        found = mutual_information(rng.standard_normal((n, d)), labels(kind, rng, n), draws=199, seed=seed)
        positive += found.p <= 0.05
        wrong += found.ci_low > 0
    assert positive <= binom.ppf(0.999, RUNS, 0.05)
    assert positive <= 0.06 * RUNS
    assert wrong <= binom.ppf(0.999, RUNS, 0.05)


@pytest.mark.parametrize("d", [1, 5])
@pytest.mark.parametrize("shift", [0.5, 1.0, 2.0])
def test_intervals_cover_the_estimators_own_mean(d, shift):
    """Of 300 intervals of 95 %, at least as many hold the mean estimate as chance allows for 95 %."""
    found = []
    for seed in range(300):
        rng = np.random.default_rng([d, seed])
        y = rng.integers(0, 2, 400)
        x = rng.standard_normal((400, d))
        x[:, 0] += shift * y
        found.append(mutual_information(x, y, draws=99, seed=seed))
    mean = np.mean([f.value for f in found])
    held = sum(f.ci_low <= mean <= f.ci_high for f in found)
    assert held >= binom.ppf(0.001, len(found), 0.95)
    assert mean > 0.01  # the control: there is something to cover


@pytest.mark.parametrize(("rho", "n"), [(0.5, 1000), (0.8, 1000)])
def test_a_gaussian_pair_is_not_overestimated(rho, n):
    """The truth is -log2(1 - rho²) / 2; bins lose some of it, and add nothing."""
    truth = -0.5 * np.log2(1 - rho**2)
    values = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, 1))
        y = rho * x[:, 0] + np.sqrt(1 - rho**2) * rng.standard_normal(n)
        values.append(mutual_information(x, y, draws=0, seed=seed).value)
    assert np.mean(values) <= truth + 3 * np.std(values) / 10
    assert np.mean(values) > 0.75 * truth


def test_the_benchmark_runs(tmp_path):
    script = Path(__file__).parents[2] / "benchmarks" / "mi_accuracy.py"
    done = subprocess.run(
        [sys.executable, script, "--quick", "--estimators", "edge", "hash, PCA 4", "--out", tmp_path / "table"],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["estimator"] for row in rows} == {"edge", "hash, PCA 4"}
    truths = {row["case"]: float(row["truth"]) for row in rows}
    assert truths == {
        "independent isotropic 10, 2 classes": 0, "isotropic 10, 2 classes, 0.15": pytest.approx(0.15, abs=1e-4),
        "score isotropic 10, 0.5": 0.5, "xor 10, 1.0": 1,
    }  # fmt: skip
    assert all(0 <= float(row["mean"]) <= 1 + truths[row["case"]] for row in rows)
    assert "| xor 10, 1.0" in (tmp_path / "table.md").read_text()
