"""``probekit train``: from a task and a model to a run: the weights, the card, the metrics along the way."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.activations import ActivationCache, cache_activations
from probekit.adaptation.data.batches import Data
from probekit.adaptation.data.cached import PooledData, TokenData
from probekit.adaptation.options import HeadOptions, Regime, TrainOptions, options_of
from probekit.adaptation.runs.evaluation import restore
from probekit.adaptation.runs.folder import ROWS, begin, kept, locked_run, publish, read_card, save_folder, write_card
from probekit.adaptation.runs.predictions import say
from probekit.adaptation.runs.rows import rows_of
from probekit.adaptation.training.feature_extraction import MODEL, cache_wanted, prepare_feature_extraction
from probekit.adaptation.training.fine_tuning import prepare_fine_tuning
from probekit.adaptation.training.objective import Target, check_labels, scorer
from probekit.adaptation.training.parts import Parts
from probekit.adaptation.training.trainer import Watcher, fit, own_randomness
from probekit.errors import NonFiniteError, UsageError
from probekit.files import slug
from probekit.metrics import metric
from probekit.models.find import resolve_model
from probekit.models.folder import model_type
from probekit.models.identity import RUN_FORMAT, identify
from probekit.rows import evidence, read_rows, write_rows
from probekit.runtime import Dtype, Progress, no_progress, processes, resolve_device
from probekit.tasks import load_task
from probekit.tasks.task import Kind, Task

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run", "train", "train_on_caches"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    path : its folder; card : what stands in its probekit.json; rows : metrics along training, as rows
    """

    path: Path
    card: dict[str, Any]
    rows: pd.DataFrame

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics and loss on dev of the weights that were kept."""
        return dict(self.card["metrics"])

    @property
    def test(self) -> dict[str, float] | None:
        """The same on the test split, where that was asked for."""
        return self.card["test"]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for, beside data and model."""

    regime: Regime
    head: HeadOptions
    options: TrainOptions
    splits: tuple[str, str, str | None]
    device: str
    report_to: str
    overwrite: bool
    watcher: Watcher | None
    progress: Progress
    run_name: str | None
    source: Mapping[str, str | None] | None = None  # where the task, and a frozen model, are found again

    def identity(self) -> dict[str, Any]:
        """What determines the numbers."""
        return {"regime": self.regime, **asdict(self.head), **asdict(self.options), "splits": self.splits}


def train(
    task: str | Path | Task,
    model: str | Path,
    out: str | Path,
    *,
    regime: str = "fine-tune",
    data_dir: str | Path | None = None,
    splits: tuple[str, str] = ("train", "dev"),
    test: str | None = None,
    limit: int | None = None,
    revision: str | None = None,
    random_weights: int | None = None,
    max_length: int | None = None,
    model_name: str | None = None,
    run_name: str | None = None,
    caches: str | Path | None = None,
    layers: Sequence[int | str] | None = None,
    device: str = "auto",
    report_to: str = "none",
    overwrite: bool = False,
    watcher: Watcher | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> Run:
    """Fine-tune a model on a task, or train a task model on its frozen, cached layers.

    The same call again returns a finished run at once, and takes an interrupted one up after its last whole epoch; it
    then ends with the numbers of an uninterrupted one.

    task, data_dir, splits : what is learned, and the splits to learn from and to evaluate on
    test : evaluate the weights that are kept on this split, too; limit : learn from the first examples only
    model, revision, random_weights, max_length : the encoder, as ``load_encoder`` takes them
    model_name : its name in tables; the hub id or the folder's name for None. To that of a checkpoint of another run
        its run and step are added: "bert@cola-step-4"
    regime : "fine-tune" or "feature-extraction"
    run_name : the run's name in tables, its rows' ``checkpoint``; the name of its folder for None
    caches : folder for feature extraction's caches (data_cache/ for None); layers : those of them that are mixed, all
        for None, or where they differ in width (Skip-thoughts) the widest
    report_to : "tensorboard", "wandb" … (comma-separated), as transformers names them
    watcher : told the metrics after each epoch
    options : the fields of :class:`HeadOptions` and :class:`TrainOptions`
    Raises UsageError, DataError, ModelError, NonFiniteError (the loss), CacheMismatch, CacheBusy.
    """
    chosen = _regime(regime)
    if splits[0] == splits[1]:
        raise UsageError(f"the split to evaluate on is {splits[1]!r}, which is what is learned from; choose another.")
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}; it must be 1 or more.")
    head, how = options_of(chosen, options)
    source = None if isinstance(task, Task) else _source(str(task), data_dir)
    task = task if isinstance(task, Task) else load_task(str(task), data_dir=data_dir)
    first, second = task.split(splits[0]).head(limit), task.split(splits[1])
    third = None if test is None else task.split(test)
    for part in (first, second, *([third] if third else [])):
        if not len(part):
            raise UsageError(f"{task.name} {part.name} has no examples; there is nothing to learn from.")
    asked = _Asked(
        chosen, head, how, (*splits, test), device, report_to, overwrite, watcher, progress, run_name, source
    )  # fmt: skip
    encoder: dict[str, Any] = {"revision": revision, "random_weights": random_weights}
    limits: dict[str, Any] = {"max_length": max_length, "model_name": model_name}
    if chosen is Regime.FINE_TUNE:
        if caches is not None or layers is not None:
            raise UsageError("caches and layers are for feature extraction; fine-tuning runs the encoder itself.")
        data = {"task": task.name, "data": [first.digest(), second.digest()], "max_length": max_length}
        identity = data | {"model": identify(model, **encoder, name=model_name)}
        return _run(
            lambda: prepare_fine_tuning(model, task, first, second, head, how, **encoder, **limits),
            lambda: third, Path(out), asked, identity,
        )  # fmt: skip
    wanted = cache_wanted(head, Target.of_task(task, splits[0]), model_type(resolve_model(model, revision)))
    with ExitStack() as stack:
        made = [
            stack.enter_context(
                cache_activations(
                    model, task, split, limit=limit if split == splits[0] else None, device=device, progress=progress,
                    out=None if caches is None else f"{caches}/",
                    **encoder, **limits, **wanted,
                )
            )
            for split in (*splits, *([test] if test else []))
        ]  # fmt: skip
        return train_on_caches(
            made[0], made[1], out, test=made[2] if test else None, layers=layers, run_name=run_name, device=device,
            report_to=report_to, overwrite=overwrite, watcher=watcher, progress=progress,
            source=source and source | {"model": _place(model)}, **options,
        )  # fmt: skip


