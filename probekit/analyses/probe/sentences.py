"""Sentences on probes: which layers beat noise, random weights and a bag of word pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.curves import CURVE, Curve, curves_of, each, largest, smallest
from probekit.analyses.verdict.references import beyond, groups_of, predictions_of
from probekit.analyses.verdict.words import layers, listed, number
from probekit.metrics import METRICS, derive
from probekit.metrics import metric as metric_called
from probekit.rows.families import level
from probekit.rows.tidy import JOINT
from probekit.statistics.bootstrap import FEWEST
from probekit.statistics.curves import not_worse
from probekit.statistics.options import TFIDF, SummaryOptions
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

Key = tuple[str, ...]
NOISE = "permuted labels"
"""What a layer is tested against: the labels of the evaluated examples in another order, with the same predictions."""
RARE = 30
"""A class with fewer evaluated examples is named, if it also has fewer than half of its share."""
LEAK = 0.1
"""The share of evaluated examples that are in train too, from which the verdict says so."""


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    metric = _main(rows)
    warnings = rows["warning"].dropna().unique().tolist() if "warning" in rows else []
    selective = _selectivity(rows, metric)
    rows = rows[rows["metric"] == metric]
    curves = curves_of(rows)
    trained, random = ([one for one in curves if one.random is kind] for kind in (False, True))
    if one_class := _one_class(tables):
        yield one_class
        return
    beside, sign = _beside(rows, metric), metric_called(metric).sign
    text = partial(_noise_text, metric=metric, sign=sign, beside=beside, selective=selective, tables=tables)
    yield from each(trained, random, text, f"beats {NOISE}", f"beat {NOISE}")
    yield from beyond(trained, metric, tables)
    yield from _leak(trained, metric, sign)
    yield from filter(None, warnings)


def _main(rows: pd.DataFrame) -> str:
    """The task's main metric: the first that is neither a difference nor an additional loss."""
    names = [str(name) for name in dict.fromkeys(rows["metric"]) if not metric_called(str(name)).derived]
    return next((name for name in names if METRICS[name].evaluates), names[0])


def _noise_text(
    curve: Curve,
    trained: Sequence[Curve],
    random: Sequence[Curve],
    *,
    metric: str,
    sign: int,
    beside: str,
    selective: Mapping[Key, str],
    tables: Sequence[Predictions],
) -> str:
    """Whether layers of a probe curve beat noise, and which layer is best."""
    if np.isnan(curve.value).all():
        return f"{metric} is undetermined at every layer{_why(curve.rows)}"
    at = curve.best(sign)
    beside += selective.get((*_key(curve), curve.layers[at]), "")
    beside = f"{_counts(curve, tables)}{_among_layers(curve, at)}{beside}"
    where = f"{metric} {number(curve.value[at])} at layer {curve.layers[at]}{beside}"
    lost = f"; undetermined at {layers(curve.unknown)}" if curve.unknown else ""
    if np.isnan(curve.p).all():
        return f"best {where}, not tested against {NOISE}{lost}"
    beating = curve.beating()
    if not beating and (groups := groups_of(curve, tables)) < FEWEST:
        few = f"too few to test whether a layer beats {NOISE}; evaluate on at least {FEWEST}"
        return f"the evaluated examples are in {groups} groups, {few} (best {where}){lost}"
    if not beating:
        return f"no layer beats {NOISE} (best {where}, {smallest(curve)}){lost}"
    finding = f"{curve.subject(beating, 'beats', 'beat')} {NOISE} ({largest(curve)})"
    return f"{finding}; {_best(curve, at, where, metric, tables)}{lost}"


def _counts(curve: Curve, tables: Sequence[Predictions]) -> str:
    """On how many examples, or words, in how many groups, and how many are of a class that is rare among them."""
    n, groups = (curve.head.get(name) for name in ("n", "n_groups"))
    if not (isinstance(n, int | float) and n == n and n):
        return ""
    words = str(curve.head.get("unread_words")) not in ("None", "nan", "<NA>")
    within = f" in {groups:,.0f} groups" if isinstance(groups, int | float) and 2 * groups <= n else ""
    return f" on {n:,.0f} {'words' if words else 'examples'}{within}{'' if words else _rarest(curve, tables)}"


def _rarest(curve: Curve, tables: Sequence[Predictions]) -> str:
    """The rarest class, if it has few of the examples."""
    table, _ = predictions_of(curve, tables)
    if table is None or table.gold.dtype.kind == "f" or table.of_label is not None or not table.label_names:
        return ""
    gold = np.atleast_2d(table.gold)[0]
    count = np.bincount(gold[gold >= 0], minlength=len(table.label_names))
    least = min((int(c) for c in count if c), default=0)
    if not 0 < least < min(RARE, len(gold) / len(count) / 2):
        return ""
    return f", {least} of them {table.label_names[int(np.flatnonzero(count == least)[0])]!r}"


