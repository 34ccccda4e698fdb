"""``probekit search``: hyper-parameters by Optuna, tuned on dev; the best evaluated on test, with several seeds.

OUT/
  trials.db          Optuna's storage: the same call goes on from it (also read by optuna-dashboard)
  trials/7/          the run of a trial while it lasts
  trials.parquet     one row a trial: its options, state, dev metric, the metric after each epoch
  best.toml          the best options, as a space with nothing left to search
  best-7/seed-0/ …   the best, of trial 7, trained with each seed: runs as of ``probekit train``
  rows.parquet       their metrics on dev and test, and over the seeds mean and standard deviation
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import torch
from optuna.trial import FrozenTrial, TrialState

from probekit.adaptation.options import Hyperparameters, Regime, SearchOptions
from probekit.adaptation.runs.folder import locked_run
from probekit.adaptation.runs.run import Run
from probekit.adaptation.search.space import Space, read_space
from probekit.adaptation.train import train
from probekit.errors import NonFiniteError, ProbekitError, UsageError
from probekit.files import whole, write
from probekit.metrics import metric
from probekit.models.identity import identify
from probekit.recipe import Read, current, public
from probekit.rows import Result, make_rows, write_rows
from probekit.rows.card import make_card
from probekit.runtime import Progress, local_executor, no_progress
from probekit.tasks import load_task
from probekit.tasks.task import Task

__all__ = ["Search", "search"]

STUDY = "search"
STARTUP = 5
"""Trials that run to their end before any is pruned, as Optuna's median pruner has it."""


@dataclass(frozen=True, eq=False, repr=False)
class Search(Result):
    """A finished search: as rows the dev and test metrics of the best with each seed, and their means.

    The rows of the means have no seed, and own columns ``sd``, the standard deviation, and ``runs``, over how many.

    Attributes
    ----------
    path : Path
        Its folder.
    trials : DataFrame
        One row a trial: its options, state, dev metric, the metric after each epoch.
    options : mapping
        The options of the best.
    metric : str
        What it is the best by.
    """

    trials: pd.DataFrame = field(default_factory=pd.DataFrame)
    options: Mapping[str, Any] = field(default_factory=dict)
    metric: str = ""


@public(options=SearchOptions)
def search(
    space: str | Path | Space,
    /,
    *,
    out: str | Path | None = None,
    options: SearchOptions,
    progress: Progress = no_progress,
) -> Search:
    """Try settings, keep the best on dev, train it with several seeds, and evaluate those on test, once each.

    Where the options are all lists, and no more settings than trials, each setting is tried once; otherwise Optuna's
    tree-structured Parzen estimator draws them. The same call goes on with an interrupted search, in the midst of its
    trials, and with one worker ends as it would have; a finished one returns at once; more ``trials`` are added.

    Parameters
    ----------
    space : path, str or Space
        A TOML file, or the name of a space that comes with probekit: "paper/fine-tune" ….
    out : path, optional
        Folder of the search; ``searches/SPACE`` for None.
    options : SearchOptions
        ``task``, ``model``, ``trials``, ``seeds``, ``workers`` …; they may be given one by one.
    progress : callable
        Told how far the work is.

    Returns
    -------
    Search
        The trials, the best options, and their metrics.

    Raises
    ------
    UsageError
        Another search is in ``out``, there is no such split, no trial came to an end; and what :func:`probekit.train`
        raises of settings that fit neither task nor model.

    Examples
    --------
    >>> probekit.search("paper/fine-tune", task="mrpc", model="bert-base-uncased", workers=2)  # doctest: +SKIP
    """
    place = Path("searches") / ("space" if isinstance(space, Space) else Path(space).stem) if out is None else Path(out)
    recipe = current()
    asked = space if isinstance(space, Space) else read_space(space, options.instead())
    task = load_task(asked.task, data_dir=asked.data_dir)
    main = metric(task.metrics[0])
    identity = _identity(asked, task)
    work = _Work(asked, place, options.workers, options.device, progress)
    with locked_run(place), _quiet():
        study = _study(asked, place, identity, higher_is_better=main.better == "higher")
        with _pool(work.workers, work.device) as pool:
            _run_trials(study, work, pool)
            best = _best(study)
            table = _table(study, asked)
            with whole(place / "trials.parquet") as new:
                table.to_parquet(new)
            write(place / "best.toml", _best_toml(asked, best, main.name))
            runs = _run_best(work, best, pool)
        shutil.rmtree(place / "trials", ignore_errors=True)
        rows = _rows(runs, task, asked)
        reads = _reads(identity, asked)
        card = {} if recipe is None else make_card(recipe, reads, {})
        write_rows(rows, place / "rows.parquet", card)
    return Search(rows, reads=reads, path=place, trials=table, options={**asked.fixed, **best.params}, metric=main.name)


