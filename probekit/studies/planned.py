"""Studies and suites: from a file to numbers, tables, figures and the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic, thread_time
from uuid import uuid4

from probekit.analyses.scoreboard.leaderboard import leaderboard
from probekit.constraint import Out
from probekit.errors import UsageError
from probekit.files import MARK, FileKind, is_sealed, lock, remove_unfinished, slug, write
from probekit.public import public
from probekit.rows import Result, read
from probekit.runtime import Progress, no_progress, torch_threads
from probekit.studies.catalogue import FOLDERS, Kind
from probekit.studies.file import read_study
from probekit.studies.options import StudyOptions, WorkerOptions
from probekit.studies.plan import check_steps, study_steps
from probekit.studies.pools import Pool, dask_pool, local_pool
from probekit.studies.records import check_logs, state_of
from probekit.studies.runner import Outcome, run_steps
from probekit.studies.schema import Study
from probekit.studies.sections.tasks import BOARD
from probekit.studies.sources import Sources
from probekit.studies.steps import Step
from probekit.tasks.kept import keeping_tasks


def _is_study(path: Path) -> bool:
    found = json.loads(path.read_text(encoding="utf-8"))
    return is_sealed(path) or list(found) == ["title", "about", "steps"]  # as in version 0.2


STUDY_FILE = FileKind("what a study notes of itself", _is_study)
USED = 0.6
"""Speed of transformer training and inference, as a share of that of large matrix products."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The state of a step ("done", "again", "new"), and a rough estimate of its time."""

    word: str
    seconds: float


@dataclass(frozen=True)
class PlannedStudy:
    """A study, its folder and its steps, before anything is run."""

    study: Study
    folder: Path
    steps: tuple[Step, ...]
    allow_remote: bool = False

    def forecast(self) -> dict[str, Forecast]:
        """By step, its state and a rough estimate of its time, for steps that run one after another.

        Steps that have run before take as long again; the time of others is estimated from floating-point operations
        and the speed of this machine, within a factor of about two.
        """
        speed, states, found = USED * flops_per_second(), state_of(self.steps, self.folder), {}
        for step in self.steps:
            state = states[step.name]
            seconds = state.seconds or step.seconds + step.work / speed
            found[step.name] = Forecast(state.word, 0.0 if state.word == "done" else seconds)
        return found

    def reused(self) -> int:
        """The number of steps that are done already."""
        return sum(state.word == "done" for state in state_of(self.steps, self.folder).values())

    def __repr__(self) -> str:
        return f"<PlannedStudy {self.study.name}: {len(self.steps)} steps, in {self.folder}>"


