"""Metric, difference and divergence by domain: Table 6 of Peters, Ruder & Smith (2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.metrics import metric as metric_called
from probekit.rows import fit_labels
from probekit.tables.cells import LINES, by_label, cell, correlation, interval, legend, markdown
from probekit.tables.papers import published

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["domain_table"]

CORRELATIONS = ("pearson", "spearman", "kendall")
ALONE = "without effects of single domains"
"""How a correlation of what transfers is called that leaves out what belongs to a domain alone."""
NOTES = """\
Divergences are of term distributions (js-divergence in bits, as probekit domains gives them).
Weights are those of the best epoch on the domain's own dev, which flatters them there, and more so where there are \
more epochs to choose from; what transfers was not chosen so.
"""


def domain_table(found: pd.DataFrame, beside: str | None = None) -> str:
    """Metric, difference and divergence by domain, and their correlation; below what transfers, where it was evaluated.

    Parameters
    ----------
    found : pd.DataFrame
        Of ``analyses.transfer``.
    beside : str, optional
        Published numbers.
    """
    parts = found.groupby(["task", "model"], sort=False)
    return "\n".join(_domains(own, str(task), str(model), beside) for (task, model), own in parts)


def _domains(found: pd.DataFrame, task: str, model: str, beside: str | None) -> str:
    points = found[found["x"].notna() & (found["corpus"] != "")]
    told = None if beside is None else published(beside)
    known = [] if told is None else [str(name).partition(":")[2] for name in dict.fromkeys(told["task"])]
    here = list(dict.fromkeys(points["domain"]))
    domains = [d for d in known if d in here] + sorted(d for d in here if d not in known)
    first = points[points["corpus"] == points["corpus"].iloc[0]]
    lines = [[label, *(cell(own[own["domain"] == d]) for d in domains)] for label, own in by_label(first)]
    for corpus, own in points.groupby("corpus", sort=False):
        xs = {row["domain"]: (row["x"], row["x_low"], row["x_high"]) for row in own.to_dict("records")}
        lines.append([f"divergence from {corpus}", *(interval(*xs[d], "{:.3f}") for d in domains)])
    lines += [] if told is None else _published(told, domains)
    text = markdown([f"{task}, {model}", *domains], lines) + "\n" + legend(first, beside)
    return f"{text}{NOTES}\n{_correlations(found)}{_transfers(found, domains)}"


def _published(told: pd.DataFrame, domains: Sequence[str]) -> Iterator[list[str]]:
    """Lines of published numbers."""
    for row, own in told.groupby("row", sort=False):
        values = {str(t).partition(":")[2]: v for t, v in zip(own["task"], own["value"], strict=True)}
        shape = "{:.2f}" if row == "js-divergence" else "{:+.1f}" if row == "difference" else "{:.1f}"
        unit = ", no unit named" if row == "js-divergence" else ""
        label = f"*published ({own['model'].iloc[0]}): {LINES.get(str(row), str(row))}{unit}*"
        yield [label, *(shape.format(values[d]) if d in values else "" for d in domains)]


def _correlations(found: pd.DataFrame) -> str:
    told = found[found["metric"].isin(CORRELATIONS) & (found["corpus"] != "")]
    lines = []
    told = told.assign(fit=fit_labels(told))
    for (corpus, metric, estimator), own in told.groupby(["corpus", "of_metric", "fit"], sort=False):
        rows = {row["metric"]: row for row in own.to_dict("records")}
        lines.append([f"{estimator}: {metric}", str(corpus), *(correlation(rows[name]) for name in CORRELATIONS)])
    if not lines:
        return ""
    head = ["does it go with the divergence?", "from", "Pearson", "Spearman", "Kendall"]
    chance = (
        f"Of {len(lines) * 3} correlations some are large by chance; where an interval leaves out 0 and p is not small,"
    )
    return f"{markdown(head, lines)}\n{told['caution'].iloc[0]} {chance} believe p.\n"


def _transfers(found: pd.DataFrame, domains: Sequence[str]) -> str:
    found = found.assign(fit=fit_labels(found))
    cells = found[(found["trained_on"] != "") & (found["corpus"] == "")]
    parts = []
    for estimator, own in cells.groupby("fit", sort=False):
        here = own[own["metric"].map(lambda name: metric_called(name).derived != "lost")]
        at = {(row["trained_on"], row["domain"]): row["value"] for row in here.to_dict("records")}
        lines = [[i, *(f"{100 * at[i, j]:.1f}" if (i, j) in at else "" for j in domains)] for i in domains]
        text = markdown([f"{estimator}: trained on ↓, evaluated on →", *domains], lines)
        rows = found[found["metric"].isin(CORRELATIONS) & (found["fit"] == estimator) & (found["corpus"] == "")]
        for adjust, several in rows.groupby("adjust", sort=False):
            r = {row["metric"]: row for row in several.to_dict("records")}
            said = ", ".join(f"{name.capitalize()} {correlation(r[name])}" for name in CORRELATIONS)
            how = f", {ALONE}" if adjust == "effects" else ""
            text += f"\nWhat is lost by training elsewhere, against the divergence of the two domains{how}: {said}.\n"
        if len(rows):
            text += f"\n{rows['caution'].iloc[0]}\n"
        parts.append(text)
    return "\n" + "\n".join(parts) if parts else ""
