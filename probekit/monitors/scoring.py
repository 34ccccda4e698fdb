"""Scores of texts: the model runs up to the probe's layer, and no vector is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.pooling import TokenLevel
from probekit.activations.positions import Positions
from probekit.activations.writing.chunk import Chunk, read_chunk
from probekit.activations.writing.reading import Reading
from probekit.errors import ModelError, UsageError
from probekit.models.options import LoadOptions
from probekit.models.sites.selection import choose_sites
from probekit.notes import logger
from probekit.probes.kept import one_line
from probekit.probes.solvers.attention import Sequences
from probekit.probes.spans import pair_features
from probekit.runtime import Progress, no_progress
from probekit.sites import RESIDUAL, Site
from probekit.tasks.task import Example, Task, TaskKind

if TYPE_CHECKING:
    import pandas as pd

    from probekit.models.encoder import Encoder
    from probekit.monitors.probe import Probe

log = logger(__name__)
CHUNK = 2048
"""Texts that are read and scored at a time."""
SAME = ("weights_digest", "tokenizer_digest", "random_weights", "dtype", "cut_at", "quantised", "part")
"""Keys of the card's ``encoder`` in which the loaded model must agree with it."""
BY_CACHE = "make a cache with the options of the train cache (probekit cache-activations …), and apply it to that."
"""What to do with examples that are no plain texts."""


@dataclass(frozen=True, eq=False, slots=True)
class Scored:
    """What a probe says of n units: texts, words or pieces.

    Attributes
    ----------
    logits : np.ndarray
        float32 (n, K), as :meth:`probekit.probes.kept.Weights.logits` gives them.
    example : np.ndarray
        Int (n,), the number of the text of each unit.
    read : np.ndarray
        Bool (units,), which texts that are not blank, or which words, the model has read.
    truncated : np.ndarray
        Bool (texts,), whether a text was too long.
    pieces : tuple of str
        The word pieces, where each has a score.
    """

    logits: np.ndarray
    example: np.ndarray
    read: np.ndarray
    truncated: np.ndarray
    pieces: tuple[str, ...] = ()

    def of_texts(self) -> np.ndarray:
        """Where a unit is a text: the logits of all texts (n, K), NaN for those that have none."""
        found = np.full((len(self.truncated), self.logits.shape[1]), np.nan, np.float32)
        found[self.example] = self.logits
        return found

    def say_cut(self) -> None:
        """Say how many texts the model has not read to their end."""
        if cut := int(self.truncated.sum()):
            of = f"{cut:,} of {len(self.truncated):,}"
            log.warning("%s texts are longer than the model reads, and were cut.", of)


def load_model(
    probe: Probe, model: Any = None, *, device: str = "auto", batch_tokens: int | None = None, anyway: bool = False
) -> tuple[Encoder, tuple[str, ...]]:
    """The model that a probe reads, and what differs from its card, in words.

    Parameters
    ----------
    model : path, str or Encoder, optional
        By default the name in the card.
    device : str
        As for :func:`probekit.load_encoder`.
    batch_tokens : int, optional
        Word pieces in a batch.
    anyway : bool
        Whether another model, tokenizer or precision is taken.

    Raises
    ------
    UsageError
        If it is another model, tokenizer or precision than the card's, and not ``anyway``.
    ModelError
        If it cannot be loaded, or has no such layer.
    """
    from probekit.models import load_encoder

    probe.check_scores()
    wanted, given = probe.card["encoder"], model
    site = Site.parse(probe.layer)
    if model is None or isinstance(model, str | Path):
        options = LoadOptions(
            dtype=wanted.get("dtype", "float32"), device=device, random_weights=wanted.get("random_weights"),
            revision=wanted.get("revision"), max_length=wanted.get("cut_at"), batch_tokens=batch_tokens,
            decoder=wanted.get("part") == "decoder",
        )  # fmt: skip
        try:
            model = load_encoder(wanted.get("model", "") if model is None else model, options=options)
        except ModelError as error:
            if model is not None:
                raise
            raise ModelError(
                f"the probe reads {wanted.get('model')!r}: {error} Give its folder with --model."
            ) from None
    if site not in model.sites:
        if site.name in (RESIDUAL, "final_norm") or not hasattr(model, "read_sites"):
            raise ModelError(f"the probe reads {site}, which {model.name} does not have.")
        if given is model:
            raise ModelError(f"the probe reads {site}; load the model with sites={str(site)!r}.")
        choose_sites(model, str(site), None)
    changed = changes(wanted, model.spec)
    if changed and not anyway:
        moved = given is None and wanted.get("weights_digest") != model.spec.get("weights_digest")
        name = wanted.get("model")
        since = f" {name} has changed since the probe was kept: give the model of then with --model." if moved else ""
        raise UsageError(
            f"the probe was fitted on other vectors: {'; '.join(changed)}.{since} Its scores, thresholds and "
            "probabilities need not hold; --anyway applies it all the same."
        )
    return model, changed


