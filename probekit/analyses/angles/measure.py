"""The directions of kept probes, fitted again on the caches that they were fitted on, and the rows of their pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.analyses.angles.cosines import Judged, judged
from probekit.analyses.apply.measure import changed_vectors, vectors_of
from probekit.analyses.matching import check_finite
from probekit.analyses.vectors import layer_vectors, model_columns, open_caches, read_of
from probekit.errors import CacheMismatch, UsageError
from probekit.files import digest_of_content
from probekit.monitors.folder import load_probes
from probekit.monitors.format import CARD
from probekit.monitors.probe import Probe
from probekit.notes import logger
from probekit.probes.angles import Refits, cosine, random_high, random_p, refits
from probekit.probes.directions import halves
from probekit.probes.protocol.options import Estimator
from probekit.recipe import Read
from probekit.rows import Result, make_rows
from probekit.runtime import Progress
from probekit.statistics.multiplicity import holm

if TYPE_CHECKING:
    from probekit.analyses.angles import AnglesOptions

log = logger(__name__)
METRIC = "direction-cosine"
AGAIN = (Estimator.LOGISTIC, Estimator.RIDGE, Estimator.MASS_MEAN, Estimator.K_SPARSE)
"""Estimators whose probes are fitted again."""
SAME = 0.99
"""The least cosine between a kept probe and the same fit again."""


@dataclass(frozen=True, slots=True)
class Line:
    """The direction of one probe (d,), and what tells it from others; ``folder`` is "" for one in memory."""

    probe: Probe
    direction: np.ndarray
    folder: str

    @property
    def parts(self) -> tuple[str, ...]:
        """What its name may say, in this order."""
        card = self.probe.card
        return (
            str(card["train"].get("task", "")), str(card["encoder"].get("model", "")), str(card["estimator"]),
            f"layer {self.probe.layer}", f"seed {card.get('seed')}", self.folder,
        )  # fmt: skip


def measure(
    probes: Sequence[str | Path | Probe], caches: Sequence[str | Path | ActivationCache], options: AnglesOptions,
    progress: Progress,
) -> Result:  # fmt: skip
    """The rows of :func:`probekit.angles`."""
    reads = [
        Read(str(one), "probe", digest_of_content(Path(one) / CARD)) for one in probes if not isinstance(one, Probe)
    ]
    lines = _lines(probes, options.layers)
    pairs = [(i, j) for i, j in combinations(range(len(lines)), 2) if _comparable(lines[i], lines[j])]
    if not pairs:
        raise UsageError(
            f"{len(lines)} {'direction has' if len(lines) == 1 else 'directions have'} no other of the same width to "
            "be compared with; give the folders of two probes of two classes, or of a number."
        )
    with ExitStack() as stack:
        opened = open_caches(caches, stack)
        reads += [read_of(cache) for cache in opened]
        fits, known = list[Refits](), dict[bytes, np.ndarray]()
        for i, line in enumerate(lines if opened else ()):
            progress("probes", i, len(lines))
            fits.append(_again(line, opened, known, options))
        progress("probes", len(lines), len(lines))
    kept = [line.direction for line in lines]
    scales = {name: judged(kept, fits, pairs, options.level, scaled=name != "raw") for name in _scales(fits)}
    return Result(make_rows(list(_rows(lines, pairs, scales, options))), reads=tuple(reads))


def _scales(fits: Sequence[Refits]) -> tuple[str, ...]:
    return ("raw", "standardised") if fits else ()


def _lines(probes: Sequence[str | Path | Probe], layers: Any) -> list[Line]:
    """The directions of all probes; those without a single one are left out with a warning."""
    found, left = list[Line](), list[str]()
    wanted = None if layers is None else {str(layer) for layer in layers}
    for one in probes:
        folder = "" if isinstance(one, Probe) else Path(one).name
        for probe in (one,) if isinstance(one, Probe) else load_probes(one):
            if wanted is not None and probe.layer not in wanted:
                continue
            if probe.weights.form == "linear" and (direction := probe.direction).ndim == 1:
                found.append(Line(probe, direction, folder))
            else:
                left.append(f"{probe.card['estimator']}, layer {probe.layer} ({len(probe.classes)} classes)")
    if left:
        log.warning(
            "left out, since only linear probes of two classes or a number have a single direction: %s.",
            "; ".join(left),
        )
    return found


def _comparable(a: Line, b: Line) -> bool:
    """Whether two directions are of one width; of unlike models it warns."""
    if len(a.direction) != len(b.direction):
        log.warning(
            "left out: %s and %s, which read vectors of %s and %s dimensions.",
            ", ".join(a.parts[:4]), ", ".join(b.parts[:4]), len(a.direction), len(b.direction),
        )  # fmt: skip
        return False
    models = [line.probe.card["encoder"].get("weights_digest") for line in (a, b)]
    if models[0] != models[1]:
        log.warning("the probes are of models with other weights, whose dimensions may mean other things.")
    return True


def _again(
    line: Line, caches: Sequence[ActivationCache], known: dict[bytes, np.ndarray], options: AnglesOptions
) -> Refits:
    """The probe fitted again on its cache; UsageError where that is not the same probe.

    known : halves by groups, so that probes of the same examples have the same
    """
    probe, card, name = line.probe, line.probe.card, ", ".join(line.parts[:4])
    digest = card["train"].get("data_digest")
    cache = next((one for one in caches if digest is not None and one.spec.get("data_digest") == digest), None)
    if cache is None:
        raise UsageError(
            f"none of the caches holds the examples that the probe {name} was fitted on; give --cache the train cache "
            "of each probe, separated by commas, or none."
        )
    if changed := changed_vectors(probe, cache):
        raise CacheMismatch(f"{name}: the probe was fitted on other vectors than {cache.path}: {'; '.join(changed)}.")
    estimator, penalty = card["estimator"], card.get("penalty")
    if estimator not in set(AGAIN) or penalty is None:
        raise UsageError(
            f"the probe {name} cannot be fitted again: its card has no penalty of {', '.join(AGAIN)}. Leave out "
            "--cache, or this probe."
        )
    of = layer_vectors(cache, replace(vectors_of(probe, cache), groups=options.groups))
    rows = np.flatnonzero(of.labels.known)
    x, labels = np.asarray(of.layers[probe.layer]()[rows], dtype=np.float32), of.labels[rows]
    check_finite(x, cache, probe.layer, labels)
    classes = 2 if probe.two_classes else 0
    units = np.arange(len(rows)) if labels.groups is None else np.unique(labels.groups, return_inverse=True)[1]
    half = known.setdefault(units.tobytes(), halves(labels.y, labels.groups, options.seed, classes=classes > 0))
    if any(len(np.unique(labels.y[half != k])) < 2 for k in (0, 1)):
        raise UsageError(f"a half of the train split of the probe {name} has labels of one kind only; it is too small.")
    how: dict[str, Any] = {"draws": options.draws, "seed": options.seed, "balanced": bool(card.get("balanced"))}
    found = refits(x, labels, half, classes, Estimator(estimator), float(penalty), **how)
    if not (again := float(cosine(found.gold, line.direction))) >= SAME:
        raise UsageError(
            f"the probe {name} is fitted again in another direction (cosine {again:.3f}), so its card does not say all "
            "of how it was fitted. Leave out --cache, or keep the probe again."
        )
    return found


def _names(lines: Sequence[Line]) -> list[str]:
    """Names by what differs between the probes, always with the layer; equal names are numbered."""
    differs = [len({line.parts[k] for line in lines}) > 1 or k == 3 for k in range(5)]
    names = [", ".join(part for part, use in zip(line.parts, differs, strict=False) if use) for line in lines]
    if len({*names}) < len(names) and all(line.folder for line in lines):
        names = [f"{name} of {line.folder}" for name, line in zip(names, lines, strict=True)]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: i + 1].count(name)})" for i, name in enumerate(names)
    ]


def _rows(
    lines: Sequence[Line], pairs: Sequence[tuple[int, int]], scales: dict[str, Judged], options: AnglesOptions
) -> Iterator[dict[str, Any]]:
    names = _names(lines)
    tasks, splits = (
        "+".join(sorted({str(line.probe.card["train"].get(key, "")) for line in lines})) for key in ("task", "split")
    )
    value = np.array([cosine(lines[i].direction, lines[j].direction) for i, j in pairs])
    at_random = [float(random_p(v, len(lines[i].direction))) for v, (i, _) in zip(value, pairs, strict=True)]
    corrected = holm(np.array(at_random))
    for k, (i, j) in enumerate(pairs):
        a, b = lines[i].probe.card, lines[j].probe.card
        sizes = [n for n in (a.get("n_train"), b.get("n_train")) if n is not None]
        width = len(lines[i].direction)
        row = {
            "analysis": "angles", "task": tasks, "split": splits,
            **model_columns({"model": "", "random_weights": None, **a["encoder"]}, {}),
            "layer": lines[i].probe.layer, "representation": a.get("vectors", {}).get("representation", ""),
            "estimator": a["estimator"], "target": "gold", "metric": METRIC, "n": min(sizes, default=None),
            "seed": options.seed, "probe": names[i], "against": names[j],
            "against_layer": lines[j].probe.layer, "against_estimator": b["estimator"],
            "probe_task": a["train"].get("task"), "against_task": b["train"].get("task"),
            "probe_seed": a.get("seed"), "against_seed": b.get("seed"), "width": width, "tests": len(pairs),
            "random_high": random_high(width, options.level),
        }  # fmt: skip
        for scale, one in scales.items():
            yield row | {
                "scale": scale, "value": one.value[k], "within_halves": one.within[k], "across_halves": one.across[k],
                "permuted_high": one.high[k], "random_p": float(random_p(one.value[k], width)), "p": one.p[k],
                "p_adjusted": one.p_adjusted[k], "null": "permuted labels", "draws": options.draws,
            }  # fmt: skip
        if not scales:
            yield row | {
                "scale": "raw", "value": value[k], "random_p": at_random[k], "p": at_random[k],
                "p_adjusted": corrected[k], "null": "random directions",
            }  # fmt: skip
