"""The scores of texts or pieces, and what they may go with: length, position, frequency, the label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.ragged import Ragged
from probekit.analyses.apply import ApplyOptions
from probekit.analyses.apply.labelled import places
from probekit.analyses.apply.measure import cached, columns_of_texts, is_cache, logits_of, model_name, texts_of
from probekit.analyses.cards import ENCODER
from probekit.analyses.vectors import LayerVectors, columns_of, model_columns, read_of, read_of_model
from probekit.errors import UsageError
from probekit.monitors.probe import NUMBERS, Probe
from probekit.monitors.scoring import load_model, scored
from probekit.recipe import Read
from probekit.runtime import Progress
from probekit.tasks.task import Example, Split, Task, TaskKind

if TYPE_CHECKING:
    from probekit.analyses.explain import ExplainOptions


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The scores of n texts or pieces.

    Attributes
    ----------
    value : np.ndarray
        float64 (n,), the logit of two classes, or the number.
    predictors : dict of str to np.ndarray
        float64 (n,) each.
    label : np.ndarray, optional
        float64 (n,), 0 or 1 of two classes, or the number; NaN where there is none.
    groups : np.ndarray, optional
        Int (n,), texts or pieces that are not independent.
    texts : dict of str to sequence
        Columns of rows: ``example``, the ids, and if known ``text``, ``pair`` and ``piece``.
    about : dict
        What all rows share.
    reads : tuple of Read
        The data, and the model.
    """

    value: np.ndarray
    predictors: dict[str, np.ndarray]
    label: np.ndarray | None
    groups: np.ndarray | None
    texts: dict[str, Any]
    about: dict[str, Any]
    reads: tuple[Read, ...]


def scores_of(
    probe: Probe, data: tuple[Any, str | None, str | Path | None], model: Any, options: ExplainOptions,
    progress: Progress,
) -> Scores:  # fmt: skip
    """The scores of a cache, a file of texts, or a task.

    Raises
    ------
    UsageError
        If the probe has no single score of a text, or the data say nothing of pieces.
    """
    _check(probe)
    source, split, data_dir = data
    if isinstance(source, ActivationCache) or (not isinstance(source, Task) and is_cache(str(source))):
        if split is not None or options.by == "piece":
            raise UsageError("a cache has one split, and its examples are explained; leave out --split and --by.")
        if isinstance(source, ActivationCache):
            return _of_cache(probe, source, options)
        with ActivationCache(source) as cache:
            return _of_cache(probe, cache, options)
    texts = texts_of(source, split, data_dir)
    if options.by == "piece":
        return _of_pieces(probe, texts.examples, texts.where, texts.read, model, options, progress)
    task, name = texts.task, texts.where["split"]
    if task is None:
        some = tuple(e for e in texts.examples if f"{e.text}{e.pair or ''}".strip())
        task = Task(texts.where["task"], TaskKind(probe.kind), {name: Split(name, some)}, probe.classes)
    how = ApplyOptions(anyway=options.anyway, device=options.device, batch_tokens=options.batch_tokens)
    with cached(probe, task, name, model, how, progress) as cache:
        found = _of_cache(probe, cache, options, list(task.split(name)))
        read_by = {key: cache.spec[key] for key in ENCODER if cache.spec.get(key) is not None}
    return replace(found, reads=(texts.read, read_of_model(model_name(probe, model), read_by)))


def _check(probe: Probe) -> None:
    probe.check_scores()
    single = probe.two_classes or probe.kind == "regression"
    if not single:
        count = f"{len(probe.classes)} {'numbers' if probe.kind in NUMBERS else 'classes or labels'}"
        raise UsageError(f"the probe says {count} of a text; explain needs a single score: two classes, or a number.")
    if probe.vectors["words"] or probe.vectors["spans"]:
        raise UsageError("the probe scores words or spans; explain reads scores of whole texts, or of pieces.")


