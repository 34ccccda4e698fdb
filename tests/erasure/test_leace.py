"""LEACE equals its authors' package, and after it nothing linear is left."""

from pathlib import Path

import numpy as np
import pytest

from probekit.erasure import leace
from probekit.errors import NonFiniteError, UsageError

SHARED = Path(__file__).parents[2] / "../shared/goldens/erasure"


def eraser_of(x, z):
    z = z.reshape(len(z), -1)
    c = np.cov(np.column_stack([x, z]).T)
    d = x.shape[1]
    return leace(x.mean(0), c[:d, :d], c[:d, d:])


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the arrays of concept-erasure 0.2.4 are not here")
@pytest.mark.parametrize("path", sorted(SHARED.glob("*.npz")), ids=lambda p: p.stem)
def test_the_authors_package(path):
    with np.load(path) as golden:
        for name in ("label", "onehot"):
            if f"leace_{name}_noshrink/P" not in golden.files:
                continue
            z = golden["y"].astype(float)
            z = np.eye(int(z.max()) + 1)[golden["y"].astype(int)] if name == "onehot" else z
            found = eraser_of(golden["X"], z)
            tolerance = (
                1e-7 if path.stem.startswith(("E4", "E5")) else 1e-8
            )  # of rank below d: as for their own formula
            assert np.abs(found.projection - golden[f"leace_{name}_noshrink/P"]).max() < tolerance
            assert np.abs(found(golden["X"]) - golden[f"leace_{name}_noshrink/X_erased"]).max() < 10 * tolerance


def test_nothing_linear_is_left():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    x = rng.normal(size=(300, 5)) @ rng.normal(size=(5, 5)) + 3 * np.eye(3)[y] @ rng.normal(size=(3, 5)) + 7
    eraser = eraser_of(x, np.eye(3)[y])
    means = np.stack([eraser(x)[y == k].mean(0) for k in range(3)])
    assert eraser.rank == 2
    assert np.ptp(means, axis=0).max() < 1e-12
    assert eraser.variance == pytest.approx(1 - eraser(x).var(0).sum() / x.var(0).sum(), abs=1e-12)


def test_a_concept_that_is_not_there_is_not_erased():
    x = np.random.default_rng(0).normal(size=(200, 4))
    eraser = leace(x.mean(0), np.cov(x.T), np.zeros((4, 1)))
    assert eraser.rank == 0
    assert (eraser(x) == x).all()


def test_wrong_shapes_are_told():
    with pytest.raises(UsageError, match=r"must be \(3, 3\)"):
        leace(np.zeros(3), np.eye(2), np.zeros((3, 1)))
    with pytest.raises(NonFiniteError):
        leace(np.zeros(2), np.full((2, 2), np.nan), np.zeros((2, 1)))
