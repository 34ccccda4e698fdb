"""The scores of a kept probe: of a cache, of a task through a cache that is made for it, or of texts in parts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.activations.writing.job import cache_activations
from probekit.analyses.apply import ApplyOptions
from probekit.analyses.apply.labelled import at_threshold, beside_card, evaluated, paired
from probekit.analyses.cards import ENCODER
from probekit.analyses.compare.measure import Evaluated
from probekit.analyses.options import PairVector, SpanVector, VectorOptions
from probekit.analyses.vectors import (
    LayerVectors,
    columns_of,
    layer_vectors,
    model_columns,
    numbered,
    read_of,
    read_of_model,
)
from probekit.display import shown_file
from probekit.errors import CacheMismatch, UsageError
from probekit.files import digest_of_content, is_path
from probekit.monitors.folder import load_probe
from probekit.monitors.format import CARD
from probekit.monitors.lines import read_texts
from probekit.monitors.probe import LABELS, NUMBERS, OF_RATE, Probe
from probekit.monitors.scoring import BY_CACHE, SAME, changes, load_model, said, scored
from probekit.notes import logger
from probekit.recipe import Read
from probekit.rows import Result, make_rows
from probekit.runtime import Progress
from probekit.statistics.predictions import Predictions
from probekit.tasks.files.stream import is_stream
from probekit.tasks.load import load_task
from probekit.tasks.task import Example, Task

log = logger(__name__)
CACHES = (".h5", ".hdf5")
OF_VECTORS = (*SAME, "pairs", "positions", "chat_template", "context", "stateful", "generate", "base", "adapters")
"""Keys of the card's ``encoder`` in which a cache must agree with it, beside its pooling or the level of its tokens."""


def measure(
    probe: str | Path | Probe,
    data: tuple[Any, str | None, str | Path | None],
    model: Any,
    beside: Evaluated | None,
    options: ApplyOptions,
    progress: Progress,
) -> Result:
    """The rows and predictions of :func:`probekit.apply`; ``data`` are the texts, the split and the folder."""
    kept = probe if isinstance(probe, Probe) else load_probe(probe, options.layer)
    kept.check_scores()
    if options.rate is not None:
        kept.threshold(options.rate)  # before the model runs
        if options.by == "piece":
            raise UsageError("the thresholds of a card are of whole texts; leave out --rate, or --by.")
    found = _applied(kept, data, model, beside, options, progress)
    own = () if isinstance(probe, Probe) else (Read(str(probe), "probe", digest_of_content(Path(probe) / CARD)),)
    return replace(found, reads=(*own, *found.reads))


def _applied(
    kept: Probe, data: tuple[Any, str | None, str | Path | None], model: Any, beside: Evaluated | None,
    options: ApplyOptions, progress: Progress,
) -> Result:  # fmt: skip
    """The rows and predictions of a cache, a file of texts, or a task."""
    source, split, data_dir = data
    if isinstance(source, ActivationCache):
        return _of_cache(kept, source, beside, options)
    if not isinstance(source, Task) and is_cache(str(source)):
        if split is not None or options.by == "piece":
            raise UsageError("a cache has one split, and its examples are scored; leave out --split and --by.")
        with ActivationCache(source) as cache:
            return _of_cache(kept, cache, beside, options)
    texts = texts_of(source, split, data_dir)
    task = texts.task
    if task is None and beside is not None:
        raise UsageError("beside compares predictions of labelled examples; a file of texts has no labels.")
    if task is None or options.by == "piece":
        return _of_texts(kept, texts.examples, texts.where, texts.read, model, options, progress)
    name, read, examples = texts.where["split"], texts.read, texts.examples
    with cached(kept, task, name, model, options, progress) as cache:
        found = _of_cache(kept, cache, beside, options, examples)
        read_by = {name: cache.spec[name] for name in ENCODER if cache.spec.get(name) is not None}
        return replace(found, reads=(read, read_of_model(model_name(kept, model), read_by), *found.reads[1:]))


@dataclass(frozen=True, slots=True)
class Texts:
    """The examples of a file of texts, or of a split of a task.

    Attributes
    ----------
    examples : list of Example
        The examples.
    where : dict
        The columns ``task`` and ``split`` of rows.
    read : Read
        The data's entry in a card.
    task : Task, optional
        None of a file of texts.
    """

    examples: list[Example]
    where: dict[str, str]
    read: Read
    task: Task | None = None


