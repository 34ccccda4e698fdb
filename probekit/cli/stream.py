"""``probekit stream``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.streaming.options import StreamOptions
from probekit.cli.show import saved, say
from probekit.cli.terminal import show_table, tables_as
from probekit.display import shown_label
from probekit.grid import Column, Format, Grid

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["stream"]


def stream(
    *,
    model: str,
    task: str,
    split: str = "train",
    dev: str | None = "dev",
    metrics: tuple[str, ...] | None = None,
    options: Annotated[StreamOptions, Parameter(name="*")] = StreamOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Run a model on a task and analyse its layers in one pass: only sums and a sample of rows are kept.

    Ridge regression, differences of means, LEACE and CKA come from sums over all rows, and equal those from a cache.
    Logistic regression and mutual information come from a random sample of the rows. Probes are evaluated on a second
    split, with intervals, and with probes on random labels as a control. With --state, an interrupted run continues
    where it stopped. Any number of processes can each read a part.

    Examples:

        probekit stream --model gpt2 --task sst2 --analysis mass-mean,ridge,cka --out sst2.parquet

        probekit stream --model gpt2 --task mytask.toml --stream --state my.npz --out my.parquet

        probekit stream --model gpt2 --task corpus.jsonl --analysis cka --pooling last --layers 0:12:3

        probekit stream --model Qwen/Qwen3-0.6B --task chats.toml --stream --positions roles:assistant --pooling mean

        probekit stream --model gpt2 --task claims.toml --positions last:4 --pooling ema:0.9 --analysis ridge

        probekit stream --model bert-base-uncased --task relations.toml --span mean --analysis mass-mean

        probekit stream --model gpt2 --task mytask.toml --stream --part 1/4 --state my.1.npz

        probekit stream --model gpt2 --task my.toml --stream --merge my.1.npz,my.2.npz,my.3.npz,my.4.npz --out my.csv

        probekit stream --model gpt2 --task sst2 --analysis leace --erasers sst2.erasers.npz

    Parameters
    ----------
    model
        A Hub id, or a local folder with config.json and safetensors; minilm; random:MODEL for random weights.
    task
        Name of a task (see *probekit tasks*), a TOML file, or a file of texts (.jsonl, .txt, also .gz).
    split
        Split of the task to fit on.
    dev
        Split of the task to evaluate probes on.
    metrics
        Metrics, separated by commas, the main one first; by default those of the task.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) and the predictions on each example
        (.examples.parquet) next to them.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.stream(
            model, task, split, dev=dev, metrics=metrics, options=options, out=out, progress=progress
        )
    if options.part is not None:
        say(f"part {options.part} is in {options.state}; merge all parts with --merge.")
        return
    with tables_as(format_):
        for _, curve in result.rows[result.rows["analysis"] != "similarity"].groupby(
            ["analysis", "estimator"], sort=False
        ):
            if curve["layer"].notna().any():
                _show(curve)
        if (pairs := result.rows[result.rows["metric"] == "cka"]).size:
            _show_pairs(pairs)
        saved(result)


def _show(rows: pd.DataFrame) -> None:
    """A line for each layer: each metric on gold labels, the interval of the first, and random labels beside it."""
    from probekit.metrics import metric
    from probekit.rows import called, layer_labels

    whole = rows[rows["draw"].isna()].assign(shown=layer_labels(rows))
    gold, noise = (whole[whole["target"] == target] for target in ("gold", "shuffled"))
    names = [name for name in dict.fromkeys(gold["metric"]) if not metric(str(name)).derived]
    head, first = rows.iloc[0], names[0]
    columns = [Column("layer", key=True)]
    for name in names:
        columns.append(Column(str(name)))
        if name == first and gold["ci_low"].notna().any():
            columns.append(Column("interval", align="center", dim=True))
        if name == first and len(noise):
            columns.append(Column("shuffled", dim=True))
    lines = []
    for layer, part in gold.groupby("shown", sort=False):
        cells = [str(layer)]
        for name in names:
            one = part[part["metric"] == name].iloc[0]
            cells.append(f"{one['value']:.3f}")
            if name == first and gold["ci_low"].notna().any():
                cells.append(f"{one['ci_low']:.3f} – {one['ci_high']:.3f}")
            if name == first and len(noise):
                cells.append(f"{noise[(noise['shown'] == layer) & (noise['metric'] == name)]['value'].iloc[0]:.3f}")
        lines.append(cells)
    title = f"{head['task']} {head['split']}, {shown_label(called(head))}, {head['estimator']}: {head['n']:,} rows"
    show_table(Grid(columns, lines, title))


def _show_pairs(rows: pd.DataFrame) -> None:
    """A matrix of the debiased CKA of all pairs of layers."""
    from probekit.rows import called, layer_labels

    of_b = rows.assign(layer=rows["layer_b"], site=rows["site_b"])
    table = rows.assign(a=layer_labels(rows), b=layer_labels(of_b))
    names = list(dict.fromkeys(table["a"]))
    values = table.set_index(["a", "b"])["value"]
    head = rows.iloc[0]
    title = f"{head['task']} {head['split']}, {shown_label(called(head))}, CKA: {head['n']:,} rows"
    lines = [[name, *(f"{values[name, other]:.3f}" for other in names)] for name in names]
    show_table(Grid([Column("layer", key=True), *(Column(name) for name in names)], lines, title))
