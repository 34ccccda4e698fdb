"""``probekit plot``: rows to figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probekit.paths import FIGURES

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Draw rows as figures, vector and bitmap.")


@app.callback()
def _group() -> None:
    """Keeps ``layers`` a command of its own while it is the only one."""


@app.command("layers")
def layers_command(
    rows: Annotated[
        list[Path], typer.Argument(metavar="ROWS…", help="Rows that probekit probe wrote (.parquet, .csv).")
    ],
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            help="A figure, by suffix .pdf, .svg, .eps or .png; may be given several times. "
            "figures/layers.pdf and .png without it.",
        ),
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="The tasks' own without it.")] = None,
    columns: Annotated[int, typer.Option("--columns", min=1, help="Panels side by side.")] = 4,
    dpi: Annotated[int, typer.Option("--dpi", min=30, help="Of bitmaps.")] = 300,
) -> None:
    """A metric by layer, one panel a task, one curve a model.

    Examples:

        probekit plot layers cola.parquet sst2.parquet --out layers.pdf --out layers.png
    """  # fmt: skip
    from probekit.plots import layer_panels, save
    from probekit.rows import read_rows

    figure = layer_panels(read_rows(*rows), metric=metric, columns=columns)
    for path in save(figure, out or [FIGURES / "layers.pdf", FIGURES / "layers.png"], dpi=dpi):
        typer.echo(str(path))
