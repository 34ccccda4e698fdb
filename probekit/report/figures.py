"""Which figures rows have: drawn by the package's plots, each with a caption, an alternative text and a command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from markupsafe import Markup

from probekit import plots
from probekit.errors import ProbekitError, UsageError
from probekit.plots.domains import SIZES, TERMS, TITLES
from probekit.plots.looks import metric_title
from probekit.report.kinds import Kind
from probekit.report.layers import best_layers, main_rows
from probekit.report.svg import drawn, embed
from probekit.report.tables import number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Drawing", "of_kind"]

MOST_PANELS, MOST_CURVES = 24, 24
NAMES = ("F1", "Matthews", "Pearson", "Spearman", "V-")
COLUMNS = 3
"""Panels side by side, so that a figure is as wide as the text."""
CURVE = ["model", "checkpoint", "step", "representation", "estimator", "split", "seed"]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of the page; ``why`` it could not be drawn where ``html`` is empty; ``command`` draws it again."""

    caption: str
    html: Markup
    why: str = ""
    command: str = ""
    card: tuple[tuple[str, str], ...] = ()


def of_kind(kind: Kind, rows: pd.DataFrame, layers: pd.DataFrame, *, files_known: bool) -> Iterator[Drawing]:
    """The figures of one kind of rows.

    rows : with a column ``file``; layers : of :func:`probekit.report.layers.by_layer`
    files_known : whether the files hold nothing else, so that a command can be told that draws the same
    """
    name = kind.name.lower()
    for i, wanted in enumerate(_wanted(kind, rows, layers)):
        command = ""
        if files_known and wanted.words:
            given = dict.fromkeys(wanted.rows["file"])
            command = shlex.join(
                ["probekit", "plot", wanted.words[0], *given, *wanted.words[1:], "--out", f"{name}.pdf"]
            )
        try:
            html, why = embed(drawn(wanted.function(wanted.rows)), f"{name}-{i + 1}", wanted.caption, wanted.long), ""
        except Exception as error:  # whatever a plot runs into, the page is worth having
            command = ""
            html, why = Markup(), str(error) if isinstance(error, ProbekitError) else f"{type(error).__name__}: {error}"
        yield Drawing(wanted.caption, html, why, command)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A figure that rows may have; ``long`` says what it shows, ``words`` tell probekit plot to draw it."""

    function: Callable[[pd.DataFrame], Figure]
    rows: pd.DataFrame
    caption: str
    long: str = ""
    words: tuple[str, ...] = ()


def _wanted(kind: Kind, rows: pd.DataFrame, layers: pd.DataFrame) -> Iterator[_Wanted]:
    if kind in (Kind.PROBES, Kind.INFORMATION, Kind.CODES) and len(layers):
        yield from _of_layers(main_rows(rows), " ".join(_in_words(best_layers(layers))))
    elif kind is Kind.TRAINING:
        mixes = rows[(rows["metric"] == "mix-weight") & (rows["layer_name"] != "")]
        caption = "Weight of each layer in the scalar mix, by training step; a dot marks the largest of each step."
        if len(mixes):
            words = ("trajectory", "--metric", "mix-weight", "--columns", str(COLUMNS - 1))
            yield _Wanted(_trajectory, mixes, caption, _mixes(mixes), words)
    elif kind is Kind.DIFFERENCES:
        caption = (
            "Paired differences by layer on the same examples; hollow where p, corrected over layers, is above 0.05."
        )
        yield _Wanted(_differences, rows, caption, "", ("differences", "--columns", str(COLUMNS)))
    elif kind is Kind.DOMAINS:
        yield from _of_domains(rows)


def _of_layers(rows: pd.DataFrame, long: str) -> Iterator[_Wanted]:
    """rows : of the main metrics"""
    gold = rows[rows["target"] == "gold"]
    moving = gold.groupby(["task", "model", "checkpoint"])["step"].nunique()
    moving = moving[moving > 1]
    said = _and(metric_title(str(metric)).splitlines()[0] for metric in rows["metric"].unique())
    if moving.empty:
        words = ("layers", "--columns", str(COLUMNS))
        yield _Wanted(_layers, rows, f"{said} by layer.", long, words)
        return
    yield _Wanted(_layers, _ends(rows), f"{said} by layer, at the first and the last step of each run.", long)
    some = rows[rows["task"].isin(moving.index.unique("task"))]
    said = _and(metric_title(str(metric)).splitlines()[0] for metric in some["metric"].unique())
    caption = f"{said} by layer and training step; a dot marks the best layer of each step."
    yield _Wanted(_trajectory, some, caption, long, ("trajectory", "--columns", str(COLUMNS - 1)))


def _of_domains(rows: pd.DataFrame) -> Iterator[_Wanted]:
    for metric, part in rows[~rows["metric"].isin((SIZES, TERMS))].groupby("metric", sort=False):
        named = str(metric)
        corrected = (part["estimator"] == "null-corrected").any()
        more = "corrected for what sampling adds" if corrected else "and of two halves of each, on the diagonal"
        caption = f"{TITLES.get(named, named)} of each two domains, {more}. Hatched where sampling alone gives as much."
        gold = part[part["target"] == "gold"].sort_values("value")
        ends = zip(gold["domain_a"], gold["domain_b"], gold["value"], strict=True)
        long = "; ".join(f"{a} and {b} {number(value)}" for a, b, value in islice(ends, MOST_CURVES))
        yield _Wanted(plots.domain_panels, part, caption, long, ("domains", "--metric", named))
    for (a, b), part in rows[rows["metric"] == TERMS].groupby(["domain_a", "domain_b"], sort=False):
        long = f"The first terms are {', '.join(map(str, part['term'].head(10)))}."
        yield _Wanted(plots.domain_panels, part, f"The terms that tell {a} and {b} apart.", long)
    if len(sizes := rows[rows["metric"] == SIZES]):
        yield _Wanted(plots.domain_panels, sizes, "Divergence by the number of documents used.")


def _layers(rows: pd.DataFrame) -> Figure:
    _few(rows, rows["task"].nunique(), "probekit plot layers")
    return plots.layer_panels(rows, columns=COLUMNS)


def _differences(rows: pd.DataFrame) -> Figure:
    return plots.difference_panels(rows, columns=COLUMNS)


def _trajectory(rows: pd.DataFrame) -> Figure:
    runs = rows.groupby(["task", "model", "checkpoint", "representation", "estimator", "seed"], dropna=False).ngroups
    _few(rows.iloc[:0], runs, "probekit plot trajectory")
    metric = "mix-weight" if (rows["metric"] == "mix-weight").all() else None
    return plots.trajectory_panels(rows, metric=metric, columns=COLUMNS - 1)


def _few(rows: pd.DataFrame, panels: int, command: str) -> None:
    """Raise UsageError for what nobody could read."""
    gold = rows[(rows["target"] == "gold") & (rows["layer_name"] != "")]
    curves = int(gold.groupby(["task", *CURVE], dropna=False).ngroups / max(1, panels))
    if panels > MOST_PANELS or curves > MOST_CURVES:
        many = f"{panels:,} panels" if panels > MOST_PANELS else f"{curves:,} curves in a panel"
        raise UsageError(f"{many} are too many to read; draw some of them with {command}.")


def _ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each run the first and the last step, and all that has no step."""
    steps = rows.groupby(["task", "model", "checkpoint"], dropna=False)["step"]
    first, last = steps.transform("min"), steps.transform("max")
    at_end = ((rows["step"] == first) | (rows["step"] == last)).fillna(value=False)
    return rows[rows["step"].isna() | at_end]


def _in_words(best: Iterator[dict[str, object]]) -> Iterator[str]:
    for row in list(best)[:MOST_PANELS]:
        value, noise = (float(row[name]) for name in ("value", "noise_mean"))  # type: ignore[arg-type]
        beside = f", shuffled labels {number(noise)}" if noise == noise else ""
        yield f"{row['task']}, {row['curve']}: best at layer {row['layer']} with {number(value)}{beside}."


def _mixes(rows: pd.DataFrame) -> str:
    kept = rows[rows["kept"].astype(bool) & rows["value"].notna()]
    top = kept.loc[kept.groupby(["task", "checkpoint"])["value"].idxmax()]
    named = zip(
        top["checkpoint"].where(top["checkpoint"] != "", top["task"]), top["layer_name"], top["value"], strict=True
    )
    return " ".join(f"{name}: most weight on layer {layer}, {number(value)}." for name, layer, value in named)


def _and(words: Iterable[str]) -> str:
    """Words as a list in a sentence, small but for the first and for names."""
    first, *others = dict.fromkeys(words)
    small = [word if word.startswith(NAMES) else word[0].lower() + word[1:] for word in others]
    return f"{', '.join([first, *small[:-1]])} and {small[-1]}" if small else first
