"""Tables in a paper's form, of rows: Markdown to read, and the rows that it was made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from io import StringIO
from math import isfinite
from typing import TYPE_CHECKING, Any

from probekit.adaptation.options import Regime
from probekit.analyses.regimes import by_seeds, differences, run_numbers
from probekit.analyses.transfer import ALONE, domain_study
from probekit.errors import UsageError
from probekit.rows import fit_labels, make_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TABLES", "domain_table", "published", "regime_table"]

NAMES: dict[Any, str] = {Regime.FEATURE_EXTRACTION: "feature extraction", Regime.FINE_TUNE: "fine-tuning"}
LINES = {**NAMES, "difference": "Δ fine-tuning", "js-divergence": "divergence from pretraining text"}
SOURCES = {"peters-2019": "Peters, Ruder & Smith (2019)"}
CORRELATIONS = ("pearson", "spearman", "kendall")


def published(name: str) -> pd.DataFrame:
    """The published numbers of "peters-2019/6" (paper, table): columns model, task, row and value, in its units.

    Raises UsageError for one that there is not.
    """
    import pandas as pd

    paper, _, number = name.partition("/")
    file = files("probekit.tables") / "published" / f"{paper}.csv"
    found = (
        pd.read_csv(StringIO(file.read_text("utf-8")), comment="#", dtype={"table": str})
        if paper in SOURCES
        else pd.DataFrame({"table": []})
    )
    if not (found["table"] == number).any():
        raise UsageError(f"there are no published numbers {name!r}; there are peters-2019/2 and peters-2019/6.")
    return found[found["table"] == number].drop(columns="table")


def regime_table(rows: pd.DataFrame, beside: str | None = None) -> tuple[str, pd.DataFrame]:
    """Feature extraction, fine-tuning and their difference by task (Table 2 of Peters, Ruder & Smith 2019).

    Tables 3 to 5 of the paper are the same, with a line for each variant of the runs.
    """
    import pandas as pd

    runs = run_numbers(rows)
    if runs.empty:
        raise UsageError("there are no rows of training runs.")
    home = runs[runs["trained_on"] == runs["task"]]
    found = pd.DataFrame([*by_seeds(home), *differences(rows, home)])
    tasks = list(dict.fromkeys(found["task"]))
    lines: list[list[str]] = []
    for (model, variant), part in found.groupby(["model", "variant"], sort=False):
        called = ", ".join(filter(None, (str(model), str(variant))))
        for label, own in _by_label(part.assign(variant="")):
            lines.append([called, label, *(_cell(own[own["task"] == task]) for task in tasks)])
    if beside is not None:
        for model, own in published(beside).astype({"model": str}).groupby("model", sort=False):
            values = own.pivot_table(index="task", columns="row", values="value")[list(dict.fromkeys(own["row"]))]
            if {*NAMES} <= {*values}:
                values["difference"] = values[Regime.FINE_TUNE] - values[Regime.FEATURE_EXTRACTION]
            for row in map(str, values):
                of = values[row]
                shape = "{:+.1f}" if row == "difference" else "{:.1f}"
                cells = [shape.format(of[task]) if task in of and isfinite(of[task]) else "" for task in tasks]
                if any(cells):
                    lines.append([f"*{model!s}, published*", f"*{LINES.get(row, row)}*", *cells])
    metrics = found[~found["metric"].str.startswith("difference")].drop_duplicates("task").set_index("task")
    splits = [f"{t} ({metrics.loc[t, 'metric']}, {metrics.loc[t, 'split']})" for t in tasks]
    text = _markdown(["model", "× 100", *splits], lines) + "\n" + _legend(found, beside)
    return text, make_rows(found)


def domain_table(rows: pd.DataFrame, beside: str | None = None, **how: object) -> tuple[str, pd.DataFrame]:
    """Metric, difference and divergence by domain (Table 6 of Peters, Ruder & Smith 2019), and their correlation.

    Under it what transfers from domain to domain, where the rows have evaluations on other domains.
    """
    found = domain_study(rows, **how)  # type: ignore[arg-type]  # options of domain_study
    parts = []
    for (task, model), own in found.groupby(["task", "model"], sort=False):
        parts.append(_domains(own, str(task), str(model), beside))
    return "\n".join(parts), found


def _domains(found: pd.DataFrame, task: str, model: str, beside: str | None) -> str:
    points = found[found["x"].notna() & (found["corpus"] != "")]
    told = None if beside is None else published(beside)
    known = [] if told is None else [str(name).partition(":")[2] for name in dict.fromkeys(told["task"])]
    here = list(dict.fromkeys(points["domain"]))
    domains = [d for d in known if d in here] + sorted(d for d in here if d not in known)
    lines = []
    first = points[points["corpus"] == points["corpus"].iloc[0]]
    for label, own in _by_label(first):
        lines.append([label, *(_cell(own[own["domain"] == d]) for d in domains)])
    for corpus, own in points.groupby("corpus", sort=False):
        xs = {row["domain"]: (row["x"], row["x_low"], row["x_high"]) for row in own.to_dict("records")}
        cells = [_interval(*xs[d], "{:.3f}") for d in domains]
        lines.append([f"divergence from {corpus}", *cells])
    if told is not None:
        for row, own in told.groupby("row", sort=False):
            values = {str(t).partition(":")[2]: v for t, v in zip(own["task"], own["value"], strict=True)}
            shape = "{:.2f}" if row == "js-divergence" else "{:+.1f}" if row == "difference" else "{:.1f}"
            label = f"*published ({own['model'].iloc[0]}): {LINES.get(row, row)}*"
            lines.append([label, *(shape.format(values[d]) if d in values else "" for d in domains)])
    text = _markdown([f"{task}, {model}", *domains], lines) + "\n" + _legend(first, beside)
    text += "Divergences are of term distributions (js-divergence in bits, as probekit domains gives them).\n"
    text += "Weights are those of the best epoch on the domain's own dev, which flatters them there, and more so where "
    text += "there are more epochs to choose from; what transfers was not chosen so.\n"
    return text + "\n" + _correlations(found) + _transfers(found, domains)


def _correlations(found: pd.DataFrame) -> str:
    told = found[found["metric"].isin(CORRELATIONS) & (found["corpus"] != "")]
    lines = []
    told = told.assign(fit=fit_labels(told))
    for (corpus, metric, estimator), own in told.groupby(["corpus", "of_metric", "fit"], sort=False):
        rows = {row["metric"]: row for row in own.to_dict("records")}
        lines.append([f"{estimator}: {metric}", str(corpus), *(_r(rows[name]) for name in CORRELATIONS)])
    if not lines:
        return ""
    head = ["does it go with the divergence?", "from", "Pearson", "Spearman", "Kendall"]
    chance = (
        f"Of {len(lines) * 3} correlations some are large by chance; where an interval leaves out 0 and p is not small,"
    )
    return f"{_markdown(head, lines)}\n{told['caution'].iloc[0]} {chance} believe p.\n"


def _transfers(found: pd.DataFrame, domains: Sequence[str]) -> str:
    found = found.assign(fit=fit_labels(found))
    cells = found[(found["trained_on"] != "") & (found["corpus"] == "")]
    parts = []
    for estimator, own in cells.groupby("fit", sort=False):
        here = own[~own["metric"].str.startswith("lost")]
        at = {(row["trained_on"], row["domain"]): row["value"] for row in here.to_dict("records")}
        lines = [[i, *(f"{100 * at[i, j]:.1f}" if (i, j) in at else "" for j in domains)] for i in domains]
        text = _markdown([f"{estimator}: trained on ↓, evaluated on →", *domains], lines)
        rows = found[found["metric"].isin(CORRELATIONS) & (found["fit"] == estimator) & (found["corpus"] == "")]
        for of_metric, several in rows.groupby("of_metric", sort=False):
            r = {row["metric"]: row for row in several.to_dict("records")}
            said = ", ".join(f"{name.capitalize()} {_r(r[name])}" for name in CORRELATIONS)
            how = f", {ALONE}" if str(of_metric).endswith(ALONE) else ""
            text += f"\nWhat is lost by training elsewhere, against the divergence of the two domains{how}: {said}.\n"
        if len(rows):
            text += f"\n{rows['caution'].iloc[0]}\n"
        parts.append(text)
    return "\n" + "\n".join(parts) if parts else ""


def _by_label(found: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    """Feature extraction, fine-tuning, and the difference, each with its head, or with those that tasks have."""
    order = [*NAMES.values(), "Δ"]
    change = found["metric"].str.startswith("difference")
    variants = [f", {variant}" if variant else "" for variant in found["variant"]]
    labels = [
        f"Δ fine-tuning{variant}" if of else f"{NAMES[regime]}, {head}{variant}"
        for of, regime, head, variant in zip(change, found["regime"], found["head"], variants, strict=True)
    ]
    for regime, name in NAMES.items():
        own = found[~change & (found["regime"] == regime)]
        if not own.duplicated(["task", "metric"]).any():
            heads = dict.fromkeys(
                map("".join, zip(own["head"], own["variant"].map(lambda v: v and f", {v}"), strict=True))
            )
            labels = [f"{name}, {', '.join(heads)}" if one.startswith(name) else one for one in labels]
    groups = [(str(label), own) for label, own in found.assign(label=labels).groupby("label", sort=False)]
    return sorted(groups, key=lambda one: next(i for i, start in enumerate(order) if one[0].startswith(start)))


def _cell(rows: pd.DataFrame) -> str:
    if rows.empty:
        return ""
    row = rows.iloc[0]
    shape = "{:+.1f}" if str(row["metric"]).startswith("difference") else "{:.1f}"
    return _interval(100 * row["value"], 100 * row["ci_low"], 100 * row["ci_high"], shape)


def _interval(value: float, low: float, high: float, shape: str) -> str:
    within = f" [{shape.format(low)}, {shape.format(high)}]" if isfinite(low) else ""
    return shape.format(value) + within


def _r(row: Mapping[Any, Any]) -> str:
    return f"{_interval(row['value'], row['ci_low'], row['ci_high'], '{:+.2f}')}, p = {row['p']:.3f}"


def _legend(found: pd.DataFrame, beside: str | None) -> str:
    seeds = sorted(set(found["seeds"].astype(int)))
    runs = "one seed" if seeds == [1] else f"means over {' or '.join(map(str, seeds))} seeds"
    few = " (two tell little)" if seeds == [2] else ""
    of_change = (
        f"; of Δ, fine-tuning minus feature extraction, paired, and over seeds where there are several{few}"
        if found["metric"].str.startswith("difference").any()
        else ""
    )
    runs = f"{runs[0].upper()}{runs[1:]}; in brackets 95 % intervals: of a metric over examples, not over seeds"
    return f"{runs}{of_change}.{_source(beside)}\n"


def _source(beside: str | None) -> str:
    if beside is None:
        return ""
    paper, _, number = beside.partition("/")
    return f" Published: {SOURCES[paper]}, Table {number}, other models, data and corpora."


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    return line(head) + line(["---"] * len(head)) + "".join(map(line, lines))


TABLES: dict[str, Callable[..., tuple[str, pd.DataFrame]]] = {"regimes": regime_table, "domains": domain_table}
"""The kinds of table by name."""
