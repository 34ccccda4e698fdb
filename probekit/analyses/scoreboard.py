"""Several tasks on one scale, and ranks of models: the analysis of ``probekit scoreboard``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from probekit.analyses.board_line import MODEL, Line, counted, models_of
from probekit.analyses.board_lines import board_lines
from probekit.analyses.board_ranks import ranked
from probekit.analyses.leaderboard import agreement, check_models, leaderboard
from probekit.analyses.options import ScoreboardOptions
from probekit.errors import UsageError
from probekit.files import digest_of_content
from probekit.public import public
from probekit.recipe import Read
from probekit.rows import Result, make_rows, read
from probekit.statistics.multiplicity import widened
from probekit.statistics.normalised import mean_score

__all__ = ["board_rows", "scoreboard"]

log = logging.getLogger(__name__)


@public(options=ScoreboardOptions)
def scoreboard(
    *sources: str | Path | Result,
    groups: tuple[str, ...] = (),
    against: str | Path | None = None,
    options: ScoreboardOptions,
) -> Result:
    """Put tasks on one scale between control and ceiling, choose a layer of each model for each, and rank the models.

    A normalised score is (value - control) / (ceiling - control): 0 for the control, 1 for the best possible value. The
    control of probes is the mean of shuffled labels, or the best constant prediction if that is better (for accuracy
    the class most frequent on dev, for other metrics that of train); of trees the linear chain, or shuffled trees if
    these are better; of minimal pairs a guess, .5.

    The layer of a model on a task is the one whose probe has the lowest loss on held-out parts of train, so that dev
    says without bias how good it is. Minimal pairs have the model's own head. Where rows have no such loss (pairs of
    caches, trees of older versions), it is the best layer on dev, which is too good by the luck of the choice.

    Parameters
    ----------
    *sources : str, path or Result
        Results of ``probe``, ``edges``, ``structural`` and ``pairs``.
    groups : tuple of str, default ()
        "LINE=GROUP" for tasks, such as "ud:en_ewt=syntax"; a line is a task, or "TASK, ANALYSIS" for other analyses
        than probe.
    against : path, optional
        A published leaderboard: a CSV file with the columns ``model`` and ``score``, and optionally ``task``.
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
    """
    published = None if against is None else leaderboard(against)
    found = [one if isinstance(one, Result) else read(one) for one in sources]
    if published is not None:
        check_models(pd.concat([one.rows for one in found], ignore_index=True), published)
    lines = list(board_lines(found, options))
    if not lines:
        raise UsageError(
            "the sources have no layers to put on a scale; give rows of probekit probe, edges, structural or pairs."
        )
    names, of = [line.name for line in lines], _groups(groups)
    if unknown := [name for name in of if not any(_is_of(name, line) for line in names)]:
        log.warning("groups: there is no line %s; the lines are %s.", ", ".join(unknown), ", ".join(names))
    lines = [
        replace(
            line,
            rows=line.rows.assign(
                group=next((of[key] for key in of if _is_of(key, name)), ""), above=_above(line.rows, options.level)
            ),
        )
        for name, line in zip(names, lines, strict=True)
    ]
    chosen = pd.concat([line.chosen for line in lines], ignore_index=True)
    _tell_of_more_lines(lines)
    records = [*_means(lines, options), *ranked(lines, options)]
    if published is not None:
        records += agreement(chosen[chosen["counted"].astype(bool)], published, seed=options.seed)
    common = {"split": "", "representation": "", "estimator": "", "target": "gold", "seed": options.seed}
    summaries = make_rows([{"task": "", **common, **record} for record in records])
    rows = pd.concat([*(line.rows for line in lines), summaries], ignore_index=True)
    reads = [Read(str(one.path), "rows", digest_of_content(one.path)) for one in found if one.path is not None]
    return Result(make_rows(rows.assign(analysis="scoreboard")), reads=tuple(reads))


def board_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of :func:`scoreboard`, as the table takes them; UsageError for other rows."""
    found = rows[rows["analysis"] == "scoreboard"]
    if found.empty:
        raise UsageError("the table scoreboard shows rows of probekit scoreboard or probekit suite; give these.")
    return found


def _groups(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, group = text.rpartition("=")
        if not (equals and name and group):
            raise UsageError(f"groups must have the form TASK=GROUP, not {text!r}.")
        found[name] = group
    return found


def _tell_of_more_lines(lines: Sequence[Line]) -> None:
    """Say which tasks have several lines."""
    named: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        named.setdefault(line.of, []).append(line.name)
    for (_, task), names in named.items():
        if len(names) > 1:
            log.warning(
                "%s counts once in means, counts and ranks, by the first of its lines that a model has: %s.",
                task, ", then ".join(f'"{name}"' for name in names),
            )  # fmt: skip


def _is_of(name: str, line: str) -> bool:
    """Whether a line is the one called ``name``, or one of several that ``name`` has."""
    return line == name or line.startswith(f"{name}, ")


def _means(lines: Sequence[Line], options: ScoreboardOptions) -> Iterator[dict[str, Any]]:
    """For each model and group, and for all: the mean over tasks, and how many are above their control."""
    models = models_of(lines)
    groups = list(dict.fromkeys(str(line.rows["group"].iloc[0]) for line in lines))
    if missing := [line.name for line in lines if line.again is None]:
        log.warning(
            "means over tasks with %s have no interval: the examples of these are missing (ROWS.examples.parquet), or "
            "their score is not a mean over examples.", ", ".join(missing),
        )  # fmt: skip
    for group in dict.fromkeys(["", *groups]):
        some = [line for line in lines if group in ("", line.rows["group"].iloc[0])]
        for model, about in models.items():
            there = [_At(line, i) for line in some if (i := counted(line, model)) is not None]
            if not there:
                continue
            drawn = [again for at in there if (again := at.again) is not None]
            value = np.array([at.row["value"] for at in there], dtype=float)
            mean, low, high = float(value.mean()), np.nan, np.nan
            if len(there) == 1:
                low, high = there[0].row["ci_low"], there[0].row["ci_high"]
            elif len(drawn) == len(there):
                units = [at.line.units for at in there]
                mean, low, high = mean_score(value, np.stack(drawn), units, level=options.level)
            own = {**about, "group": group, "n": len(there), "tasks": len(there)}
            yield {**own, "metric": "mean-normalised", "value": mean, "ci_low": low, "ci_high": high}
            yield {**own, "metric": "above-control", "value": float(sum(bool(at.row["above"]) for at in there))}


class _At(NamedTuple):
    """A line at one of its chosen rows."""

    line: Line
    place: int

    @property
    def row(self) -> pd.Series:
        return self.line.chosen.iloc[self.place]

    @property
    def again(self) -> np.ndarray | None:
        return None if self.line.again is None else self.line.again[self.place]


def _above(rows: pd.DataFrame, level: float) -> pd.Series:
    """Whether each interval lies above the control; where dev chose the layer, one that holds for all layers."""
    layers = rows.groupby(MODEL, sort=False, dropna=False)["value"].transform("size")
    count = layers.where(rows["chosen_by"] == "dev", 1).to_numpy(dtype=int)
    value, low = (rows[name].to_numpy(dtype=float) for name in ("value", "ci_low"))
    return pd.Series(widened(value, low, count, level=level) > 0, index=rows.index)