@dataclass(frozen=True, slots=True)
class _Work:
    """A search on its way: what is searched, where it is kept, and on what it runs."""

    space: Space
    out: Path
    workers: int
    device: str
    progress: Progress

    def trial(self, number: int) -> Path:
        """The folder of a trial's run while it lasts."""
        return self.out / "trials" / str(number)


def _identity(space: Space, task: Task) -> dict[str, Any]:
    """What determines the trials' numbers."""
    own = space.model_dump(mode="json", exclude={"trials", "seeds", "data_dir", "model"})
    splits = [task.split(name) for name in (space.train, space.dev, *([space.test] if space.test else []))]
    instead = 'name another split to evaluate the best on, or none (test = "").'
    if space.test in (space.train, space.dev):
        raise UsageError(f"the best would be evaluated on {space.test}, which it is chosen by; {instead}")
    if space.test and not _labelled(task, space.test):
        raise UsageError(f"{task.name} {space.test} has no labels; {instead}")
    return own | {"data": [part.digest() for part in splits], "model": identify(space.model, revision=space.revision)}


def _reads(identity: Mapping[str, Any], space: Space) -> tuple[Read, ...]:
    """What the search was made of: the examples of each split, and the pretrained model."""
    splits = zip((space.train, space.dev, space.test), identity["data"], strict=False)
    data = [Read(space.task, "data", digest, {"split": split}) for split, digest in splits]
    return (*data, Read(space.model, "model", str(identity["model"].get("weights_digest") or "")))


def _labelled(task: Task, split: str) -> bool:
    labels = task.labels(split)
    return not bool((np.isnan(labels) if labels.dtype.kind == "f" else labels < 0).all())


# the study ------------------------------------------------------------------------------------------------------------


def _study(space: Space, out: Path, identity: Mapping[str, Any], *, higher_is_better: bool) -> optuna.Study:
    """The study in ``out``, begun or gone on with."""
    study = optuna.create_study(
        study_name=STUDY,
        storage=_storage(out),
        direction="maximize" if higher_is_better else "minimize",
        load_if_exists=True,
    )
    wanted = json.loads(json.dumps(identity))
    there = study.user_attrs.get("identity", wanted)
    if different := [key for key in wanted if there.get(key) != wanted[key]]:
        key = different[0]
        raise UsageError(
            f"{out} holds another search: {key} is {there.get(key)!r}, asked for {wanted[key]!r}. Give another --out."
        )
    study.set_user_attr("identity", wanted)
    for combination in space.combinations() or []:
        study.enqueue_trial(combination, skip_if_exists=True)
    return study


def _storage(out: Path) -> optuna.storages.BaseStorage:
    path = out.resolve() / "trials.db"
    return optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": 60}})


def _next_trial(study: optuna.Study, space: Space) -> FrozenTrial | None:
    """A new trial with its options drawn, or None when there are enough."""
    number = sum(trial.state != TrialState.WAITING for trial in study.get_trials(deepcopy=False))
    if number >= min(space.trials, len(space.combinations() or range(space.trials))):
        return None
    # a sampler of its own for each trial, so that an interrupted search draws what an uninterrupted one would have
    seed = int(np.random.SeedSequence([space.seed, number]).generate_state(1)[0])
    study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    trial = study.ask(space.distributions)
    return study.get_trials(deepcopy=False)[trial.number]


def _run_trials(study: optuna.Study, work: _Work, pool: Executor) -> None:
    """Train until there are enough trials; first those that an interrupted search had begun."""
    begun = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    pending: dict[Future[tuple[TrialState, float | None]], FrozenTrial] = {}
    while True:
        done = len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)))
        work.progress("trials", done, work.space.trials)
        while len(pending) < work.workers and (trial := begun.pop(0) if begun else _next_trial(study, work.space)):
            own = (work.space, work.trial(trial.number), trial._trial_id, trial.number, trial.params, work.device)
            pending[pool.submit(_trial, work.out, *own)] = trial
        if not pending:
            return
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            trial = pending.pop(future)
            state, value = future.result()
            study.tell(trial.number, value, state)
            shutil.rmtree(work.trial(trial.number), ignore_errors=True)


def _best(study: optuna.Study) -> FrozenTrial:
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        told = [trial.user_attrs.get("error") for trial in study.get_trials(deepcopy=False)]
        raise UsageError(
            f"none of {len(told)} trials ended with a number: {next(filter(None, told), 'all were pruned')} "
            "Change the space and give another --out."
        )
    return study.best_trial


