"""Edge probes: spans in each layer, and in mixes of layers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Reads
from probekit.constraint import WRITTEN
from probekit.probes.edges.options import EdgeOptions
from probekit.public import public
from probekit.runtime import Progress, no_progress
from probekit.view import Cells, Options, View, by_layer, interval

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result
    from probekit.tasks import Task


@public(vectors=VectorOptions, options=EdgeOptions)
def edges(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    metrics: tuple[str, ...] | str | None = None,
    task: str | Task | None = None,
    data_dir: str | Path | None = None,
    keep: Annotated[Path | None, WRITTEN] = None,
    vectors: VectorOptions,
    options: EdgeOptions,
    progress: Progress = no_progress,
) -> Result:
    """Train edge probes of spans on each layer of a cache and on mixes of layers; evaluate them on another cache.

    A span is a phrase, or a word; many tasks label pairs of them. The probe (Tenney et al. 2019) learns which pieces of
    a span matter, and a hidden layer says of each label whether it holds. One probe reads one layer, another one a mix
    of the first layers, with trained weights (Tenney, Das & Pavlick 2019). Two numbers say where in the model the
    labels are: the centre of gravity is the mean layer, weighted as in the mix of all layers; the expected layer is
    where adding a layer to the mix makes the probe better. All probes are trained on the same batches, and stopped by
    their loss on a held-out part of train. Controls: shuffled labels, and a random label for each type of span (control
    task).

    Parameters
    ----------
    train : path or ActivationCache
        The cache to train on, of a task about spans or words (ud-relations, conll2000, semeval2010 …).
    dev : path or ActivationCache
        The cache to evaluate on.
    *more : path or ActivationCache
        Further pairs of caches, such as those of random weights; their rows follow.
    metrics : tuple of str, optional
        Metrics, separated by commas, the main one first; by default those of the task.
    task : str or Task, optional
        For caches of the sentences of several tasks (``task="A+B"``): the task to take labels from.
    data_dir : path, optional
        Folder of the task's files.
    keep : path, optional
        A folder for the probes of single layers: :meth:`probekit.Probe.predict_proba` takes the pieces of a
        layer and spans. Mixes are not kept. One pair of caches only.
        Kept probes of the same model and task are replaced there, unless a layer would be lost.
    vectors : VectorOptions
        ``layers`` and ``groups``; each may be given as a keyword.
    options : EdgeOptions
        ``probe``, ``steps``, ``controls``, ``seeds``, ``seed`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        As of :func:`probekit.probe`, a row for each metric and probe: of a layer (representation "attention"), for gold
        labels and controls, and of the mix up to a layer ("mix"). "mix-weight": the share of each layer in the mix of
        all layers, for each of ``seeds`` trainings, and its factor ``gamma``. "centre-of-gravity": the mean layer under
        these weights, averaged over trainings, with Student's interval if there are several. "expected-layer": where
        the ``of_metric`` of mixes rises on average, with an interval over resampled groups of sentences. Predictions
        of each probe for each target; where several labels can hold at once, for each target and label.

    Raises
    ------
    CacheMismatch
        If the two caches of a pair do not match.
    NonFiniteError
        If a layer contains NaN; the message names the layer.
    UsageError
        For an odd number of caches, a task without spans, one label only, an unknown layer or metric.

    References
    ----------
    Tenney et al. 2019, What Do You Learn from Context?, section 3 and appendix C; Tenney, Das & Pavlick 2019, BERT
    Rediscovers the Classical NLP Pipeline, section 3.

    Examples
    --------
    >>> result = probekit.edges("ud.train.h5", "ud.dev.h5", seeds=3)  # doctest: +SKIP

    On the command line::

        probekit cache-activations --model minilm --task ud-relations --data-dir ewt --split train --out ud.train.h5
        probekit edges ud.train.h5 ud.dev.h5 --out edges.parquet
        probekit edges ud.train.h5 ud.dev.h5 --layers 3 --keep kept/ud
        probekit edges ud.train.h5 ud.dev.h5 random.train.h5 random.dev.h5 --probe linear --seeds 3
    """
    from probekit.analyses.edges.measure import measure
    from probekit.analyses.train_dev import Pairs

    return measure(Pairs((train, dev, *more)), metrics, task, data_dir, keep, vectors, options, progress)


def _lined(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each layer, and for the most frequent label."""
    import pandas as pd

    rows = by_layer(rows)
    constant = rows["estimator"] == "majority"
    return pd.concat([rows[~constant], rows[constant].assign(line="majority", representation="attention")])


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    """The main metric of the layer with its controls, and of the mix up to it, and its weight in that of all."""
    name = str(rows["metric"].iloc[0])
    layer, mix = {"representation": "attention"}, {"representation": "mix"}
    yield Cells(name, name, where=layer, best=True)
    yield Cells(interval(options), name, "interval", where=layer, align="center")
    its = rows[(rows["metric"] == name) & (rows["representation"] == "attention") & rows["draw"].isna()]
    for kind in its["target"].unique():
        if kind != "gold":
            yield Cells(kind, name, target=kind, over="mean", where=layer, dim=True)
    yield Cells(f"{name}, mix up to it", name, where=mix)
    yield Cells("weight in mix", "mix-weight", over="mean")


VIEW = View(
    _cells,
    lambda rows, options: f": {rows['n'].iloc[0]:,} spans evaluated, {rows['n_train'].iloc[0]:,} trained on",
    lined=_lined,
)
ANALYSIS = Analysis(
    name="edges",
    help="Train edge probes of spans: layers, and mixes of layers.",
    title="Edge probes",
    reads=Reads.PAIRS,
    judge="probekit.analyses.edges.sentences:sentences",
    view="probekit.analyses.edges:VIEW",
    layered=True,
    place=50,
    in_suites=120.0,
    board="probekit.analyses.scoreboard.lines:lines_of_predictions",
)
