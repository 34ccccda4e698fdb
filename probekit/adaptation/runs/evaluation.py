"""Trained models again: loaded from a run, evaluated on data that they have not seen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from probekit.activations import ActivationCache, cache_activations
from probekit.adaptation.data.batches import Data
from probekit.adaptation.data.text import TextData
from probekit.adaptation.heads.scalar_mix import ScalarMix
from probekit.adaptation.options import HeadOptions, Regime
from probekit.adaptation.runs.folder import load_weights, read_card
from probekit.adaptation.runs.predictions import Said, say
from probekit.adaptation.training.feature_extraction import MODEL, data_of
from probekit.adaptation.training.fine_tuning import encoder_of
from probekit.adaptation.training.learners import FeatureExtraction, FineTuning, Learner
from probekit.adaptation.training.objective import Target, build_head, check_labelled
from probekit.errors import CacheMismatch, ModelError, UsageError
from probekit.models.loading import text_reader
from probekit.rows import make_rows
from probekit.runtime import Progress, no_progress, resolve_device
from probekit.tasks import load_task
from probekit.tasks.task import Kind, Task

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["evaluate_run", "evaluation_rows", "load_learner", "restore", "say_of_run"]


def restore(learner: Learner, folder: Path, *, encoder: bool = True) -> None:
    """Give a learner the weights that a run left in ``folder``; raises ModelError where they do not fit.

    encoder : whether the encoder's as well; load_learner has them already
    """
    missing, strange = learner.load_state_dict(load_weights(folder, encoder=encoder), strict=False)
    if strange or [name for name in missing if encoder or not name.startswith("encoder.")]:
        raise ModelError(f"{folder}: its weights do not fit the model on its card ({[*missing, *strange][:3]}).")


def load_learner(folder: str | Path) -> tuple[Learner, dict[str, Any]]:
    """What a run, or one of its checkpoints, has learned, ready to predict; and its card.

    Raises ModelError where ``folder`` is no run, or one that was not finished.
    """
    folder = Path(folder)
    card = read_card(folder)
    if not card["complete"]:
        raise ModelError(f"{folder} is a run that was not finished. Run its command again: {card['command']}")
    head, target = card["head"], _target(card)
    with torch.random.fork_rng(devices=[]):  # new heads are drawn at random, and then overwritten
        made = build_head(
            HeadOptions(hidden_size=head["hidden_size"], dropout=head["dropout"]), head["head"], target,
            head["width"], apart=head["pairs_apart"], pooling=head["pooling"], scale=head.get("scale"),
        )  # fmt: skip
    mix = ScalarMix(len(card["layers"]), layer_norm=head["layer_norm"])
    learner: Learner
    if card["regime"] == Regime.FINE_TUNE:
        learner = FineTuning(encoder_of(folder), made, mix if card["layers"] else None)
    else:
        learner = FeatureExtraction(mix, made)
    restore(learner, folder, encoder=False)
    return learner.eval(), card


def evaluate_run(
    folder: str | Path,
    data: Task | ActivationCache | str | Path,
    split: str = "test",
    **more: Any,
) -> dict[str, float]:
    """Metrics and loss of a run, or of one of its checkpoints, on other data of its task: see :func:`say_of_run`."""
    return say_of_run(folder, data, split, **more).metrics


def say_of_run(
    folder: str | Path,
    data: Task | ActivationCache | str | Path,
    split: str = "test",
    *,
    data_dir: str | Path | None = None,
    model: str | Path | None = None,
    caches: str | Path | None = None,
    batch_size: int = 32,
    device: str = "auto",
    progress: Progress = no_progress,
) -> Said:
    """What a run, or one of its checkpoints, says of each example of other data of its task.

    data : a task (name, TOML file or Task), and its ``split``; for feature extraction also an activation cache (its
        path ends in .h5) of the model whose layers the head was trained on
    model : of feature extraction from text: where the frozen model is, if not where training found it
    caches : folder for its cache (data_cache/ for None)
    Raises CacheMismatch where the cache is another model's, UsageError where the labels are others.
    """
    learner, card = load_learner(folder)
    target, head = _target(card), card["head"]
    if card["regime"] != Regime.FINE_TUNE and not isinstance(data, ActivationCache):
        path = not isinstance(data, Task) and str(data).endswith(".h5")
        task = data if path or isinstance(data, Task) else load_task(str(data), data_dir=data_dir)
        # of a path the task is not read, of a task the path is not
        with ActivationCache(data) if path else _cached(folder, card, task, split, model, caches, progress) as cache:  # type: ignore[arg-type]
            return say_of_run(folder, cache, batch_size=batch_size, device=device)
    source: Data
    if card["regime"] == Regime.FINE_TUNE:
        if isinstance(data, ActivationCache):
            raise UsageError(f"{folder} is a fine-tuned model, which reads text; give a task instead of a cache.")
        task = data if isinstance(data, Task) else load_task(str(data), data_dir=data_dir)
        there = Target.of_task(task, split)
        reader = text_reader(Path(folder), learner.encoder.config, card["encoder"]["max_length"])  # type: ignore[union-attr]
        source = TextData(task, task.split(split), reader, apart=head["pairs_apart"])
    else:
        assert isinstance(data, ActivationCache)
        there, split = Target.of_spec(data.spec), data.spec["split"]
        for key in (key for key in (*MODEL, "pairs", "tokens") if key in card["encoder"]):
            if data.spec.get(key) != card["encoder"].get(key):
                raise CacheMismatch(
                    f"{data.path} holds other layers than the head of {folder} was trained on: {key} is "
                    f"{data.spec.get(key)!r}, wanted {card['encoder'].get(key)!r}. Make a cache of that model."
                )
        options = HeadOptions(pooling=head["pooling"] or "auto", layer_norm=head["layer_norm"])
        source = data_of(data, options, head["head"], card["layers"])
    if (there.kind, there.label_names) != (target.kind, target.label_names):
        raise UsageError(f"{folder} learned {target.task}, whose labels are not those of {there.task}.")
    check_labelled(target, split, source)
    return say(learner, source, target, batch_size=batch_size, device=resolve_device(device))


def _cached(
    folder: str | Path,
    card: Mapping[str, Any],
    task: Task,
    split: str,
    model: str | Path | None,
    caches: str | Path | None,
    progress: Progress,
) -> ActivationCache:
    """The layers that the head of a run reads, of other texts."""
    encoder, where = card["encoder"], model or (card.get("source") or {}).get("model")
    if where is None:
        raise UsageError(f"{folder} was trained on cached layers, of {encoder['model']}; say where that model is.")
    given = {"revision": "revision", "random_weights": "random_weights", "dtype": "dtype", "max_length": "cut_at"}
    known = {name: encoder[key] for name, key in given.items() if encoder.get(key) is not None}
    return cache_activations(
        where, task, split, model_name=encoder["model"], pairs=encoder.get("pairs") or "auto",
        tokens=bool(level := encoder.get("tokens")), token_level=level or "piece",
        pooling=[] if level else card["head"]["pooling"],
        stateful=bool(encoder.get("stateful")), batch_size=encoder.get("stateful") or None,
        out=None if caches is None else f"{caches}/", progress=progress, **known,
    )  # fmt: skip


def evaluation_rows(folder: str | Path, said: Said, task: str, split: str) -> pd.DataFrame:
    """The metrics of what :func:`say_of_run` found on ``task`` as rows, with intervals, like those of the run itself.

    Own columns: ``trained_on``, the task that the run learned, and ``kept``, True.
    """
    card = read_card(folder)
    about = {
        "task": task, "split": split, "model": card["model"], "checkpoint": card["run"], "step": card["step"],
        "layer": None, "representation": card["head"]["pooling"] or "tokens", "target": "gold",
        "estimator": f"{card['regime']} {card['head']['head']}", "seed": card["seeds"]["seed"], "n": len(said.ids),
        "trained_on": card["task"], "kept": True,
    }  # fmt: skip
    found = []
    for name in said.target.metrics:
        low, high = said.interval(name)
        found.append(about | {"metric": name, "value": said.metrics[name], "ci_low": low, "ci_high": high})
    return make_rows(found)


def _target(card: Mapping[str, Any]) -> Target:
    told = card["target"]
    return Target(told["task"], Kind(told["kind"]), tuple(told["label_names"]), tuple(told["metrics"]), told["paired"])
