"""How figures look, and what things are called in them: the same in every figure and panel, readable in grey."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from probekit.errors import UsageError
from probekit.paths import slug

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "CURVE",
    "INK",
    "WIDTHS",
    "Looks",
    "Scale",
    "bare",
    "curves",
    "dress",
    "is_random",
    "legend",
    "lower_is_better",
    "metric_title",
    "one_axes",
    "panels",
    "plain",
    "run_kind",
    "width_of",
]

# Okabe & Ito's palette without its yellow, told apart with every kind of colour vision; markers for print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")  # not as many, so that no look comes back before the 64th curve
GREYS = ("#7F7F7F", "#B0B0B0", "#4D4D4D")
INK, FAINT = "#222222", "#DDDDDD"
WIDTHS = {"column": 3.03, "text": 6.30}
"""Widths in inches of one column and of the text of a two-column paper (A4, as the ACL sets it)."""
PANEL = 2.35  # inches, where no width is asked for
SMALL: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": INK, "handlelength": 2.4}
TITLES = {
    "f1": "F1",
    "macro-f1": "Macro F1",
    "span-f1": "Span F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "rmse": "Root mean squared error",
    "log-loss": "Log loss in nats",
    "brier": "Brier score",
    "codelength-bits": "Code length in bits",
    "v-information": "V-information in bits",
    "mutual-information": "Mutual information (bits)",
}
LOWER_IS_BETTER = (
    "rmse",
    "log-loss",
    "brier",
    "calibration-error",
    "codelength-bits",
    "bits-per-example",
    "conditional-v-entropy",
)
DIFFERENCES = {
    "above-shuffled": "{}\nabove shuffled labels",
    "selectivity": "Selectivity\n({})",
    "difference": "{}\ngained by fine-tuning",
    "lost": "{}\nlost by training elsewhere",
}
CURVE = ("model", "checkpoint", "step", "representation", "estimator", "target", "split", "seed")


def lower_is_better(metric: str) -> bool:
    """Whether small values of a metric, or of a difference in it, are good."""
    return metric.rpartition("(")[2].startswith(LOWER_IS_BETTER)


def metric_title(metric: str) -> str:
    """A metric in the words of an axis: ``selectivity(accuracy)`` is "Selectivity", and under it "(accuracy)"."""
    outer, _, inner = metric.removesuffix(")").rpartition("(")
    title = TITLES.get(inner, inner.replace("-", " ").capitalize())
    if outer == "selectivity" and inner not in ("f1", "matthews", "pearson", "spearman"):  # names keep their capital
        title = title[0].lower() + title[1:]
    title = DIFFERENCES.get(outer, "{}").format(title)
    return f"{title}\n(lower is better)" if lower_is_better(metric) else title


def curves(rows: pd.DataFrame, by: Sequence[str] = CURVE) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """The rows that differ in nothing but layer and metric, each with what tells them from others ("" for missing).

    Checkpoints go by their :func:`run_kind`.
    """
    for values, curve in rows.groupby(list(by), sort=False, dropna=False):
        key = dict(zip(by, ("" if str(v) in ("<NA>", "nan") else str(v) for v in values), strict=True))
        if key.get("checkpoint"):
            key["checkpoint"] = run_kind(key["checkpoint"], str(curve["task"].iloc[0]))
        yield key, curve


def run_kind(checkpoint: str, task: str) -> str:
    """A run's name without the task, so that runs of one kind look alike in the panels of all tasks: "cola.fine-tune.0"
    is "fine-tuned", with its seed where that is not 0, and "cola-ft" is "ft"."""
    either = "|".join(re.escape(name) for name in (task, slug(task)))
    checkpoint = re.sub(rf"^({either})[-_.](?=.)", "", checkpoint)
    if match := re.fullmatch(r"fine-tune(?:\.(\d+))?", checkpoint):
        return "fine-tuned" + (f" {match[1]}" if match[1] not in (None, "0") else "")
    return checkpoint


@dataclass(frozen=True, slots=True)
class Looks:
    """What the curves of a figure are called and how they look, the same in every panel.

    tell : the columns that tell curves of one task apart; look : of each label, as ``Axes.plot`` wants it
    trained : models that have trained checkpoints beside the pretrained one
    """

    tell: tuple[str, ...]
    look: Mapping[str, Mapping[str, Any]]
    trained: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        rows: pd.DataFrame,
        by: Sequence[str] = CURVE,
        panel: Sequence[str] = ("task",),
        tell: Sequence[str] | None = None,
    ) -> Self:
        """rows : of the curves alone, of all panels; panel : the columns that tell panels apart; tell : worked out for
        None, where a step is told only of runs that have several"""
        if tell is None:
            within = {c: [*panel, *(("model", "checkpoint") if c == "step" else ())] for c in by}
            apart = [c for c in by[1:] if (rows.groupby(within[c], dropna=False)[c].nunique(dropna=False) > 1).any()]
            tell = (by[0], *apart)
        known = rows["checkpoint"].fillna("")
        trained = rows.loc[(known != "") & ~known.str.startswith("random"), "model"]
        self = cls(tuple(tell), {}, frozenset(map(str, trained)) & set(rows.loc[known == "", "model"].map(str)))
        if self.trained:  # the pretrained model has the first look, in whatever order files were given
            rows = rows.iloc[np.argsort(known != "", kind="stable")]
        if "step" in tell:
            rows = rows.sort_values("step", na_position="first", kind="stable")
        colours, greys = zip(cycle(COLOURS), cycle(MARKERS), strict=False), cycle(GREYS)
        look: dict[str, Mapping[str, Any]] = {}
        for key, _ in curves(rows, by):
            if (label := self.label(key)) in look:
                continue
            if is_random(key):
                own = {"color": next(greys), "linestyle": (0, (4, 2)), "marker": "o", "linewidth": 1.1, "markersize": 3}
            else:
                own = dict(zip(("color", "marker"), next(colours), strict=True), linestyle="-", linewidth=1.6)
            look[label] = {"markersize": 4.5, "markeredgewidth": 0.9, **own}
        return cls(self.tell, look, self.trained)

    def label(self, key: Mapping[str, str]) -> str:
        """The curve in words: its model, and what tells it from other curves of the figure."""
        words = {c: key[c] for c in self.tell if key[c]}
        if "checkpoint" in self.tell and not key["checkpoint"] and key["model"] in self.trained:
            words = {"model": "", "checkpoint": "pretrained"} | words
        words["model"] = words.get("model", "").rsplit("/", 1)[-1]
        if random := re.fullmatch(r"random(?:-(.+))?", words.get("checkpoint", "")):
            words["checkpoint"] = "random weights" + (f" {random[1]}" if random[1] not in (None, "0") else "")
        if "against" in words:
            words["against"] = f"minus {plain(words['against'])}"
        return ", ".join(f"{c} {word}" if c in ("step", "seed") else word for c, word in words.items())

    def rank(self, key: Mapping[str, str]) -> tuple[bool, int]:
        """Where a curve stands among others in the legend: random weights last."""
        return is_random(key), list(self.look).index(self.known(key)[0])

    def known(self, key: Mapping[str, str]) -> tuple[str, Mapping[str, Any]]:
        """Label and look of a curve; raises UsageError where the figure has no such curve."""
        if (label := self.label(key)) not in self.look:
            raise UsageError(f"there is no curve of {label or 'that name'} here, only of {', '.join(self.look)}.")
        return label, self.look[label]


def plain(against: str) -> str:
    """What a difference is held against, in words."""
    against = {"shuffled": "shuffled labels"}.get(against, against.rsplit("/", 1)[-1])
    return re.sub(r"\brandom-\S+", "random weights", against).replace("control-task", "control task")


def is_random(key: Mapping[str, str]) -> bool:
    """Whether a curve is of a model with random weights."""
    return key.get("checkpoint", "").startswith("random")


@dataclass(frozen=True, slots=True)
class Scale:
    """Where layers stand on the axis: numbers at themselves, those with names (``final_norm``) apart, after the last.

    deepest : the last number, -1 where there is none; named : the layers without a number
    ticks : at most as many; markers are smaller where layers are more
    """

    deepest: int
    named: tuple[str, ...]
    ticks: int

    @classmethod
    def of(cls, rows: pd.DataFrame, ax: Axes) -> Self:
        """rows : those drawn into one Axes"""
        deepest = int(rows["layer"].max()) if rows["layer"].notna().any() else -1
        ticks = min(13, max(2, round(3 * width_of(ax))))
        return cls(deepest, tuple(n for n in rows["layer_name"].unique() if n and not n.isdigit()), ticks)

    def place(self, name: str) -> int:
        """Where a layer stands."""
        if name.isdigit():
            return int(name)
        return self.deepest + max(1, -(-self.deepest // 5)) * (1 + self.named.index(name))

    @property
    def room(self) -> float:
        """Beside the outermost layers, in layers."""
        return 0.4 * max(1, self.deepest / 12)

    def at(self, rows: pd.DataFrame) -> np.ndarray:
        """The place of each row, float64 (rows,)."""
        return np.array([self.place(name) for name in rows["layer_name"]], dtype=np.float64)

    def sized(self, look: Mapping[str, Any]) -> dict[str, Any]:
        """A look with markers that do not hide each other."""
        shrink = min(1, (1.3 * self.ticks / max(1, self.deepest + 1)) ** 0.5)
        return {**look, **{size: shrink * look[size] for size in ("markersize", "markeredgewidth")}}

    def set(self, ax: Axes) -> None:
        """Ticks and ends of the axis."""
        step = next(s for s in (1, 2, 3, 4, 6, 8, 12, 16, 24, self.deepest) if self.deepest / s < self.ticks)
        at = {i: str(i) for i in range(0, self.deepest + 1, step)}
        at |= {self.place(name): "norm" if name == "final_norm" else name for name in self.named}
        ax.set_xticks(list(at), list(at.values()))
        ax.set_xlim(-self.room, max(*at, self.deepest) + self.room)
        ax.set_xlabel("layer", fontsize=9, color=INK)


def dress(ax: Axes, rows: pd.DataFrame, *, ylabel: str, how: str = "") -> None:
    """Axes as they are printed: title, ``how`` it was measured and size, faint horizontal lines, no box."""
    ax.set_ylabel(ylabel, fontsize=9, color=INK)
    title = str(rows["task"].iloc[0]).removeprefix("grammar:")
    said = ", ".join(filter(None, (how, *rows["split"].unique(), f"n = {rows['n'].max():,}")))
    said = wrapped(said, width_of(ax) - 0.6, 7)
    pad = 14 + 10 * said.count("\n")
    ax.set_title(title, loc="left", pad=pad, fontsize=10, fontweight="bold", color=INK, parse_math=False)
    ax.text(0, 1.025, said, transform=ax.transAxes, fontsize=7, color="#666666", va="bottom", parse_math=False)
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
    bare(ax)
    ax.margins(y=0.08)


def bare(ax: Axes, sides: Sequence[str] = ("left", "bottom")) -> None:
    """No box, small ticks."""
    ax.tick_params(labelsize=8, colors=INK, length=2.5, width=0.7)
    ax.set_axisbelow(True)
    for side, spine in ax.spines.items():
        spine.set_visible(side in sides)
        spine.set_color("#888888")
        spine.set_linewidth(0.7)


def one_axes(rows: pd.DataFrame, ax: Axes | None, height: float, called: tuple[str, str]) -> Axes:
    """``ax``, or a new figure's; raises UsageError where the rows hold another number of tasks than one."""
    if len(tasks := rows["task"].unique()) != 1:
        raise UsageError(
            f"{called[0]} draws one task, these are rows of {', '.join(tasks) or 'none'}; see {called[1]}."
        )
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(4.2, height), layout="constrained")[1]
    return ax


