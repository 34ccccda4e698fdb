"""The counts of a task as a table, for terminals, notebooks and ``print``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from probekit.grid import Column, Grid

if TYPE_CHECKING:
    from probekit.tasks.check import SplitReport, TaskReport

MOST = 30
"""Labels or domains shown, at most; the others are summed up."""


def counts(report: TaskReport) -> Grid:
    """One column a split: counts, then labels, lengths and domains with their shares."""
    splits = report.splits
    columns = [Column("", align="left", key=True), *(Column(s.name) for s in splits)]
    told = {name: [f"{n:,}" if (n := value(s)) is not None else "" for s in splits] for name, value in _COUNTS.items()}
    rows = [[name, *found] for name, found in told.items() if any(found)]
    if any(s.scores for s in splits):
        cells = ["{:g} / {:.4g} / {:g}".format(*s.scores or (0, 0, 0)) if s.scores else "" for s in splits]
        rows.append(["lowest / mean / highest", *cells])
    for name in next((s.numbers for s in splits if s.numbers), {}):
        ends = ["{:g} / {:.4g} / {:g}".format(*s.numbers[name]) if s.numbers else "" for s in splits]
        rows.append([f"{name}: lowest / mean / highest", *ends])
    unit = {"sequence-labelling": "words", "span-labelling": "targets"}.get(str(report.task.kind), "examples")
    lengths = sorted(
        {name for s in splits for name in s.lengths}, key=lambda name: int(name.rstrip("+").partition("-")[0])
    )
    domains = sorted({name for s in splits for name in s.domains})
    roles = [*dict.fromkeys(name for s in splits for name in s.messages)]
    sections = (
        _shares("messages by role", [s.messages for s in splits], roles),
        _shares(
            f"{unit} by label",
            [s.labels for s in splits],
            report.task.label_names,
            [s.labelled for s in splits] if report.task.kind == "multi-label" else None,
        ),
        _shares("examples by number of words", [s.lengths for s in splits], lengths),
        _shares("examples by domain", [s.domains for s in splits], domains),
    )
    bold = set()
    for section in filter(None, sections):
        rows.append([""] * len(columns))
        bold.add((len(rows), 0))
        rows += section
    return Grid(columns, rows, bold=bold)


_COUNTS: dict[str, Callable[[SplitReport], int | None]] = {
    "examples": lambda s: s.examples,
    "labelled": lambda s: s.labelled,
    "spans, or pairs of spans, to classify": lambda s: s.targets,
    "groups": lambda s: s.groups,
    "text of an earlier example": lambda s: s.repeated,
    "… and its label": lambda s: s.duplicates,
    "texts with conflicting labels": lambda s: s.conflicting,
    "text occurs in train": lambda s: s.in_train,
    "domain occurs in train": lambda s: s.domain_in_train if s.domains else None,
    "group occurs in train": lambda s: s.group_in_train,
    "empty texts": lambda s: s.empty,
    "words of the longest": lambda s: s.longest,
    "with control characters": lambda s: s.control,
}


def _shares(
    title: str, counts: Sequence[Mapping[str, int]], names: Sequence[str], of: Sequence[int] | None = None
) -> list[list[str]]:
    """A section of the table: how often each name occurs in each split, and its share of their sum, or of ``of``.

    The less frequent of many are summed up.
    """
    if not any(counts):
        return []
    section = [[title, *[""] * len(counts)]]
    every = [sum(count.values()) for count in counts]
    totals = of or every
    frequent = set(sorted(names, key=lambda name: -sum(count.get(name, 0) for count in counts))[:MOST])
    rows = {name: [count.get(name, 0) for count in counts] for name in names if name in frequent}
    if len(names) > MOST:
        remaining = [total - sum(row[k] for row in rows.values()) for k, total in enumerate(every)]
        rows[f"{len(names) - MOST} others"] = remaining
    for name, row in rows.items():
        cells = [f"{n:,} {f'({n / total:.1%})':>8}" if total else "" for n, total in zip(row, totals, strict=True)]
        section.append([f"  {name}", *cells])
    return section
