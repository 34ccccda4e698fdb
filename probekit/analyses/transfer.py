"""Correlation between the divergence of domains and the results of adaptation, domain by domain.

Table 6 of Peters, Ruder & Smith (2019): accuracy of feature extraction on each domain of MNLI, the gain of fine-tuning,
and the Jensen-Shannon divergence between the domain and the pretraining text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.regimes import by_seeds, differences, run_numbers
from probekit.errors import UsageError
from probekit.rows import make_rows
from probekit.statistics.correlation import Adjust, caution, matrix_relation, relation

if TYPE_CHECKING:
    import pandas as pd

FIT = ("estimator", "regime", "head", "variant")
"""The columns that identify a series over domains."""


def domain_study(
    rows: pd.DataFrame, *, measure: str = "js-divergence", draws: int = 10_000, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Metrics by domain, the distance of the domain to each corpus, and the correlation of the two.

    Parameters
    ----------
    rows : DataFrame
        Rows of runs on tasks called TASK:DOMAIN; of the divergences between these domains and to corpora
        (:func:`probekit.domains`); optionally of evaluations on other domains (:func:`probekit.evaluate`) and of
        paired differences of the regimes (:func:`probekit.guidelines`).
    measure : str
        The measure of distance.
    draws, resamples, seed : int
        For the correlations; see :func:`probekit.statistics.correlation.relation`.

    Returns
    -------
    DataFrame
        Rows of three kinds.

        - Points: the main metric of each regime, and ``difference(METRIC)``, fine-tuning minus feature extraction, by
          ``domain`` and ``corpus``, with the distance ``x``, its interval x_low, x_high and its measure x_metric;
          ``seeds`` is the number over which ``value`` is a mean.
        - Transfers: the metric of each regime, trained on ``trained_on`` and evaluated on ``domain``, corpus "", and
          ``lost(METRIC)``, the metric of the model trained on the domain itself minus that metric.
        - Correlations: metric "pearson", "spearman" or "kendall", with ``corpus``, ``of_metric``, ``p``, ``exact`` and
          ``caution`` (the limits of so few points). For transfers they relate the loss to the distance, with
          permutations of domains: unadjusted (``adjust`` "in-domain") and, for 4 domains or more, without the main
          effects of the domains ("effects"), which could otherwise look like a relation; see
          :func:`probekit.statistics.correlation.matrix_relation`.

    Raises
    ------
    UsageError
        If there are no domains, or a divergence between a domain and a corpus is missing.

    References
    ----------
    Peters, Ruder & Smith (2019), "To Tune or Not to Tune?", Table 6.
    """
    runs = run_numbers(rows)
    runs = runs[runs["task"].str.contains(":")]
    if runs.empty:
        raise UsageError("the rows contain no runs on single domains; train some, such as with --task mnli:fiction.")
    found: list[dict[str, Any]] = []
    distances = _distances(rows, measure)
    bases = runs["task"].str.partition(":")[0]
    for (model, task, _), part in runs.groupby(["model", bases, "metric"], sort=False):
        domains = sorted({_domain(name) for name in part["task"]})
        others = _domains_of_tasks(rows)
        corpora = sorted({b for a, b in distances if a in domains and b not in domains and b not in others})
        if lacking := [(d, c) for c in corpora for d in domains if (d, c) not in distances]:
            raise UsageError(f"the rows lack the {measure} between {lacking[0][0]} and {lacking[0][1]}.")
        if not corpora:
            raise UsageError(
                f"the rows lack the {measure} between {', '.join(domains)} and a corpus; "
                f"measure it with probekit domains NAME=PATH --task {task}."
            )
        home = part[part["trained_on"] == part["task"]]
        series = [*by_seeds(home), *differences(rows, home)]
        about = {
            "analysis": "transfer",
            "task": task,
            "split": str(part["split"].iloc[0]),
            "model": model,
            "target": "gold",
            "layer": None,
            "x_metric": measure,
        }
        how: dict[str, Any] = {"draws": draws, "resamples": resamples, "seed": seed}
        for corpus in corpora:
            found += _points(series, distances, corpus, about, how)
        found += _transfers(part, distances, domains, about, how)
    return make_rows(found).drop(columns=["kept", "epoch", "unread_words", "headline"], errors="ignore")


def _domain(task: str) -> str:
    """ "fiction" of "mnli:fiction"."""
    return str(task).partition(":")[2]


