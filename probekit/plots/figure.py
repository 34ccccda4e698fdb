"""Figures by kind: what stands behind ``probekit plot``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import UsageError, did_you_mean
from probekit.plots.differences import difference_panels
from probekit.plots.domains import domain_panels
from probekit.plots.layers import layer_panels
from probekit.plots.mix import mix_panels
from probekit.plots.options import KINDS, Kind, PlotOptions, inches
from probekit.plots.relation import relation_panels, relation_rows
from probekit.plots.save import check_files, save
from probekit.plots.trajectory import trajectory_panels
from probekit.plots.transfer import transfer_panels, transfer_rows
from probekit.public import public
from probekit.rows import as_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot"]


@public(options=PlotOptions)
def plot(
    kind: Kind, /, *rows: Any, out: tuple[str | Path, ...] | str | Path | None = None, options: PlotOptions
) -> Figure:
    """Draw rows as a figure of panels.

    Parameters
    ----------
    kind : str
        "layers", "differences", "trajectory", "mix", "domains", "relation" or "transfer".
    *rows : DataFrame, Result or path
        Those of other analyses than the kind draws are left out.
    out : path or tuple of path, optional
        Files to write, by suffix .pdf, .svg, .eps or .png.
    options : PlotOptions
        ``metric``, ``columns``, ``width`` …; they may be given one by one.

    Returns
    -------
    Figure
        Not shown; saved where ``out`` says.

    Raises
    ------
    UsageError
        For an unknown kind, for an option that it does not take, and where the rows hold nothing of it.

    Examples
    --------
    >>> probekit.plot("layers", "cola.parquet", "sst2.parquet", out="layers.pdf", width="text")  # doctest: +SKIP
    """
    if kind not in KINDS:
        raise UsageError(f"there is no figure {kind!r}; {did_you_mean(kind, KINDS)}")
    if not rows:
        raise UsageError("no rows were given to draw.")
    for f in dataclasses.fields(options):
        if f.name not in (*KINDS[kind], "width", "dpi") and getattr(options, f.name) != f.default:
            raise UsageError(f"a figure of {kind} takes no {f.name}; it takes {', '.join(KINDS[kind])}, width and dpi.")
    files = [out] if isinstance(out, str | Path) else list(out or ())
    check_files(files)
    told = as_rows(rows[0] if len(rows) == 1 else list(rows))
    figure = FIGURES[kind](told, options)
    save(figure, files, dpi=options.dpi)
    return figure


def _layers(rows: Any, o: PlotOptions) -> Figure:
    return layer_panels(rows, metric=o.metric, summary=as_rows(list(o.summary)) if o.summary else None, **_panels(o, 4))


def _relation(rows: Any, o: PlotOptions) -> Figure:
    return relation_panels(*relation_rows(rows, transfer=o.transfer), **_panels(o, 3))


def _panels(o: PlotOptions, columns: int) -> dict[str, Any]:
    return {"columns": o.columns or columns, "width": inches(o.width)}


FIGURES: dict[str, Callable[[Any, PlotOptions], Figure]] = {
    "layers": _layers,
    "differences": lambda rows, o: difference_panels(rows, level=o.level, **_panels(o, 4)),
    "trajectory": lambda rows, o: trajectory_panels(rows, metric=o.metric, **_panels(o, 3)),
    "mix": lambda rows, o: mix_panels(rows, **_panels(o, 4)),
    "domains": lambda rows, o: domain_panels(rows, metric=o.metric, top=o.top, width=inches(o.width)),
    "relation": _relation,
    "transfer": lambda rows, o: transfer_panels(transfer_rows(rows), **_panels(o, 3)),
}
