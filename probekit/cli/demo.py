"""What ``probekit demo`` prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from probekit.cli.made import made
from probekit.cli.show import say
from probekit.cli.terminal import show_table
from probekit.grid import Column, Grid

if TYPE_CHECKING:
    from probekit.rows import Result


@made()
def demo(result: Result, *, caches: Path, figures: Path) -> None:
    """The metrics by layer, and where everything is."""
    from probekit.rows import layer_labels

    rows = result.rows
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
    say(f"{sum(result.seconds.values()):.0f} s; the caches are in {caches}. Inspect one: probekit inspect FILE")
