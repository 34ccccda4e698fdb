"""What an objective of pretraining is, and an objective on a corpus, whose rows are extracted once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.data.batches import Batched
from probekit.adaptation.heads.head import Head
from probekit.adaptation.pretraining.corpora.corpus import CORPORA, load_corpus
from probekit.adaptation.pretraining.corpora.kinds import Corpus, CorpusKind, Row
from probekit.adaptation.pretraining.outputs import Vocabulary
from probekit.adaptation.pretraining.scoring import Chance
from probekit.adaptation.pretraining.sequences import SequenceData, Sequences, Types, tokenized
from probekit.adaptation.training.learners import Learner
from probekit.errors import DataError, UsageError
from probekit.metrics import Metric, metric
from probekit.models.loading import TextReader
from probekit.runtime import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from probekit.adaptation.pretraining.options import EncoderOptions


@dataclass(frozen=True, slots=True, eq=False)
class PretrainingObjective:
    """A prediction problem that shares an encoder with others.

    Attributes
    ----------
    name : str
        As requested, such as "skip-thought:books.txt" or "sst2".
    head : Head
        The head, which computes the loss.
    train, dev : Batched
        Examples to train on, and to validate on.
    metric : Metric
        The main metric of the validation: rising (accuracy) or falling (perplexity).
    score : callable
        ``score(learner, batch_size, device)``, the metrics on ``dev``, by name.
    about : mapping
        What a card says of it: sizes, data, vocabulary.
    chance : Chance
        The metric on ``dev`` of a prediction that does not read the text.
    module : str
        Name of the head in the learner.
    outputs : Vocabulary, optional
        The output words of a decoder.
    """

    name: str
    head: Head
    train: Batched
    dev: Batched
    metric: Metric
    score: Callable[[Learner, int, str], dict[str, float]]
    about: Mapping[str, Any]
    chance: Chance
    module: str = "head"
    outputs: Vocabulary | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """What an objective must know of the encoder.

    Attributes
    ----------
    model : PreTrainedModel
        The encoder.
    reader : TextReader
        Texts to its inputs.
    folder : Path
        The folder of the model, with its tokenizer.
    """

    model: PreTrainedModel
    reader: TextReader
    folder: Path

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return int(self.model.config.hidden_size)


def corpus_of(name: str, options: EncoderOptions) -> Corpus:
    """The corpus of an objective, by the name of the objective."""
    kind, _, corpus = name.partition(":")
    if not corpus and kind not in CORPORA:
        raise UsageError(f"{kind} needs a corpus, as in {kind}:books.txt.")
    return load_corpus(name if kind in LOADED_BY_NAME else corpus, options.data_dir, seed=options.data_seed)


LOADED_BY_NAME = ("skip-thought", "next-sentence", "dissent")
"""Objectives whose rows are made from another corpus when it is loaded."""


@dataclass(frozen=True, slots=True)
class Requested:
    """A requested objective on a corpus, whose rows are extracted once, to files.

    Attributes
    ----------
    kind : CorpusKind
        What a row is.
    size : dict[str, int]
        Number of rows of train and dev that are used.
    """

    name: str
    corpus: str
    kind: CorpusKind
    encoder: Encoded
    options: EncoderOptions
    place: Path
    module: str
    progress: Progress
    size: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, encoder: Encoded, options: EncoderOptions, place: Path, module: str, progress: Progress
    ) -> Requested:
        """Read the corpus; raises DataError if train or dev has no rows."""
        corpus = corpus_of(name, options)
        requested = cls(name, corpus.name, corpus.kind, encoder, options, place, module, progress)
        for split, limit in (("train", options.limit), ("dev", options.dev_limit)):
            if split not in corpus.splits:
                raise DataError(f"{corpus.name} has no split {split}, which {name} needs.")
            count = requested.write(split, (row for row in corpus.splits[split]() if all(row)))
            if not count:
                raise DataError(f"{corpus.name} has no examples in {split}.")
            if limit and limit < count:
                draw = np.random.default_rng((options.data_seed, split == "dev"))
                kept = set(draw.choice(count, limit, replace=False, shuffle=False).tolist())
                requested.write(split, [row for i, row in enumerate(requested.rows(split)) if i in kept])
        return requested

    def write(self, split: str, rows: Iterable[Row]) -> int:
        """Write rows in place of those of a split; returns their number."""
        self.size[split] = 0
        new = self.place / "rows.jsonl"
        with new.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                self.size[split] += 1
        new.replace(self.place / f"{split}.jsonl")
        return self.size[split]

    def rows(self, split: str) -> Iterator[Row]:
        """The rows of a split: those without an empty part; drawn at random if there is a limit, in their order."""
        with (self.place / f"{split}.jsonl").open(encoding="utf-8") as file:
            yield from map(tuple, map(json.loads, file))

    def column(self, split: str, i: int) -> Iterator[str]:
        """The texts of one column."""
        return (row[i] for row in self.rows(split))

    def check(self, kind: CorpusKind) -> None:
        """Raise UsageError if the rows are of another kind."""
        if self.kind is not kind:
            raise UsageError(f"{self.name} needs a corpus of {kind}; {self.corpus} has {self.kind}.")

    def read(self, *columns: int) -> dict[str, list[Sequences]]:
        """Columns of train and dev as the encoder reads them; words of characters have one index in all."""
        types = Types()
        return {
            split: [
                tokenized(
                    self.column(split, i), self.encoder.reader, self.place / f"{split}{i}", types=types,
                    total=size, progress=self.progress,
                )
                for i in columns
            ]
            for split, size in self.size.items()
        }  # fmt: skip

    def check_known(self, ids: np.ndarray) -> None:
        """Raise DataError if all of these output words are unknown."""
        if not ids.any():
            raise DataError(
                f"{self.name}: the vocabulary of outputs, from the training text, has none of the words of dev; are "
                "both of the same language?"
            )

    def made(
        self,
        head: Head,
        data: Sequence[SequenceData],
        main: str,
        score: Callable[..., dict[str, float]],
        chance: Chance,
        *,
        vocabulary: Vocabulary | None = None,
        **about: Any,
    ) -> PretrainingObjective:
        """The objective, with what a card says of it."""
        train, dev = data
        about |= {"corpus": self.corpus, "truncated": [part.truncated for part in data]}
        scored = partial(score, data=dev, module=self.module)
        return PretrainingObjective(
            self.name, head, train, dev, metric(main), scored, about, chance, self.module, vocabulary
        )