def texts_of(source: str | Path | Task, split: str | None, data_dir: str | Path | None) -> Texts:
    """The examples of a file of texts, a task file, or a task by name; UsageError if the split is not clear."""
    if not isinstance(source, Task) and is_stream(str(source)):
        if split is not None:
            raise UsageError(f"{source} is a file of texts, which has no splits; leave out --split.")
        examples, digest = read_texts(source if data_dir is None else Path(data_dir) / source)
        if twice := len(examples) - len({e.id for e in examples}):
            log.warning(
                "%s of %s ids occur before, so rows cannot be told by them.", f"{twice:,}", f"{len(examples):,}"
            )
        where = {"task": shown_file(str(source)), "split": "texts"}
        return Texts(list(examples), where, Read(str(source), "data", digest))
    task = source if isinstance(source, Task) else load_task(str(source), data_dir=data_dir)
    name = split or ("dev" if "dev" in task.splits else next(iter(task.splits)) if len(task.splits) == 1 else None)
    if name is None:
        raise UsageError(f"{task.name} has the splits {', '.join(task.splits)}; name one with --split.")
    of = task.name if isinstance(source, Task) else str(source)
    read = Read(of, "data", task.split(name).digest(), {"split": name})
    return Texts(list(task.split(name)), {"task": task.name, "split": name}, read, task)


def model_name(probe: Probe, model: Any) -> str:
    """Where the model was found."""
    return str(model) if isinstance(model, str | Path) else str(probe.card["encoder"].get("model", ""))


def is_cache(name: str) -> bool:
    return name.endswith(CACHES) or "://" in name or (is_path(name) and Path(name).is_dir())


@contextmanager
def cached(
    probe: Probe, task: Task, split: str, model: Any, options: ApplyOptions, progress: Progress
) -> Iterator[ActivationCache]:
    """A cache of the probe's layer, which goes when the block ends."""
    card, vectors = probe.card["encoder"], probe.vectors
    if card.get("generate") or card.get("context") not in (None, "none"):
        raise UsageError(f"the probe reads texts in context, or texts that the model writes; {BY_CACHE}")
    encoder, changed = load_model(
        probe, model, device=options.device, batch_tokens=options.batch_tokens, anyway=options.anyway
    )
    _say(changed)
    words = vectors.get("words") or vectors.get("spans") or probe.weights.by_piece
    how: dict[str, Any] = {"tokens": True, "token_level": said(probe, "tokens")} if words else {}
    how |= {} if words else {"pooling": said(probe, "pooling")}
    how |= {} if card.get("pairs") is None else {"pairs": card["pairs"]}
    how |= {} if card.get("positions") is None else {"positions": card["positions"]}
    with tempfile.TemporaryDirectory(prefix="probekit-apply-") as folder:
        out = Path(folder) / "cache.h5"
        with cache_activations(encoder, task, split, layers=probe.layer, out=out, progress=progress, **how) as cache:
            yield cache


def _say(changed: Sequence[str]) -> None:
    if changed:
        log.warning("the probe is applied to other vectors than it was fitted on: %s.", "; ".join(changed))


def changed_vectors(probe: Probe, cache: ActivationCache) -> list[str]:
    """In what the vectors of a cache differ from those that a probe was fitted on, in words."""
    wanted = probe.card["encoder"]
    changed = [*changes(wanted, cache.spec, OF_VECTORS)]
    if "pooling" in wanted and wanted["pooling"] not in (cache.spec.get("pooling") or ()):
        changed.append(f"pooling ({wanted['pooling']}, now {cache.spec.get('pooling')})")
    if "tokens" in wanted and wanted["tokens"] != cache.spec.get("tokens"):
        changed.append(f"tokens ({wanted['tokens']}, now {cache.spec.get('tokens')})")
    return changed


def logits_of(probe: Probe, cache: ActivationCache, *, anyway: bool) -> tuple[LayerVectors, np.ndarray]:
    """The vectors of a cache that a probe reads, and its logits (n, K); CacheMismatch if it was fitted on others."""
    if (changed := changed_vectors(probe, cache)) and not anyway:
        raise CacheMismatch(
            f"the probe was fitted on other vectors than those of {cache.path}: {'; '.join(changed)}. --anyway applies "
            "it all the same."
        )
    _say(changed)
    of = layer_vectors(cache, vectors_of(probe, cache), pieces=probe.weights.by_piece)
    return of, probe.weights.logits(of.layers[probe.layer]())


def _of_cache(
    probe: Probe, cache: ActivationCache, beside: Evaluated | None, options: ApplyOptions,
    examples: Sequence[Example] = (),
) -> Result:  # fmt: skip
    """Scores of the examples of a cache, and metrics where they are labelled; ``examples`` are its texts, if known."""
    of, logits = logits_of(probe, cache, anyway=options.anyway)
    about = {**columns_of(cache, of.representation), **_columns(probe), **of.group_columns}
    ids = np.arange(len(logits)).astype(str) if of.labels.ids is None else of.labels.ids
    texts = _texts(cache, of, examples) if examples else {}
    rows, predictions = [_scores(probe, logits, ids, about, options.rate, **texts)], tuple[Predictions, ...]()
    reads = [read_of(cache)]
    if (found := evaluated(probe, logits, cache, of, about)) is not None:
        predictions = (found,)
        rows.insert(0, beside_card(probe, found, options))
        if options.rate is not None:
            known = probe.scores(logits[of.labels.known])
            rows.insert(1, at_threshold(probe, found, known, options.rate, options))
    if beside is not None:
        if found is None:
            raise UsageError("beside compares predictions of labelled examples; these have no labels of the probe's.")
        more, files = paired(probe, found, beside, cache.spec["data_digest"], options)
        rows.insert(1, more)
        reads += files
    return Result(make_rows(pd.concat(rows, ignore_index=True)), predictions, reads=tuple(reads))


