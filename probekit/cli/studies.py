"""``probekit run``, ``study`` and ``suite``: many steps, and the files with steps that come with probekit."""

from __future__ import annotations

from functools import partial
from inspect import cleandoc
from pathlib import Path

from cyclopts import App

from probekit.cli.made import Made, made
from probekit.cli.show import say
from probekit.errors import UsageError, did_you_mean
from probekit.studies.catalogue import FOLDERS, Kind, shipped
from probekit.studies.options import RunOptions, StudyOptions, WorkerOptions

study = App("study", help="Produce all tables and figures of a paper from one file.")
suite = App("suite", help="Run many probing tasks on one or several models.")


@made(instead=True)
def run(model: str, *tasks: str, out: Path | None, options: RunOptions, dry_run: bool = False) -> int:
    """The steps of a first look, and its findings.

    Parameters
    ----------
    dry_run
        Print the commands without running them.
    """
    from probekit.cli.steps import run_planned
    from probekit.studies.first_look import page_of, plan_run, result_of
    from probekit.studies.pools import here_pool

    planned = plan_run(model, tasks, out, options)
    if dry_run:
        for step in planned.steps:
            say(step.recipe(planned.folder))
        return 0
    done = run_planned(planned, here_pool(), findings=True)
    if any(outcome.state in ("done", "reused") and outcome.step.function == "probe" for outcome in done.outcomes):
        say("")
        for sentence in result_of(done).verdict:
            say(sentence)
    if page := page_of(done):
        say(f"\n{page}")
    return 1 if done.failed else 0


def _run(
    kind: Kind, file: str, *, out: Path | None, options: StudyOptions, workers: WorkerOptions, plan: bool = False,
    commands: bool = False,
) -> int:  # fmt: skip
    """The steps of a study, or of a suite and its scoreboard.

    Parameters
    ----------
    plan
        List the steps with an estimate of their time, without running them.
    commands
        With --plan: print the command of each step.
    """
    from probekit.cli.made import show_tables
    from probekit.cli.steps import run_planned, show_plan, show_warnings
    from probekit.studies.planned import board_of, plan_study, pool_of

    planned = plan_study(file, out, options, kind)
    if plan:
        return show_plan(planned, workers.jobs, commands=commands)
    done = run_planned(planned, pool_of(workers))
    show_warnings(done)
    if kind == "suite":
        board = board_of(done)
        show_tables(board)
        for sentence in board.verdict:
            say(sentence)
    return 1 if done.failed else 0


def _add_commands(app: App, kind: Kind, example: str) -> None:
    """Add the commands that run files of this kind, and list and print those that come with probekit."""

    def list_command() -> None:
        from probekit.toml import parse_toml

        for name, text in shipped(kind).items():
            say(f"{name}: {parse_toml(text, Path(name))['title']}")

    def show_command(name: str, /) -> None:
        files = shipped(kind)
        if name not in files:
            raise UsageError(f"there is no {kind} {name!r}; {did_you_mean(name, files, most=3)}")
        say(files[name].rstrip("\n"))

    list_command.__doc__ = cleandoc(f"""List the {FOLDERS[kind]} that come with probekit.

    Examples:

        probekit {kind} list

        probekit {kind} show {example}
    """)
    show_command.__doc__ = cleandoc(f"""Print the file of a {kind}, as a starting point for your own.

    Examples:

        probekit {kind} show {example}

        probekit {kind} show {example} > mine.toml

    Parameters
    ----------
    name
        The name of the {kind}.
    """)
    app.command(Made(kind, partial(_run, kind), instead=True).command(), name="run")
    app.command(list_command, name="list")
    app.command(show_command, name="show")


_add_commands(study, "study", "figure1-small")
_add_commands(suite, "suite", "syntax")
