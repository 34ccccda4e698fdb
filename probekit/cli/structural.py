"""``probekit structural``."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import VectorOptions
from probekit.cli.curves import run_and_show
from probekit.cli.terminal import show_table
from probekit.display import shown_label
from probekit.grid import Column, Format, Grid
from probekit.probes.trees.options import StructuralOptions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["structural"]

STRUCTURAL = ("uuas", "distance-spearman", "root-accuracy", "depth-spearman")
ARCS = ("uas", "las", "relation-accuracy", "uuas")


def structural(
    train: str,
    dev: str,
    /,
    *more: str,
    task: str | None = None,
    data_dir: str | None = None,
    vectors: Annotated[VectorOptions, Parameter(name="*")] = VectorOptions(),
    options: Annotated[StructuralOptions, Parameter(name="*")] = StructuralOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Fit structural probes on each layer of TRAIN.h5 and evaluate them on DEV.h5, with controls.

    A structural probe is a linear map under which the squared distance of two words is the number of edges between
    them in the dependency tree; a second map gives the depth of words. Controls: probes of trees of other sentences of
    the same length (shuffled), and the tree in which each word hangs on the one before (linear chain). With --arcs a
    biaffine parser is fitted, too: how much of the trees a stronger probe finds.

    Examples:

        probekit cache-activations --model minilm --task ud-relations --data-dir ewt --split train --out ud.train.h5

        probekit structural ud.train.h5 ud.dev.h5 --ranks 16,64 --out trees.parquet

        probekit structural ud.train.h5 ud.dev.h5 --layers 3,6 --arcs

        probekit structural ud.train.h5 ud.dev.h5 random.train.h5 random.dev.h5

    Parameters
    ----------
    train
        The cache to fit on, of a task that labels the relation of each word to its head, such as ud-relations.
    dev
        The cache to evaluate on.
    more
        Further pairs of caches, such as those of random weights.
    task
        For caches of the sentences of several tasks (--task A+B): the task with the relations.
    data_dir
        Folder of the task's files.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit

    def show(curve: pd.DataFrame) -> None:
        biaffine = curve["estimator"] == "biaffine"
        _show(curve[~biaffine], STRUCTURAL, options.level)
        if biaffine.any():
            _show(curve[biaffine | (curve["estimator"] == "linear-chain")], ARCS, options.level)

    run_and_show(
        probekit.structural, train, dev, *more, show=show, format_=format_,
        task=task, data_dir=data_dir, vectors=vectors, options=options, out=out,
    )  # fmt: skip


def _show(rows: pd.DataFrame, names: Sequence[str], level: float) -> None:
    """A table by layer and rank: each score, the interval of the first, and the first on shuffled trees."""
    from probekit.rows import called, layer_labels

    columns = [Column("layer", key=True), Column("rank", label=True), Column(names[0])]
    columns += [Column(f"{100 * level:g} % interval", align="center", dim=True), Column("shuffled", dim=True)]
    columns += [Column(name) for name in names[1:]]
    lines, bold = [], set()
    gold, first = rows[rows["target"] == "gold"], rows[rows["metric"] == names[0]]
    best = float(first.loc[(first["target"] == "gold") & (first["site"] != ""), "value"].max())
    for i, ((layer, rank), part) in enumerate(gold.groupby([layer_labels(gold), gold["rank"].fillna(0)], sort=False)):
        values = dict(zip(part["metric"], part["value"], strict=True))
        low, high = map(float, part.loc[part["metric"] == names[0], ["ci_low", "ci_high"]].iloc[0])
        same = (layer_labels(first) == layer) & (first["rank"].fillna(0) == rank)
        noise = first.loc[same & (first["target"] == "shuffled"), "value"]
        cells = [str(layer) or "linear chain", f"{rank:g}" if rank else "", f"{values[names[0]]:.3f}"]
        cells.append(f"{low:.3f} – {high:.3f}" if isfinite(low) else "")
        cells.append("" if noise.empty else f"{noise.mean():.3f}")
        lines.append([*cells, *(f"{values[name]:.3f}" if name in values else "" for name in names[1:])])
        bold |= {(i, 2)} if layer and values[names[0]] == best else set()
    head = rows[rows["target"] == "gold"].iloc[-1]
    method = "biaffine arcs" if names == ARCS else "structural probes"
    title = f"{method}, {head['task']} {head['split']}, {shown_label(called({**head, 'estimator': ''}))}"
    title += f": {head['n']:,} sentences evaluated, {head['n_train']:,} fitted"
    show_table(Grid(columns, lines, title, bold))
