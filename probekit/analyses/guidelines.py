"""The regime to prefer for a task, with its uncertainty: Table 1 of Peters, Ruder & Smith (2019), from runs.

Fine-tuning and feature extraction are compared on the same examples. Examples are one source of variation, training
seeds another (Reimers & Gurevych 2017; Dror et al. 2018; Bouthillier et al. 2021): with several seeds of a regime, the
interval includes both. A single seed of the other regime is assumed to vary as much. With one seed of each regime, the
conclusion is limited to these two trained models, and no regime is preferred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
        Number of seeds of each.
    n : int
        Number of units drawn as a whole: examples (for word tags, sentences), or groups of them.
    replicates : np.ndarray
        The resampled differences, where defined.
    examples : int
        Number of examples, or of sentences.
    """

    metric: str
    split: str
    first: float
    second: float
    ci: tuple[float, float]
    seeds: tuple[int, int]
    n: int
    replicates: np.ndarray
    examples: int = 0

    @property
    def of_regimes(self) -> bool:
        """Whether the difference is between regimes; with one seed of each it is between two trained models."""
        return max(self.seeds) > 1

    @property
    def value(self) -> float:
        """First minus second."""
        return self.first - self.second

    @property
    def p(self) -> float:
        """Two-sided p of no difference: 1 minus the level at which the interval just touches 0; or NaN."""
        below, above = self._share(self.replicates <= 0), self._share(self.replicates >= 0)
        return float(np.minimum(1, 2 * np.minimum(below, above)))

    def p_equal(self, margin: float) -> float:
        """p of a difference of ``margin`` or more: 1 minus the level at which the interval just fits into ± margin.

        It is at least 2 (1 - margin)ⁿ: models that differ on a share ``margin`` of all examples agree on all n of a
        sample with probability (1 - margin)ⁿ, which a bootstrap of that sample cannot reveal.
        """
        outside = np.maximum(self._share(self.replicates >= margin), self._share(self.replicates <= -margin))
        return float(np.minimum(1, 2 * np.maximum(outside, (1 - margin) ** self.n)))

    def _share(self, found: np.ndarray) -> float:
        return float((1 + found.sum()) / (1 + len(found))) if len(found) else np.nan