def _among_layers(curve: Curve, at: int) -> str:
    """The interval of the best of several layers: that which holds for all layers of the curve at once."""
    low, high = (float(curve.rows[name].iloc[at]) if name in curve.rows else np.nan for name in JOINT)
    if not (np.isfinite(low) and np.isfinite(high)):
        return ""
    return f", {'joint ' * (len(curve.layers) > 1)}interval {number(low)} to {number(high)}"


def _best(curve: Curve, at: int, where: str, metric: str, tables: Sequence[Predictions]) -> str:
    """The best layer, with the layers that are not shown to be worse."""
    layer, value = curve.layers[at], where.replace(f" at layer {curve.layers[at]}", "", 1)
    if len(curve.layers) == 1:
        return value
    among = _among_best(curve, metric, tables)
    if among is None:
        return f"the best value is layer {layer}'s ({value}), which is not compared with the others"
    is_best = "is best" if layer in curve.beating() else "has the best value"
    near = [name for i, name in enumerate(curve.layers) if among[i] and i != at]
    if not near:
        others = layers([name for name in curve.layers if name != layer]) if curve.gaps else "all others"
        return f"layer {layer} {is_best} ({value}), clearly above {others}"
    if len(near) == len(curve.layers) - 1:
        return f"no layer is clearly the best (best {where})"
    return f"layer {layer} {is_best} ({value}), not clearly above {listed(near)}"


def _among_best(curve: Curve, metric: str, tables: Sequence[Predictions]) -> np.ndarray | None:
    """Which layers are not shown to be worse than the best one, bool (L,); None if they cannot be compared."""
    table, at = predictions_of(curve, tables)
    return None if table is None else not_worse(table.take(at), metric, SummaryOptions(level=level()))


def _one_class(tables: Sequence[Predictions]) -> str:
    """A sentence if the evaluated examples have only one class, which allows no conclusion; otherwise ""."""
    for table in tables:
        gold = np.atleast_2d(table.gold)[0]
        if gold.dtype.kind != "f" and len(gold) and (gold == gold[0]).all():
            called = table.label_names[int(gold[0])] if table.label_names else str(gold[0])
            return f"all {len(gold):,} labels of {table.split} are {called!r}, so no layer can be tested"
    return ""


def _beside(rows: pd.DataFrame, metric: str) -> str:
    """The baselines as text: the majority class, also by word type, bag and tf-idf of pieces, the cosine of a pair."""
    plain = rows[(rows["target"] == "gold") & rows["draw"].isna() & (rows["site"] == "")]
    constant = plain[plain["estimator"].isin(("majority", "mean"))]
    bag = plain[plain["representation"] == "bag-of-pieces"]
    by_type = plain[plain["representation"] == "word-type"]
    majority = constant[constant["estimator"] == "majority"]
    text = ""
    cosine = plain[plain["representation"] == "cosine"]
    known = {"majority": majority, "majority by word type": by_type, "bag of word pieces": bag}
    known["tf-idf of word pieces"] = plain[plain["representation"] == TFIDF]
    known["cosine of the two"] = cosine
    for name, baseline in known.items():
        value = float(baseline["value"].iloc[0]) if len(baseline) else np.nan
        if np.isfinite(value) and (value or name != "majority"):
            text += f", {name} {number(value)}"
    return text if metric_called(metric).range[1] <= 1 else ""


def _key(curve: Curve) -> Key:
    return tuple(str(curve.head.get(c)) for c in CURVE)


def _selectivity(rows: pd.DataFrame, metric: str) -> dict[Key, str]:
    """Of probes of words: how far each layer of each curve is above the control task, by curve and layer, as text."""
    of = "token-accuracy" if metric_called(metric).spans else metric
    found = {}
    for curve in curves_of(rows[rows["metric"] == derive("selectivity", of)]):
        for layer, value in zip(curve.layers, curve.value, strict=True):
            what = "selectivity" if of == metric else f"selectivity of {of}"
            found[*_key(curve), layer] = f", {what} {number(value)}" if np.isfinite(value) else ""
    return found


def _leak(trained: Sequence[Curve], metric: str, sign: int) -> Iterator[str]:
    """That much of what was evaluated is in train too, and what the best layer reaches on the others."""
    known = trained and str(trained[0].head.get("seen_in_train")) not in ("None", "nan", "<NA>")
    seen, n = (int(trained[0].head[name]) for name in ("seen_in_train", "n")) if known else (0, 1)
    if seen < LEAK * n:
        return
    what = f"{seen:,} of {n:,} evaluated examples are not new (train has their text, a near copy, or their group)"
    unseen = [(one.layers[i], v) for one in trained for i, v in enumerate(one.rows["value_unseen"]) if v == v]
    if not unseen:
        yield f"{what}: nothing is shown for new texts"
        return
    layer, value = max(unseen, key=lambda one: sign * one[1])
    best = f"the best {metric} is {number(value)} at layer {layer} (no test)"
    yield f"{what}; on the other {n - seen:,} {best}"


def _why(rows: pd.DataFrame) -> str:
    why = next((str(text) for text in rows.get("why", ()) if isinstance(text, str) and text), "")
    return f" ({why})" if why else ""
