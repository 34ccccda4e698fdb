"""Mutual information of each layer and the labels, in bits, with its noise level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Corrected, Reads
from probekit.information.options import InformationOptions
from probekit.public import public
from probekit.runtime import Progress, no_progress
from probekit.view import EACH, Cells, View

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result

BITS = "mutual-information"
MARKS = {"undetermined": "?", "warning": "†"}  # no asterisks: beside a number they read as significance


@public(vectors=VectorOptions, options=InformationOptions, faster="controls=0")
def mi(
    *caches: str | Path | ActivationCache,
    vectors: VectorOptions,
    options: InformationOptions,
    progress: Progress = no_progress,
) -> Result:
    """Estimate the mutual information of each layer of a cache and the labels, in bits, with a noise level.

    The default estimator, edge, finds directions on some examples, measures on others, and subtracts the value for
    shuffled labels. An estimate that cannot be distinguished from noise is marked as undetermined, with the reason. p
    is corrected over the layers of a curve. Further caches (for example, of the same model with random weights) and
    further estimators add curves to the same rows.

    For one array of vectors and its labels, call :func:`probekit.mutual_information`, which is applied here to each
    layer. Values are lower bounds: they do not
    include information that the estimator does not detect. Examples of one group (words of a sentence, equal vectors,
    groups of the cache) share a fold and are shuffled and counted as a whole.

    Parameters
    ----------
    *caches : path or ActivationCache
        Caches of one or several models (also with random weights), splits or tasks. Each gives a curve per estimator,
        whose p-values are corrected only for the layers of that curve. Tasks that label words are measured word by
        word; vectors [u; v] of separately encoded pairs become ``[u; v; |u - v|; u * v]``.
    vectors : VectorOptions
        ``pooling`` and ``layers``; each may be given as a keyword.
    options : InformationOptions
        ``estimator``, ``draws``, ``controls``, ``seed`` and ``threads``; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        For each layer and estimator a row in bits with target "gold", and one with target "shuffled" for the noise
        level; see :func:`probekit.information.curves.layer_information`. The additional column ``random_weights``
        holds the seed of a randomly initialised model.

    Raises
    ------
    UsageError
        Before measuring, for an unknown estimator, layer or pooling, for an estimator that does not fit the labels of
        a cache, and for two caches with indistinguishable curves.
    NonFiniteError
        If a layer contains NaN; the message names the layer.

    See Also
    --------
    probekit.mutual_information : One estimate, from arrays.

    References
    ----------
    Peters, Ruder & Smith (2019), "To Tune or Not to Tune?", Figure 2; Noshad, Zeng & Hero (2019), "Scalable Mutual
    Information Estimation Using Dependence Graphs", ICASSP.

    Examples
    --------
    >>> result = probekit.mi("cola.train.h5", "cola.train-random.h5", estimator=("edge", "knn"))  # doctest: +SKIP
    >>> result.plot()  # doctest: +SKIP

    On the command line::

        probekit mi cola.train.h5 --out cola.parquet
        probekit mi cola.train.h5 cola.train-random.h5 --estimator edge,edge-4.3.1 --out cola.parquet
        probekit mi pos.train.h5 --layers 0,6,12 --draws 200
        probekit plot layers cola.parquet --out layers.pdf
    """
    from probekit.analyses.mi.measure import measure

    return measure(caches, vectors, options, progress)


def _cells(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[Cells]:
    marks = dict(_marks(rows))

    def bits(row: Mapping[str, Any]) -> str:
        number = f"{row['value']:.3f}" if isfinite(row["value"]) else ""
        return " ".join((number, *(marks[column, row[column]] for column in MARKS if row[column]))).strip()

    def bound(row: Mapping[str, Any]) -> str:
        low, high = row["ci_low"], row["ci_high"]
        if not isfinite(low):
            return ""
        return f"{low:.3f} – {high:.3f}" if row["undetermined"] else f"{low:.3f}"

    yield Cells("bits", BITS, form=bits, best=True)
    yield Cells("at least (97.5 %)", BITS, form=bound, align="center", dim=True)
    yield Cells("noise, 97.5 %", BITS, "ci_high", target="shuffled", dim=True)
    yield Cells("p adjusted", BITS, "p_adjusted", "p")
    yield Cells("share", BITS, "share", ".1%")
    yield Cells("raw", BITS, "raw")


def _title(rows: pd.DataFrame, options: Mapping[str, Any]) -> str:
    head = rows.iloc[0]
    bins = f" in {head['bins']:g} bins" if head["bins"] else ""
    entropy = f"; entropy of the labels {head['entropy']:.3f} bits{bins}" if isfinite(head["entropy"]) else ""
    return f", {head['estimator']}: {head['n']:,} examples{entropy}"


def _notes(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[str]:
    if rows.loc[rows["target"] == "gold", "p_adjusted"].notna().any():
        yield "p adjusted: corrected over the layers of this table (Holm)."
    for (column, text), mark in _marks(rows):
        yield f"{mark}  undetermined: {text}" if column == "undetermined" else f"{mark}  {text}"
    if left_out := rows["left_out"].iloc[0]:
        yield f"unlabelled, left out: {left_out:,}"


def _marks(rows: pd.DataFrame) -> Iterator[tuple[tuple[str, str], str]]:
    """The remarks on some layers, by column and text, each with its own mark: ?, ??, … and †, ††, …"""
    gold = rows[(rows["target"] == "gold") & rows["draw"].isna()]
    for column, sign in MARKS.items():
        for i, text in enumerate(dict.fromkeys(text for text in gold[column] if text), 1):
            yield (column, text), sign * i


VIEW = View(_cells, _title, _notes, each=(*EACH, "representation", "estimator"))
ANALYSIS = Analysis(
    name="mi",
    help="Estimate the mutual information of each layer and the labels.",
    title="Mutual information",
    reads=Reads.CACHES,
    corrected=Corrected.CURVES,
    judge="probekit.analyses.mi.sentences:sentences",
    view="probekit.analyses.mi:VIEW",
    layered=True,
    best="Layer with the largest mutual information (lower bounds, bits); share is relative to H(Y).",
    place=20,
)