def _domains_of_tasks(rows: pd.DataFrame) -> set[str]:
    """Domains that probekit domains read from a task: they are not corpora, even if no run was trained on them."""
    sides = [(f"domain_{side}", f"task_{side}") for side in "ab" if f"task_{side}" in rows]
    return {
        name
        for at, of in sides
        for name, task in zip(rows[at], rows[of], strict=True)
        if isinstance(task, str) and task
    }


def _distances(rows: pd.DataFrame, measure: str) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Value and interval of each pair of domains, in both orders."""
    if "domain_a" not in rows:
        raise UsageError("the rows contain none of probekit domains.")
    mine = rows[(rows["metric"] == measure) & (rows["target"] == "gold") & rows["domain_a"].notna()]
    found: dict[tuple[str, str], tuple[float, float, float]] = {}
    for row in mine.to_dict("records"):
        distance = (float(row["value"]), float(row["ci_low"]), float(row["ci_high"]))
        for pair in ((row["domain_a"], row["domain_b"]), (row["domain_b"], row["domain_a"])):
            if found.setdefault(pair, distance) != distance:
                raise UsageError(f"the rows have two values of {measure} between {pair[0]} and {pair[1]}.")
    return found


def _points(
    series: Sequence[Mapping[str, Any]],
    distances: Mapping[tuple[str, str], tuple[float, float, float]],
    corpus: str,
    about: Mapping[str, Any],
    how: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    curves: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for one in series:
        domain = _domain(one["task"])
        at = dict(zip(("x", "x_low", "x_high"), distances[domain, corpus], strict=True))
        point = {**one, **about, **at, "corpus": corpus, "domain": domain, "trained_on": ""}
        curves.setdefault((one["metric"], *(one[c] for c in FIT)), []).append(point)
    for (metric, *fit), points in curves.items():
        yield from points
        if len(points) < 3:
            continue
        x, y = (np.array([p[key] for p in points]) for key in ("x", "value"))
        columns = {**about, "corpus": corpus, "of_metric": metric, "representation": "domains"}
        columns |= dict(zip(FIT, fit, strict=True))
        for name, r in relation(x, y, **how).items():
            yield columns | {
                "metric": name, "value": r.value, "ci_low": r.low, "ci_high": r.high, "p": r.p, "exact": r.exact,
                "n": r.n, "seed": how["seed"], "caution": caution(r.n),
            }  # fmt: skip


def _transfers(
    part: pd.DataFrame,
    distances: Mapping[tuple[str, str], tuple[float, float, float]],
    domains: Sequence[str],
    about: Mapping[str, Any],
    how: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """The metric of each pair of domains, and the correlation of the loss with their distance."""
    d = len(domains)
    for fit, runs in part.groupby(list(FIT), sort=False):
        if (runs["trained_on"] == runs["task"]).all():
            continue
        cells = {(_domain(row["trained_on"]), _domain(row["task"])): row for row in by_seeds(runs)}
        y = np.array([[cells[i, j]["value"] if (i, j) in cells else np.nan for j in domains] for i in domains])
        x = np.array([[distances.get((i, j), (np.nan,) * 3)[0] for j in domains] for i in domains])
        metric = f"lost({runs['metric'].iloc[0]})"
        for (i, j), cell in cells.items():
            at = dict(zip(("x", "x_low", "x_high"), distances.get((i, j), (np.nan,) * 3), strict=True))
            cell = {**cell, **about, **at, "corpus": "", "domain": j, "trained_on": i}
            yield cell
            if i != j:
                lost = y[domains.index(j), domains.index(j)] - cell["value"]
                yield cell | {"metric": metric, "value": lost, "ci_low": np.nan, "ci_high": np.nan, "sd": np.nan}
        off = ~np.eye(d, dtype=bool)
        if d < 3 or not (np.isfinite(y).all() and np.isfinite(x[off]).all()):
            continue
        columns = {**about, "corpus": "", "representation": "transfer", **dict(zip(FIT, fit, strict=True))}
        for adjust in (Adjust.IN_DOMAIN, Adjust.EFFECTS):
            if adjust is Adjust.EFFECTS and d < 4:
                continue
            for name, r in matrix_relation(x, -y, adjust=adjust, **how).items():
                yield columns | {
                    "metric": name, "value": r.value, "ci_low": r.low, "ci_high": r.high, "p": r.p, "exact": r.exact,
                    "n": r.n, "seed": how["seed"], "of_metric": metric, "adjust": str(adjust),
                    "caution": caution(r.n, domains=d),
                }  # fmt: skip
