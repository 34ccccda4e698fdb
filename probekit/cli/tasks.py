"""``probekit tasks``: list the tasks, check one, write a task file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from probekit.cli.made import Made
from probekit.cli.show import console, say
from probekit.cli.terminal import show_table
from probekit.errors import UsageError, did_you_mean
from probekit.grid import Column, Grid

if TYPE_CHECKING:
    from probekit.tasks.check import SplitReport, TaskReport

MOST = 30
"""Labels or domains shown, at most; the others are summed up."""

app = App("tasks", help="List the tasks, check one, or write a task file for your data.")


@app.default
def tasks(*unknown: Annotated[str, Parameter(show=False)]) -> None:
    """List the tasks with size, metric, source and licence; check one; or write a task file for your data."""
    if unknown:
        raise UsageError(f"unknown command tasks {unknown[0]}; {did_you_mean(unknown[0], ['check', 'new', 'write'])}")
    _listing()


def _check(report: TaskReport) -> None:
    """The counts of a task."""
    from probekit.activations.grouping import seen_in_train

    _report(report, seen_in_train(report.task))


def _new(path: Path) -> None:
    """The task file, and its counts."""
    import probekit

    console(highlight=False).print(path.read_text(encoding="utf-8"), markup=False, soft_wrap=True)
    _check(probekit.check_task(str(path)))
    say(f"\nWrote {path}. Read it, correct any wrong guess, and check it again: probekit tasks check {path}")


def _write(paths: Sequence[Path]) -> None:
    for path in paths:
        say(f"Wrote {path}.")


app.command(Made("check_task", _check).command(), name="check")
app.command(Made("new_task", _new).command(), name="new")
app.command(Made("write_tasks", _write).command(), name="write")


def _listing() -> None:
    from rich.padding import Padding

    from probekit.tasks import DATASETS, GRAMMARS, SENTENCES

    terminal = console(highlight=False)
    for name, dataset in DATASETS.items():
        sizes = ", ".join(f"{split} {size:,}" if size else split for split, size in dataset.sizes.items())
        terminal.print(f"[bold]{name}[/]  {dataset.title}")
        terminal.print(Padding("; ".join(filter(None, (sizes, ", ".join(dataset.metrics or ())))), (0, 0, 0, 4)))
        terminal.print(Padding(f"[dim]{dataset.source}; licence: {dataset.licence}[/]", (0, 0, 0, 4)))
    terminal.print("\nTasks load from the Hugging Face Hub, or from a folder with the official files (--data-dir);")
    terminal.print("glue-diagnostic, ax-b, imdb-cad, the tasks of spans and the senteval tasks only from a folder.")
    terminal.print("[bold]ud:TREEBANK[/] and [bold]universal-ner:TREEBANK[/] choose a treebank, such as ud:de_gsd.")
    terminal.print(f"Generated, no files needed: {', '.join(f'[bold]grammar:{name}[/]' for name in GRAMMARS)}.")
    terminal.print("Made from a treebank in --data-dir, of dependencies (.conllu) or in brackets (.mrg):")
    terminal.print(f"{', '.join(f'[bold]treebank:{name}[/]' for name in SENTENCES)};")
    terminal.print("[bold]treebank:NAME:TREEBANK[/] chooses one of several treebanks in the folder.")
    terminal.print("Your own data: [bold]probekit tasks new DATA[/] writes a TOML file that describes them,")
    terminal.print("[bold]probekit tasks check FILE.toml[/] shows what probekit reads from it.")


def _report(report: TaskReport, seen: Mapping[str, int]) -> None:
    from rich.markup import escape

    task, terminal = report.task, console(highlight=False)
    unit = "sentence pairs" if any(split.paired for split in task.splits.values()) else "sentences"
    terminal.print(f"[bold]{escape(task.name)}[/]: {task.kind} of {unit}, measured by {', '.join(task.metrics)}")
    terminal.print(f"Source: {escape(task.source or 'not stated')}. Licence: {escape(task.licence or 'not stated')}.")
    show_table(_grid(report))
    for warning in report.warnings:
        terminal.print(f"[bold]Warning[/]: {escape(warning)}")
    for split in report.splits:
        if n := seen.get(split.name):
            near = f"{split.name}: the texts of {n:,} of {split.examples:,} examples, or near copies, occur in train"
            terminal.print(f"[bold]Warning[/]: {escape(near)}: results on them say less about unseen text.")
    for note in task.notes:
        terminal.print(f"Note: {escape(note)}")


def _grid(report: TaskReport) -> Grid:
    """One column a split: counts, then labels, lengths and domains with their shares."""
    splits = report.splits
    columns = [Column("", align="left", key=True), *(Column(s.name) for s in splits)]
    rows = [
        [name, *(f"{n:,}" if isinstance(n := value(s), int) else "" for s in splits)] for name, value in _COUNTS.items()
    ]
    if any(s.scores for s in splits):
        cells = ["{:g} / {:.4g} / {:g}".format(*s.scores or (0, 0, 0)) if s.scores else "" for s in splits]
        rows.append(["lowest / mean / highest", *cells])
    unit = {"sequence-labelling": "words", "span-labelling": "targets"}.get(str(report.task.kind), "examples")
    lengths = sorted(
        {name for s in splits for name in s.lengths}, key=lambda name: int(name.rstrip("+").partition("-")[0])
    )
    domains = sorted({name for s in splits for name in s.domains})
    roles = [*dict.fromkeys(name for s in splits for name in s.messages)]
    sections = (
        _shares("messages by role", [s.messages for s in splits], roles),
        _shares(f"{unit} by label", [s.labels for s in splits], report.task.label_names),
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


def _shares(title: str, counts: Sequence[Mapping[str, int]], names: Sequence[str]) -> list[list[str]]:
    """A section of the table: how often each name occurs in each split; the less frequent of many are summed up."""
    if not any(counts):
        return []
    section = [[title, *[""] * len(counts)]]
    totals = [sum(count.values()) for count in counts]
    frequent = set(sorted(names, key=lambda name: -sum(count.get(name, 0) for count in counts))[:MOST])
    rows = {name: [count.get(name, 0) for count in counts] for name in names if name in frequent}
    if len(names) > MOST:
        remaining = [total - sum(row[k] for row in rows.values()) for k, total in enumerate(totals)]
        rows[f"{len(names) - MOST} others"] = remaining
    for name, row in rows.items():
        cells = [f"{n:,} {f'({n / total:.1%})':>8}" if total else "" for n, total in zip(row, totals, strict=True)]
        section.append([f"  {name}", *cells])
    return section
