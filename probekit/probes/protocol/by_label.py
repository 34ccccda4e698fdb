"""Rows for each label, class, entity type or number alone, with its support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import OUTSIDE, derive, metric, span_part
from probekit.rows.families import ALPHA
from probekit.statistics._additive import span_finder
from probekit.statistics.bootstrap import METRICS, bounds
from probekit.statistics.comparisons import above_noise
from probekit.statistics.contrasts import curves
from probekit.statistics.multiplicity import adjust, critical
from probekit.statistics.over_labels import ALONE, PENALTIES, penalties_of, rows_by_label
from probekit.statistics.predictions import Predictions
from probekit.statistics.scored import SORTED

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Part:
    """One label: the predictions about it, what is measured of them, and how often it holds."""

    label: str
    predictions: Predictions
    metrics: tuple[str, ...]
    support: int


def by_label_rows(found: Predictions, *, resamples: int, level: float, seed: int, tested: bool = True) -> pd.DataFrame:
    """Rows of the fits of gold labels for each label alone, with the columns ``label`` and ``support``.

    Metrics are called "by-label(…)". ``p_adjusted`` is corrected over the layers of a curve and the labels together:
    all share the orders of the permuted labels, and the smallest p is compared with the smallest of each order. Beyond
    ``null_edge`` it is at most .05.
    ``penalty`` is that of the label; ``warning`` says so where train could not fit it.

    Parameters
    ----------
    tested : bool
        Whether to test that each label is predicted better than permuted labels are.

    Raises
    ------
    UsageError
        If the labels are numbers, one for each example.
    """
    import pandas as pd

    gold = found.take(found.is_gold)
    parts = list(parts_of(gold))
    how: dict[str, Any] = {"resamples": resamples, "level": level, "seed": seed}
    tables = []
    for name in parts[0].metrics:
        of_metric = [_rows(part, name, **how) for part in parts]
        if tested and resamples and name in METRICS:
            _test(of_metric, parts, name, **how)
        tables += of_metric
    return pd.concat(tables, ignore_index=True)


def parts_of(found: Predictions) -> Iterator[Part]:
    """Each label, entity type or class, in the order of the label names."""
    one = found.gold if found.gold.ndim == 1 else found.gold[0]
    if found.of_label is not None:
        numbers = one.dtype.kind == "f"
        asked = [ALONE.get(name, name) for name in found.metrics if name not in ("micro-f1", "log-loss")]
        names = tuple(dict.fromkeys(asked if numbers else ("f1", *asked)))
        labels = rows_by_label(found.of_label)
        penalties = penalties_of(found.fits, len(labels))
        for k, (label, rows) in enumerate(labels.items()):
            fits = _of_label(found.fits, penalties[:, k])
            own = replace(found.of_rows(rows), fits=fits, of_label=None, metrics=names)
            yield Part(label, own, names, len(rows) if numbers else int((one[rows] == 1).sum()))
    elif any(metric(name).spans for name in found.metrics):
        yield from _types(found, one)
    elif one.dtype.kind == "f" or not found.label_names:
        raise UsageError("by_label is for classes, tags and labels with names, or for several numbers of a text.")
    else:
        names = ("f1", *(name for name in found.metrics if name in SORTED and len(found.label_names) > 2))
        for code, label in enumerate(found.label_names):
            mine, said = (one == code).astype(np.int8), (found.predicted == code).astype(np.int8)
            if not mine.any() and not said.any():
                continue
            its = replace(found, gold=mine, predicted=said, metrics=names, label_names=("other", label), log_loss=None)
            yield Part(label, replace(its, **_scores(found, code)), names, int(mine.sum()))


def _of_label(fits: pd.DataFrame, penalty: np.ndarray) -> pd.DataFrame:
    """The fits of one label, with its own penalty, or a warning that there is none."""
    if PENALTIES not in fits:
        return fits
    fits = fits.drop(columns=PENALTIES)
    rare = "train, or one of its folds, has too few examples to fit the label: predicted by its frequency, or mean"
    told = np.where(np.isinf(penalty), fits["penalty"], penalty)
    return fits.assign(penalty=told, warning=np.where(np.isnan(penalty), rare, ""))


def _scores(found: Predictions, code: int) -> dict[str, Any]:
    """Probabilities of a class and of all others, and the losses of these two."""
    if found.probabilities is None:
        return {"probabilities": None, "prior_loss": None}
    of = found.probabilities[..., code]
    shares = np.stack([np.delete(found.probabilities, code, axis=2).sum(2), of], axis=2)
    one = found.gold if found.gold.ndim == 1 else found.gold[0]
    loss = -np.log(np.maximum(np.where(one == code, of, shares[..., 0]), 1e-38))
    return {"probabilities": shares, "log_loss": loss.astype(np.float32), "prior_loss": None}


def _types(found: Predictions, gold: np.ndarray) -> Iterator[Part]:
    """Each entity type: tags of other types count as outside."""
    parts = [span_part(name) for name in found.label_names]
    outside = next((code for code, part in enumerate(parts) if part == OUTSIDE), None)
    sentences = found.groups if found.sentences is None else found.sentences
    if outside is None or sentences is None:
        raise UsageError("entities by type need a tag for words outside entities, and the sentence of each word.")
    ends = np.append(np.diff(np.unique(sentences, return_inverse=True)[1].reshape(-1)) != 0, True)
    for kind in dict.fromkeys(kind for prefix, kind in parts if (prefix, kind) != OUTSIDE):
        kept = np.array([code if part[1] == kind else outside for code, part in enumerate(parts)])
        mine = kept[gold]
        own = replace(found, gold=mine, predicted=kept[found.predicted], metrics=("span-f1",), probabilities=None)
        spans, _ = span_finder(found.label_names, ends)
        yield Part(kind, own, ("span-f1",), int(spans(mine)[0].sum()))


def _rows(part: Part, name: str, *, resamples: int, level: float, seed: int) -> pd.DataFrame:
    e, score = part.predictions, metric(name).function
    its = bounds(metric=name, score=score, resamples=resamples, level=level, seed=seed, **e.sample())
    table = e.fits.assign(metric=derive("by-label", name), value=its.value, why=its.why, label=part.label)
    table[["ci_low", "ci_high"]] = its.ci
    return table.assign(support=part.support, p=np.nan, p_adjusted=np.nan, null_mean=np.nan, null_edge=np.nan)


def _test(
    tables: Sequence[pd.DataFrame], parts: Sequence[Part], name: str, *, resamples: int, level: float, seed: int
) -> None:
    """The test of each label, corrected over the layers of a curve and the labels, which share the orders."""
    for curve in curves(parts[0].predictions):
        noise = [
            above_noise(part.predictions, curve.tolist(), name, draws=resamples, seed=seed, level=level)
            for part in parts
        ]
        p, by_chance = (np.concatenate([one.tails[i] for one in noise]) for i in (0, 1))
        together = adjust(p, by_chance), critical(p, by_chance, ALPHA)
        adjusted, limits = (found.reshape(len(parts), -1) for found in together)
        for table, one, its, limit in zip(tables, noise, adjusted, limits, strict=True):
            its_columns = one.above.p, its, one.mean, one.beyond(limit)
            table.loc[curve, ["p", "p_adjusted", "null_mean", "null_edge"]] = np.stack(its_columns, axis=1)
