"""``probekit study``."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

if TYPE_CHECKING:
    from probekit.studies.runner import Outcome
    from probekit.studies.steps import Step

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Whole tables and figures of a paper, from one file.")


@app.command("run")
def run_command(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="A TOML file, or a name (probekit study list).")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the study; studies/STUDY without it.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="Instead of the file's: NAME=MODEL, hub id or folder; may be repeated."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Folder with a folder for each task's files; the hub without it.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Replace a value of the file, such as train.0.seeds=[0,1,2]; may be repeated."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what would be done and how long it takes; do nothing.")
    ] = False,
    commands: Annotated[bool, typer.Option("--commands", help="With --plan: the command of each step.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", help="Steps at a time on this machine.")] = 1,
    backend: Annotated[str, typer.Option("--backend", help="loky (this machine) or dask.")] = "loky",
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="With --backend dask: its address, such as tcp://host:8786.")
    ] = None,
) -> None:
    """Do all that a study asks for, and is not there yet: caches, training, analyses, tables, figures, the report.

    Each step is a command of probekit; --plan shows them. What is there already, made from the same data, weights and
    options, is not made again: the same command goes on after an interruption, and does nothing when all is done. A
    step that fails stops those alone that need it; exit status 1 then.

    Examples:

        probekit study run table6-small --data-dir data --model minilm=sentence-transformers/all-MiniLM-L6-v2 --plan

        probekit study run mine.toml --jobs 2

        probekit study run table2-full --backend dask --scheduler tcp://head:8786
    """
    from probekit.cli import main, parse
    from probekit.errors import UsageError
    from probekit.files import slug
    from probekit.studies.file import read_study
    from probekit.studies.plan import study_steps
    from probekit.studies.runner import dask_pool, local_pool
    from probekit.studies.study import run_study, seconds_of

    if backend not in ("loky", "dask"):
        raise UsageError(f"--backend is loky or dask, not {backend!r}.")
    if (backend == "dask") != (scheduler is not None):
        raise UsageError("--backend dask and --scheduler ADDRESS belong together.")
    asked = read_study(study, models=dict(map(_named, model or [])), changes=set_ or ())
    folder = out or Path("studies") / slug(asked.name)
    steps = study_steps(asked, data_dir)
    for step in (s for s in steps if not s.error):
        try:
            parse(step.words)
        except UsageError as error:
            raise UsageError(f"{asked.name}: step {step.name}: {error}") from error
    if plan:
        _show_plan(asked.title, steps, folder, seconds_of(steps, folder), jobs, commands=commands)
        return
    pool = local_pool(jobs) if backend == "loky" else dask_pool(str(scheduler))
    with _Teller(len(steps)) as teller:
        outcomes = run_study(asked, steps, folder, main, pool, begin=teller.begin, tell=teller.tell)
    _show_end(outcomes, folder)
    if any(one.state in ("failed", "skipped") for one in outcomes):
        raise typer.Exit(1)


@app.command("list")
def list_command() -> None:
    """The studies that come with probekit."""
    import tomllib

    from probekit.studies.file import shipped_studies

    for name, text in shipped_studies().items():
        typer.echo(f"{name}: {tomllib.loads(text)['title']}")


@app.command("show")
def show_command(study: Annotated[str, typer.Argument(metavar="STUDY", help="Its name.")]) -> None:
    """The file of a study that comes with probekit, to begin one's own from."""
    from probekit.errors import UsageError
    from probekit.studies.file import shipped_studies

    shipped = shipped_studies()
    if study not in shipped:
        raise UsageError(f"there is no study {study!r}; there are {', '.join(shipped)}.")
    typer.echo(shipped[study], nl=False)


def _named(word: str) -> tuple[str, str]:
    """NAME=MODEL, or MODEL under its own name."""
    from probekit.models.identity import model_name

    name, equals, where = word.partition("=")
    return (name, where) if equals else (model_name(word), word)


