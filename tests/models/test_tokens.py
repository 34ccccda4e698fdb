"""Texts to flat arrays of word pieces."""

import json
import shutil

import numpy as np
import pytest
import tiny
from transformers import AutoTokenizer

from probekit.errors import UsageError
from probekit.models import load_encoder


@pytest.fixture(scope="module")
def bert(tiny_bert):
    return load_encoder(tiny_bert)


def parts(tokens):
    """One dict of lists a sequence."""
    ends = np.cumsum(tokens.length)
    names = ("token_ids", "special", "type_ids", "word_index", "char_start", "char_end")
    return [
        {n: getattr(tokens, n)[e - k : e].tolist() for n in names} for k, e in zip(tokens.length, ends, strict=True)
    ]


def spelt(encoder, ids):
    return [encoder.tokenizer.backend.id_to_token(i) for i in ids]


def test_dtypes_and_sizes(bert):
    tokens = bert.tokenize(["the cat sleeps.", "", ("the cat", "a dog"), (("the", "unhappy", "dogs"),)])
    kinds = {n: getattr(tokens, n).dtype for n in tokens.__slots__ if n != "characters"}
    assert tokens.characters is None  # its vocabulary is closed
    assert kinds == {
        "token_ids": np.int32, "length": np.int64, "special": np.bool_, "type_ids": np.uint8,
        "word_index": np.int32, "char_start": np.int32, "char_end": np.int32, "truncated": np.bool_,
    }  # fmt: skip
    assert tokens.length.tolist() == [6, 2, 7, 7]
    assert len(tokens.token_ids) == tokens.length.sum()
    assert not tokens.truncated.any()


def test_words_and_characters_of_plain_text(bert):
    text = "The unhappy dogs sleep."
    one = parts(bert.tokenize([text]))[0]
    assert spelt(bert, one["token_ids"]) == ["[CLS]", "the", "un", "##happy", "dog", "##s", "sleep", ".", "[SEP]"]
    assert one["word_index"] == [-1, 0, 1, 1, 2, 2, 3, 4, -1]
    assert one["special"] == [True, *[False] * 7, True]
    covered = [text[a:b] for a, b in zip(one["char_start"], one["char_end"], strict=True)]
    assert covered == ["", "The", "un", "happy", "dog", "s", "sleep", ".", ""]


def test_words_of_a_pair_count_on(bert):
    one = parts(bert.tokenize([("the dogs", "a cat")]))[0]
    assert one["word_index"] == [-1, 0, 1, 1, -1, 2, 3, -1]
    assert one["type_ids"] == [0, 0, 0, 0, 0, 1, 1, 1]
    assert one["char_start"] == [0, 0, 4, 7, 0, 0, 2, 0]


def test_given_words(bert):
    words = ("the", "dogs,", "sleep")
    one = parts(bert.tokenize([(words,)]))[0]
    assert one["word_index"] == [-1, 0, 1, 1, 1, 2, -1]
    covered = [
        words[w][a:b] for w, a, b in zip(one["word_index"], one["char_start"], one["char_end"], strict=True) if w >= 0
    ]
    assert covered == ["the", "dog", "s", ",", "sleep"]


@pytest.mark.parametrize("family", ["roberta", "gpt2", "t5", "bert"])
def test_given_words_are_read_as_running_text(family, tiny_model):
    encoder = load_encoder(tiny_model(family))
    words = ("the", "cat", "sees", "the", "cat")
    plain, given = parts(encoder.tokenize([" ".join(words), (words,)]))
    assert given["token_ids"] == plain["token_ids"]
    index = [w for w in given["word_index"] if w >= 0]
    assert sorted(set(index)) == [0, 1, 2, 3, 4]
    assert index == sorted(index)
    letters = dict.fromkeys(range(5), "")
    for w, a, b in zip(given["word_index"], given["char_start"], given["char_end"], strict=True):
        if w >= 0:
            letters[w] += words[w][a:b]
    assert tuple(letters.values()) == words


def test_mixed_kinds_keep_their_order(bert):
    texts = ["the cat", (("a", "dog"),), ("the", "cat"), "dog", (("bird",),)]
    together = parts(bert.tokenize(texts))
    assert together == [parts(bert.tokenize([text]))[0] for text in texts]


@pytest.mark.parametrize("family", tiny.families(tiny.FAMILIES))
def test_as_the_tokenizer_itself(family, tiny_model):
    encoder, tokenizer = load_encoder(tiny_model(family)), AutoTokenizer.from_pretrained(tiny_model(family))
    texts = ["The cat, the dog!", "", "unknowable Ünïcode 你好", ("the cat", "a dog runs"), "  two  blanks "]
    for text, one in zip(texts, parts(encoder.tokenize(texts)), strict=True):
        theirs = tokenizer(*text) if isinstance(text, tuple) else tokenizer(text)
        assert one["token_ids"] == theirs["input_ids"]


def test_more_texts_than_a_chunk(bert):
    texts = ["the cat", "a dog sleeps"] * 3000
    tokens = bert.tokenize(texts)
    assert tokens.length.tolist() == [4, 5] * 3000
    assert np.array_equal(tokens.token_ids[-9:], tokens.token_ids[:9])


def test_truncation_is_told(bert):
    tokens = bert.tokenize(["the " * 38, "the " * 39, ("cat " * 50, "dog " * 4), "dog"])
    assert tokens.length.tolist() == [40, 40, 40, 3]
    assert tokens.truncated.tolist() == [False, True, True, False]
    pair = parts(tokens)[2]
    assert pair["type_ids"].count(1) == 5  # the longer one is cut first
    assert bert.max_length == 40


def test_the_side_that_is_cut_is_the_tokenizers(tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "left")
    config = json.loads((folder / "tokenizer_config.json").read_text()) | {
        "truncation_side": "left",
        "padding_side": "left",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    left = load_encoder(folder, max_length=4)
    assert spelt(left, left.tokenize(["the cat sleeps ."]).token_ids.tolist()) == ["[CLS]", "sleeps", ".", "[SEP]"]


def test_a_shorter_length(tiny_bert, tiny_model):
    encoder = load_encoder(tiny_bert, max_length=8)
    assert encoder.max_length == encoder.spec["max_length"] == 8
    assert encoder.tokenize(["the cat " * 9]).length.tolist() == [8]
    with pytest.raises(UsageError, match="3 to 40"):
        load_encoder(tiny_bert, max_length=41)
    with pytest.raises(UsageError, match="3 to 40"):
        load_encoder(tiny_bert, max_length=2)
    with pytest.raises(UsageError, match="no room for the special tokens around"):
        load_encoder(tiny_model("roberta"), max_length=3).tokenize([("the cat", "a dog")])  # <s> </s></s> </s>


def test_positions_that_roberta_has(tiny_model):
    assert load_encoder(tiny_model("roberta")).max_length == 40  # of 42 positions, two before the first piece


def test_nothing(bert, tiny_gpt2):
    tokens = bert.tokenize(["", " ", ((),)])
    assert tokens.length.tolist() == [2, 2, 2]
    assert tokens.special.all()
    nothing = load_encoder(tiny_gpt2).tokenize(["", "dog", ""])
    assert nothing.length[[0, 2]].tolist() == [0, 0]
    assert nothing.length[1] > 0
    assert bert.tokenize([]).length.shape == (0,)


@pytest.mark.parametrize("bad", [None, 3, "broken \ud800 surrogate"])
def test_what_is_no_text(bert, bad):
    with pytest.raises(UsageError, match="expected Unicode text"):
        bert.tokenize(["the cat", bad])