def train_on_caches(
    train: ActivationCache | str | Path,
    dev: ActivationCache | str | Path,
    out: str | Path,
    *,
    test: ActivationCache | str | Path | None = None,
    layers: Sequence[int | str] | None = None,
    run_name: str | None = None,
    device: str = "auto",
    report_to: str = "none",
    overwrite: bool = False,
    watcher: Watcher | None = None,
    progress: Progress = no_progress,
    source: Mapping[str, str | None] | None = None,
    **options: Any,
) -> Run:
    """Feature extraction from caches that are there already; see :func:`train`.

    source : ``task``, ``data_dir`` and ``model``, as :func:`train` takes them, by which the run can be evaluated on
        other texts
    """
    head, how = options_of(Regime.FEATURE_EXTRACTION, options)
    with ExitStack() as stack:
        one, two, three = (None if c is None else stack.enter_context(_opened(c)) for c in (train, dev, test))
        assert one is not None
        assert two is not None
        splits = (one.spec["split"], two.spec["split"], None if three is None else three.spec["split"])
        asked = _Asked(
            Regime.FEATURE_EXTRACTION, head, how, splits, device, report_to, overwrite, watcher, progress, run_name,
            source,
        )  # fmt: skip
        identity = {
            "task": one.spec["task"],
            "data": [c.spec["data_digest"] for c in (one, two)],
            "model": {key: one.spec.get(key) for key in MODEL},
            "cache": {key: one.spec.get(key) for key in ("pairs", "tokens", "store")},
            "layers": layers,
        }
        return _run(
            lambda: prepare_feature_extraction(one, two, head, layers=layers), lambda: three, Path(out), asked, identity
        )


def _source(task: str, data_dir: str | Path | None) -> dict[str, str | None]:
    """What ``load_task`` needs to find the task again, from any folder."""
    return {
        "task": _place(task) if ".toml" in task else task,
        "data_dir": None if data_dir is None else str(Path(data_dir).expanduser().resolve()),
    }


def _place(name: str | Path) -> str:
    """A path as it is found from any folder; what is none, such as a hub id, as it is."""
    whole, toml, domain = str(name).partition(".toml:")
    path, part = (f"{whole}.toml", f":{domain}") if toml else (str(name), "")
    return str(Path(path).expanduser().resolve()) + part if Path(path).expanduser().exists() else str(name)


def _opened(cache: ActivationCache | str | Path) -> AbstractContextManager[ActivationCache]:
    return nullcontext(cache) if isinstance(cache, ActivationCache) else ActivationCache(cache)


def _regime(name: str) -> Regime:
    try:
        return Regime(name)
    except ValueError:
        raise UsageError(f"regime is {name!r}; it is one of {', '.join(Regime)}.") from None


