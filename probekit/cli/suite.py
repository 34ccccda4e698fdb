"""``probekit suite``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from probekit.cli.shipped import add_shipped
from probekit.cli.show import say
from probekit.studies.options import StudyOptions, WorkerOptions

__all__ = ["app"]

app = App("suite", help="Run many probing tasks on one or several models.")


@app.command(name="run")
def run_command(
    suite: str,
    /,
    *,
    out: Path | None = None,
    plan: bool = False,
    commands: bool = False,
    options: Annotated[StudyOptions, Parameter(name="*")] = StudyOptions(),
    workers: Annotated[WorkerOptions, Parameter(name="*")] = WorkerOptions(),
) -> int:
    """Run the steps of a suite: shared caches, an analysis of each task and model, scoreboard, figure and report.

    Every task is also analysed on random weights, unless the file says otherwise. Finished steps are reused: run the
    same command again to resume. If the data of a task are missing, or a step fails, the other steps still run; the
    reason is printed, and the exit status is 1.

    Examples:

        probekit suite run mine.toml --model minilm

        probekit suite run syntax --model minilm --data-dir data --jobs 2

        probekit suite run surface --model bert=bert-base-uncased --model mine=runs/mine --data-dir data --plan

        probekit suite run syntax --model minilm --data-dir data --set limit=500

    Parameters
    ----------
    suite
        A suite file (.toml), or the name of a suite that comes with probekit (probekit suite list).
    out
        Folder for caches, rows, scoreboard, figure and report; by default suites/SUITE.
    plan
        List the steps with an estimate of their time, without running them.
    commands
        With --plan: print the command of each step.
    """
    from probekit.cli.scoreboard import show_board
    from probekit.cli.steps import run_planned, show_plan
    from probekit.studies.suites.run import board_of, plan_suite

    planned = plan_suite(suite, out, options)
    if plan:
        return show_plan(planned, workers.jobs, commands=commands)
    run = run_planned(planned, workers)
    board = board_of(run)
    show_board(board)
    for sentence in board.verdict:
        say(sentence)
    return 1 if run.failed else 0


@add_shipped(app, "suite", "suites", example="syntax")
def shipped() -> Mapping[str, str]:
    """The suites that come with probekit, by name."""
    from probekit.studies.catalogue import shipped_suites

    return shipped_suites()
