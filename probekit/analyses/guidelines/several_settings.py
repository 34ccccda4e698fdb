"""Which of several settings of training to prefer: the cheapest that is shown not to be worse than the reference.

The reference is chosen before any result is read, and every setting is compared with it alone, so choosing among the
settings afterwards does not bias the statement: with Holm's correction over all comparisons, the probability that any
setting is wrongly said not to be worse is at most .05, and the recommended one is among these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.options import Regime
from probekit.adaptation.runs.constant import constants_of
from probekit.adaptation.runs.folder import ROWS
from probekit.adaptation.runs.seeds import FAILED, has_failed
from probekit.analyses.finished_runs import FinishedRun, check_together, check_weights, common_split
from probekit.analyses.guidelines import CANNOT_TELL, CostKind, GuidelinesOptions
from probekit.analyses.guidelines.paired_runs import ALPHA, Difference, Mean, compared, mean_over_seeds
from probekit.analyses.guidelines.settings import Group, Setting, settings
from probekit.display import p_equals
from probekit.errors import UsageError, did_you_mean
from probekit.metrics import metric as metric_called
from probekit.rows import read_rows
from probekit.statistics.multiplicity import holm

if TYPE_CHECKING:
    import pandas as pd

BETTER, NOT_WORSE, WORSE = "better", "not worse", "worse"
CONFIDENCE = ((0.01, "high"), (ALPHA, "moderate"))


@dataclass(frozen=True, slots=True)
class Finding:
    """What a comparison of a setting with the reference shows.

    Attributes
    ----------
    found : str
        "better", "not worse" (by the margin or more), "worse" or "cannot tell".
    p, p_worse, p_adjusted : float
        p of no difference, p of being worse by the margin or more, and the smaller one corrected over all comparisons.
    """

    found: str
    p: float
    p_worse: float
    p_adjusted: float

    @property
    def confidence(self) -> str:
        """As in :func:`probekit.guidelines`."""
        return next((name for limit, name in CONFIDENCE if self.p_adjusted <= limit), "none")


@dataclass(slots=True, eq=False)
class _Compared:
    """A setting, its numbers, and its difference from the reference."""

    setting: Setting
    mean: Mean
    costs: dict[CostKind, float]
    difference: Difference | None = None
    finding: Finding | None = None


@dataclass(slots=True, eq=False)
class _Table:
    """The settings of a task, a model and a number of training examples; the reference is one of them, or None."""

    group: Group
    settings: list[_Compared]
    reference: _Compared | None = None
    others: list[_Compared] = field(default_factory=list)


def is_plain(runs: Sequence[FinishedRun]) -> bool:
    """Whether runs have at most one setting of each regime and one number of training examples for each task."""
    groups = settings(runs)
    regimes = [[one.runs[0].card["regime"] for one in several] for several in groups.values()]
    one_size = len({group[:2] for group in groups}) == len(groups)
    return one_size and all(len(set(several)) == len(several) for several in regimes)


def compare_settings(runs: Sequence[FinishedRun], options: GuidelinesOptions) -> list[dict[str, Any]]:
    """The records of :func:`probekit.guidelines` for several settings.

    Raises
    ------
    UsageError
        If the runs are not comparable, or the reference is not one of the settings.
    """
    tables = [_measured(group, several, options) for group, several in settings(runs).items()]
    names = list(dict.fromkeys(one.setting.name for table in tables for one in table.settings))
    if options.reference is not None and options.reference not in names:
        raise UsageError(f"there is no setting {options.reference!r}; {did_you_mean(options.reference, names)}")
    compared_ones = [one for table in tables for one in table.others]
    found = findings([one.difference for one in compared_ones if one.difference], options.margin)
    for one, finding in zip(compared_ones, found, strict=True):
        one.finding = replace(finding, found=CANNOT_TELL) if one.setting.diverged else finding
    for table in tables:  # two constant predictions are alike, which says nothing of the settings
        for one in table.others:
            failed = _has_only_failed(one) or (table.reference is not None and _has_only_failed(table.reference))
            if one.finding is not None and one.finding.found == NOT_WORSE and failed:
                one.finding = replace(one.finding, found=CANNOT_TELL)
    family = sum(np.isfinite(finding.p_adjusted) for finding in found)
    return [record for table in tables for record in _records(table, options, int(family))]


def compared_settings(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of :func:`probekit.guidelines` for several settings; UsageError if there are none."""
    found = rows[rows["analysis"] == "guidelines"]
    found = found[found["reference"].notna()] if "reference" in found else found[:0]
    if found.empty:
        raise UsageError("the rows compare no settings; give those of probekit guidelines with several settings.")
    return found


