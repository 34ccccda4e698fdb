"""Contrasts: layers of one curve, another model, random weights, controls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import METRICS as NAMED
from probekit.metrics import metric as metric_called
from probekit.rows import layer_labels, layer_order
from probekit.rows.selection import layer_stream
from probekit.statistics.bootstrap import METRICS, estimates
from probekit.statistics.options import BAG, BASELINES, TFIDF, Over
from probekit.statistics.predictions import Predictions
from probekit.statistics.scored import RATES, SORTED

if TYPE_CHECKING:
    import pandas as pd

CURVE = (
    *("task", "split", "trained_on", "model", "checkpoint", "step", "regime", "head", "variant", "position"),
    *("representation", "estimator", "seed", "source"),
)
AGAINST_CONSTANT = {
    "majority": ("accuracy", "token-accuracy"), "type-majority": ("accuracy", "token-accuracy", "span-f1"),
}  # fmt: skip
"""Metrics by which a guess at random is no better than a constant, as it is by macro F1, and of which values could be
exchanged between a constant and a probe, as losses cannot."""
OF_DRAWS = {"permuted": "shuffled"}
"""By reference, the control whose draws are ranked if predictions cannot be held against permuted labels."""
SAME = ("task", "split", "representation", "estimator", "target")
"""The columns in which two models agree if their layers are compared."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """Fits of one curve, each with its reference.

    Attributes
    ----------
    against : str
        Name of the reference.
    pairs : list[tuple[int, list[int]]]
        Positions of a fit and of the fits whose mean is its reference.
    shown : int
        The number of pairs to report, from the first; the others only count in the correction.
    """

    against: str
    pairs: list[tuple[int, list[int]]]
    shown: int


def family(e: Predictions, contrast: Contrast, over: Over) -> Any:
    """The key of the family: differences with equal keys are corrected together; None for a single curve."""
    of = e.fits.iloc[contrast.pairs[0][0]]
    match over:
        case Over.TASK:
            return "task", str(of["task"]), str(of["split"])
        case Over.MODEL:
            return "model", str(of["model"]), str(of["checkpoint"])
        case Over.ALL:
            return ("all",)
        case _:
            return None


def fitting_metric(evaluated: Predictions, metric: str | None = None) -> str:
    """The requested metric, or the table's first that can be resampled (R² cannot).

    Raises
    ------
    UsageError
        If the metric does not fit the labels; the message lists those that do.
    """
    if metric is None:
        return next((name for name in evaluated.metrics if name in METRICS), evaluated.metrics[0])
    tags = any(NAMED[name].needs == "tags" for name in evaluated.metrics if name in NAMED)
    numbers = "f" in (evaluated.gold.dtype.kind, evaluated.predicted.dtype.kind)
    needs = {"numbers"} if numbers else {"classes", "tags"} if tags else {"classes"}
    fitting = [name for name in METRICS if NAMED[name].needs in needs or name in evaluated.metrics]
    fitting += ["log-loss"] * (evaluated.log_loss is not None and "log-loss" not in fitting)
    if not numbers and (scores := evaluated.scores) is not None:
        fitting += [name for name in SORTED if (name not in RATES or scores.classes == 2) and name not in fitting]
    if not numbers and "f1" not in evaluated.metrics and max(evaluated.gold.max(), evaluated.predicted.max()) > 1:
        fitting.remove("f1")
    if metric_called(metric).name not in fitting:
        kind = "numbers" if numbers else "tags" if tags else "classes"
        raise UsageError(
            f"{metric} cannot be used for {evaluated.task}, whose labels are {kind}; choose {', '.join(fitting)}."
        )
    return metric


def curves(evaluated: Predictions, *, targets: bool = False) -> list[np.ndarray]:
    """Positions of the fits of each curve: same model, data and representation; layers in order, unnumbered ones last.

    Parameters
    ----------
    targets : bool, default False
        Include curves of controls, one per draw; otherwise only "gold".
    """
    fits = evaluated.fits
    keep = (fits["site"] != "").to_numpy(dtype=bool, copy=True)
    if not targets:
        keep &= (fits["target"] == "gold").to_numpy(dtype=bool)
    by = [name for name in (*CURVE, "target", "draw") if name in fits]
    part = fits[keep]
    part = part.assign(_at=np.flatnonzero(keep), _order=layer_order(part), _stream=layer_stream(part))
    whole = part.groupby([*by, "_stream"], sort=False, dropna=False)
    groups = [group.sort_values("_order", kind="stable") for _, group in whole]
    for group in groups:
        if (twice := group.duplicated(["site", "layer"])).any():
            name = layer_labels(group[twice]).iloc[0]
            raise UsageError(
                f"layer {name} of {group['model'].iloc[0]} was fitted more than once with the same description "
                f"({', '.join(by)}); use the fits of one penalty only."
            )
    return [group["_at"].to_numpy() for group in groups]


def contrasts(e: Predictions, against: str, metric: str) -> Iterator[Contrast]:
    """The contrasts of each curve."""
    if metric not in AGAINST_CONSTANT.get(against, (metric,)):
        fitting = ", ".join(AGAINST_CONSTANT[against])
        raise UsageError(f"{against} is compared by {fitting}, not by {metric}; compare with --against permuted.")
    names = layer_labels(e.fits).to_numpy()
    every = curves(e, targets=True)
    for curve in (c for c in every if e.fits["target"].iloc[c[0]] == "gold"):
        pairs: list[tuple[int, list[int]]]
        if against == "best":
            yield from _against_best(e, curve, metric, names)
            continue
        if against.startswith("layer-"):
            reference = [f for f in curve if names[f] == against.removeprefix("layer-")]
            pairs = [(int(f), reference) for f in curve if reference and f not in reference]
            name = against.replace("-", " ", 1)
        elif against in BASELINES:
            baseline = beside(e.fits, curve, BASELINES[against])
            pairs, name = [(int(f), baseline) for f in curve if baseline], against
        else:
            theirs = [c for c in every if _held_against(e.fits, curve, c, against)]
            if against == "other":
                theirs = _one_model(e.fits, curve, theirs)
            if against == "random":
                models = e.fits["model"].to_numpy()
                theirs = [c for c in theirs if models[c[0]] == models[curve[0]]] or theirs
            others = {int(f): [int(g) for c in theirs for g in c if names[g] == names[f]] for f in curve}
            alone = against in {*OF_DRAWS, *OF_DRAWS.values()}  # labels permuted here, or the majority class, will do
            pairs = [(f, held) for f, held in others.items() if held or alone]
            poolings = e.fits["representation"].iloc[[c[0] for c in (curve, *theirs)]]
            name = _called(e.fits, curve, theirs, against, pooled=against == "other" and poolings.nunique() > 1)
        if pairs:
            yield Contrast(name, pairs, len(pairs))
    if against == "other" and not every:  # whole models, as training runs write them, have no layers
        first, second = (np.flatnonzero(e.fits["source"] == i) for i in (0, 1))
        if all(e.fits[name].nunique() == 1 for name in ("task", "split", "target")):
            name = _called(e.fits, first, [second], against)
            yield Contrast(name, [(int(f), list(second)) for f in first], len(first))


def _against_best(e: Predictions, curve: np.ndarray, metric: str, names: np.ndarray) -> Iterator[Contrast]:
    """Each layer against the best one; all pairs of layers are one family."""
    value = estimates(metric=metric, **e.take(curve).sample())
    if np.isnan(value).all() or len(curve) < 2:
        return
    best = int(curve[metric_called(metric).best(value)])
    yield Contrast(f"layer {names[best]} (best)", against_best(curve, best), len(curve) - 1)


def against_best(fits: Iterable[int], best: int) -> list[tuple[int, list[int]]]:
    """Each other fit with the best one, then all other pairs, which only count in the correction."""
    rest = [int(f) for f in fits if f != best]
    return [(f, [best]) for f in rest] + [(f, [g]) for i, f in enumerate(rest) for g in rest[:i]]


def beside(fits: pd.DataFrame, curve: np.ndarray, representation: str) -> list[int]:
    """Position of a baseline of a curve's run: "bag-of-pieces", or "none" for the majority class; [] without one."""
    same = (fits["representation"] == representation) & (fits["target"] == "gold")
    for name in (name for name in CURVE if name in fits and name not in ("representation", "estimator", "position")):
        column = fits[name].astype("string").fillna("")
        same &= column == column.iloc[curve[0]]
    return [int(f) for f in np.flatnonzero(same)[:1]]


