"""``probekit edges``."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import VectorOptions
from probekit.cli.curves import run_and_show
from probekit.cli.terminal import show_table
from probekit.display import shown_label
from probekit.grid import Column, Format, Grid
from probekit.probes.edges.options import EdgeOptions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["edges"]


def edges(
    train: str,
    dev: str,
    /,
    *more: str,
    metrics: tuple[str, ...] | None = None,
    task: str | None = None,
    data_dir: str | None = None,
    vectors: Annotated[VectorOptions, Parameter(name="*")] = VectorOptions(),
    options: Annotated[EdgeOptions, Parameter(name="*")] = EdgeOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Train edge probes of spans on each layer and on mixes of layers of TRAIN.h5; evaluate them on DEV.h5.

    A span is a phrase, or a word; many tasks label pairs of them. The probe learns which pieces of a span matter, and a
    hidden layer says of each label whether it holds. One probe reads one layer, another one a mix of the first layers,
    with trained weights. Two numbers say where in the model the labels are: the centre of gravity is the mean layer,
    weighted as in the mix of all layers; the expected layer is where adding a layer to the mix makes the probe better.
    Controls: shuffled labels, and a random label for each type of span (control task).

    Examples:

        probekit cache-activations --model minilm --task ud-relations --data-dir ewt --split train --out ud.train.h5

        probekit edges ud.train.h5 ud.dev.h5 --out edges.parquet

        probekit edges ud.train.h5 ud.dev.h5 random.train.h5 random.dev.h5 --probe linear --seeds 3

    Parameters
    ----------
    train
        The cache to train on, of a task about spans or words (ud-relations, conll2000, semeval2010 …).
    dev
        The cache to evaluate on.
    more
        Further pairs of caches, such as those of random weights.
    metrics
        Metrics, separated by commas, the main one first; by default those of the task.
    task
        For caches of the sentences of several tasks (--task A+B): the task to take labels from.
    data_dir
        Folder of the task's files.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) and the predictions on each example
        (.examples.parquet) next to them.
    """
    import probekit

    run_and_show(
        probekit.edges, train, dev, *more, show=lambda curve: _show(curve, options.level), format_=format_,
        metrics=metrics, task=task, data_dir=data_dir, vectors=vectors, options=options, out=out,
    )  # fmt: skip


def _show(rows: pd.DataFrame, level: float) -> None:
    """A table by layer of the main metric: of the layer with its controls, of the mix up to it, and its weight."""
    from probekit.rows import called, layer_labels

    name, head = rows["metric"].iloc[0], rows.iloc[0]
    rows = rows.assign(label=layer_labels(rows))
    main = rows[rows["metric"] == name]
    gold = main[main["representation"] == "attention"]
    mixes = main[(main["representation"] == "mix") & (main["target"] == "gold")].set_index("label")
    weights = rows[rows["metric"] == "mix-weight"].groupby("label")["value"].mean()
    gold, controls = gold[gold["target"] == "gold"], gold[gold["draw"].isna() & (gold["target"] != "gold")]
    columns = [Column("layer", key=True), Column(str(name)), Column(f"{100 * level:g} % interval", align="center")]
    columns += [Column(kind, dim=True) for kind in controls["target"].unique()]
    columns += [Column(f"{name}, mix up to it"), Column("weight in mix")]
    lines = []
    for _, row in gold.iterrows():
        low, high = row["ci_low"], row["ci_high"]
        cells = [row["label"], f"{row['value']:.3f}", f"{low:.3f} – {high:.3f}" if isfinite(low) else ""]
        of = controls[controls["label"] == row["label"]]
        cells += [f"{of.loc[of['target'] == kind, 'value'].mean():.3f}" for kind in controls["target"].unique()]
        cells.append(f"{mixes.loc[row['label'], 'value']:.3f}" if row["label"] in mixes.index else "")
        lines.append([*cells, f"{weights[row['label']]:.3f}" if row["label"] in weights.index else ""])
    constant = main.loc[main["estimator"] == "majority", "value"].iloc[0]
    lines.append(["majority", f"{constant:.3f}", *[""] * (len(columns) - 2)])
    best = int(gold["value"].to_numpy().argmax())
    title = f"{head['task']} {head['split']}, {shown_label(called(rows[rows['site'] != ''].iloc[0]))}"
    title += f": {head['n']:,} spans evaluated, {head['n_train']:,} trained on"
    show_table(Grid(columns, lines, title, {(best, 1)}))
