"""How often intervals of normalised scores, and of ranks of models over tasks, hold the truth.

Normalised scores begin with features: probes of gold labels and of 24 draws of shuffled labels are fitted once and
evaluated on a population of sentences; an experiment has a sample of the sentences and some of the draws. Ranks begin
with predictions of known accuracies.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import combinations

import numpy as np
import pandas as pd
from calibration import case
from scipy import stats
from spans import KINDS, PROBES, Kind, drawn, members, population

from probekit.statistics.bootstrap import estimates
from probekit.statistics.normalised import normalised_rows
from probekit.statistics.permutation import exchanged
from probekit.statistics.predictions import Predictions
from probekit.statistics.rankings import ranks

DRAWS = 24


@cache
def values(kind: Kind, number: int, name: str) -> np.ndarray:
    """The metric on the population of the majority class, of the gold probe, and of each draw of shuffled labels."""
    every = population(kind, number, DRAWS)
    return estimates(every.gold, every.predicted, name)


def placed(rng: np.random.Generator, *, kind: Kind, name: str, units: int, draws: int) -> bool | None:
    """Whether the interval of a normalised score holds that of the fitted probe on all sentences, over all draws."""
    number = int(rng.integers(PROBES))
    every, value = population(kind, number, DRAWS), values(kind, number, name)
    control = max(value[2:].mean(), value[0])
    at, groups = drawn(rng, members(kind, number, DRAWS), units)
    fits = np.append([0, 1], 2 + rng.integers(DRAWS, size=draws))
    about = every.fits.iloc[fits].reset_index(drop=True).assign(draw=[None, None, *range(draws)])
    e = Predictions(
        about, np.arange(len(at)).astype(str), every.gold[np.ix_(fits, at)], every.predicted[np.ix_(fits, at)],
        (name,), groups, label_names=every.label_names,
    )  # fmt: skip
    row = normalised_rows(e, seed=int(rng.integers(1 << 30))).iloc[0]
    if row["why"]:
        return None
    return bool(row["ci_low"] <= (value[1] - control) / (1 - control) <= row["ci_high"])


def ranked(rng: np.random.Generator, *, of: str, tasks: int, models: int, spread: float, n: int) -> bool:
    """Whether intervals of ranks hold: on one of the tasks for all models, overall for all, or of one mean rank.

    Accuracies are .8 ± ``spread``; the models share the difficulty of the examples.
    """
    true = 0.8 + spread * rng.uniform(-1, 1, size=(tasks, models))
    hard, own = rng.normal(size=(tasks, 1, n)), rng.normal(size=(tasks, models, n))
    right = np.sqrt(0.6) * hard + np.sqrt(0.4) * own < stats.norm.ppf(true)[:, :, None]
    pairs = [(a, [b]) for a, b in combinations(range(models), 2)]
    null = [exchanged(_answers(one), pairs, "accuracy", draws=1000, seed=i)[1] for i, one in enumerate(right)]
    found = ranks(right.mean(2), np.stack(null))
    rank, overall = stats.rankdata(-true, axis=1), stats.rankdata(-true.mean(0))
    if of == "a task":
        return bool((found.low[0] <= rank[0]).all() and (rank[0] <= found.high[0]).all())
    if of == "overall":
        return bool((found.overall_low <= overall).all() and (overall <= found.overall_high).all())
    mean = rank.mean(0)[0]
    return bool(found.mean_low[0] - 1e-9 <= mean <= found.mean_high[0] + 1e-9)


def _answers(right: np.ndarray) -> Predictions:
    """Predictions of models (M, n) that are right or not."""
    fits = pd.DataFrame([{"task": "t", "split": "dev", "model": f"m{i}", "layer": 0, "target": "gold"}
                         for i in range(len(right))])  # fmt: skip
    n = right.shape[1]
    return Predictions(fits, np.arange(n).astype(str), np.ones(n, dtype=int), right.astype(int), ("accuracy",))


def register() -> None:
    """Every case under its name."""
    kinds = {name: KINDS[name] for name in ("spans", "spans, documents of 5", "several labels")}
    kinds["spans, weak probe"] = replace(KINDS["spans"], strength=0.7)
    for where, kind in kinds.items():
        for name in ("micro-f1",) if kind.several else ("accuracy", "macro-f1"):
            for units, draws in ((50, 3), (200, 3), (200, 10)):
                run = partial(placed, kind=kind, name=name, units=units, draws=draws)
                called = f"{units} {'documents' if kind.document > 1 else 'sentences'}, {draws} draws"
                case(f"suites/normalised {name} of {where}, {called}", "coverage", runs=600)(run)
    for of in ("a task", "overall", "mean"):
        for tasks, models, spread, n in ((5, 3, 0.0, 200), (5, 3, 0.03, 200), (30, 6, 0.0, 200), (30, 6, 0.03, 200),
                                         (30, 6, 0.1, 1000)):  # fmt: skip
            run = partial(ranked, of=of, tasks=tasks, models=models, spread=spread, n=n)
            where = f"{tasks} tasks, {models} models, accuracies ± {spread:g}, n {n}"
            called = {"mean": "mean rank", "overall": "overall ranks"}.get(of, "ranks on a task")
            case(f"suites/{called}, {where}", "coverage", runs=300)(run)


register()
