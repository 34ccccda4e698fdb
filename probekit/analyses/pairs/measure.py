"""Minimal pairs, scored by a language model or by linear probes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.writing.request import origin_of
from probekit.analyses.pairs import LEVELS, PairOptions, Per
from probekit.analyses.vectors import columns_of, model_columns, open_caches, read_of, read_of_model
from probekit.errors import DataError, UsageError, did_you_mean
from probekit.models.options import ScorerOptions
from probekit.models.scoring import Score, Scorer, load_scorer
from probekit.notes import logger
from probekit.probes.pairs import held_out_scores
from probekit.recipe import Read
from probekit.rows import Result, make_fits, make_rows
from probekit.runtime import Progress
from probekit.statistics.comparisons import in_deviations
from probekit.statistics.multiplicity import adjust, tails
from probekit.statistics.predictions import Predictions
from probekit.statistics.proportions import mean_of_proportions, wilson
from probekit.tasks.pairs import Pair, Pairs, load_pairs

log = logger(__name__)

PREFERS = ("bad", "good")
SIDES = ("good", "bad")
COLUMN = r"\{(\w+)\}"
"""The name of a column in a prefix."""


def measure(
    source: str | Path | ActivationCache,
    task: str,
    data_dir: str | Path | None,
    vectors: tuple[str | None, tuple[int | str, ...] | None],
    model_name: str | None,
    loading: ScorerOptions,
    options: PairOptions,
    progress: Progress,
) -> Result:
    """The rows of :func:`probekit.pairs`; ``vectors`` are the pooling and the layers of a cache."""
    found = _some(load_pairs(task, data_dir), options)
    for name in (*options.by, *re.findall(COLUMN, options.prefix)):
        known = sorted({key for pair in found.pairs for key in pair.factors})
        if name not in known:
            raise UsageError(f"the pairs have no column {name!r}; {did_you_mean(name, known)}")
    if isinstance(source, ActivationCache) or str(source).endswith(".h5"):
        if model_name is not None:
            raise UsageError(
                "model_name is for models; the rows of a cache have the name that cache-activations gave it "
                "(--model-name)."
            )
        if options.per or options.prefix:
            raise UsageError("per and prefix are for language models; the probes of a cache read its vectors.")
        with ExitStack() as stack:
            (cache,) = open_caches([source], stack)
            fits, preferred, left, refitted = _by_probes(cache, found, *vectors, options, progress)
            reads: tuple[Read, ...] = (read_of(cache),)
    else:
        if vectors != (None, None):
            raise UsageError("pooling and layers are for caches; by_layer scores all layers of a language model.")
        scorer = load_scorer(source, options=loading)
        left = _readable(scorer, found, options)
        spec = scorer.spec if model_name is None else {**scorer.spec, "model": model_name}
        columns = model_columns(spec, origin_of(source, loading))
        about = {"analysis": "pairs", "task": found.name, "split": "test", **columns}
        (fits, preferred), refitted = _by_head(scorer, about, left, options, progress), None
        reads = (read_of_model(source, scorer.spec),)
    rows = make_rows(pair_rows(fits, preferred, left, options, refitted))
    keep, copies = [fit | {"n": len(left)} for fit in fits], _copies(left)
    predictions = Predictions(
        make_fits(keep), np.array([p.id for p in left]), np.ones(len(left), dtype=np.int64),
        (preferred > 0).astype(np.int64), ("accuracy",), copies if copies.max() + 1 < len(left) else None,
        label_names=PREFERS,
    )  # fmt: skip
    return Result(rows, (predictions,), reads=reads)


def _some(found: Pairs, options: PairOptions) -> Pairs:
    """At most ``limit`` pairs of each paradigm, in order."""
    if options.limit is None:
        return found
    rng, of = np.random.default_rng(options.seed), np.array([p.paradigm for p in found.pairs])
    kept = np.zeros(len(of), dtype=bool)
    for name in dict.fromkeys(of):
        at = np.flatnonzero(of == name)
        kept[rng.permutation(at)[: options.limit]] = True
    return Pairs(found.name, tuple(p for p, keep in zip(found.pairs, kept, strict=True) if keep), found.equal)


def _before(pair: Pair, prefix: str) -> str:
    """What stands before the sentences of a pair."""
    text = re.sub(COLUMN, lambda name: pair.factors.get(name[1], ""), prefix)
    return f"{text} " if text else ""


def _readable(scorer: Scorer, found: Pairs, options: PairOptions) -> tuple[Pair, ...]:
    """The pairs whose two sentences the model can score; the others are counted in a warning."""
    before = [_before(p, options.prefix) for p in found.pairs] if options.prefix else None
    start = not options.no_start
    able = [scorer.scored([getattr(p, side) for p in found.pairs], before, start=start) for side in SIDES]
    kept = tuple(p for p, good, bad in zip(found.pairs, *able, strict=True) if good and bad)
    if len(kept) < len(found.pairs):
        log.warning(
            "%s: %d of %d pairs are left out, because a sentence has more pieces than the model reads (%d), or none to "
            "predict.",
            *(found.name, len(found.pairs) - len(kept), len(found.pairs), scorer.max_length),
        )
    if not kept:
        raise DataError(f"{found.name}: the model can score no pair.")
    return kept


def _by_head(
    scorer: Scorer, about: Mapping[str, Any], found: Sequence[Pair], options: PairOptions, progress: Progress
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """For each score and layer: the fit, and the score of good minus that of bad, (fits, pairs).

    ``about``: the columns of the task and the model.
    """
    wanted = [_score(name) for name in options.scores or scorer.scores]
    wanted = [score for score in wanted if score is not Score.MEAN] if options.per else wanted
    texts = list(dict.fromkeys((_before(p, options.prefix), text) for p in found for text in (p.good, p.bad)))
    before, own = ([text[i] for text in texts] for i in (0, 1))
    place, start = {text: i for i, text in enumerate(texts)}, not options.no_start
    prefixes = before if options.prefix else None
    scores = scorer.score(own, wanted, prefixes=prefixes, layers=options.by_layer, start=start, progress=progress)
    good, bad = (np.array([place[_before(p, options.prefix), getattr(p, side)] for p in found]) for side in SIDES)
    about = {**about, "target": "gold", "draw": None, "layer": None, "representation": "lm-head"}
    fits, gaps = [], []
    for score, per in product(scores, options.per or (None,)):
        size = 1.0 if per is None else _sizes(own, per, scorer.scored(own, prefixes, start=start))[:, None]
        nats = scores[score] / size
        gap = (nats[good] - nats[bad]).T
        named = {"estimator": str(score) if per is None else f"{score} per {per.removesuffix('s')}"}
        fits.append(about | named)
        gaps.append(gap[-1])
        if options.by_layer:
            fits += [about | named | {"representation": "logit-lens", "layer": layer} for layer in range(len(gap))]
            gaps += list(gap)
    return fits, np.stack(gaps)


def _sizes(texts: Sequence[str], per: Per, pieces: np.ndarray) -> np.ndarray:
    """The length of each sentence, float64 (n,)."""
    if per is Per.PIECES:
        return pieces.astype(np.float64)
    size = {Per.WORDS: lambda t: len(t.split()), Per.CHARACTERS: len, Per.BYTES: lambda t: len(t.encode())}[per]
    return np.array([size(text) for text in texts], dtype=np.float64)


def _score(name: str) -> Score:
    if name not in list(Score):
        raise UsageError(f"unknown score {name!r}; {did_you_mean(name, list(Score))}")
    return Score(name)


@dataclass(frozen=True, slots=True)
class Refitted:
    """The probes of a cache, fitted again after the sentences of whole groups of pairs were exchanged.

    Attributes
    ----------
    groups : np.ndarray
        (pairs,), the pairs that a probe is not fitted to: those of a phenomenon, of a paradigm, or a tenth.
    share : Sequence[np.ndarray]
        For each layer, float (parts, exchanges), the accuracy on each part of the pairs.
    layer : np.ndarray
        Int (fits,), the layer of each fit.
    units : int
        How many units are exchanged: phenomena or paradigms; if a tenth is left out, single pairs with their copies.
    """

    groups: np.ndarray
    share: Sequence[np.ndarray]
    layer: np.ndarray
    units: int


def _by_probes(
    cache: ActivationCache,
    found: Pairs,
    pooling: str | None,
    layers: tuple[int | str, ...] | None,
    options: PairOptions,
    progress: Progress,
) -> tuple[list[dict[str, Any]], np.ndarray, tuple[Pair, ...], Refitted]:
    """For each layer, and each control: the fit, the score of good minus that of bad, and the pairs in the cache."""
    how = pooling or (cache.poolings[0] if cache.poolings else "")
    if how not in cache.poolings:
        raise UsageError(f"the cache has no pooling {how!r}; it has {', '.join(cache.poolings) or 'none'}.")
    kept, good, bad = _cached(cache, found)
    names = list(cache.layers) if layers is None else list(cache.layer_names(layers))

    def differences() -> Iterator[tuple[str, np.ndarray]]:
        for done, name in enumerate(names):
            progress("layers", done, len(names))
            x = np.asarray(cache.layer(name, how))
            yield name, x[good].astype(np.float32) - x[bad]
        progress("layers", len(names), len(names))

    fits, gaps, refitted = probed(differences(), kept, options)
    about = {"analysis": "pairs", **columns_of(cache, how), "estimator": "pair-probe", "seed": options.seed}
    return [about | fit for fit in fits], gaps, kept, refitted


def probed(
    differences: Iterable[tuple[str, np.ndarray]], found: Sequence[Pair], options: PairOptions
) -> tuple[list[dict[str, Any]], np.ndarray, Refitted]:
    """For each layer, (pairs, d), and each control: the fit, and the score of good minus that of bad."""
    rng = np.random.default_rng(options.seed)
    groups, unit = _held_out_groups(found, rng)
    signs = np.concatenate([np.ones((1, len(found))), rng.choice([-1.0, 1.0], size=(options.controls, len(found)))])
    swap = np.random.default_rng([options.seed, 1]).choice([-1.0, 1.0], size=(options.resamples, unit.max() + 1))
    swaps, parts = swap[:, unit], _parts(found, options.by)
    fits, gaps, shares = list[dict[str, Any]](), [], []
    for name, x in differences:
        gap = held_out_scores(x, groups, options.penalties, np.concatenate([signs, swaps]))
        fits += [
            {"layer": name, "target": "shuffled" if i else "gold", "draw": i - 1 if i else None}
            for i in range(len(signs))
        ]
        gaps.append(gap[: len(signs)])
        right = (np.sign(gap[len(signs) :] * swaps) + 1) / 2
        shares.append(np.stack([part.shares(right) for part in parts]))
    of_layer = np.repeat(np.arange(len(shares)), len(signs))
    return fits, np.concatenate(gaps), Refitted(groups, shares, of_layer, int(unit.max()) + 1)


def _cached(cache: ActivationCache, found: Pairs) -> tuple[tuple[Pair, ...], np.ndarray, np.ndarray]:
    """The pairs with both sentences in the cache, and the rows of these."""
    row = {name: i for i, name in enumerate(cache.ids.tolist())}
    kept = tuple(p for p in found.pairs if f"{p.id}:good" in row and f"{p.id}:bad" in row)
    if not kept:
        raise DataError(f"no pair of {found.name} has both of its sentences in the cache.", file=cache.path)
    if len(kept) < len(found.pairs):
        log.warning("%s of %s pairs have both sentences in the cache.", f"{len(kept):,}", f"{len(found.pairs):,}")
    good, bad = (np.array([row[f"{p.id}:{side}"] for p in kept]) for side in ("good", "bad"))
    return kept, good, bad


def _copies(found: Sequence[Pair]) -> np.ndarray:
    """A number for each pair, the same for copies, in the order of their first."""
    number: dict[frozenset[str], int] = {}
    return np.array([number.setdefault(frozenset((p.good, p.bad)), len(number)) for p in found])


def _held_out_groups(found: Sequence[Pair], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """What a probe is not trained on: a phenomenon; with fewer than three a paradigm; otherwise a tenth of pairs.

    And the units that are exchanged: these phenomena or paradigms; or else pairs, with their copies.
    """
    for name in ("phenomenon", "paradigm"):
        groups = np.array([getattr(pair, name) for pair in found])
        if len(np.unique(groups)) >= 3:
            return groups, np.unique(groups, return_inverse=True)[1]
    copies = _copies(found)
    return rng.permutation(np.arange(copies.max() + 1) % 10)[copies], copies


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the pairs.

    Attributes
    ----------
    level, of : str
        What they have in common: "all", "phenomenon" and its name …
    at : np.ndarray
        Int (m,), their places.
    paradigm, n : np.ndarray
        Int (m,), the paradigm of each, and (paradigms,) their pairs; for columns of ``by`` all are one.
    alike : float
        How many times the variance of the accuracy is that of independent pairs, because some are copies.
    """

    level: str
    of: str
    at: np.ndarray
    paradigm: np.ndarray
    n: np.ndarray
    alike: float

    @classmethod
    def of_pairs(cls, level: str, of: str, mine: np.ndarray, code: np.ndarray, copies: np.ndarray) -> _Part:
        at = np.flatnonzero(mine)
        paradigm = np.unique(code[at], return_inverse=True)[1]
        n = np.bincount(paradigm)
        weight = 1 / n[paradigm]
        alike = float((np.bincount(copies[at], weight) ** 2).sum() / (weight**2).sum())
        return cls(level, of, at, paradigm, n, alike)

    def shares(self, right: np.ndarray) -> np.ndarray:
        """The mean over paradigms of the share of pairs that are right, (r,), from (r, pairs)."""
        weight = 1 / self.n[self.paradigm] / len(self.n)
        return np.asarray(right[:, self.at] @ weight)

    def interval(self, right: np.ndarray, level: float) -> tuple[float, float, float]:
        """The accuracy and its interval, from (pairs,)."""
        counts = np.bincount(self.paradigm, weights=right[self.at])
        return mean_of_proportions(counts / self.alike, self.n / self.alike, level)

    def widened(self, value: float, null: np.ndarray, level: float) -> tuple[float, float]:
        """An interval as wide as ``null`` varies, the accuracies of refitted probes; NaN without any."""
        if not len(null):
            return np.nan, np.nan
        independent = len(self.n) ** 2 / float((1 / self.n).sum()) / self.alike
        worth = min(independent, 0.25 / max(float(((null - 0.5) ** 2).mean()), 1e-12))
        low, high = (float(end) for end in wilson(np.array(value * worth), np.array(worth), level))
        return min(low, value), max(high, value)


