"""Feature extraction and fine-tuning by task and by domain: Tables 2 to 6 of Peters, Ruder & Smith (2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.display import shown_model
from probekit.grid import Column, Grid
from probekit.metrics import metric as metric_called
from probekit.rows import fit_labels
from probekit.tables.cells import LINES, by_label, cell, correlation, interval, is_difference, legend, published

if TYPE_CHECKING:
    import pandas as pd


def regime_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """Feature extraction, fine-tuning and their difference by task, a line for each variant of the runs.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``analyses.regimes``.
    beside : str, optional
        Name of published numbers, such as "peters-2019/2".

    Returns
    -------
    list of Grid or str
        The table, and its legend.
    """
    paper = None if beside is None else published(beside)
    tasks = list(dict.fromkeys(found["task"]))
    alone = [] if paper is None or paper["task"].isin(tasks).any() else list(dict.fromkeys(paper["task"]))
    lines: list[list[str]] = []
    for (model, variant), part in found.groupby(["model", "variant"], sort=False):
        name = ", ".join(filter(None, (shown_model(str(model)), str(variant))))
        for label, runs in by_label(part.assign(variant="")):
            lines.append([name, label, *(cell(runs[runs["task"] == task]) for task in tasks), *[""] * len(alone)])
    lines += [] if paper is None else _published_regimes(paper, [*tasks, *alone])
    metrics = found[~is_difference(found)].drop_duplicates("task").set_index("task")
    heads = [f"{t} ({metrics.loc[t, 'metric']}, {metrics.loc[t, 'split']})" for t in tasks]
    heads += [f"{t} ({_first(paper, t, 'metric')}, {_first(paper, t, 'split')}, published)" for t in alone]
    keys = [Column("model", align="left", key=True, label=True), Column("× 100", align="left", key=True)]
    return [Grid([*keys, *map(Column, heads)], lines), legend(found, beside)]


def _published_regimes(paper: pd.DataFrame, tasks: Sequence[str]) -> Iterator[list[str]]:
    """Lines of published numbers; differences only where the paper's text has them."""
    for (model, variant, row), part in paper.groupby(["model", "variant", "row"], sort=False):
        values = dict(zip(part["task"], part["value"], strict=True))
        shape = "{:+.1f}" if row == "difference" else "{:.1f}"
        cells = [shape.format(values[task]) if task in values else "" for task in tasks]
        if any(cells):
            name = ", ".join(filter(None, (str(model), str(variant), "published")))
            yield [f"*{name}*", f"*{LINES.get(str(row), str(row))}*", *cells]


def _first(paper: pd.DataFrame | None, task: str, column: str) -> str:
    """The value that a column has for a published task."""
    return "" if paper is None else str(paper.loc[paper["task"] == task, column].iloc[0])


CORRELATIONS = ("pearson", "spearman", "kendall")
ALONE = "without effects of single domains"
"""The name of a correlation of transfer that removes the mean of each domain."""
NOTES = """\
Divergences are between term distributions (js-divergence in bits, measured by probekit domains).
The weights are those of the best epoch on the dev split of the domain itself, which flatters that number, and more so \
with more epochs to choose from; evaluations on other domains are not chosen in this way.
"""


def domain_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """Metric, difference and divergence by domain, and their correlation; below, transfer where it was evaluated.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``analyses.transfer``.
    beside : str, optional
        Name of published numbers, such as "peters-2019/6".

    Returns
    -------
    list of Grid or str
        Tables and the paragraphs between them.
    """
    parts = found.groupby(["task", "model"], sort=False)
    return [piece for (task, model), part in parts for piece in _domains(part, str(task), str(model), beside)]


