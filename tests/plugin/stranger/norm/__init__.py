"""How long the vectors of a layer are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Reads
from probekit.constraint import Checked, Share
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.view import Cells, View, interval

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result


@dataclass(frozen=True, slots=True)
class NormOptions(Checked):
    """How lengths are measured."""

    level: Share = option(0.95, "Coverage of the intervals.")


@public(vectors=VectorOptions, options=NormOptions)
def norm(
    *caches: str | Path | ActivationCache,
    vectors: VectorOptions,
    options: NormOptions,
    progress: Progress = no_progress,
) -> Result:
    """Measure how long the vectors of each layer are.

    Parameters
    ----------
    *caches : path or ActivationCache
        One or more caches; each is measured separately.
    vectors : VectorOptions
        ``pooling``, ``layers`` and ``groups``; each may be given as a keyword.
    options : NormOptions
        ``level``; may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        For each layer the mean Euclidean length, with an interval over examples (groups).

    Examples
    --------
    On the command line::

        probekit norm cola.dev.h5 --out norm.parquet
        probekit plot norm norm.parquet --out norm.pdf
    """
    from stranger.norm.measure import measure

    return measure(caches, vectors, options, progress)


def _cells(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[Cells]:
    yield Cells("mean length", "mean-norm", form=".2f")
    yield Cells(interval(options), "mean-norm", "interval", ".2f")


def _notes(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[str]:
    if rows["ci_low"].isna().all():
        yield "no intervals: there are fewer than 5 examples, or groups of them."


VIEW = View(_cells, notes=_notes)
ANALYSIS = Analysis(
    name="norm",
    help="Measure how long the vectors of each layer are.",
    title="Length of vectors",
    reads=Reads.CACHES,
    judge="stranger.norm.sentences:sentences",
    view="stranger.norm:VIEW",
    layered=True,
    of_vectors=True,
)
