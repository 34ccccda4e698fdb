"""The numbers of published code, recorded; of originals that disagree, the ones that follow their papers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from probekit import similarity

SHARED = Path(__file__).parents[2] / "../shared/goldens/similarity"
VALUES = json.loads((SHARED / "similarity_values.json").read_text()) if SHARED.is_dir() else {}

pytestmark = [pytest.mark.shared, pytest.mark.skipif(not VALUES, reason=f"the recorded outputs are not at {SHARED}")]

TOLERANCE = {  # as measured between the originals, see the README beside them
    "cka_biased": (lambda x, y: similarity.cka(x, y, debiased=False), 1e-12, ("resi", "anatome", "netrep")),
    "cka_debiased": (similarity.cka, 1e-10, ("ckatorch", "anatome")),
    "svcca99var": (similarity.svcca, 1e-6, ("google",)),
    "rsa_pearson_sqeuclidean_mean": (similarity.rsa, 1e-10, ("rsatoolbox",)),
    "rsa_spearman_sqeuclidean_mean": (lambda x, y: similarity.rsa(x, y, compare="spearman"), 1e-10, ("rsatoolbox",)),
    "rsa_cosine_sqeuclidean_mean": (lambda x, y: similarity.rsa(x, y, compare="cosine"), 1e-10, ("rsatoolbox",)),
    "rsa_pearson_correlation": (lambda x, y: similarity.rsa(x, y, distances="correlation"), 1e-10, ("rsatoolbox",)),
    "rsa_spearman_correlation": (
        lambda x, y: similarity.rsa(x, y, compare="spearman", distances="correlation"),
        1e-10,
        ("rsatoolbox", "resi"),
    ),
    "rsa_cosine_correlation": (
        lambda x, y: similarity.rsa(x, y, compare="cosine", distances="correlation"),
        1e-10,
        ("rsatoolbox",),
    ),
    "procrustes_angular": (lambda x, y: similarity.procrustes(x, y, kind="angle"), 1e-6, ("netrep", "resi")),
}


@pytest.fixture(scope="module")
def arrays():
    with np.load(SHARED / "similarity.npz") as file:
        return {key: file[key] for key in file.files if key.endswith(("/X", "/Y"))}


@pytest.fixture(params=sorted(VALUES))
def case(request, arrays):
    return request.param, arrays[f"{request.param}/X"], arrays[f"{request.param}/Y"], VALUES[request.param]


def test_all_are_there():
    assert len(VALUES) == 12


@pytest.mark.parametrize("measure", TOLERANCE)
def test_published_numbers(case, measure):
    _, x, y, values = case
    ours, tolerance, originals = TOLERANCE[measure]
    for original in originals:
        assert ours(x, y) == pytest.approx(values[f"{measure}/{original}"], abs=tolerance), original


def test_mean_canonical_correlation(case):
    name, x, y, values = case
    if name.startswith("02"):  # n < d: the originals refuse
        assert similarity.cca(x, y) == pytest.approx(1)
    elif name.startswith("06"):  # both of rank 6: one original has .554, the other averages over directions of rounding
        assert similarity.cca(x, y) == pytest.approx(similarity.svcca(x, y, variance=1 - 1e-9), abs=1e-9)
        assert similarity.cca(x, y) == pytest.approx(0.554, abs=5e-4)
    else:
        assert similarity.cca(x, y) == pytest.approx(values["cca_mean/google"], abs=1e-6)
        assert similarity.cca(x, y) == pytest.approx(values["cca_mean/anatome_svd"], abs=1e-6)


def test_procrustes_distances(case):
    _, x, y, values = case
    size = np.linalg.norm(x - x.mean(0)) * np.linalg.norm(y - y.mean(0))
    found = similarity.procrustes(x, y, kind="distance")
    # near 0 the root of a difference of rounded numbers has half of their digits
    assert found == pytest.approx(
        values["procrustes_dist/netrep"], abs=max(1e-9, 3e-8 * np.sqrt(size) * (found < 1e-3))
    )
    half = values["procrustes_1_minus_nuc/anatome"]
    assert 1 - similarity.procrustes(x, y) == pytest.approx(half, abs=1e-10)
    assert 2 * half == pytest.approx(values["procrustes_normalized_dist/resi"] ** 2, abs=1e-10)


@pytest.mark.parametrize("k", [3, 5, 10])
def test_neighbours(case, k):
    _, x, y, values = case
    if f"mutual_knn{k}_cosine/platonic" not in values or k >= len(x):
        pytest.skip(f"there are {len(x)} examples")
    assert similarity.mutual_knn(x, y, k, centred=False) == pytest.approx(
        values[f"mutual_knn{k}_cosine/platonic"], abs=1e-6
    )
    assert similarity.knn_jaccard(x, y, k, centred=False) == pytest.approx(
        values[f"knn_jaccard{k}_cosine/resi"], abs=1e-10
    )


def test_pwcca_where_originals_agree(case):
    name, x, y, _ = case
    if name[:2] in ("03", "04", "07", "09"):
        assert similarity.pwcca(x, y) == pytest.approx(1, abs=1e-9)
    else:
        assert 0 < similarity.pwcca(x, y) <= 1
