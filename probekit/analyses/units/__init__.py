"""Which units of a layer hold a property, how much the first of them hold, and whether they can be named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Corrected, Reads
from probekit.constraint import Checked, Count, File, Ge, MinLen, Most, OrZero, Seed, Share
from probekit.grid import Column, Grid
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.statistics.options import ResamplesOrNone
from probekit.view import EACH, Cells, Options, View, by_layer, interval, lines_of

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result

UnitRanking = Literal["weight", "mean-difference", "max-mean-difference", "information", "k-sparse", "elastic-net"]
"""How units are ranked; see :mod:`probekit.probes.units.rankings`."""


@dataclass(frozen=True, slots=True)
class UnitsOptions(Checked):
    """How units are ranked, and what is measured of the rankings."""

    rankings: Annotated[tuple[UnitRanking, ...], MinLen(1)] = option(
        ("weight", "mean-difference", "information"),
        "Rankings of the units, separated by commas; the verdict is about the first: weight (of a linear probe, times "
        "the unit's spread), mean-difference (standardised), max-mean-difference (not standardised), information, "
        "k-sparse, elastic-net.",
    )
    metric: str | None = option(None, "What the first units hold is measured by it (default: the task's first metric).")
    top: Count = option(10, "Number of units listed for each ranking.")
    draws: Annotated[int, OrZero(19, "none (p <= .05 needs 19)"), Most(10_000)] = option(
        100,
        "Random orders of the units, with which rankings are compared; p is at least 1 / (1 + draws), and needs "
        "resamples, too.",
    )
    splits: Annotated[int, OrZero(3, "no stability"), Most(1000)] = option(
        10, "Splits of train in two halves, each of which is ranked again."
    )
    persistence: Share = option(
        0.9, "Weight of deep places in the overlap of two rankings: with 0.9, the first ten places have 86 %."
    )
    folds: Annotated[int, Ge(2)] = option(5, "Folds of train that choose the penalty of the probe; groups stay whole.")
    resamples: ResamplesOrNone = option(
        1000, "Bootstrap resamples of dev for intervals, and permutations of its labels for p; 0 for neither."
    )
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of folds, splits, random orders and resamples.")

    def together(self) -> None:
        object.__setattr__(self, "rankings", tuple(dict.fromkeys(self.rankings)))


@public(vectors=VectorOptions, options=UnitsOptions, faster="draws=0")
def units(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    probe: File | None = None,
    vectors: VectorOptions,
    options: UnitsOptions,
    progress: Progress = no_progress,
) -> Result:
    """Rank the units of each layer by what they say about the labels, and measure what the first of them hold.

    Units (columns of the vectors) are ranked on TRAIN.h5 alone. A probe on the first 1, 2, 4 … units is fitted on
    train and evaluated on DEV.h5, beside probes on as many random units and on the last ones. Each ranking is repeated
    on disjoint halves of train. Units are named only if the first ones of one half beat random ones in probes of the
    other, and the halves agree on them.

    Parameters
    ----------
    train : path or ActivationCache
        The cache to rank and fit on.
    dev : path or ActivationCache
        The cache to evaluate on, of the same task and model.
    *more : path or ActivationCache
        Further pairs.
    probe : path, optional
        A folder of ``probekit probe --keep``: its layers are analysed, and ``weight`` is that of its probes.
    vectors : VectorOptions
        ``pooling``, ``layers``, ``groups`` and ``through``; each may be given as a keyword.
    options : UnitsOptions
        ``rankings``, ``metric``, ``top``, ``draws``, ``splits`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows of each layer and ranking (the column ``estimator``):

        - "unit-score" of the first units: ``unit`` (from 0), ``place`` (from 1), the score as value, and ``named``;
        - "selection-share" of these units: how many halves of train have the unit among the first ``units``;
        - the metric of a probe on ``units`` units: target "gold" for the first ones, "random" for the mean over random
          ones (``ci_low``, ``ci_high``: 95 % of the random orders) and "bottom" for the last ones;
        - "difference(METRIC)" of the first units minus random ones, ranked on one half of train and fitted on the other
          (both ways, averaged), with an interval over the examples of dev; and its mean over all numbers of units but
          the last (``sizes`` of them), with p and ``p_adjusted`` over the rankings and layers of all pairs of a task. p
          is the larger one of two: how many random orders do as well, and how many permutations of dev's labels;
        - "rank-biased-overlap" of the rankings of two halves of train, their mean over splits with its interval; target
          "shuffled" for halves with shuffled labels, "random" for random orders.

    Raises
    ------
    UsageError
        For several labels of a text, an unknown metric, and a kept probe that is not linear, or with ``through``.
    CacheMismatch
        If the caches of a pair do not match, or the probe was fitted on other vectors or examples than train.
    NonFiniteError
        If a layer contains NaN; the message names the layer.

    References
    ----------
    Dalvi et al. 2019, What Is One Grain of Sand in the Desert?; Gurnee et al. 2023, Finding Neurons in a Haystack;
    Webber, Moffat & Zobel 2010, A Similarity Measure for Indefinite Rankings.

    Examples
    --------
    >>> result = probekit.units("cola.train.h5", "cola.dev.h5", layers=(4,))  # doctest: +SKIP
    >>> result.plot()  # doctest: +SKIP

    On the command line::

        probekit units cola.train.h5 cola.dev.h5 --out units.parquet
        probekit units cola.train.h5 cola.dev.h5 --layers 4 --rankings k-sparse,elastic-net --top 20
        probekit units cola.train.h5 cola.dev.h5 --probe kept/cola
        probekit units cola.train.h5 cola.dev.h5 --pooling last --through sae:blocks.8.hook_resid_pre
        probekit plot units units.parquet --out units.pdf
    """
    from probekit.analyses.train_dev import Pairs
    from probekit.analyses.units.measure import measure

    return measure(Pairs((train, dev, *more)), probe, vectors, options, progress)


def _by_size(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each layer and number of units."""
    rows = by_layer(rows[rows["units"].notna() & ~rows["metric"].isin(("unit-score", "selection-share"))])
    return rows.assign(line=lines_of(rows["line"], rows["units"].astype("Int64").map("{:,}".format)))


def _sizes(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    main = str(rows["metric"].iloc[0])
    yield Cells(f"first, {main}", main)
    yield Cells(interval(options), main, "interval", dim=True, align="center")
    yield Cells("random", main, target="random")
    yield Cells("95 % of random", main, "interval", target="random", dim=True, align="center")
    yield Cells("last", main, target="bottom", dim=True)
    yield Cells("first − random, of halves", f"difference({main})", form="+.3f")
    yield Cells(interval(options), f"difference({main})", "interval", "+.3f", dim=True, align="center")


def _by_place(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each layer and place in a ranking."""
    rows = by_layer(rows[rows["metric"].isin(("unit-score", "selection-share"))])
    return rows.assign(line=lines_of(rows["line"], rows["place"].astype("Int64").map(str)))


def _places(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    for ranking in dict.fromkeys(rows["estimator"]):
        where = {"estimator": ranking}
        yield Cells(ranking, "unit-score", "unit", ".0f", where=where, label=True)
        yield Cells("score", "unit-score", form=".3f", where=where, dim=True)
        yield Cells("in halves", "selection-share", form=".0%", where=where)


def _by_ranking(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each layer and ranking."""
    over = rows["sizes"].notna() if "sizes" in rows else False
    rows = by_layer(rows[(rows["metric"] == "rank-biased-overlap") | over])
    return rows.assign(line=lines_of(rows["line"], rows["estimator"]))


def _of_rankings(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    for gap in [name for name in dict.fromkeys(rows["metric"]) if name.startswith("difference(")]:
        yield Cells("first − random, of halves", gap, form="+.3f")
        yield Cells(interval(options), gap, "interval", "+.3f", dim=True, align="center")
        yield Cells("p adjusted", gap, "p_adjusted", "p")
    yield Cells("overlap of halves", "rank-biased-overlap")
    yield Cells(interval(options), "rank-biased-overlap", "interval", dim=True, align="center")
    yield Cells("shuffled labels", "rank-biased-overlap", target="shuffled")
    yield Cells("random orders", "rank-biased-overlap", target="random", dim=True)


LAYER = Column("layer", key=True)
UNITS = View(
    _places,
    title=lambda rows, options: ": units by ranking, numbered from 0",
    keys=(LAYER, Column("place", key=True)),
    lined=_by_place,
)
SIZES = View(
    _sizes,
    title=lambda rows, options: (
        f", units by {rows['estimator'].iloc[0]}: {rows['n'].iloc[0]:,} evaluated, "
        f"{rows['n_train'].iloc[0]:,.0f} fitted"
    ),
    each=(*EACH, "estimator"),
    keys=(LAYER, Column("units", key=True)),
    lined=_by_size,
)
RANKINGS = View(
    _of_rankings,
    title=lambda rows, options: ": rankings, over all numbers of units, and of two halves of train",
    keys=(LAYER, Column("ranking", align="left", key=True)),
    lined=_by_ranking,
)


def tables(rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid, list[str]]]:
    """The first units of each ranking, what some of them hold, and how sure the rankings are."""
    for view in (UNITS, RANKINGS, SIZES):
        yield from view(rows, options)


ANALYSIS = Analysis(
    name="units",
    help="Rank the units of each layer, and measure what the first ones hold.",
    title="Units",
    reads=Reads.PAIRS,
    corrected=Corrected.TASK,
    judge="probekit.analyses.units.sentences:sentences",
    view="probekit.analyses.units:tables",
    controls={"random": "random units", "bottom": "last units"},
    place=45,
)