def findings(differences: Sequence[Difference], margin: float) -> list[Finding]:
    """What differences from a reference show, with Holm's correction over all of them.

    Of each setting, at most one of the two null hypotheses is true (no difference; worse by the margin or more), so the
    smaller p needs no further correction. Where each side has one seed, nothing is said of the settings.
    """
    p = np.array([one.p for one in differences])
    p_worse = np.array([one.p_worse(margin) for one in differences])
    least = np.where([one.of_regimes for one in differences], np.fmin(p, p_worse), np.nan) if len(p) else p
    adjusted, found = holm(least), []
    for one, difference, inferior, smaller, joint in zip(differences, p, p_worse, least, adjusted, strict=True):
        gain = one.value * (metric_called(one.metric).sign or 1)
        factor = joint / smaller
        if difference * factor <= ALPHA and gain > 0:
            said = BETTER
        elif inferior * factor <= ALPHA:
            said = NOT_WORSE
        else:
            said = WORSE if difference * factor <= ALPHA and gain < 0 else CANNOT_TELL
        found.append(Finding(said, float(difference), float(inferior), float(joint)))
    return found


def recommend(costs: Mapping[str, float], found: Mapping[str, str], reference: str) -> str:
    """The cheapest setting that is not worse than the reference; the reference if all cheaper ones are worse.

    Parameters
    ----------
    costs : Mapping[str, float]
        Of the reference and of the others; settings without one are not recommended.
    found : Mapping[str, str]
        Of the others, as in :class:`Finding`.

    Returns
    -------
    str
        Its name, or "cannot tell".

    Examples
    --------
    >>> recommend({"full": 100, "lora": 2, "bitfit": 1}, {"lora": "not worse", "bitfit": "worse"}, "full")
    'lora'
    """
    cheaper = {name: cost for name, cost in costs.items() if name in found and cost < costs.get(reference, np.nan)}
    fit = [name for name in cheaper if found[name] in (BETTER, NOT_WORSE)]
    if fit:
        return min(fit, key=cheaper.__getitem__)
    return reference if cheaper and all(found[name] == WORSE for name in cheaper) else CANNOT_TELL


def _measured(group: Group, several: Sequence[Setting], options: GuidelinesOptions) -> _Table:
    """The numbers of the settings of a group, and their differences from its reference."""
    runs = [run for one in several for run in one.runs]
    check_weights(runs)
    check_together(*(one.runs for one in several))
    options = replace(options, split=common_split(runs, options.split))
    made = [_Compared(one, mean_over_seeds(one.runs, options), _costs(one)) for one in several]
    table = _Table(group, made, _reference(made, options.reference))
    if table.reference is not None:
        table.others = [one for one in made if one is not table.reference]
        for one in table.others:
            one.difference = compared(one.setting.runs, table.reference.setting.runs, options)
    return table


def _reference(made: Sequence[_Compared], name: str | None) -> _Compared | None:
    if name is not None:
        return next((one for one in made if one.setting.name == name), None)
    if full := next((one for one in made if one.setting.full), None):
        return full
    return max(made, key=lambda one: one.costs.get(CostKind.TRAINED_PARAMETERS, -1.0))


def _costs(setting: Setting) -> dict[CostKind, float]:
    """The costs that the cards of all runs state, medians over seeds."""
    found = {}
    for kind, (part, name) in {
        CostKind.TRAINED_PARAMETERS: ("parameters", "trained"), CostKind.CPU_SECONDS: ("cost", "cpu_seconds"),
        CostKind.PEAK_MEMORY: ("cost", "peak_memory"),
    }.items():  # fmt: skip
        values = [(run.card.get(part) or {}).get(name) for run in setting.runs]
        if all(value is not None for value in values):
            found[kind] = float(np.median(np.array(values, dtype=np.float64)))
    return found


