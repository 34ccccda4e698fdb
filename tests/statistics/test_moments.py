"""Sums in one pass against sums of whole arrays; parts about other centres; samples that do not depend on the order."""

import numpy as np
import pytest

from probekit.errors import NonFiniteError, UsageError
from probekit.statistics.moments import LayerMoments, Layout
from probekit.statistics.streams import Reservoir

LAYOUT = Layout(("0", "1", "2"), (4, 3, 5), 2, 3, 6, across=True)


def rows(seed, n=90):
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((n, 6)) + 5
    vectors = [(mixed @ rng.standard_normal((6, d))).astype(np.float32) for d in LAYOUT.widths]
    return vectors, np.eye(2)[rng.integers(2, size=n)], rng.integers(-1, 3, size=n), rng.integers(6, size=n)


def naive(vectors, y, fold, bin_, centres):
    """All sums, one row at a time."""
    z = [x.astype(np.float64) - c for x, c in zip(vectors, centres, strict=True)]
    out = {name: np.zeros(shape) for name, shape in LAYOUT.shapes().items()}
    for i, f in enumerate(fold):
        part = 3 if f < 0 else f
        out["weight"][part] += 1
        if f >= 0:
            out["y"][f] += y[i]
            out["yy"][f] += y[i] ** 2
            out["bin_weight"][f, bin_[i]] += 1
        for a, x in enumerate(z):
            out[f"total/{a}"][part] += x[i]
            out[f"gram/{a}"][part] += np.outer(x[i], x[i])
            if f >= 0:
                out[f"cross/{a}"][f] += np.outer(y[i], x[i])
                out[f"bins/{a}"][f, bin_[i]] += x[i]
            for b, w in enumerate(z):
                out[f"lean/{a}"][b] += (w[i] @ w[i]) * x[i]
                out["long"][a, b] += (x[i] @ x[i]) * (w[i] @ w[i])
                if a < b:
                    out[f"product/{a}|{b}"] += np.outer(x[i], w[i])
    return out | {f"centre/{a}": c for a, c in enumerate(centres)}


def test_sums_are_those_of_single_rows():
    given = rows(0)
    centres = [x[:10].mean(0, dtype=np.float64) for x in given[0]]
    sums = LayerMoments.empty(LAYOUT, centres)
    for part in np.array_split(np.arange(90), 4):
        sums.add([x[part] for x in given[0]], *(column[part] for column in given[1:]))
    for name, value in naive(*given, centres).items():
        assert np.abs(sums.arrays[name] - value).max() <= 1e-12 * max(1, np.abs(value).max()), name


def test_sums_about_other_centres_are_the_same_sums():
    """As where two processes compute the first means with other rounding: the order of merging does not matter."""
    given = rows(1)
    centres = [[x[k : k + 8].mean(0, dtype=np.float64) for x in given[0]] for k in (0, 40)]
    halves = [np.arange(30), np.arange(30, 90)]
    parts = [LayerMoments.empty(LAYOUT, own) for own in centres]
    for sums, half in zip(parts, halves, strict=True):
        sums.add([x[half] for x in given[0]], *(column[half] for column in given[1:]))
    for one, other, own in ((*parts, centres[0]), (*parts[::-1], centres[1])):
        found = one.plus(other)
        for name, value in naive(*given, own).items():
            assert np.abs(found.arrays[name] - value).max() <= 1e-11 * max(1, np.abs(value).max()), name


def test_unlabelled_rows_do_not_count_without_products_between_layers():
    layout = Layout(("0",), (4,), 2, 3, 6)
    vectors, y, fold, bin_ = rows(2)
    sums = LayerMoments.empty(layout, [np.zeros(4)])
    sums.add(vectors[:1], y, fold, bin_)
    assert sums.arrays["weight"].sum() == (fold >= 0).sum()
    assert np.allclose(sums.arrays["total/0"].sum(0), vectors[0][fold >= 0].sum(0), rtol=1e-5)
    with pytest.raises(UsageError, match="of other layers"):
        sums.plus(LayerMoments.empty(LAYOUT, [np.zeros(d) for d in LAYOUT.widths]))
    with pytest.raises(NonFiniteError, match="layer 0"):
        sums.add([np.full((90, 4), np.nan)], y, fold, bin_)


def test_a_sample_is_the_rows_of_least_priority_in_any_order():
    rng = np.random.default_rng(0)
    priority, x = rng.random(500), rng.standard_normal((500, 3))
    best = np.argsort(priority)[:40]
    for order in (np.arange(500), rng.permutation(500)):
        halves = []
        for half in np.array_split(order, 2):
            halves.append(Reservoir(40))
            for part in np.array_split(half, 7):
                halves[-1].add({"priority": priority[part], "x": x[part]})
        found = halves[0].plus(halves[1])
        assert (found.columns["x"] == x[best]).all()
    assert len(Reservoir(0).plus(halves[0])) == 0
