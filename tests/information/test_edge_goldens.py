"""The numbers of the author's scripts, recorded."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from probekit.information.edge import EdgeSettings, edge, edge_details

SHARED = Path(__file__).parents[2] / "../shared/goldens/edge"
CASES = sorted(SHARED.glob("*.npz"))
MISSING = f"the recorded outputs are not at {SHARED}"

pytestmark = [pytest.mark.shared, pytest.mark.skipif(not CASES, reason=MISSING)]


@pytest.fixture(scope="module")
def gens():
    spec = importlib.util.spec_from_file_location("gens", SHARED / "gens.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def data(case, gens):
    if "X" in case:
        return case["X"], case["Y"]
    rng, args = np.random.default_rng(case["seed"]), json.loads(str(case["gen_args"]))
    x, y, _ = getattr(gens, str(case["gen"]))(rng, *args)
    assert [x.sum(), (x**2).sum(), x[3, 5]] == pytest.approx(case["X_check"], rel=1e-12)
    assert [y.sum(), y[:10].sum()] == pytest.approx(case["Y_check"], rel=1e-12)
    return x, y


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_numbers_of_the_author(path, gens):
    case = np.load(path)
    x, y = data(case, gens)
    settings = EdgeSettings(version=str(case["version"]).replace("_", "."), **json.loads(str(case["settings"])))
    found = edge_details(x, y, settings)
    # weights came from a convex solver, good to seven digits; the scripts take deviations of float32 in float32, whose
    # sums differ among processors by a unit in the last place, 1.2e-7
    loose = settings.ensemble_estimation == "optimal_weights"
    tol, rel = (1e-4, 1e-6) if loose else (1e-9, 1.2e-7 if x.dtype == np.float32 else 1e-12)
    assert found.value == pytest.approx(float(case["out"]), abs=tol)
    assert len(found.passes) == 1 + ("I_vec1" in case)
    for number, p in enumerate(found.passes):
        for name, counts in (("nX", p.buckets_x), ("nY", p.buckets_y), ("nXY", p.buckets_xy)):
            np.testing.assert_array_equal(counts, case[f"{name}{number}"], strict=True)
        np.testing.assert_allclose(p.members, case[f"I_vec{number}"], rtol=0, atol=1e-9)
        np.testing.assert_allclose(p.width_x, case[f"eps_X{number}"], rtol=rel)
        np.testing.assert_allclose(p.width_y, case[f"eps_Y{number}"], rtol=rel)


def test_all_are_there():
    assert len(CASES) == 60


def test_another_setting_is_another_number(gens):
    case = np.load(SHARED / "corr2.npz")
    assert abs(edge(case["X"], case["Y"], "4.2.0") - float(case["out"])) > 0.01
