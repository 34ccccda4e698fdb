"""``probekit probe``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from probekit.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["probe_command"]


def probe_command(
    train: Annotated[Path, typer.Argument(metavar="TRAIN.h5", help="The cache that is fitted.")],
    dev: Annotated[Path, typer.Argument(metavar="DEV.h5", help="The cache that is evaluated.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the rows: .parquet or .csv, an evidence card (.json) beside it.")
    ] = None,
    pooling: Annotated[
        str | None, typer.Option("--pooling", help="Which sentence vectors; the caches' first without it.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option("--layers", help="Some of the layers, with commas: 0,6,final_norm.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", help="With commas, the first chooses the penalty; the task's own without it."),
    ] = None,
    penalties: Annotated[
        str | None,
        typer.Option(
            "--penalties", help="With commas: C of logistic regression (inverse), or alpha of ridge regression."
        ),
    ] = None,
    held_out: Annotated[float, typer.Option("--held-out", help="Share of train that chooses the penalty.")] = 0.2,
    hold_out_domains: Annotated[
        bool, typer.Option("--hold-out-domains", help="Hold out whole domains of train: templates, genres, documents.")
    ] = False,
    resamples: Annotated[int, typer.Option("--resamples", help="Of the bootstrap interval; 0 for none.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="Of the part held out, and of the resamples.")] = 0,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Layers fitted at a time; one a core without it.")
    ] = None,
) -> None:
    """Fit a diagnostic classifier on each layer of TRAIN.h5 and evaluate it on DEV.h5.

    Features are standardised on train, the penalty is chosen on a part of train that is held out, the classifier
    (ridge regression for numbers) is fitted again on all of train, and dev is looked at once.

    Examples:

        probekit probe cola.train.h5 cola.dev.h5 --out cola.parquet

        probekit probe sst2.train.h5 sst2.dev.h5 --pooling first --penalties 0.001,0.01,0.1,1,10
    """
    from probekit.activations import ActivationCache
    from probekit.cli.progress import bar
    from probekit.rows import evidence, write_rows
    from probekit.studies.layers import probe

    if out is not None and out.suffix not in (".parquet", ".csv"):
        raise UsageError(f"--out is a .parquet or .csv file, not {out.name!r}.")
    began = monotonic()
    arguments = {
        "pooling": pooling,
        "layers": _words(layers),
        "metrics": _words(metrics),
        "penalties": None if penalties is None else tuple(_number(word) for word in _words(penalties) or ()),
        "held_out": held_out,
        "hold_out_domains": hold_out_domains,
        "resamples": resamples,
    }
    with ActivationCache(train) as a, ActivationCache(dev) as b:
        with bar() as progress:
            rows = probe(a, b, seed=seed, threads=threads, progress=progress, **arguments)  # type: ignore[arg-type]
        seconds = monotonic() - began
        _show(rows)
        if out is not None:
            card = evidence(caches=(a, b), arguments=arguments, seeds={"seed": seed}, durations={"probe": seconds})
            typer.echo(f"{write_rows(rows, out, card)}  ({len(rows)} rows, {seconds:.1f} s)")


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise UsageError(f"--penalties are numbers with commas between them, {word!r} is none.") from None


def _show(rows: pd.DataFrame) -> None:
    """A table by layer on standard output, the interval beside the value."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from probekit.tasks.metrics import metric

    head = rows.iloc[-1]
    names: Sequence[str] = list(rows["metric"].unique())
    what = ", ".join(filter(None, (head["model"], head["checkpoint"], head["representation"])))
    title = f"{head['task']} {head['split']}, {what}: {head['n']:,} evaluated, {head['n_train']:,} fitted"
    table = Table()
    table.add_column("layer", justify="right")
    for name in names:
        table.add_column(name, justify="right")
        table.add_column("95 % interval", justify="center", style="dim")
    table.add_column("penalty", justify="right")
    fitted = rows[rows["layer_name"] != ""].groupby("metric")["value"]
    best = {name: (fitted.max() if metric(name).higher_is_better else fitted.min())[name] for name in names}
    for _, part in rows.groupby(["layer_name", "estimator"], sort=False):
        first, cells = part.iloc[0], []
        for row in part.set_index("metric").loc[list(names)].itertuples():
            bold = row.value == best[str(row.Index)] and first["layer_name"] != ""
            cells += [
                f"[bold]{row.value:.3f}[/]" if bold else f"{row.value:.3f}",
                f"{row.ci_low:.3f} – {row.ci_high:.3f}",
            ]
        mark = " (edge)" * int(first["penalty_at_edge"]) + " not converged" * (not first["converged"])
        penalty = "" if first["layer_name"] == "" else f"{first['penalty']:g}{mark}"
        table.add_row(first["layer_name"] or first["estimator"], *cells, penalty)
    console = Console()
    console.print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
    console.print(table)
    if left_out := [f"{head[c]:,} in {c[9:]}" for c in ("left_out_train", "left_out_dev") if head[c]]:
        typer.echo(f"unlabelled, left out: {', '.join(left_out)}")
