"""Dimension and anisotropy: how many dimensions the vectors of a layer fill, and whether their directions are alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Reads
from probekit.constraint import Checked, Ge, Natural, Part, Seed, Share
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.view import Cells, View, interval

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result


@dataclass(frozen=True, slots=True)
class GeometryOptions(Checked):
    """How many vectors are used, what is removed, and the coverage of the intervals."""

    remove: Natural | None = option(
        None,
        "Number of principal components removed, with the mean, for the second mean cosine (default: a hundredth of "
        "the width, at least 1).",
    )
    discard: Part = option(
        0.1, "Proportion of the largest ratios of neighbour distances that TwoNN only counts as large."
    )
    max_examples: Annotated[int, Ge(4)] = option(10_000, "Number of vectors drawn at random if there are more.")
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of the draw.")


@public(vectors=VectorOptions, options=GeometryOptions)
def geometry(
    *caches: str | Path | ActivationCache,
    vectors: VectorOptions,
    options: GeometryOptions,
    progress: Progress = no_progress,
) -> Result:
    """Measure how many dimensions the vectors of each layer fill, and whether they point in similar directions.

    The participation ratio counts the dimensions among which the variance is spread, and TwoNN the dimension of the
    surface near which the vectors lie, which may be curved and much smaller. The mean cosine of two random examples is
    0 if no direction is preferred, and near 1 if all vectors lie in a narrow cone.

    Parameters
    ----------
    *caches : path or ActivationCache
        One or more caches; each is measured separately.
    vectors : VectorOptions
        ``pooling``, ``layers`` and ``groups``; each may be given as a keyword.
    options : GeometryOptions
        ``remove``, ``discard``, ``max_examples``, ``level``, ``seed``; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows of each cache and layer, with intervals over examples (groups):

        - "rank", the numerical rank, at most n - 1, without an interval;
        - "participation-ratio", among how many dimensions the variance is spread, corrected for the number of examples;
        - "intrinsic-dimension", TwoNN's estimate from the two nearest neighbours of each example;
        - "mean-cosine" of two random examples, and "mean-cosine-without-top", the same after the mean and the first
          principal components were removed (their number is in the column ``removed``).

        The column ``note`` says what is undefined or left out.

    Raises
    ------
    UsageError
        For fewer than 4 examples.
    NonFiniteError
        If a layer contains NaN; the message names the layer.

    References
    ----------
    See :mod:`probekit.similarity.geometry`.

    Examples
    --------
    >>> result = probekit.geometry("cola.dev.h5", "cola.dev-tuned.h5")  # doctest: +SKIP
    >>> result.plot(metric="intrinsic-dimension")  # doctest: +SKIP

    On the command line::

        probekit geometry pretrained.dev.h5 tuned.dev.h5 --out geometry.parquet
        probekit geometry pretrained.dev.h5 --layers 0,6,-1 --remove 3
        probekit plot geometry geometry.parquet
    """
    from probekit.analyses.geometry.measure import measure

    return measure(caches, vectors, options, progress)


COLUMNS = {
    "participation-ratio": ("participation ratio", ".1f"),
    "intrinsic-dimension": ("TwoNN dimension", ".1f"),
    "mean-cosine": ("mean cosine", "z.3f"),
    "mean-cosine-without-top": ("without top", "z.3f"),
}
"""The header and the format of each metric with an interval."""


def _cells(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[Cells]:
    yield Cells("rank", "rank", form=".0f")
    for metric, (title, form) in COLUMNS.items():
        yield Cells(title, metric, form=form)
        yield Cells(interval(options), metric, "interval", form)


VIEW = View(_cells, lambda rows, options: f": n = {rows['n'].max():,}")
ANALYSIS = Analysis(
    name="geometry",
    help="Measure dimension and anisotropy of each layer.",
    title="Geometry of layers",
    reads=Reads.CACHES,
    judge="probekit.analyses.geometry.sentences:sentences",
    view="probekit.analyses.geometry:VIEW",
    layered=True,
    place=70,
    of_vectors=True,
)
