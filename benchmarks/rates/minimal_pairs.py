"""Minimal pairs and probes: noise above chance, and intervals of probes of noise, from features to the sentence.

Differences of the vectors of a pair have nothing to do with which sentence is acceptable: a coin says it for each pair,
or for each paradigm, whose pairs then share most of their difference (a template, as *is* and *are*). Paradigms are of
unequal size, pairs may be copies, and there may be fewer pairs than dimensions.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from calibration import case
from comparisons import noise_layers

from probekit.analyses.pairs import PairOptions
from probekit.analyses.pairs.measure import pair_rows, probed
from probekit.analyses.verdict import sentences
from probekit.rows import make_rows
from probekit.tasks.pairs import Pair


def drawn(
    rng: np.random.Generator, *, paradigms: int, pairs: int, d: int, template: float, copies: int, layers: int
) -> tuple[list[Pair], list[np.ndarray]]:
    """Pairs, and the differences of their vectors on each layer."""
    size = np.maximum(4, rng.multinomial(pairs, rng.dirichlet(np.full(paradigms, 3.0))))
    of = np.repeat(np.arange(paradigms), size)
    own, shared = (noise_layers(rng, count, d, layers) for count in (len(of), paradigms))
    x = [np.sqrt(template) * b[of] + np.sqrt(1 - template) * a for a, b in zip(own, shared, strict=True)]
    again = np.repeat(np.arange(len(of)), copies)
    found = [Pair(f"{i}-{j}", f"good {i}", f"bad {i}", f"p{of[i]}") for j, i in enumerate(again)]
    return found, [part[again].astype(np.float32) for part in x]


def measured(rng: np.random.Generator, **how: float) -> tuple[bool, bool]:
    """Whether a layer is said to be above chance, and whether the interval of the last one holds .5."""
    found, x = drawn(rng, **how)  # type: ignore[arg-type]
    options = PairOptions(controls=0, seed=int(rng.integers(1 << 30)), penalties=(1e-3, 1e-1))
    fits, gaps, exchanged = probed(((str(i), part) for i, part in enumerate(x)), found, options)
    about = {"analysis": "pairs", "task": "t", "split": "test", "model": "m", "representation": "mean"}
    fits = [about | {"estimator": "pair-probe"} | fit for fit in fits]
    rows = make_rows(pair_rows(fits, gaps, found, options, exchanged))
    last = rows[rows["level"] == "all"].iloc[-1]
    [said] = sentences(rows)
    return "not shown to be above" not in said, bool(last["ci_low"] <= 0.5 <= last["ci_high"])


def above(rng: np.random.Generator, **how: float) -> bool:
    """Whether the sentence says that a layer is above chance."""
    return measured(rng, **how)[0]


def covered(rng: np.random.Generator, **how: float) -> bool:
    """Whether the interval of one layer holds .5."""
    return measured(rng, **how)[1]


SETTINGS = {
    "100 pairs of one paradigm": {"paradigms": 1, "pairs": 100, "d": 32},
    "60 pairs of one paradigm, d 200": {"paradigms": 1, "pairs": 60, "d": 200},
    "100 pairs of one paradigm, twice each": {"paradigms": 1, "pairs": 100, "d": 32, "copies": 2},
    "8 paradigms, 200 pairs": {"paradigms": 8, "pairs": 200, "d": 32},
    "4 paradigms, templates": {"paradigms": 4, "pairs": 100, "d": 32, "template": 0.8},
    "8 paradigms, templates": {"paradigms": 8, "pairs": 200, "d": 32, "template": 0.8},
    "20 paradigms, templates": {"paradigms": 20, "pairs": 400, "d": 32, "template": 0.8},
}
for setting, how in SETTINGS.items():
    full = {"template": 0.0, "copies": 1, **how}
    case(f"pairs/noise is above chance, {setting}, 3 layers", "false positives", nominal=0.025, runs=300)(
        partial(above, layers=3, **full)
    )
    case(f"pairs/interval of a probe of noise, {setting}", "coverage", runs=300)(partial(covered, layers=1, **full))
