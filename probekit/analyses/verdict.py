"""What the rows of an analysis show, in words: one to a few sentences for each task, and nothing beyond their tests.

A layer is said to beat shuffled labels, or to differ, only where its p-value is 0.05 at most after correction for all
layers of all curves (models, checkpoints, seeds of random weights) of the task. It is called best only together with
every layer that is not shown to be worse: the set holds the true best layer with a probability of 95 %. What has no
p-value is called not tested; what has no value, undetermined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.metrics import METRICS
from probekit.metrics import metric as metric_called
from probekit.rows import layer_labels, layer_order
from probekit.statistics.curves import not_worse
from probekit.statistics.multiplicity import holm
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

    from probekit.recipe import Recipe
    from probekit.rows import Result

__all__ = ["sentences", "verdict"]

ALPHA = 0.05
FEW = 4
"""Curves of a task that have a sentence each; more of them are counted."""
NAMED = 6
CURVE = (
    *("trained_on", "model", "checkpoint", "step", "regime", "head", "variant", "position", "representation"),
    *("estimator", "seed", "random_weights"),
)
SHOWN = ("model", "checkpoint", "step", "regime", "head", "variant", "position", "representation", "estimator", "seed")


def verdict(result: Result) -> tuple[str, ...]:
    """The sentences of a result; () for an analysis that has none.

    Examples
    --------
    >>> result = probekit.probe("rte.train.h5", "rte.dev.h5")  # doctest: +SKIP
    >>> probekit.analyses.verdict.verdict(result)  # doctest: +SKIP
    ('rte: no layer beats shuffled labels (best accuracy .567 at layer 1, majority .527, p adjusted ≥ .12).',)
    """
    return (*sentences(result.rows, result.predictions), *_quick(result.recipe))


def _quick(recipe: Recipe | None) -> Iterator[str]:
    """That probes were fitted in a hurry: one penalty path on one part of train, and no shuffled labels."""
    told = {**recipe.defaults, **recipe.arguments} if recipe and recipe.function in ("probe", "run") else {}
    if told.get("quick") or (told.get("controls") == 0 and told.get("held_out")):
        yield (
            "A quick look: the penalty was chosen on one held-out part of train, and no probe was trained on shuffled "
            "labels; p is of permuted labels of what was evaluated."
        )


def sentences(rows: pd.DataFrame, predictions: Sequence[Predictions] = ()) -> tuple[str, ...]:
    """What rows show, one analysis and task after another.

    Parameters
    ----------
    rows : DataFrame
        Of one or several analyses.
    predictions : sequence of Predictions
        The predictions for each example that rows of ``probe`` come from, by which the best layer is compared with the
        others. Without them it is compared by the intervals that hold all layers at once, which show less.

    Returns
    -------
    tuple of str
        Whole sentences.
    """
    found: list[str] = []
    for analysis, own in rows.groupby("analysis", sort=False):
        if (judge := JUDGES.get(str(analysis))) is None:
            continue
        for (task, split), part in own.groupby(["task", "split"], sort=False):
            several = own.loc[own["task"] == task, "split"].nunique() > 1
            name = f"{_short(task)} {split}" if several else _short(task)
            tables = [one for one in predictions if (one.task, one.split) == (task, split)]
            found += [f"{name}: {text}." if name else f"{text}." for text in judge(part, tables)]
    return tuple(found)


@dataclass(frozen=True)
class Curve:
    """The layers of one curve, in their order.

    Attributes
    ----------
    head : mapping
        The columns that all of its rows share.
    rows : DataFrame
        Gold labels, one row a layer.
    layers : list of str
        What the layers are called.
    value, p : ndarray
        (L,); ``p`` is corrected for all layers of all curves of the task.
    """

    head: Mapping[Any, Any]
    rows: pd.DataFrame
    layers: list[str]
    value: np.ndarray
    p: np.ndarray

    @property
    def random(self) -> bool:
        return str(self.head.get("random_weights", "")) not in ("", "nan", "None", "<NA>")

    def beating(self, better: np.ndarray | None = None) -> list[str]:
        """The layers that are shown to be better than noise."""
        shown = (self.p <= ALPHA) & (True if better is None else better)
        return [layer for layer, one in zip(self.layers, shown, strict=True) if one]

    @property
    def unknown(self) -> list[str]:
        """The layers without a value."""
        return [layer for layer, one in zip(self.layers, self.value, strict=True) if np.isnan(one)]

    def best(self, sign: int = 1) -> int:
        return int(np.nanargmax(sign * self.value))


def _curves(rows: pd.DataFrame) -> list[Curve]:
    """The curves of the layers of one metric; their p-values are corrected for all of these curves together."""
    gold = rows[(rows["target"] == "gold") & rows["draw"].isna() & (rows["site"] != "")]
    stream = gold["site"].replace("final_norm", "resid_post")
    by = [gold[c].astype("string").fillna("") for c in CURVE if c in gold]
    found = []
    parts = [part for _, part in gold.groupby([*by, stream], sort=False)]
    for part in parts:
        own = part.assign(_order=layer_order(part)).sort_values("_order", kind="stable")
        p = own["p_adjusted"].to_numpy(dtype=float) if "p_adjusted" in own else np.full(len(own), np.nan)
        value = own["value"].to_numpy(dtype=float)
        head = own.iloc[0].to_dict()
        found.append(Curve(head, own, layer_labels(own).tolist(), value, np.minimum(1, p * len(parts))))
    return found


def _main(rows: pd.DataFrame) -> str:
    """The task's main metric: the first that is no difference and no loss beside it."""
    names = [str(name) for name in dict.fromkeys(rows["metric"]) if not metric_called(str(name)).derived]
    return next((name for name in names if METRICS[name].function is not None), names[0])


