"""Minimum description length: how many bits send the labels to a receiver who has the vectors of a layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Corrected, Reads
from probekit.probes.codes.options import CodeOptions
from probekit.public import public
from probekit.rows.schema import layer_labels
from probekit.runtime import Progress, no_progress
from probekit.view import Cells, View

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result


@public(vectors=VectorOptions, options=CodeOptions)
def mdl(
    train: str | Path | ActivationCache,
    /,
    *,
    vectors: VectorOptions,
    options: CodeOptions,
    progress: Progress = no_progress,
) -> Result:
    """Measure the minimum description length of the labels of TRAIN.h5, given the vectors of each layer.

    The codelength is the number of bits that send the labels to a receiver who has the vectors: a probe that finds the
    labels easily, from few examples, sends them in few bits. Compression divides the length of a code without vectors
    by it: the prior code, which learns the class frequencies, or the uniform code. If a layer's code is no shorter than
    the prior code, the probe finds no information about the labels in that layer.

    Parameters
    ----------
    train : path or ActivationCache
        The cache whose labels are sent; no other is needed.
    vectors : VectorOptions
        ``pooling`` and ``layers``; each may be given as a keyword.
    options : CodeOptions
        ``code``, ``controls``, ``penalties``, ``fractions``, ``orders``, ``seed``; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows of each layer, for gold labels and each draw of a control: "codelength-bits", "bits-per-example",
        "compression", "compression-over-prior", "saved-bits", and for the online code "portion-bits-per-example"; also
        of the targets "uniform" and "prior", codes that do not use the vectors. Gold rows are means over several
        orders, with a 95 % interval for new examples in new orders. There are no predictions.

    Raises
    ------
    UsageError
        For a regression task, an unknown layer or pooling.
    NonFiniteError
        If a layer contains NaN; the message names the layer.

    References
    ----------
    Voita & Titov 2020, Information-Theoretic Probing with Minimum Description Length, section 2.

    Examples
    --------
    >>> result = probekit.mdl("cola.train.h5")  # doctest: +SKIP
    >>> result.rows[result.rows["metric"] == "compression"]  # doctest: +SKIP

    On the command line::

        probekit mdl sst2.train.h5 --controls 5 --out mdl.parquet
        probekit mdl sst2.train.h5 --code variational --layers 0,6,-1
    """
    from probekit.analyses.mdl.measure import measure

    return measure(train, vectors, options, progress)


def _cells(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[Cells]:
    yield Cells("bits", "codelength-bits", form=",.0f")
    yield Cells("95 % interval", "codelength-bits", "interval", ",.0f")
    yield Cells("over prior", "compression-over-prior")
    yield Cells("over uniform", "compression")
    yield Cells("p adjusted", "saved-bits", "p_adjusted", "p")
    for control in rows["target"].unique():
        if control not in ("gold", "uniform", "prior"):
            yield Cells(f"{control} (max)", "compression-over-prior", target=control, over="max")


def _title(rows: pd.DataFrame, options: Mapping[str, Any]) -> str:
    return f": {rows['n'].iloc[0]:,} labels of {rows['classes'].iloc[0]} classes"


def _notes(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[str]:
    from probekit.rows.families import ALPHA

    head, saved = rows.iloc[0], rows[(rows["target"] == "gold") & (rows["metric"] == "saved-bits")]
    if saved["p_adjusted"].notna().any():
        yield "p adjusted: corrected over the layers of this table (Holm)."
    yield f"without vectors: uniform code {head['uniform_bits']:,.0f} bits, prior code {head['prior_bits']:,.0f} bits"
    if (rest := saved[~((saved["value"] > 0) & (saved["p_adjusted"] <= ALPHA))]).size:
        why = "" if rows["orders"].max() > 1 else " (one order gives no p)"
        yield f"not shown to be shorter than the prior code{why}: layer {', '.join(layer_labels(rest))}"
    if head["left_out"]:
        yield f"unlabelled, left out: {head['left_out']:,}"


VIEW = View(_cells, _title, _notes)
ANALYSIS = Analysis(
    name="mdl",
    help="Measure minimum description length: online or variational codes.",
    title="Description length",
    reads=Reads.CACHE,
    corrected=Corrected.CURVES,
    judge="probekit.analyses.mdl.sentences:sentences",
    view="probekit.analyses.mdl:VIEW",
    layered=True,
    best="Layer with the shortest code for the labels.",
    place=30,
)
