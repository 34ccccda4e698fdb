"""The null distribution: cyclic permutations by Fourier transforms equal permutations one by one."""

from __future__ import annotations

import naive
import numpy as np
import pytest

from probekit.similarity.features import read
from probekit.similarity.matrices import linear
from probekit.similarity.orders import exchange
from probekit.similarity.products import correlated, products, workers

GROUPS = {
    "rows": None,
    "pairs": np.repeat(np.arange(20), 2),
    "two sizes": np.repeat(np.arange(32), np.repeat([1, 2], 16)),
}


def layers(rng, n, count, d=5):
    arrays = [rng.standard_normal((n, d)) for _ in range(count)]
    return read([lambda x=x: x for x in arrays], np.arange(n))


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("n", [40, 41])
def test_shifts_are_permutations(kind, n):
    rng = np.random.default_rng(0)
    groups = GROUPS[kind]
    n = n if groups is None else len(groups)
    a, b = linear(layers(rng, n, 2)), linear(layers(rng, n, 3))
    cycles = exchange(groups, n).cycles(60, rng)
    used = np.sort(cycles.classes.ravel())
    assert cycles.draws >= 60
    np.testing.assert_array_equal(used, np.arange(n))
    with workers(2) as run:
        found = products(a, b, cycles, run)
    v = correlated(a.vector, b.vector, cycles)
    orders = naive.cyclic_orders(cycles.classes, cycles.cosets)
    assert len({tuple(order) for order in orders}) == len(orders) == len(v)
    for k, order in enumerate(orders):
        if groups is not None:  # whole clusters move
            assert {frozenset(groups[order[groups == c]]) for c in groups} == {frozenset({c}) for c in groups}
        for i in range(2):
            for j in range(3):
                x, y = (m.tile(at, np.arange(n), np.arange(n)) for m, at in ((a, i), (b, j)))
                h, diagonal = naive.permuted_product(x, y, order)
                assert found.null[k, i, j] == pytest.approx(h, abs=1e-11 * n * n)  # rounding of sums of n² terms
                assert v[k, i, j] == pytest.approx(diagonal, abs=1e-11 * n)
    np.testing.assert_allclose(found.null[0], found.ab.sum(0), rtol=1e-10)
