"""Sentences of the captions of layer curves: intervals, noise, markers, baselines, estimators that are left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.plots.caption import compared_with, curve_names, first_upper, listed, measured
from probekit.plots.curves import CURVE, RANDOM, curves
from probekit.plots.heat import heat_words
from probekit.plots.layer_axes import far_noise, hides_random
from probekit.plots.look import Look
from probekit.plots.noise import HOLLOW, NOT_ABOVE, REACHES_CONTROL, one_sided

if TYPE_CHECKING:
    import pandas as pd

PERMUTED = (
    "Permuted labels: the band shows what the same predictions reach with permuted labels, from the mean to the value "
    "with p = 0.05, corrected over the layers of a curve."
)
WHY = {
    NOT_ABOVE: "Hollow markers: not above noise (p > 0.05, corrected over layers and curves).",
    HOLLOW: "Hollow markers: the interval reaches the noise (a visual criterion, not a test).",
    REACHES_CONTROL: "Half-filled markers: the interval reaches the control tasks.",
}


def layer_words(
    rows: pd.DataFrame,
    parts: Sequence[pd.DataFrame],
    gone: Mapping[str, dict[str, list[str]]],
    look: Look,
    *,
    crowd: bool,
) -> Iterator[str]:
    """The sentences of a caption of layer curves.

    Parameters
    ----------
    rows : DataFrame
        The rows of the figure.
    parts : sequence of DataFrame
        The points of each panel, as :func:`probekit.plots.layers.curve_rows` returns them.
    gone : mapping
        Why estimators are left out: by reason and task their names.
    look : Look
        Names, and coverage of the intervals.
    crowd : bool
        Whether curves are lines of a heat map.
    """
    import pandas as pd

    points = pd.concat(parts)
    curve, line = (points[points["role"] == role] for role in ("curve", "line"))
    yield from measured(curve, look)
    yield curve_names(curve["label"].unique(), look)
    for why, estimators in gone.items():
        yield f"Left out, because {why}: {_estimators(estimators, look)}."
    if crowd:
        yield from heat_words(curve, ("task", "panel"), look=look)
        if (curve["hollow"] != "").any():
            yield "Hatched cells: not above noise (of several seeds, at least one)."
        return
    yield from _intervals(curve, look)
    yield from compared_with(curve, look)
    yield from _noise(rows, points, look)
    if any(far_noise(part) is not None for part in parts):
        yield "Where permuted labels are much worse, their band leaves the axes."
    yield from _criteria(curve, look)
    if "shown_high" in curve and (curve["value"].isna() & curve["ci_low"].notna()).any():
        yield "Crosses: undetermined; dotted lines: possible values."
    if len(line):
        yield f"Horizontal lines: {listed(line['label'].unique())}."
        yield from _coinciding(curve, line, look)


def _intervals(curve: pd.DataFrame, look: Look) -> Iterator[str]:
    """What bands and bars are, and which curves have none."""
    banded = curve[~curve["one_of_seeds"].astype(bool)]
    if "shown_high" in curve and (bounds := banded[banded["shown_high"].notna() & banded["value"].notna()]).size:
        most = bounds.groupby("task", sort=False)["ci_high"].max()
        possible = listed(f"{value:.2g} bits ({look.task(str(task))})" for task, value in most.items())
        yield (
            f"Values are lower bounds. Bands and bars: {look.interval}s of the information that an estimator can "
            f"capture, each for a single layer; the mutual information itself may be up to {possible}."
        )
    elif banded["ci_low"].notna().any():
        yield f"Bands and bars: {look.interval}s, each for a single layer."
    if any(hides_random(part) for _, part in curve.groupby(["task", "panel"], sort=False)):
        yield "Intervals of random weights are left out."
    if curve["one_of_seeds"].any():
        yield "Thin lines: single seeds, without intervals."


def _noise(rows: pd.DataFrame, points: pd.DataFrame, look: Look) -> Iterator[str]:
    """What the bands of controls are."""
    curve, control = (points[points["role"] == role] for role in ("curve", "control"))
    for label, band in control.groupby("label", sort=False):
        extent = "range" if band["of_draws"].iloc[0] else look.middle
        if one_sided(band):
            extent = "part from the mean to the 97.5 % quantile"
            if (band["analysis"] == "probe").all():
                labels = " and the labels" * bool(curve["metric"].str.startswith("by-label(").any())
                yield PERMUTED.replace("layers of a curve", f"layers of a curve{labels}")
                continue
        yield f"{first_upper(_plural(str(label)))}: the band shows the {extent} of their values{_draws(rows, band)}."
    if len(control) and curve["label"].nunique() > 1:
        yield "The dashed edge of a band has the colour of its curve."
        if curve["random"].any() and not control["random"].all():
            yield "Random weights are tested against a band of their own, which is not drawn."


def _criteria(curve: pd.DataFrame, look: Look) -> Iterator[str]:
    """What markers mean; if panels have different criteria, which ones."""
    panels_ = {why: set(curve["panel"][curve["hollow"] == why]) for why in WHY if (curve["hollow"] == why).any()}
    for why, own in panels_.items():
        marker, colon, rest = WHY[why].partition(":")
        where = f" ({listed(map(look.shown, sorted(own)))})" if len({*map(frozenset, panels_.values())}) > 1 else ""
        yield f"{marker}{where}{colon}{rest}"


def _coinciding(curve: pd.DataFrame, line: pd.DataFrame, look: Look) -> Iterator[str]:
    """Which horizontal lines, and random weights that are as flat, hide each other."""
    for task, lines in line.groupby("task", sort=False):
        of = curve[curve["task"] == task]
        near = 0.01 * np.ptp(np.r_[of["value"].dropna(), lines["value"]])
        random = of[of["random"].astype(bool)].groupby("series", sort=False)["value"].agg(["min", "max"])
        flat = [(one["min"], RANDOM) for _, one in random.iterrows() if one["max"] - one["min"] <= near]
        groups: list[list[tuple[float, str]]] = []
        for one in sorted([*zip(lines["value"], lines["label"], strict=True), *flat]):
            if groups and one[0] - groups[-1][0][0] <= near:
                groups[-1].append(one)
            else:
                groups.append([one])
        for group in groups:
            if len(names := dict.fromkeys(label for _, label in group)) > 1:
                yield f"{look.task(str(task))}: {listed(names)} coincide at {group[0][0]:z.3g}."


def _estimators(gone: dict[str, list[str]], look: Look) -> str:
    """The estimators left out, by task: "binning and kernel-upper (CoLA and MRPC)"."""
    tasks: dict[str, list[str]] = {}
    for task, panels_ in gone.items():
        tasks.setdefault(listed(look.shown(panel) for panel in panels_), []).append(look.task(task))
    return "; ".join(f"{names} ({listed(own)})" for names, own in tasks.items())


def _plural(label: str) -> str:
    return label.replace("control task", "control tasks")


def _draws(rows: pd.DataFrame, band: pd.DataFrame) -> str:
    """The number of draws of a control, or the fewest and the most of several curves, if the rows contain it."""
    control = rows[rows["target"] == band["target"].iloc[0]]
    found = set[int]()
    for _, part in curves(control, [*CURVE, "task"]):
        counts = [int(part[c].max()) for c in ("controls", "shuffles") if c in part and part[c].notna().any()]
        found.add(max([part["draw"].dropna().nunique(), *counts]))
    fewest, most = min(found - {0}, default=0), max(found, default=0)
    return f" ({fewest:,} to {most:,} draws)" if fewest < most else f" ({most:,} draws)" if most else ""