@dataclass(frozen=True)
class StudyRun:
    """The outcome of a study.

    Attributes
    ----------
    folder : Path
        Folder with caches, runs, rows, tables, figures and ``report.html``.
    outcomes : tuple of Outcome
        One per step, in order.
    """

    folder: Path
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The steps that failed, or were skipped because another step failed."""
        return tuple(one for one in self.outcomes if one.state in ("failed", "skipped"))

    def __repr__(self) -> str:
        states = [one.state for one in self.outcomes]
        counts = ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states))
        return f"<StudyRun in {self.folder}: {counts}>"


@public(options=StudyOptions, workers=WorkerOptions)
def study(
    study: str | Path,
    /,
    *,
    out: Out | None = None,
    options: StudyOptions,
    workers: WorkerOptions,
    progress: Progress = no_progress,
) -> StudyRun:
    """Run the steps of a study: caches, training, analyses, tables, figures, the report.

    Each step is a call of a public function. Steps already done with the same data, weights and options are reused: run
    the same command again to resume after an interruption. If a step fails, only the steps that depend on it are
    skipped; on the command line, the exit status is 1 then.

    Parameters
    ----------
    study : path
        A study file (.toml), or the name of a study that comes with probekit (``probekit study list``).
    out : path, optional
        Folder of the study; by default studies/STUDY.
    options : StudyOptions
        ``model``, ``data_dir``, ``set_``, ``allow_remote``; each may be given as a keyword.
    workers : WorkerOptions
        ``jobs``, ``backend``, ``scheduler``; each may be given as a keyword.
    progress : callable
        Receives the number of steps that have ended.

    Returns
    -------
    StudyRun
        The outcome of each step. If a step fails, only the steps that need it are skipped.

    Raises
    ------
    DataError
        If the file is invalid; the message gives the file and the key.
    UsageError
        If a step cannot be run, before any step starts; and if another process runs the study.

    Examples
    --------
    >>> probekit.study("sanity-small", data_dir="data", model=("minilm=folder",))  # doctest: +SKIP

    On the command line::

        probekit study run figure1-small --data-dir data --plan
        probekit study run figure1-small --data-dir data --model all-MiniLM-L6-v2=minilm --set probe.0.limit=1000
        probekit study run mine.toml --jobs 2
        probekit study run table2-full --backend dask --scheduler tcp://head:8786
    """
    return run_study(plan_study(study, out, options), pool_of(workers), progress=progress)


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
    return board_of(run_study(plan_study(suite, out, options, "suite"), pool_of(workers), progress=progress))


def plan_study(
    file: str | Path, out: str | Path | None = None, options: StudyOptions | None = None, kind: Kind = "study"
) -> PlannedStudy:
    """A study or a suite and its steps, all checked before anything is run.

    Raises
    ------
    DataError, UsageError
        For errors in the file or the leaderboard, and for invalid arguments of a step; of a suite, also if no model can
        be read, or no task be analysed.
    """
    options = options or StudyOptions()
    models = _models(options.model)
    found = read_study(file, kind, models=models, changes=options.set_, allow_remote=options.allow_remote)
    if kind == "suite":
        Sources(None, {}, found.models).check_models()
    if found.against is not None:
        leaderboard(found.against)
    with keeping_tasks(uuid4().hex):
        steps = study_steps(found, options.data_dir)
    check_steps(found, steps)
    if kind == "suite" and not any(step.function == "scoreboard" for step in steps):
        errors = "; ".join(dict.fromkeys(step.error for step in steps if step.error))
        raise UsageError(f"nothing of the suite {found.name} can be done: {errors}")
    folder = Path(out) if out else Path(FOLDERS[kind]) / slug(found.name)
    return PlannedStudy(found, folder, tuple(steps), options.allow_remote)


def board_of(done: StudyRun) -> Result:
    """The scoreboard of a suite; raises UsageError if there is none."""
    failed = next((one for one in done.outcomes if one.step.function == "scoreboard" and one in done.failed), None)
    if failed is not None:
        first = done.failed[0]
        raise UsageError(f"the suite has no scoreboard: {first.step.name}: {first.message.rstrip('.')}.")
    return read(done.folder / BOARD)


def run_study(
    planned: PlannedStudy,
    pool: Pool,
    *,
    begin: Callable[[Step], None] = lambda _: None,
    tell: Callable[[Outcome], None] = lambda _: None,
    progress: Progress = no_progress,
) -> StudyRun:
    """Run the missing steps of a study in its folder; see :func:`probekit.studies.runner.run_steps`.

    Writes title, description and steps, which the report shows, to ``study.json``.

    Raises
    ------
    UsageError
        If another process runs the study.
    """
    out, study, ended = planned.folder, planned.study, count(1)

    def told(outcome: Outcome) -> None:
        progress("steps", next(ended), len(planned.steps))
        tell(outcome)

    with open_study(out):
        steps = [{"step": step.name} | ({"error": step.error} if step.error else {}) for step in planned.steps]
        content = {"title": study.title, "about": study.about, "steps": steps, "probekit": MARK}
        write(out / "study.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n", STUDY_FILE)
        check_logs(out, planned.steps)
        for folder in {out / "steps", *((out / leaf).parent for step in planned.steps for leaf in step.leaves)}:
            remove_unfinished(folder, lambda _: True)
        remote = planned.allow_remote
        return StudyRun(out, tuple(run_steps(planned.steps, out, pool, allow_remote=remote, begin=begin, tell=told)))


def pool_of(workers: WorkerOptions) -> Pool:
    """The pool in which the steps run."""
    return dask_pool(str(workers.scheduler)) if workers.backend == "dask" else local_pool(workers.jobs)


def _models(given: Iterable[str]) -> dict[str, str]:
    """The models of ``--model`` by name; UsageError if two have one name."""
    found: dict[str, str] = {}
    for name, where in map(split_model, given):
        if found.setdefault(name, where) != where:
            raise UsageError(f"{found[name]} and {where} are both called {name}; name them: --model NAME={where}.")
    return found


def split_model(text: str) -> tuple[str, str]:
    """Split NAME=MODEL; MODEL without a name keeps its name."""
    from probekit.models.identity import model_name

    name, equals, where = text.partition("=")
    return (name, where) if equals else (model_name(text), text)


@contextmanager
def open_study(out: Path) -> Iterator[None]:
    """Lock the folder of a study; raises UsageError if another process runs it."""
    out.mkdir(parents=True, exist_ok=True)
    busy = UsageError(f"another process runs the study in {out}; wait for it, or give another --out.")
    with lock(out / ".lock", busy):
        yield


def flops_per_second() -> float:
    """Floating-point operations per second of large float32 products with torch on this machine.

    On a CPU from the computing time of one thread, which other processes hardly change, times the number of threads.
    """
    import torch

    cuda = torch.cuda.is_available()
    clock, device = (monotonic, "cuda") if cuda else (thread_time, "cpu")
    a = torch.randn(512, 512, device=device)
    times = []
    with torch_threads(1) as threads:
        for _ in range(50):
            began = clock()
            (a @ a)[0, 0].item()
            times.append(clock() - began)
    return (1 if cuda else threads) * 2 * 512**3 / max(min(times), 1e-9)
