"""The texts of a scene's points: from the task, from the tokenizer, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.pooling import TokenLevel
from probekit.activations.writing.request import data_digest
from probekit.addresses import offline
from probekit.analyses.exploration.points import TokenTable
from probekit.errors import ProbekitError, first_line
from probekit.tasks.context import in_context
from probekit.tasks.load import load_task
from probekit.tasks.task import Example, Task

if TYPE_CHECKING:
    from probekit.analyses.exploration.data import SceneData

Texts = Mapping[str, tuple[str, ...]]
"""The text of each example by id; for pairs both."""


def find_texts(cache: ActivationCache, task: Task | None = None) -> tuple[Texts | None, str]:
    """The texts of the examples of a cache, and a note if they are not the task's own.

    They come from ``task``, else from the task that the cache's recipe names, if its data can be read and are those of
    the cache; else from the tokenizer of the cache's model, which does not restore spaces and capitals exactly. The
    cache may be a stranger's: nothing that it names is fetched from the hub.
    """
    try:
        with offline():
            return _of_task(cache, task), ""
    except (ProbekitError, OSError, LookupError) as error:
        reason = first_line(error)
    try:
        decoded = _decoded(cache)
    except Exception as error:  # a model may be absent or damaged in many ways; a view without texts works
        return None, f"There are no texts: {reason} The tokenizer cannot be read either ({first_line(error):.200})."
    return decoded, f"Texts are decoded tokens, not the task's own: {reason}"


def _of_task(cache: ActivationCache, task: Task | None) -> Texts:
    arguments: dict[str, Any] = {} if cache.recipe is None else {**cache.recipe.defaults, **cache.recipe.arguments}
    split = cache.spec["split"]
    if task is None:
        name = arguments.get("task")
        if not isinstance(name, str):
            raise LookupError(f"{cache.path.name} does not say where its task is; give task.")
        name, data_dir = _beside(cache, name), arguments.get("data_dir")
        data_dir = data_dir if data_dir is None else _beside(cache, str(data_dir))
        task = in_context(load_task(name, data_dir), arguments.get("context", "none"))
        sampled = task.split(split).sample(arguments.get("limit"), arguments.get("data_seed", 0))
        if data_digest(sampled.digest(), task.label_names) != cache.spec["data_digest"]:
            raise LookupError(f"the data of {name} have changed since {cache.path.name} was made.")
    found = {e.id: _parts(e) for e in task.split(split)}
    if missing := [name for name in cache.ids.tolist() if name not in found]:
        raise LookupError(f"the task {task.name} lacks {len(missing):,} of the examples, such as {missing[0]!r}.")
    return found


def _beside(cache: ActivationCache, given: str) -> str:
    """A path as it was given when the cache was made; if it is not there, the same beside the cache or above it."""
    whole, toml, domain = given.partition(".toml:")
    path = Path(f"{whole}.toml" if toml else given)
    beside = [folder / path for folder in list(cache.path.absolute().parents)[:2]]
    found = [one for one in (path, *beside) if one.exists()]
    return given if not found else f"{found[0]}:{domain}" if toml else str(found[0])


def _parts(example: Example) -> tuple[str, ...]:
    text = example.text if example.words is None else " ".join(example.words)
    return (text,) if example.pair is None else (text, example.pair)


def model_of(cache: ActivationCache) -> str:
    """The model as it was given when the cache was made: a hub id or a folder, also relative to the cache's folder."""
    given = None if cache.recipe is None else cache.recipe.arguments.get("model")
    if not isinstance(given, str):
        return str(cache.spec["model"])
    given = given.removeprefix("random:")
    beside = [folder / given for folder in list(cache.path.absolute().parents)[:2]]
    found = [str(folder) for folder in (Path(given), *beside) if folder.is_dir()]
    return found[0] if found else given


def tokenizer_of(cache: ActivationCache) -> Any:
    """The tokenizer of the cache's model: its backend, with ``decode`` and ``id_to_token``."""
    from probekit.models.find import resolve_model
    from probekit.models.folder import configuration
    from probekit.models.transformers.encoder import text_reader

    with offline():  # whoever made the cache chose the model
        folder = resolve_model(model_of(cache), cache.spec.get("revision"))
    config = configuration(folder)
    return text_reader(folder, config).backend


