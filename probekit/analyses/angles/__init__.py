"""Directions of kept probes: do they point the same way, more than by chance?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from probekit.analysis import Analysis, Corrected
from probekit.constraint import Checked, Ge, Most, Seed, Share
from probekit.grid import Column
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.sites import Layers
from probekit.view import Cells, Options, View, lines_of

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.monitors import Probe
    from probekit.rows import Result


@dataclass(frozen=True, slots=True)
class AnglesOptions(Checked):
    """Which probes are compared, and with what."""

    layers: Layers | None = option(
        None, "Layers whose probes are compared, separated by commas (default: all that the folders keep)."
    )
    groups: str = option(
        "auto", "As for probe: how examples of train are grouped; a group is permuted and halved as a whole."
    )
    draws: Annotated[int, Ge(19), Most(10_000)] = option(
        199, "Permutations of the labels of each cache; p is at least 1 / (1 + draws)."
    )
    level: Share = option(0.95, "Share of random directions, and of permuted labels, below the bounds that are given.")
    seed: Seed = option(0, "Seed of permutations and halves.")


@public(options=AnglesOptions)
def angles(
    *probes: str | Path | Probe,
    cache: tuple[str | Path | ActivationCache, ...] = (),
    options: AnglesOptions,
    progress: Progress = no_progress,
) -> Result:
    """Measure the cosine between the directions of kept probes: of layers, estimators, seeds, tasks.

    Without a cache, each cosine stands beside those of random directions. Vectors of language models fill few of their
    dimensions, so unrelated probes are more alike than these. With the caches that the probes were fitted on, each
    probe is fitted again on permuted labels, at its own penalty, and on two halves of train.

    Parameters
    ----------
    *probes : path or Probe
        Folders that ``probekit probe --keep`` wrote; of each all probes are compared. Probes of more than two classes
        or several labels have no single direction, and are left out.
    cache : tuple of path or ActivationCache
        The caches of train that the probes were fitted on, in any order.
    options : AnglesOptions
        ``layers``, ``draws`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows "direction-cosine", one for each pair of probes with vectors of the same width. ``probe`` and ``against``
        name the two; the layer and estimator of the first are in their columns, those of the second in
        ``against_layer`` and ``against_estimator``, their tasks and seeds in ``probe_task``, ``probe_seed``,
        ``against_task`` and ``against_seed``.

        - ``random_high``, ``random_p``: the share ``level`` of random directions has an absolute cosine below the
          first; how many have one as large (exact, two-sided).
        - With caches, two rows for each pair: ``scale`` is "raw", or "standardised" for each dimension in its standard
          deviations in train. ``across_halves`` is the mean cosine of the one probe of one half of train with the other
          probe of the other half, ``within_halves`` that of each probe with itself.
        - ``p`` is two-sided, of the ``null`` that is named. Without caches it is "random directions". With caches it is
          "permuted labels": as large a cosine across halves with permuted labels of one probe, of the other one, or of
          both together; the largest p counts. ``permuted_high`` is the bound below which a share ``level`` of these is.
          ``p_adjusted`` is corrected over all pairs: by the largest standardised value; without caches by Holm.

    Raises
    ------
    UsageError
        If fewer than two directions can be compared, a cache is missing, or a probe cannot be fitted again.
    CacheMismatch
        If a cache holds other vectors than a probe read.
    DataError
        If a folder holds no kept probe.

    See Also
    --------
    probekit.directions : Probes of one model on another.

    References
    ----------
    Ethayarajh 2019, How Contextual are Contextualized Word Representations? (anisotropy).

    Examples
    --------
    >>> result = probekit.angles("kept/logistic", "kept/mass-mean", cache=("sst2.train.h5",))  # doctest: +SKIP
    >>> result.verdict  # doctest: +SKIP

    On the command line::

        probekit angles kept/logistic kept/mass-mean --layers 4 --cache sst2.train.h5 --out angles.parquet
        probekit angles kept/sst2 kept/cola --cache sst2.train.h5,cola.train.h5
        probekit angles kept/seed-0 kept/seed-1
    """
    from probekit.analyses.angles.measure import measure

    return measure(probes, cache, options, progress)


def _by_pair(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each pair."""
    return rows.assign(line=lines_of(rows["probe"], rows["against"]), metric="")


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    scale = rows["scale"].iloc[-1]  # standardised where a cache was given
    where: dict[str, Any] = {"where": {"scale": scale}}
    yield Cells("cosine", "", form="+.3f", **where)
    yield Cells("across halves", "", "across_halves", "+.3f", **where)
    yield Cells("within halves", "", "within_halves", "+.3f", dim=True, **where)
    yield Cells("permuted below", "", "permuted_high", dim=True, **where)
    yield Cells("p adjusted", "", "p_adjusted", "p", **where)
    if scale != "raw":
        yield Cells("cosine, raw", "", form="+.3f", where={"scale": "raw"}, dim=True)
    yield Cells("random below", "", "random_high", dim=True)


VIEW = View(
    _cells,
    title=lambda rows, options: ": cosines between directions of probes",
    keys=(Column("probe", "left", key=True), Column("against", "left", key=True)),
    lined=_by_pair,
)
ANALYSIS = Analysis(
    name="angles",
    help="Measure the cosines between directions of kept probes.",
    title="Angles between probes",
    corrected=Corrected.TASK,
    judge="probekit.analyses.angles.sentences:sentences",
    view="probekit.analyses.angles:VIEW",
    place=13,
)
