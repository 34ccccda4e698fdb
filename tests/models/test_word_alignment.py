"""The words that pieces belong to, for every kind of tokenizer, beside a slow twin built on characters."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import tiny
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from probekit.models.scoring.reading import read
from probekit.models.transformers.tokens import Tokenizer as Reader
from probekit.models.transformers.tokens import between_blanks, finds_words

LETTERS = [*"abcdefghijklmnopqrstuvwxyzTQ.,!?0123456789-\u2581\u65e5\u672c"]
MERGES = [("t", "h"), ("th", "e"), ("\u2581", "the"), ("\u2581", "q"), ("o", "g"), ("\u2581", "\u2581")]
TEXTS = [
    *("the quick brown fox", "", " ", "   ", " the dog ", "the  dog", "a\tb\nc", "the\u00a0dog", "the\u2028dog"),
    *("\u3000the\u3000", "the\u200bdog", "\u200b", "a \u200b b", "a \x00 b", "a \x07b", "\ufeffthe", "\x1cthe\x1fdog"),
    *("caf\u00e9 cafe\u0301", "\u65e5\u672c\u8a9e \u65e5\u672c", "\U0001f600 ok \U0001f469\u200d\U0001f4bb.", "a\r\nb"),
    *("don't stop, the-dog!", "\u2581the \u2581", "x" * 60, "the" * 20 + " q", "12 345,6", "TheQuick", "\ud7ff a"),
]


def bpe(normalizer, pre_tokenizer=None, byte_fallback=True):
    """A BPE of characters and a few merges, with pieces of bytes for others."""
    pieces = ["<unk>", "<s>", "<pad>", *(f"<0x{i:02X}>" for i in range(256)), *LETTERS, *(a + b for a, b in MERGES)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    made = Tokenizer(models.BPE(vocabulary, MERGES, unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback))
    made.normalizer = normalizer
    if pre_tokenizer is not None:
        made.pre_tokenizer = pre_tokenizer
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    made.decoder = decoders.Sequence([])
    return made


def marked(*first):
    return normalizers.Sequence([*first, normalizers.Replace(" ", "\u2581")])


def unigram():
    """SentencePiece's other model, without a pre-tokenizer."""
    pieces = [
        ("<unk>", -9.0),
        ("<s>", 0.0),
        *((piece, -4.0) for piece in [*LETTERS, "\u2581the", "dog", "\u2581\u2581"]),
    ]
    made = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    made.normalizer = marked()
    return made


KINDS = {
    "word pieces": lambda: tiny.tiny_tokenizer("bert").backend_tokenizer,
    "bytes": lambda: tiny.tiny_tokenizer("gpt2").backend_tokenizer,
    "bytes with <s>": lambda: tiny.tiny_tokenizer("roberta").backend_tokenizer,
    "metaspace": lambda: tiny.tiny_tokenizer("t5").backend_tokenizer,
    "spaces marked": lambda: bpe(marked()),
    "spaces marked, unknown": lambda: bpe(marked(), byte_fallback=False),
    "spaces marked, and the start": lambda: bpe(marked(normalizers.Prepend("\u2581"))),
    "split at spaces that are gone": lambda: bpe(marked(), pre_tokenizers.Split(" ", "merged_with_previous")),
    "metaspace that does not split": lambda: bpe(None, pre_tokenizers.Metaspace(split=False)),
    "unigram": unigram,
    "characters": lambda: bpe(None, pre_tokenizers.Split("", "isolated")),
}
FIND_WORDS = {"word pieces", "bytes", "bytes with <s>", "metaspace"}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def reader(kind):
    return Reader(KINDS[kind](), 1 << 20)


def words_of(tokens):
    """The word and the characters of each piece of each text, without special pieces."""
    ends = np.cumsum(tokens.length)
    for n, end in zip(tokens.length, ends, strict=True):
        rows = range(end - n, end)
        yield [
            (int(tokens.word_index[r]), int(tokens.char_start[r]), int(tokens.char_end[r]))
            for r in rows if not tokens.special[r]
        ]  # fmt: skip


