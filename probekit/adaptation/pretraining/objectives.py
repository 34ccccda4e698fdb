"""What a shared encoder is trained on: an objective has examples, a head with its loss, and a metric.

The objectives of Bowman et al. (2018, section 3) by name: ``language-model:CORPUS``, ``translate:CORPUS``,
``skip-thought:CORPUS``, ``dissent:CORPUS``, ``reply:CORPUS``, ``respond:CORPUS``, and any task (``sst2``). Beside
them ``next-sentence:CORPUS`` (Devlin et al. 2019), ``contrast:CORPUS`` (in-batch negatives) and ``denoise:CORPUS``
(Hill et al. 2016).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from probekit.adaptation.data.batches import Batched, Batches
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.data.text import TextData
from probekit.adaptation.data.validation import DEFAULT_SHARE, divided
from probekit.adaptation.heads.decoder import DecoderHead
from probekit.adaptation.heads.head import Head
from probekit.adaptation.heads.in_batch import ContrastiveHead, ResponseHead
from probekit.adaptation.heads.language_model_head import LanguageModelHead
from probekit.adaptation.heads.spec import HeadSpec
from probekit.adaptation.pretraining.corpora.corpus import CORPORA, Corpus, CorpusKind, Row, load_corpus
from probekit.adaptation.pretraining.sequences import (
    BEGIN,
    END,
    Outputs,
    Pieces,
    SequenceData,
    Sequences,
    Types,
    tokenized,
)
from probekit.adaptation.runs.predictions import on_device, predict
from probekit.adaptation.training import objective as supervised
from probekit.adaptation.training.learners import Learner
from probekit.errors import DataError, UsageError, did_you_mean
from probekit.files import digest_of_content
from probekit.metrics import Metric, metric
from probekit.models import conversion
from probekit.models.loading import TextReader
from probekit.runtime import Progress, no_progress
from probekit.tasks import load_task
from probekit.tasks.load import DATASETS
from probekit.tasks.task import Split, Task, TaskKind

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from probekit.adaptation.pretraining.options import EncoderOptions

__all__ = ["OBJECTIVES", "Encoded", "PretrainingObjective", "make_objective", "source_digests"]

DROPPED, SWAPPED = 0.1, 0.1
"""Denoising: probability that a word is left out, and that two neighbours change places (Hill et al. 2016)."""
CHUNK = 1 << 20
"""Pieces that are counted at once."""
MOST = 700.0
"""Nats whose exponential is a number."""


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
    module : str
        Name of the head in the learner.
    """

    name: str
    head: Head
    train: Batched
    dev: Batched
    metric: Metric
    score: Callable[[Learner, int, str], dict[str, float]]
    about: Mapping[str, Any]
    module: str = "head"


@dataclass(frozen=True, slots=True)
class Encoded:
    """What an objective must know of the encoder.

    Attributes
    ----------
    model : PreTrainedModel
        The encoder.
    reader : TextReader
        Texts to its inputs.
    """

    model: PreTrainedModel
    reader: TextReader

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return int(self.model.config.hidden_size)


def make_objective(
    name: str,
    encoder: Encoded,
    options: EncoderOptions,
    place: Path,
    *,
    module: str = "head",
    progress: Progress = no_progress,
) -> PretrainingObjective:
    """The objective called ``name``, with its tokenised examples.

    Parameters
    ----------
    place : Path
        A new folder for tokenised text.

    Raises
    ------
    UsageError
        For an unknown name, or an objective that does not fit the encoder or the corpus.
    DataError
        For data without examples, without labels on dev, or of which the vocabulary has no word.
    """
    kind = name.partition(":")[0]
    if kind not in OBJECTIVES:
        return _task(name, encoder, options, module)
    if kind == "language-model":
        LanguageModelHead.of_encoder(encoder.model, 4)  # an encoder that sees the words is refused before they are read
    place.mkdir(parents=True)
    return OBJECTIVES[kind](_Asked.of(name, encoder, options, place, module, progress))


def source_digests(name: str, options: EncoderOptions) -> dict[str, str]:
    """The digests of what an objective is trained and validated on: of a corpus's files, or of a task's splits."""
    if name.partition(":")[0] in OBJECTIVES:
        files = _corpus(name, options).files
        return {f"{name} {_within(file, options.data_dir)}": digest_of_content(file) for file in files}
    return {f"{name} {part.name}": part.digest() for part in _splits(name, options)[1]}