# one trial, in this process or another --------------------------------------------------------------------------------


def _trial(
    search: Path, space: Space, out: Path, trial_id: int, number: int, params: dict[str, Any], device: str
) -> tuple[TrialState, float | None]:
    """Train with ``params``; how the trial ended, and its dev metric."""
    pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP) if space.prune else optuna.pruners.NopPruner()
    with _quiet():
        study = optuna.load_study(study_name=STUDY, storage=_storage(search), pruner=pruner)
        trial = optuna.Trial(study, trial_id)
        epochs = Hyperparameters(regime=Regime(space.regime), **space.fixed | params).epochs
        name = metric(load_task(space.task, data_dir=space.data_dir).metrics[0]).name
        told = set(study.get_trials(deepcopy=False)[number].intermediate_values)

        def watch(epoch: int, metrics: Mapping[str, float]) -> None:
            if epoch not in told:
                trial.report(metrics[name], epoch)
            if epoch != epochs and trial.should_prune():
                raise optuna.TrialPruned

        try:
            if told and max(told) != epochs and trial.should_prune():  # as an interrupted search was about to
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
    """The run of these options in ``out``; more : arguments of ``train`` that are the same for no two runs."""
    return train(
        space.task, space.model, out, regime=space.regime, data_dir=space.data_dir, train=space.train, dev=space.dev,
        limit=space.limit, revision=space.revision, max_length=space.max_length, **space.fixed | dict(params) | more,
    )  # fmt: skip


# the best -------------------------------------------------------------------------------------------------------------


def _run_best(work: _Work, best: FrozenTrial, pool: Executor) -> list[Run]:
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


def _rows(runs: list[Run], task: Task, space: Space) -> pd.DataFrame:
    """Metrics of the weights that each run kept, and over the runs their mean and standard deviation (n - 1)."""
    rows = pd.concat([run.rows for run in runs], ignore_index=True).assign(analysis="search")
    kept = rows[
        rows["kept"].astype(bool) & rows["split"].isin([space.dev, space.test]) & rows["metric"].isin(task.metrics)
    ]
    means = kept.groupby(["split", "metric"], sort=False, as_index=False).first()
    values = kept.groupby(["split", "metric"], sort=False)["value"]
    means = means.assign(
        value=values.mean().to_numpy(), sd=values.std(ddof=1).to_numpy(), runs=len(runs), checkpoint="", seed=None,
        step=None, epoch=None,
    )  # fmt: skip
    return make_rows(pd.concat([kept.astype(object), means.astype(object)], ignore_index=True))


def _table(study: optuna.Study, space: Space) -> pd.DataFrame:
    states = (TrialState.COMPLETE, TrialState.PRUNED)
    return pd.DataFrame(
        {
            "trial": trial.number,
            "state": trial.state.name.lower(),
            "value": trial.value,
            **space.fixed,
            **trial.params,
            "epochs_done": len(trial.intermediate_values),
            "by_epoch": [value for _, value in sorted(trial.intermediate_values.items())],
            "seconds": trial.duration.total_seconds() if trial.duration else None,
            "error": trial.user_attrs.get("error", ""),
        }
        for trial in study.get_trials(deepcopy=False, states=states)
    )


def _best_toml(space: Space, best: FrozenTrial, name: str) -> str:
    """The best options as a space; JSON's texts, numbers and truth values are TOML's, too."""
    own = space.model_dump(mode="json", exclude={"space", "trials"}, exclude_none=True)
    lines = [f"# {space.dev} {name} {best.value:.4f}: trial {best.number} of the search", "trials = 1"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in own.items()]
    lines += ["", "[space]", *(f"{k} = {json.dumps(v)}" for k, v in sorted((space.fixed | best.params).items()))]
    return "\n".join(lines) + "\n"


# processes ------------------------------------------------------------------------------------------------------------


class _Here(Executor):
    """Runs what it is given at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def _pool(workers: int, device: str = "auto") -> Iterator[Executor]:
    if workers == 1:
        yield _Here()
        return
    gpus = _gpus() if device in ("auto", "cuda") else []
    try:
        with local_executor(workers, threads=max(1, torch.get_num_threads() // workers), gpus=gpus) as pool:
            yield pool
    except BrokenProcessPool as error:
        raise ProbekitError(
            "a worker died, perhaps for lack of memory. Run the command again to go on, with fewer --workers."
        ) from error


def _gpus() -> list[str]:
    """The GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return (named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())])[
        : torch.cuda.device_count()
    ]


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna tells every trial on standard error."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
