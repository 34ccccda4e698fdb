"""The output words of decoders: a vocabulary of words or pieces, its file in a run, and decoders read back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.heads.decoder import DecoderHead
from probekit.adaptation.pretraining.sequences import CHUNK, Sequences, written
from probekit.adaptation.pretraining.text import train_tokenizer
from probekit.adaptation.runs.folder import load_weights, read_card
from probekit.errors import ModelError, UsageError
from probekit.files import FileKind, digest_of_content, read_json, write
from probekit.models.words import NO_LIMIT, Splitting, read_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

UNKNOWN, BEGIN, END = 0, 1, 2
"""The first output words: those that the vocabulary lacks, and the beginning and end of a sequence."""


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """A vocabulary of output words: the most frequent words of some texts after three markers.

    Attributes
    ----------
    index : dict[str, int]
        The id of each word, from 3.
    """

    index: dict[str, int]

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> Outputs:
        """The ``size - 3`` most frequent words of texts; of equally frequent ones the first in alphabetical order."""
        count: Counter[str] = Counter()
        for words in _words(texts):
            count.update(chain.from_iterable(words))
        ranked = sorted(count, key=lambda word: (-count[word], word))
        return cls({word: END + 1 + i for i, word in enumerate(ranked[: size - END - 1])})

    def __len__(self) -> int:
        return END + 1 + len(self.index)

    def text(self, ids: Iterable[int]) -> str:
        """Words with blanks between them; an unknown one is ``<unknown>``."""
        words = ["<unknown>", "<begin>", "<end>", *self.index]
        return " ".join(words[i] for i in ids)

    def on_file(self) -> dict[str, Any]:
        """The words, for a file."""
        return {"words": [*self.index]}

    def written(self, texts: Iterable[str], place: Path, max_length: int) -> Sequences:
        """The ids of the words of texts, at most ``max_length`` each."""
        rows = ([self.index.get(word, UNKNOWN) for word in words] for chunk in _words(texts) for words in chunk)
        return written(rows, place, max_length)


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """A vocabulary of output pieces, by byte-level BPE trained on some texts, after three markers: none is unknown."""

    tokenizer: PreTrainedTokenizerFast

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> Pieces:
        """About ``size`` pieces, at least 303."""
        return cls(train_tokenizer(texts, size - END, masked=False))

    def __len__(self) -> int:
        return END + len(self.tokenizer)  # its marker has no use here

    def text(self, ids: Iterable[int]) -> str:
        """The text of some pieces."""
        return str(self.tokenizer.decode([i - END for i in ids if i > END]))

    def on_file(self) -> dict[str, Any]:
        """The tokenizer, for a file."""
        return {"tokenizer": json.loads(self.tokenizer.backend_tokenizer.to_str())}

    def written(self, texts: Iterable[str], place: Path, max_length: int) -> Sequences:
        """The ids of the pieces of texts, at most ``max_length`` each."""
        rest = iter(texts)
        chunks = iter(lambda: list(islice(rest, CHUNK)), [])
        rows = ([END + i for i in ids] for chunk in chunks for ids in self.tokenizer(chunk)["input_ids"])
        return written(rows, place, max_length)


Vocabulary = Outputs | Pieces


def vocabulary_on_file(stored: dict[str, Any]) -> Vocabulary:
    """The vocabulary that ``on_file`` of :class:`Outputs` or :class:`Pieces` returned."""
    if "words" in stored:
        return Outputs({word: END + 1 + i for i, word in enumerate(stored["words"])})
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    return Pieces(PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(stored["tokenizer"]))))


def _words(texts: Iterable[str]) -> Iterator[list[list[str]]]:
    """The words of texts, for some texts at a time."""
    rest = iter(texts)
    while chunk := list(islice(rest, CHUNK)):
        found = read_words(chunk, Splitting.TREEBANK, NO_LIMIT)
        ends = np.cumsum(found.length)
        yield [found.words[end - n : end] for end, n in zip(ends.tolist(), found.length.tolist(), strict=True)]


def _is_vocabularies(path: Path) -> bool:
    stored = read_json(path)
    return isinstance(stored, dict) and all({*one} <= {"words", "tokenizer"} for one in stored.values())


VOCABULARIES = FileKind("the output words of decoders", _is_vocabularies)
FILE = "outputs.json"


def write_vocabularies(vocabularies: Mapping[str, Vocabulary], folder: Path) -> dict[str, str]:
    """Write the output words of all decoders, if there are any; returns what a card says of the file."""
    if not vocabularies:
        return {}
    stored = {name: one.on_file() for name, one in vocabularies.items()}
    write(folder / FILE, json.dumps(stored, ensure_ascii=False) + "\n", VOCABULARIES)
    return {FILE: digest_of_content(folder / FILE)}


def read_decoder(run: str | Path, objective: str) -> tuple[DecoderHead, Vocabulary]:
    """The decoder that a run trained for an objective, and its output words.

    Parameters
    ----------
    run : path
        The folder of a finished run of :func:`probekit.pretrain_encoder`.
    objective : str
        An objective of the run, such as "translate:multi30k-en-de".

    Raises
    ------
    UsageError
        If the run has no decoder for this objective.
    ModelError
        If a file is missing or damaged.
    """
    folder = Path(run)
    card, path = read_card(folder), folder / FILE
    modules = {one["objective"]: one["module"] for one in card.get("objectives", ()) if "attention" in one}
    if objective not in modules:
        which = f"those of {', '.join(modules)}" if modules else "none"
        raise UsageError(f"{folder} has no decoder for {objective!r}; it has {which}.")
    if not path.is_file() or digest_of_content(path) != card.get(FILE):
        raise ModelError(f"{path} is missing or damaged. Train it again with --overwrite.")
    prefix = f"{modules[objective]}."
    state = {k.removeprefix(prefix): v for k, v in load_weights(folder, encoder=False).items() if k.startswith(prefix)}
    (size, width), (outputs, embedding_size) = state["start.weight"].shape, state["embeddings.weight"].shape
    head = DecoderHead(
        width, outputs, begin=BEGIN, end=END, hidden_size=size // 2, embedding_size=embedding_size,
        attention="attention.keys.weight" in state,
    )  # fmt: skip
    head.load_state_dict(state)
    return head.eval(), vocabulary_on_file(read_json(path)[objective])
