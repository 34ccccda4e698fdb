"""Analyses in one pass over texts that are never stored: sums over the rows, and a sample of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.analyses.stream.options import StreamOptions
from probekit.analysis import Analysis
from probekit.grid import Grid
from probekit.public import public
from probekit.rows.schema import layer_labels
from probekit.runtime import Progress, no_progress
from probekit.view import EACH, Cells, Options, View, by_layer, interval

if TYPE_CHECKING:
    import pandas as pd

    from probekit.models.encoder import Encoder
    from probekit.rows import Result
    from probekit.tasks import Task


@public(options=StreamOptions)
def stream(
    model: str | Path | Encoder,
    task: str | Path | Task,
    split: str = "train",
    *,
    dev: str | None = "dev",
    metrics: tuple[str, ...] | str | None = None,
    options: StreamOptions,
    progress: Progress = no_progress,
) -> Result:
    """Run a model on a task and analyse its layers in one pass: only sums and a sample of rows are kept.

    Ridge regression, differences of means, LEACE and CKA come from sums over all rows (means, products, and their
    products with the labels, for each fold), and equal those from a cache. Logistic regression and mutual information
    come from a random sample of the rows. Probes are evaluated on a second split, with intervals, and with probes on
    random labels as a control, as by :func:`probekit.probe`. With ``state``, an interrupted run continues where it
    stopped. Any number of processes can each read a part.

    Parameters
    ----------
    model : str, path or Encoder
        A Hub id, or a local folder with config.json and safetensors; minilm; random:MODEL for random weights.
    task : str, path or Task
        Name of a task (see *probekit tasks*), a TOML file, or a file of texts (.jsonl, .txt, also .gz).
    split : str
        Split of the task to fit on.
    dev : str, optional
        Split of the task to evaluate probes on.
    metrics : tuple of str, optional
        Metrics, separated by commas, the main one first; by default those of the task.
    options : StreamOptions
        ``analysis``, ``pooling``, ``positions``, ``state``, ``part`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows as those of :func:`probekit.probe`, :func:`probekit.similarity` and :func:`probekit.mi`, and those of
        erasers; the predictions for each example of dev. For a part, no rows.

    Raises
    ------
    UsageError
        For options that do not fit, texts without a piece at the positions, states of other jobs, and missing parts.
    DataError
        If a state is damaged.
    NonFiniteError
        If a vector is NaN or infinite; the message names example and layer.

    Examples
    --------
    >>> result = probekit.stream("gpt2", "sst2", analysis=("ridge", "cka"), state="sst2.npz")  # doctest: +SKIP

    On the command line::

        probekit stream --model gpt2 --task sst2 --analysis mass-mean,ridge,cka --out sst2.parquet
        probekit stream --model gpt2 --task mytask.toml --stream --state my.npz --out my.parquet
        probekit stream --model gpt2 --task corpus.jsonl --analysis cka --pooling last --layers 0:12:3
        probekit stream --model Qwen/Qwen3-0.6B --task chats.toml --stream --positions roles:assistant --pooling mean
        probekit stream --model gpt2 --task claims.toml --positions last:4 --pooling ema:0.9 --analysis ridge
        probekit stream --model bert-base-uncased --task relations.toml --span mean --analysis mass-mean
        probekit stream --model gpt2 --task mytask.toml --stream --part 1/4 --state my.1.npz
        probekit stream --model gpt2 --task my.toml --stream --merge my.1.npz,my.2.npz,my.3.npz,my.4.npz --out my.csv
        probekit stream --model gpt2 --task sst2 --analysis leace --erasers sst2.erasers.npz
    """
    from probekit.analyses.stream.measure import measure

    return measure(model, (task, split, dev), metrics, options, progress)


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    """Each metric on gold labels, the interval of the first, and random labels beside it."""
    from probekit.metrics import metric

    first, *others = [name for name in rows["metric"].unique() if not metric(str(name)).derived]
    yield Cells(first, first)
    yield Cells(interval(options), first, "interval", dim=True, align="center")
    yield Cells("shuffled", first, target="shuffled", dim=True)
    for name in others:
        yield Cells(name, name)


def _pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each layer; "other" is the layer that it is compared with."""
    return by_layer(rows).assign(other=layer_labels(rows.assign(layer=rows["layer_b"], site=rows["site_b"])))


CURVES = View(
    _cells,
    title=lambda rows, options: f", {rows['estimator'].iloc[0]}: {rows['n'].iloc[0]:,} rows",
    each=(*EACH, "analysis", "estimator"),
)
CKA = View(
    lambda rows, options: (Cells(name, "cka", where={"other": name}) for name in rows["line"].unique()),
    title=lambda rows, options: f", CKA: {rows['n'].iloc[0]:,} rows",
    lined=_pairs,
)


def view(rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid | None, list[str]]]:
    """A table for each analysis, and the CKA of all pairs of layers; where a part was read, what to do with it."""
    if options["part"] is not None:
        yield None, [f"part {options['part']} is read; merge the states of all parts with --merge."]
    else:
        yield from CURVES(rows[(rows["analysis"] != "similarity") & (rows["site"] != "")], options)
        if len(pairs := rows[rows["metric"] == "cka"]):
            yield from CKA(pairs, options)


ANALYSIS = Analysis(
    name="stream",
    help="Analyse layers in one pass over texts, without a cache.",
    title="Erasers",
    judge="probekit.analyses.stream.sentences:sentences",
    view="probekit.analyses.stream:view",
    place=10,
)
