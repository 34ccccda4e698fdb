"""The same examples read the old way and the new way, as caches of the probe's layer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probekit.activations import ActivationCache
from probekit.activations.writing.job import cache_activations
from probekit.analyses.recheck import RecheckOptions
from probekit.analyses.vectors import read_of, read_of_model
from probekit.errors import CacheError, DataError, ModelError, UsageError
from probekit.files import is_path
from probekit.models import load_encoder
from probekit.models.encoder import Encoder
from probekit.models.options import LoadOptions
from probekit.monitors.probe import Probe
from probekit.monitors.scoring import load_model
from probekit.monitors.scoring import said as told
from probekit.notes import logger
from probekit.recipe import Read
from probekit.rows.schema import FINAL, RESIDUAL
from probekit.runtime import Dtype, Progress
from probekit.sites import Site
from probekit.tasks.chat import as_chat
from probekit.tasks.load import is_task, load_task
from probekit.tasks.task import Example, Split, Task, TaskKind

log = logger(__name__)
OF_MODEL = ("dtype", "attention", "quantise")
"""Options that change how the model computes."""
NEW = (*OF_MODEL, "template", "prefix", "limit", "certify")
"""Options of the new reading, which a cache has behind it."""


@dataclass(frozen=True, slots=True)
class Both:
    """Both caches; without the old one, the reason why there is none."""

    before: ActivationCache | None
    after: ActivationCache
    encoder: Encoder | None
    why: str = ""
    reads: tuple[Read, ...] = ()


@contextmanager
def both(
    probe: Probe, data: tuple[Any, str | None, Any], old: Any, new: Any, options: RecheckOptions, progress: Progress
) -> Iterator[Both]:
    """Both readings; temporary caches go when the block ends."""
    with ExitStack() as stack:
        given = stack.enter_context(_opened(old)) if _is_cache(old) else None
        if _is_cache(data[0]):
            if new is not None or data[1] is not None or (named := [n for n in NEW if getattr(options, n)]):
                named = [] if new is not None or data[1] is not None else named
                what = ", ".join(f"--{name}" for name in named) or "--model and --split"
                raise UsageError(f"a cache has been read already, its split and its model are known; leave out {what}.")
            if old is not None and given is None:
                raise UsageError("beside a cache that was read the new way, before is a cache of the same examples.")
            why = "" if given else "no cache of the same examples was given with --before"
            after = stack.enter_context(_opened(data[0]))
            yield Both(given, after, None, why, tuple(read_of(cache) for cache in (given, after) if cache is not None))
            return
        task, split = _task(probe, *data)
        encoder = _new_model(probe, old if given is None else None, new, options)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="probekit-recheck-")))
        changed = _with_message(task, split) if options.template else task
        changed = _with_prefix(changed, split, options.prefix) if options.prefix else changed
        after = stack.enter_context(_read(probe, encoder, changed, split, folder / "new.h5", options, progress))
        source = task.name if data[0] is None or isinstance(data[0], Task) else str(data[0])
        reads = [Read(source, "data", task.split(split).digest(), {"split": split})]
        reads += [read_of_model(encoder.name, encoder.spec), *([] if given is None else [read_of(given)])]
        why = ""
        if given is None:
            own, why = _own_model(probe, (old, None, new), options)
            same = own is not None and not (options.prefix or options.template) and _alike(own, encoder)
            why = "nothing changed but the data" if same else why
            if own is not None and not same:
                plain = replace(options, template=None)
                reads.append(read_of_model(own.name, own.spec))
                given = stack.enter_context(_read(probe, own, task, split, folder / "old.h5", plain, progress))
        yield Both(given, after, encoder, why, tuple(reads))


def _is_encoder(model: Any) -> bool:
    return model is not None and not isinstance(model, str | Path)


def _is_cache(data: Any) -> bool:
    if data is None or isinstance(data, Task | ActivationCache):
        return isinstance(data, ActivationCache)
    name = str(data)
    folder = is_path(name) and Path(name).is_dir() and not (Path(name) / "config.json").exists()
    return name.endswith((".h5", ".hdf5")) or "://" in name or folder


@contextmanager
def _opened(cache: Any) -> Iterator[ActivationCache]:
    if isinstance(cache, ActivationCache):
        yield cache
        return
    with ActivationCache(cache) as opened:
        yield opened


def _task(probe: Probe, source: Any, split: str | None, data_dir: Any) -> tuple[Task, str]:
    """The task and its split; by default those of the card."""
    known = probe.card.get("dev") or {}
    if source is None and not known.get("task"):
        raise UsageError("the probe's card does not say on which task it was evaluated; name one.")
    if source is None and not is_task(known["task"]):
        raise UsageError(
            f"the probe was evaluated on {known['task']!r}, whose file the card does not hold; "
            "name its file, or a cache."
        )
    try:
        task = source if isinstance(source, Task) else load_task(str(source or known["task"]), data_dir=data_dir)
    except (DataError, UsageError) as error:
        if source is not None:
            raise
        raise UsageError(f"the probe was evaluated on {known['task']!r}: {error} Name its file, or a cache.") from None
    names = [split, known.get("split") if source is None else None, "dev", *([*task.splits] * (len(task.splits) == 1))]
    found = next((name for name in names if name and (name == split or name in task.splits)), None)
    if found is None:
        raise UsageError(f"{task.name} has the splits {', '.join(task.splits)}; name one with --split.")
    return task, found


def _new_model(probe: Probe, old: Any, new: Any, options: RecheckOptions) -> Encoder:
    """The model that reads the new way."""
    if _is_encoder(new):
        if named := [name for name in OF_MODEL if getattr(options, name) is not None]:
            raise UsageError(f"the model is loaded already; give {', '.join(named)} to load_encoder.")
        return load_model(probe, new, anyway=True)[0]
    if new is None and _is_encoder(old):
        raise UsageError("give the new model by its name or folder, or load it, too.")
    card, name = probe.card["encoder"], new if new is not None else old
    site = Site.parse(probe.layer)
    how = LoadOptions(
        dtype=Dtype(options.dtype or card.get("dtype", "float32")), device=options.device, attention=options.attention,
        quantise=options.quantise, random_weights=card.get("random_weights") if new is None else None,
        revision=card.get("revision") if name is None else None, max_length=card.get("cut_at"),
        batch_tokens=options.batch_tokens, decoder=card.get("part") == "decoder",
        sites=None if site.name in (RESIDUAL, FINAL) else str(site),
    )  # fmt: skip
    try:
        encoder = load_encoder(card.get("model", "") if name is None else name, options=how)
    except ModelError as error:
        if name is not None:
            raise
        raise ModelError(f"the probe reads {card.get('model')!r}: {error} Give its folder with --model.") from None
    return load_model(probe, encoder, anyway=True)[0]


def _own_model(probe: Probe, names: Iterable[Any], options: RecheckOptions) -> tuple[Encoder | None, str]:
    """The model of the card, under the first of these names that has it; else the reason why there is none."""
    for name in names:
        try:
            return load_model(probe, name, device=options.device, batch_tokens=options.batch_tokens)[0], ""
        except (ModelError, UsageError) as error:
            log.info("the probe's own model is not %s: %s", name or "that of its card", error)
    return (
        None,
        f"the probe's own model, {probe.card['encoder'].get('model')!r}, cannot be had; --before names its folder",
    )


def _alike(own: Encoder, other: Encoder) -> bool:
    """Whether two models compute the same."""
    names = ("weights_digest", "tokenizer_digest", "random_weights", "dtype", "attention", "quantised", "cut_at")
    return all(own.spec.get(name) == other.spec.get(name) for name in names)


def _read(
    probe: Probe, encoder: Encoder, task: Task, split: str, out: Path, options: RecheckOptions, progress: Progress
) -> ActivationCache:
    """A cache of the probe's layer, made as the probe's card says."""
    card = probe.card["encoder"]
    if card.get("generate") or card.get("stateful"):
        raise UsageError("the probe reads what a model wrote, or a state that is carried on; give caches of both.")
    how = {name: card[name] for name in ("pairs", "positions", "context") if card.get(name) is not None}
    how |= {"pooling": card["pooling"]} if "pooling" in card else {"tokens": True, "token_level": told(probe, "tokens")}
    try:
        return cache_activations(
            encoder, task, split, layers=probe.layer, out=out, limit=options.limit, chat_template=options.template,
            progress=progress, **how,
        )  # fmt: skip
    except CacheError as error:
        raise UsageError(f"the texts cannot be read for the probe: {error}") from error


def _changed(task: Task, split: str, change: Any) -> Task:
    examples = tuple(map(change, task.split(split)))
    return replace(task, splits={**task.splits, split: Split(split, examples)})


def _check_texts(task: Task, split: str, what: str) -> None:
    words = task.kind in (TaskKind.SEQUENCE_LABELLING, TaskKind.SPAN_LABELLING)
    if words or any(e.chat or e.spans for e in task.split(split)):
        raise UsageError(f"{what} is for plain texts, and {task.name} has words, spans or conversations.")


def _with_prefix(task: Task, split: str, prefix: str) -> Task:
    """The same examples with a text before each."""
    if any(e.chat for e in task.split(split)):
        raise UsageError("a prefix is for plain texts; put it into the chat template.")
    _check_texts(task, split, "a prefix")
    return _changed(task, split, lambda e: replace(e, text=prefix + e.text))


def _with_message(task: Task, split: str) -> Task:
    """The same examples as conversations: a plain text is a message of the user."""
    if all(e.chat for e in task.split(split)):
        return task
    _check_texts(task, split, "a template")

    def message(e: Example) -> Example:
        if e.pair is not None:
            raise UsageError(f"{task.name} has pairs of texts, which are no conversation; leave out the template.")
        return replace(e, chat=as_chat([{"role": "user", "content": e.text}]))

    return _changed(task, split, message)
