"""Lines of a scoreboard from rows with intervals: trees beside the linear chain, and minimal pairs beside a guess."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from probekit.analyses.scoreboard import ScoreboardOptions
from probekit.analyses.scoreboard.line import MODEL, Line, Table, choose, keys_of, named
from probekit.metrics import derive
from probekit.statistics._sums import Units
from probekit.statistics.bootstrap import estimates, intervals, paired_replicates

GUESS = 0.5
"""The accuracy of a guess between two sentences."""
NEAR = 1e-3
"""How far the mean over pairs may be from that over paradigms, which have a few pairs less here and there, to have its
spread; equal scores count half in the latter."""
CHAIN = "linear-chain"
"""The estimator of the tree in which each word hangs on the one before."""


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
