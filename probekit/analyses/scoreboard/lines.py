"""The lines of a scoreboard: each task on all models, on a scale from its control to its ceiling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from probekit.analyses.scoreboard import Control, ScoreboardOptions
from probekit.analyses.scoreboard.line import MODEL, Line, Table, choose, keys_of, named
from probekit.analysis import analyses, load
from probekit.errors import UsageError
from probekit.metrics import derive
from probekit.notes import logger
from probekit.rows import Result
from probekit.rows.examples import examples_path
from probekit.statistics._sums import Units
from probekit.statistics.bootstrap import bounds, estimates, intervals, paired_replicates
from probekit.statistics.contrasts import fitting_metric
from probekit.statistics.normalised import normalised_layers
from probekit.statistics.predictions import Predictions, join
from probekit.statistics.shared_units import Source, shared_units
from probekit.tasks.union import JOIN

log = logger(__name__)


GUESS = 0.5
"""The accuracy of a guess between two sentences."""
NEAR = 1e-3
"""How far the mean over pairs may be from that over paradigms, which have a few pairs less here and there, to have its
spread; equal scores count half in the latter."""
CHAIN = "linear-chain"
"""The estimator of the tree in which each word hangs on the one before."""
OF_PREDICTIONS = "probekit.analyses.scoreboard.lines:lines_of_predictions"


def lines_of_trees(
    analysis: str, task: str, rows: pd.DataFrame, tables: Sequence[Table], options: ScoreboardOptions
) -> Iterator[Line]:
    """The lines of structural probes: edges beside the linear chain, or shuffled trees if these have more."""
    rows = rows[rows["metric"] == "uuas"]
    gold = rows[(rows["target"] == "gold") & (rows["site"] != "")]
    chain = rows.loc[rows["estimator"] == CHAIN, "value"].max()
    keys = [*MODEL, "site", "layer", "estimator"]
    error = (rows["ci_high"] - rows["ci_low"]) / 2 / stats.norm.ppf((1 + options.level) / 2)
    shuffled = rows.assign(error=error)[rows["target"] == "shuffled"].groupby(keys, dropna=False)[["value", "error"]]
    beside = gold[keys].merge(shuffled.mean().reset_index(), how="left", on=keys)
    control = np.fmax(beside["value"].to_numpy(), chain)
    of_chain = ~(beside["value"].to_numpy() > chain)
    against = np.where(of_chain, CHAIN, "shuffled-trees")
    gold = gold.assign(error=np.where(of_chain, 0.0, beside["error"].to_numpy()))
    for line in _of_rows(analysis, task, gold, control, against):
        yield _with_resamples(line, tables, options, trees=True)


def lines_of_pairs(
    analysis: str, task: str, rows: pd.DataFrame, tables: Sequence[Table], options: ScoreboardOptions
) -> Iterator[Line]:
    """The lines of minimal pairs, beside a guess."""
    gold = rows[(rows["level"] == "all") & (rows["target"] == "gold")]
    gold = gold.assign(error=0.0)
    for line in _of_rows(analysis, task, gold, np.full(len(gold), GUESS), np.full(len(gold), "guess")):
        yield _with_resamples(line, tables, options, trees=False)


def _of_rows(analysis: str, task: str, gold: pd.DataFrame, control: np.ndarray, against: np.ndarray) -> Iterator[Line]:
    """Lines of rows with intervals: the control counts as known, and 1 is the ceiling."""
    scale = {end: (gold[end] - control) / (1 - control) for end in ("value", "ci_low", "ci_high")}
    raw = {"raw": gold["value"], "raw_low": gold["ci_low"], "raw_high": gold["ci_high"]}
    metric = [derive("normalised", str(name)) for name in gold["metric"]]
    gold = gold.assign(**scale, **raw, metric=metric, control=control, against=against, ceiling=1.0)
    for name, (rows,) in named(analysis, task, [gold], ["estimator"]):
        yield Line(choose(rows).assign(line=name))


def _with_resamples(line: Line, tables: Sequence[Table], options: ScoreboardOptions, *, trees: bool) -> Line:
    """The line with resamples of its chosen rows, if there are predictions of them for the same examples.

    The intervals of all rows of trees then have the error of the control: of the linear chain, which is resampled
    together with the probe, or of shuffled trees.
    """
    chained = bool((line.rows["against"] == CHAIN).any())
    rows, bare = line.rows if trees else line.chosen, replace(line, rows=line.rows.drop(columns="error"))
    if len(tables) != 1:
        return bare
    table = tables[0]
    keys = [*MODEL, "site", "layer", "representation", "estimator", "target"]
    place = {key: at for at, key in enumerate(keys_of(table.own.fits, keys))}
    found = [place.get(key) for key in keys_of(rows, keys)]
    fits = np.array([at for at in found if at is not None])
    chains = np.flatnonzero(table.own.fits["estimator"] == CHAIN)[:1]
    if len(fits) < len(rows) or (chained and len(chains) == 0):
        return bare
    name = table.own.metrics[0]
    values = estimates(metric=name, **table.own.take(fits).sample())
    if not np.allclose(values, rows["raw"].astype(float), rtol=0, atol=NEAR):
        return bare  # another score than the mean over examples
    at = np.append(fits, chains)
    of_examples: dict[str, Any] = {"metric": name, "resamples": options.resamples, "seed": options.seed}
    whole = bare.rows
    if trees:
        again = _beside(paired_replicates(**table.own.take(at).sample(), **of_examples), rows, options)
        units = Units.of_groups(table.own.groups, len(table.own.ids)).count
        (low, high), value = intervals(again, level=options.level, units=units).T, rows["value"].to_numpy(dtype=float)
        whole = whole.assign(ci_low=np.fmin(low, value), ci_high=np.fmax(high, value))
    shared = paired_replicates(**table.take(at).sample(), **of_examples, by_name=True)
    chosen = rows["chosen"].to_numpy(dtype=bool)
    return Line(whole, _beside(shared, rows, options)[chosen], table.take(fits[chosen]), table.units)


def _beside(drawn: tuple[np.ndarray, np.ndarray], rows: pd.DataFrame, options: ScoreboardOptions) -> np.ndarray:
    """Resampled scores of rows beside their control: the chain on the same examples, or a control with its error."""
    first, second = drawn
    control, error = (rows[name].to_numpy(dtype=float)[:, None] for name in ("control", "error"))
    luck = np.random.default_rng([options.seed, 5]).normal(size=(1, first.shape[1]))
    floor = control + error * luck
    if len(second) > len(rows):
        floor = np.where((rows["against"] == CHAIN).to_numpy()[:, None], second[-1], floor)
    return np.asarray((first[: len(rows)] - floor) / (1 - floor))


LITTLE = 0.1
"""The share of its units that a task may lose to groups of other tasks without a warning."""
Task = tuple[str, str, str]
"""Analysis, task and split."""


def board_lines(results: Sequence[Result], options: ScoreboardOptions) -> Iterator[Line]:
    """The lines of all tasks in these results, in the order of the first result of each.

    The column ``counted`` says which rows count in means and ranks: a task counts once for each model, by the chosen
    layer of its first line with this model.
    """
    found: dict[Task, list[Result]] = {}
    known = analyses()
    for one in results:
        for analysis, task, split in one.rows[["analysis", "task", "split"]].drop_duplicates().itertuples(index=False):
            board = known[analysis].board if analysis in known else ""
            if board == OF_PREDICTIONS:
                _check_predictions(one, analysis, task, split)
            if board:
                found.setdefault((str(analysis), str(task), str(split)), []).append(one)
    tables, seen = _tables(found), set[tuple[str, ...]]()
    for (analysis, task, split), some in found.items():
        several = sum(other[:2] == (analysis, task) for other in found) > 1
        rows = _rows_of(analysis, task, split, some)
        for line in load(known[analysis].board)(analysis, task, rows, tables[analysis, task, split], options):
            models = keys_of(line.rows, MODEL)
            new = [chosen and (*line.of, *model) not in seen
                   for model, chosen in zip(models, line.rows["chosen"], strict=True)]  # fmt: skip
            seen |= {(*line.of, *model) for model in models}
            name = f"{line.name}, {split}" if several else line.name
            yield replace(line, rows=line.rows.assign(line=name, counted=new))


def _check_predictions(one: Result, analysis: str, task: str, split: str) -> None:
    """Raise UsageError if a result of probes lacks the predictions of a task, which its scores are made from again."""
    for table in one.predictions:
        if (table.task, table.split) == (task, split) and (table.fits["analysis"] == analysis).any():
            return
    beside = "them" if one.path is None else f"{examples_path(one.path).name} back beside the rows"
    raise UsageError(
        f"{one.path or 'a result'} has rows of {analysis} for {task}, {split}, but not its predictions, from which the "
        f"scoreboard makes its scores and intervals. Bring {beside}, or run probekit {analysis} again."
    )


def _tables(found: Mapping[Task, Sequence[Result]]) -> dict[Task, list[Table]]:
    """The predictions of each task: one table for all models, or several if their examples differ."""
    own: dict[Task, list[Predictions]] = {}
    for (analysis, task, split), results in found.items():
        every = [p for one in results for p in one.predictions if (p.task, p.split) == (task, split)]
        some = [p.take(np.asarray(p.fits["analysis"] == analysis, dtype=bool)) for p in every]
        some = [p for p in some if len(p)]
        try:
            own[analysis, task, split] = [join(*some)] if some else []
        except UsageError:
            own[analysis, task, split] = some
    flat = [(_source(found[key][0], *key[1:]), table) for key, some in own.items() for table in some]
    units = iter(shared_units(flat)) if flat else iter(())
    tables = {key: [Table(table, next(units)) for table in some] for key, some in own.items()}
    _tell_of_joined(tables)
    return tables


def _tell_of_joined(tables: Mapping[Task, Sequence[Table]]) -> None:
    """Say which tasks have fewer units than groups of their own, since other tasks connect these."""
    counts = {key: (Units.of_groups(table.own.groups, len(table.own.ids)).count, table.units)
              for key, some in tables.items() for table in some}  # fmt: skip
    if told := [f"{task}, {analysis} ({shared} of {own})" for (analysis, task, _), (own, shared) in counts.items()
                if shared < (1 - LITTLE) * own]:  # fmt: skip
        log.warning(
            "in means and ranks, fewer units are resampled than these tasks have examples or groups, since other tasks "
            "of the same sentences have larger groups: %s.", ", ".join(told),
        )  # fmt: skip


def _source(result: Result, task: str, split: str) -> Source:
    """The folder of the data and the cache of the evaluated examples, as far as the result says what it read."""
    reads = [read for read in result.reads if read.kind == "cache"]
    specs = [spec if isinstance(spec := read.about.get("spec"), Mapping) else {} for read in reads]
    own = [
        read for read, spec in zip(reads, specs, strict=True) if (spec.get("task"), spec.get("split")) == (task, split)
    ]
    if not own:
        return Source()
    recipe = own[0].about.get("recipe")
    arguments = recipe.get("arguments") if isinstance(recipe, Mapping) else None
    if not isinstance(arguments, Mapping):
        return Source(cache=own[0].digest)
    files = [Path(name) for name in str(arguments.get("task", "")).split(JOIN)]
    folders = {str(file.parent) for file in files if file.suffix == ".toml"}
    folder = str(arguments.get("data_dir") or (folders.pop() if len(folders) == 1 else ""))
    return Source(folder, own[0].digest)


def lines_of_predictions(
    analysis: str, task: str, _: pd.DataFrame, tables: Sequence[Table], options: ScoreboardOptions
) -> Iterator[Line]:
    """The lines of a task from the predictions of probes; models with other examples have lines without pairs."""
    parts = [part for table in tables for part in _measured(table, options)]
    for name, lines in named(analysis, task, [line.rows for line in parts]):
        several = [replace(part, rows=rows) for part, rows in zip(parts, lines, strict=True) if len(rows)]
        if len(several) == 1:
            yield replace(several[0], rows=several[0].rows.assign(line=name))
        elif several:
            rows = pd.concat([one.rows for one in several], ignore_index=True).assign(line=name)
            again = np.concatenate([one.resampled for one in several if one.resampled is not None])
            yield Line(rows, again, None, min(one.units for one in several))


def _measured(table: Table, options: ScoreboardOptions) -> Iterator[Line]:
    """A line for each kind of probe and of vectors in a table."""
    own = table.own
    name = fitting_metric(own, None)
    how: dict[str, Any] = {"resamples": options.resamples, "level": options.level, "seed": options.seed}
    numbered = replace(own, fits=own.fits.assign(fit=np.arange(len(own))))
    whole = _normalised(numbered, str(options.control), how)[0]
    for _, rows in whole[whole["site"] != ""].groupby(["representation", "estimator"], sort=False):
        fits = rows["fit"].to_numpy(dtype=np.int64)
        raw = bounds(metric=name, **how, **own.take(fits).sample())
        rows = choose(rows.assign(raw=raw.value, raw_low=raw.ci[:, 0], raw_high=raw.ci[:, 1]))
        chosen = fits[rows["chosen"].to_numpy(dtype=bool)]
        again = _resampled(numbered, table, chosen, options, how)
        yield Line(rows.drop(columns="fit"), again, table.take(chosen), table.units)


def _resampled(
    numbered: Predictions, table: Table, chosen: np.ndarray, options: ScoreboardOptions, how: Mapping[str, Any]
) -> np.ndarray:
    """The normalised scores of chosen fits on resampled shared units, (models, resamples)."""
    keys = [*MODEL, "site", "layer", "representation", "estimator"]
    every, wanted = keys_of(numbered.fits, keys), set(keys_of(numbered.fits.iloc[chosen], keys))
    beside = (numbered.fits["representation"] == "none").to_numpy(dtype=bool)
    some = np.flatnonzero(beside | np.array([key in wanted for key in every]))
    part = Table(numbered, table.shared).take(some)
    rows, again = _normalised(part, str(options.control), {**how, "by_name": True}, quiet=True)
    place = {fit: i for i, fit in enumerate(rows["fit"].astype(int))}
    return again[[place[fit] for fit in chosen.tolist()]]


def _normalised(
    table: Predictions, against: str, how: Mapping[str, Any], *, quiet: bool = False
) -> tuple[pd.DataFrame, np.ndarray]:
    """The normalised scores of a table and their resamples; beside shuffled labels where it has no other control."""
    try:
        return normalised_layers(table, against=against, **how)
    except UsageError:
        if against == Control.SHUFFLED:
            raise
        if not quiet:
            log.warning("%s has no %s; its control is shuffled labels.", table.task, against)
        return normalised_layers(table, against=str(Control.SHUFFLED), **how)


def _rows_of(analysis: str, task: str, split: str, results: Sequence[Result]) -> pd.DataFrame:
    rows = pd.concat([one.rows for one in results], ignore_index=True)
    return rows[(rows["analysis"] == analysis) & (rows["task"] == task) & (rows["split"] == split)]