def _domains(found: pd.DataFrame, task: str, model: str, beside: str | None) -> list[Grid | str]:
    points = found[found["x"].notna() & (found["corpus"] != "")]
    paper = None if beside is None else published(beside)
    known = [] if paper is None else [str(name).partition(":")[2] for name in dict.fromkeys(paper["task"])]
    here = list(dict.fromkeys(points["domain"]))
    domains = [d for d in known if d in here] + sorted(d for d in here if d not in known)
    first = points[points["corpus"] == points["corpus"].iloc[0]]
    lines = [[label, *(cell(runs[runs["domain"] == d]) for d in domains)] for label, runs in by_label(first)]
    for corpus, part in points.groupby("corpus", sort=False):
        xs = {row["domain"]: (row["x"], row["x_low"], row["x_high"]) for row in part.to_dict("records")}
        lines.append([f"divergence from {corpus}", *(interval(*xs[d], "{:.3f}") for d in domains)])
    lines += [] if paper is None else _published_domains(paper, domains)
    grid = _named_grid([f"{task}, {shown_model(model)}", *domains], lines)
    return [grid, legend(first, beside) + NOTES, *_correlations(found), *_transfers(found, domains)]


def _named_grid(head: Sequence[str], lines: Sequence[Sequence[str]], keys: int = 1) -> Grid:
    return Grid([*(Column(name, align="left", key=True) for name in head[:keys]), *map(Column, head[keys:])], lines)


def _published_domains(paper: pd.DataFrame, domains: Sequence[str]) -> Iterator[list[str]]:
    """Lines of published numbers."""
    for row, part in paper.groupby("row", sort=False):
        values = {str(t).partition(":")[2]: v for t, v in zip(part["task"], part["value"], strict=True)}
        shape = "{:.2f}" if row == "js-divergence" else "{:+.1f}" if row == "difference" else "{:.1f}"
        unit = ", no unit named" if row == "js-divergence" else ""
        label = f"*published ({part['model'].iloc[0]}): {LINES.get(str(row), str(row))}{unit}*"
        yield [label, *(shape.format(values[d]) if d in values else "" for d in domains)]


def _correlations(found: pd.DataFrame) -> list[Grid | str]:
    """The correlation of each metric with the divergence from each corpus."""
    points = found[found["metric"].isin(CORRELATIONS) & (found["corpus"] != "")]
    lines = []
    points = points.assign(fit=fit_labels(points))
    for (corpus, metric, estimator), part in points.groupby(["corpus", "of_metric", "fit"], sort=False):
        rows = {row["metric"]: row for row in part.to_dict("records")}
        lines.append([f"{estimator}: {metric}", str(corpus), *(correlation(rows[name]) for name in CORRELATIONS)])
    if not lines:
        return []
    head = ["correlation with the divergence", "from", "Pearson", "Spearman", "Kendall"]
    chance = (
        f"Of {len(lines) * 3} correlations some are large by chance; where an interval leaves out 0 and p is not small,"
    )
    return [_named_grid(head, lines, keys=2), f"{points['caution'].iloc[0]} {chance} believe p.\n"]


def _transfers(found: pd.DataFrame, domains: Sequence[str]) -> list[Grid | str]:
    """The metric of each pair of domains, and the correlation of the loss with their divergence."""
    found = found.assign(fit=fit_labels(found))
    cells = found[(found["trained_on"] != "") & (found["corpus"] == "")]
    pieces: list[Grid | str] = []
    for estimator, part in cells.groupby("fit", sort=False):
        here = part[part["metric"].map(lambda name: metric_called(name).derived != "lost")]
        at = {(row["trained_on"], row["domain"]): row["value"] for row in here.to_dict("records")}
        lines = [[i, *(f"{100 * at[i, j]:.1f}" if (i, j) in at else "" for j in domains)] for i in domains]
        pieces.append(_named_grid([f"{estimator}: trained on ↓, evaluated on →", *domains], lines))
        rows = found[found["metric"].isin(CORRELATIONS) & (found["fit"] == estimator) & (found["corpus"] == "")]
        for adjust, several in rows.groupby("adjust", sort=False):
            r = {row["metric"]: row for row in several.to_dict("records")}
            values = ", ".join(f"{name.capitalize()} {correlation(r[name])}" for name in CORRELATIONS)
            effects = f", {ALONE}" if adjust == "effects" else ""
            loss = f"Loss by training on another domain, against the divergence of the two{effects}"
            pieces.append(f"{loss}: {values}.\n")
        if len(rows):
            pieces.append(f"{rows['caution'].iloc[0]}\n")
    return pieces