def difference(
    table: Predictions, first: np.ndarray, metric: str, *, split: str = "", resamples: int = 5000, seed: int = 0
) -> Difference:
    """The mean of some fits of a table minus the mean of the others, over examples and training seeds.

    Examples (groups) are resampled with replacement, the same for all fits. Two or three seeds are too few to resample;
    instead, the error of the means over seeds is added as Student's t noise with Welch's degrees of freedom. That error
    includes the interaction of seeds and examples, which is removed from the bootstrap over examples so that it does
    not count twice. A side with one seed is assumed to vary as much as the other. With one seed on each side, the
    interval holds only for these two models.

    In simulations (accuracy on 100 and 500 examples, 400 runs each), 95 % intervals covered the true difference in 94.5
    to 97.3 % of the cases with 3 or 5 seeds on both sides, in 92.5 to 96.3 % with 2 and 5, and in 98 to 99 % with 2 and
    2. With one seed each, where accuracy varies by 3.5 points over seeds, they covered the difference of the regimes in
    78 and 53 %.

    Parameters
    ----------
    table : Predictions
        F fits, one per training seed.
    first : np.ndarray
        Bool (F,), the fits of the first side.
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
    """Add the variation over seeds to the replicates of a difference of means; with one seed each, change nothing.

    sides: for each side, the replicates of its seeds, (S, R), and their metrics, (S,).
    """
    several = [
        (one.var(ddof=1), (part - part.mean(0)).var(1).sum(), len(one) - 1) for part, one in sides if len(one) > 1
    ]
    if not several:
        return drawn
    variances = several if len(several) == 2 else several * 2  # a single seed is assumed to vary as the other side's
    counts = [len(one) for _, one in sides]
    if whole := drawn.var():
        twice = sum(part / df / count for (_, part, df), count in zip(variances, counts, strict=True))
        drawn = value + np.sqrt(max(0.0, 1 - twice / whole)) * (drawn - value)
    errors = [(variance / count, df) for (variance, _, df), count in zip(variances, counts, strict=True)]
    error = sum(variance for variance, _ in errors)
    if not error:
        return drawn
    freedom = error**2 / sum(variance**2 / df for variance, df in errors) if len(several) == 2 else several[0][2]
    return drawn + np.sqrt(error) * np.random.default_rng([seed, 1]).standard_t(freedom, len(drawn))


def paired(
    runs_a: Sequence[str | Path | Run], runs_b: Sequence[str | Path | Run], options: GuidelinesOptions | None = None
) -> Difference:
    """The metric of some runs minus that of others, on the same examples; see :func:`difference`.

    Parameters
    ----------
    runs_a, runs_b : Sequence[str | Path | Run]
        Finished runs on the same data; those of one side differ only in their training seed.
    options : GuidelinesOptions, optional
        As for :func:`guidelines`.

    Raises
    ------
    UsageError
        If the runs are not comparable.
    DataError
        If a run lacks its predictions for each example.
    """
    a, b = ([read_run(run) for run in runs] for runs in (runs_a, runs_b))
    if not a or not b:
        raise UsageError("paired needs one or more runs on each side.")
    check_together(a, b)
    return _paired(a, b, options or GuidelinesOptions())


@public(options=GuidelinesOptions)
def guidelines(*runs: str | Path, options: GuidelinesOptions) -> Result:
    """Compare fine-tuning with feature extraction: one row per task and model, in the order of the runs.

    Parameters
    ----------
    *runs : path or Run
        Finished runs on the same data: for each task both regimes, with one seed or several; those of one regime differ
        only in their training seed.
    options : GuidelinesOptions
        ``metric``, ``split``, ``margin``, ``resamples`` and ``seed``; each may be given as a keyword.

    Returns
    -------
    Result
        Rows with the metric "difference(NAME)" and the estimator "fine-tune - feature-extraction": value, ci_low and
        ci_high (95 %, pointwise), ``p`` of no difference, n examples. Additional columns:

        fine_tune, feature_extraction, fine_tune_seeds, feature_extraction_seeds
            The means, and the numbers of seeds.
        p_equal, p_adjusted
            p of a difference of ``margin`` or more; the smaller of ``p`` and ``p_equal``, corrected for all rows (Holm
            1979), which decides ``prefer``. With one seed of each regime, ``p_adjusted`` is missing, and ``p`` and
            ``p_equal`` hold only for the two trained models.
        prefer
            "either" if the difference lies within ± margin, the better regime if it is not 0, both with a
            ``p_adjusted`` of at most 0.05; otherwise "cannot tell".
        confidence
            "high" (p_adjusted ≤ 0.01), "moderate" (≤ 0.05) or "none"; "high (one seed)" if one regime has a single
            seed, which is assumed to vary as much as those of the other.
        why, caveat
            One sentence with the numbers; the limits of the comparison, or "".
        kind, margin
            "single sentences", "sentence pairs" or "word tags".

    Raises
    ------
    UsageError
        If the runs are not comparable. A task with only one regime is not an error; its row says "cannot tell".
    DataError
        If a run lacks its predictions for each example.

    Examples
    --------
    >>> probekit.guidelines("runs/mrpc", "runs/mrpc-esim").rows["prefer"]  # doctest: +SKIP
    """
    if not runs:
        raise UsageError("no run was given; probekit guidelines needs the folders of finished runs.")
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
    """Add to the rows the preferred regime, the confidence corrected for all rows, and the reason."""
    p, p_equal = np.array(
        [(d.p, d.p_equal(r["margin"])) if d else (np.nan, np.nan) for d, r in zip(found, records, strict=True)]
    ).T
    of_regimes = [bool(d and d.of_regimes) for d in found]
    least = np.where(of_regimes, np.fmin(p, p_equal), np.nan)
    adjusted = holm(least)
    for k, (record, one) in enumerate(zip(records, found, strict=True)):
        fits = p_equal[k] * adjusted[k] / least[k] <= ALPHA  # False for NaN
        record |= {"p": p[k], "p_equal": p_equal[k], "p_adjusted": adjusted[k]}
        record["prefer"] = EITHER if fits else _better(one) if one and adjusted[k] <= ALPHA else CANNOT_TELL
        level = next((name for limit, name in CONFIDENCE if adjusted[k] <= limit), "none")
        record["confidence"] = f"{level} (one seed)" if one and level != "none" and 1 in one.seeds else level
        record["why"] = _why(record, one, heads[k], int(np.isfinite(least).sum()))


def overview(rows: pd.DataFrame) -> list[str]:
    """Summarise the rows of :func:`guidelines` in one sentence per model and kind of task.

    A sentence recommends a regime only if all tasks of that kind prefer it.
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
            raise UsageError(f"{run.path} was not evaluated with {metric}, but with {', '.join(table.metrics)}.")
    try:
        table = join(*tables)
    except UsageError as error:
        raise UsageError(f"{', '.join(str(run.path) for run in runs)}: {error}") from None
    if (table.gold != table.gold[:1]).any():
        raise UsageError(
            f"{runs[0].path} and the others were evaluated with different labels; evaluate them on the same."
        )
    first = np.arange(len(runs)) < len(a)
    found = difference(
        table, first, metric or table.metrics[0], split=split, resamples=options.resamples, seed=options.seed
    )
    tags = runs[0].card["target"]["kind"] == TaskKind.SEQUENCE_LABELLING
    whole = table.ids if not tags else table.groups if table.sentences is None else table.sentences
    return replace(found, examples=len(table.ids if whole is None else np.unique(whole)))


