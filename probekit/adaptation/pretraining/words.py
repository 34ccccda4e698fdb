"""Objectives that predict words: language models, masked ones too, decoders and denoising."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from probekit.adaptation.heads.decoder import DecoderHead
from probekit.adaptation.heads.head import IGNORED
from probekit.adaptation.heads.language_model_head import LanguageModelHead, MaskedLanguageModelHead, check_both_sides
from probekit.adaptation.pretraining.corpora.kinds import CorpusKind, Row
from probekit.adaptation.pretraining.objective import Encoded, PretrainingObjective, Requested
from probekit.adaptation.pretraining.outputs import BEGIN, END, Outputs, Pieces
from probekit.adaptation.pretraining.scoring import perplexity, unigrams
from probekit.adaptation.pretraining.sequences import MaskedData, SequenceData, Sequences
from probekit.errors import DataError, UsageError
from probekit.models.transformers.tokens import Tokenizer, load_tokenizer

DROPPED, SWAPPED = 0.1, 0.1
"""Denoising: probability that a word is left out, and that two neighbours change places (Hill et al. 2016)."""
CHUNK = 1 << 20
"""Pieces that are counted at once."""


def language_model(requested: Requested) -> PretrainingObjective:
    """Each word from those before it, and from those after it by an encoder with separate directions."""
    train, dev, of_types, outputs = _texts(requested)
    data = [SequenceData(part, of_types=of_types) for part in (train, dev)]
    head = LanguageModelHead.of_encoder(requested.encoder.model, outputs)
    chance = unigrams(*(_neighbours(part, of_types, outputs, both=head.cells is not None) for part in (train, dev)))
    return requested.made(head, data, "perplexity", perplexity, chance, outputs=outputs)


def masked_language_model(requested: Requested) -> PretrainingObjective:
    """Hidden pieces from those around them (Devlin et al. 2019); dev has the same ones in each validation."""
    encoder, seed = requested.encoder, requested.options.data_seed
    train, dev, of_types, outputs = _texts(requested)
    masks = {"mask": check_masking(encoder), "vocabulary": encoder.model.config.vocab_size}
    data = MaskedData(train, of_types, **masks), MaskedData(dev, of_types, **masks).drawn(seed)
    assert data[1].targets is not None
    predicted = data[1].targets.ids[data[1].targets.ids != IGNORED]
    if not len(predicted):
        raise DataError(
            f"{requested.name}: dev has {int((~dev.special).sum()):,} pieces, none of which was drawn to be hidden (of "
            "15 %). Give more text."
        )
    head = MaskedLanguageModelHead(encoder.width, outputs)
    readable = _count(train.ids[~train.special], of_types, outputs)
    chance = unigrams(readable, np.bincount(predicted, minlength=outputs))
    return requested.made(head, data, "perplexity", perplexity, chance, outputs=outputs, hidden=len(predicted))


def check_masking(encoder: Encoded) -> int:
    """The piece that hides others.

    Raises
    ------
    UsageError
        If the encoder has none, or reads only the words before each one.
    """
    mask = load_tokenizer(encoder.folder).mask_token_id if isinstance(encoder.reader, Tokenizer) else None
    if mask is None:
        reads = "a tokenizer without a piece for masks" if isinstance(encoder.reader, Tokenizer) else "words"
        raise UsageError(
            f"this {encoder.model.config.model_type} reads {reads}; masked-language-model needs word pieces and a "
            "piece for masks. Take an encoder with the tokenizer of a BERT, or the objective language-model."
        )
    check_both_sides(encoder.model)
    return int(mask)


def _texts(requested: Requested) -> tuple[Sequences, Sequences, np.ndarray, int]:
    """The texts of train and dev, the output word of each piece, and the number of output words."""
    requested.check(CorpusKind.SENTENCES)
    (train,), (dev,) = requested.read(0).values()
    count = np.zeros(1 + max(int(part.ids.max()) for part in (train, dev)), np.int64)
    for start in range(0, len(train.ids), CHUNK):
        count += np.bincount(train.ids[start : start + CHUNK], minlength=len(count))
    known = np.argsort(-count, kind="stable")[: requested.options.outputs - END - 1]
    known = known[count[known] > 0]
    of_types = np.zeros(len(count), np.int64)
    of_types[known] = END + 1 + np.arange(len(known))
    requested.check_known(of_types[dev.ids[~dev.special]])
    return train, dev, of_types, END + 1 + len(known)


def _count(pieces: np.ndarray, of_types: np.ndarray, outputs: int) -> np.ndarray:
    """How often each output word occurs in some pieces, int64 (outputs,)."""
    count = np.zeros(outputs, np.int64)
    for start in range(0, len(pieces), CHUNK):
        count += np.bincount(of_types[pieces[start : start + CHUNK]], minlength=outputs)
    return count


def _neighbours(part: Sequences, of_types: np.ndarray, outputs: int, *, both: bool) -> np.ndarray:
    """How often a language model predicts each output word: all but the first of a text; backwards, all but the last.

    Parameters
    ----------
    both : bool
        Whether there is a backward direction.
    """
    texts = part.length > 0
    ends = [part.ids[part.start[:-1][texts]], part.ids[part.start[1:][texts] - 1]][: 1 + both]
    every = _count(part.ids, of_types, outputs)
    return sum((every - _count(end, of_types, outputs) for end in ends), np.zeros_like(every))


def decode(requested: Requested) -> PretrainingObjective:
    """A second sequence from the first: a translation, a reply, the next sentence."""
    requested.check(CorpusKind.PAIRS)
    options, data, counts = requested.options, [], []
    vocabulary = Pieces if options.output_pieces else Outputs
    outputs = vocabulary.of(requested.column("train", 1), options.outputs)
    for split, (first,) in requested.read(0).items():
        targets = outputs.written(requested.column(split, 1), requested.place / f"{split}-out", options.max_length)
        requested.check_known(targets.ids)
        data.append(SequenceData(first, targets=targets))
        counts.append(_count(targets.ids, np.arange(len(outputs)), len(outputs)))
        counts[-1][END] = (targets.length > 0).sum()
    attention = options.attends(requested.name)
    head = DecoderHead(requested.encoder.width, len(outputs), begin=BEGIN, end=END, attention=attention)
    return requested.made(
        head, data, "perplexity", perplexity, unigrams(*counts), vocabulary=outputs, outputs=len(outputs),
        attention=attention,
    )  # fmt: skip


def denoise(requested: Requested) -> PretrainingObjective:
    """A sentence from its words, of which some are missing or have changed places."""
    requested.check(CorpusKind.SENTENCES)
    for split in requested.size:
        requested.write(split, _noisy(requested.rows(split), requested.options.data_seed))
    return decode(replace(requested, kind=CorpusKind.PAIRS))


def _noisy(rows: Iterable[Row], seed: int) -> Iterator[Row]:
    draw = np.random.default_rng(seed)
    for text, *_ in rows:
        words = text.split()
        words = [word for word, drop in zip(words, draw.random(len(words)) < DROPPED, strict=True) if not drop]
        for k in range(0, len(words) - 1, 2):
            if draw.random() < SWAPPED:
                words[k : k + 2] = words[k + 1], words[k]
        yield " ".join(words), text