def _records(table: _Table, options: GuidelinesOptions, family: int) -> Iterator[dict[str, Any]]:
    for one in table.settings:
        about = _about(table, one)
        values = one.mean.values
        numbers = {
            "metric": one.mean.metric, "value": float(values.mean()), "ci_low": one.mean.ci[0],
            "ci_high": one.mean.ci[1], "sd": float(values.std(ddof=1)) if len(values) > 1 else np.nan,
        }  # fmt: skip
        if one is table.reference or (table.reference is None and one is table.settings[0]):
            numbers |= _recommendation(table, options, family)
        yield about | numbers
        failed, runs = _failed(one), len(values) + len(one.setting.diverged)
        yield about | {"metric": FAILED, "value": failed / runs, "runs": runs}
        if one.difference is not None and one.finding is not None:
            yield about | {
                "metric": f"difference({one.mean.metric})", "value": one.difference.value,
                "ci_low": one.difference.ci[0], "ci_high": one.difference.ci[1], "p": one.finding.p,
                "p_worse": one.finding.p_worse, "p_adjusted": one.finding.p_adjusted, "finding": one.finding.found,
                "margin": options.margin,
            }  # fmt: skip
        for kind, value in one.costs.items():
            yield about | {"metric": str(kind), "value": value}


def _about(table: _Table, one: _Compared) -> dict[str, Any]:
    """The columns that the rows of a setting share."""
    card = one.setting.runs[0].card
    return {
        "analysis": "guidelines", "task": table.group.task, "trained_on": table.group.task, "split": one.mean.split,
        "model": table.group.model, "regime": card["regime"], "head": card["head"]["head"],
        "variant": one.setting.name, "layer": None, "representation": "none", "estimator": "", "target": "gold",
        "n": one.mean.examples, "examples": table.group.examples, "runs": len(one.mean.values),
        "reference": table.reference.setting.name if table.reference else "",
    }  # fmt: skip


def _failed(one: _Compared) -> int:
    """The number of runs that diverged, or are not better than the constant prediction where the run states it."""
    failed = len(one.setting.diverged)
    for run, value in zip(one.setting.runs, one.mean.values, strict=True):
        base = np.nan
        if (file := Path(run.path) / ROWS).is_file():
            rows = constants_of(read_rows(file))
            same = rows[(rows["split"] == one.mean.split) & (rows["metric"] == one.mean.metric)]["value"]
            base = float(same.iloc[0]) if len(same) else np.nan
        failed += has_failed(one.mean.metric, float(value), base)
    return failed


def _has_only_failed(one: _Compared) -> bool:
    return _failed(one) == len(one.mean.values) + len(one.setting.diverged)


def _recommendation(table: _Table, options: GuidelinesOptions, family: int) -> dict[str, Any]:
    """The recommended setting, its confidence, the reason and the limits, for the row of the reference."""
    if table.reference is None:
        return {"prefer": CANNOT_TELL, "confidence": "none", "cost": str(options.cost), "margin": options.margin,
                "why": f"There is no run with the reference, {options.reference}.", "caveat": ""}  # fmt: skip
    reference, named = table.reference.setting.name, {one.setting.name: one for one in table.settings}
    costs = {name: one.costs[options.cost] for name, one in named.items() if options.cost in one.costs}
    shown = {one.setting.name: one.finding for one in table.others if one.finding}
    choice = recommend(costs, {name: one.found for name, one in shown.items()}, reference)
    cheaper = [name for name in shown if costs.get(name, np.nan) < costs.get(reference, np.nan)]
    least = [shown[choice]] if choice in shown else [shown[name] for name in cheaper] if choice == reference else []
    confidence = max(least, key=lambda one: one.p_adjusted).confidence if least else "none"
    if not cheaper:
        why = f"No setting is known to cost less than {reference} ({options.cost})."
    elif choice == CANNOT_TELL:
        why = (
            f"No setting that costs less than {reference} ({options.cost}) is shown not to be worse than it by "
            f"{options.margin:g} or more: {'; '.join(_said(named[name], family) for name in cheaper)}."
        )
    elif choice == reference:
        why = (
            f"Every setting that costs less than {reference} ({options.cost}) is worse: "
            f"{'; '.join(_said(named[name], family) for name in cheaper)}."
        )
    else:
        share, kind = costs[choice] / costs[reference], metric_called(options.cost).title.lower()
        why = (
            f"On the same {table.reference.mean.examples:,} examples of {table.reference.mean.split}, {choice} is not "
            f"worse than {reference} by {options.margin:g} or more in {table.reference.mean.metric} "
            f"({_said(named[choice], family)}), and has {100 * share:.2g} % of its {kind}."
        )
    return {
        "prefer": choice, "confidence": confidence, "why": why, "caveat": _caveat(table), "cost": str(options.cost),
        "margin": options.margin,
    }  # fmt: skip