def _better(d: Difference) -> str:
    return str(FIRST if d.value * metric_called(d.metric).sign > 0 else SECOND)


def _about(runs: Sequence[FinishedRun], d: Difference | None, options: GuidelinesOptions) -> dict[str, Any]:
    """The columns of a row that do not depend on other rows."""
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
        "n": d.examples if d else None,
        "kind": kind,
        "fine_tune": ends[0],
        "feature_extraction": ends[1],
        "fine_tune_seeds": count[0],
        "feature_extraction_seeds": count[1],
    }


def _caveat(d: Difference | None, runs: Sequence[FinishedRun]) -> str:
    """Sentences on the limits of a difference, or ""."""
    if d is None:
        return ""
    caveats = []
    single = [REGIMES[regime] for regime, count in zip((FIRST, SECOND), d.seeds, strict=True) if count == 1]
    if not d.of_regimes:
        caveats.append("One seed of each regime: the result holds only for these two trained models.")
    elif single:
        other = REGIMES[FIRST if d.seeds[0] > 1 else SECOND]
        caveats.append(f"One seed of {single[0]}: it is assumed to vary as much as the seeds of {other}.")
    if any(run.card["identity"]["keep"] == "best" and run.card["splits"][1] == d.split for run in runs):
        caveats.append(f"The weights were chosen by their score on {d.split}, which biases that score upwards.")
    return " ".join(caveats)


def _why(row: Mapping[str, Any], d: Difference | None, heads: Sequence[str], tasks: int) -> str:
    """The numbers of a row as a sentence; heads : one per regime; tasks : number that p is corrected for."""
    if d is None:
        return f"There is no run with {REGIMES[SECOND if row['fine_tune_seeds'] else FIRST]}."
    ends = [
        f"{REGIMES[regime]} ({head} head, {count} seed{'s' * (count > 1)}) {end:.3f}"
        for regime, head, count, end in zip((FIRST, SECOND), heads, d.seeds, (d.first, d.second), strict=True)
    ]
    units = "sentences" if row["kind"] == "word tags" else "examples"
    units += f" in {d.n:,} groups" if d.n < d.examples else ""
    means = f"On the same {d.examples:,} {units} of {d.split}, {d.metric}: {ends[0]}, {ends[1]}"
    if not len(d.replicates):
        return f"{means}; the difference is undefined on most resamples."
    sure = row["p_adjusted" if d.of_regimes else "p"]
    p = "p < 0.001" if sure < 0.001 else f"p {sure:.3f}"
    chance = f"{p}, corrected for {tasks} tasks" if tasks > 1 else p
    words = {
        EITHER: f"is less than {row['margin']:g} in either direction",
        CANNOT_TELL: f"may be 0 or more than {row['margin']:g}",
    }
    if not d.of_regimes:
        chance = f"{p}, for these two models only"
        words[CANNOT_TELL] = "may be due to the seeds instead of the regimes"
    difference = f"the difference, {d.value:+.3f} (95 % interval {d.ci[0]:+.3f} to {d.ci[1]:+.3f})"
    return f"{means}; {difference}, {words.get(row['prefer'], 'is not 0')} ({chance})."


def _together(rows: pd.DataFrame) -> str:
    """The preference of rows: the common one, or the tasks that prefer each."""
    tasks: dict[str, list[str]] = {}
    for row in rows.to_dict("records"):
        few = " (one seed)" if str(row["confidence"]).endswith("(one seed)") else ""
        tasks.setdefault(row["prefer"], []).append(f"{row['task']}{few}")
    titles = {CANNOT_TELL: CANNOT_TELL, EITHER: EITHER} | {str(regime): name for regime, name in REGIMES.items()}
    if len(tasks) > 1:
        return ", ".join(f"{titles[w]} for {len(t)} of {len(rows)} ({', '.join(t)})" for w, t in sorted(tasks.items()))
    ((choice, names),) = tasks.items()
    singles = sum(name.endswith("(one seed)") for name in names)
    on = f"all {len(names)} tasks" if len(names) > 1 else f"the only task, {names[0]}"
    on += f"; one seed of a regime in {singles} of them" if singles and len(names) > 1 else ""
    return f"{titles[choice]} ({on})" if choice in (CANNOT_TELL, EITHER) else f"use {titles[choice]} ({on})"
