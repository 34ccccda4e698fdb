"""Sentences on the similarity of layers, on how far they moved, and on their geometry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.verdict.curves import FEW, Curve, named, names
from probekit.analyses.verdict.words import ALPHA, adjusted, at_least, at_most, layers, number
from probekit.display import shown_model
from probekit.metrics import Metric
from probekit.metrics import metric as metric_called
from probekit.rows import layer_labels, layer_order
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["geometry", "movement", "similarity"]

Key = tuple[str, ...]
SIDE = ("model", "checkpoint", "step", "representation", "regime", "head", "variant", "seed")
TITLES = {"cka": "CKA", "svcca": "SVCCA", "pwcca": "PWCCA"}
SPOKEN = {
    "relative-distance": "relative distance",
    "cosine-distance": "cosine distance",
    "aligned-distance": "distance after shift and rotation",
    "participation-ratio": "participation ratio",
    "intrinsic-dimension": "intrinsic dimension",
    "mean-cosine": "mean cosine",
}
"""Metrics as sentences say them."""


def similarity(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    """The first measure: for each pair of models the ends of the same layers, and how many are more than chance."""
    rows = rows[rows["metric"] == rows["metric"].iloc[0]]
    rows = rows.assign(a=layer_labels(rows), b=layer_labels(rows.assign(layer=rows["layer_b"], site=rows["site_b"])))
    keys = [c for c in (*SIDE, *(f"{c}_b" for c in SIDE)) if c in rows]
    pairs = [part for _, part in rows.groupby([rows[c].astype("string").fillna("") for c in keys], sort=False)]
    metric, several, called = metric_called(str(rows["metric"].iloc[0])), len(pairs), _names(pairs)
    firsts = {_key(_state(part, "")) for part in pairs}
    if several > FEW and len(firsts) > 1 and (text := _overview(pairs, metric, len(rows), called)):
        yield text
        return
    for part in pairs if several <= FEW else pairs[-1:]:
        a, b = (_key(_state(part, end)) for end in ("", "_b"))
        prefix = f"{called[a]}: " if a == b else f"{called[a]} and {called[b]}: "
        if several > FEW:
            prefix = f"the last of {several} pairs, {prefix}"
        yield prefix + (_itself(part, metric) if a == b else _two(part, metric, len(rows)))


def _overview(pairs: Sequence[pd.DataFrame], metric: Metric, tests: int, called: Mapping[Key, str]) -> str:
    """Of many pairs of models those with the largest and the smallest mean of the same layers; "" without any."""
    import pandas as pd

    same = [part[(part["a"] == part["b"]) & part["value"].notna()] for part in pairs]
    same = sorted((part for part in same if len(part)), key=lambda part: float(part["value"].mean()), reverse=True)
    if not same:
        return ""
    high, low = (" and ".join(called[_key(_state(part, end))] for end in ("", "_b")) for part in (same[0], same[-1]))
    mean = [number(part["value"].mean()) for part in (same[0], same[-1])]
    text = f"of {len(pairs)} pairs of models {high} have the largest mean {_spoken(metric)} of the same layers"
    return f"{text} ({mean[0]}), {low} the smallest ({mean[1]}); {_chance(pd.concat(same), tests, count=True)}"


def _state(rows: pd.DataFrame, end: str) -> dict[str, Any]:
    """The columns of one model, without those of its training before the first step."""
    head = {c: rows[c + end].iloc[0] if c + end in rows else "" for c in SIDE}
    return head | {"regime": "", "checkpoint": ""} if str(head["step"]) == "0" else head


def _key(state: Mapping[str, Any]) -> Key:
    return tuple(str(state[c]) for c in ("model", "checkpoint", "representation", "step"))


def _names(pairs: Sequence[pd.DataFrame]) -> dict[Key, str]:
    """The names of all models: with the run, the path and the pooling where they are equal without."""
    states = {_key(state): state for part in pairs for end in ("", "_b") for state in (_state(part, end),)}
    found: dict[Key, str] = {}
    for details in range(4):
        found = {key: _named(state, details) for key, state in states.items()}
        if len(set(found.values())) == len({(name, key[:-1]) for key, name in found.items()}):
            break
    steps = {key: "" if key[-1] in ("<NA>", "nan", "None", "") else f" at step {int(key[-1]):,}" for key in found}
    return {key: name + steps[key] for key, name in found.items()}


def _named(state: Mapping[str, Any], details: int) -> str:
    """A model and its state, with so many of the details run, path and pooling."""
    name, model = named(state, run=details > 0), str(state["model"])
    if details > 1:
        name = name.replace(shown_model(model), model, 1)
    return f"{name}, {state['representation']}" if details > 2 and state["representation"] else name


def _two(rows: pd.DataFrame, metric: Metric, tests: int) -> str:
    """Same layers of two models, or the closest ones if they share none."""
    known = rows[rows["value"].notna()]
    same = known[known["a"] == known["b"]]
    if known.empty:
        return f"{_spoken(metric)} is undefined for all pairs of layers"
    top = 1 if metric.alike else 0
    best = _ends(known)[top]
    if same.empty:
        who = f"layers {best['a']} and {best['b']} have "
        who += f"the {_end(metric)} value ({_value(best, metric)})" if len(known) > 1 else _value(best, metric)
        return f"{who}; {_chance(known, tests)}"
    most, least = _ends(same)[top], _ends(same)[1 - top]
    if len(same) == 1:
        text = f"layer {most['a']} has a same-layer {_spoken(metric)} of {_value(most, metric, name=False)}"
    else:
        text = f"layer {most['a']} has the {_end(metric)} same-layer value ({_value(most, metric)})"
        text += f", layer {least['a']} the {_end(metric, far=True)} ({_value(least, metric, name=False)})"
    if best["value"] != most["value"]:
        text += f"; of all pairs, layers {best['a']} and {best['b']} have the {_end(metric)} ({number(best['value'])})"
    return f"{text}; {_chance(same, tests)}"


def _end(metric: Metric, *, far: bool = False) -> str:
    """ "largest" for the value of the most similar layers, "smallest" for a distance."""
    return "largest" if metric.alike != far else "smallest"


def _itself(rows: pd.DataFrame, metric: Metric) -> str:
    """Neighbouring layers of one model."""
    order = list(dict.fromkeys(rows["a"]))
    next_to = dict(pairwise(order))
    near = rows[(rows["a"].map(next_to) == rows["b"]) & rows["value"].notna()]
    if near.empty:
        absent = "there are no neighbouring layers to compare"
        return absent if rows["value"].notna().any() else f"{_spoken(metric)} is undefined for all pairs of layers"
    top = 1 if metric.alike else 0
    most, least = _ends(near)[top], _ends(near)[1 - top]
    if len(near) == 1:
        return f"neighbouring layers {most['a']} and {most['b']} have {_value(most, metric)}"
    text = f"of neighbouring layers {most['a']} and {most['b']} have the {_end(metric)} value ({_value(most, metric)})"
    return f"{text}, {least['a']} and {least['b']} the {_end(metric, far=True)} ({_value(least, metric, name=False)})"


def _chance(same: pd.DataFrame, tests: int, *, count: bool = False) -> str:
    """How many pairs are more alike than permuted examples, without the names of layers if ``count``."""
    p = same["p_adjusted"].to_numpy(dtype=float)
    if np.isnan(p).all():
        return "whether that is more than chance was not tested"
    shown, of = p <= ALPHA, "pairs of layers"
    whole = "same-layer pairs" if (same["a"] == same["b"]).all() else of
    if shown.all():
        who = "it is" if len(p) == 1 else f"all {len(p)} {whole} are"
        return f"{who} more alike than chance ({adjusted(at_most(p), tests, of)})"
    if not shown.any():
        who = "it is not" if len(p) == 1 else f"none of the {len(p)} {whole} is"
        return f"{who} shown to be more alike than chance ({adjusted(at_least(p), tests, of)})"
    without = "" if count else f", not {layers(same['a'][~shown].tolist())}"
    return (
        f"{shown.sum()} of {len(p)} {whole} are more alike than chance{without} "
        f"({adjusted(at_most(p[shown]), tests, of)})"
    )


def _value(row: Mapping[Any, Any] | pd.Series, metric: Metric, *, name: bool = True) -> str:
    """A value with its interval: "CKA .990 [.980, .995]"."""
    text = number(row["value"])
    if np.isfinite(row["ci_low"]):
        text += f" [{number(row['ci_low'])}, {number(row['ci_high'])}]"
    return f"{_spoken(metric)} {text}" if name else text


def _spoken(metric: Metric) -> str:
    return SPOKEN.get(metric.name) or TITLES.get(metric.name, metric.name)


def movement(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    """The first distance: the layers that moved least and most, and labels that moved differently."""
    metric = str(rows["metric"].iloc[0])
    mine = rows[(rows["metric"] == metric) & (rows["example"] == "") & (rows["label"] == "")]
    parts = _curves(mine)
    shown = parts if len(parts) <= FEW else parts[-1:]
    for curve, prefix in zip(shown, _prefixes(shown, parts), strict=True):
        known = curve[curve["value"].notna()]
        if known.empty:
            yield f"{prefix}no distance is defined, because all reference vectors have length 0"
            continue
        low, high = _ends(known)
        definition = metric_called(metric)
        value = _value(high, definition, name=False)
        others = f"other examples are {number(high['others'])} away" if np.isfinite(high["others"]) else ""
        if len(known) == 1:
            text = (
                f"{prefix}the {_spoken(definition)} of layer {high['name']} is {value}{f' ({others})' * bool(others)}"
            )
        else:
            text = f"{prefix}by {_spoken(definition)} layer {high['name']} moved most ({value}"
            text += f"{f'; {others}' * bool(others)}), layer {low['name']} least "
            text += f"({_value(low, definition, name=False)})"
        yield text + _few(curve) + _labels(rows, curve.iloc[0], metric)


def _few(curve: pd.DataFrame) -> str:
    """The note of a distance, which qualifies it."""
    notes = [str(note) for note in curve["note"].dropna().unique() if note] if "note" in curve else []
    return f"; {notes[0]}" if notes else ""


def _labels(rows: pd.DataFrame, head: Mapping[Any, Any] | pd.Series, metric: str) -> str:
    """Labels whose examples moved further or less far than others, over all layers, and distances that disagree."""
    if "p_adjusted" not in rows:
        return ""
    keys = {c: rows[c].astype("string").fillna("<NA>") for c in ("model", "checkpoint", "step")}
    same = np.logical_and.reduce([keys[c] == str(head[c]) for c in keys])
    differences = rows[rows["metric"].str.startswith("difference(") & same]
    differences = differences.assign(name=layer_labels(differences), of=differences["metric"].str[11:-1])
    tested = differences[differences["of"] == metric]
    found = []
    for label, part in tested.groupby("label", sort=False):
        shown = part[part["p_adjusted"] <= ALPHA]
        for word, sign in (("further", 1), ("less far", -1)):
            if len(some := shown[np.sign(shown["value"]) == sign]):
                which, p = layers(some["name"].tolist()), at_most(some["p_adjusted"].to_numpy())
                others = differences[(differences["label"] == label) & differences["name"].isin(some["name"])]
                effect = _effect(some)
                text = f"{label!r} moved {word} than the others in {which} ({effect}, p adjusted {p})"
                found.append(text + _opposite(others, sign, "less far" if sign > 0 else "further"))
    if not found and tested["p_adjusted"].notna().any():
        return f"; no label is shown to move differently (p adjusted {at_least(tested['p_adjusted'].dropna())})"
    return "".join(f"; {text}" for text in found[:FEW])


def _effect(rows: pd.DataFrame) -> str:
    """The largest difference from the other labels: "difference .100 [.080, .120] in layer 3"."""
    most = rows.iloc[int(rows["value"].abs().to_numpy(dtype=float).argmax())]
    text = f"difference {_value(most, metric_called(str(most['of'])), name=False)}"
    return text if len(rows) == 1 else f"{text} in layer {most['name']}"


def _opposite(rows: pd.DataFrame, sign: int, word: str) -> str:
    """The distances by which a label moved the other way in the same layers; none with a note on too few examples."""
    rows = rows[(rows["p_adjusted"] <= ALPHA) & (np.sign(rows["value"]) == -sign)]
    rows = rows[rows["note"].fillna("") == ""] if "note" in rows else rows
    return "".join(
        f", but {word} by {_spoken(metric_called(str(metric)))} in {layers(part['name'].tolist())} "
        f"(p adjusted {at_most(part['p_adjusted'].to_numpy())})"
        for metric, part in rows.groupby("of", sort=False)
    )


def geometry(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    """For each model the lowest and the highest layer of the dimensions and of the mean cosine."""
    parts = _curves(rows[rows["metric"].isin(("participation-ratio", "intrinsic-dimension", "mean-cosine"))])
    shown = parts if len(parts) <= FEW else parts[-1:]
    for curve, prefix in zip(shown, _prefixes(shown, parts), strict=True):
        found = []
        for metric, part in curve.groupby("metric", sort=False):
            known = part[part["value"].notna()]
            if known.empty:
                continue
            definition = metric_called(str(metric))
            low, high = _ends(known)
            ends = [f"{_plain(end)} (layer {end['name']})" for end in (low, high)]
            found.append(f"{_spoken(definition)} " + (f"from {ends[0]} to {ends[1]}" if len(known) > 1 else ends[0]))
        yield f"{prefix}{', '.join(found)}" if found else f"{prefix}undefined in all layers"


def _plain(row: Mapping[Any, Any] | pd.Series) -> str:
    write = number if row["metric"] == "mean-cosine" else "{:.1f}".format
    ends = f" [{write(row['ci_low'])}, {write(row['ci_high'])}]" if np.isfinite(row["ci_low"]) else ""
    return f"{write(row['value'])}{ends}"


def _ends(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """The rows with the smallest and the largest value."""
    value = rows["value"].to_numpy(dtype=float)
    return rows.iloc[int(value.argmin())], rows.iloc[int(value.argmax())]


def _curves(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each model, with names of layers, in their order."""
    rows = rows.assign(name=layer_labels(rows), _order=layer_order(rows)).reset_index(drop=True)
    keys = [rows[c].astype("string").fillna("") for c in SIDE if c in rows]
    return [part.sort_values("_order", kind="stable") for _, part in rows.groupby(keys, sort=False)]


def _prefixes(shown: Sequence[pd.DataFrame], parts: Sequence[pd.DataFrame]) -> list[str]:
    """What distinguishes the shown curves; the number of all if they are more."""
    heads = [Curve(part.iloc[0].to_dict(), part, [], np.empty(0), np.empty(0)) for part in parts]
    known = names(heads)[-len(shown) :]
    return [f"the last of {len(parts)} models, {name}" if len(parts) > len(shown) else name for name in known]
