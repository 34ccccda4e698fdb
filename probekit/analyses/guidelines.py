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
from probekit.analyses.finished_runs import (
    REGIMES,
    FinishedRun,
    check_together,
    check_weights,
    read_run,
)
from probekit.analyses.options import GuidelinesOptions
from probekit.analyses.paired_runs import ALPHA, Difference, compared, difference
from probekit.analyses.settings import read_runs
from probekit.analyses.several_settings import CONFIDENCE, compare_settings, is_plain
from probekit.analyses.several_settings import sentences as of_settings
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.public import public
from probekit.recipe import Read
from probekit.rows import Result, make_rows
from probekit.statistics.multiplicity import holm
from probekit.tasks.task import TaskKind

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CANNOT_TELL", "EITHER", "Difference", "difference", "guidelines", "overview", "paired"]

CANNOT_TELL, EITHER = "cannot tell", "either"
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


@public(options=GuidelinesOptions)
def guidelines(*runs: str | Path | Run, options: GuidelinesOptions) -> Result:
    """Compare ways to adapt: fine-tuning with feature extraction, or several settings with a reference.

    If the runs of each task and model have at most one setting of each regime, and one number of training examples, the
    rows compare both regimes. Otherwise each setting, told apart by its variant or options, is compared with the
    reference: full fine-tuning, or else the setting that trains the most weights.

    Parameters
    ----------
    *runs : path or Run
        Finished runs on the same data, with one seed or several; the folder of several seeds counts as its runs.
    options : GuidelinesOptions
        ``metric``, ``split``, ``margin``, ``reference``, ``cost``, ``resamples`` and ``seed``; each may be given as a
        keyword.

    Returns
    -------
    Result
        Of both regimes, in the order of the tasks and models, rows with the metric "difference(NAME)" and
        the estimator "fine-tune - feature-extraction": value, ci_low and ci_high (95 %, pointwise), ``p``
        of no difference, n examples. Additional columns:

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

        Of several settings, for each task, model, number of training ``examples`` and setting (``variant``) these rows:
        the metric (mean over seeds, ``sd``, interval over examples and seeds); "failed-runs"; "difference(NAME)" from
        the ``reference`` with ``p`` of no difference, ``p_worse`` of being worse by ``margin`` or more, ``p_adjusted``
        (the smaller one, corrected for all comparisons; Holm 1979) and ``finding``: "better", "not worse", "worse" or
        "cannot tell"; "trained-parameters", "cpu-seconds" (seconds) and "peak-memory" (bytes), medians over seeds. The
        metric's row of the reference has ``prefer``: the setting of least ``cost`` that is found better or not worse,
        the reference if all cheaper ones are worse, or "cannot tell"; with ``confidence``, ``why`` and ``caveat``.

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


def overview(rows: pd.DataFrame) -> list[str]:
    """Summarise the rows of :func:`guidelines` in one sentence per model and kind of task.

    A sentence recommends a regime only if all tasks of that kind prefer it. For several settings: one for each task,
    model and number of training examples, and for several sizes from which one on a setting is not worse.
    """
    if "reference" in rows:
        return of_settings(rows)
    sentences = []
    for model, part in rows.groupby("model", sort=False):
        kinds = [("any task", part), *part.groupby("kind", sort=False)]
        sentences += [f"{model}, {kind}: {_together(of)}." for kind, of in (kinds if len(kinds) > 2 else kinds[1:])]
    return sentences


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
