"""Divergences between domains, and outputs from all rows: tables, figures, the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probekit.analysis import analyses
from probekit.errors import UsageError, did_you_mean
from probekit.files import slug
from probekit.plots.options import KINDS, figure_of
from probekit.studies.file import arguments_of
from probekit.studies.schema import Domains, Figure, Study, Summary, Table
from probekit.studies.sections.names import Plan, guarded, rows_leaf, rows_of, task_name
from probekit.studies.steps import Inside, Step
from probekit.tables.cells import published


def domain_steps(plan: Plan, block: Domains) -> Iterator[Step]:
    """The divergences of a section."""
    name = f"domains {task_name(block.task)}"
    leaf = rows_leaf(name)

    def make() -> Step:
        sources = plan.sources
        splits = block.split.split(",") if block.split else list(sources.task(block.task).splits)
        arguments = sources.task_arguments(block.task, *splits)
        arguments |= {"sources": [sources.corpus(name, place) for name, place in block.corpora.items()]}
        arguments |= {"split": splits} if block.split else {}
        arguments |= {**arguments_of("domains", block.options), "out": Inside(leaf)}
        counts = arguments.get("counts")
        if counts is not None:
            arguments["counts"] = Inside(str(counts))
        return Step(name, "domains", arguments, (), (leaf, *([str(counts)] if counts else [])), 0.0, 15.0)

    yield guarded(name, (leaf,), make)


def table_step(table: Table, steps: Sequence[Step]) -> Step:
    """A table of the rows of all steps; that of the scoreboard of its rows alone."""
    name = table.name or table.kind
    only = "scoreboard" if table.kind == "scoreboard" else ""
    found = [(step, path) for step in steps for path in rows_of(step) if only in ("", step.function)]
    leaves = (f"tables/{slug(name)}.md", f"rows/table-{slug(name)}.parquet")
    if table.published:
        published(table.published)  # an unknown name is reported before any step runs
    arguments = {
        "kind": table.kind, "rows": [Inside(path) for _, path in found], "published": table.published,
        **arguments_of("table", table.options), "out": Inside(leaves[0]), "rows_out": Inside(leaves[1]),
    }  # fmt: skip
    return Step(f"table {name}", "table", arguments, _needs(found), leaves, partly=True)


def figure_step(figure: Figure, steps: Sequence[Step]) -> Step:
    """A figure of the rows of some steps."""
    name = figure.name or figure.kind
    if figure.kind not in KINDS:
        raise UsageError(f"figure {name}: unknown kind {figure.kind!r}; {did_you_mean(figure.kind, KINDS)}")
    for key in figure.options:
        if (option := key.replace("-", "_")) not in figure_of(figure.kind).options:
            raise UsageError(f"figure {name}: a figure of the kind {figure.kind} has no option {option}.")
    found: list[tuple[Step, str]] = []
    rows = figure.rows or (figure.kind if figure.kind in analyses() else "probe")
    for section in [rows] if isinstance(rows, str) else rows:
        of_section = _of_section(section, figure.tasks, steps)
        if not of_section:
            on = f" on {', '.join(figure.tasks)}" if figure.tasks else ""
            raise UsageError(
                f"the figure {name} needs rows of {section}{on}, but the study has none; add a section {section}."
            )
        found += of_section
    leaves = tuple(f"figures/{slug(name)}.{kind}" for kind in ("svg", "pdf", "png"))
    arguments = {
        "kind": figure.kind, "rows": [Inside(path) for _, path in found],
        **arguments_of("plot", figure.options), "out": [Inside(path) for path in leaves],
    }  # fmt: skip
    return Step(f"figure {name}", "plot", arguments, _needs(found), leaves, partly=True)


def summary_step(summary: Summary, steps: Sequence[Step]) -> Step:
    """A summary of the curves of all probes."""
    name = f"summary {summary.name}".strip()
    found = _of_section("probe", [], steps)
    if not found:
        raise UsageError("[[summary]] needs a section [[probe]].")
    first, *more = [Inside(path) for _, path in found]
    options = arguments_of("summary", summary.options)
    arguments = {"first": first, "more": more, **options, "out": Inside(rows_leaf(name))}
    needs = _needs(found)
    return Step(name, "summary", arguments, needs, (rows_leaf(name),), partly=True, inputs=("first", "more"))


def report_step(study: Study, steps: Sequence[Step]) -> Step:
    """The report on the whole study."""
    arguments = {"sources": [Inside("")], "out": Inside(study.page), "title": study.title}
    needs = tuple(step.name for step in steps if rows_of(step) or step.function == "plot")
    return Step("report", "report", arguments, needs, (study.page,), partly=True)


def _of_section(section: str, tasks: Sequence[str], steps: Sequence[Step]) -> list[tuple[Step, str]]:
    """The steps of a section, on some tasks or all, and their rows."""
    start = {"train": "runs/"}.get(section, f"rows/{section}")
    starts = tuple(f"{start}-{task_name(task)}." for task in tasks) or (start,)
    return [(step, path) for step in steps for path in rows_of(step) if path.startswith(starts)]


def _needs(found: Sequence[tuple[Step, str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(step.name for step, _ in found))
