"""The trials of a search and the runs of its best setting, in this process or in workers, with resuming."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from optuna.trial import FrozenTrial, TrialState

from probekit.adaptation.options import Hyperparameters, Regime
from probekit.adaptation.runs.folder import remove_run
from probekit.adaptation.runs.run import Run
from probekit.adaptation.search.space import Space
from probekit.adaptation.train import train
from probekit.errors import DataError, NonFiniteError, ProbekitError, UsageError, first_line
from probekit.metrics import metric
from probekit.runtime import Progress, local_executor
from probekit.tasks import load_task

STUDY = "search"
STARTUP = 5
"""Trials that run to the end before any is pruned, as in Optuna's median pruner."""


@dataclass(frozen=True, slots=True)
class Work:
    """A running search: its space, folder, workers and device."""

    space: Space
    out: Path
    workers: int
    device: str
    progress: Progress

    def trial(self, number: int) -> Path:
        """The folder of a trial's run while it is unfinished."""
        return self.out / "trials" / str(number)

    def remove_trials(self) -> None:
        """Remove only the runs of trials that have ended."""
        folder = self.out / "trials"
        for run in folder.iterdir() if folder.is_dir() else ():
            if run.name.isdecimal():
                remove_run(run)
        with suppress(OSError):  # it holds other files
            folder.rmdir()


def open_study(out: Path, identity: Mapping[str, Any], *, higher_is_better: bool) -> optuna.Study:
    """The study in ``out``, new or resumed."""
    _check_storage(out / "trials.db")
    try:
        study = optuna.create_study(
            study_name=STUDY,
            storage=_storage(out),
            direction="maximize" if higher_is_better else "minimize",
            load_if_exists=True,
        )
        stored, trials = study.user_attrs.get("identity"), study.get_trials(deepcopy=False)
    except Exception as error:  # of SQLite, SQLAlchemy, alembic, or of Optuna's own reading
        cause = getattr(error, "orig", None)  # SQLite's own, of SQLAlchemy's
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in TEMPORARY:
            raise UsageError(f"{out / 'trials.db'}: {cause}. Run it again; the trials are kept.") from error
        instead = "Move the file elsewhere to begin again, or give another --out."
        raise DataError(
            f"the trials cannot be read ({first_line(error)}). {instead}", file=out / "trials.db"
        ) from error
    current = json.loads(json.dumps(identity))
    if stored is None and trials:
        raise UsageError(f"{out} holds trials that do not say of which search they are. Give another --out.")
    stored = stored or current
    if different := [key for key in current if stored.get(key) != current[key]]:
        key = different[0]
        raise UsageError(
            f"{out} holds another search: {key} is {stored.get(key)!r} there, but {current[key]!r} here. "
            "Give another --out."
        )
    study.set_user_attr("identity", current)
    return study


TEMPORARY = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
)
"""Errors of SQLite that say nothing of the file."""


def _check_storage(path: Path) -> None:
    """Raise UsageError if SQLite's file is of something else; after a kill, when it has a journal, it is Optuna's.

    SQLite would make the file to which a link leads.
    """
    if path.is_symlink() and not path.exists():
        raise UsageError(
            f"{path} is a link to {path.readlink()}, which does not exist. Remove it, or give another --out."
        )
    if not path.is_file() or path.with_name(f"{path.name}-journal").exists():
        return
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)) as there:
        tables = {name for (name,) in there.execute("select name from sqlite_master where type = 'table'")}
        if tables and "studies" not in tables:
            raise UsageError(f"{path} is a database of something else; give another --out.")


def _storage(out: Path) -> optuna.storages.BaseStorage:
    path = out.resolve() / "trials.db"
    return optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": 60}})


def _next_trial(study: optuna.Study, space: Space) -> FrozenTrial | None:
    """A new trial, or None if there are enough. One transaction stores it with all its options."""
    number = len(study.get_trials(deepcopy=False))
    if number >= min(space.trials, len(space.combinations() or range(space.trials))):
        return None
    options = _options(study, space, number)
    study.add_trial(
        optuna.trial.create_trial(state=TrialState.RUNNING, params=options, distributions=space.distributions)
    )
    return study.get_trials(deepcopy=False)[number]


def _options(study: optuna.Study, space: Space, number: int) -> dict[str, Any]:
    """The options of a trial, which are the same if the search is interrupted before they are stored."""
    if combinations := space.combinations():
        return combinations[number]
    seed = int(np.random.SeedSequence([space.seed, number]).generate_state(1)[0])
    sampler = (
        optuna.samplers.RandomSampler(seed=seed)
        if space.sampler == "random"
        else optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    )  # one per trial
    copy = optuna.create_study(
        direction=study.direction, sampler=sampler
    )  # in memory, because ``ask`` stores what it draws
    copy.add_trials(trial for trial in study.get_trials(deepcopy=False) if trial.number < number)
    return dict(copy.ask(space.distributions).params)


