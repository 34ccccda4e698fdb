"""``probekit pairs``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import PairOptions
from probekit.cli.show import saved
from probekit.cli.terminal import show_table, tables_as
from probekit.grid import Column, Format, Grid

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["pairs"]

MOST = 20
"""Paradigms that the table lists; all are in the rows."""


def pairs(
    source: str,
    task: str,
    /,
    *,
    data_dir: str | None = None,
    pooling: str | None = None,
    layers: tuple[int | str, ...] | None = None,
    device: str = "auto",
    dtype: str = "float32",
    random_weights: int | None = None,
    revision: str | None = None,
    model_name: str | None = None,
    batch_tokens: int = 4096,
    options: Annotated[PairOptions, Parameter(name="*")] = PairOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Count the minimal pairs in which a model prefers the acceptable sentence.

    A minimal pair is two sentences that differ in one property; one of them is acceptable. If SOURCE is a language
    model, it scores both sentences, and the one with the higher score is preferred. If SOURCE is a cache of the
    sentences, a linear probe on each layer says which one is preferred; it is fitted to pairs of other phenomena.

    Examples:

        probekit pairs gpt2 blimp --data-dir blimp/data --by-layer --out pairs.parquet

        probekit pairs bert-base-uncased agreement --data-dir UD_English-EWT --by distance,attractors

        probekit pairs gpt2 mine.tsv --scores mean-log-probability

        probekit cache-activations --model minilm --task blimp --data-dir blimp/data --split test --out blimp.h5

        probekit pairs blimp.h5 blimp --data-dir blimp/data

    Parameters
    ----------
    source
        A language model with its head (hub id or folder), or a cache of the pairs' sentences (.h5).
    task
        blimp, marvin-linzen or agreement[:TREEBANK]; a part, such as blimp:island_effects; or your own FILE.tsv (.csv,
        .jsonl) with the columns good and bad, and if you like paradigm, phenomenon and others for --by.
    data_dir
        Folder with the files of blimp, marvin-linzen or the treebank.
    pooling
        For caches: how the pieces of a sentence become one vector (default: the first in the cache).
    layers
        For caches: layers to probe, separated by commas: 0,4-6 (default: all).
    device
        auto, cpu, cuda, cuda:N or mps.
    dtype
        Precision of the model's weights: float32, float16 or bfloat16.
    random_weights
        Control: draw the weights at random with this seed instead of the trained ones.
    revision
        Branch, tag or commit of the model on the hub.
    model_name
        Name of the model in tables (default: the hub id, or the folder's name).
    batch_tokens
        Pieces that the model reads at once.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) and the predictions next to them.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.pairs(
            source, task, data_dir=data_dir, pooling=pooling, layers=layers, device=device, dtype=dtype,
            random_weights=random_weights, revision=revision, model_name=model_name, batch_tokens=batch_tokens,
            options=options, out=out, progress=progress,
        )  # fmt: skip
    with tables_as(format_):
        _show(result.rows, options.level)
        saved(result)


def _show(rows: pd.DataFrame, level: float) -> None:
    """The accuracy of each score (of each layer) on all pairs, and on each field, phenomenon and value."""
    gold = rows[rows["target"] == "gold"]
    groups = gold[["level", "of"]].drop_duplicates()
    few = groups[(groups["level"] != "paradigm") | ((groups["level"] == "paradigm").sum() <= MOST)]
    whole = gold[gold["layer"].isna()]
    if len(whole):
        names = list(dict.fromkeys(whole["estimator"]))
        columns = [Column("pairs", key=True), Column("of"), Column("n")]
        for name in names:
            columns += [Column(name), Column(f"{100 * level:g} %", align="center", dim=True)]
        lines = []
        for at, of in few.itertuples(index=False):
            part = whole[(whole["level"] == at) & (whole["of"] == of)].set_index("estimator")
            cells = [at, of, f"{part['n'].iloc[0]:,}"]
            for name in names:
                row = part.loc[name]
                cells += [f"{row['value']:.3f}", _interval(row)]
            lines.append(cells)
        show_table(Grid(columns, lines, _title(whole)))
    for (estimator, kind), part in gold[gold["layer"].notna()].groupby(["estimator", "representation"], sort=False):
        _layers(part, rows[(rows["target"] == "shuffled") & (rows["level"] == "all")], f"{estimator}, {kind}")


def _layers(rows: pd.DataFrame, noise: pd.DataFrame, name: str) -> None:
    """A table by layer: all pairs with an interval, the control, and each field or phenomenon."""
    from probekit.rows import layer_labels

    level = next(at for at in ("field", "phenomenon", "paradigm") if (rows["level"] == at).any())
    ofs = list(dict.fromkeys(rows.loc[rows["level"] == level, "of"]))[:8]
    columns = [Column("layer", key=True), Column("all"), Column("interval", align="center", dim=True)]
    columns += [Column("exchanged", dim=True)] if len(noise) else []
    columns += [Column(of) for of in ofs]
    lines = []
    for layer, part in rows.groupby(layer_labels(rows), sort=False):
        every = part[part["level"] == "all"].iloc[0]
        cells = [str(layer), f"{every['value']:.3f}", _interval(every)]
        if len(noise):
            cells.append(f"{noise.loc[layer_labels(noise) == layer, 'value'].mean():.3f}")
        values = part[part["level"] == level].set_index("of")["value"]
        lines.append([*cells, *(f"{values[of]:.3f}" for of in ofs)])
    show_table(Grid(columns, lines, f"{_title(rows)}, {name}"))


def _interval(row: pd.Series) -> str:
    return "" if row[["ci_low"]].isna().any() else f"{row['ci_low']:.3f} – {row['ci_high']:.3f}"


def _title(rows: pd.DataFrame) -> str:
    head = rows.iloc[0]
    return f"{head['task']}, {head['model']}" + (f", {head['checkpoint']}" if head["checkpoint"] else "")