def _within(file: Path, folder: Path | None) -> Path:
    """A file by its place in the data folder, so that both may move; by its name outside."""
    inside = folder is not None and file.is_relative_to(folder)
    return file.relative_to(folder) if folder is not None and inside else Path(file.name)


def _corpus(name: str, options: EncoderOptions) -> Corpus:
    kind, _, corpus = name.partition(":")
    if not corpus and kind not in CORPORA:
        raise UsageError(f"{kind} needs a corpus, as in {kind}:books.txt.")
    return load_corpus(name if kind in LOADED_BY_NAME else corpus, options.data_dir, seed=options.data_seed)


LOADED_BY_NAME = ("skip-thought", "next-sentence", "dissent")
"""Objectives whose rows are made from another corpus when it is loaded."""


@dataclass(frozen=True, slots=True)
class _Asked:
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
    ) -> _Asked:
        """Read the corpus; raises DataError if train or dev has no rows."""
        corpus = _corpus(name, options)
        asked = cls(name, corpus.name, corpus.kind, encoder, options, place, module, progress)
        for split, limit in (("train", options.limit), ("dev", options.dev_limit)):
            if split not in corpus.splits:
                raise DataError(f"{corpus.name} has no split {split}, which {name} needs.")
            count = asked.write(split, (row for row in corpus.splits[split]() if all(row)))
            if not count:
                raise DataError(f"{corpus.name} has no examples in {split}.")
            if limit and limit < count:
                draw = np.random.default_rng((options.data_seed, split == "dev"))
                kept = set(draw.choice(count, limit, replace=False, shuffle=False).tolist())
                asked.write(split, [row for i, row in enumerate(asked.rows(split)) if i in kept])
        return asked

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
        self, head: Head, data: Sequence[SequenceData], main: str, score: Callable[..., dict[str, float]], **about: Any
    ) -> PretrainingObjective:
        """The objective, with what a card says of it."""
        train, dev = data
        about |= {"corpus": self.corpus, "truncated": [part.truncated for part in data]}
        scored = partial(score, data=dev, module=self.module)
        return PretrainingObjective(self.name, head, train, dev, metric(main), scored, about, self.module)


def _language_model(asked: _Asked) -> PretrainingObjective:
    """Each word from those before it, and from those after it by an encoder with separate directions."""
    asked.check(CorpusKind.SENTENCES)
    (train,), (dev,) = asked.read(0).values()
    count = np.zeros(1 + max(int(part.ids.max()) for part in (train, dev)), np.int64)
    for start in range(0, len(train.ids), CHUNK):
        count += np.bincount(train.ids[start : start + CHUNK], minlength=len(count))
    known = np.argsort(-count, kind="stable")[: asked.options.outputs - END - 1]
    known = known[count[known] > 0]
    of_types = np.zeros(len(count), np.int64)
    of_types[known] = END + 1 + np.arange(len(known))
    asked.check_known(of_types[dev.ids[~dev.special]])
    outputs = END + 1 + len(known)
    data = [SequenceData(part, of_types=of_types) for part in (train, dev)]
    return asked.made(
        LanguageModelHead.of_encoder(asked.encoder.model, outputs), data, "perplexity", _perplexity, outputs=outputs
    )


def _decode(asked: _Asked) -> PretrainingObjective:
    """A second sequence from the first: a translation, a reply, the next sentence."""
    asked.check(CorpusKind.PAIRS)
    options, data = asked.options, []
    vocabulary = Pieces if options.output_pieces else Outputs
    outputs = vocabulary.of(asked.column("train", 1), options.outputs)
    for split, (first,) in asked.read(0).items():
        targets = outputs.written(asked.column(split, 1), asked.place / f"{split}-out", options.max_length)
        asked.check_known(targets.ids)
        data.append(SequenceData(first, targets=targets))
    head = DecoderHead(asked.encoder.width, len(outputs), begin=BEGIN, end=END, attention=options.attention)
    return asked.made(head, data, "perplexity", _perplexity, outputs=len(outputs), attention=options.attention)