def _held_against(fits: pd.DataFrame, curve: np.ndarray, other: np.ndarray, against: str) -> bool:
    """Whether ``other`` is the reference of ``curve``."""
    one, two = (dict(fits.iloc[at[0]].astype(object).fillna("")) for at in (curve, other))
    if against == "other":
        same = [name for name in SAME if name != "representation"]  # two poolings can be compared, too
        return bool(one["source"] == 0 and two["source"] == 1) and all(one[name] == two[name] for name in same)
    if against == "random":
        random = [row.get("random_weights", "") != "" for row in (one, two)]
        return random == [False, True] and all(one[name] == two[name] for name in SAME)
    of_one_curve = all(one[name] == two[name] for name in CURVE if name in fits)
    return of_one_curve and two["target"] == OF_DRAWS.get(against, against) and two["draw"] != ""


def _one_model(fits: pd.DataFrame, curve: np.ndarray, theirs: list[np.ndarray]) -> list[np.ndarray]:
    """The curves of a second table that belong to one model: those like ``curve`` in pooling and in weights, if any.

    Raises
    ------
    UsageError
        If several models remain; only random initialisations are averaged.
    """
    head = fits.iloc[[c[0] for c in (curve, *theirs)]].copy()
    head["random"] = head["random_weights"].notna() if "random_weights" in head else False
    for name in ("representation", "random"):
        alike = (head[name] == head[name].iloc[0]).to_numpy()
        if alike[1:].any():
            head, theirs = head[alike], [c for c, held in zip(theirs, alike[1:], strict=True) if held]
    by = [name for name in CURVE if name in fits and name not in ("seed", "source")]
    distinct = head[1:][by].astype("string").fillna("").drop_duplicates()
    if len(distinct) > 1 and not head["random"][1:].all():
        differ = [name for name in by if distinct[name].nunique() > 1]
        found = "; ".join(
            ", ".join(f"{name} {row[name] or 'none'}" for name in differ) for _, row in distinct.iterrows()
        )
        raise UsageError(
            f"the second table has {len(distinct)} curves for {head['task'].iloc[0]} ({found}), but a curve can be "
            "compared with one other; give the rows of one model."
        )
    return theirs


