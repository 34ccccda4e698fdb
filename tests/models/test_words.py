"""Words of sentences: NLTK's, or those between blanks; given ones; what is no sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.tokenize import NLTKWordTokenizer

from probekit.errors import ModelError, UsageError
from probekit.models.words import Splitting, read_splitting, read_words, versions

MARKS = st.sampled_from([*"\"'`.,:;()[]{}<>«»“”‘’„-—‒?!*#$%&@ \n\t\x85\x1c\xa0\u3000\u200b\x00éß日😀\ud800ast13"])
PARTS = st.sampled_from(
    ["``", "''", "...", "--", "n't", "'s", "'ll", "cannot", "gonna", " 'twas", "d'ye", "U.S.", "<S>"]
)
texts = st.lists(MARKS | PARTS, max_size=30).map("".join)


def words_of(text, splitting="treebank"):
    return read_words([text], Splitting(splitting)).words


def test_treebank():
    assert words_of("Don't you like \"it\", Mr. O'Neil (cannot)?") == [
        "Do", "n't", "you", "like", '"', "it", '"', ",", "Mr.", "O'Neil", "(", "can", "not", ")", "?",
    ]  # fmt: skip
    assert words_of("``A'' costs $3.50 -- no more.") == ["``", "A", "''", "costs", "$", "3.50", "--", "no", "more", "."]


def test_blanks():
    assert words_of(" Do n't\tstop , now.\n", "blanks") == ["Do", "n't", "stop", ",", "now."]


@settings(deadline=None, max_examples=400)
@given(text=texts, splitting=st.sampled_from(Splitting))
def test_no_character_is_lost(text, splitting):
    """Whatever the quotes are, which NLTK turns into others and back."""
    found = read_words([text], splitting)
    spans = list(zip(found.char_start.tolist(), found.char_end.tolist(), strict=True))
    assert [text[a:b] for a, b in spans] == found.words
    assert all(a < b for a, b in spans)
    covered = [i for a, b in spans for i in range(a, b)]
    assert covered == [i for i, character in enumerate(text) if not character.isspace()]  # once each, in order
    quote = lambda word: '"' if word in ("``", "''") else word  # noqa: E731
    whole = NLTKWordTokenizer().tokenize(text) if splitting is Splitting.TREEBANK else text.split()
    assert [*map(quote, found.words)] == [*map(quote, whole)]


@settings(deadline=None, max_examples=100)
@given(
    given=st.lists(texts | st.lists(texts, max_size=6).map(lambda w: (tuple(w),)), max_size=6), most=st.integers(1, 9)
)
def test_several_texts(given, most):
    """Each as if it were alone, and cut."""
    given = [text for text in given if isinstance(text, str) or len(text[0]) != 1]  # which may be sentences: see below
    together = read_words(given, Splitting.TREEBANK, most)
    one = [read_words([text], Splitting.TREEBANK) for text in given]
    assert together.length.tolist() == [min(len(x.words), most) for x in one]
    assert together.truncated.tolist() == [len(x.words) > most for x in one]
    assert together.words == [word for x in one for word in x.words[:most]]
    for name in ("word_index", "char_start", "char_end"):
        column = getattr(together, name)
        assert column.dtype == np.int32
        assert column.tolist() == [n for x in one for n in getattr(x, name)[:most].tolist()]
    assert together.word_index.tolist() == [i for n in together.length for i in range(n)]


def test_given_words_are_left_as_they_are():
    words = ("Don't", "", "a b", "\ud800", "日本")
    found = read_words([(words,), ((),)], Splitting.TREEBANK)
    assert found.words == list(words)
    assert found.length.tolist() == [5, 0]
    assert list(zip(found.char_start, found.char_end, strict=True)) == [(0, len(w)) for w in words]


BAD = {
    "a pair": (("A man.", "A woman."), "one sentence at a time, not the pair .*use separate for pairs"),
    "a list": (["A", "man", "."], "expected a string as text, or words in a tuple of one, got \\['A'"),
    "three": (("A", "man", "."), "expected a string as text, or words in a tuple of one"),
    "nothing": (None, "expected a string as text, or words in a tuple of one, got None"),
    "bytes": (b"A man.", "expected a string as text, or words in a tuple of one"),
    "a string for words": (("A man.",), "expected a list of words, got 'A man.'; give a sentence as a plain string"),
    "numbers for words": (((1, 2),), "expected a list of words, got \\(1, 2\\)"),
    "nothing for words": ((None,), "expected a list of words, got None"),
    "a sentence for a word": ((("A man sleeps now.",),), "its only word is a sentence, 'A man sleeps now.'; give its"),
}


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("splitting", Splitting)
def test_what_is_no_sentence(text, says, splitting):
    with pytest.raises(UsageError, match=says):
        read_words(["Fine.", text], splitting)


def test_a_word_may_have_a_blank():
    assert read_words([(("New York",),)], Splitting.BLANKS).words == ["New York"]


@pytest.mark.parametrize("told", [None, "{", "[]", "{}", '{"words": "spaces"}', '{"words": null}'])
def test_how_words_are_told_must_be_said(tmp_path, told):
    if told is not None:
        (tmp_path / "tokenizer_config.json").write_text(told)
    with pytest.raises(ModelError, match="does not say how to split text into words .* one of treebank, blanks"):
        read_splitting(tmp_path)


@pytest.mark.parametrize("splitting", Splitting)
def test_how_words_are_told(tmp_path, splitting):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"words": splitting}))
    assert read_splitting(tmp_path) is splitting
    assert ("nltk" in versions(splitting)) == (splitting == "treebank")