def _denoise(asked: _Asked) -> PretrainingObjective:
    """A sentence from its words, of which some are missing or have changed places."""
    asked.check(CorpusKind.SENTENCES)
    for split in asked.size:
        asked.write(split, _noisy(asked.rows(split), asked.options.data_seed))
    return _decode(replace(asked, kind=CorpusKind.PAIRS))


def _noisy(rows: Iterable[Row], seed: int) -> Iterator[Row]:
    draw = np.random.default_rng(seed)
    for text, *_ in rows:
        words = text.split()
        words = [word for word, drop in zip(words, draw.random(len(words)) < DROPPED, strict=True) if not drop]
        for k in range(0, len(words) - 1, 2):
            if draw.random() < SWAPPED:
                words[k : k + 2] = words[k + 1], words[k]
        yield " ".join(words), text


def _respond(asked: _Asked) -> PretrainingObjective:
    """Whether the second text of a pair belongs to the first; wrong ones are those of other pairs in the batch."""
    options = asked.options
    head = ResponseHead(asked.encoder.width, hidden_size=options.hidden_size, dropout=options.dropout)
    return _in_batch(asked, head)


def _contrast(asked: _Asked) -> PretrainingObjective:
    """Which of the second texts of a batch belongs to the first, by their cosine."""
    return _in_batch(asked, ContrastiveHead())


def _in_batch(asked: _Asked, head: Head) -> PretrainingObjective:
    asked.check(CorpusKind.PAIRS)
    if lone := [split for split, size in asked.size.items() if size < 2]:
        raise DataError(f"{asked.name}: {lone[0]} has one pair; others are needed to choose from.")
    data = [SequenceData(*both) for both in asked.read(0, 1).values()]
    candidates = 2 if isinstance(head, ResponseHead) else asked.options.batch_size
    return asked.made(head, data, "accuracy", partial(_accuracy, in_batch=True), candidates=candidates)


def _next_sentence(asked: _Asked) -> PretrainingObjective:
    """Whether a sentence follows another; for half of the pairs, the second is that of another pair."""
    asked.check(CorpusKind.PAIRS)
    data = []
    for split, (first, second) in asked.read(0, 1).items():
        draw, n = np.random.default_rng((asked.options.data_seed, split == "dev")), len(first.length)
        if n < 2:
            raise DataError(f"{asked.name}: {split} has one pair; others are needed for sentences that do not follow.")
        labels = draw.integers(2, size=n)
        other = (np.arange(n) + draw.integers(1, n, size=n)) % n
        data.append(SequenceData(first, second, labels=labels, partner=np.where(labels == 1, np.arange(n), other)))
    return _classes(asked, data, ("random", "next"))


def _dissent(asked: _Asked) -> PretrainingObjective:
    """The discourse marker between two clauses (Nie et al. 2019)."""
    asked.check(CorpusKind.CLAUSES)
    names = tuple(sorted(set(asked.column("train", 2))))
    index, data = {marker: i for i, marker in enumerate(names)}, []
    for split, (first, second) in asked.read(0, 1).items():
        markers = list(asked.column(split, 2))
        if unknown := sorted(set(markers) - set(names)):
            raise DataError(
                f"{asked.name}: {split} has the marker {unknown[0]!r}, which the {asked.size['train']:,} examples of "
                "train lack. Train on more examples (--limit), or take it out of dev."
            )
        data.append(SequenceData(first, second, labels=np.array([index[marker] for marker in markers])))
    return _classes(asked, data, names)


def _classes(asked: _Asked, data: Sequence[SequenceData], names: tuple[str, ...]) -> PretrainingObjective:
    """Classes of pairs of texts."""
    if len(names) < 2:
        raise DataError(f"{asked.name}: all training examples have the same class, {names[0]}.")
    task = TaskSpec(asked.name, TaskKind.CLASSIFICATION, names, ("accuracy",), paired=True)
    head = _max_mlp(asked.encoder, asked.options, apart=True).build(task)
    return asked.made(head, data, "accuracy", _accuracy, labels=list(names))


def _max_mlp(encoder: Encoded, options: EncoderOptions, *, apart: bool) -> HeadSpec:
    """The classifier of Bowman et al. (2018), without attention."""
    return HeadSpec(
        head="max-mlp", width=encoder.width, pairs_apart=apart, hidden_size=options.hidden_size, dropout=options.dropout
    )


