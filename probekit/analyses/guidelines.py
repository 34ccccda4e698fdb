"""Which regime to prefer for a task, and how sure that is: Table 1 of Peters, Ruder & Smith (2019), from runs.

Fine-tuning and feature extraction are held against each other on the same examples. Examples are one source of chance,
training seeds another (Reimers & Gurevych 2017; Dror et al. 2018; Bouthillier et al. 2021): with several seeds of a
regime, the interval holds both. One seed of the other regime is taken to vary as much. With one seed of each, nothing
can be told beyond these two trained models, and no regime is preferred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.options import Regime
from probekit.adaptation.runs.run import Run
from probekit.analyses.finished_runs import (
    REGIMES,
    FinishedRun,
    check_together,
    check_weights,
    common_split,
    predictions_on,
    read_run,
)
from probekit.analyses.options import GuidelinesOptions
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.public import public
from probekit.recipe import Read
from probekit.rows import Result, make_rows
from probekit.statistics.bootstrap import estimates, intervals, replicates
from probekit.statistics.multiplicity import holm
from probekit.statistics.predictions import Predictions, join
from probekit.tasks.task import TaskKind

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CANNOT_TELL", "EITHER", "Difference", "difference", "guidelines", "overview", "paired"]

CANNOT_TELL, EITHER = "cannot tell", "either"
ALPHA = 0.05
CONFIDENCE = ((0.01, "high"), (ALPHA, "moderate"))
FIRST, SECOND = Regime.FINE_TUNE, Regime.FEATURE_EXTRACTION


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """A metric of some fits minus that of others, both means over training seeds.

    Attributes
    ----------
    first, second : float
        The two means.
    ci : tuple[float, float]
        95 % interval of their difference.
    seeds : tuple[int, int]
        How many of each.
    n : int
        Examples (sentences where words are tagged).
    replicates : np.ndarray
        What the difference is made of again and again, where it is defined.
    """

    metric: str
    split: str
    first: float
    second: float
    ci: tuple[float, float]
    seeds: tuple[int, int]
    n: int
    replicates: np.ndarray

    @property
    def of_regimes(self) -> bool:
        """Whether it tells of regimes: with one seed of each it is of two trained models."""
        return max(self.seeds) > 1

    @property
    def value(self) -> float:
        """First minus second."""
        return self.first - self.second

    @property
    def p(self) -> float:
        """Two-sided, of there being no difference: 1 minus the level at which the interval just touches 0; or NaN."""
        below, above = self._share(self.replicates <= 0), self._share(self.replicates >= 0)
        return float(np.minimum(1, 2 * np.minimum(below, above)))

    def p_equal(self, margin: float) -> float:
        """Of the difference being ``margin`` or more: 1 minus the level at which the interval just fits into ± margin.

        It is no smaller than 2 (1 - margin)ⁿ: models that differ on a share ``margin`` of all examples agree on all of
        n that often, and the bootstrap of examples on which they agree would not know.
        """
        outside = np.maximum(self._share(self.replicates >= margin), self._share(self.replicates <= -margin))
        return float(np.minimum(1, 2 * np.maximum(outside, (1 - margin) ** self.n)))

    def _share(self, found: np.ndarray) -> float:
        return float((1 + found.sum()) / (1 + len(found))) if len(found) else np.nan


def difference(
    table: Predictions, first: np.ndarray, metric: str, *, split: str = "", resamples: int = 5000, seed: int = 0
) -> Difference:
    """The mean of some fits of a table minus the mean of the others, examples and training seeds being drawn.

    Examples (groups) are drawn with replacement, the same for all fits. Drawing two or three seeds again would not show
    how little they tell of their own variation; therefore the error of the means over seeds is added as noise of
    Student's t, with Welch's degrees of freedom. That error holds what seeds and examples do together, which is taken
    out of the bootstrap over examples lest it be counted twice. A side with one seed is taken to vary as the other one
    does. With one seed of each side the interval is of these two models alone.

    In simulations (accuracy of 100 and 500 examples, 400 runs each) 95 % intervals held the truth in 94.5 to 97.3 % of
    the cases with 3 or 5 seeds of both, in 92.5 to 96.3 % with 2 and 5, in 98 to 99 % with 2 and 2. With 1 and 1, where
    seeds move accuracy by 3.5 points, the interval holds the difference of the regimes in 78 and 53 %.

    Parameters
    ----------
    table : Predictions
        fits, one a training seed.
    first : np.ndarray
        Bool (F,), which of them are the first.
    """
    one_each = estimates(metric=metric, **table.sample())
    again = replicates(metric=metric, resamples=resamples, seed=seed, **table.sample())
    again = again[:, np.isfinite(again).all(0)]
    units = len(table.ids) if table.groups is None else len(np.unique(table.groups))
    sides = (first, ~first)
    ends, seeds = [float(one_each[side].mean()) for side in sides], (int(first.sum()), int((~first).sum()))
    if 2 * again.shape[1] < resamples:
        return Difference(metric, split, ends[0], ends[1], (np.nan, np.nan), seeds, units, np.empty(0))
    value, drawn = ends[0] - ends[1], again[first].mean(0) - again[~first].mean(0)
    drawn = _with_seeds(drawn, value, [(again[side], one_each[side]) for side in sides], seed)
    least, most = metric_called(metric).range
    low, high = np.clip(intervals(drawn[None], level=1 - ALPHA, units=units)[0], least - most, most - least)
    return Difference(metric, split, ends[0], ends[1], (float(low), float(high)), seeds, units, drawn)


def _with_seeds(
    drawn: np.ndarray, value: float, sides: Sequence[tuple[np.ndarray, np.ndarray]], seed: int
) -> np.ndarray:
    """Replicates of a difference of two means, with the variation over seeds; as they are with one seed of each.

    sides: of each the replicates of its seeds, (S, R), and their metrics, (S,).
    """
    several = [(one.var(ddof=1), (own - own.mean(0)).var(1).sum(), len(one) - 1) for own, one in sides if len(one) > 1]
    if not several:
        return drawn
    variances = several if len(several) == 2 else several * 2  # a single seed varies as the other side's do
    counts = [len(one) for _, one in sides]
    if whole := drawn.var():
        twice = sum(own / df / count for (_, own, df), count in zip(variances, counts, strict=True))
        drawn = value + np.sqrt(max(0.0, 1 - twice / whole)) * (drawn - value)
    errors = [(of / count, df) for (of, _, df), count in zip(variances, counts, strict=True)]
    error = sum(of for of, _ in errors)
    if not error:
        return drawn
    freedom = error**2 / sum(of**2 / df for of, df in errors) if len(several) == 2 else several[0][2]
    return drawn + np.sqrt(error) * np.random.default_rng([seed, 1]).standard_t(freedom, len(drawn))


def paired(
    runs_a: Sequence[str | Path | Run], runs_b: Sequence[str | Path | Run], options: GuidelinesOptions | None = None
) -> Difference:
    """A metric of the kept weights of some runs minus that of others, on the same examples; see :func:`difference`.

    Parameters
    ----------
    runs_a, runs_b : Sequence[str | Path | Run]
        Finished runs on the same data; those of one side differ in their training seed alone.
    options : GuidelinesOptions, optional
        As of :func:`guidelines`.

    Raises
    ------
    UsageError
        Where the runs do not belong together.
    DataError
        Where a run lacks what it said of each example.
    """
    a, b = ([read_run(run) for run in runs] for runs in (runs_a, runs_b))
    if not a or not b:
        raise UsageError("runs of two regimes are wanted, one or more of each.")
    check_together(a, b)
    return _paired(a, b, options or GuidelinesOptions())


@public(options=GuidelinesOptions)
def guidelines(*runs: str | Path, options: GuidelinesOptions) -> Result:
    """Fine-tuning or feature extraction? One row a task and model, in the order of the runs.

    Parameters
    ----------
    *runs : path or Run
        Finished runs on the same data: both regimes of each task, with one seed or several; those of one regime differ
        in their training seed alone.
    options : GuidelinesOptions
        ``metric``, ``split``, ``margin``, ``resamples`` and ``seed``; they may be given one by one.

    Returns
    -------
    Result
        Rows of the metric "difference(NAME)", with the estimator "fine-tune - feature-extraction": value, ci_low and
        ci_high (95 %, of this row alone), ``p`` of no difference, n examples. Own columns:

        fine_tune, feature_extraction, fine_tune_seeds, feature_extraction_seeds
            The means, and over how many seeds.
        p_equal, p_adjusted
            p of a difference of ``margin`` or more; the smaller of both p, which is that of the statement that can be
            made, corrected for all rows (Holm 1979). With one seed of each regime there is no such statement, and
            ``p`` and ``p_equal`` are of the two trained models.
        prefer
            "either" where the difference lies within ± margin, the better regime where it is not 0, "cannot tell"
            otherwise; each with ``p_adjusted`` of 0.05 at most.
        confidence
            "high" (p_adjusted ≤ 0.01), "moderate" (≤ 0.05) or "none"; "high (one seed)" where one regime has a single
            seed, which is taken to vary as much as those of the other.
        why, caveat
            One sentence with the numbers; what these do not hold, or "".
        kind, margin
            "single sentences", "sentence pairs" or "word tags".

    Raises
    ------
    UsageError
        Where the runs do not belong together. A task with one regime only is a row, "cannot tell".
    DataError
        Where a run lacks what it said of each example.

    Examples
    --------
    >>> probekit.guidelines("runs/mrpc", "runs/mrpc-esim").rows["prefer"]  # doctest: +SKIP
    """
    if not runs:
        raise UsageError("no run was given; probekit guidelines wants the folders of finished runs.")
    groups: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in map(read_run, runs):
        groups.setdefault((run.card["task"], run.card["model"]), []).append(run)
    records, found, heads = [], [], []
    for several in groups.values():
        check_weights(several)
        sides = [[run for run in several if run.card["regime"] == regime] for regime in (FIRST, SECOND)]
        check_together(*sides)
        one = _paired(sides[0], sides[1], options) if all(sides) else None
        found.append(one)
        heads.append([side[0].card["head"]["head"] for side in sides if side])
        records.append(_about(several, one, options) | {"caveat": _caveat(one, several), "margin": options.margin})
    _judge(records, found, heads)
    reads = tuple(
        Read(str(run.path), "run", str(run.card["encoder"].get("weights_digest") or ""), {"run": run.card["run"]})
        for several in groups.values()
        for run in several
    )
    return Result(make_rows(records), reads=reads)


def _judge(records: list[dict[str, Any]], found: Sequence[Difference | None], heads: Sequence[Sequence[str]]) -> None:
    """Write into the rows which regime to prefer, how sure that is among all of them, and why."""
    p, p_equal = np.array(
        [(d.p, d.p_equal(r["margin"])) if d else (np.nan, np.nan) for d, r in zip(found, records, strict=True)]
    ).T
    told = [bool(d and d.of_regimes) for d in found]
    least = np.where(told, np.fmin(p, p_equal), np.nan)
    adjusted = holm(least)
    for k, (record, one) in enumerate(zip(records, found, strict=True)):
        fits = p_equal[k] * adjusted[k] / least[k] <= ALPHA  # NaN is not
        record |= {"p": p[k], "p_equal": p_equal[k], "p_adjusted": adjusted[k]}
        record["prefer"] = EITHER if fits else _better(one) if one and adjusted[k] <= ALPHA else CANNOT_TELL
        sure = next((word for most, word in CONFIDENCE if adjusted[k] <= most), "none")
        record["confidence"] = f"{sure} (one seed)" if one and sure != "none" and 1 in one.seeds else sure
        record["why"] = _why(record, one, heads[k], int(np.isfinite(least).sum()))


def overview(rows: pd.DataFrame) -> list[str]:
    """What the rows of :func:`guidelines` say together, one sentence a model and kind of task, as far as they carry.

    A kind of task is told to prefer a regime only where each of its tasks does.
    """
    sentences = []
    for model, part in rows.groupby("model", sort=False):
        kinds = [("any task", part), *part.groupby("kind", sort=False)]
        sentences += [f"{model}, {kind}: {_together(of)}." for kind, of in (kinds if len(kinds) > 2 else kinds[1:])]
    return sentences


def _paired(a: Sequence[FinishedRun], b: Sequence[FinishedRun], options: GuidelinesOptions) -> Difference:
    runs, metric = [*a, *b], options.metric
    split = common_split(runs, options.split)
    tables = [predictions_on(run, split) for run in runs]
    for run, table in zip(runs, tables, strict=True):
        metric = metric or table.metrics[0]
        if metric not in table.metrics:
            raise UsageError(f"{run.path} was not evaluated by {metric}, but by {', '.join(table.metrics)}.")
    try:
        table = join(*tables)
    except UsageError as error:
        raise UsageError(f"{', '.join(str(run.path) for run in runs)}: {error}") from None
    if (table.gold != table.gold[:1]).any():
        raise UsageError(f"{runs[0].path} and the others were held against other labels; evaluate them on the same.")
    first = np.arange(len(runs)) < len(a)
    return difference(
        table, first, metric or table.metrics[0], split=split, resamples=options.resamples, seed=options.seed
    )


def _better(d: Difference) -> str:
    return str(FIRST if d.value * metric_called(d.metric).sign > 0 else SECOND)


def _about(runs: Sequence[FinishedRun], d: Difference | None, options: GuidelinesOptions) -> dict[str, Any]:
    """The columns of a row that are known before all rows are."""
    card = runs[0].card
    target = card["target"]
    tags = target["kind"] == TaskKind.SEQUENCE_LABELLING
    kind = "word tags" if tags else "sentence pairs" if target["paired"] else "single sentences"
    count = [sum(run.card["regime"] == regime for run in runs) for regime in (FIRST, SECOND)]
    ends = (np.nan, np.nan) if d is None else (d.first, d.second)
    return {
        "analysis": "guidelines",
        "task": card["task"],
        "trained_on": card["task"],
        "variant": card.get("variant", "") if len({run.card.get("variant", "") for run in runs}) == 1 else "",
        "split": d.split if d else options.split or card["splits"][-1],
        "model": card["model"],
        "layer": None,
        "representation": "none",
        "estimator": f"{FIRST} - {SECOND}",
        "target": "gold",
        "metric": f"difference({d.metric if d else options.metric or target['metrics'][0]})",
        "value": ends[0] - ends[1],
        "ci_low": d.ci[0] if d else np.nan,
        "ci_high": d.ci[1] if d else np.nan,
        "n": d.n if d else None,
        "kind": kind,
        "fine_tune": ends[0],
        "feature_extraction": ends[1],
        "fine_tune_seeds": count[0],
        "feature_extraction_seeds": count[1],
    }


def _caveat(d: Difference | None, runs: Sequence[FinishedRun]) -> str:
    """What a difference does not hold, in sentences, or ""."""
    if d is None:
        return ""
    told = []
    single = [REGIMES[regime] for regime, count in zip((FIRST, SECOND), d.seeds, strict=True) if count == 1]
    if not d.of_regimes:
        told.append("One seed of each: these are two trained models, and what other seeds would give cannot be told.")
    elif single:
        other = REGIMES[FIRST if d.seeds[0] > 1 else SECOND]
        told.append(f"One seed of {single[0]}: it is taken to vary as much as those of {other} do.")
    if any(run.card["identity"]["keep"] == "best" and run.card["splits"][1] == d.split for run in runs):
        told.append(f"The weights were chosen by their score on {d.split}, which flatters them there.")
    return " ".join(told)


def _why(row: Mapping[str, Any], d: Difference | None, heads: Sequence[str], tasks: int) -> str:
    """The numbers of a row as a sentence; heads : of either regime; tasks : that p is corrected for."""
    if d is None:
        return f"There is no run of {REGIMES[SECOND if row['fine_tune_seeds'] else FIRST]}."
    ends = [
        f"{REGIMES[regime]} ({head} head, {count} seed{'s' * (count > 1)}) {end:.3f}"
        for regime, head, count, end in zip((FIRST, SECOND), heads, d.seeds, (d.first, d.second), strict=True)
    ]
    units = "sentences" if row["kind"] == "word tags" else "examples"
    told = f"By {d.metric} on the same {d.n:,} {units} of {d.split}, {ends[0]} and {ends[1]}"
    if not len(d.replicates):
        return f"{told}; the difference is undefined on most resamples."
    sure = row["p_adjusted" if d.of_regimes else "p"]
    p = "p < 0.001" if sure < 0.001 else f"p {sure:.3f}"
    chance = f"{p}, corrected for {tasks} tasks" if tasks > 1 else p
    words = {
        EITHER: f"is less than {row['margin']:g} either way",
        CANNOT_TELL: f"may be 0 and may be more than {row['margin']:g}",
    }
    if not d.of_regimes:
        chance = f"{p} of these two models alone"
        words[CANNOT_TELL] = "may be one of seeds as well as of regimes"
    difference = f"the difference, {d.value:+.3f} (95 % interval {d.ci[0]:+.3f} to {d.ci[1]:+.3f})"
    return f"{told}; {difference}, {words.get(row['prefer'], 'is not 0')} ({chance})."


def _together(rows: pd.DataFrame) -> str:
    """What rows prefer: one thing if all do, otherwise how many prefer what, and which."""
    tasks: dict[str, list[str]] = {}
    for row in rows.to_dict("records"):
        few = " (one seed)" if str(row["confidence"]).endswith("(one seed)") else ""
        tasks.setdefault(row["prefer"], []).append(f"{row['task']}{few}")
    named = {CANNOT_TELL: CANNOT_TELL, EITHER: EITHER} | {str(regime): name for regime, name in REGIMES.items()}
    if len(tasks) > 1:
        return ", ".join(f"{named[w]} for {len(t)} of {len(rows)} ({', '.join(t)})" for w, t in sorted(tasks.items()))
    ((word, names),) = tasks.items()
    singles = sum(name.endswith("(one seed)") for name in names)
    on = f"all {len(names)} tasks" if len(names) > 1 else f"the one task there is, {names[0]}"
    on += f"; one seed of a regime in {singles} of them" if singles and len(names) > 1 else ""
    return f"{named[word]} ({on})" if word in (CANNOT_TELL, EITHER) else f"use {named[word]} ({on})"
