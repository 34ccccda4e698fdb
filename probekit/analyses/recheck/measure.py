"""A kept probe on two readings of the same examples: the differences, the answer, and a new threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.activations.certify import Certificate, certify
from probekit.analyses.apply import apply
from probekit.analyses.cards import threshold_of
from probekit.analyses.recheck import RecheckOptions
from probekit.analyses.recheck.changes import Readings, changes, of_scores
from probekit.analyses.recheck.decision import Answer, Finding, answer, more_examples
from probekit.analyses.recheck.reading import Both, both
from probekit.errors import UsageError
from probekit.files import digest_of_content
from probekit.monitors.folder import load_probe
from probekit.monitors.format import CARD
from probekit.monitors.probe import LABELS, Probe
from probekit.monitors.scoring import changes as differs
from probekit.notes import logger
from probekit.recipe import Read
from probekit.rows import Result, make_rows
from probekit.runtime import Progress
from probekit.statistics.predictions import join

log = logger(__name__)


def measure(
    probe: str | Path | Probe, data: tuple[Any, Any, Any], models: tuple[Any, Any], options: RecheckOptions,
    progress: Progress,
) -> Result:  # fmt: skip
    """The rows of :func:`probekit.recheck`; ``data``: the texts, split and folder; ``models``: the old and new one."""
    kept = probe if isinstance(probe, Probe) else load_probe(probe, options.layer)
    kept.check_scores()
    if kept.kind in LABELS:
        raise UsageError("a probe of several labels or numbers of a text is not rechecked; keep one of each.")
    with both(kept, data, *models, options, progress) as found:
        results = [_applied(kept, cache) for cache in (found.before, found.after) if cache is not None]
        readings = _readings(kept, results)
        rows = [*judged(kept, readings, options), *_certified(kept, found, readings, whole=options.certify)]
        said = _what_changed(kept, found, options)
    about = readings.said.fits.drop(columns="source").iloc[-1].to_dict() | {"analysis": "recheck", "seed": options.seed}
    about |= {"check": "", "finding": "", "changed": said, "unpaired": found.why}
    about |= {name: rows[0][name] for name in ("answer", "more")}
    table = pd.DataFrame([{**about, **row} for row in rows])
    own = () if isinstance(probe, Probe) else (Read(str(probe), "probe", digest_of_content(Path(probe) / CARD)),)
    return Result(make_rows(table), results[-1].predictions, reads=(*own, *found.reads))


def _applied(probe: Probe, cache: ActivationCache) -> Result:
    result = apply(probe, cache, anyway=True, resamples=0)
    if not result.predictions:
        raise UsageError(f"{cache.spec['task']} {cache.spec['split']} has no labels; a recheck needs some.")
    return result


def _readings(probe: Probe, results: list[Result]) -> Readings:
    """The predictions of each example, paired, and the scores in their order."""
    said = join(*(result.predictions[0] for result in results))
    if not probe.two_classes and said.gold.dtype.kind in "iu":
        return Readings(said, None)
    scores = []
    for result in results:
        rows = result.rows[result.rows["metric"] == "probe-score"]
        known = dict(zip(rows["example"], rows["value"], strict=True))
        scores.append([known[name] for name in said.ids])
    return Readings(said, np.array(scores, dtype=np.float64))


def judged(probe: Probe, readings: Readings, options: RecheckOptions) -> Iterator[dict[str, Any]]:
    """The differences and the answer, what happened to the scores, and where the threshold is stale a new one."""
    found = changes(probe, readings, options)
    said = answer(found)
    n = readings.said.examples
    more = more_examples(found, n, options.level) if said is Answer.INCONCLUSIVE else nan
    about = {"answer": str(said), "more": more, **_classes(probe, readings)}
    for one in found:
        shown = {} if one.same or one.why else {"ci_low": one.low, "ci_high": one.high}
        yield about | shown | {
            "metric": one.metric, "value": one.value, "before": one.before, "after": one.after, "margin": one.margin,
            "finding": str(one.finding), "needed": one.needed, "n": one.n,
            "why": one.why or "no example changed" * (one.same and one.finding is Finding.HOLDS),
        }  # fmt: skip
    for row in of_scores(probe, readings, options):
        yield about | {"n": n} | row
    if said is Answer.STALE and readings.scores is not None:
        yield about | _new_threshold(readings, options)


def _classes(probe: Probe, readings: Readings) -> dict[str, str]:
    """The share of each class, and the classes that no example has."""
    if readings.gold.dtype.kind not in "iu":
        return {"mix": "", "untested": ""}
    names = readings.said.label_names or probe.card["classes"]
    count = np.bincount(readings.gold, minlength=len(names))
    mix = ", ".join(f"{name} {k / count.sum():.0%}" for name, k in zip(names, count, strict=True))
    return {"mix": mix, "untested": ", ".join(name for name, k in zip(names, count, strict=True) if not k)}


def _new_threshold(readings: Readings, options: RecheckOptions) -> dict[str, Any]:
    """The threshold of the same rate, calibrated on the new scores."""
    assert readings.scores is not None
    found = threshold_of(options.rate, readings.gold, readings.scores[-1], readings.said.groups, options)
    known = {name: value for name, value in found.items() if name not in ("threshold", "level")}
    return known | {"metric": "kept-threshold", "value": found["threshold"], "n": len(readings.gold)}


def _certified(probe: Probe, found: Both, readings: Readings, *, whole: bool) -> Iterator[dict[str, Any]]:
    """How much the vectors depend on the batch and so on, and how far that moves the scores at most."""
    spec = found.after.spec
    lines = {"batch": spec["certificate"]["batch"]["relative"]} if "batch" in spec["certificate"] else {}
    if whole and found.encoder is not None:
        certificate = certify(found.encoder)
        assert isinstance(certificate, Certificate)
        lines |= {line.check: line.relative for line in certificate.lines if line.check not in ("batch", "layers")}
    size = _size(probe, found.after)
    spread = nan if readings.scores is None else float(readings.scores[-1].std())
    for check, error in lines.items():
        moved = error * size
        yield {
            "metric": "extraction-error", "check": check, "value": error, "movement": moved,
            "movement_share": moved / spread if spread else nan, "n": int(spec["certificate"]["texts"]),
        }  # fmt: skip


def _size(probe: Probe, cache: ActivationCache) -> float:
    """The longest vector times the length of the direction: a relative error of vectors times this moves a score."""
    pooling = probe.card["encoder"].get("pooling")
    if probe.weights.form != "linear" or pooling is None or cache.spec["pairs"] == "separate":
        return nan
    direction = np.asarray(probe.direction, dtype=np.float64)
    if direction.ndim > 1:
        return nan
    longest = float(np.linalg.norm(np.asarray(cache.layer(probe.layer, pooling), dtype=np.float64), axis=1).max())
    return longest * float(np.linalg.norm(direction))


def _what_changed(probe: Probe, found: Both, options: RecheckOptions) -> str:
    """What differs from the probe's card, in words."""
    spec: Mapping[str, Any] = found.after.spec
    words = [*differs(probe.card["encoder"], spec)]
    words += [f"attention ({options.attention})"] if options.attention else []
    words += [f"a prefix ({options.prefix!r:.40})"] if options.prefix else []
    words += ["the chat template"] if spec.get("chat_template") != probe.card["encoder"].get("chat_template") else []
    known = probe.card.get("dev") or {}
    if (spec["task"], spec["split"]) != (known.get("task"), known.get("split")):
        words.append(f"the data ({known.get('task')} {known.get('split')}, now {spec['task']} {spec['split']})")
    return "; ".join(words)
