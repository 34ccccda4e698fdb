"""How often the sentences of ``probekit directions`` are wrong: from vectors of two models to what is named.

An example has a vector that both models share; each model reads it with noise of its own, and one of them may change
it. Three layers, each with probes, maps, tests and a name of its own; a case counts any layer that is named wrongly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from calibration import case

from probekit.analyses.directions import DirectionsOptions
from probekit.analyses.directions.rows import Data, Layer, rows_of
from probekit.analyses.directions.sentences import Found, layers_of
from probekit.probes.directions import After, Side, fit, halves
from probekit.probes.protocol.options import Estimator
from probekit.rows import layer_labels, make_rows
from probekit.statistics.folds import folds
from probekit.statistics.relabelling import shuffles

LAYERS = ("0", "1", "2")
NOISE = 0.4
POPULATION = 20_000
ABOUT = {
    "analysis": "directions", "task": "t", "split": "dev", "model": "m", "checkpoint": "tuned", "estimator": "logistic",
    "representation": "mean", "target": "gold", "n": 0, "against_model": "m",
}  # fmt: skip
Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]
RESCALED, MOVED = (Found.RESCALED, Found.PARTLY_RESCALED), (Found.MOVED, Found.PARTLY_MOVED)


def same(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return x


def stretched(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each dimension with a scale and a shift of its own."""
    return (x + rng.normal(size=x.shape[1])) * np.exp(rng.normal(size=x.shape[1]))


