"""Several tasks on one scale, and ranks of models: the analysis of ``probekit scoreboard``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from probekit.analyses.board_line import MODEL, Line
from probekit.analyses.board_lines import board_lines
from probekit.analyses.leaderboard import agreement, leaderboard
from probekit.analyses.options import ScoreboardOptions
from probekit.errors import UsageError
from probekit.files import digest_of_content
from probekit.metrics import metric as metric_called
from probekit.public import public
from probekit.recipe import Read
from probekit.rows import Result, make_rows, read
from probekit.statistics.bootstrap import estimates
from probekit.statistics.comparisons import FINE
from probekit.statistics.normalised import mean_score
from probekit.statistics.permutation import BLOCK, exchanged
from probekit.statistics.predictions import Predictions
from probekit.statistics.rankings import Ranks, ranks

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
    control of probes is the mean of shuffled labels, or the majority class if that is better; of trees the linear
    chain, or shuffled trees if these are better; of minimal pairs a guess, .5.

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
        "dev" or "only") and ``counted`` (bool: whether it counts in what follows). For each model and group (all tasks:
        the group ""), "mean-normalised" over its tasks, and "above-control", the number of tasks whose interval at the
        chosen layer lies above the control, both with the column ``tasks``. For several models with the same examples,
        "rank" on each task and, without a line, by mean score, and "mean-rank"; the column ``better_than`` names the
        models that one is shown to be better than. With ``against``, "rank-correlation".

    Raises
    ------
    UsageError
        If no source holds layers that can be put on a scale, or fewer than three models are on the leaderboard.
    DataError
        If the leaderboard cannot be read.

    Notes
    -----
    Intervals are about these fitted probes on new examples of these tasks. The numbers of tasks above their control are
    not corrected for the number of tasks; where dev chose the layer, the interval is widened for the number of layers
    (Bonferroni). A task with several lines (scores of minimal pairs, poolings, estimators) counts once, by the first
    line that a model has (the column ``counted``). Tasks of the same sentences are resampled together:
    see :func:`probekit.statistics.shared_units.shared_units`.
    Ranks are of the models on the first line of each task that has them all, from predictions that are exchanged
    between models: see :func:`probekit.statistics.rankings.ranks`.

    Examples
    --------
    >>> board = probekit.scoreboard("ud.parquet", "conll2000.parquet", groups=("ud:en_ewt=syntax",))  # doctest: +SKIP
    """
    found = [one if isinstance(one, Result) else read(one) for one in sources]
    lines = list(board_lines(found, options))
    if not lines:
        raise UsageError(
            "the sources have no layers to put on a scale; give rows of probekit probe, edges, structural or pairs."
        )
    names, of = [line.name for line in lines], _groups(groups)
    if unknown := [name for name in of if not any(_is_of(name, line) for line in names)]:
        log.warning("groups: there is no line %s; the lines are %s.", ", ".join(unknown), ", ".join(names))
    lines = [
        replace(line, rows=line.rows.assign(group=next((of[key] for key in of if _is_of(key, name)), "")))
        for name, line in zip(names, lines, strict=True)
    ]
    chosen = pd.concat([line.chosen for line in lines], ignore_index=True)
    _tell_of_more_lines(lines)
    records = [*_means(lines, options), *_ranked(lines, options)]
    if against is not None:
        records += agreement(chosen[chosen["counted"].astype(bool)], leaderboard(against), seed=options.seed)
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
    models = _models(lines)
    groups = list(dict.fromkeys(str(line.rows["group"].iloc[0]) for line in lines))
    if missing := [line.name for line in lines if line.again is None]:
        log.warning(
            "means over tasks with %s have no interval: the examples of these are missing (ROWS.examples.parquet), or "
            "their score is not a mean over examples.", ", ".join(missing),
        )  # fmt: skip
    for group in dict.fromkeys(["", *groups]):
        some = [line for line in lines if group in ("", line.rows["group"].iloc[0])]
        for model, about in models.items():
            there = [_At(line, i) for line in some if (i := _counted(line, model)) is not None]
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
            yield {**own, "metric": "above-control", "value": float(sum(at.above(options.level) for at in there))}


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

    def above(self, level: float) -> bool:
        """Whether the interval lies above the control; where dev chose the layer, one that holds for all layers."""
        row, rows = self.row, self.line.rows
        layers = sum(key == _key(row) for _, other in rows.iterrows() if (key := _key(other)))
        tails = (1 - level) / 2 / np.array([1, layers if row["chosen_by"] == "dev" else 1])
        one, all_layers = stats.norm.isf(tails)
        return bool(row["value"] - (row["value"] - row["ci_low"]) * all_layers / one > 0)


