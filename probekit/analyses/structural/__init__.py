"""Structural probes: maps under which the distances of words are those in their tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Corrected, Reads
from probekit.constraint import WRITTEN
from probekit.grid import Column
from probekit.probes.trees.options import StructuralOptions
from probekit.public import public
from probekit.runtime import Progress, no_progress
from probekit.view import EACH, Cells, Options, View, by_layer, interval, lines_of

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result
    from probekit.tasks import Task

STRUCTURAL = ("uuas", "distance-spearman", "root-accuracy", "depth-spearman")
ARCS = ("uas", "las", "relation-accuracy", "uuas")


@public(vectors=VectorOptions, options=StructuralOptions)
def structural(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    task: str | Task | None = None,
    data_dir: str | Path | None = None,
    keep: Annotated[Path | None, WRITTEN] = None,
    vectors: VectorOptions,
    options: StructuralOptions,
    progress: Progress = no_progress,
) -> Result:
    """Fit structural probes on each layer of TRAIN.h5 and evaluate them on DEV.h5, with controls.

    A structural probe is a linear map under which the squared distance of two words is the number of edges between
    them in the dependency tree; a second map gives the depth of words (Hewitt & Manning 2019). Words are the means of
    their pieces. Controls: probes of trees of other sentences of the same length (shuffled), and the tree in which each
    word hangs on the one before (linear chain). With ``arcs`` a biaffine parser (Dozat & Manning 2017) is fitted, too:
    how much of the trees a stronger probe finds. Words with the relation "punct" are not counted in scores of edges,
    roots and arcs.

    Parameters
    ----------
    train : path or ActivationCache
        The cache to fit on, of a task that labels the relation of each word to its head, such as ud-relations.
    dev : path or ActivationCache
        The cache to evaluate on.
    *more : path or ActivationCache
        Further pairs of caches, such as those of random weights; their rows follow.
    task : str or Task, optional
        For caches of the sentences of several tasks (``task="A+B"``): the task with the relations.
    data_dir : path, optional
        Folder of the task's files.
    keep : path, optional
        A folder for the probe of each layer: its maps of distances and depths, as arrays (rank, d). Of several
        ranks, the one with the lowest loss on held-out sentences of train is kept. One pair of caches only.
        Kept probes of the same model and task are replaced there, unless a layer would be lost.
    vectors : VectorOptions
        ``layers`` and ``groups``; each may be given as a keyword.
    options : StructuralOptions
        ``ranks``, ``controls``, ``arcs``, ``epochs``, ``seed`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        For each layer, the estimators "structural-RANK" (also in the column ``rank``): "uuas", the share of the
        undirected edges of gold trees in the minimum spanning trees of predicted distances; "distance-spearman" and
        "depth-spearman", Spearman's coefficient over the words of sentences of 5 to 50 words, averaged by length;
        "root-accuracy". With ``arcs`` the estimator "biaffine": "uuas" of its trees; "uas", the share of words with
        the right head; "las", that of words with the right head and relation; "relation-accuracy", that of right
        relations for gold heads. Each has an interval over groups of sentences, or the reason for none in ``why``.
        "difference(uuas)" is uuas minus that of the linear chain on the same sentences, with an interval and with p by
        exchange of the two (as in :func:`probekit.compare`), corrected over all probes and models. Rows of the target
        "shuffled" are probes of trees of other sentences of the same length; the estimator "linear-chain" is the tree
        in which each word hangs on the one before. Examples of the predictions are the edges of gold trees, found (1)
        or not (0) by each probe, so that :func:`probekit.compare` and :func:`probekit.summary` take the result.

    Raises
    ------
    UsageError
        If a cache has no heads of words, or for an unknown layer.
    DataError
        If a sentence is not a tree.
    CacheMismatch
        If the two caches of a pair do not match.

    References
    ----------
    Hewitt & Manning 2019, A Structural Probe for Finding Syntax in Word Representations, sections 2 to 4.

    Examples
    --------
    >>> result = probekit.structural("ud.train.h5", "ud.dev.h5", ranks=(32, 64))  # doctest: +SKIP

    On the command line::

        probekit cache-activations --model minilm --task ud-relations --data-dir ewt --split train --out ud.train.h5
        probekit structural ud.train.h5 ud.dev.h5 --ranks 16,64 --out trees.parquet
        probekit structural ud.train.h5 ud.dev.h5 --layers 3,6 --arcs
        probekit structural ud.train.h5 ud.dev.h5 --layers 3 --keep kept/trees
        probekit structural ud.train.h5 ud.dev.h5 random.train.h5 random.dev.h5
    """
    from probekit.analyses.structural.measure import measure
    from probekit.analyses.train_dev import Pairs

    return measure(Pairs((train, dev, *more)), task, data_dir, keep, vectors, options, progress)


def _lined(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for the linear chain, and for each layer and rank; a table of structural probes, and one of parsers."""
    import pandas as pd

    rows = by_layer(rows)
    rank = rows["rank"].map("{:g}".format, na_action="ignore").fillna("")
    rows = rows.assign(line=lines_of(rows["line"].replace("", "linear chain"), rank))
    arcs = rows["estimator"] == "biaffine"
    chain = rows["site"] == ""
    kinds = [rows[~arcs].assign(kind="structural probes")]
    if arcs.any():
        kinds.append(rows[arcs | chain].assign(kind="biaffine arcs"))
    return pd.concat(kinds)


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    first, *others = STRUCTURAL if rows["kind"].iloc[0] == "structural probes" else ARCS
    yield Cells(first, first, best=True)
    yield Cells(interval(options), first, "interval", dim=True, align="center")
    yield Cells("shuffled", first, target="shuffled", over="mean", dim=True)
    for name in others:
        yield Cells(name, name)


def _title(rows: pd.DataFrame, options: Options) -> str:
    last = rows[rows["target"] == "gold"].iloc[-1]
    return f", {last['kind']}: {last['n']:,} sentences evaluated, {last['n_train']:,} fitted"


VIEW = View(
    _cells, _title, each=(*EACH, "kind"), keys=(Column("layer", key=True), Column("rank", label=True)), lined=_lined
)
ANALYSIS = Analysis(
    name="structural",
    help="Fit structural probes: trees in the distances of words.",
    title="Structural probes",
    reads=Reads.PAIRS,
    corrected=Corrected.TASK,
    judge="probekit.analyses.structural.sentences:sentences",
    view="probekit.analyses.structural:VIEW",
    layered=True,
    controls={"shuffled": "shuffled trees"},
    place=55,
    in_suites=60.0,
    board="probekit.analyses.scoreboard.lines:lines_of_trees",
    of_one_label=(
        "edge of a gold tree whether it was found",
        'Probes of shuffled trees are the rows of the target "shuffled" (probekit plot layers draws them).',
    ),
)
