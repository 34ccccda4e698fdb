"""The lines of a scoreboard: each task on all models, on a scale from its control to its ceiling."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from probekit.analyses.options import Control, ScoreboardOptions
from probekit.errors import UsageError
from probekit.metrics import derive
from probekit.rows import Result, layer_labels, make_rows
from probekit.rows.schema import called
from probekit.statistics._sums import Units
from probekit.statistics.bootstrap import bounds, estimates, replicates
from probekit.statistics.contrasts import fitting_metric
from probekit.statistics.normalised import normalised_layers
from probekit.statistics.predictions import Predictions, join

__all__ = ["MODEL", "Line", "board_lines"]

log = logging.getLogger(__name__)

MODEL = ["model", "checkpoint", "step", "trained_on", "regime", "head", "variant"]
"""The columns that say which model a row is about."""
GUESS = 0.5
"""The accuracy of a guess between two sentences."""


@dataclass(frozen=True, slots=True)
class Line:
    """A task on all models.

    Attributes
    ----------
    rows : pd.DataFrame
        A row for each layer of each model.
    again : np.ndarray, optional
        (models, resamples), the normalised scores of the chosen rows, in their order, on the same resampled examples;
        None if there are no predictions.
    ranked : np.ndarray, optional
        The same with one control for all models, the mean of theirs, so that only the metric ranks them; None if their
        examples differ.
    units : int
        The number of examples or groups that are resampled.
    """

    rows: pd.DataFrame
    again: np.ndarray | None = None
    ranked: np.ndarray | None = None
    units: int = 0

    @property
    def chosen(self) -> pd.DataFrame:
        """A row for each model: that of its chosen layer."""
        return self.rows[self.rows["chosen"]]


def board_lines(results: Sequence[Result], options: ScoreboardOptions) -> Iterator[Line]:
    """The lines of all tasks in these results, in the order of the first result of each."""
    found: dict[tuple[str, str, str], list[Result]] = {}
    for one in results:
        for analysis, task, split in one.rows[["analysis", "task", "split"]].drop_duplicates().itertuples(index=False):
            if analysis in OF:
                found.setdefault((str(analysis), str(task), str(split)), []).append(one)
    for (analysis, task, split), some in found.items():
        several = sum(other[:2] == (analysis, task) for other in found) > 1
        for line in OF[analysis](analysis, task, split, some, options):
            name = str(line.rows["line"].iloc[0])
            yield replace(line, rows=line.rows.assign(line=f"{name}, {split}")) if several else line


def _of_predictions(
    analysis: str, task: str, split: str, results: Sequence[Result], options: ScoreboardOptions
) -> Iterator[Line]:
    """The lines of a task from the predictions of probes; models with other examples have lines without pairs."""
    tables = _tables(analysis, task, split, results)
    try:
        tables = [join(*tables)] if tables else []
        paired = True
    except UsageError:
        paired = False
    parts = [part for table in tables for part in _measured(table, options)]
    for name, lines in _named(analysis, task, [line.rows for line in parts]):
        several = [replace(part, rows=rows) for part, rows in zip(parts, lines, strict=True) if len(rows)]
        if paired and len(several) == 1:
            yield replace(several[0], rows=several[0].rows.assign(line=name))
        elif several:
            yield Line(pd.concat([one.rows for one in several], ignore_index=True).assign(line=name))


def _measured(table: Predictions, options: ScoreboardOptions) -> Iterator[Line]:
    """A line for each kind of probe and of vectors in a table."""
    name = fitting_metric(table, None)
    how: dict[str, Any] = {"resamples": options.resamples, "level": options.level, "seed": options.seed}
    numbered = replace(table, fits=table.fits.assign(fit=np.arange(len(table))))
    whole, drawn = _normalised(numbered, str(options.control), how)
    whole = whole[whole["site"] != ""]
    units = Units.of_groups(table.groups, len(table.ids)).count
    for _, rows in whole.groupby(["representation", "estimator"], sort=False):
        at, fits = rows.index.to_numpy(), rows["fit"].to_numpy(dtype=np.int64)
        raw = bounds(metric=name, **how, **table.take(fits).sample())
        rows = _choose(rows.assign(raw=raw.value, raw_low=raw.ci[:, 0], raw_high=raw.ci[:, 1]))
        chosen = rows["chosen"].to_numpy(dtype=bool)
        top, floor = float(rows["ceiling"].iloc[0]), float(rows.loc[chosen, "control"].mean())
        best = table.take(fits[chosen])
        again = replicates(metric=name, resamples=options.resamples, seed=options.seed, **best.sample())
        with np.errstate(divide="ignore", invalid="ignore"):
            ranked = (again - floor) / (top - floor)
        yield Line(rows.drop(columns="fit"), drawn[at][chosen], ranked, units)


def _normalised(table: Predictions, against: str, how: dict[str, Any]) -> tuple[pd.DataFrame, np.ndarray]:
    """The normalised scores of a table and their resamples; beside shuffled labels where it has no other control."""
    try:
        return normalised_layers(table, against=against, **how)
    except UsageError:
        if against == Control.SHUFFLED:
            raise
        log.warning("%s has no %s; its control is shuffled labels.", table.task, against)
        return normalised_layers(table, against=str(Control.SHUFFLED), **how)


def _of_trees(
    analysis: str, task: str, split: str, results: Sequence[Result], options: ScoreboardOptions
) -> Iterator[Line]:
    """The lines of structural probes: edges beside the linear chain, or shuffled trees if these have more."""
    rows = _rows_of(analysis, task, split, results)
    rows = rows[rows["metric"] == "uuas"]
    gold = rows[(rows["target"] == "gold") & (rows["site"] != "")]
    chain = rows.loc[rows["estimator"] == "linear-chain", "value"].max()
    keys = [*MODEL, "site", "layer", "estimator"]
    shuffled = rows[rows["target"] == "shuffled"].groupby(keys, dropna=False)["value"].mean().rename("shuffled")
    beside = gold[keys].merge(shuffled.reset_index(), how="left", on=keys)["shuffled"].to_numpy()
    control = np.fmax(beside, chain)
    against = np.where(beside > chain, "shuffled", "linear-chain")
    for line in _of_rows(analysis, task, gold, control, against):
        yield _with_resamples(line, _tables(analysis, task, split, results), options)


def _of_pairs(
    analysis: str, task: str, split: str, results: Sequence[Result], options: ScoreboardOptions
) -> Iterator[Line]:
    """The lines of minimal pairs, beside a guess."""
    rows = _rows_of(analysis, task, split, results)
    gold = rows[(rows["level"] == "all") & (rows["target"] == "gold")]
    for line in _of_rows(analysis, task, gold, np.full(len(gold), GUESS), np.full(len(gold), "guess")):
        yield _with_resamples(line, _tables(analysis, task, split, results), options)


OF: dict[str, Callable[..., Iterator[Line]]] = {
    "probe": _of_predictions,
    "edges": _of_predictions,
    "structural": _of_trees,
    "pairs": _of_pairs,
}
"""By analysis, the function that makes lines of its results."""


def _tables(analysis: str, task: str, split: str, results: Sequence[Result]) -> list[Predictions]:
    """The predictions of an analysis of a task, by result."""
    found = [p for one in results for p in one.predictions if (p.task, p.split) == (task, split)]
    own = [p.take(np.asarray(p.fits["analysis"] == analysis, dtype=bool)) for p in found]
    return [p for p in own if len(p)]


def _rows_of(analysis: str, task: str, split: str, results: Sequence[Result]) -> pd.DataFrame:
    rows = pd.concat([one.rows for one in results], ignore_index=True)
    return rows[(rows["analysis"] == analysis) & (rows["task"] == task) & (rows["split"] == split)]


def _of_rows(analysis: str, task: str, gold: pd.DataFrame, control: np.ndarray, against: np.ndarray) -> Iterator[Line]:
    """Lines of rows with intervals: the control counts as known, and 1 is the ceiling."""
    scale = {end: (gold[end] - control) / (1 - control) for end in ("value", "ci_low", "ci_high")}
    raw = {"raw": gold["value"], "raw_low": gold["ci_low"], "raw_high": gold["ci_high"]}
    metric = [derive("normalised", str(name)) for name in gold["metric"]]
    gold = gold.assign(**scale, **raw, metric=metric, control=control, against=against, ceiling=1.0)
    for name, (rows,) in _named(analysis, task, [gold], ["estimator"]):
        yield Line(_choose(rows).assign(line=name))


def _with_resamples(line: Line, tables: Sequence[Predictions], options: ScoreboardOptions) -> Line:
    """The line with resamples of its chosen rows, if there are predictions of all of them for the same examples."""
    chosen = line.chosen
    try:
        table = join(*tables) if tables else None
    except UsageError:
        table = None
    if table is None:
        return line
    keys = [*MODEL, "site", "layer", "representation", "estimator", "target"]
    place = {key: at for at, key in enumerate(_keys(table.fits, keys))}
    fits = [place.get(key) for key in _keys(chosen, keys)]
    if None in fits:
        return line
    best, name = table.take(np.array(fits)), table.metrics[0]
    if not np.allclose(estimates(metric=name, **best.sample()), chosen["raw"].astype(float), atol=1e-9):
        return line  # another score than the mean over examples
    again = replicates(metric=name, resamples=options.resamples, seed=options.seed, **best.sample())
    own, floor = chosen["control"].to_numpy(dtype=float)[:, None], float(chosen["control"].mean())
    units = Units.of_groups(best.groups, len(best.ids)).count
    return replace(line, again=(again - own) / (1 - own), ranked=(again - floor) / (1 - floor), units=units)


def _keys(rows: pd.DataFrame, names: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(map(str, row)) for row in rows[list(names)].itertuples(index=False)]


def _named(
    analysis: str, task: str, parts: Sequence[pd.DataFrame], kinds: Sequence[str] = ("estimator", "representation")
) -> Iterator[tuple[str, list[pd.DataFrame]]]:
    """The rows of each line, with its name: the task, the analysis, and what tells several lines of a task apart."""
    name = task if analysis == "probe" else f"{task}, {analysis}"
    every = pd.concat([part[list(kinds)] for part in parts], ignore_index=True).drop_duplicates()
    differ = [kind for kind in kinds if every[kind].nunique(dropna=False) > 1]
    for values in every[differ].drop_duplicates().itertuples(index=False) if differ else [()]:
        rows = [part[np.all([part[k] == v for k, v in zip(differ, values, strict=True)], axis=0)] if differ else part
                for part in parts]  # fmt: skip
        words = [f"{kind} {value:g}" if isinstance(value, float | int) else str(value)
                 for kind, value in zip(differ, values, strict=True)]  # fmt: skip
        yield ", ".join([name, *words]), rows


def _choose(rows: pd.DataFrame) -> pd.DataFrame:
    """``chosen``: the layer of each model with the lowest loss on held-out parts of train, or else the best on dev."""
    if (twice := rows.duplicated([*MODEL, "site", "layer", "estimator", "representation"])).any():
        row = rows[twice].iloc[0]
        raise UsageError(
            f"{row['task']} has two values for layer {layer_labels(rows[twice]).iloc[0]} of {called(row)}; do two "
            "models have the same name? Name them: --model NAME=MODEL, or --model-name."
        )
    chosen, by = pd.Series(index=rows.index, data=False), pd.Series("", index=rows.index)
    held_out = rows["held_out"] if "held_out" in rows else pd.Series(np.nan, index=rows.index)
    for _, part in rows.groupby(MODEL, sort=False, dropna=False):
        model = part[part["site"] == ""]  # scored as a whole, beside its layers
        among = model if len(model) else part
        losses = held_out[among.index].astype(float)
        if len(among) == 1:
            at, how = among.index[0], "only"
        elif losses.notna().all():
            at, how = losses.idxmin(), "held-out"
        else:
            at, how = among["value"].fillna(-np.inf).idxmax(), "dev"
        chosen[at] = True
        by[part.index] = how
    return make_rows(rows.assign(chosen=chosen, chosen_by=by))