def _ranked(lines: Sequence[Line], options: ScoreboardOptions) -> Iterator[dict[str, Any]]:
    """Ranks of the models on the first line of each task that has them all on the same examples, and over these."""
    models = _models(lines)
    first: dict[tuple[str, str], tuple[Line, Predictions, list[int]]] = {}
    for line in lines:
        if line.best is not None and (order := _order(line, models)):
            first.setdefault(line.of, (line, line.best, order))
    tasks = len({line.of for line in lines})
    if len(models) < 2 or not first:
        if len(models) > 1:
            log.warning("no task has all %d models on the same examples, so models are not ranked.", len(models))
        return
    if len(first) < tasks:
        log.warning("%d of %d tasks do not have all models on the same examples; they are not ranked.",
                    tasks - len(first), tasks)  # fmt: skip
    pairs = [(a, [b]) for a, b in combinations(range(len(models)), 2)]
    most = max(line.units for line, *_ in first.values())
    draws = max(options.resamples, min(FINE, BLOCK // most, BLOCK // (len(first) * len(pairs))))
    value, null = [], []
    for line, best, order in first.values():
        chosen, table = line.chosen.iloc[order], best.take(np.array(order))
        top, floor = float(chosen["ceiling"].iloc[0]), float(chosen["control"].mean())
        metric = str(metric_called(str(chosen["metric"].iloc[0])).of)
        _, drawn = exchanged(table, pairs, metric, draws=draws, seed=options.seed, by_name=True)
        measured = estimates(metric=metric, **table.sample())
        value.append((measured - floor) / (top - floor))  # one control for all, so that only the metric ranks them
        null.append(drawn / (top - floor))
    one = ranks(np.stack(value), np.stack(null), level=options.level)
    names = [" ".join(filter(None, map(str, (about["model"], about["checkpoint"])))) for about in models.values()]
    yield from _rank_rows(one, [line for line, *_ in first.values()], list(models.values()), names)


def _order(line: Line, models: Iterable[Model]) -> list[int]:
    """The positions of the models among the chosen rows of a line, or [] if it does not have a value of each."""
    at = [_position(line, model) for model in models]
    known = np.isfinite(line.chosen["value"].astype(float)).all()
    return [i for i in at if i is not None] if known and None not in at else []


def _rank_rows(
    one: Ranks, lines: Sequence[Line], models: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    for t, line in enumerate(lines):
        first = line.rows.iloc[0]
        where = {key: first[key] for key in ("task", "split", "line", "group", "estimator")}
        for m, about in enumerate(models):
            yield {
                **about, **where, "metric": "rank", "value": one.rank[t, m], "ci_low": one.low[t, m],
                "ci_high": one.high[t, m], "n": int(first["n"]), "better_than": _listed(names, one.better[t, m]),
            }  # fmt: skip
    for m, about in enumerate(models):
        whole = {**about, "group": "", "n": len(lines), "tasks": len(lines)}
        better = _listed(names, one.better_overall[m])
        yield {
            **whole, "metric": "rank", "value": one.overall[m], "ci_low": one.overall_low[m],
            "ci_high": one.overall_high[m], "better_than": better,
        }  # fmt: skip
        yield {
            **whole, "metric": "mean-rank", "value": one.mean_rank[m], "ci_low": one.mean_low[m],
            "ci_high": one.mean_high[m],
        }  # fmt: skip


def _listed(names: Sequence[str], which: np.ndarray) -> str:
    return ", ".join(name for name, yes in zip(names, which, strict=True) if yes)


Model = tuple[Any, ...]


def _key(row: pd.Series) -> Model:
    return tuple(None if pd.isna(row[name]) else row[name] for name in MODEL)


def _models(lines: Sequence[Line]) -> dict[Model, dict[str, Any]]:
    """The models of all lines, with the columns that describe each."""
    rows = pd.concat([line.chosen for line in lines], ignore_index=True)
    return {_key(row): {name: row[name] for name in MODEL} for _, row in rows.iterrows()}


def _position(line: Line, model: Model) -> int | None:
    """The position of a model among the chosen rows of a line."""
    return next((i for i, (_, row) in enumerate(line.chosen.iterrows()) if _key(row) == model), None)


def _counted(line: Line, model: Model) -> int | None:
    """The position of a model's chosen row, if it has a score that counts."""
    place = _position(line, model)
    if place is None:
        return None
    row = line.chosen.iloc[place]
    return place if row["counted"] and np.isfinite(row["value"]) else None
