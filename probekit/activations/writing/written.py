"""What a model writes to continue the texts of a cache: the pieces, before their states are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.generation import Generation
from probekit.activations.label_sets import strings
from probekit.activations.writing.extract import lanes_of
from probekit.activations.writing.pieces import Pieces
from probekit.activations.writing.request import Request
from probekit.errors import ModelError, NonFiniteError, TruncationError, UsageError
from probekit.models.encoder import Rendered, Text, Tokens
from probekit.runtime import Progress

if TYPE_CHECKING:
    import torch

    from probekit.models.transformers.writing import Draw


@dataclass(frozen=True, slots=True)
class Written:
    """Texts with what the model wrote after them.

    Attributes
    ----------
    prompt : np.ndarray
        int64 (s,), pieces of each prompt.
    pieces : list of np.ndarray
        s items, int32: all that it wrote, the last piece included.
    ended : np.ndarray
        Bool (s,), whether it wrote an end itself.
    """

    prompt: np.ndarray
    pieces: list[np.ndarray]
    ended: np.ndarray

    @property
    def more(self) -> np.ndarray:
        """int64 (s,), pieces that the model wrote and read: all but the last."""
        return np.array([len(of) - 1 for of in self.pieces], dtype=np.int64)

    def after(self, tokens: Tokens, first: int) -> Tokens:
        """The pieces that the model read of some texts: each prompt, and what it wrote but for the last piece.

        Parameters
        ----------
        tokens : Tokens
            The prompts of the texts from ``first`` on.
        """
        return _with(tokens, [of[:-1] for of in self.pieces[first : first + len(tokens.length)]])

    def datasets(self, text_of_slot: np.ndarray, encoder: Any) -> dict[str, np.ndarray]:
        """The datasets of a cache about n examples: the pieces, how many of each, the texts, and whether they ended."""
        of = [self.pieces[k] for k in text_of_slot]
        decode = encoder.tokenizer.backend.decode
        return {
            "/generated/token_ids": np.concatenate(of),
            "/generated/length": np.array([len(pieces) for pieces in of], dtype=np.int64),
            "/generated/text": strings([decode(pieces.tolist()) for pieces in of]),
            "/generated/ended": self.ended[text_of_slot].astype(np.uint8),
        }


def continued(
    request: Request, encoder: Any, texts: Sequence[Text], read: Pieces, text_of_slot: np.ndarray, progress: Progress
) -> Written:
    """Let the model continue texts, many in step.

    Parameters
    ----------
    texts, read
        s texts, and their pieces.
    text_of_slot : np.ndarray
        int64 (n,), the text of each example; the id of the first with a text seeds what is drawn for it.

    Raises
    ------
    UsageError
        If the model cannot write, or a text leaves it nothing to begin with.
    TruncationError
        If a text was truncated.
    ModelError
        If memory runs out.
    NonFiniteError
        If the scores of the next piece are NaN or infinite.
    """
    import torch

    from probekit.models.transformers.writing import load_writer

    generation = Generation.parse(request.want["generate"])
    assert generation is not None
    writer = load_writer(encoder.name, encoder.folder, encoder)
    _check(request, texts, read)
    prompts = []
    for first, last in read.parts():
        tokens = read.tokens(first, last)
        prompts += np.split(tokens.token_ids, np.cumsum(tokens.length)[:-1])
    parts = in_step(read.length, generation, pads=writer.pads, on_cpu=encoder.spec["device"] == "cpu")
    first = np.unique(text_of_slot, return_index=True)[1].tolist()
    pieces, done = [*prompts], 0

    def write(part: np.ndarray) -> list[np.ndarray]:
        draw = _draws(generation, [request.part[first[i]].id for i in part])
        try:
            return writer.write([prompts[i] for i in part], generation.max_new_tokens, draw)
        except torch.OutOfMemoryError as error:
            raise ModelError(
                f"out of memory while {len(part)} texts are written in step; use fewer, such as --generate "
                f"{replace(generation, together=max(1, len(part) // 2))}."
            ) from error

    with writer.ready(), lanes_of(encoder) as (lanes, _):
        progress("writing", 0, len(prompts))
        try:
            for part, found in zip(parts, lanes.map(write, parts), strict=True):
                for i, of in zip(part, found, strict=True):
                    pieces[i] = of
                progress("writing", done := done + len(part), len(prompts))
        except BaseException:
            lanes.shutdown(wait=False, cancel_futures=True)
            raise
    return Written(read.length, pieces, np.array([int(of[-1]) in writer.ends for of in pieces]))


MOST_PIECES = {True: 8192, False: 16_384}
"""Pieces of the texts that are written in step, with padding: on a CPU, and on a GPU."""
MOST_TEXTS = {True: 64, False: 1024}
"""Texts: on a CPU few enough for several lanes; from 64 rows on, a product is about as fast as it gets."""


def in_step(length: np.ndarray, generation: Generation, *, pads: bool, on_cpu: bool) -> list[np.ndarray]:
    """The texts that are written together, int64 (b,) each: a function of the data and the kind of device only.

    Parameters
    ----------
    length : np.ndarray
        Int (s,), pieces of each prompt.
    pads : bool
        Whether prompts of different lengths are written together; if not, a change of length ends a batch.
    """
    most = generation.together or MOST_TEXTS[on_cpu]
    parts: list[list[int]] = []
    for i in np.argsort(length, kind="stable").tolist():
        size = int(length[i]) + generation.max_new_tokens
        part = parts[-1] if parts else []
        full = len(part) == most or (not generation.together and (len(part) + 1) * size > MOST_PIECES[on_cpu])
        if not part or full or (not pads and length[part[0]] != length[i]):
            parts.append(part := [])
        part.append(i)
    return [np.array(part) for part in parts]


def _check(request: Request, texts: Sequence[Text], read: Pieces) -> None:
    """Refuse texts that a model cannot continue."""
    task = request.task.name
    if read.truncated.any():
        raise TruncationError(
            f"{task}: {int(read.truncated.sum()):,} texts are longer than the model reads, so that it would continue "
            "them in the middle; remove them."
        )
    if (read.length == 0).any():
        raise UsageError(f"{task}: an empty text gives the model no piece to begin with; remove it.")
    for first, last in read.parts():
        tokens = read.tokens(first, last)
        ends = tokens.special[np.cumsum(tokens.length) - 1]
        if any(end and not isinstance(text, Rendered) for end, text in zip(ends, texts[first:last], strict=True)):
            raise UsageError(
                f"{task}: the tokenizer puts a special piece after each text, after which the model would begin "
                "another one; change that in its tokenizer.json."
            )


def _draws(generation: Generation, ids: Sequence[str]) -> Draw:
    """How the pieces of some texts are chosen; ids are those of the first example with each text."""
    if not generation.temperature:
        return partial(_best, ids=ids)
    draws = [_drawing(generation, of) for of in ids]
    return lambda rows, logits: np.array(
        [draws[row](of) for row, of in zip(rows, logits.cpu().numpy(), strict=True)], dtype=np.int64
    )


def _best(rows: np.ndarray, logits: torch.Tensor, *, ids: Sequence[str]) -> np.ndarray:
    """The piece with the highest score for each text."""
    if logits.device.type == "cpu":  # numpy's argmax is many times as fast as torch's
        scores = logits.numpy()
        best = scores.argmax(-1)
        highest = scores[np.arange(len(best)), best]
    else:
        highest, best = (x.cpu().numpy() for x in logits.max(-1))
    for row in rows[~np.isfinite(highest)].tolist():
        raise _not_finite(ids[row])
    return best


def _drawing(generation: Generation, of: str) -> Callable[[np.ndarray], int]:
    """Draws a piece from logits (vocabulary,), with a seed that depends on the example's id."""
    rng = np.random.default_rng([generation.seed, *of.encode("utf-8", "surrogatepass")])

    def draw(logits: np.ndarray) -> int:
        if not np.isfinite(logits.max()):
            raise _not_finite(of)
        scaled = logits.astype(np.float64) / generation.temperature
        weights = np.cumsum(np.exp(scaled - scaled.max()))
        return int(np.searchsorted(weights, rng.random() * weights[-1], side="right"))

    return draw


def _not_finite(of: str) -> NonFiniteError:
    return NonFiniteError(f"the scores of the next piece of example {of!r} are not finite; try --dtype float32.")


def _with(tokens: Tokens, more: Sequence[np.ndarray]) -> Tokens:
    """The sequences with further pieces, which belong to no word and cover no characters."""
    count = np.array([len(of) for of in more], dtype=np.int64)
    at = np.repeat(np.cumsum(tokens.length), count)
    nothing: dict[str, Any] = {"special": False, "type_ids": 0, "word_index": -1, "char_start": 0, "char_end": 0}
    columns = {name: np.insert(getattr(tokens, name), at, value) for name, value in nothing.items()}
    ids = np.insert(tokens.token_ids, at, np.concatenate([tokens.token_ids[:0], *more])).astype(np.int32)
    return replace(tokens, token_ids=ids, length=tokens.length + count, **columns)