def legend(ax: Axes, *, below: bool) -> None:
    """The legend of one Axes: under it, where the figure is its own, or within it."""
    handles, labels = ax.get_legend_handles_labels()
    if below:
        _legend_below(ax.figure, dict(zip(labels, handles, strict=True)))
    elif len(set(labels)) > 1:
        named = dict(zip(labels, handles, strict=True))
        ax.legend(list(named.values()), list(named), **SMALL)


def _legend_below(figure: Any, named: Mapping[str, Any]) -> None:
    """As many columns as the width holds, in height of its own; curves first, then controls, then lines."""
    above = {label: (x[-1] if isinstance(x, tuple) else x).get_zorder() for label, x in named.items()}
    order = sorted(named, key=lambda label: above[label], reverse=True)
    if not order:
        return
    if {"majority class", "mean of train"} <= set(order):  # one look, of classes and of numbers
        order.remove("mean of train")
    words = [
        "majority class or mean of train" if len(order) < len(named) and x == "majority class" else x for x in order
    ]
    size, wide = SMALL["fontsize"], figure.get_figwidth()
    words = [wrapped(x, wide - (SMALL["handlelength"] + 3) * size / 72, size) for x in words]
    columns = max((k for k in range(1, len(order) + 1) if _width(words, k) <= wide), default=1)
    rows = -(-len(order) // columns)
    lines = sum(max(1 + x.count("\n") for x in words[i::rows]) for i in range(rows))
    figure.set_figheight(figure.get_figheight() + 0.17 * lines)
    figure.legend([named[x] for x in order], words, loc="outside lower center", ncols=columns, **SMALL)


def _width(words: Sequence[str], columns: int) -> float:
    """Of a legend in inches."""
    size = SMALL["fontsize"]
    text = sum(max(inches(x, size) for x in column) for column in np.array_split(words, columns))
    return float(text + size * (columns * (SMALL["handlelength"] + 0.8) + 2.0 * (columns - 1) + 2) / 72)


def inches(words: str, size: float) -> float:
    """How wide the widest line is at most; letters of bitmaps are up to a tenth wider than drawn ones."""
    from matplotlib.textpath import TextPath

    return max(1.1 * TextPath((0, 0), line, size=size).get_extents().width for line in words.splitlines()) / 72


def wrapped(words: str, room: float, size: float) -> str:
    """In as few lines as fit into ``room`` inches, parted at commas, or else where there is a space or a dash."""
    parts, lines = words.split(", "), [""]
    for i, part in enumerate(parts):
        piece = part + ("," if i + 1 < len(parts) else "")
        if lines[-1] and inches(f"{lines[-1]} {piece}", size) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {piece}".lstrip()
    for i, line in enumerate(lines):
        if inches(line, size) > room:
            fits = max(4, int(len(line) * room / inches(line, size)) - 1)
            lines[i] = "\n".join(textwrap.wrap(line, fits))
    return "\n".join(lines)


def width_of(ax: Axes) -> float:
    """Of a panel with its labels, in inches."""
    width, place = cast("Figure", ax.get_figure(root=True)).get_figwidth(), ax.get_subplotspec()
    if place is None:
        return float(width)
    ratios = np.array(place.get_gridspec().get_width_ratios(), dtype=np.float64)
    return float(width * ratios[place.colspan.start : place.colspan.stop].sum() / ratios.sum())


def panels(
    rows: pd.DataFrame,
    columns: int,
    height: float,
    by: str | None = None,
    *,
    width: float | None = None,
    natural: float = PANEL,
) -> tuple[Figure, Iterator[tuple[Axes, pd.DataFrame]]]:
    """A figure, and an Axes with its rows for each task in turn; the legend follows when all are drawn.

    by : a column each value of which has a panel of its own, those of one task side by side
    width : of the figure, in inches; without it, that of panels of ``natural`` inches, which are never below 0.64 of it
    """
    from matplotlib.figure import Figure

    if rows.empty:
        raise UsageError("there are no rows to draw.")
    parts = [part for _, part in rows.groupby("task", sort=False)]
    if width is not None:
        columns = min(columns, max(1, int(width / (0.64 * natural))))
    if by is not None:
        parts = [part[part[by] == v] for part in parts for v in rows[by].unique() if (part[by] == v).any()]
        beside = int(rows.groupby("task")[by].nunique().max())
        columns = max(columns // beside, 1) * beside if width is None or beside <= columns else columns
    across = min(columns, len(parts))
    down = -(-len(parts) // across)
    if width is None:
        width = max(natural * across, 1.5 * natural)
    figure = Figure(figsize=(width, height * down + 0.1), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06, wspace=0.04)  # type: ignore[union-attr,call-arg]

    def drawn() -> Iterator[tuple[Axes, pd.DataFrame]]:
        named: dict[str, Any] = {}
        for i, ax in enumerate(figure.subplots(down, across, squeeze=False).ravel()):
            if i >= len(parts):
                ax.remove()
                continue
            yield ax, parts[i]
            handles, labels = ax.get_legend_handles_labels()
            named |= dict(zip(labels, handles, strict=True))
            if i + across < len(parts):
                ax.set_xlabel("")
        _legend_below(figure, named)

    return figure, drawn()
