"""The regime to prefer for a task, with its uncertainty: Table 1 of Peters, Ruder & Smith (2019), from runs.

Fine-tuning and feature extraction are compared on the same examples. Examples are one source of variation, training
seeds another (Reimers & Gurevych 2017; Dror et al. 2018; Bouthillier et al. 2021): with several seeds of a regime, the
interval includes both. A single seed of the other regime is assumed to vary as much. With one seed of each regime, the
conclusion is limited to these two trained models, and no regime is preferred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.options import Regime
from probekit.adaptation.runs.run import Run
from probekit.analyses.finished_runs import REGIMES, FinishedRun, check_together, check_weights, read_run
from probekit.analyses.guidelines import CANNOT_TELL, EITHER, GuidelinesOptions
from probekit.analyses.guidelines.paired_runs import ALPHA, Difference, compared, difference
from probekit.analyses.guidelines.settings import read_runs
from probekit.analyses.guidelines.several_settings import CONFIDENCE, compare_settings, is_plain
from probekit.display import p_equals
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.recipe import Read
from probekit.rows import Result, make_rows
from probekit.statistics.multiplicity import holm
from probekit.tasks.task import TaskKind

if TYPE_CHECKING:
    pass

__all__ = ["Difference", "difference", "measure", "paired"]

FIRST, SECOND = Regime.FINE_TUNE, Regime.FEATURE_EXTRACTION


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
    return compared(a, b, options or GuidelinesOptions())


def measure(runs: Sequence[str | Path | Run], options: GuidelinesOptions) -> Result:
    """The rows of :func:`probekit.guidelines`."""
    if not runs:
        raise UsageError("no run was given; probekit guidelines needs the folders of finished runs.")
    given = read_runs(runs)
    reads = tuple(
        Read(str(run.path), "run", str(run.card["encoder"].get("weights_digest") or ""), {"run": run.card["run"]})
        for run in given
        if run.card["complete"]
    )
    records = _regimes(given, options) if is_plain(given) else compare_settings(given, options)
    return Result(make_rows(records), reads=reads)


def _regimes(runs: Sequence[FinishedRun], options: GuidelinesOptions) -> list[dict[str, Any]]:
    """The records of the comparison of both regimes."""
    groups: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        if run.card["complete"]:
            groups.setdefault((run.card["task"], run.card["model"]), []).append(run)
    records, found, heads = [], [], []
    for several in groups.values():
        check_weights(several)
        sides = [[run for run in several if run.card["regime"] == regime] for regime in (FIRST, SECOND)]
        check_together(*sides)
        one = compared(sides[0], sides[1], options) if all(sides) else None
        found.append(one)
        heads.append([side[0].card["head"]["head"] for side in sides if side])
        records.append(_about(several, one, options) | {"caveat": _caveat(one, several), "margin": options.margin})
    _judge(records, found, heads)
    return records


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
    p = p_equals(row["p_adjusted" if d.of_regimes else "p"])
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