def _decoded(cache: ActivationCache) -> Texts:
    tokenizer, parts = tokenizer_of(cache), cache.pieces
    return {
        name: tuple(tokenizer.decode(part[i].tolist()) for part in parts) for i, name in enumerate(cache.ids.tolist())
    }


def surfaces(table: TokenTable, examples: np.ndarray, texts: Sequence[tuple[str, ...] | None]) -> list[tuple[str, ...]]:
    """The tokens of examples as they stand in their texts, without special ones.

    Parameters
    ----------
    table : TokenTable
        The tokens of a cache.
    examples : np.ndarray
        Rows of the examples.
    texts : sequence
        Their texts, for pairs both; None gives numbers in the vocabulary.
    """
    cache, (rows, count) = table.cache, table.rows(examples)
    names = ("token_ids", "char_start", "char_end", "word_index")
    number, start, end, word = (table.column(name)[rows].tolist() for name in names)
    if {"chat_template", "generate"} & cache.spec.keys():  # the model read another text than the task's
        decode = tokenizer_of(cache).decode
        known = {one: decode([one], skip_special_tokens=False) for one in set(number)}
        stop = np.cumsum(count)
        return [tuple(known[number[t]] for t in range(b - n, b)) for b, n in zip(stop, count, strict=True)]
    in_words = cache.spec["kind"] == "sequence-labelling"  # places are then those in the word
    whole = in_words and cache.spec["tokens"] in (TokenLevel.WORD_FIRST, TokenLevel.WORD_MEAN)
    first = _first_tokens(table, examples, count)
    found, at = [], 0
    for text, tokens, of_first in zip(texts, count.tolist(), first.tolist(), strict=True):
        span = range(at, at + tokens)
        at += tokens
        if text is None:
            found.append(tuple(f"#{number[t]}" for t in span))
        else:
            words = text[0].split(" ")
            parts = (
                [words[word[t]] for t in span] if in_words else [text[0]] * of_first + [text[-1]] * (tokens - of_first)
            )
            found.append(
                tuple(parts)
                if whole
                else tuple(part[start[t] : end[t]] or "·" for t, part in zip(span, parts, strict=True))
            )
    return found


def _first_tokens(table: TokenTable, examples: np.ndarray, count: np.ndarray) -> np.ndarray:
    """How many tokens of each example belong to its first text."""
    if table.cache.spec["pairs"] is None:
        return count
    start, length = table.column("start")[examples], table.column("length")[examples]
    if length.ndim == 2:
        return np.array(
            [int((~table.special[a : a + n]).sum()) for a, n in zip(start[:, 0], length[:, 0], strict=True)]
        )
    return np.minimum(table.first_lengths[examples], count)


def marks(scene: SceneData, points: np.ndarray) -> np.ndarray:
    """Where tokens or words are in the texts of their points.

    Parameters
    ----------
    scene : Scene
        Its points are tokens or words, and it has texts and open caches.
    points : np.ndarray
        Positions of k points.

    Returns
    -------
    np.ndarray
        int64 (k, 3): the place of the text in ``scene.texts[point]``, and the first character of the token there and
        the one after its last; 0 where it is not known.
    """
    sources, table = scene.open_sources, scene.open_sources.tokens[0]
    found = np.zeros((len(points), 3), np.int64)
    if scene.texts is None or sources.points.position is None:
        return found
    position, examples = sources.points.position[points], sources.points.examples[0][points]
    in_words = table.cache.spec["kind"] == "sequence-labelling"  # places are then those in the word
    if sources.points.unit == "words":
        word, start = position, np.zeros_like(position)
    else:
        word, start = (table.column(name)[sources.points.rows[0][points]] for name in ("word_index", "char_start"))
    distinct, place = np.unique(examples, return_inverse=True)
    first = _first_tokens(table, distinct, table.rows(distinct)[1])
    second = (position >= first[place]) & (table.cache.spec["pairs"] is not None)
    for i, point in enumerate(points.tolist()):
        token, *texts = scene.texts[point]
        at = len(texts) if second[i] else 1
        before = texts[at - 1].split(" ")[: word[i]] if in_words else []
        a = sum(len(one) + 1 for one in before) + int(start[i])
        if texts[at - 1].startswith(token, a):
            found[i] = at, a, a + len(token)
    return found
