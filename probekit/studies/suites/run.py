"""Suites: from a file to caches, analyses, the scoreboard, its figure and the page."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from probekit.analyses.scoreboard.leaderboard import leaderboard
from probekit.constraint import Out
from probekit.errors import UsageError
from probekit.files import slug
from probekit.public import public
from probekit.rows import Result, read
from probekit.runtime import Progress, no_progress
from probekit.studies.options import StudyOptions, WorkerOptions
from probekit.studies.plan import check_steps
from probekit.studies.run import PlannedStudy, StudyRun, pool_of, run_study, split_model
from probekit.studies.suites.schema import read_suite
from probekit.studies.suites.steps import check_models, study_of, suite_steps
from probekit.tasks.kept import keeping_tasks

BOARD = "rows/scoreboard.parquet"


@public(options=StudyOptions, workers=WorkerOptions)
def suite(
    suite: str | Path,
    /,
    *,
    out: Out | None = None,
    options: StudyOptions,
    workers: WorkerOptions,
    progress: Progress = no_progress,
) -> Result:
    """Run the steps of a suite: shared caches, an analysis of each task and model, scoreboard, figure and report.

    Tasks whose files are in one folder share a cache, so the model reads their sentences once. Every task is also
    analysed on random weights, unless the file says otherwise. Finished steps are reused: run the same command again to
    resume. If the data of a task are missing, or a step fails, the other steps still run; on the command line, the
    reason is printed, and the exit status is 1.

    Parameters
    ----------
    suite : path
        A suite file (.toml), or the name of a suite that comes with probekit (``probekit suite list``).
    out : path, optional
        Folder for caches, rows, scoreboard, figure and report; by default suites/SUITE.
    options : StudyOptions
        ``model`` (NAME=MODEL, one or several), ``data_dir``, ``set_``, ``allow_remote``; each may be given as a
        keyword.
    workers : WorkerOptions
        ``jobs``, ``backend``, ``scheduler``; each may be given as a keyword.
    progress : callable
        Receives the number of steps that have ended.

    Returns
    -------
    Result
        The scoreboard; see :func:`probekit.scoreboard`.

    Raises
    ------
    DataError
        If the file is invalid; the message gives the file and the key.
    UsageError
        If there is no model, nothing can be done, or another process runs the suite.

    Examples
    --------
    >>> board = probekit.suite("syntax", model=("minilm",), data_dir="data", jobs=2)  # doctest: +SKIP

    On the command line::

        probekit suite run mine.toml --model minilm
        probekit suite run syntax --model minilm --data-dir data --jobs 2
        probekit suite run surface --model bert=bert-base-uncased --model mine=runs/mine --data-dir data --plan
        probekit suite run syntax --model minilm --data-dir data --set limit=500
    """
    planned, ended = plan_suite(suite, out, options), 0

    def tell(_: object) -> None:
        nonlocal ended
        ended += 1
        progress("steps", ended, len(planned.steps))

    return board_of(run_study(planned, pool_of(workers), tell=tell))


def plan_suite(suite: str | Path, out: str | Path | None = None, options: StudyOptions | None = None) -> PlannedStudy:
    """A suite and its steps, all checked before anything is run.

    Raises
    ------
    DataError, UsageError
        For errors in the file or the leaderboard, without a model, and if no task can be analysed.
    """
    options = options or StudyOptions()
    models = dict(map(split_model, options.model))
    found = read_suite(suite, models=models, changes=options.set_, allow_remote=options.allow_remote)
    check_models(found)
    if found.against is not None:
        leaderboard(found.against)
    with keeping_tasks(uuid4().hex):
        steps, study = suite_steps(found, options.data_dir), study_of(found)
    check_steps(study, steps)
    if not any(step.function == "scoreboard" for step in steps):
        errors = "; ".join(dict.fromkeys(step.error for step in steps if step.error))
        raise UsageError(f"nothing of the suite {found.name} can be done: {errors}")
    return PlannedStudy(
        study, Path(out) if out else Path("suites") / slug(found.name), tuple(steps), options.allow_remote
    )


def board_of(done: StudyRun) -> Result:
    """The scoreboard of a suite; raises UsageError if there is none."""
    failed = next((one for one in done.outcomes if one.step.function == "scoreboard" and one in done.failed), None)
    if failed is not None:
        first = done.failed[0]
        raise UsageError(f"the suite has no scoreboard: {first.step.name}: {first.message.rstrip('.')}.")
    return read(done.folder / BOARD)
