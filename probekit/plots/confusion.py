"""Which classes a probe takes for which: a confusion matrix for each of some layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.caption import listed, measured
from probekit.plots.curves import plot_rows
from probekit.plots.figure import LEFT_OUT
from probekit.plots.legends import inches, wrapped
from probekit.plots.look import INK, Look, one_line
from probekit.plots.matrix import Cells, colour_bar, draw_cells, name_cells, write_cells
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.options import inches as inches_of
from probekit.plots.panels import PAGE, grid
from probekit.rows import Result, called, layer_order, make_rows, read
from probekit.sites import Site, choose
from probekit.statistics.confusion import confusion_counts
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

CELL, LEAST, LINE = 0.5, 0.2, 0.22
"""Natural and least width of a class, and its height, in inches."""
OTHERS = "others"
EACH = ("task", "split", "name")
"""The columns in which the curves of a figure differ."""


def confusion_values(rows: Any, *, layers: Sequence[int | str] | None = None) -> pd.DataFrame:
    """Return the counts that :func:`confusion_panels` draws.

    Parameters
    ----------
    rows : Result, path, Predictions or list of these
        Predictions of classes or tags, or rows with predictions beside them.
    layers : sequence of str, optional
        Names of layers; by default the first, the best on the evaluated examples and the last.

    Returns
    -------
    DataFrame
        For each layer a row for each pair of classes, with columns ``gold``, ``predicted`` and ``count``, the ``name``
        of the model, and ``value``, the main metric of the layer.

    Raises
    ------
    UsageError
        If there are no predictions of classes, or no such layer.
    """
    import pandas as pd

    counts = plot_rows(rows if isinstance(rows, pd.DataFrame) else counts_of(rows))
    if "count" not in counts:
        raise UsageError("a table of rows holds no predictions; give the result, or the file ROWS.examples.parquet.")
    counts = counts.assign(name=[called({**row, "method": ""}) for row in counts.to_dict("records")])
    counts = counts[(counts["site"] != "") | (counts["regime"] != "")]  # no baselines
    if counts.empty:
        raise UsageError("the predictions are of no layer, and of no trained model.")
    parts = [_chosen(part, layers) for _, part in counts.groupby([*EACH, "method", "seed"], sort=False, dropna=False)]
    return pd.concat(parts, ignore_index=True)


def counts_of(given: Any) -> pd.DataFrame:
    """The counts of predictions, of a result or file, or of a list of these."""
    import pandas as pd

    if isinstance(given, list | tuple):
        return make_rows(pd.concat([counts_of(one) for one in given], ignore_index=True).drop_duplicates())
    if isinstance(given, pd.DataFrame):
        return given
    if isinstance(given, Predictions):
        return make_rows(confusion_counts(given))
    result = given if isinstance(given, Result) else read(given)
    if not result.predictions:
        raise UsageError(
            f"{result.path or 'the result'} has no predictions; give rows with ROWS.examples.parquet beside them, as "
            "probekit probe --out ROWS.parquet writes them."
        )
    return make_rows(pd.concat([confusion_counts(one) for one in result.predictions], ignore_index=True))


def _chosen(counts: pd.DataFrame, layers: Sequence[int | str] | None) -> pd.DataFrame:
    """The counts of some layers of a curve, in their order; by default the first, the best and the last."""
    import pandas as pd

    each = counts.drop_duplicates("layer_name")
    each = each.loc[layer_order(each).sort_values(kind="stable").index]
    names = list(each["layer_name"])
    if layers is None:
        best = (
            metric_called(str(each["metric"].iloc[0])).best(each["value"].to_numpy(dtype=float))
            if each["value"].notna().any()
            else 0
        )
        names = [names[at] for at in sorted({0, best, len(names) - 1})]
    else:
        sites = [
            Site(site, None if pd.isna(at) else int(at)) for site, at in zip(each["site"], each["layer"], strict=True)
        ]
        chosen = {str(choose(layer, sites, "the probe")) for layer in layers}
        names = [name for name in names if name in chosen]
    part = counts[counts["layer_name"].isin(names)]
    return part.iloc[np.argsort(part["layer_name"].map(names.index), kind="stable")]


def confusion_panels(
    rows: Any,
    *,
    layers: Sequence[str] | None = None,
    columns: int | None = None,
    width: float | None = None,
    look: Look | None = None,
) -> Figure:
    """Plot which classes probes take for which: a confusion matrix for each of some layers.

    Lines are gold classes and columns predicted ones. Colours are shares of the examples of a gold class, numbers are
    examples. Tags of entities count by type.

    Parameters
    ----------
    rows : Result or path
        Rows with predictions beside them (ROWS.parquet with ROWS.examples.parquet), or the file of the predictions.
    layers : sequence of str, optional
        Layers to draw; by default the first, the best on the evaluated examples and the last.
    columns : int, optional
        Largest number of panels side by side, 3 by default.
    width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw which classes probes take for which: a confusion matrix for each of some layers.

    Lines are gold classes and columns predicted ones; colours are shares of the examples of a gold class, and numbers,
    where they fit, are examples. Of more classes than fit, the most frequent are drawn.

    Examples
    --------
    On the command line::

        probekit plot confusion trec.parquet --out confusion.pdf
        probekit plot confusion trec.examples.parquet --layers 0,4,6
    """
    values, look = confusion_values(rows, layers=layers), look or Look()
    parts = [part for _, part in values.groupby([*EACH, "method", "seed", "layer_name"], sort=False, dropna=False)]
    tables = [_table(part, look, width) for part in parts]
    names = list(dict.fromkeys(name for table in tables for name in table.columns))
    apart = [c for c in (*EACH, "method") if values[c].nunique() > 1]
    most = max(table.shape[1] for table in tables)
    fit = Cells.of(len(tables), columns or 3, most, names, width, CELL)
    line = max(LINE, min(fit.cell, 0.3))
    longest = max((inches(name, 7) for name in names), default=0.0)
    high = line * max(map(len, tables)) + 0.6 + 0.14 * len(apart) + 0.75 * min(longest, fit.side + 0.3)
    page, high = look.of_page(-(-len(tables) // fit.across), high)
    shown = slice(page.start * fit.across, page.stop * fit.across)
    parts, tables = parts[shown], tables[shown]
    figure, axes = grid(len(tables), fit.across, high, width or fit.width, 1.0)
    drawn = list(axes.ravel())[: len(tables)]
    for i, (ax, part, table) in enumerate(zip(drawn, parts, tables, strict=True)):
        image = _draw(ax, table, fit.cell)
        same = i % fit.across and list(table.index) == list(tables[i - 1].index)
        name_cells(ax, [""] * len(table) if same else list(table.index), list(table.columns), fit.side, line, fit.cell)
        _name(ax, part.iloc[0], apart, look, fit.cell * most)
    colour_bar(image, "Share of the gold class", drawn)
    return figure


def _name(ax: Axes, head: pd.Series, apart: Sequence[str], look: Look, room: float) -> None:
    """The title of a panel: what tells its curve apart, and below it the layer with its metric; names of the axes."""
    layer = f"Layer {head['layer_name']}: " if head["layer_name"] else ""
    lines = [(look.task if name == "task" else look.shown)(str(head[name])) for name in apart]
    lines += [f"{layer}{one_line(str(head['metric']))} {head['value']:.3f}"]
    title = "\n".join(wrapped(line, max(room, 1.0), 8) for line in lines)
    ax.set_title(title, fontsize=8, color=INK, loc="left", parse_math=False)
    ax.set_xlabel("Predicted", fontsize=8, color=INK)
    if ax.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        ax.set_ylabel("Gold", fontsize=8, color=INK)


def _table(part: pd.DataFrame, look: Look, width: float | None) -> pd.DataFrame:
    """Gold by predicted classes, as they are shown: of more than fit, the most frequent, and a column of the others."""
    classes = list(dict.fromkeys(part["gold"]))
    table = part.pivot_table("count", "gold", "predicted", aggfunc="sum").reindex(index=classes, columns=classes)
    table = table.rename(index=look.shown, columns=look.shown)
    if (most := fitting_classes(list(map(str, table.columns)), width)) < len(table):
        kept = np.sort(np.argsort(-table.to_numpy().sum(1), kind="stable")[: most - 1])
        others = table.drop(columns=table.columns[kept]).sum(axis=1)
        table = table.iloc[:, kept].assign(**{OTHERS: others}).iloc[kept]
    return table


def fitting_classes(names: Sequence[str], width: float | None) -> int:
    """How many classes fit side by side in a figure of this width in inches."""
    fit = Cells.of(1, 1, 1, list(names), width or PAGE, CELL)
    return max(3, int((fit.width - fit.side - 0.95) / LEAST))


def _draw(ax: Axes, table: pd.DataFrame, cell: float) -> AxesImage:
    counts = table.to_numpy(dtype=float)
    of = counts.sum(1, keepdims=True)
    shares = np.divide(counts, of, where=of > 0, out=np.full_like(counts, np.nan))
    image = draw_cells(ax, shares, "accuracy", limits=(0, 1))
    write_cells(image, shares, lambda count: f"{count:,.0f}" if count else "", cell=cell, numbers=counts)
    return image


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    values = confusion_values(rows, layers=options.layers)
    yield from measured(values.drop(columns="n_groups", errors="ignore").drop_duplicates([*EACH, "method"]), look)
    yield "Colours: share of the examples of a gold class; numbers, where they fit: examples, where there are any."
    if options.layers is None and (values["site"] != "").any():
        yield "Layers: the first, the best on these examples, and the last."
    for (task, split), part in values.groupby(["task", "split"], sort=False):
        of = part.drop_duplicates(["gold", "predicted"]).groupby("gold", sort=False)["count"].sum()
        if not of.all():
            yield f"White lines: no example of {listed(map(look.shown, of.index[of == 0]))}."
        table = _table(part[part["layer_name"] == part["layer_name"].iloc[0]], look, inches_of(options.width))
        if OTHERS in table.columns and (out := of.drop(table.index)).size:
            yield (
                f"{LEFT_OUT} of {look.task(str(task))}, {split}: {len(out)} of {len(of)} classes, the rarest, with "
                f"{out.sum():,} of {of.sum():,} examples; the column {OTHERS!r} counts predictions of these."
            )


FIGURE = FigureKind(
    head="Confusion matrices: gold classes in lines, predicted ones in columns.",
    draw=confusion_panels,
    caption=caption,
    of_rows=("models", "variants"),
    reads=counts_of,
)