def _said(one: _Compared, family: int) -> str:
    d, finding = one.difference, one.finding
    if d is None or finding is None or not len(d.replicates):
        return f"{one.setting.name}, undefined on most resamples"
    if not d.of_regimes:
        return f"{one.setting.name} {d.value:+.3f}, with one seed of each"
    p = p_equals(finding.p_adjusted)
    joint = f", corrected for {family} comparisons" if family > 1 else ""
    return f"{one.setting.name} {d.value:+.3f}, 95 % interval {d.ci[0]:+.3f} to {d.ci[1]:+.3f}, {p}{joint}"


def _caveat(table: _Table) -> str:
    caveats, split = [], table.settings[0].mean.split
    single = [one.setting.name for one in table.settings if len(one.mean.values) == 1]
    if len(single) == len(table.settings):
        caveats.append("One seed of each setting: the results hold only for these trained models.")
    elif single:
        caveats.append(f"One seed of {', '.join(single)}: assumed to vary as much as the setting compared with it.")
    if lost := [one.setting.name for one in table.settings if one.setting.diverged]:
        caveats.append(f"Runs of {', '.join(lost)} diverged; means and differences are of the others.")
    if failed := [one.setting.name for one in table.settings if _has_only_failed(one)]:
        caveats.append(f"All runs of {', '.join(failed)} failed: none is better than the constant prediction.")
    runs = [run for one in table.settings for run in one.setting.runs]
    if any(run.card["identity"].get("keep") == "best" and run.card["splits"][1] == split for run in runs):
        caveats.append(f"The weights were chosen by their score on {split}, which biases that score upwards.")
    if {run.card["regime"] for run in runs} == set(Regime):
        caveats.append("Costs of feature extraction are without the caches.")
    return " ".join(caveats)


def sentences(rows: pd.DataFrame) -> list[str]:
    """A sentence for each recommendation, and for several data sizes from which size on a setting is not worse.

    Parameters
    ----------
    rows : pd.DataFrame
        Rows of :func:`probekit.guidelines` for several settings.
    """
    said = []
    for (task, model), part in rows.groupby(["task", "model"], sort=False):
        for row in part[part["prefer"].notna()].sort_values("examples", kind="stable").to_dict("records"):
            choice = row["prefer"] if row["prefer"] == CANNOT_TELL else f"use {row['prefer']} ({row['confidence']})"
            said.append(f"{task}, {model}, {row['examples']:,} training examples: {choice}. {row['why']}")
        if "finding" in part and part["examples"].nunique() > 1:
            said += [f"{task}, {model}: {text}." for text in _by_size(part)]
    return said


def _by_size(rows: pd.DataFrame) -> Iterator[str]:
    """For each setting that is compared on several sizes, from which one on it is not worse."""
    differences = rows[rows["finding"].notna()].sort_values("examples", kind="stable")
    for (name, reference), part in differences.groupby(["variant", "reference"], sort=False):
        sizes, found = part["examples"].tolist(), part["finding"].tolist()
        if len(sizes) < 2:
            continue
        fit = [one in (BETTER, NOT_WORSE) for one in found]
        since = next((i for i in range(len(fit)) if all(fit[i:])), None)
        of = f"of {', '.join(f'{size:,}' for size in sizes)}"
        margin = f"{part['margin'].iloc[0]:g}"
        if since is None:
            yield f"{name} is not shown to be within {margin} of {reference} or better on the largest size ({of})"
        else:
            yield f"{name} is not worse than {reference} by {margin} or more from {sizes[since]:,} examples on ({of})"
