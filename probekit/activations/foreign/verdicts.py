"""What an array is: the hypothesis that is nearest to it, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, nan

import numpy as np

from probekit.activations.foreign.evidence import SCALED, Distance, Evidence, Hypothesis, streamed
from probekit.activations.foreign.source import Array
from probekit.sites import FINAL_NORM, RESIDUAL, Site

SAME = "same"
TIE, ROUNDING = 1.05, 1e-7
"""Hypotheses whose errors differ by less, relative or absolute, are equally near: the simplest is taken."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What an array is.

    Attributes
    ----------
    array : str
        Its name in the file.
    said : str
        The site that the file says it is; "" if it does not say.
    kinds : tuple of str
        ("same",), or its mistakes: "shifted", "swapped axes", "prefix missing", "overwritten", "another norm",
        "slice", "another site", "positions missing", "more positions"; ("other model",) if nothing is near.
    verdict : str
        A sentence.
    site : str
        The recomputed site that it equals; the one that it is said to be if it equals none.
    absolute : float
        The largest absolute difference from it.
    relative : float
        The largest |difference| / |recomputed vector| of any position.
    tolerance : float
        The largest relative difference that rounding explains, in the precision of the file and of the model.
    correlation : float
        The correlation of the numbers; nan if they cannot be compared.
    """

    array: str
    said: str
    kinds: tuple[str, ...]
    verdict: str
    site: str
    absolute: float
    relative: float
    tolerance: float
    correlation: float

    @property
    def passed(self) -> bool:
        """Whether the array is what it is said to be."""
        return self.kinds == (SAME,)


def decide(array: Array, evidence: Evidence, texts: int, tolerance: float, depth: int) -> Finding:
    """The finding for an array alone.

    Parameters
    ----------
    array : Array
        The array.
    evidence : Evidence
        Its distances from hypotheses.
    texts : int
        The number of texts that were compared.
    tolerance : float
        The largest relative error of a vector that rounding explains.
    depth : int
        The number of blocks.
    """
    said = None if array.site is None else streamed(array.site)
    whole = {h: d for h, d in evidence.items() if len(d.relative) == texts and _one_factor(d)}
    errors = {h: _largest(d) for h, d in whole.items()}
    errors = {h: error for h, error in errors.items() if error <= tolerance}
    tails = {h: shares for h, d in whole.items() if (shares := _tails(d, tolerance)) is not None} if not errors else {}
    if not errors and not tails:
        return _other(array, said, evidence, tolerance)
    best = min(errors.values(), default=inf)
    near = [h for h, error in errors.items() if error <= TIE * best + ROUNDING] or [*tails]

    def simplicity(h: Hypothesis) -> tuple[float, ...]:
        kin = h.site.name == (RESIDUAL if said is None else said.name)
        return h.mistakes + (h.site != said), bool(h.change), not kin, -sum(tails.get(h, ())), errors.get(h, 0.0)

    chosen = min(near, key=simplicity)
    kinds, words = _mistakes(chosen, whole[chosen], said, depth)
    if tails:
        t = max(whole[chosen].pieces)
        kinds.append("prefix missing")
        first = max(pieces - kept for pieces, kept in zip(whole[chosen].pieces, tails[chosen], strict=True))
        words.append(f"a prefix is missing: the first {first} of {t} positions hold something else")
    d, kept = whole[chosen], tails.get(chosen)
    if broken := [(i, int(row)) for i, rows in enumerate(d.absolute) for row in np.flatnonzero(np.isinf(rows))]:
        kinds.append("not finite")
        rows = f"{len(broken):,} row{'s hold' if broken[1:] else ' holds'}"
        words.append(
            f"{rows} NaN or an infinite number, the first that of position {broken[0][1]} of text {broken[0][0]}"
        )
    absolute, relative = (
        max(float(rows[len(rows) - (kept[i] if kept else len(rows)) :].max()) for i, rows in enumerate(values))
        for values in (d.absolute, d.relative)
    )
    if not kinds:
        kinds, words = [SAME], ["same" if said else f"same as {name_of(chosen.site)}; the file does not say which"]
    return Finding(
        array.name,
        "" if said is None else name_of(said),
        tuple(kinds),
        "; ".join(words),
        str(chosen.site),
        absolute,
        relative,
        tolerance,
        float(np.mean(d.correlation)),
    )


def name_of(site: Site) -> str:
    """A site as people call it: layer 3, attn_out.2."""
    return f"layer {site.layer}" if site.name == RESIDUAL else str(site)


def _one_factor(distance: Distance) -> bool:
    """Whether the factors of all texts agree within a hundredth."""
    factors = distance.factors
    return not factors or bool(max(factors) - min(factors) <= 0.01 * abs(np.mean(factors)))


def _largest(distance: Distance) -> float:
    """The largest relative error of the rows that are finite; infinite if these are fewer than half."""
    relative, absolute = (np.concatenate(rows) for rows in (distance.relative, distance.absolute))
    finite = relative[np.isfinite(absolute)]
    return float(finite.max()) if 2 * len(finite) >= len(relative) > 0 else inf


def _tails(distance: Distance, tolerance: float) -> tuple[int, ...] | None:
    """How many of the last rows of each text are near, if at least an eighth (and two) of each are; else None."""
    kept = []
    for rows in distance.relative:
        bad = np.flatnonzero(rows > tolerance)
        kept.append(len(rows) - (int(bad[-1]) + 1 if len(bad) else 0))
        if kept[-1] < max(2, ceil(len(rows) / 8)):
            return None
    return tuple(kept)


def _other(array: Array, said: Site | None, evidence: Evidence, tolerance: float) -> Finding:
    """Nothing is near; the distance is that from what the array is said to be."""
    claims = [(h, d) for h, d in evidence.items() if h.site == said and not h.change and not h.rows and not h.width]
    if not claims:
        words = "other model or other text: no site resembles it"
        return Finding(array.name, name_of(said) if said else "", ("other model",), words, "", nan, nan, tolerance, nan)
    hypothesis, d = min(claims, key=lambda claim: max(float(rows.max()) for rows in claim[1].relative))
    correlation = float(np.mean(d.correlation))
    relative, absolute = (max(float(rows.max()) for rows in values) for values in (d.relative, d.absolute))
    with_it = "no correlation" if correlation != correlation else f"correlation {correlation:.3f}"
    words = f"other model or other text: {with_it} with {name_of(hypothesis.site)}"
    if relative == inf:
        words = "other model or other text: some of its numbers are NaN or infinite"
    if correlation > 0.999 and relative <= 0.2:
        words += "; if it was computed in half precision, give --dtype bfloat16 or float16"
    name = name_of(hypothesis.site)
    return Finding(array.name, name, ("other model",), words, str(said), absolute, relative, tolerance, correlation)


def _mistakes(h: Hypothesis, distance: Distance, said: Site | None, depth: int) -> tuple[list[str], list[str]]:
    """The kinds of mistakes of a hypothesis, and each in words."""
    kinds, words = [], []
    if h.axes:
        kinds.append("swapped axes")
        words.append(f"swapped axes: the file has {h.axes}")
    if h.rows:
        t, pieces = len(distance.relative[0]), distance.pieces[0]
        kinds.append({"last": "prefix missing", "first": "positions missing", "more": "more positions"}[h.rows])
        words.append(
            {
                "last": f"a prefix is missing: only the last {t} of {pieces} positions are there",
                "first": f"the last positions are missing: only the first {t} of {pieces} are there",
                "more": f"it has more positions than the {pieces} pieces",
            }[h.rows]
        )
    if h.width:
        width = distance.width
        part = (
            f" (part {h.start // width + 1} of {h.width // width})" if not (h.start % width or h.width % width) else ""
        )
        kinds.append("slice")
        words.append(f"a slice of the hidden width: columns {h.start} to {h.start + width - 1} of {h.width}{part}")
    kind, text = _departure(h, distance, said, depth)
    return ([*kinds, kind], [*words, text]) if kind else (kinds, words)


POSTED = {"attn_out": "attn_out_post", "mlp_out": "mlp_out_post"}
WRITTEN_INTO = {
    "resid_mid": {RESIDUAL},
    "attn_out": {"resid_mid", RESIDUAL},
    "attn_out_post": {"resid_mid", RESIDUAL},
    "mlp_out": {RESIDUAL},
    "mlp_out_post": {RESIDUAL},
}
"""What a block's sum, added in place, leaves in the tensor of a site."""


