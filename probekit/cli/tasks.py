"""``probekit tasks``: list the tasks, check one, write a task file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from probekit.cli.made import Made
from probekit.cli.show import console, say
from probekit.cli.terminal import show_table
from probekit.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from probekit.tasks.check import TaskReport

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