def _texts(cache: ActivationCache, of: LayerVectors, examples: Sequence[Example]) -> dict[str, list[str | None]]:
    """The text, or the word, of each row, and the second text of pairs."""
    if of.words and of.targets is None:
        word = cache.index("word_index")[cache.word_rows]
        return {"text": [(examples[i].words or ())[w] for i, w in zip(cache.word_sentence, word, strict=True)]}
    of_row = examples if of.targets is None else [examples[i] for i in of.targets.example]
    return columns_of_texts(of_row)


def columns_of_texts(examples: Sequence[Example]) -> dict[str, list[str | None]]:
    pairs = {"pair": [e.pair for e in examples]} if any(e.pair is not None for e in examples) else {}
    return {"text": [e.text for e in examples], **pairs}


def vectors_of(probe: Probe, cache: ActivationCache) -> VectorOptions:
    """Which vectors of a cache a probe reads."""
    card = probe.vectors
    layers = (str(cache.layer_names((probe.layer,))[0]),)
    if probe.weights.by_piece or card["words"]:
        return VectorOptions(layers=layers)
    if card["spans"]:
        span = None if card["span"] is None else SpanVector(card["span"])
        return VectorOptions(layers=layers, span=span, span_pair=PairVector(card["span_pair"]))
    return VectorOptions(layers=layers, pooling=card["representation"])


def _columns(probe: Probe) -> dict[str, Any]:
    card = probe.card
    return {"analysis": "apply", "estimator": card["estimator"], "layer": probe.layer, "target": "gold", "draw": None}


def _scores(
    probe: Probe, logits: np.ndarray, ids: Any, about: Mapping[str, Any], rate: float | None, **more: Any
) -> pd.DataFrame:
    """A row for each score; of a text that has none, its logits are NaN."""
    found = probe.table(logits)
    if probe.kind in LABELS:
        wide = found.assign(example=ids, **more).melt(["example", *more], var_name="label")
        metric = "probe-score" if probe.kind in NUMBERS else "probability"
        names = wide["label"].str.removeprefix("p(").str.removesuffix(")")
        return wide.assign(**about, metric=metric, n=1, label=names)
    rows = pd.DataFrame({"example": ids, **more})
    if probe.kind in NUMBERS or "piece" in more:  # a piece has no probability: the probe was fitted on whole texts
        return rows.assign(value=probe.scores(logits), metric="probe-score", n=1, **about)
    proba = probe.proba(logits).max(1)
    value, metric = (found["score"], "probe-score") if probe.two_classes else (proba, "probability")
    if rate is not None:
        point = {name: probe.operating_point(rate).get(name) for name in OF_RATE}
        above = (found["score"] > point["threshold"]).astype("boolean")
        rows = rows.assign(above=above.where(found["score"].notna()), **point)
    said = found["class"].where(~np.isnan(proba))
    return rows.assign(predicted=said, probability=proba, value=value, metric=metric, n=1, **about)


def _of_texts(
    probe: Probe, examples: Sequence[Example], where: Mapping[str, str], read: Read, model: Any, options: ApplyOptions,
    progress: Progress,
) -> Result:  # fmt: skip
    """Scores of texts without labels, or of their pieces."""
    encoder, changed = load_model(
        probe, model, device=options.device, batch_tokens=options.batch_tokens, anyway=options.anyway
    )
    _say(changed)
    found = scored(
        probe, encoder, examples, by_piece=options.by == "piece", batch_tokens=options.batch_tokens, progress=progress
    )
    found.say_cut()
    about = {
        **where, **model_columns(encoder.spec, {}), **_columns(probe),
        "representation": probe.vectors["representation"],
    }  # fmt: skip
    ids, logits, more = np.array([examples[i].id for i in found.example]), found.logits, dict[str, Any]()
    if options.by == "piece":
        more = {"piece": list(found.pieces)}
    elif probe.card.get("vectors", {}).get("words"):
        words = np.array([word for e in examples for word in e.words or ()], dtype=object)
        ids, more = numbered(ids, found.example), {"text": words[found.read]}
    else:
        ids, logits, more = np.array([e.id for e in examples]), found.of_texts(), columns_of_texts(examples)
    if found.truncated.any():
        cut = found.truncated if len(ids) == len(examples) else found.truncated[found.example]
        more = {**more, "truncated": cut}
    rows = _scores(probe, logits, ids, about, options.rate, **more)
    return Result(make_rows(rows), (), reads=(read, read_of_model(model_name(probe, model), encoder.spec)))