def _parts(found: Sequence[Pair], by: Sequence[str]) -> list[_Part]:
    """All pairs, and those of each field, phenomenon, paradigm, and value of a column."""
    code, copies = np.unique([p.paradigm for p in found], return_inverse=True)[1], _copies(found)
    parts = [_Part.of_pairs("all", "", np.ones(len(found), dtype=bool), code, copies)]
    for level in LEVELS:
        names = np.array([getattr(p, level) for p in found])
        order = dict.fromkeys(names[np.argsort(code, kind="stable")].tolist())
        parts += [_Part.of_pairs(level, of, names == of, code, copies) for of in order if of]
    for name in by:
        values = np.array([p.factors.get(name, "") for p in found])
        for of in sorted(set(values.tolist()) - {""}, key=_in_order):
            parts.append(_Part.of_pairs(name, of, values == of, np.zeros_like(code), copies))
    return parts


def pair_rows(
    fits: Sequence[Mapping[str, Any]],
    gaps: np.ndarray,
    found: Sequence[Pair],
    options: PairOptions,
    refitted: Refitted | None,
) -> Iterator[dict[str, Any]]:
    """The accuracy of each fit on all pairs, and at each level."""
    parts = _parts(found, options.by)
    several = [refitted is not None and len(set(refitted.groups[part.at].tolist())) > 1 for part in parts]
    tests = _tested(fits, gaps, parts[0], refitted)
    for i, (fit, gap) in enumerate(zip(fits, gaps, strict=True)):
        right = (np.sign(gap) + 1) / 2
        for k, part in enumerate(parts):
            value, low, high = part.interval(right, options.level)
            if refitted is not None and several[k]:
                low, high = part.widened(value, refitted.share[refitted.layer[i]][k], options.level)
            yield {
                **fit, "metric": "accuracy", "value": value, "ci_low": low, "ci_high": high, "n": len(part.at),
                "level": part.level, "of": part.of, "alike": part.alike, "ties": int((gap[part.at] == 0).sum()),
                **({} if part.level in options.by else {"paradigms": len(part.n)}), **(tests[i] if k == 0 else {}),
            }  # fmt: skip


def _tested(
    fits: Sequence[Mapping[str, Any]], gaps: np.ndarray, every: _Part, refitted: Refitted | None
) -> list[dict[str, float]]:
    """For each fit of gold labels, p of an accuracy so far from chance, plain and corrected over all layers."""
    out: list[dict[str, float]] = [{} for _ in fits]
    if refitted is None or not refitted.share[0].shape[1]:
        return out
    gold = [i for i, fit in enumerate(fits) if fit["target"] == "gold"]
    observed = every.shares((np.sign(gaps[gold]) + 1) / 2)
    null = np.stack([share[0] for share in refitted.share])
    p, by_chance = tails(*in_deviations(observed, null, 0, np.full(len(gold), 0.5)))
    for i, single, corrected in zip(gold, p, adjust(p, by_chance), strict=True):
        out[i] = {"p": float(single), "p_adjusted": float(corrected), "exchanged": refitted.units}
    return out


def _in_order(value: str) -> tuple[float, str]:
    """Numbers by size, then words."""
    try:
        return float(value), ""
    except ValueError:
        return float("inf"), value
