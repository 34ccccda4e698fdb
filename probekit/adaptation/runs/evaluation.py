"""Loading of trained models from a run, and their evaluation on other data."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from probekit.activations import ActivationCache, cache_activations
from probekit.adaptation.data.batches import Data
from probekit.adaptation.data.reading import data_as_in
from probekit.adaptation.data.task_spec import TaskSpec, merged_classes
from probekit.adaptation.heads.spec import HeadSpec
from probekit.adaptation.options import Regime
from probekit.adaptation.runs.folder import load_weights, read_card
from probekit.adaptation.runs.predictions import Evaluation, predict
from probekit.adaptation.training.feature_extraction import MODEL, data_of
from probekit.adaptation.training.fine_tuning import encoder_of
from probekit.adaptation.training.learners import FeatureExtraction, FineTuning, Learner
from probekit.adaptation.training.multi_task import card_for
from probekit.adaptation.training.objective import check_labelled
from probekit.adaptation.training.sharding import load_whole
from probekit.errors import CacheMismatch, ModelError, UsageError, reading
from probekit.models.identity import CARD
from probekit.models.loading import text_reader
from probekit.models.scalar_mix import ScalarMix
from probekit.runtime import Progress, no_progress, resolve_device
from probekit.tasks.context import Context, in_context
from probekit.tasks.task import Task, TaskKind


def restore(learner: Learner, folder: Path, *, encoder: bool = True) -> None:
    """Load the weights of a run in ``folder`` into a learner; raises ModelError if they do not match.

    Parameters
    ----------
    encoder : bool, default True
        Whether to load the encoder's weights; load_learner already has them.
    """
    missing, strange = load_whole(learner, load_weights(folder, encoder=encoder))
    elsewhere = ("auxiliary.",) if encoder else ("auxiliary.", "encoder.")
    missing = [name for name in missing if name in learner.saved_state() and not name.startswith(elsewhere)]
    if strange or missing:
        raise ModelError(f"{folder}: the weights do not match the model in the card ({[*missing, *strange][:3]}).")


def load_learner(folder: str | Path, *, encoder: Any = None) -> tuple[Learner, dict[str, Any]]:
    """The learner of a run or of one of its checkpoints, ready to predict, and the card.

    Parameters
    ----------
    encoder : Any, optional
        Its encoder, if it is already loaded.

    Raises
    ------
    ModelError
        If ``folder`` is not a run, or not a finished one.
    """
    folder = Path(folder)
    card = read_card(folder)
    if not card["complete"]:
        raise ModelError(f"{folder} is an unfinished run. Run its command again: {card['command']}")
    with reading(folder / CARD, "the card of a run"):
        head, layers, task = HeadSpec.of_card(card), tuple(card["layers"]), TaskSpec.of_card(card)
        with torch.random.fork_rng(devices=[]):  # new heads have random weights, which are then overwritten
            built = head.build(task)
            others = {
                one["module"]: HeadSpec.of_card(one).build(TaskSpec.of_card(one)) for one in card.get("also") or ()
            }
    mix = ScalarMix(len(layers), layer_norm=head.layer_norm)
    learner: Learner
    if card["regime"] == Regime.FINE_TUNE:
        trained = encoder_of(folder) if encoder is None else encoder
        learner = FineTuning(trained, built, mix if layers else None, layers, **others)
    else:
        learner = FeatureExtraction(mix, built, layers)
    restore(learner, folder, encoder=False)
    return learner.eval(), card


def predict_run(
    folder: str | Path,
    data: Task | ActivationCache | str | Path,
    split: str = "test",
    *,
    model: str | Path | None = None,
    caches: str | Path | None = None,
    batch_size: int = 32,
    device: str = "auto",
    progress: Progress = no_progress,
) -> Evaluation:
    """The predictions of a run, or of one of its checkpoints, for other data, with the metrics of their task.

    Parameters
    ----------
    data : Task | ActivationCache | str | Path
        A task, with its ``split``; a run of several tasks predicts it with the head of the task of this name, otherwise
        with that of its first task. For feature extraction also an activation cache, or its path, of the model on whose
        layers the head was trained.
    model : str | Path, optional
        For feature extraction from text: path of the frozen model, if it has moved since training.
    caches : str | Path, optional
        Folder for its cache (default: data_cache/).

    Raises
    ------
    CacheMismatch
        If the cache comes from another model.
    UsageError
        If the labels differ.
    """
    learner, card = load_learner(folder)
    card = card_for(card, data.name if isinstance(data, Task) else card["task"])
    learned, device = TaskSpec.of_card(card), resolve_device(device)
    if isinstance(data, Task):  # before a cache is made
        _check_labels(folder, learned, TaskSpec.of_task(data, split))
    with ExitStack() as stack:
        source: Data
        if isinstance(data, Task):
            if card["regime"] == Regime.FINE_TUNE:
                data = in_context(data, card["encoder"].get("context", Context.NONE))
            source = readable(
                stack, folder, learner, card, data, split, model=model, caches=caches, device=device, progress=progress
            )
            target = TaskSpec.of_task(data, split)
        elif card["regime"] == Regime.FINE_TUNE:
            raise UsageError(f"{folder} is a fine-tuned model, which reads text; give a task instead of a cache.")
        else:
            cache = data if isinstance(data, ActivationCache) else stack.enter_context(ActivationCache(data))
            source = _of_cache(folder, card, cache)
            target, split = TaskSpec.of_cache(cache.spec), cache.spec["split"]
        _check_labels(folder, learned, target)
        check_labelled(learned, split, source)
        classes = merged_classes(learned.label_names, target.label_names)
        task = learned if classes is not None else replace(learned, metrics=target.metrics)
        found = predict(
            learner, source, task, module=card["module"], batch_size=batch_size, device=device, progress=progress
        )
        return found if classes is None else found.merged(target, classes)


def readable(
    stack: ExitStack, folder: str | Path, learner: Learner, card: Mapping[str, Any], task: Task, split: str, *,
    model: str | Path | None = None, caches: str | Path | None = None, device: str, progress: Progress = no_progress,
) -> Data:  # fmt: skip
    """The examples of a split as the learner of a run reads them; it reads labelled words with the context they have.

    Parameters
    ----------
    stack : ExitStack
        Closes the cache that a head on frozen layers reads.
    """
    if card["regime"] == Regime.FINE_TUNE:
        reader = text_reader(Path(folder), learner.encoder.config, card["encoder"]["max_length"])
        return data_as_in(card, task, task.split(split), reader)
    made = _cached(folder, card, task, split, model=model, caches=caches, device=device, progress=progress)
    return _of_cache(folder, card, stack.enter_context(made))


def _of_cache(folder: str | Path, card: Mapping[str, Any], cache: ActivationCache) -> Data:
    _check_cache(folder, card, cache)
    return data_of(cache, HeadSpec.of_card(card), card["layers"])


def _check_labels(folder: str | Path, learned: TaskSpec, target: TaskSpec) -> None:
    """Raise UsageError if the labels of a run differ from those of the data to predict."""
    merged = not learned.kind.several and merged_classes(learned.label_names, target.label_names) is not None
    if target.kind is learned.kind is TaskKind.QUESTION_ANSWERING:
        return  # answers are texts, whether or not there are questions without one
    if target.kind != learned.kind or (target.label_names != learned.label_names and not merged):
        ours, theirs = learned.labels_in_words, target.labels_in_words
        kinds = f" ({target.kind}, not {learned.kind})" if target.kind != learned.kind else ""
        raise UsageError(
            f"{folder} was trained on {learned.name}, which has {ours}, but {target.name} has {theirs}{kinds}. Give a "
            f"task with {ours}."
        )


def _check_cache(folder: str | Path, card: Mapping[str, Any], cache: ActivationCache) -> None:
    """Raise CacheMismatch if a cache does not come from the model on whose layers a head was trained."""
    for key in (key for key in (*MODEL, "pairs", "tokens") if key in card["encoder"]):
        if cache.spec.get(key) != card["encoder"].get(key):
            raise CacheMismatch(
                f"{cache.path} holds other layers than the head of {folder} was trained on: {key} is "
                f"{cache.spec.get(key)!r}, expected {card['encoder'].get(key)!r}. Create a cache of that model."
            )


def _cached(
    folder: str | Path, card: Mapping[str, Any], task: Task, split: str, *, model: str | Path | None,
    caches: str | Path | None, **how: Any,
) -> ActivationCache:  # fmt: skip
    """A cache of other texts with the layers that the head of a run reads; how : device and progress."""
    encoder, where = card["encoder"], model or (card.get("source") or {}).get("model")
    if where is None:
        raise UsageError(
            f"{folder} was trained on cached layers of {encoder['model']}; give the path of that model (--model)."
        )
    given = {name: name for name in ("revision", "random_weights", "dtype", "context")}
    given |= {"max_length": "cut_at", "layers": "only"}
    known = {name: encoder[key] for name, key in given.items() if encoder.get(key) is not None}
    store = ((card.get("identity") or {}).get("cache") or {}).get("store")
    known |= {"store": store} if store else {}
    return cache_activations(
        where, task, split, model_name=encoder["model"], pairs=encoder.get("pairs") or "auto",
        tokens=bool(level := encoder.get("tokens")), token_level=level or None,
        pooling=[] if level else card["head"]["pooling"],
        stateful=bool(encoder.get("stateful")), batch_size=encoder.get("stateful") or None,
        out=None if caches is None else f"{caches}/", **how, **known,
    )  # fmt: skip
