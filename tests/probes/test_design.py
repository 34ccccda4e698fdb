"""Blocks, sums and what is held where: a matrix read in pieces is the matrix."""

import numpy as np
import pytest
import torch
from scipy import sparse

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.solvers.design import Design, accelerator, moments
from probekit.probes.solvers.logistic import CS, fit_logistic
from probekit.probes.solvers.ridge import ALPHAS, fit_ridge


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(3000, 12)) * np.logspace(0, 3, 12) + 1e4).astype(np.float32)


def test_moments_are_numpys(x):
    [sums] = moments(x, dtype=torch.float64)
    z = x.astype(np.float64)
    np.testing.assert_allclose(sums.mean, z.mean(0), rtol=1e-12)
    np.testing.assert_allclose(sums.scatter, (z - z.mean(0)).T @ (z - z.mean(0)), rtol=1e-9, atol=1e-4)
    np.testing.assert_allclose(sums.inverse_deviation, 1 / z.std(0), rtol=1e-9)


def test_parts_add_up_and_are_taken_away(x):
    rows = np.random.default_rng(1).permutation(3000)
    parts = rows[:1000], rows[1000:1500], rows[1500:]
    first, second, third = moments(x, parts, dtype=torch.float64)
    whole = first + second + third
    [direct] = moments(x, dtype=torch.float64)
    np.testing.assert_allclose(whole.scatter, direct.scatter, rtol=1e-9, atol=1e-4)
    np.testing.assert_allclose((whole - first).mean, x[rows[1000:]].mean(0, dtype=np.float64), rtol=1e-10)


def test_weights_count_rows_more_than_once(x):
    weights = np.random.default_rng(2).integers(0, 3, size=3000)
    [sums] = moments(x, weights=weights, dtype=torch.float64)
    [twice] = moments(np.repeat(x, weights, axis=0), dtype=torch.float64)
    assert sums.weight == twice.weight
    np.testing.assert_allclose(sums.scatter, twice.scatter, rtol=1e-8, atol=1e-3)


def test_a_feature_that_is_rounding_noise_has_no_scale():
    x = np.full((100, 2), 1e6, dtype=np.float32)
    x[:, 0] += np.random.default_rng(0).normal(size=100).astype(np.float32) * 0.1  # a few units in the last place
    x[:, 1] += np.random.default_rng(0).normal(size=100).astype(np.float32) * 1e3
    [sums] = moments(x, dtype=torch.float64)
    assert sums.inverse_deviation[0] == 0
    assert sums.inverse_deviation[1] == pytest.approx(1e-3, rel=0.2)


@pytest.mark.parametrize("rows", [None, np.arange(0, 3000, 7)])
def test_blocks_of_arrays_tensors_and_sparse_matrices_are_alike(x, rows):
    for z in (x, torch.from_numpy(x), sparse.csr_matrix(x), x.astype(np.float64)):
        blocks = [block.clone() for _, block in Design(z, rows, x.mean(0), block=256).blocks()]
        whole = x if rows is None else x[rows]
        np.testing.assert_allclose(torch.cat(blocks).numpy(), whole - x.mean(0), rtol=1e-6, atol=2e-3)


def test_tensors_are_fitted_as_arrays_are(x):
    y = (x[:, 0] > np.median(x[:, 0])).astype(int) ^ (np.random.default_rng(3).random(3000) < 0.2)
    own, other = (fit_logistic(z, y[None], 2, CS) for z in (x, torch.from_numpy(x)))
    np.testing.assert_array_equal(own.weights, other.weights)
    own, other = (fit_ridge(z, y[None].astype(float), ALPHAS, leave_one_out=True) for z in (x, torch.from_numpy(x)))
    np.testing.assert_array_equal(own.leave_one_out, other.leave_one_out)


def test_what_is_not_finite_is_not_summed(x):
    bad = x.copy()
    bad[2999, 3] = np.nan
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        moments(bad)


def test_a_device_without_float64_is_refused(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(UsageError, match="float64"):
        accelerator("mps")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_cuda_finds_what_the_cpu_finds(x):
    y = (x[:, 0] > np.median(x[:, 0])).astype(int) ^ (np.random.default_rng(3).random(3000) < 0.2)
    own, other = (fit_logistic(x, y[None], 2, CS, device=device) for device in ("cpu", "cuda"))
    assert other.converged.all()
    np.testing.assert_allclose(own.logits(x), other.logits(x), atol=1e-3)