def _departure(h: Hypothesis, distance: Distance, said: Site | None, depth: int) -> tuple[str, str]:
    """How the site and what was done to it depart from what the array is said to be; "" if they do not."""
    it = name_of(h.site)
    if h.change == SCALED:
        return "another norm", f"another norm: it is {it} times {np.mean(distance.factors):.6g}"
    if h.change.startswith("after ") and "block" in h.change:
        return "overwritten", f"overwritten after the fact: it is {it} {h.change}"
    if h.change:
        return "another norm", f"another norm: it is {it} {h.change}"
    if h.site == said or (said is None and h.site.name == RESIDUAL):
        return "", ""
    if said is None:  # vLLM's are layers of the stream
        kind = "another norm" if h.site == FINAL_NORM else "another site"
        return kind, f"{kind}: it is {it}, which is no layer of the stream"
    pair = {(POSTED.get(a.name, a.name), a.layer) for a in (said, h.site)}
    normed = said.name == RESIDUAL and h.site == FINAL_NORM
    if len(pair) == 1 or normed or (said, h.site) == (FINAL_NORM, Site(RESIDUAL, depth)):
        return "another norm", f"another norm: it is {it}"
    if said.name == h.site.name and said.layer is not None and h.site.layer is not None:
        by = h.site.layer - said.layer
        count = "one layer" if abs(by) == 1 else f"{abs(by)} layers"
        return "shifted", f"shifted by {count}: it is {it}, {'later' if by > 0 else 'earlier'} than it says"
    block = None if h.site.layer is None else h.site.layer - (h.site.name == RESIDUAL)
    if (said.name == RESIDUAL and h.site.name == "resid_mid" and said.layer == block) or (
        h.site.name in WRITTEN_INTO.get(said.name, ()) and said.layer == block
    ):
        return "overwritten", f"overwritten after the fact: it is {it}, which the block computes later"
    return "another site", f"another site: it is {it}"


