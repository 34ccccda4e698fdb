"""Ranks of models on the tasks of a scoreboard, and over these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from probekit.analyses.scoreboard import ScoreboardOptions
from probekit.analyses.scoreboard.line import MODEL, Line, counted, keys_of, models_of
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.notes import logger
from probekit.rows.schema import identified
from probekit.statistics.bootstrap import estimates
from probekit.statistics.comparisons import FINE
from probekit.statistics.permutation import BLOCK, exchanged
from probekit.statistics.predictions import Predictions, join
from probekit.statistics.rankings import Ranks, ranks

log = logger(__name__)


class _Field(NamedTuple):
    """All models on a task: a row and the predictions of each, in one order."""

    rows: pd.DataFrame
    predictions: Predictions
    units: int


def ranked(lines: Sequence[Line], options: ScoreboardOptions) -> Iterator[dict[str, Any]]:
    """Ranks of the models on each task that has them all on the same examples, and over these.

    A model is ranked by the line that counts for it, so that models with different heads, poolings or estimators are
    compared, each by its own.
    """
    models = models_of(lines)
    if len(models) < 2:
        return
    fields = list(_fields(lines, list(models)))
    if not fields:
        log.warning("there is no task on which all %d models can be ranked.", len(models))
        return
    pairs = [(a, [b]) for a, b in combinations(range(len(models)), 2)]
    most = max(field.units for field in fields)
    draws = max(options.resamples, min(FINE, BLOCK // most, BLOCK // (len(fields) * len(pairs))))
    value, null = [], []
    for rows, table, _ in fields:
        top, floor = float(rows["ceiling"].iloc[0]), float(rows["control"].mean())
        metric = str(metric_called(str(rows["metric"].iloc[0])).of)
        _, drawn = exchanged(table, pairs, metric, draws=draws, seed=options.seed, by_name=True)
        measured = estimates(metric=metric, **table.sample())
        value.append((measured - floor) / (top - floor))  # one control for all, so that only the metric ranks them
        null.append(drawn / (top - floor))
    one = ranks(np.stack(value), np.stack(null), level=options.level)
    yield from _rank_rows(one, [field.rows for field in fields], list(models.values()))


def _fields(lines: Sequence[Line], models: Sequence[tuple[Any, ...]]) -> Iterator[_Field]:
    """The tasks on which all models can be ranked; a warning says which cannot, and why."""
    others, unequal = [], []
    for of in dict.fromkeys(line.of for line in lines):
        its = [line for line in lines if line.of == of]
        found = [next(((line, i) for line in its if (i := counted(line, model)) is not None), None) for model in models]
        there = [at for at in found if at is not None]
        field = _field(there) if len(there) == len(models) else None
        if field is None:
            others.append(its[0].name)
        elif len({_choices(line, i) for line, i in there}) > 1:
            unequal.append(its[0].name)
        else:
            yield field
    if others:
        log.warning("%s: not all models have the same examples and metric; they are not ranked.", ", ".join(others))
    if unequal:
        log.warning("%s: dev chose the layers, of different numbers for different models, and the best of more looks "
                    "better; models are not ranked.", ", ".join(unequal))  # fmt: skip


def _field(there: Sequence[tuple[Line, int]]) -> _Field | None:
    """The models at these rows of lines; None if their examples or metrics differ."""
    rows = pd.concat([line.chosen.iloc[[i]] for line, i in there], ignore_index=True)
    tables = [line.best.take([i]) for line, i in there if line.best is not None]
    if len(tables) < len(there) or rows["metric"].nunique() > 1 or rows["split"].nunique() > 1:
        return None
    try:
        return _Field(rows, join(*tables), max(line.units for line, _ in there))
    except UsageError:
        return None


def _choices(line: Line, place: int) -> int:
    """Among how many layers dev chose."""
    row = line.chosen.iloc[place]
    if row["chosen_by"] != "dev":
        return 1
    return keys_of(line.rows, MODEL).count(keys_of(line.chosen, MODEL)[place])


def _rank_rows(
    one: Ranks, fields: Sequence[pd.DataFrame], models: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    names = [identified({**about, "representation": ""}) for about in models]
    for t, rows in enumerate(fields):
        for m, about in enumerate(models):
            own = rows.iloc[m]
            yield {
                **about, **{key: own[key] for key in ("task", "split", "line", "group", "estimator")},
                "metric": "rank", "value": one.rank[t, m], "ci_low": one.low[t, m], "ci_high": one.high[t, m],
                "n": int(own["n"]), "better_than": _listed(names, one.better[t, m]),
            }  # fmt: skip
    for m, about in enumerate(models):
        whole = {**about, "group": "", "n": len(fields), "tasks": len(fields)}
        yield {
            **whole, "metric": "rank", "value": one.overall[m], "ci_low": one.overall_low[m],
            "ci_high": one.overall_high[m], "better_than": _listed(names, one.better_overall[m]),
        }  # fmt: skip
        yield {
            **whole, "metric": "mean-rank", "value": one.mean_rank[m], "ci_low": one.mean_low[m],
            "ci_high": one.mean_high[m],
        }  # fmt: skip


def _listed(names: Sequence[str], which: np.ndarray) -> str:
    return "; ".join(name for name, yes in zip(names, which, strict=True) if yes)