def _show_plan(
    title: str, steps: Sequence[Step], folder: Path, times: dict[str, tuple[str, float]], jobs: int, *, commands: bool
) -> None:
    import shlex

    from probekit.studies.steps import OUT

    typer.echo(f"{title}\n")
    fails: dict[str, str] = {}
    for step in steps:
        state, seconds = times[step.name]
        lost = step.lost(fails)
        if step.error or lost:
            said = f"it needs {lost}" if lost else "as above" if step.error in fails.values() else step.error
            fails[step.name] = step.error
            typer.echo(f"{'skip' if lost else 'fails':<6} {step.name}: {said}")
            continue
        typer.echo(f"{state:<6} {step.name}{'' if state == 'done' else f', {_time(seconds)}'}")
        if commands:
            typer.echo(f"         probekit {shlex.join(word.replace(OUT, str(folder)) for word in step.words)}")
    left = [times[step.name][1] for step in steps if times[step.name][0] != "done" and step.name not in fails]
    at_once = f", roughly {_time(sum(left) / jobs)} with {jobs} at a time" if jobs > 1 else ""
    typer.echo(f"\n{len(left)} of {len(steps)} steps to do, roughly {_time(sum(left))} one after another{at_once}")
    space = sum(step.space for step in steps if times[step.name][0] != "done" and step.name not in fails)
    if space > 1e9:
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(there).free
        typer.echo(f"caches of pieces take roughly {space / 1e9:,.0f} GB; {free / 1e9:,.0f} GB are free")
    if fails:
        typer.echo(f"{len(fails)} cannot be done")
        raise typer.Exit(1)


class _Teller:
    """Tells each step as it ends, and on a terminal what is being done, since when."""

    def __init__(self, steps: int) -> None:
        from rich.console import Console

        self.steps, self.ended = steps, 0
        self.failures: set[str] = set()
        self.running: dict[str, str] = {}
        self.status = Console().status("") if sys.stdout.isatty() else None

    def __enter__(self) -> Self:
        if self.status:
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.status:
            self.status.stop()

    def begin(self, step: Step) -> None:
        self.running[step.name] = f"{step.name} (since {time.strftime('%H:%M')})"
        self._show()

    def _show(self) -> None:
        if self.status:
            self.status.update(f"{self.ended} of {self.steps} ended; now {', '.join(self.running.values()) or '…'}")

    def tell(self, outcome: Outcome) -> None:
        self.ended += 1
        self.running.pop(outcome.step.name, None)
        self._show()
        if outcome.state != "reused":
            took = f", {_time(outcome.seconds)}" if outcome.state == "done" else ""
            known = outcome.message in self.failures
            said = f": {'as above' if known else outcome.message}" if outcome.message else ""
            self.failures |= {outcome.message} if outcome.state == "failed" else set()
            line = f"[{self.ended}/{self.steps}] {outcome.step.name}: {outcome.state}{took}{said}"
            if self.status:  # above what is being done
                self.status.console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                typer.echo(line)


def _show_end(outcomes: Sequence[Outcome], folder: Path) -> None:
    from probekit.files import slug

    count = {state: sum(one.state == state for one in outcomes) for state in ("done", "reused", "failed", "skipped")}
    typer.echo(", ".join(f"{n} {state}" for state, n in count.items() if n))
    failed: dict[str, list[Outcome]] = {}
    for one in outcomes:
        if one.state == "failed":
            failed.setdefault(one.message, []).append(one)
    for message, several in failed.items():
        logs = [folder / "logs" / f"{slug(one.step.name)}.log" for one in several if one.seconds]
        where = f" (see {', '.join(map(str, logs))})" if logs else ""
        typer.echo(f"failed: {', '.join(one.step.name for one in several)}: {message}{where}", err=True)
    for one in outcomes:
        if one.state in ("done", "reused"):
            for leaf in one.step.leaves:
                if leaf.endswith((".md", ".html")):
                    typer.echo(folder / leaf)


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
