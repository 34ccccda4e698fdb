"""Studies: from a file to all of its numbers, tables, figures and the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from probekit.errors import UsageError
from probekit.files import MARK, FileKind, is_sealed, lock, slug, write
from probekit.public import public
from probekit.runtime import Progress, no_progress
from probekit.studies.file import Study, read_study
from probekit.studies.options import StudyOptions, WorkerOptions
from probekit.studies.plan import check_steps, study_steps
from probekit.studies.pools import Pool, dask_pool, local_pool
from probekit.studies.records import check_logs, state_of
from probekit.studies.runner import Outcome, run_steps
from probekit.studies.steps import Step

__all__ = ["Forecast", "PlannedStudy", "StudyRun", "plan_study", "pool_of", "run_study", "study"]


def _is_study(path: Path) -> bool:
    told = json.loads(path.read_text(encoding="utf-8"))
    return is_sealed(path) or list(told) == ["title", "about", "steps"]  # as of version 0.2


STUDY_FILE = FileKind("what a study notes of itself", _is_study)
USED = 0.5
"""Of the speed of large products, what training and inference of transformers reach."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is to be done of a step ("done", "again", "new"), and how long it will take, roughly."""

    word: str
    seconds: float


@dataclass(frozen=True)
class PlannedStudy:
    """A study, its folder and its steps; nothing is done yet."""

    study: Study
    folder: Path
    steps: tuple[Step, ...]

    def forecast(self) -> dict[str, Forecast]:
        """By step what is to be done and how long it takes, roughly, one after another.

        What was done before takes as long as it did; the rest is told from its floating-point operations and the speed
        of this machine, within a factor of two or so.
        """
        speed, states, found = USED * flops_per_second(), state_of(self.steps, self.folder), {}
        for step in self.steps:
            state = states[step.name]
            own = state.seconds or step.seconds + step.work / speed
            found[step.name] = Forecast(state.word, 0.0 if state.word == "done" else own)
        return found

    def __repr__(self) -> str:
        return f"<PlannedStudy {self.study.name}: {len(self.steps)} steps, in {self.folder}>"


@dataclass(frozen=True)
class StudyRun:
    """How a study ended.

    Attributes
    ----------
    folder : Path
        With caches, runs, rows, tables, figures and ``report.html``.
    outcomes : tuple of Outcome
        Of each step, in their order.
    """

    folder: Path
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """What failed, or was skipped because another step had."""
        return tuple(one for one in self.outcomes if one.state in ("failed", "skipped"))

    def __repr__(self) -> str:
        states = [one.state for one in self.outcomes]
        told = ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states))
        return f"<StudyRun in {self.folder}: {told}>"


@public(options=StudyOptions, workers=WorkerOptions)
def study(
    study: str | Path,
    /,
    *,
    out: str | Path | None = None,
    options: StudyOptions,
    workers: WorkerOptions,
    progress: Progress = no_progress,
) -> StudyRun:
    """Do all that a study asks for, and is not there yet: caches, training, analyses, tables, figures, the report.

    Parameters
    ----------
    study : path
        A TOML file, or the name of a study that comes with probekit.
    out : path, optional
        Folder of the study; ``studies/NAME`` without it.
    options : StudyOptions
        ``model``, ``data_dir``, ``set_``; they may be given one by one.
    workers : WorkerOptions
        ``jobs``, ``backend``, ``scheduler``; they may be given one by one.
    progress : callable
        Told how many steps have ended.

    Returns
    -------
    StudyRun
        How each step ended. A step that fails stops those alone that need it.

    Raises
    ------
    DataError
        Naming the file and the key that is wrong.
    UsageError
        For what cannot be run, before anything is; and where another process runs the study.

    Examples
    --------
    >>> probekit.study("sanity-small", data_dir="data", model=("minilm=folder",))  # doctest: +SKIP
    """
    planned = plan_study(study, out, options)
    ended = 0

    def tell(_: Outcome) -> None:
        nonlocal ended
        ended += 1
        progress("steps", ended, len(planned.steps))

    return run_study(planned, pool_of(workers), tell=tell)


def plan_study(study: str | Path, out: str | Path | None = None, options: StudyOptions | None = None) -> PlannedStudy:
    """A study and its steps, each checked before anything is run.

    Raises
    ------
    DataError, UsageError
        For what is wrong in the file, and for a step that its function would not take.
    """
    options = options or StudyOptions()
    asked = read_study(study, models=dict(map(_named, options.model)), changes=options.set_)
    steps = study_steps(asked, options.data_dir)
    check_steps(asked, steps)
    return PlannedStudy(asked, Path(out) if out else Path("studies") / slug(asked.name), tuple(steps))


def run_study(
    planned: PlannedStudy,
    pool: Pool,
    *,
    begin: Callable[[Step], None] = lambda _: None,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> StudyRun:
    """Do what is missing of a study in its folder; see :func:`probekit.studies.runner.run_steps`.

    Leaves in ``study.json`` what the report says of it: title, what it is about, and all its steps, in their order.

    Raises
    ------
    UsageError
        Where another process does.
    """
    out, asked = planned.folder, planned.study
    with open_study(out):
        named = [{"step": step.name} | ({"error": step.error} if step.error else {}) for step in planned.steps]
        told = {"title": asked.title, "about": asked.about, "steps": named, "probekit": MARK}
        write(out / "study.json", json.dumps(told, indent=1, ensure_ascii=False) + "\n", STUDY_FILE)
        check_logs(out, planned.steps)
        return StudyRun(out, tuple(run_steps(planned.steps, out, pool, begin=begin, tell=tell)))


def pool_of(workers: WorkerOptions) -> Pool:
    """Where the steps run."""
    return dask_pool(str(workers.scheduler)) if workers.backend == "dask" else local_pool(workers.jobs)


def _named(word: str) -> tuple[str, str]:
    """NAME=MODEL, or MODEL under its own name."""
    from probekit.models.identity import model_name

    name, equals, where = word.partition("=")
    return (name, where) if equals else (model_name(word), word)


@contextmanager
def open_study(out: Path) -> Iterator[None]:
    """Hold the folder of a study; raises UsageError where another process runs it."""
    out.mkdir(parents=True, exist_ok=True)
    busy = UsageError(f"another process runs the study in {out}; wait for it, or give another --out.")
    with lock(out / ".lock", busy):
        yield


def flops_per_second() -> float:
    """Floating-point operations a second of large float32 products here, as torch does them."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.randn(1024, 1024, device=device)
    times = []
    for _ in range(20):
        began = monotonic()
        (a @ a)[0, 0].item()
        times.append(monotonic() - began)
    return 2 * 1024**3 / min(times)  # other processes only ever slow it down