def _run(
    prepare: Callable[[], Parts], test: Callable[[], Any], out: Path, asked: _Asked, identity: Mapping[str, Any]
) -> Run:
    """The run in ``out``: found finished, gone on with, or begun."""
    identity = json.loads(json.dumps({**identity, **asked.identity()}))
    with locked_run(out), own_randomness(asked.options.seed):
        done = begin(out, identity, overwrite=asked.overwrite)
        if done is not None:
            return Run(out, done, read_rows(out / ROWS))
        options, device = asked.options, resolve_device(asked.device)
        if options.dtype is Dtype.FLOAT16 and not device.startswith("cuda"):
            raise UsageError(f"float16 is for training on a GPU, not on {device}; choose bfloat16 or float32.")
        parts = prepare()
        source = test()
        held_out = None if source is None else parts.read(source)
        check_labels(parts.target, parts.train, parts.dev, held_out)
        data = {
            s: d for s, d in zip(asked.splits, (parts.train, parts.dev, held_out), strict=True) if s and d is not None
        }
        for split in data:
            _warn(parts.target.task, split, data[split])
        card = _card(parts, asked, identity, out)
        write_card(out, card)
        score, main = scorer(parts.target), metric(parts.target.metrics[0])

        def save(folder: Path, step: int, metrics: Mapping[str, float]) -> None:
            own = {"step": step, "metrics": dict(metrics), "complete": True}
            save_folder(folder, parts.learner.state_dict(), card | own, parts.source, prefix=parts.prefix)

        try:
            fitted = fit(
                parts.learner, parts.train, parts.dev, score=score, metric=(main.name, main.better == "higher"),
                groups=parts.groups, options=options, out=out, save=save, device=device, report_to=asked.report_to,
                watcher=asked.watcher, progress=asked.progress,
            )  # fmt: skip
        except NonFiniteError as error:
            write_card(out, card | {"failed": str(error)})  # other options may take its place
            raise
        restore(parts.learner, kept(out))
        said = {
            split: say(parts.learner, one, parts.target, batch_size=options.batch_size, device=device)
            for split, one in data.items()
            if one is not parts.train
        }
        about = _about(card, parts, asked)
        rows = rows_of(
            fitted.log, about, (*parts.target.metrics, _loss(parts.target)), splits=asked.splits, layers=parts.layers,
            sizes={split: {"n": len(one), "unread_words": one.unread} for split, one in data.items()},
            kept=fitted.step, said=said,
        )  # fmt: skip
        made = {key: card[key] for key in ("command", "versions", "git", "created", "seeds")}
        if not processes()[0]:
            for split, one in said.items():
                table = one.table({**about, "split": split, "step": fitted.step})
                table.write(out / f"{slug(split)}.examples.parquet")
            write_rows(rows, out / ROWS, made | {"arguments": identity, "durations": {"training": fitted.seconds}})
        done = card | {
            "complete": True, "step": fitted.step, "total_steps": fitted.total, "metrics": fitted.metrics,
            "test": said[asked.splits[2]].metrics if asked.splits[2] else None, "seconds": round(fitted.seconds, 1),
        }  # fmt: skip
        publish(out, done)
        return Run(out, read_card(out), rows)


def _about(card: Mapping[str, Any], parts: Parts, asked: _Asked) -> dict[str, Any]:
    """The columns of all rows of a run."""
    return {
        "task": card["task"],
        "model": card["model"],
        "checkpoint": card["run"],
        "representation": parts.head["pooling"] or "tokens",
        "estimator": f"{asked.regime} {parts.head['head']}",
        "target": "gold",
        "seed": asked.options.seed,
    }


def _loss(target: Target) -> str:
    return "mean-squared-error" if target.kind is Kind.REGRESSION else "log-loss"


def _warn(task: str, split: str, data: Data) -> None:
    """Tell what of a split is not read."""
    if data.truncated:
        log.warning(
            "%d texts of %s %s are longer than what is read; their ends are cut off.", data.truncated, task, split
        )
    if data.unread:
        log.warning("%d words of %s %s are cut off or unreadable; they are left out.", data.unread, task, split)


def _called(encoder: Mapping[str, Any]) -> str:
    """The name of the model that a run began with: "bert@cola-step-4" of a checkpoint, for it is not the pretrained."""
    name, run = encoder["model"], encoder.get("checkpoint")
    return name if run is None else f"{name}@{run}-step-{encoder['step']}"


def _card(parts: Parts, asked: _Asked, identity: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """The card of a run that begins."""
    made = evidence(seeds={"seed": asked.options.seed})
    return {
        "format": RUN_FORMAT,
        "run": asked.run_name or out.resolve().name,
        "model": _called(parts.identity),
        "step": 0,
        "complete": False,
        "task": parts.target.task,
        "source": asked.source,
        "splits": [s for s in asked.splits if s],
        "regime": asked.regime,
        "prefix": parts.prefix,
        "target": asdict(parts.target),
        "head": parts.head,
        "layers": list(parts.layers),
        "caches": [
            str(data.cache.path) for data in (parts.train, parts.dev) if isinstance(data, (PooledData, TokenData))
        ],
        "encoder": parts.identity,
        "examples": [len(parts.train), len(parts.dev)],
        "truncated": [parts.train.truncated, parts.dev.truncated],
        "unread_words": [parts.train.unread, parts.dev.unread],
        "identity": identity,
        **{key: made[key] for key in ("seeds", "command", "versions", "git", "created")},
    }
