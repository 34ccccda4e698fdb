"""``probekit search``: hyperparameter search with Optuna on dev; the best is evaluated on test, with several seeds.

OUT/
  trials.db          Optuna's storage, from which the same call resumes (optuna-dashboard reads it, too)
  trials/7/          the run of a trial while it is unfinished
  trials.parquet     one row per trial: its options, state, dev metric, the metric after each epoch
  best.toml          the best options, as a space with nothing left to search
  best-7/seed-0/ …   the best setting, of trial 7, trained with each seed: runs as from ``probekit train``
  rows.parquet       their metrics on dev and test, with mean and standard deviation over the seeds
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import torch
from optuna.trial import FrozenTrial, TrialState

from probekit.adaptation.data.validation import VALIDATION, validation_share
from probekit.adaptation.options import SearchOptions
from probekit.adaptation.runs.folder import locked_run
from probekit.adaptation.runs.run import Run
from probekit.adaptation.runs.seeds import over_seeds
from probekit.adaptation.search.expected import expected_rows
from probekit.adaptation.search.space import Space, read_space
from probekit.adaptation.search.trials import Work, best_trial, local_pool, open_study, quiet, run_best, run_trials
from probekit.constraint import RunOut
from probekit.errors import UsageError
from probekit.files import MARK, FileKind, is_sealed, remove_unfinished, whole, write
from probekit.metrics import metric
from probekit.models.identity import identify
from probekit.public import public
from probekit.recipe import Read, current
from probekit.rows import Result, check_out, make_rows, write_rows
from probekit.rows.card import make_card
from probekit.runtime import Progress, no_progress
from probekit.tasks import load_task
from probekit.tasks.task import Task


def _is_table(path: Path) -> bool:
    from pyarrow.parquet import read_schema

    return {"trial", "state", "value", "epochs_done", "by_epoch"} <= set(read_schema(path).names)


TRIALS_FILE = FileKind("the table of a search's trials", _is_table)
FILES = ("trials.parquet", "best.toml", "rows.parquet", "rows.parquet.json")
BEST_FILE = FileKind("what a search wrote of its best options", is_sealed, "rename it, or give another --out")


@dataclass(frozen=True, eq=False, repr=False)
class Search(Result):
    """A finished search, with rows for the dev and test metrics of the best setting with each seed, and their means.

    Rows of means have no seed, and the additional columns ``sd`` (standard deviation) and ``runs`` (number of runs).
    Rows of the analysis "expected-performance" hold the expected dev metric of the best of n trials (Dodge et al.
    2019), with n in ``trials``; ``unbiased`` is the estimate of Tang et al. (2020).

    Attributes
    ----------
    path : Path
        Folder of the search.
    trials : DataFrame
        One row per trial: its options, state, dev metric, the metric after each epoch.
    options : mapping
        The options of the best setting.
    metric : str
        The metric that chose it.
    """

    trials: pd.DataFrame = field(default_factory=pd.DataFrame)
    options: Mapping[str, Any] = field(default_factory=dict)
    metric: str = ""


@public(options=SearchOptions)
def search(
    space: str | Path | Space, /, *, out: RunOut | None = None, options: SearchOptions, progress: Progress = no_progress
) -> Search:
    """Search hyperparameters on dev, then train the best with several seeds and evaluate it on test.

    A TOML file names task and model and, below [space], options of ``probekit train`` (there with hyphens, here with
    underscores). Each option has a list of choices, a range of numbers, or one value for all trials::

        task = "mrpc"
        model = "bert-base-uncased"
        regime = "fine-tune"            # or "feature-extraction"
        data_dir = "data/mrpc"          # without it, the Hugging Face hub
        trials = 20                     # settings to try
        seeds = 5                       # trainings of the best setting
        prune = true                    # stop trials that are worse than most

        [space]
        learning_rate = { low = 1e-5, high = 1e-4, log = true }
        epochs = { low = 2, high = 5 }
        batch_size = [16, 32]
        dropout = [0.0, 0.1, 0.2]
        schedule = ["linear", "slanted-triangular"]
        weight_decay = 0.01

    The folder holds trials.parquet, best.toml, rows.parquet and the runs of the best setting.

    If all options are lists, with no more combinations than trials, each setting is tried once; otherwise Optuna's
    tree-structured Parzen estimator draws them, or, with the sampler random, each independently. The same command again
    continues an interrupted search, even within a trial, and with one worker gives the same result as an uninterrupted
    search; a finished search returns immediately; a higher number of trials adds trials.

    Parameters
    ----------
    space : path, str or Space
        SPACE.toml, or a space that comes with probekit: paper/fine-tune, paper/fine-tune-layerwise,
        paper/feature-extraction.
    out : path, optional
        Folder of the search; searches/SPACE by default.
    options : SearchOptions
        ``task``, ``model``, ``trials``, ``seeds``, ``workers`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Search
        The trials, the best options, and their metrics.

    Raises
    ------
    UsageError
        If ``out`` holds another search, a split does not exist or no trial finished, and as from :func:`probekit.train`
        for settings that do not fit the task or the model.

    Examples
    --------
    >>> probekit.search("paper/fine-tune", task="mrpc", model="bert-base-uncased", workers=2)  # doctest: +SKIP

    On the command line::

        probekit search paper/fine-tune --task mrpc --model bert-base-uncased --out searches/mrpc --workers 2
        probekit search mine.toml --out searches/mine
    """
    place = Path("searches") / ("space" if isinstance(space, Space) else Path(space).stem) if out is None else Path(out)
    recipe = current()
    asked = space if isinstance(space, Space) else read_space(space, options.instead())
    task = load_task(asked.task, data_dir=asked.data_dir)
    share = validation_share(task, asked.dev, asked.validation)
    asked = asked if share is None else asked.model_copy(update={"validation": share, "dev": VALIDATION})
    main = metric(task.metrics[0])
    identity = _identity(asked, task)
    work = Work(asked, place, options.workers, options.device, progress)
    with locked_run(place), quiet():
        TRIALS_FILE.check(place / "trials.parquet")
        BEST_FILE.check(place / "best.toml")
        check_out(place / "rows.parquet")
        study = open_study(place, identity, higher_is_better=main.better == "higher")
        with local_pool(work.workers, work.device) as pool:
            run_trials(study, work, pool)
            best = best_trial(study)
            table = _table(study, asked)
            with whole(place / "trials.parquet", TRIALS_FILE) as new:
                table.to_parquet(new)
            write(place / "best.toml", _best_toml(asked, best, main.name), BEST_FILE)
            runs = run_best(work, best, pool)
        work.remove_trials()
        rows = _rows(runs, task, table, asked)
        reads = _reads(identity, asked)
        card = {} if recipe is None else make_card(recipe, reads, {}) | {"threads": torch.get_num_threads()}
        write_rows(rows, place / "rows.parquet", card)
        remove_unfinished(place, FILES.__contains__, held=True)
    return Search(rows, reads=reads, path=place, trials=table, options={**asked.fixed, **best.params}, metric=main.name)


def _identity(space: Space, task: Task) -> dict[str, Any]:
    """The values that determine the results of the trials."""
    drawn = space.limit is not None or space.validation is not None
    apart = set() if drawn else {"data_seed"}
    apart |= {"sampler"} if space.sampler == "tpe" else set()  # searches of before have none
    values = space.model_dump(mode="json", exclude={"trials", "seeds", "data_dir", "model", *apart})
    splits = [task.split(name) for name in _splits(space)]
    instead = 'give another split to evaluate the best setting on, or none (test = "").'
    if space.test in (space.train, space.dev):
        raise UsageError(f"the best setting would be evaluated on {space.test}, which also chooses it; {instead}")
    if space.dev.startswith("test"):
        raise UsageError(f"the options would be chosen on {space.dev}; leave out dev, or set validation = 0.1.")
    if space.test and not _labelled(task, space.test):
        raise UsageError(f"{task.name} {space.test} has no labels; {instead}")
    return values | {
        "data": [part.digest() for part in splits],
        "model": identify(space.model, revision=space.revision),
    }


def _reads(identity: Mapping[str, Any], space: Space) -> tuple[Read, ...]:
    """The inputs of the search: the examples of each split, and the pretrained model."""
    splits = zip(_splits(space), identity["data"], strict=True)
    data = [Read(space.task, "data", digest, {"split": split}) for split, digest in splits]
    return (*data, Read(space.model, "model", str(identity["model"].get("weights_digest") or "")))


def _splits(space: Space) -> list[str]:
    """The splits of the task that are read."""
    dev = [] if space.validation is not None else [space.dev]
    return [space.train, *dev, *([space.test] if space.test else [])]


def _labelled(task: Task, split: str) -> bool:
    labels = task.labels(split)
    return not bool((np.isnan(labels) if labels.dtype.kind == "f" else labels < 0).all())


def _rows(runs: list[Run], task: Task, trials: pd.DataFrame, space: Space) -> pd.DataFrame:
    """Metrics of the kept weights of each run, their means, and the expected performance by the number of trials."""
    rows = pd.concat([run.rows for run in runs], ignore_index=True).assign(analysis="search")
    found = over_seeds(rows, task.metrics, analysis="search")
    of_dev = found[found["split"].eq(space.dev) & found["metric"].eq(task.metrics[0]) & found["seed"].isna()]
    about = of_dev.iloc[0].drop(["runs", "p", "ci_low", "ci_high"]).to_dict()
    expected = make_rows(expected_rows(trials, about, drawn=space.drawn))
    return make_rows(pd.concat([found.astype(object), expected.astype(object)], ignore_index=True))


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
    """The best options as a space; JSON strings, numbers and booleans are valid TOML."""
    values = space.model_dump(mode="json", exclude={"space", "trials"}, exclude_none=True)
    lines = [f"# {space.dev} {name} {best.value:.4f}: trial {best.number} of the search", "trials = 1"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    lines += ["", "[space]", *(f"{k} = {json.dumps(v)}" for k, v in sorted((space.fixed | best.params).items()))]
    return "\n".join([*lines, "", f"# {MARK}"]) + "\n"