def changes(wanted: Mapping[str, Any], found: Mapping[str, Any], names: Sequence[str] = SAME) -> tuple[str, ...]:
    """What differs between the vectors that a probe was fitted on and others, in words."""
    words = {"weights_digest": "the model's weights", "tokenizer_digest": "the tokenizer", "dtype": "the precision"}
    return tuple(
        f"{words.get(name, name)} ({wanted.get(name)!s:.40}, now {found.get(name)!s:.40})"
        for name in names
        if wanted.get(name) != found.get(name)
    )


def examples_of(texts: Sequence[Any]) -> list[Example]:
    """Texts, pairs of texts, sentences as words, or examples, as examples; UsageError for others."""
    if isinstance(texts, str):
        raise UsageError("texts is one string; give a list of texts.")
    found = []
    for i, text in enumerate(texts):
        if isinstance(text, Example):
            found.append(text)
        elif isinstance(text, str):
            found.append(Example(str(i), text))
        elif isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text):
            found.append(Example(str(i), text[0], pair=text[1]))
        elif isinstance(text, list) and text and all(isinstance(word, str) for word in text):
            found.append(Example(str(i), " ".join(text), words=tuple(text)))
        else:
            raise UsageError(f"text {i} is {text!r:.60}; wanted a text, a pair (text, text), or a list of words.")
    return found


def scored(
    probe: Probe, encoder: Encoder, examples: Sequence[Example], *, by_piece: bool = False,
    batch_tokens: int | None = None, progress: Progress = no_progress,
) -> Scored:  # fmt: skip
    """Run the model up to the probe's layer, and score each text, each word of a task of words, or each piece.

    Raises
    ------
    UsageError
        If the probe reads spans or conversations, or with ``by_piece`` no single piece; or the texts are of another
        kind than those that it was fitted on.
    """
    reading = _reading(probe, encoder, examples, by_piece=by_piece)
    has = np.array([bool(f"{e.text}{e.pair or ''}".strip()) for e in examples])
    if not has.any():
        raise UsageError("there is nothing to score: the texts are blank.")
    kept = [e for e, some in zip(examples, has, strict=True) if some]
    parts = [
        _chunk(probe, encoder, part, reading, by_piece, batch_tokens)
        for part in _chunks(kept, lambda done: progress("score", done, len(kept)))
    ]
    shift, place = np.cumsum([0, *(len(part.truncated) for part in parts)]), np.flatnonzero(has)
    example = place[np.concatenate([part.example + at for part, at in zip(parts, shift, strict=False)])]
    truncated = np.zeros(len(examples), dtype=bool)
    truncated[has] = np.concatenate([part.truncated for part in parts])
    if lost := np.setdiff1d(np.arange(len(examples)), example).tolist():
        some = ", ".join(examples[i].id for i in lost[:3]) + ", …" * (len(lost) > 3)
        log.warning("%s of %s texts are blank and have no score (%s).", f"{len(lost):,}", f"{len(examples):,}", some)
    return Scored(
        np.concatenate([part.logits for part in parts]), example, np.concatenate([part.read for part in parts]),
        truncated, tuple(piece for part in parts for piece in part.pieces),
    )  # fmt: skip


def said(probe: Probe, key: str) -> str:
    """What the card says of the model's vectors under a key; UsageError if it does not."""
    if key not in probe.card["encoder"]:
        raise UsageError(f"the probe's card does not say the {key} of its vectors, so that no text can be read.")
    return str(probe.card["encoder"][key])


def _chunks(examples: Sequence[Example], tell: Callable[[int], Any]) -> Iterator[Sequence[Example]]:
    for start in range(0, max(len(examples), 1), CHUNK):
        tell(start)
        yield examples[start : start + CHUNK]
    tell(len(examples))


