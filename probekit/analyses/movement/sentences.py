"""Sentences on how far layers moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.verdict.curves import FEW
from probekit.analyses.verdict.representations import ends, prefixed, spoken, value
from probekit.analyses.verdict.words import ALPHA, at_least, at_most, layers, number
from probekit.rows import layer_labels
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    """The first distance: the layers that moved least and most, and labels that moved differently."""
    metric = str(rows["metric"].iloc[0])
    mine = rows[(rows["metric"] == metric) & (rows["example"] == "") & (rows["label"] == "")]
    for curve, prefix in prefixed(mine):
        known = curve[curve["value"].notna()]
        if known.empty:
            yield f"{prefix}no distance is defined, because all reference vectors have length 0"
            continue
        low, high = ends(known)
        away = f"other examples are {number(high['others'])} away" if np.isfinite(high["others"]) else ""
        if len(known) == 1:
            text = f"the {spoken(metric)} of layer {high['name']} is {value(high)}{f' ({away})' * bool(away)}"
        else:
            text = f"by {spoken(metric)} layer {high['name']} moved most ({value(high)}{f'; {away}' * bool(away)}), "
            text += f"layer {low['name']} least ({value(low)})"
        yield prefix + text + _note(curve) + _labels(rows, curve.iloc[0], metric)


def _note(curve: pd.DataFrame) -> str:
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
                text = f"the class {label!r} moved {word} than the others in {which} ({effect}, p adjusted {p})"
                found.append(text + _opposite(others, sign, "less far" if sign > 0 else "further"))
    if not found and tested["p_adjusted"].notna().any():
        return f"; no label is shown to move differently (p adjusted {at_least(tested['p_adjusted'].dropna())})"
    return "".join(f"; {text}" for text in found[:FEW])


def _effect(rows: pd.DataFrame) -> str:
    """The largest difference from the other labels: "difference .100 [.080, .120] in layer 3"."""
    most = rows.iloc[int(rows["value"].abs().to_numpy(dtype=float).argmax())]
    text = f"difference {value(most)}"
    return text if len(rows) == 1 else f"{text} in layer {most['name']}"


def _opposite(rows: pd.DataFrame, sign: int, word: str) -> str:
    """The distances by which a label moved the other way in the same layers; none with a note on too few examples."""
    rows = rows[(rows["p_adjusted"] <= ALPHA) & (np.sign(rows["value"]) == -sign)]
    rows = rows[rows["note"].fillna("") == ""] if "note" in rows else rows
    return "".join(
        f", but {word} by {spoken(str(metric))} in {layers(part['name'].tolist())} "
        f"(p adjusted {at_most(part['p_adjusted'].to_numpy())})"
        for metric, part in rows.groupby("of", sort=False)
    )
