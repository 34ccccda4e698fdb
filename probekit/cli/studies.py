"""``probekit run``, ``study`` and ``suite``: many steps, and the files with steps that come with probekit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import cleandoc
from pathlib import Path

from cyclopts import App

from probekit.cli.made import Made, made
from probekit.cli.show import say
from probekit.errors import UsageError, did_you_mean
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
    from probekit.cli.steps import StepPrinter, show_end
    from probekit.studies.first_look import page_of, plan_run, result_of
    from probekit.studies.pools import here_pool
    from probekit.studies.run import run_study

    planned = plan_run(model, tasks, out, options)
    if dry_run:
        for step in planned.steps:
            say(step.recipe(planned.folder))
        return 0
    with StepPrinter(planned) as printer:
        done = run_study(planned, here_pool(), begin=printer.begin, tell=printer.end)
    show_end(done)
    if any(outcome.state in ("done", "reused") and outcome.step.function == "probe" for outcome in done.outcomes):
        say("")
        for sentence in result_of(done).verdict:
            say(sentence)
    if page := page_of(done):
        say(f"\n{page}")
    return 1 if done.failed else 0


def _run_study(
    file: str, *, out: Path | None, options: StudyOptions, workers: WorkerOptions, plan: bool = False,
    commands: bool = False,
) -> int:  # fmt: skip
    """The steps of a study.

    Parameters
    ----------
    plan
        List the steps with an estimate of their time, without running them.
    commands
        With --plan: print the command of each step.
    """
    from probekit.cli.steps import run_planned, show_plan
    from probekit.studies.run import plan_study

    planned = plan_study(file, out, options)
    if plan:
        return show_plan(planned, workers.jobs, commands=commands)
    return 1 if run_planned(planned, workers).failed else 0


def _run_suite(
    file: str, *, out: Path | None, options: StudyOptions, workers: WorkerOptions, plan: bool = False,
    commands: bool = False,
) -> int:  # fmt: skip
    """The steps of a suite, and its scoreboard.

    Parameters
    ----------
    plan
        List the steps with an estimate of their time, without running them.
    commands
        With --plan: print the command of each step.
    """
    from probekit.cli.made import show_tables
    from probekit.cli.steps import run_planned, show_plan
    from probekit.studies.suites.run import board_of, plan_suite

    planned = plan_suite(file, out, options)
    if plan:
        return show_plan(planned, workers.jobs, commands=commands)
    run = run_planned(planned, workers)
    board = board_of(run)
    show_tables(board)
    for sentence in board.verdict:
        say(sentence)
    return 1 if run.failed else 0


def _add_shipped(app: App, what: str, plural: str, shipped: Callable[[], Mapping[str, str]], example: str) -> None:
    """Add the commands that list and print the files of this kind that come with probekit."""

    def list_command() -> None:
        from probekit.toml import parse_toml

        for name, text in shipped().items():
            say(f"{name}: {parse_toml(text, Path(name))['title']}")

    def show_command(name: str, /) -> None:
        files = shipped()
        if name not in files:
            raise UsageError(f"there is no {what} {name!r}; {did_you_mean(name, files, most=3)}")
        say(files[name].rstrip("\n"))

    list_command.__doc__ = cleandoc(f"""List the {plural} that come with probekit.

    Examples:

        probekit {what} list

        probekit {what} show {example}
    """)
    show_command.__doc__ = cleandoc(f"""Print the file of a {what}, as a starting point for your own.

    Examples:

        probekit {what} show {example}

        probekit {what} show {example} > mine.toml

    Parameters
    ----------
    name
        The name of the {what}.
    """)
    app.command(list_command, name="list")
    app.command(show_command, name="show")


def _studies() -> Mapping[str, str]:
    from probekit.studies.catalogue import shipped_studies

    return shipped_studies()


def _suites() -> Mapping[str, str]:
    from probekit.studies.catalogue import shipped_suites

    return shipped_suites()


study.command(Made("study", _run_study, instead=True).command(), name="run")
suite.command(Made("suite", _run_suite, instead=True).command(), name="run")
_add_shipped(study, "study", "studies", _studies, "figure1-small")
_add_shipped(suite, "suite", "suites", _suites, "syntax")
