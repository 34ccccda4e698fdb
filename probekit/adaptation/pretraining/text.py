"""Plain text as one long sequence of word pieces, and tokenizers trained on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from probekit.errors import DataError, UsageError
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["Pieces", "held_out", "read_lines", "to_pieces", "train_tokenizer"]

END, PAD, MASK, CLS, SEP, UNKNOWN = "<|endoftext|>", "<pad>", "<mask>", "<s>", "</s>", "<unk>"
LINES = 4096  # tokenized together


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """A text as word pieces, with an end-of-text piece after each file.

    Attributes
    ----------
    ids : np.ndarray
        int32 (t,).
    bytes : int
        Size of the text in UTF-8, without the ends of files.
    """

    ids: np.ndarray
    bytes: int

    def blocks(self, length: int) -> np.ndarray:
        """The text in sequences of this length, (n, length); pieces that do not fill the last one are left out."""
        count = len(self.ids) // length
        return self.ids[: count * length].reshape(count, length)


def read_lines(file: Path) -> list[str]:
    """The lines of a UTF-8 text with their line ends.

    Raises
    ------
    DataError
        If it cannot be read, is not UTF-8 (with the line), or is empty.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"{file}, line {line}: not UTF-8 (byte {content[error.start]:#04x}); convert the file."
        ) from None
    if not text.strip():
        raise DataError(f"{file} is empty; give a file with text.")
    return text.splitlines(keepends=True)


def held_out(lines: list[str], share: float) -> tuple[list[str], list[str]]:
    """The lines to train on, and the last ones, at least one, which are held out.

    Raises
    ------
    DataError
        If there are fewer than two lines.
    """
    if len(lines) < 2:
        raise DataError("a text of one line cannot be divided; give held-out text (--dev).")
    cut = min(len(lines) - 1, max(1, round(len(lines) * (1 - share))))
    return lines[:cut], lines[cut:]


def train_tokenizer(texts: Sequence[Sequence[str]], size: int, *, masked: bool) -> PreTrainedTokenizerFast:
    """Byte-level BPE (Radford et al. 2019), trained on the lines of texts: no text has an unknown piece.

    Parameters
    ----------
    texts : sequence of sequences of str
        The lines of each text.
    size : int
        Number of pieces with the special ones, at least 300.
    masked : bool
        Whether the tokenizer adds ``<s>`` and ``</s>`` to a text and has a piece for masks, like RoBERTa's.

    Raises
    ------
    UsageError
        If ``size`` is below 300.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    if size < 300:
        raise UsageError(f"a tokenizer of {size} pieces was requested; all bytes and special pieces need 300.")
    special = [CLS, SEP, PAD, MASK] if masked else [END]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    backend.train_from_iterator((line for text in texts for line in text), trainer)
    if not masked:
        return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, bos_token=END)
    backend.post_processor = processors.RobertaProcessing(
        (SEP, special.index(SEP)), (CLS, special.index(CLS)), add_prefix_space=False
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=CLS, cls_token=CLS, eos_token=SEP, sep_token=SEP, pad_token=PAD,
        mask_token=MASK,
    )  # fmt: skip


def to_pieces(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[Sequence[str]], *, progress: Progress = no_progress
) -> Pieces:
    """The word pieces of the lines of texts, tokenized line by line, and the size of the texts."""
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    parts, size, done = [], 0, 0
    total = sum(len(text) for text in texts)
    for text in texts:
        for lines in _chunks(text):
            encoded = tokenizer(lines, add_special_tokens=False, return_attention_mask=False)["input_ids"]
            parts += [np.array(ids, dtype=np.int32) for ids in encoded]
            size += sum(len(line.encode()) for line in lines)
            done += len(lines)
            progress("tokenizing", done, total, bytes=size)
        if end is not None:
            parts.append(np.array([end], dtype=np.int32))
    return Pieces(np.concatenate(parts), size)


def _chunks(lines: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(lines), LINES):
        yield list(lines[start : start + LINES])