def _called(
    fits: pd.DataFrame, curve: np.ndarray, references: list[np.ndarray], against: str, *, pooled: bool = False
) -> str:
    """The reference in words: its model, run (next to one: "pretrained"), step and pooling where these differ."""
    if against not in ("random", "other") or not references:
        return against
    row, ours = (fits.iloc[at[0]].astype(object).fillna("").to_dict() for at in (references[0], curve))
    run = row["checkpoint"] if row.get("random_weights", "") == "" else "random weights"
    pooling = row["representation"] if pooled else ""
    one_run = run and (row["model"], run) == (ours["model"], ours["checkpoint"])
    step = f"step {row['step']:,}" if one_run and row.get("step", "") not in ("", ours.get("step")) else ""
    run = run or ("pretrained" if ours["checkpoint"] and ours["model"] == row["model"] else "")
    return ", ".join(dict.fromkeys(filter(None, (row["model"], run, step, pooling))))


def nothing_to_compare(against: str, e: Predictions) -> str:
    """Why a table does not hold what to compare with, and what to do."""
    pairs = zip(e.fits["model"], e.fits["checkpoint"], strict=True)
    models = sorted({" ".join(filter(None, map(str, pair))) for pair in pairs})
    if against == "random":
        return (
            f"there are no rows of random weights, only of {', '.join(models)}. Make them: run probekit "
            f"cache-activations with --model random:{e.fits['model'].iloc[0]} for train and dev, give both pairs of "
            "caches to one command (probekit probe TRAIN.h5 DEV.h5 RANDOM-TRAIN.h5 RANDOM-DEV.h5 --out NEW.parquet), "
            "and compare NEW.parquet."
        )
    layers = [name for name in layer_labels(e.fits).unique() if name]
    found = {"layer": layers, "target": list(e.fits["target"].unique()), "model": models}
    counted = [
        f"the {name}{'s' if len(values) > 1 else ''} {', '.join(values)}" if values else f"no {name}s"
        for name, values in found.items()
    ]
    remedy = {
        "control-task": " Control tasks are fitted where words are labelled; probe those with --controls 3.",
        "permuted": " Probe again with --controls 1 or more.",
        "type-majority": " It is for labelled words.",
        BAG: " Bags of word pieces are fitted where texts are labelled; probe those with --controls 1 or more.",
        TFIDF: " Tf-idf of word pieces is fitted where texts are labelled; probe those with --controls 1 or more.",
        "other": " Give rows from the same task, split and layers twice.",
    }.get(against, "")
    there = f"{', '.join(counted[:2])} and {counted[2]}"
    return f"there is nothing to compare with for {against!r}: the rows hold {there}.{remedy}"
