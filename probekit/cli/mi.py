"""``probekit mi``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mi_command"]

CURVE = ("task", "split", "model", "checkpoint", "step", "representation", "estimator")
MARKS = {"undetermined": "?", "warning": "*"}


def mi_command(
    caches: Annotated[
        list[Path], typer.Argument(metavar="CACHE.h5…", help="Of one or several models, splits or tasks.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the rows: .parquet or .csv, an evidence card (.json) beside it.")
    ] = None,
    estimator: Annotated[
        str,
        typer.Option(
            "--estimator",
            help="With commas: edge (calibrated), edge-4.3.1 (the published scripts' numbers; also edge-4.2.0, "
            "edge-4.4.1), knn, logistic, mlp (lower bounds), ridge (numbers) …",
        ),
    ] = "edge",
    shuffles: Annotated[
        int | None,
        typer.Option(
            "--shuffles",
            min=0,
            help="Of the labels, for p and for where noise falls; each estimator's own number without it.",
        ),
    ] = None,
    controls: Annotated[
        int | None,
        typer.Option(
            "--controls",
            min=0,
            help="Whole estimates of as many shuffled label sets; 19 without it where an estimator shuffles no labels "
            "itself, whose p takes as many at least.",
        ),
    ] = None,
    pooling: Annotated[
        str | None, typer.Option("--pooling", help="Which sentence vectors; the caches' first without it.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option("--layers", help="Some of the layers, with commas: 0,6,final_norm.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of all that is drawn.")] = 0,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Layers measured at a time; one a core without it.")
    ] = None,
) -> None:
    """Measure in bits what each layer of CACHE.h5 tells about the labels, and where noise falls.

    The default, edge, finds directions on some examples and measures on others, and takes off what shuffled labels
    give. Where an estimate can not be told from noise it is undetermined, and the reason is said. p is corrected over
    the layers of a curve. Further caches, as of the same model with random weights, are curves of their own in the same
    rows, and so are further estimators.

    Examples:

        probekit mi cola.train.h5 --out cola.parquet

        probekit mi cola.train.h5 cola.train-random.h5 --estimator edge,edge-4.3.1 --out cola.parquet

        probekit mi pos.train.h5 --layers 0,6,12 --shuffles 200

        probekit plot layers cola.parquet --out layers.pdf
    """
    from probekit.activations import ActivationCache
    from probekit.analyses.information import mi
    from probekit.cli.progress import bar
    from probekit.rows import check_out, evidence, write_rows

    check_out(out)
    began = monotonic()
    arguments = {
        "estimators": _words(estimator),
        "pooling": pooling,
        "layers": None if layers is None else _words(layers),
        "shuffles": shuffles,
        "controls": controls,
    }
    with ExitStack() as stack:
        opened = [stack.enter_context(ActivationCache(path)) for path in caches]
        with bar() as progress:
            rows = mi(*opened, seed=seed, threads=threads, progress=progress, **arguments)  # type: ignore[arg-type]
        seconds = monotonic() - began
        for _, curve in rows.groupby([*CURVE], sort=False, dropna=False):
            _show(curve)
        if out is not None:
            card = evidence(caches=opened, arguments=arguments, seeds={"seed": seed}, durations={"mi": seconds})
            typer.echo(f"{write_rows(rows, out, card)}  ({len(rows)} rows, {seconds:.1f} s)")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _show(rows: pd.DataFrame) -> None:
    """A table by layer on standard output, and under it what its marks mean."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from probekit.rows import called

    head = rows.iloc[0]
    bins = f" in {head['bins']:g} bins" if head["bins"] else ""
    entropy = f"; the labels hold {head['entropy']:.3f} bits{bins}" if isfinite(head["entropy"]) else ""
    title = f"{head['task']} {head['split']}, {called(head)}, {head['estimator']}: {head['n']:,} examples{entropy}"
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("layer", justify="right", no_wrap=True)
    table.add_column("bits", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="center", style="dim", no_wrap=True)
    table.add_column("noise, 97.5 %", justify="right", style="dim", no_wrap=True)
    for name in ("p adjusted", "share", "raw"):
        table.add_column(name, justify="right", no_wrap=True)
    gold, noise = (rows[rows["target"] == name].set_index("layer_name") for name in ("gold", "shuffled"))
    best, marks = gold["value"].max(), dict(_marks(gold))
    for layer, row in gold.iterrows():
        value, low, high = row["value"], row["ci_low"], row["ci_high"]
        said = [marks[column, row[column]] for column in MARKS if row[column]]
        bits = f"[bold]{value:.3f}[/]" if value == best else f"{value:.3f}" if isfinite(value) else ""
        above = noise["ci_high"].get(layer, float("nan"))
        table.add_row(
            str(layer),
            " ".join((bits, *said)).strip(),
            f"{low:.3f} – {high:.3f}" if isfinite(low) else "",
            f"{above:.3f}" if isfinite(above) else "",
            f"{row['p_adjusted']:.4f}" if isfinite(row["p_adjusted"]) else "",
            f"{row['share']:.1%}" if isfinite(row["share"]) else "",
            f"{row['raw']:.3f}" if isfinite(row["raw"]) else "",
        )
    console = Console()
    console.print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
    console.print(table)
    for (column, text), mark in marks.items():
        typer.echo(f"{mark}  undetermined: {text}" if column == "undetermined" else f"{mark}  {text}")
    if head["left_out"]:
        typer.echo(f"unlabelled, left out: {head['left_out']:,}")


def _marks(gold: pd.DataFrame) -> Iterator[tuple[tuple[str, str], str]]:
    """What is to be said of some layers, by column and text, each with a mark of its own: ?, ??, … and *, **, …"""
    for column, sign in MARKS.items():
        for i, text in enumerate(dict.fromkeys(text for text in gold[column] if text), 1):
            yield (column, text), sign * i
