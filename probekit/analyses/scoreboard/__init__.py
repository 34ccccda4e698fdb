"""Scoreboards: tasks on one scale between control and ceiling, and ranks of models."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.analysis import Analysis, Reads
from probekit.constraint import Checked, Seed, Share
from probekit.public import public
from probekit.recipe import option
from probekit.statistics.options import Resamples

if TYPE_CHECKING:
    from probekit.rows import Result


class Control(StrEnum):
    """What counts as 0 on a scoreboard."""

    SHUFFLED = "shuffled"
    CONTROL_TASK = "control-task"


@dataclass(frozen=True, slots=True)
class ScoreboardOptions(Checked):
    """What counts as 0, and the intervals."""

    control: Control = option(
        Control.SHUFFLED,
        "What counts as 0 for probe and edges: shuffled (probes of shuffled labels) or control-task (of a random label "
        "for each word type); or the majority class, if that is better. Trees and minimal pairs have one control, see "
        "above.",
    )
    resamples: Resamples = option(1000, "Bootstrap resamples of the examples.")
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of the resamples.")


def line_name(analysis: str, task: str) -> str:
    """The name of a task's line in a scoreboard.

    Examples
    --------
    >>> line_name("probe", "cola"), line_name("edges", "ontonotes")
    ('cola', 'ontonotes, edges')
    """
    return task if analysis == "probe" else f"{task}, {analysis}"


@public(options=ScoreboardOptions)
def scoreboard(
    *sources: str | Path | Result,
    groups: tuple[str, ...] = (),
    against: str | Path | None = None,
    options: ScoreboardOptions,
) -> Result:
    """Put tasks on one scale between control and ceiling, choose a layer of each model, and rank the models.

    A score, (value - control) / (ceiling - control), is 1 for the best possible value of the metric, and 0 for the
    control. The control of probe and edges is the mean of probes of shuffled labels, or the best constant prediction if
    that is better (for accuracy the class most frequent on dev, for other metrics that of train); of trees (structural)
    the linear chain, in which each word hangs on the one before, or shuffled trees if these are better; of minimal
    pairs (pairs) a guess, .5.

    Each model has one layer on each task: that with the lowest loss on held-out parts of train, so that dev says
    without bias how good it is. Minimal pairs have the model's own head. Where rows have no such loss (pairs of caches,
    trees of older versions), it is the best layer on dev (†), which is too good by the luck of the choice. Models are
    ranked by the test of :func:`probekit.compare`; a task counts once.

    Parameters
    ----------
    *sources : str, path or Result
        Rows that probekit probe, edges, structural or pairs wrote (.parquet), of several tasks or models; on the
        command line also patterns such as ``'rows/*.parquet'``.
    groups : tuple of str, default ()
        The group of a task, TASK=GROUP, which gets a mean of its own; may be repeated. "TASK, ANALYSIS" stands for the
        lines of another analysis than probe.
    against : path, optional
        A published leaderboard to correlate ranks with (three or more models): a CSV file with the columns model and
        score, and if you like task.
    options : ScoreboardOptions
        ``control``, ``resamples``, ``level``, ``seed``; each may be given as a keyword.

    Returns
    -------
    Result
        A row "normalised(METRIC)" for each layer, with the columns ``line``, ``group``, ``raw`` (the metric),
        ``raw_low``, ``raw_high``, ``control``, ``ceiling``, ``against``, ``chosen`` (bool), ``chosen_by`` ("held-out",
        "dev" or "only"), ``above`` (bool: whether it is shown to be above the control) and ``counted`` (bool: whether
        it counts in what follows). For each model and group (all tasks: the group ""), "mean-normalised" over its
        tasks, and "above-control", the number of tasks whose interval at the chosen layer lies above the control, both
        with the column ``tasks``. For several models with the same examples, "rank" on each task and, without a line,
        by mean score, and "mean-rank"; the column ``better_than`` names the models that one is shown to be better than.
        With ``against``, "rank-correlation".

    Raises
    ------
    UsageError
        If no source holds layers that can be put on a scale, or a model of the leaderboard has several checkpoints.
    DataError
        If the leaderboard cannot be read.

    Notes
    -----
    Intervals are about these fitted probes on new examples of these tasks. The numbers of tasks above their control are
    not corrected for the number of tasks; where dev chose the layer, the interval is widened for the number of layers
    (Bonferroni). A task with several lines (scores of minimal pairs, poolings, estimators) counts once, by the first
    line that a model has (the column ``counted``). Tasks of the same sentences are resampled together:
    see :func:`probekit.statistics.shared_units.shared_units`.
    Ranks are of the models on each task that has them all, by the lines that count, from predictions that are exchanged
    between models: see :func:`probekit.statistics.rankings.ranks`. Tasks whose layers dev chose among different numbers
    are not ranked: the best of more layers looks better.

    Examples
    --------
    >>> board = probekit.scoreboard("ud.parquet", "conll2000.parquet", groups=("ud:en_ewt=syntax",))  # doctest: +SKIP

    On the command line::

        probekit scoreboard cola.parquet ud.parquet --groups ud:en_ewt=syntax --out board.parquet
        probekit scoreboard 'rows/*.parquet' --against leaderboard.csv
        probekit plot scoreboard board.parquet
    """
    from probekit.analyses.scoreboard.measure import measure

    return measure(sources, groups, against, options)


ANALYSIS = Analysis(
    name="scoreboard",
    help="Put tasks on one scale and rank models.",
    title="Scoreboard",
    reads=Reads.RESULTS,
    judge="probekit.analyses.scoreboard.sentences:sentences",
    view="probekit.analyses.scoreboard.tables:tables",
    place=98,
)