def together(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, each in the light of the others.

    If several arrays that should differ hold the same later state, or if some layers are right and others hold a later
    one, then these were overwritten; a wrong count of layers shifts all of them alike. Layers that hold each other are
    swapped.
    """
    streams = [f for f in findings if f.said.startswith("layer ") and f.site.isdecimal()]
    by = {f.array: int(f.site) - int(f.said.removeprefix("layer ")) for f in streams}
    equal = {f.site for f in streams if len({g.said for g in streams if g.site == f.site}) > 1}
    mixed = len(set(by.values())) > 1 and 0 in by.values()
    holds = {f.said.removeprefix("layer "): f.site for f in streams}
    unsaid = [f.site for f in findings if not f.said and f.site]
    seen = []
    for f in findings:
        if "shifted" in f.kinds and _is_swapped(f.said.removeprefix("layer "), holds):
            kinds = tuple("swapped layers" if kind == "shifted" else kind for kind in f.kinds)
            words = [part for part in f.verdict.split("; ") if not part.startswith("shifted")]
            f = replace(f, kinds=kinds, verdict="; ".join([*words, f"swapped layers: it is layer {f.site}"]))
        elif "shifted" in f.kinds and by.get(f.array, 0) > 0 and (f.site in equal or mixed):
            f = _overwritten(f, f"it is layer {f.site}")
        elif not f.said and f.site and unsaid.count(f.site) > 1:
            f = _overwritten(f, f"{unsaid.count(f.site)} arrays are {name_of(Site.parse(f.site))}")
        seen.append(f)
    return seen


def _is_swapped(layer: str, holds: Mapping[str, str]) -> bool:
    """Whether the layer that a layer holds, and the one that this holds …, lead back to it."""
    at: str | None = holds.get(layer)
    for _ in holds:
        if at is None or at == layer:
            break
        at = holds.get(at)
    return at == layer


def _overwritten(f: Finding, what: str) -> Finding:
    kinds = tuple("overwritten" if kind in ("shifted", SAME) else kind for kind in f.kinds)
    words = [part for part in f.verdict.split("; ") if not part.startswith(("shifted", "same", "the file does"))]
    return replace(f, kinds=kinds, verdict="; ".join([*words, f"overwritten after the fact: {what}, a later state"]))