def _probe(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    metric = _main(rows)
    rows = rows[rows["metric"] == metric]
    curves = _curves(rows)
    trained, random = ([one for one in curves if one.random is kind] for kind in (False, True))
    if one_class := _one_class(tables):
        yield one_class
        return
    beside = _beside(rows, metric)
    text = partial(_noise_text, metric=metric, sign=metric_called(metric).sign, beside=beside, tables=tables)
    yield from _each(trained, random, text, "beats shuffled labels", "beat shuffled labels")


def _each(
    trained: Sequence[Curve], random: Sequence[Curve], text: Callable[..., str], does: str, do: str
) -> Iterator[str]:
    """A sentence for each trained curve, or one for many of them, and one for random weights."""
    if len(trained) > FEW:
        yield _many(trained, does)
    else:
        for curve, name in zip(trained, _names(trained), strict=True):
            yield f"{name}{text(curve, trained, random)}"
    if random:
        yield _control(random, do, trained)


def _noise_text(
    curve: Curve,
    trained: Sequence[Curve],
    random: Sequence[Curve],
    *,
    metric: str,
    sign: int,
    beside: str,
    tables: Sequence[Predictions],
) -> str:
    """Whether layers of one curve of probes beat shuffled labels, and which is best."""
    if np.isnan(curve.value).all():
        return f"{metric} is undetermined at every layer{_why(curve.rows)}"
    at = curve.best(sign)
    where = f"{metric} {_number(curve.value[at])} at layer {curve.layers[at]}{beside}"
    lost = f"; undetermined at {_layers(curve.unknown)}" if curve.unknown else ""
    if np.isnan(curve.p).all():
        return f"best {where}, not tested against shuffled labels{lost}"
    beating = curve.beating()
    if not beating:
        return f"no layer beats shuffled labels (best {where}, {_adjusted(curve)}){lost}"
    whole = len(beating) == len(curve.layers) > 1
    who = "every layer" if whole else _layers(beating)
    verb = "beats" if whole or len(beating) == 1 else "beat"
    p = _at_most(curve.p[curve.p <= ALPHA])
    told = f"{who} {verb} shuffled labels (p adjusted {p})"
    return f"{told}; {_best(curve, at, where, metric, tables)}{lost}"


def _best(curve: Curve, at: int, where: str, metric: str, tables: Sequence[Predictions]) -> str:
    """Which layer is best, with those that are not shown to be worse."""
    layer, value = curve.layers[at], where.replace(f" at layer {curve.layers[at]}", "", 1)
    if len(curve.layers) == 1:
        return value
    among = _among_best(curve, metric, tables)
    if among is None:
        return f"the best value is layer {layer}'s ({value}), which is not compared with the others"
    near = [name for i, name in enumerate(curve.layers) if among[i] and i != at]
    if not near:
        return f"layer {layer} is best ({value}), clearly above all others"
    if len(near) == len(curve.layers) - 1:
        return f"no layer is clearly the best (best {where})"
    return f"layer {layer} is best ({value}), not clearly above {_list(near)}"


def _among_best(curve: Curve, metric: str, tables: Sequence[Predictions]) -> np.ndarray | None:
    """Which layers are not shown to be worse than the best one, bool (L,); None where nothing compares them."""
    for table in tables:
        at = _positions(table, curve)
        if at is not None:
            return not_worse(table.take(at), metric)
    joint = ("joint_low", "joint_high")
    if not set(joint) <= set(curve.rows) or curve.rows[list(joint)].isna().to_numpy().any():
        return None
    low, high = (curve.rows[name].to_numpy(dtype=float) for name in joint)
    if metric_called(metric).sign < 0:
        low, high = -high, -low
    return np.asarray(high >= low.max())


def _positions(table: Predictions, curve: Curve) -> list[int] | None:
    """Where a table holds the layers of a curve; None where it does not hold all of them."""
    fits = table.fits
    same = (fits["target"] == "gold") & fits["draw"].isna()
    for name in (c for c in CURVE if c in fits and c in curve.rows):
        same &= fits[name].astype("string").fillna("") == str(curve.rows[name].astype("string").fillna("").iloc[0])
    names = layer_labels(fits)
    found = {str(names.iloc[i]): int(i) for i in np.flatnonzero(same.to_numpy(dtype=bool))}
    return [found[name] for name in curve.layers] if set(curve.layers) <= set(found) else None


def _one_class(tables: Sequence[Predictions]) -> str:
    """That what was evaluated has one class only, so that nothing can be told; "" where it has more."""
    for table in tables:
        gold = np.atleast_2d(table.gold)[0]
        if gold.dtype.kind != "f" and len(gold) and (gold == gold[0]).all():
            called = table.label_names[int(gold[0])] if table.label_names else str(gold[0])
            return f"all {len(gold):,} labels of {table.split} are {called!r}, so that nothing can be shown"
    return ""


def _beside(rows: pd.DataFrame, metric: str) -> str:
    """What needs no model, in words: the majority class and the bag of pieces, where they tell something."""
    plain = rows[(rows["target"] == "gold") & rows["draw"].isna() & (rows["site"] == "")]
    constant = plain[plain["estimator"].isin(("majority", "mean"))]
    bag = plain[plain["representation"] == "bag-of-pieces"]
    told = ""
    for name, own in (("majority", constant[constant["estimator"] == "majority"]), ("bag of pieces", bag)):
        value = float(own["value"].iloc[0]) if len(own) else np.nan
        if np.isfinite(value) and (value or name != "majority"):
            told += f", {name} {_number(value)}"
    return told if metric_called(metric).range[1] <= 1 else ""


def _mi(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    curves = _curves(rows)
    trained, random = ([one for one in curves if one.random is kind] for kind in (False, True))
    word = "holds information about the labels", "hold information about the labels"
    yield from _each(trained, random, _information_text, *word)


def _information_text(curve: Curve, trained: Sequence[Curve], random: Sequence[Curve]) -> str:
    """Which layers of one curve are shown to hold information, and how much there is at least."""
    lost = f"; undetermined at {_layers(curve.unknown)}" if curve.unknown else ""
    if np.isnan(curve.value).all():
        why = next(filter(None, curve.rows.get("undetermined", [])), "")
        return f"information is undetermined at every layer{f' ({why})' if why else ''}"
    at = curve.best()
    where = f"{curve.value[at]:.3f} bits at layer {curve.layers[at]}"
    if np.isnan(curve.p).all():
        return f"most {where}, not tested against shuffled labels{lost}"
    beating = curve.beating(curve.value > 0)
    if not beating:
        few = _too_few(curve, len(trained) + len(random))
        return f"no layer is shown to hold information about the labels (most {where}, {few}){lost}"
    low = float(curve.rows["ci_low"].iloc[at])
    least = f", {low:.3f} at least" if curve.layers[at] in beating and np.isfinite(low) else ""
    whole = len(beating) == len(curve.layers) > 1
    who, verb = ("every layer", "holds") if whole else (_layers(beating), "holds" if len(beating) == 1 else "hold")
    p = _at_most(curve.p[(curve.p <= ALPHA) & (curve.value > 0)])
    more = "; which layer holds most is not tested" if len(curve.layers) > 1 else ""
    return f"{who} {verb} information about the labels (p adjusted {p}); most {where}{least}{more}{lost}"


def _too_few(curve: Curve, curves: int) -> str:
    """The smallest p, or that so few shuffled labels could not have shown anything."""
    count = curve.rows["shuffles"].max() if "shuffles" in curve.rows else np.nan
    floor = len(curve.layers) * curves / (1 + count) if count == count else 0.0  # Holm: the smallest there can be
    if floor > ALPHA and np.nanmin(curve.rows["p"].to_numpy(dtype=float)) <= 1 / (1 + count) + 1e-12:
        return f"{int(count)} shuffled label sets are too few to show any"
    return _adjusted(curve)


def _mdl(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    [*curves] = _curves(rows[rows["metric"] == "saved-bits"])
    for curve, name in zip(curves, _names(curves), strict=True):
        ratio = rows[(rows["metric"] == "compression-over-prior") & (rows["target"] == "gold")]
        at = curve.best()
        over = ratio[layer_labels(ratio) == curve.layers[at]]["value"]
        where = f"most saved at layer {curve.layers[at]}: {curve.value[at]:,.0f} bits" + (
            f", compression over the prior's code {over.iloc[0]:.2f}" if len(over) else ""
        )
        beating = curve.beating(curve.value > 0)
        if np.isnan(curve.p).all():
            yield f"{name}not tested, for one order tells no p ({where})"
        elif not beating:
            yield f"{name}no layer sends the labels in fewer bits than their shares alone ({where}, {_adjusted(curve)})"
        else:
            whole = len(beating) == len(curve.layers) > 1
            verb = "sends" if whole or len(beating) == 1 else "send"
            p = _at_most(curve.p[(curve.p <= ALPHA) & (curve.value > 0)])
            who = "every layer" if whole else _layers(beating)
            yield f"{name}{who} {verb} the labels in fewer bits than their shares alone (p adjusted {p}); {where}"


def _compare(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    """Of each curve the layers that are better, and those that are worse, than what they are held against."""
    keys = [c for c in (*CURVE, "against") if c in rows]
    by = [rows[c].astype("string").fillna("") for c in keys]
    parts = [part for _, part in rows.groupby(by, sort=False)]
    heads = [Curve(part.iloc[0].to_dict(), part, [], np.empty(0), np.empty(0)) for part in parts]
    for part, name in zip(parts, _names(heads), strict=True):
        metric, against = str(part["metric"].iloc[0]), str(part["against"].iloc[0])
        own = metric_called(metric)
        labels = [f"layer {label}" if label else "it" for label in layer_labels(part)]
        value, p = (part[c].to_numpy(dtype=float) for c in ("value", "p_adjusted"))
        against = {"shuffled": "shuffled labels", "control-task": "the control task"}.get(against, against)
        shown = (p <= ALPHA) & np.isfinite(value) & (value != 0)
        told = []
        for word, side in (("better", own.sign * value > 0), ("worse", own.sign * value < 0)):
            which = [labels[i].removeprefix("layer ") for i in np.flatnonzero(shown & side)]
            if which:
                who = "" if which == ["it"] else f"{_layers(which)} {'is' if len(which) == 1 else 'are'} "
                told.append(f"{who}{word} than {against}")
        if np.isnan(p).all():
            yield f"{name}undetermined against {against}"
        elif told:
            yield f"{name}{' and '.join(told)} by {own.of} (p adjusted {_at_most(p[shown])})"
        else:
            word = "no layer is" if labels != ["it"] else "it is not"
            rest = f"smallest p adjusted {_p(np.nanmin(p))}" if len(p) > 1 else f"p adjusted {_p(np.nanmin(p))}"
            yield f"{name}{word} shown to differ from {against} by {own.of} ({rest})"


def _summary(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    best = rows[rows["metric"] == "best-layer"]
    heads = [Curve(row, best.iloc[[i]], [], np.empty(0), np.empty(0)) for i, row in enumerate(best.to_dict("records"))]
    for head, name in zip(heads, _names(heads), strict=True):
        row = head.head
        if np.isnan(row["value"]):
            yield f"{name}the best layer is undetermined{f' ({why})' if (why := row.get('why')) else ''}"
            continue
        layer = str(int(row["value"]))
        near = [one for one in str(row["layers"]).split(",") if one != layer]
        number = f"{row['of_metric']} {_number(row['best_value'])}"
        if row.get("why"):
            yield f"{name}the best value is layer {layer}'s ({number}), without an interval: {row['why']}"
        elif near:
            yield (
                f"{name}layer {layer} has the highest value ({number}), not clearly above {_list(near)}; whether it "
                "beats noise is not tested here (compare --against shuffled)"
            )
        else:
            yield f"{name}layer {layer} is best ({number}), clearly above all others"


def _domains(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    gold = rows[(rows["target"] == "gold") & rows["domain_a"].notna() & rows["domain_b"].notna()]
    gold = gold[(gold["domain_a"] != gold["domain_b"]) & gold["value"].notna()]
    gold = gold[~gold["metric"].isin(("js-contribution", "js-divergence-by-size"))]
    if gold.empty:
        return
    own = metric_called(str(gold["metric"].iloc[0]))
    gold = gold[gold["metric"] == own.name]
    order = gold.assign(_near=gold["value"] * (-1 if own.alike else 1)).sort_values("_near", kind="stable")
    ends = [order.iloc[0]] + ([order.iloc[-1]] if len(order) > 1 else [])
    unit = f" {own.unit}" if own.unit else ""
    far = [f"{row['domain_a']} and {row['domain_b']} ({row['value']:.3f}{unit})" for row in ends]
    told = (
        f"by {own.name} the nearest are {far[0]}, the farthest {far[1]}" if len(far) > 1 else f"{own.name} of {far[0]}"
    )
    p = gold["p"].to_numpy(dtype=float)
    if np.isnan(p).all():
        yield f"{told}; not tested against two samples of one population"
        return
    shown = int((holm(p) <= ALPHA).sum())
    if len(p) == 1:
        word = "further" if shown else "not shown to be further"
        yield f"{told}, {word} apart than samples of one population (p {_p(p[0])})"
        return
    yield f"{told}; {shown} of {len(p)} pairs are further apart than samples of one population (Holm over pairs)"


def _guidelines(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    several = rows["model"].nunique() > 1
    for row in rows.to_dict("records"):
        name = f"{row['model']}: " if several else ""
        yield f"{name}{row['prefer']}. {str(row['why']).rstrip('.')}"


JUDGES: dict[str, Callable[[Any, Sequence[Predictions]], Iterator[str]]] = {
    "probe": _probe, "mi": _mi, "mdl": _mdl, "compare": _compare, "summary": _summary, "domains": _domains,
    "guidelines": _guidelines,
}  # fmt: skip


def _many(curves: Sequence[Curve], does: str) -> str:
    """How many of many curves have a layer that is shown to know something."""
    names = [name.removesuffix(": ") for name in _names(curves)]
    some = [name for name, one in zip(names, curves, strict=True) if one.beating(one.value == one.value)]
    if not some:
        known = [p for one in curves for p in one.p if np.isfinite(p)]
        least = f"p adjusted ≥ {_p(min(known))}" if known else "not tested"
        return f"no layer of {len(curves)} curves {does} ({least})"
    rest = f" and {len(some) - NAMED} more" if len(some) > NAMED else ""
    which = "" if len(some) == len(curves) else f": {', '.join(some[:NAMED])}{rest}"
    return f"in {len(some)} of {len(curves)} curves some layer {does} (p adjusted for all of them){which}"


def _control(random: Sequence[Curve], do: str, trained: Sequence[Curve]) -> str:
    """What the same network does with random weights."""
    if all(np.isnan(one.p).all() for one in random):
        return "random weights were not tested"
    found = [one.beating() for one in random]
    if not any(found):
        return f"with random weights no layer is shown to {do}"
    who = _layers(found[0]) if len(random) == 1 else f"layers of {sum(map(bool, found))} of {len(random)} seeds"
    too = " too" if any(one.beating() for one in trained) else ""
    word = do if len(random) > 1 or len(found[0]) > 1 else do.replace("beat ", "beats ").replace("hold ", "holds ")
    return f"with random weights {who} {word}{too}"


def _names(curves: Sequence[Curve]) -> list[str]:
    """What tells curves apart, "" of a single one: "minilm, step 100: "."""
    if len(curves) < 2:
        return ["" for _ in curves]
    cells = [
        {c: "" if (v := str(one.head.get(c, ""))) in ("<NA>", "nan", "None") else v for c in SHOWN} for one in curves
    ]
    told = [c for c in SHOWN if len({one[c] for one in cells}) > 1]
    words = [[f"{c} {one[c]}" if c in ("step", "seed") else one[c] for c in told if one[c]] for one in cells]
    return [f"{', '.join(own)}: " if own else "" for own in words]


def _adjusted(curve: Curve) -> str:
    """The smallest corrected p of a curve, none of which shows anything."""
    least = float(np.nanmin(curve.p))
    return f"p adjusted {'≥ ' if len(curve.layers) > 1 else ''}{_p(least)}"


def _why(rows: pd.DataFrame) -> str:
    why = next((str(text) for text in rows.get("why", ()) if isinstance(text, str) and text), "")
    return f" ({why})" if why else ""


def _short(task: Any) -> str:
    """A task without the folder of its file, and without the word for those that come with probekit."""
    name = str(task).removeprefix("grammar:")
    return PurePath(name).stem if name.endswith(".toml") else name


def _number(value: float) -> str:
    """Three decimals, without the 0 before them."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.3f}")


def _p(value: float) -> str:
    """A p-value with two digits, three where two would hide on which side of 0.05 it is."""
    if value < 0.001:
        return "< .001"
    if value >= 0.995:
        return "1"
    near = abs(value - ALPHA) < 0.005 and value != ALPHA
    return f"{value:.{3 if near or value < 0.01 else 2}f}".replace("0.", ".", 1)


def _at_most(values: np.ndarray) -> str:
    """The largest of some p-values: ".012" of one, "≤ .012" of several, "< .001"."""
    text = _p(float(max(values)))
    return text if len(values) == 1 or text.startswith("<") else f"≤ {text}"


def _layers(names: Sequence[str]) -> str:
    """ "layer 3", "layers 2–5 and 7", "layers 11 and final_norm"."""
    return f"{'layer' if len(names) == 1 else 'layers'} {_list(names)}"


def _list(names: Sequence[str]) -> str:
    """Names one after another, three and more neighbouring numbers as a range: "2–5, 7 and final_norm"."""
    runs: list[list[str]] = []
    for name in names:
        follows = runs and name.isdecimal() and runs[-1][-1].isdecimal() and int(name) == int(runs[-1][-1]) + 1
        runs[-1].append(name) if follows else runs.append([name])
    words = [w for run in runs for w in ([f"{run[0]}–{run[-1]}"] if len(run) > 2 else run)]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