def _begun(study: optuna.Study, space: Space) -> list[FrozenTrial]:
    """The unfinished trials of an interrupted search, each with all its options.

    Earlier versions stored a trial before its options, and lists of settings before their trials.
    """
    storage = study._storage
    for trial in study.get_trials(deepcopy=False, states=(TrialState.WAITING, TrialState.RUNNING)):
        if trial.state is TrialState.WAITING:
            storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
        missing = {name: one for name, one in space.distributions.items() if name not in trial.params}
        options = _options(study, space, trial.number) if missing else {}
        for name, one in missing.items():
            storage.set_trial_param(trial._trial_id, name, one.to_internal_repr(options[name]), one)
    return study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


def run_trials(study: optuna.Study, work: Work, pool: Executor) -> None:
    """Train until there are enough trials, starting with those that an interrupted search began."""
    begun = _begun(study, work.space)
    pending: dict[Future[tuple[TrialState, float | None]], FrozenTrial] = {}
    while True:
        done = len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)))
        work.progress("trials", done, work.space.trials)
        while len(pending) < work.workers and (trial := begun.pop(0) if begun else _next_trial(study, work.space)):
            arguments = (work.space, work.trial(trial.number), trial._trial_id, trial.number, trial.params, work.device)
            pending[pool.submit(_trial, work.out, *arguments)] = trial
        if not pending:
            return
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            trial = pending.pop(future)
            state, value = future.result()
            study.tell(trial.number, value, state)
            remove_run(work.trial(trial.number))


def best_trial(study: optuna.Study) -> FrozenTrial:
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        errors = [trial.user_attrs.get("error") for trial in study.get_trials(deepcopy=False)]
        raise UsageError(
            f"none of {len(errors)} trials has a finite metric: {next(filter(None, errors), 'all were pruned.')} "
            "Change the space and give another --out."
        )
    return study.best_trial


def _trial(
    search: Path, space: Space, out: Path, trial_id: int, number: int, params: dict[str, Any], device: str
) -> tuple[TrialState, float | None]:
    """Train with ``params``; returns the final state of the trial and its dev metric."""
    pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP) if space.prune else optuna.pruners.NopPruner()
    with quiet():
        study = optuna.load_study(study_name=STUDY, storage=_storage(search), pruner=pruner)
        trial = optuna.Trial(study, trial_id)
        epochs = Hyperparameters(regime=Regime(space.regime), **space.fixed | params).epochs
        name = metric(load_task(space.task, data_dir=space.data_dir).metrics[0]).name
        reported = set(study.get_trials(deepcopy=False)[number].intermediate_values)

        def watch(epoch: int, metrics: Mapping[str, float]) -> None:
            if epoch not in reported:
                trial.report(metrics[name], epoch)
            if epoch != epochs and trial.should_prune():
                raise optuna.TrialPruned

        try:
            if reported and max(reported) != epochs and trial.should_prune():  # as an interrupted search would have
                raise optuna.TrialPruned
            run = _train(space, params, out, watcher=watch, seed=space.seed, device=device)
        except optuna.TrialPruned:
            return TrialState.PRUNED, None
        except NonFiniteError as error:
            trial.set_user_attr("error", str(error))
            return TrialState.PRUNED, None
        value = run.metrics[name]
        if not np.isfinite(value):
            trial.set_user_attr("error", f"{name} is undefined on {space.dev}.")
            return TrialState.PRUNED, None
        return TrialState.COMPLETE, value


def _train(space: Space, params: Mapping[str, Any], out: Path, **more: Any) -> Run:
    """Train with these options in ``out``; more : arguments of ``train`` that differ between runs."""
    return train(
        space.task, space.model, out, regime=space.regime, data_dir=space.data_dir, train=space.train, dev=space.dev,
        limit=space.limit, validation=space.validation, data_seed=space.data_seed, revision=space.revision,
        max_length=space.max_length, **space.fixed | dict(params) | more,
    )  # fmt: skip


def run_best(work: Work, best: FrozenTrial, pool: Executor) -> list[Run]:
    space, folder = work.space, work.out / f"best-{best.number}"
    seeds = range(space.seed, space.seed + space.seeds)
    futures = [pool.submit(_one_of_best, space, best.params, folder / f"seed-{s}", s, work.device) for s in seeds]
    runs = []
    for done, future in enumerate(futures, start=1):
        runs.append(future.result())
        work.progress("seeds", done, space.seeds)
    return runs


def _one_of_best(space: Space, params: dict[str, Any], out: Path, seed: int, device: str) -> Run:
    name = "-".join(out.resolve().parts[-3:])  # "mrpc-best-7-seed-0"; other searches, too, have a seed-0
    return _train(space, params, out, test=space.test or None, run_name=name, seed=seed, device=device)


class _Here(Executor):
    """An executor that runs calls immediately in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def local_pool(workers: int, device: str = "auto") -> Iterator[Executor]:
    if workers == 1:
        yield _Here()
        return
    gpus = _gpus() if device in ("auto", "cuda") else []
    try:
        with local_executor(workers, threads=max(1, torch.get_num_threads() // workers), gpus=gpus) as pool:
            yield pool
    except BrokenProcessPool as error:
        raise ProbekitError(
            "a worker died, perhaps for lack of memory. Run the command again with fewer --workers to resume."
        ) from error


def _gpus() -> list[str]:
    """The GPUs visible to this process, in the format of CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return (visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())])[
        : torch.cuda.device_count()
    ]


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Optuna's message for each trial on standard error."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
