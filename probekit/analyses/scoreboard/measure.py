"""Several tasks on one scale, and ranks of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from probekit.analyses.scoreboard import ScoreboardOptions
from probekit.analyses.scoreboard.leaderboard import agreement, check_models, leaderboard
from probekit.analyses.scoreboard.line import MODEL, Line, counted, models_of
from probekit.analyses.scoreboard.lines import board_lines
from probekit.analyses.scoreboard.ranks import ranked
from probekit.analysis import analyses
from probekit.errors import UsageError
from probekit.files import digest_of_content
from probekit.notes import logger
from probekit.recipe import Read
from probekit.rows import Result, make_rows, read
from probekit.rows.model_names import results_apart
from probekit.statistics.multiplicity import widened
from probekit.statistics.normalised import mean_score

log = logger(__name__)


def measure(
    sources: Sequence[str | Path | Result],
    groups: Sequence[str],
    against: str | Path | None,
    options: ScoreboardOptions,
) -> Result:
    """The rows of :func:`probekit.scoreboard`."""
    published = None if against is None else leaderboard(against)
    found = results_apart([one if isinstance(one, Result) else read(one) for one in sources])
    if published is not None:
        check_models(pd.concat([one.rows for one in found], ignore_index=True), published)
    lines = list(board_lines(found, options))
    if not lines:
        *most, last = [name for name, one in analyses().items() if one.board]
        which = f"{', '.join(most)} or {last}"
        raise UsageError(f"the sources have no layers to put on a scale; give rows of probekit {which}.")
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
    """Rows of a scoreboard, as the table takes them; UsageError for other rows."""
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
    if missing := [line.name for line in lines if line.resampled is None]:
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
            drawn = [again for at in there if (again := at.resampled) is not None]
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
    def resampled(self) -> np.ndarray | None:
        return None if self.line.resampled is None else self.line.resampled[self.place]


def _above(rows: pd.DataFrame, level: float) -> pd.Series:
    """Whether each interval lies above the control; where dev chose the layer, one that holds for all layers."""
    layers = rows.groupby(MODEL, sort=False, dropna=False)["value"].transform("size")
    count = layers.where(rows["chosen_by"] == "dev", 1).to_numpy(dtype=int)
    value, low = (rows[name].to_numpy(dtype=float) for name in ("value", "ci_low"))
    return pd.Series(widened(value, low, count, level=level) > 0, index=rows.index)
