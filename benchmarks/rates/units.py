"""Cases of ``probekit units``: from features to the sentence that names units, or does not."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
from calibration import case

from probekit.analyses.units import UnitsOptions
from probekit.analyses.units.layer import Data, of_layer
from probekit.analyses.units.measure import layer_rows
from probekit.analyses.units.sentences import sentences
from probekit.probes.protocol.label_sets import label_sets
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.rows import make_rows

HEAD = {"task": "t", "split": "dev", "model": "m", "representation": "mean", "analysis": "units"}
RIGHT, COPY = {0, 1, 2}, 3
"""The planted units, and the unit that can be a near copy of the first."""


def features(
    rng: np.random.Generator, n: int, d: int, *, strong: float = 0.0, spread: float = 0.0, share: float = 0.5,
    copies: int = 1, common: float = 0.0, copied: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Vectors (n, d) of clusters of ``copies`` near copies with a decaying spectrum, labels, and clusters.

    strong : difference of class means of the planted units, in their deviation; spread : of every unit, with a random
    sign; common : the share of variance of a factor that all units have; copied : whether a unit is a near copy of the
    first planted one (they correlate by about .995)
    """
    of = np.repeat(np.arange(-(-n // copies)), copies)[:n]
    y = (rng.random(of[-1] + 1) < share)[of].astype(np.int64)
    x = rng.normal(size=(of[-1] + 1, d))[of]
    x += 0.3 * rng.normal(size=(n, d)) if copies > 1 else 0
    x = np.sqrt(1 - common) * x + np.sqrt(common) * rng.normal(size=(of[-1] + 1, 1))[of] * np.sign(np.arange(d) % 3 - 1)
    x[:, sorted(RIGHT)] += strong * (y - 0.5)[:, None]
    x[:, COPY] = x[:, 0] + 0.1 * rng.normal(size=n) if copied else x[:, COPY]
    x += spread * (y - 0.5)[:, None] * np.where(np.arange(d) % 2, 1, -1)
    return (x / np.sqrt(1 + np.arange(d) % 7)).astype(np.float32), y, of


def said(
    rng: np.random.Generator, *, ranking: str, n: int, dev: int, d: int, layers: int = 2, splits: int = 10, **how: Any
) -> str | None:
    """What the verdict says of layers with such features; None if a class is missing."""
    x, y, of = features(rng, n + dev, layers * d, **how)
    options = UnitsOptions(rankings=(ranking,), draws=39, splits=splits, resamples=100, seed=int(rng.integers(1 << 30)))
    parts = [Labels(y[at], groups=of[at] if how.get("copies", 1) > 1 else None) for at in (slice(n), slice(n, None))]
    if any(len(np.unique(part.y)) < 2 or np.unique(part.y, return_counts=True)[1].min() < 5 for part in parts):
        return None
    sets = label_sets(*parts, Question("classification", ("accuracy",)), ProbeOptions(controls=0))
    metric = "matthews" if how.get("share", 0.5) < 0.2 else "accuracy"
    found = []
    for i in range(layers):
        own = x[:, i * d : (i + 1) * d]
        found.append(of_layer(str(i), Data(own[:n], own[n:], sets), None, metric, (), options))
    rows = make_rows([HEAD | sets.sizes | row for row in layer_rows(found, metric, options, found)])
    [text] = sentences(rows, ())
    return text


def named(text: str | None) -> set[tuple[str, int]] | None:
    """The layer and number of each unit that a verdict names; None without a verdict."""
    if text is None:
        return None
    found = re.search(r"layer (\d+): units? ([\d, ]+) holds? the property", text)
    return {(found[1], int(unit)) for unit in found[2].split(", ")} if found else set()


def wrongly(rng: np.random.Generator, **how: Any) -> bool | None:
    """Whether a unit is named that is not one of the planted ones, nor the copy of one."""
    found, right = named(said(rng, **how)), RIGHT | ({COPY} if how.get("copied") else set())
    return None if found is None else bool(found - {("0", unit) for unit in right})


def beats(rng: np.random.Generator, **how: Any) -> bool | None:
    """Whether the first units are said to hold more than random ones, without which none is named."""
    text = said(rng, splits=0, **how)
    return None if text is None else "are not shown to hold more than random ones" not in text


NOISE = {
    "noise, n 400, 64 units": {"n": 400, "dev": 200, "d": 64},
    "noise, common factor, n 400, 64 units": {"n": 400, "dev": 200, "d": 64, "common": 0.6},
    "noise, n 120, 300 units": {"n": 120, "dev": 80, "d": 300},
    "noise, 8 % positive, n 600, 64 units": {"n": 600, "dev": 300, "d": 64, "share": 0.08},
    "noise, clusters of 4 near copies, n 400, 64 units": {"n": 400, "dev": 200, "d": 64, "copies": 4},
    "property of all units alike, n 400, 64 units": {"n": 400, "dev": 200, "d": 64, "spread": 0.25},
}
PLANTED = {
    "3 units of 64 planted, others named, n 400": {"n": 400, "dev": 200, "d": 64, "strong": 0.8},
    "3 units of 64 planted, and a near copy of one, others named, n 400": {
        "n": 400, "dev": 200, "d": 64, "strong": 0.8, "copied": True,
    },
    "3 units of 64 planted, others named, 8 % positive, n 600": {
        "n": 600, "dev": 300, "d": 64, "strong": 1.2, "share": 0.08,
    },
    "3 units of 64 planted, others named, common factor, n 400": {
        "n": 400, "dev": 200, "d": 64, "strong": 0.8, "common": 0.6,
    },
}  # fmt: skip
for _ranking in ("mean-difference", "weight"):
    for _name, _how in NOISE.items():
        case(f"units/{_ranking}, {_name}", "false positives", runs=200)(partial(beats, ranking=_ranking, **_how))
    for _name, _how in PLANTED.items():
        case(f"units/{_ranking}, {_name}", "false positives", runs=200)(partial(wrongly, ranking=_ranking, **_how))