def turned(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return x @ np.linalg.qr(rng.normal(size=(x.shape[1], x.shape[1])))[0]


def a_little(x: np.ndarray, rng: np.random.Generator, angle: float = 0.6) -> np.ndarray:
    """A rotation by an angle in the plane of the two dimensions of which the first tells."""
    x = x.copy()
    c, s = np.cos(angle), np.sin(angle)
    x[:, :2] = x[:, :2] @ np.array([[c, s], [-s, c]])
    return x


def labelled(rng: np.random.Generator, n: int, share: float, copies: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Labels, and groups of near copies."""
    of = np.repeat(np.arange(n // copies), copies)
    return (rng.permutation(n // copies) < round(share * n // copies)).astype(int)[of], of if copies > 1 else None


def elsewhere(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of two models that tell in dimensions which no rotation brings together.

    In the first, the label is part of a large dimension; in the second, that dimension is another, without the label.
    """
    told = 2.5 * (y - 0.5)
    one, other = x.copy(), x.copy()
    shared = x[:, 0] - told
    one[:, 0], other[:, 0] = shared + told, rng.normal(size=len(x))
    other[:, 1], other[:, 2] = 4 * shared, 0.5 * told + 0.3 * rng.normal(size=len(x))
    return one, other


def layers(
    rng: np.random.Generator,
    change: Change | None,
    n: int = 200,
    d: int = 8,
    share: float = 0.5,
    copies: int = 1,
    metric: str = "accuracy",
    more: int = 0,
) -> tuple[Any, dict[str, tuple[Side, Side]], Data]:
    """The rows of three layers of two models, and the sides with ``more`` further examples after those of dev."""
    (y, groups), (y_dev, groups_dev) = (labelled(rng, n, share, copies) for _ in range(2))
    units = len(y) // copies
    orders = [order for some in shuffles(n, groups, draws=3, seed=int(rng.integers(1 << 30))) for order in some]
    data = Data(y_dev, groups_dev, 2, units, orders)
    fold, half = folds(y, 2, groups=groups, seed=0), halves(y, groups, 0, classes=True)
    sides: dict[str, tuple[Side, Side]] = {}
    for name in LAYERS:
        parts = [_shared(rng, labels, d, copies) for labels in (y, y_dev, *((np.arange(more) % 2,) if more else ()))]
        seed = int(rng.integers(1 << 30))
        pairs = [
            elsewhere(x, labels, rng) if change is None else (x, change(x, np.random.default_rng(seed)))
            for x, labels in parts
        ]
        noisy = [tuple(x + NOISE * rng.normal(size=x.shape) * x.std(0) for x in pair) for pair in pairs]
        sides[name] = tuple(  # type: ignore[assignment]
            Side(
                of[0],
                np.concatenate(of[1:]),
                fit(of[0].astype(np.float32), y, 2, fold, half, Estimator.LOGISTIC, (0.1,)),
            )
            for of in zip(*noisy, strict=True)
        )
    evaluated = {
        name: Layer.of(*(Side(side.x, side.x_dev[: len(y_dev)], side.fit) for side in pair), data)
        for name, pair in sides.items()
    }
    options = DirectionsOptions(resamples=400, seed=int(rng.integers(1 << 30)))
    rows = make_rows({**ABOUT, **row} for row in rows_of(evaluated, data, metric, options))
    return rows, sides, data


def _shared(rng: np.random.Generator, y: np.ndarray, d: int, copies: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of examples with these labels, near copies after one another."""
    x = np.repeat(rng.normal(size=(len(y) // copies, d)), copies, axis=0)
    x = x + (0.1 * rng.normal(size=x.shape) if copies > 1 else 0)
    x[:, 0] += 2.5 * (y - 0.5)
    return x, y


def named(rng: np.random.Generator, *, wrong: tuple[Found, ...], change: Change | None, **setting: Any) -> bool:
    """Whether the sentence names something wrong of any layer."""
    rows, _, _ = layers(rng, change, **setting)
    return any(layer.found in wrong for layer in layers_of(rows.assign(name=layer_labels(rows))))


def _lost(side: tuple[Side, Side], rows: slice, y: np.ndarray, after: After) -> float:
    """What these probes lose both ways on some rows of dev."""
    right = []
    for probe, read in (side, side[::-1]):
        native = read.predicts(read.x_dev[rows], 2) == y
        right.append(native.mean() - (probe.predicts(read.x_dev[rows], 2) == y).mean())
    return float(np.mean(right))


def kept_wrongly(rng: np.random.Generator, *, change: Change, **setting: Any) -> bool | None:
    """Whether a layer is called kept though its probes lose more than the margin of a population."""
    rows, sides, data = layers(rng, change, more=POPULATION, **setting)
    y, rest = np.arange(POPULATION) % 2, slice(len(data.y), None)
    found = {layer.name: layer for layer in layers_of(rows.assign(name=layer_labels(rows)))}
    far = [name for name in LAYERS if _lost(sides[name], rest, y, After.AS_IS) > found[name].margin]
    return any(found[name].found is Found.KEPT for name in far) if far else None


def covered(rng: np.random.Generator, *, change: Change, **setting: Any) -> bool:
    """Whether the interval of the loss as is of one layer holds that of a population, for these probes."""
    rows, sides, data = layers(rng, change, more=POPULATION, **setting)
    truth = _lost(sides["0"], slice(len(data.y), None), np.arange(POPULATION) % 2, After.AS_IS)
    at = (rows["after"] == "native") & (rows["against"] == "as is") & (rows["layer"] == 0)
    row = rows[at & (rows["way"] == "both")].iloc[0]
    return bool(row["ci_low"] - 1e-9 <= truth <= row["ci_high"] + 1e-9)


SETTINGS: dict[str, dict[str, Any]] = {
    "200 examples": {},
    "near copies, groups of 4": {"copies": 4},
    "a label of 1 in 10, Matthews": {"share": 0.1, "metric": "matthews"},
    "120 examples, 200 dimensions": {"n": 120, "d": 200},
}
for _words, _setting in SETTINGS.items():
    name = f"directions/nothing moved, any change is named, {_words}"
    case(name, "false positives")(partial(named, wrong=(*RESCALED, *MOVED, Found.LOST), change=same, **_setting))
    if "copies" in _setting or "share" in _setting:
        continue
    name = f"directions/only rescaled, moved, in part or lost is named, {_words}"
    wrong = (*MOVED, Found.PARTLY_RESCALED, Found.LOST)
    case(name, "false positives")(partial(named, wrong=wrong, change=stretched, **_setting))
    name = f"directions/rotated, rescaled, in part or lost is named, {_words}"
    wrong = (*RESCALED, Found.PARTLY_MOVED, Found.LOST)
    case(name, "false positives")(partial(named, wrong=wrong, change=turned, **_setting))
case("directions/told elsewhere, kept, rescaled or moved is named, 200 examples", "false positives")(
    partial(named, wrong=(Found.KEPT, Found.RESCALED, Found.MOVED), change=None)
)
case("directions/turned by 0.65, a loss above the margin is called kept, 400 examples", "false positives")(
    partial(kept_wrongly, change=partial(a_little, angle=0.65), n=400)
)
case("directions/interval of the loss as is, 200 examples", "coverage")(partial(covered, change=a_little))
