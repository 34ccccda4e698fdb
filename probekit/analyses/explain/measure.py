"""What the scores of a kept probe go with: the ends of the scores, shares of their variance, and the lens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.explain.scores import Scores, scores_of
from probekit.analyses.vectors import read_of_model
from probekit.errors import ModelError, UsageError
from probekit.files import digest_of_content
from probekit.models.find import resolve_model
from probekit.models.identity import identify
from probekit.models.scoring.lens import RANDOM, Lens, lens
from probekit.monitors.folder import load_probe
from probekit.monitors.format import CARD
from probekit.monitors.probe import Probe
from probekit.monitors.scoring import changes
from probekit.notes import logger
from probekit.recipe import Read
from probekit.rows import Result, make_rows
from probekit.rows.schema import FINAL
from probekit.runtime import Progress
from probekit.sites import RESIDUAL, Site
from probekit.statistics.multiplicity import holm
from probekit.statistics.regression import partial_effects

if TYPE_CHECKING:
    from probekit.analyses.explain import ExplainOptions

log = logger(__name__)
SHARE, WHOLE, PRODUCT = "semi-partial-r2", "r2", "lens-product"
"""The metrics of rows: what one predictor carries beyond the others, what all carry, and products with pieces."""


def measure(
    probe: str | Path | Probe, data: tuple[Any, str | None, str | Path | None], model: Any, options: ExplainOptions,
    progress: Progress,
) -> Result:  # fmt: skip
    """The rows of :func:`probekit.explain`."""
    kept = probe if isinstance(probe, Probe) else load_probe(probe, options.layer)
    if options.lens:
        _check_lens(kept)
    scores = scores_of(kept, data, model, options, progress)
    about = {
        "analysis": "explain", **scores.about, "estimator": kept.card["estimator"], "layer": kept.layer,
        "target": "gold", "seed": options.seed, "n": len(scores.value), "by": options.by,
    }  # fmt: skip
    records = [about | row for row in (*_ends(scores, options.top), *_effects(scores, options))]
    reads = [] if isinstance(probe, Probe) else [Read(str(probe), "probe", digest_of_content(Path(probe) / CARD))]
    reads += scores.reads
    if options.lens:
        found, read = _read_by_head(kept, model, options)
        records += [about | row for row in _lens(found, options.top)]
        reads += [read] if all(one.kind != "model" for one in reads) else []
    return Result(make_rows(records), reads=tuple(reads))


def _ends(scores: Scores, top: int) -> Iterator[dict[str, Any]]:
    """The texts or pieces with the highest and the lowest scores."""
    order = np.argsort(-scores.value, kind="stable")
    for end, places in (("highest", order[:top]), ("lowest", order[::-1][:top])):
        for place, at in enumerate(places.tolist()):
            about = {name: column[at] for name, column in scores.texts.items()}
            if scores.label is not None:
                about["label_value"] = float(scores.label[at])
            row = {"metric": "probe-score", "value": float(scores.value[at]), "end": end, "place": place + 1}
            yield row | about


def _effects(scores: Scores, options: ExplainOptions) -> Iterator[dict[str, Any]]:
    """Shares of the variance of the scores: without the label, and with it where there is one."""
    every = np.ones(len(scores.value), dtype=bool)
    yield from _shares(scores, scores.predictors, every, options, with_label=False)
    if scores.label is not None:
        known = ~np.isnan(scores.label)
        yield from _shares(scores, scores.predictors | {"label": scores.label}, known, options, with_label=True)


def _shares(
    scores: Scores, predictors: Mapping[str, np.ndarray], rows: np.ndarray, options: ExplainOptions, *, with_label: bool
) -> Iterator[dict[str, Any]]:
    y = scores.value[rows]
    x = {name: column[rows] for name, column in predictors.items()}
    varies = {name: column for name, column in x.items() if np.ptp(column) > 0}
    if same := [name for name in x if name not in varies]:
        log.warning("%s is the same everywhere, and carries nothing of the scores.", " and ".join(same))
    if with_label and "label" in same:
        return
    if not varies or not np.ptp(y) > 0:
        raise UsageError("the scores, or all that they could go with, are the same everywhere; give other texts.")
    groups = None if scores.groups is None else scores.groups[rows]
    if groups is not None and len(np.unique(groups)) < 2:
        raise UsageError("all texts are of one group; intervals and p need several.")
    found = partial_effects(
        np.column_stack([*varies.values()]), y, groups, flips=options.draws,
        resamples=options.resamples or 0, level=options.level, seed=options.seed,
    )  # fmt: skip
    about = {"with_label": with_label, "n": len(y), "units": found.units}
    for i, name in enumerate(varies):
        own = {"metric": SHARE, "predictor": name, "beyond": ", ".join(one for one in varies if one != name)}
        own |= {"value": found.value[i], "ci_low": found.low[i], "ci_high": found.high[i], "slope": found.slope[i]}
        if options.draws:
            tests = {"p": found.p[i], "p_adjusted": found.p_adjusted[i], "tests": len(varies), "draws": options.draws}
            own |= tests
        yield about | own
    yield about | {
        "metric": WHOLE, "predictor": "all", "value": found.value[-1], "ci_low": found.low[-1],
        "ci_high": found.high[-1],
    }  # fmt: skip


def _check_lens(probe: Probe) -> None:
    """Raise UsageError if the probe has no direction of the residual stream."""
    direction, site = probe.direction, Site.parse(probe.layer)
    if site.name not in (RESIDUAL, FINAL) or direction.ndim != 1:
        raise UsageError(f"the lens reads one direction of the residual stream, and the probe reads {site}.")


def _read_by_head(probe: Probe, model: Any, options: ExplainOptions) -> tuple[Lens, Read]:
    """The direction as the head of the probe's model reads it, and the model's entry in a card."""
    wanted = probe.card["encoder"]
    given = wanted.get("model", "") if model is None else getattr(model, "folder", model)
    if not isinstance(given, str | Path):
        raise UsageError(f"{model!r} has no folder from which the head could be read; leave out --lens.")
    random = wanted.get("random_weights")
    revision = wanted.get("revision") if model is None else None
    try:
        folder = resolve_model(given, revision)
    except ModelError as error:
        raise ModelError(f"the probe reads {given!r}: {error} Give its folder with --model.") from None
    spec = identify(given, revision=revision, random_weights=random)
    if (changed := changes(wanted, spec, ("weights_digest",))) and not options.anyway:
        raise UsageError(
            f"the probe was fitted on other vectors: {'; '.join(changed)}. --anyway reads them all the same."
        )
    normed = Site.parse(probe.layer).name == FINAL
    found = lens(folder, probe.direction, normed=normed, random_weights=random, seed=options.seed)
    return found, read_of_model(given, spec)


def _lens(found: Lens, top: int) -> Iterator[dict[str, Any]]:
    """The pieces of the vocabulary with the largest and the smallest products."""
    order = np.argsort(-found.products, kind="stable")
    ends = {"highest": (order, 1, found.largest), "lowest": (order[::-1], -1, found.smallest)}
    p = np.array([
        (1 + (sign * null >= sign * found.products[at[0]]).sum()) / (1 + RANDOM) for at, sign, null in ends.values()
    ])  # fmt: skip
    about = {"metric": PRODUCT, "norm": found.norm or "none", "n": len(found.pieces)}
    for (end, (at, sign, null)), one, adjusted in zip(ends.items(), p, holm(p), strict=True):
        for place, piece in enumerate(at[:top].tolist()):
            row = about | {"end": end, "place": place + 1, "piece": found.pieces[piece]}
            row["value"] = float(found.products[piece])
            if place == 0:
                null_end = float(sign * (sign * null).max())
                row |= {"p": one, "p_adjusted": adjusted, "tests": 2, "draws": RANDOM, "random_end": null_end}
            yield row
