"""Sentences on the similarity of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.verdict.curves import FEW, named
from probekit.analyses.verdict.representations import SIDE, ends, value
from probekit.analyses.verdict.words import ALPHA, adjusted, at_least, at_most, layers, number
from probekit.display import shown_model
from probekit.metrics import Metric
from probekit.metrics import metric as metric_called
from probekit.rows import layer_labels
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

Key = tuple[str, ...]
TITLES = {"cka": "CKA", "svcca": "SVCCA", "pwcca": "PWCCA"}


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
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
    best = ends(known)[top]
    if same.empty:
        what = f"{_spoken(metric)} {value(best)}"
        what = f"the {_end(metric)} value ({what})" if len(known) > 1 else what
        who = f"layers {best['a']} and {best['b']} have {what}"
        return f"{who}; {_chance(known, tests)}"
    most, least = ends(same)[top], ends(same)[1 - top]
    if len(same) == 1:
        text = f"layer {most['a']} has a same-layer {_spoken(metric)} of {value(most)}"
    else:
        text = f"layer {most['a']} has the {_end(metric)} same-layer value ({_spoken(metric)} {value(most)})"
        text += f", layer {least['a']} the {_end(metric, far=True)} ({value(least)})"
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
    most, least = ends(near)[top], ends(near)[1 - top]
    if len(near) == 1:
        return f"neighbouring layers {most['a']} and {most['b']} have {_spoken(metric)} {value(most)}"
    text = f"of neighbouring layers {most['a']} and {most['b']} have the {_end(metric)} value "
    text += f"({_spoken(metric)} {value(most)})"
    return f"{text}, {least['a']} and {least['b']} the {_end(metric, far=True)} ({value(least)})"


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


def _spoken(metric: Metric) -> str:
    return TITLES.get(metric.name, metric.name)