def _of_cache(
    probe: Probe, cache: ActivationCache, options: ExplainOptions, examples: Sequence[Example] = ()
) -> Scores:
    of, logits = logits_of(probe, cache, anyway=options.anyway)
    if not cache.has_pieces:
        raise UsageError(
            f"{cache.path} does not say which pieces its texts have, so that there is no length; give the texts, or a "
            "cache that probekit has made."
        )
    length, frequency = _of_texts(cache.pieces)
    ids = np.arange(len(length)).astype(str) if of.labels.ids is None else of.labels.ids
    about = {**columns_of(cache, of.representation), **of.group_columns}
    some = length > 0
    texts = {"example": ids, **(columns_of_texts(examples) if examples else {})}
    label = _label(probe, of, cache.spec)
    groups = of.labels.groups
    return Scores(
        probe.scores(logits)[some].astype(np.float64), {"length": length[some], "frequency": frequency[some]},
        None if label is None else label[some], None if groups is None else groups[some],
        {name: np.asarray(column, dtype=object)[some] for name, column in texts.items()}, about, (read_of(cache),),
    )  # fmt: skip


def _label(probe: Probe, of: LayerVectors, spec: Mapping[str, Any]) -> np.ndarray | None:
    """The gold labels as numbers, NaN where there is none; None if the data have none of the probe's kind."""
    y, known = of.labels.y, of.labels.known
    if not known.any() or of.label_sets is not None or (y.dtype.kind == "f") != (probe.kind in NUMBERS):
        return None
    if y.dtype.kind == "f":
        return y.astype(np.float64)
    own = np.array([*places(probe, tuple(spec["label_names"])), -1])[y]
    return np.where(known, own, np.nan)


def _of_texts(pieces: Sequence[Ragged]) -> tuple[np.ndarray, np.ndarray]:
    """The number of pieces of each text (n,), and the mean binary logarithm of how often they occur in all texts."""
    rows = [np.concatenate([one[i] for one in pieces]) for i in range(len(pieces[0]))]
    length = np.array([len(row) for row in rows])
    logs = _log_counts(np.concatenate([np.empty(0, np.int64), *rows]))
    total = np.bincount(np.repeat(np.arange(len(rows)), length), logs, len(rows))
    return length.astype(np.float64), total / np.maximum(length, 1)


def _log_counts(pieces: np.ndarray) -> np.ndarray:
    """The binary logarithm of how often each piece occurs among all, float64 (t,)."""
    _, code, count = np.unique(pieces, return_inverse=True, return_counts=True)
    found: np.ndarray = np.log2(count)[code.reshape(-1)]
    return found


def _of_pieces(
    probe: Probe, examples: Sequence[Example], where: Mapping[str, str], read: Read, model: Any,
    options: ExplainOptions, progress: Progress,
) -> Scores:  # fmt: skip
    encoder, _ = load_model(
        probe, model, device=options.device, batch_tokens=options.batch_tokens, anyway=options.anyway
    )
    found = scored(probe, encoder, examples, by_piece=True, batch_tokens=options.batch_tokens, progress=progress)
    found.say_cut()
    length = np.bincount(found.example, minlength=len(examples))
    position = np.arange(len(found.example)) - (np.cumsum(length) - length)[found.example]
    texts = {
        "example": np.array([examples[i].id for i in found.example], dtype=object),
        **{name: [column[i] for i in found.example] for name, column in columns_of_texts(examples).items()},
        "piece": list(found.pieces),
    }
    about = {**where, **model_columns(encoder.spec, {}), "representation": probe.vectors["representation"]}
    return Scores(
        probe.scores(found.logits).astype(np.float64),
        {
            "length": length[found.example].astype(np.float64), "position": position.astype(np.float64),
            "frequency": _log_counts(np.array(found.pieces)),
        },
        None, found.example, {name: np.asarray(column, dtype=object) for name, column in texts.items()}, about,
        (read, read_of_model(model_name(probe, model), encoder.spec)),
    )  # fmt: skip
