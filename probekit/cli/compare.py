"""``probekit compare`` and ``probekit summary``: from evaluated examples to differences and curve statistics."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from probekit.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare_command", "summary_command"]

Metric = Annotated[
    str | None, typer.Option("--metric", help="One of the table's, or log-loss; the table's first without it.")
]
Resamples = Annotated[int, typer.Option("--resamples", min=100, help="Of the examples.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the resamples.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Write the rows: .parquet or .csv, an evidence card (.json) beside it.")
]


def compare_command(
    first: Annotated[
        Path, typer.Argument(metavar="A.examples.parquet", help="What probekit probe or probekit train wrote.")
    ],
    second: Annotated[
        Path | None, typer.Argument(metavar="[B.examples.parquet]", help="Another model, on the same examples.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="layer-0 (any layer-NAME), best, shuffled, control-task or random. "
            "Without it: B layer by layer, or layer-0 where there is no B.",
        ),
    ] = None,
    metric: Metric = None,
    correction: Annotated[str, typer.Option("--correction", help="Over the layers: max-t or holm.")] = "max-t",
    tails: Annotated[
        str, typer.Option("--tails", help="two-sided, or better: only being better counts.")
    ] = "two-sided",
    resamples: Resamples = 2000,
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Paired differences on the same examples, with intervals and p-values corrected over the layers.

    The interval is one layer's percentile bootstrap; p-values come from sign flips, which hold their level on small
    samples, too. Near a bound the two may differ; p adjusted is the one to go by.

    Examples:

        probekit compare cola.examples.parquet --against shuffled --tails better

        probekit compare cola.examples.parquet --against best --metric matthews

        probekit compare fine-tuned.examples.parquet pretrained.examples.parquet --out difference.parquet

        probekit compare runs/mrpc/dev.examples.parquet runs/mrpc-esim/dev.examples.parquet
    """
    from probekit.rows import check_out
    from probekit.statistics.comparisons import Correction, Tails, compare
    from probekit.statistics.predictions import Predictions

    chosen = {"correction": _choice(Correction, correction), "tails": _choice(Tails, tails)}
    check_out(out)
    began = monotonic()
    options: dict[str, Any] = {"against": against, "metric": metric, "resamples": resamples, "seed": seed}
    other = None if second is None else Predictions.read(second)
    rows = compare(Predictions.read(first), other, **options, **chosen)
    head = rows.iloc[0]
    same = rows["against"].nunique() == 1
    what = head["against"] if same else "what stands beside it"
    title = f"{head['task']} {head['split']}, {head['of_metric']} minus {what}, {head['n']:,} examples"
    _show(rows, title, by="layer_name", more=("p", "p_adjusted") if same else ("against", "p", "p_adjusted"))
    _write(rows, out, {**options, **{k: str(v) for k, v in chosen.items()}}, seed, monotonic() - began)


def summary_command(
    tables: Annotated[
        list[Path], typer.Argument(metavar="A.examples.parquet…", help="What probekit probe wrote beside its rows.")
    ],
    metric: Metric = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Layer curves in a few numbers, with intervals: best layer, centre of gravity, expected layer, first good layer.

    Examples:

        probekit summary cola.examples.parquet sst2.examples.parquet --out summary.parquet
    """
    import pandas as pd

    from probekit.rows import check_out
    from probekit.statistics.curves import curve_summary
    from probekit.statistics.predictions import Predictions

    check_out(out)
    began = monotonic()
    options: dict[str, Any] = {"metric": metric, "resamples": resamples, "seed": seed}
    rows = pd.concat([curve_summary(Predictions.read(path), **options) for path in tables], ignore_index=True)
    if rows.empty:
        raise UsageError("there is no layer curve in these tables.")
    _show(rows, "Layers", by="metric")
    _write(rows, out, options, seed, monotonic() - began)


def _choice(kind: type[StrEnum], word: str) -> Any:
    try:
        return kind(word)
    except ValueError:
        raise UsageError(f"there are {' and '.join(kind)}, not {word!r}.") from None


def _write(rows: pd.DataFrame, out: Path | None, arguments: dict[str, Any], seed: int, seconds: float) -> None:
    from probekit.rows import evidence, write_rows

    if out is not None:
        card = evidence(arguments=arguments, seeds={"seed": seed}, durations={"compare": seconds})
        typer.echo(f"{write_rows(rows, out, card)}  ({len(rows)} rows, {seconds:.1f} s)")


def _show(rows: pd.DataFrame, title: str, *, by: str, more: tuple[str, ...] = ()) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from probekit.rows import called

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("curve", by.replace("_name", ""), "value"):
        table.add_column(name, justify="left" if name == "curve" else "right")
    table.add_column("95 % interval", justify="center", style="dim")
    for name in more:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows.to_dict("records"):
        curve = f"{row['task']}, {called(row)}"
        low, high = row["ci_low"], row["ci_high"]
        interval = "" if low != low else f"{low:.3f} – {high:.3f}"  # NaN
        value = "undetermined" if row["value"] != row["value"] else f"{row['value']:.3f}"
        table.add_row(escape(curve), str(row[by]), value, interval, *(_cell(row[name]) for name in more))
    console = Console()
    console.print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
    console.print(table)


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