def twin(text, pieces):
    """The word of each piece, by a walk over characters."""
    of, number = [], -1
    for i, c in enumerate(text):
        if not c.isspace():
            number += i == 0 or text[i - 1].isspace()
        of.append(None if c.isspace() else number)
    found = []
    for a, b in pieces:
        own = [w for w in of[a:b] if w is not None]
        after = of[b] if b < len(of) and text[a:b] in ("", " ") else None
        before = [w for w in of[:b] if w is not None]
        found.append(own[0] if own else after if after is not None else before[-1] if before else min(0, number))
    return found


def test_which_tokenizers_find_words(kind):
    assert finds_words(KINDS[kind]()) == (kind in FIND_WORDS)


def test_plain_texts(kind, reader):
    for text, pieces in zip(TEXTS, words_of(reader(TEXTS)), strict=True):
        words = [word for word, *_ in pieces]
        assert words == sorted(words)  # in order
        if kind in FIND_WORDS:
            assert words == list(reader.backend.encode(text, add_special_tokens=False).word_ids)
        else:
            assert words == twin(text, [place for _, *place in pieces]), text
            covered = {i for _, a, b in pieces for i in range(a, b)}
            has_piece = {j for j, w in enumerate(text.split()) if set(place_of(text, j)) & covered}
            assert set(words) - {-1} == has_piece, text
            if "unknown" not in kind:
                assert len(has_piece) == len(text.split()), text


def place_of(text, j):
    """The characters of the j-th word."""
    at = -1
    for _ in range(j + 1):
        word = text[at + 1 :].split()[0] if at < 0 else text[at:].split()[0]
        begin = text.index(word, max(at, 0))
        at = begin + len(word)
    return range(begin, at)


def test_pairs_count_on(kind, reader):
    pairs = [(a, b) for a, b in pairwise(TEXTS) if a.split() and b.split()]
    for pieces, alone, other in zip(
        words_of(reader(pairs)), words_of(reader([a for a, _ in pairs])),
        words_of(reader([b for _, b in pairs])), strict=True,
    ):  # fmt: skip
        most = max((word for word, *_ in alone), default=-1) + 1
        assert [w for w, *_ in pieces] == [*(w for w, *_ in alone), *(w + most for w, *_ in other)]


def test_given_words(kind, reader):
    """The pieces of each word are those of the word alone, or after a space; a word that is dropped has none."""
    given = [tuple(text.split()) for text in TEXTS if text.split()]
    blank = " " if reader._blank else ""
    for words, (pieces, ids) in zip(given, pieces_and_ids(reader, [(words,) for words in given]), strict=True):
        for j, word in enumerate(words):
            alone = reader.backend.encode([blank * (j > 0) + word], is_pretokenized=True, add_special_tokens=False)
            assert [i for (w, *_), i in zip(pieces, ids, strict=True) if w == j] == alone.ids, words
            for w, a, b in pieces:
                assert w != j or 0 <= a <= b <= len(word), words


def pieces_and_ids(reader, texts):
    tokens = reader(texts)
    ends = np.cumsum(tokens.length)
    ids = [tokens.token_ids[e - n : e][~tokens.special[e - n : e]] for n, e in zip(tokens.length, ends, strict=True)]
    return zip(words_of(tokens), ids, strict=True)


def test_pseudo_log_likelihoods_know_the_same_words(kind):
    backend = KINDS[kind]()

    class Named:
        backend_tokenizer, bos_token_id = backend, None

    texts = [text for text in TEXTS if text.split()]
    for text, one in zip(texts, read(Named, texts, 1 << 20, causal=False, start=False, since=None), strict=True):
        known = [w for w in one.words if w is not None]
        found = backend.encode(text, add_special_tokens=False)
        assert known == (found.word_ids if kind in FIND_WORDS else twin(text, found.offsets)), text


def test_a_piece_of_several_words_is_the_first_ones():
    start, end = np.array([0, 0, 4, 9]), np.array([1, 5, 9, 10])
    assert between_blanks("a b c defg", start, end).tolist() == [0, 0, 2, 3]
    assert between_blanks(" \t", start[:1], end[:1]).tolist() == [-1]