def _reading(probe: Probe, encoder: Encoder, examples: Sequence[Example], *, by_piece: bool) -> Reading:
    card, vectors = probe.card["encoder"], probe.card.get("vectors", {})
    chats = card.get("chat_template") or any(e.chat for e in examples)
    for has, what in ((vectors.get("spans"), "spans"), (chats, "conversations")):
        if has:
            raise UsageError(
                f"the probe reads {what}, not plain texts; apply it to a task file with these, or {BY_CACHE}"
            )
    if card.get("context") not in (None, "none") or card.get("generate"):
        raise UsageError(f"the probe reads texts in context, or texts that the model writes; {BY_CACHE}")
    if not examples:
        raise UsageError("there are no texts to score.")
    words = bool(vectors.get("words"))
    if any(words != (e.words is not None) for e in examples):
        kinds = ("texts", "lists of words") if words else ("lists of words", "texts")
        raise UsageError(f"these are {kinds[0]}, and the probe was fitted on {kinds[1]}.")
    pairs = card.get("pairs")
    if any((e.pair is not None) != (pairs is not None) for e in examples):
        raise UsageError(
            "the probe was fitted on single texts, and these are pairs." if pairs is None else
            'the probe was fitted on pairs of texts; give (text, text), or JSON lines with "text" and "pair".'
        )  # fmt: skip
    level = said(probe, "tokens") if words else str(TokenLevel.PIECE) if by_piece or probe.weights.by_piece else None
    if by_piece and (words or pairs == "separate" or not probe.scores_pieces):
        raise UsageError(
            "single pieces, which --by piece and alarms read, have a score of linear probes and monitors of texts "
            f"with two classes or a number; this is {probe!r}."
        )
    site = Site.parse(probe.layer)
    width = encoder.widths[list(encoder.sites).index(site)]
    task = Task("texts", TaskKind(probe.kind), {}, probe.classes)
    positions = None if by_piece or probe.weights.by_piece else Positions.parse(card.get("positions"))
    pooling = None if level else said(probe, "pooling")
    return Reading(task, pooling, level, pairs, ((site, width),), positions, leave_out=True)


def _chunk(
    probe: Probe, encoder: Encoder, examples: Sequence[Example], reading: Reading, by_piece: bool, batch: int | None
) -> Scored:
    chunk = read_chunk(encoder, examples, reading, batch_tokens=batch)
    (x,) = chunk.vectors
    if reading.level != str(TokenLevel.PIECE):
        x = pair_features(x) if reading.pairs == "separate" else x
        example = np.flatnonzero(chunk.read)
        if reading.level:
            example = np.repeat(np.arange(len(examples)), [len(e.words or ()) for e in examples])[chunk.read]
        return Scored(probe.weights.logits(x), example, chunk.read, chunk.truncated)
    return _of_pieces(probe, encoder, examples, chunk, x, by_piece=by_piece, joint=reading.pairs is not None)


def _of_pieces(
    probe: Probe, encoder: Encoder, examples: Sequence[Example], chunk: Chunk, x: np.ndarray, *, by_piece: bool,
    joint: bool,
) -> Scored:  # fmt: skip
    """Scores of the pieces of texts, or of texts from all their pieces, without those that the tokenizer adds."""
    tokens = encoder.tokenize([(e.text, e.pair or "") if joint else e.text for e in examples])
    kept, of = ~tokens.special.astype(bool), np.repeat(np.arange(len(examples)), tokens.length)
    if by_piece:
        if not hasattr(encoder, "tokenizer"):
            raise UsageError(f"{encoder.name} does not name its pieces; leave out by.")
        name = encoder.tokenizer.backend.id_to_token
        pieces = tuple(name(int(i)) or "" for i in tokens.token_ids[kept])
        return Scored(one_line(probe.weights).of_pieces(x[kept]), of[kept], chunk.read, chunk.truncated, pieces)
    length = np.bincount(of[kept], minlength=len(examples))
    row = np.flatnonzero(kept)
    some = np.flatnonzero(length)
    texts = Sequences(x, row, np.cumsum(length) - length, length).at(some)
    return Scored(probe.weights.logits(texts), some, length > 0, chunk.truncated)


def score_texts(
    probe: Probe, texts: Sequence[Any], *, model: Any = None, by: str = "text", device: str = "auto",
    batch_tokens: int | None = None, anyway: bool = False, rate: float | None = None, progress: Progress = no_progress,
) -> pd.DataFrame:  # fmt: skip
    """A row for each text, or with ``by="piece"`` for each of its word pieces; see :meth:`Probe.score`."""
    import pandas as pd

    if by not in ("text", "piece"):
        raise UsageError(f"by is {by!r}; expected text or piece.")
    at = None if rate is None else probe.threshold(rate)
    if at is not None and by == "piece":
        raise UsageError("the thresholds of a card are of whole texts; leave out rate, or by.")
    examples = examples_of(texts)
    encoder, _ = load_model(probe, model, device=device, batch_tokens=batch_tokens, anyway=anyway)
    found = scored(probe, encoder, examples, by_piece=by == "piece", batch_tokens=batch_tokens, progress=progress)
    found.say_cut()
    rows = pd.DataFrame({"score": probe.scores(found.logits)}) if by == "piece" else probe.table(found.logits)
    if at is not None:
        rows["above"] = (rows["score"] > at).astype("boolean")  # blank texts get no row here, and are missing below
    if by == "text" and not probe.card.get("vectors", {}).get("words"):
        rows = rows.set_axis(found.example).reindex(range(len(examples)))
        rows.insert(0, "id", [e.id for e in examples])
        return rows
    rows.insert(0, "id", [examples[i].id for i in found.example])
    if by == "piece":
        rows.insert(1, "piece", list(found.pieces))
    return rows