def _splits(name: str, options: EncoderOptions) -> tuple[Task, tuple[Split, Split]]:
    """A task with its examples to train and validate on: a tenth of train if there is no dev split."""
    kind, colon, rest = name.partition(":")
    if Path(name).suffix == ".txt" or (colon and kind not in (*DATASETS, "grammar") and not Path(kind).exists()):
        what = f"unknown objective {kind!r}; {did_you_mean(kind, list(OBJECTIVES))}" if colon else f"{name} is a text."
        raise UsageError(f"{what} Write the objective before the corpus, as in skip-thought:{rest or name}.")
    try:
        task = load_task(name, data_dir=options.data_dir if name.partition(":")[0] in DATASETS else None)
    except UsageError as error:
        text = ", ".join(f"{kind}:CORPUS" for kind in OBJECTIVES)
        raise UsageError(f"{error} The objectives on text are {text}.") from None
    train = task.split("train").sample(options.limit, options.data_seed)
    names = [split for split in task.splits if split.startswith("dev")]  # mnli has dev-matched
    if names:
        dev = task.split(names[0])
    else:
        train, dev, _ = divided(task.kind, train, DEFAULT_SHARE, options.data_seed)
    return task, (train, dev.sample(options.dev_limit, options.data_seed))


def _task(name: str, encoder: Encoded, options: EncoderOptions, module: str) -> PretrainingObjective:
    """A labelled task: sentences, pairs or words."""
    task, (train, dev) = _splits(name, options)
    spec = TaskSpec.of_task(task, "train")
    apart = spec.paired and conversion.reads_apart(encoder.model.config.model_type)
    head = _max_mlp(encoder, options, apart=apart)
    head = replace(head, head="softmax", hidden_size=None) if spec.tags else head
    first, second = (TextData(task, part, encoder.reader, apart=apart) for part in (train, dev))
    checked = supervised.Objective(spec, head, first, second, module=module)
    checked.check_labels()
    about = {"labels": list(spec.label_names), "truncated": [first.truncated, second.truncated]}
    score = partial(_metrics, data=second, task=spec, module=module)
    return PretrainingObjective(name, head.build(spec), first, second, checked.metric, score, about, module)


OBJECTIVES: dict[str, Callable[..., PretrainingObjective]] = {
    "language-model": _language_model,
    "translate": _decode,
    "skip-thought": _decode,
    "reply": _decode,
    "denoise": _denoise,
    "dissent": _dissent,
    "next-sentence": _next_sentence,
    "respond": _respond,
    "contrast": _contrast,
}
"""The objectives on text, ``NAME:CORPUS``; the others are names of tasks."""


def _metrics(
    learner: Learner, batch_size: int, device: str, *, data: TextData, task: TaskSpec, module: str
) -> dict[str, float]:
    return predict(learner, data, task, module=module, batch_size=batch_size, device=device).metrics


@torch.inference_mode()
def _perplexity(learner: Learner, batch_size: int, device: str, *, data: SequenceData, module: str) -> dict[str, float]:
    """The perplexity of the predicted words, and their mean loss in nats."""
    head: Any = learner.get_submodule(module)
    nats, count = 0.0, 0
    for batch in _batches(learner, data, batch_size, device):
        states, labels = learner.read(batch["first"]), batch["labels"]
        predicted = head.count(labels, states)
        nats += float(head.loss(head(states), labels, states)) * predicted
        count += predicted
    loss = nats / max(count, 1)
    return {"perplexity": exp(min(loss, MOST)), "loss": loss}


@torch.inference_mode()
def _accuracy(
    learner: Learner, batch_size: int, device: str, *, data: SequenceData, module: str, in_batch: bool = False
) -> dict[str, float]:
    """The share of correct classes, and the mean loss in nats; heads over a batch predict what is correct."""
    right, nats = 0.0, 0.0
    for batch in _batches(learner, data, batch_size, device):
        out = learner(**batch, module=module)
        correct = out["predictions"] if in_batch else out["predictions"] == batch["labels"]
        right += float(correct.sum())
        nats += float(out["loss"]) * len(batch["labels"])
    return {"accuracy": right / len(data), "loss": nats / len(data)}


def _batches(learner: Learner, data: SequenceData, batch_size: int, device: str) -> Iterator[dict[str, Any]]:
    learner.eval()
    for rows in Batches(data, batch_size, shuffle=False):
        yield on_device(device, data.__getitems__(rows))
