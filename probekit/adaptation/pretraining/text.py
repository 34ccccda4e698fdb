"""Plain text as one long sequence of word pieces, and tokenizers trained on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from probekit.errors import DataError, UsageError
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END, PAD, MASK, CLS, SEP = "<|endoftext|>", "<pad>", "<mask>", "<s>", "</s>"
LINES = 4096  # tokenized together


@dataclass(frozen=True, slots=True)
class Text:
    """Some lines of a UTF-8 file, which are read when they are needed; lines end with a line feed.

    Attributes
    ----------
    file : Path
        The file.
    first, last : int
        The lines from ``first``, counted from 0, to before ``last``.
    digest : str
        xxh3 of the whole file.
    """

    file: Path
    first: int
    last: int
    digest: str

    def __len__(self) -> int:
        return self.last - self.first

    def lines(self) -> Iterator[str]:
        """The lines with their ends."""
        with self.file.open("rb") as file:
            for line in islice(file, self.first, self.last):
                yield line.decode("utf-8")

    def divide(self, share: float) -> tuple[Text, Text]:
        """The lines to train on, and the last ones, at least one, which are held out.

        Raises
        ------
        DataError
            If there are fewer than two lines.
        """
        if len(self) < 2:
            raise DataError(f"{self.file} has one line, which cannot be divided; give held-out text (--dev).")
        cut = min(len(self) - 1, max(1, round(len(self) * (1 - share))))
        return replace(self, last=cut), replace(self, first=cut)


def open_text(file: Path) -> Text:
    """A whole file.

    Raises
    ------
    DataError
        If it cannot be read, is not UTF-8 (with the line), or is empty.
    """
    digest, count, empty = xxhash.xxh3_128(), 0, True
    try:
        with file.open("rb") as lines:
            for line in lines:
                digest.update(line)
                count += 1
                empty &= not line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(f"{file}, line {count}: not UTF-8 (byte {byte:#04x}); convert the file.") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise DataError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if empty:
        raise DataError(f"{file} is empty; give a file with text.")
    return Text(file, 0, count, digest.hexdigest())


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Texts as word pieces, with an end-of-text piece after each.

    Attributes
    ----------
    ids : np.ndarray
        int32 (t,).
    bytes : int
        Size of the texts in UTF-8.
    """

    ids: np.ndarray
    bytes: int

    def blocks(self, length: int, around: tuple[int, int] | None = None) -> np.ndarray:
        """The text in sequences of this length, (n, length); pieces that do not fill the last one are left out.

        Parameters
        ----------
        around : tuple of int, optional
            The pieces with which each sequence begins and ends, such as BERT's ``[CLS]`` and ``[SEP]``.
        """
        inner = length - (2 if around else 0)
        count = len(self.ids) // inner
        blocks = self.ids[: count * inner].reshape(count, inner)
        if around is None:
            return blocks
        first, last = (np.full((count, 1), piece, dtype=self.ids.dtype) for piece in around)
        return np.concatenate([first, blocks, last], axis=1)


def train_tokenizer(lines: Iterable[str], size: int, *, masked: bool) -> PreTrainedTokenizerFast:
    """Byte-level BPE (Radford et al. 2019), trained on lines of text: no text has an unknown piece.

    Parameters
    ----------
    lines : iterable of str
        Each line is a document for the tokenizer.
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
    backend.train_from_iterator(lines, trainer)
    if not masked:
        return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, bos_token=END)
    backend.post_processor = processors.RobertaProcessing(
        (SEP, special.index(SEP)), (CLS, special.index(CLS)), add_prefix_space=False
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=CLS, cls_token=CLS, eos_token=SEP, sep_token=SEP, pad_token=PAD,
        mask_token=MASK,
    )  # fmt: skip


def to_pieces(tokenizer: PreTrainedTokenizerFast, texts: Sequence[Text], *, progress: Progress = no_progress) -> Pieces:
    """The word pieces of texts, tokenized line by line, and the size of the texts.

    Raises
    ------
    UsageError
        If the tokenizer has no piece for the end of a text.
    """
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    if end is None:
        raise UsageError(f"the tokenizer {tokenizer.name_or_path} has no piece for the end of a text; choose another.")
    parts, size, done = list[np.ndarray](), 0, 0
    total = sum(map(len, texts))
    for text in texts:
        rest = text.lines()
        while lines := list(islice(rest, LINES)):
            encoded = tokenizer(lines, add_special_tokens=False, return_attention_mask=False)["input_ids"]
            parts.append(np.fromiter(chain.from_iterable(encoded), dtype=np.int32))
            size += sum(len(line.encode()) for line in lines)
            done += len(lines)
            progress("tokenizing", done, total, bytes=size)
        parts.append(np.array([end], dtype=np.int32))
    return Pieces(np.concatenate(parts), size)
