"""``probekit tasks``: list the tasks, check one, write a task file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from probekit.cli.made import Made
from probekit.cli.show import console, say, shown
from probekit.cli.terminal import show_table
from probekit.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from probekit.tasks.check import TaskReport
    from probekit.tasks.files.roles import Doubt

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


def _new(*data: Path, columns: tuple[str, ...], groups: str | None, **options: Any) -> None:
    """Ask about guesses that are not sure, write the task file, and show it with its counts."""
    import probekit

    if sys.stdin.isatty():
        from probekit.analyses.new_task import doubts

        columns = (*columns, *map(_answer, doubts(*data, groups=groups, columns=columns)))
    path = probekit.new_task(*data, columns=columns, groups=groups, **options)
    console(highlight=False).print(path.read_text(encoding="utf-8"), markup=False, soft_wrap=True)
    _check(probekit.check_task(str(path)))
    say(f"\nWrote {path}. Read it, correct any wrong guess, and check it again: probekit tasks check {path}")


def _answer(doubt: Doubt) -> str:
    """ROLE=COLUMN as a person chooses it on the terminal; Enter takes the guess."""
    choices = (doubt.column, *doubt.others)
    listed = "".join(f"\n  {i} {name}" for i, name in enumerate(choices, start=1))
    print(shown(f"Which column is {doubt.role}? {doubt.column!r} is a guess: {doubt.why}.{listed}"))  # noqa: T201
    print(f"1 to {len(choices)} [1]: ", end="", flush=True)  # noqa: T201
    said = sys.stdin.readline().strip()
    chosen = int(said) if said.isdecimal() and 1 <= int(said) <= len(choices) else 1
    return f"{doubt.role}={said if said in choices else choices[chosen - 1]}"


def _write(paths: Sequence[Path]) -> None:
    for path in paths:
        say(f"Wrote {path}.")


app.command(Made("check_task", _check).command(), name="check")
app.command(Made("new_task", _new, instead=True).command(), name="new")
app.command(Made("write_tasks", _write).command(), name="write")


def _listing() -> None:
    from rich.padding import Padding

    from probekit.tasks import DATASETS, GRAMMARS, SENTENCES

    terminal = console(highlight=False)
    for name, dataset in DATASETS.items():
        sizes = ", ".join(f"{split} {size:,}" if size else split for split, size in dataset.sizes.items())
        terminal.print(f"[bold]{name}[/]  {dataset.title}")
        terminal.print(Padding("; ".join(filter(None, (sizes, ", ".join(dataset.metrics or ())))), (0, 0, 0, 4)))
        terminal.print(Padding(f"[dim]{dataset.source}; licence: {dataset.licence or 'not stated'}[/]", (0, 0, 0, 4)))
    terminal.print("\nTasks load from the Hugging Face Hub, or from a folder with the official files (--data-dir);")
    terminal.print("those without a copy on the hub, such as most tasks of spans, only from a folder.")
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
    terminal.print(f"[bold]{escape(task.name)}[/]{escape(report.title.removeprefix(task.name))}")
    terminal.print(f"Source: {escape(task.source or 'not stated')}. Licence: {escape(task.licence or 'not stated')}.")
    show_table(report.grid())
    for warning in report.warnings:
        terminal.print(f"[bold]Warning[/]: {escape(warning)}")
    for split in report.splits:
        if n := seen.get(split.name):
            near = f"{split.name}: the texts of {n:,} of {split.examples:,} examples, or near copies, occur in train"
            terminal.print(f"[bold]Warning[/]: {escape(near)}: results on them say less about unseen text.")
    for note in task.notes:
        terminal.print(f"Note: {escape(note)}")
