"""The pieces a cache hands out are those that the encoder's tokenizer gives, example by example."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toys import toy_pairs, toy_tags, toy_task

from probekit.activations import ActivationCache, cache_activations
from probekit.models import load_encoder
from probekit.tasks.task import Split


@pytest.fixture(scope="module", params=["bert", "roberta", "gpt2"])
def encoder(request, tiny_model):
    return load_encoder(tiny_model(request.param), device="cpu")


def ids(encoder, text):
    """Of one text or pair, as the tokenizer gives them: without special pieces."""
    tokens = encoder.tokenize([text])
    return tokens.token_ids[~tokens.special.astype(bool)].tolist()


def short(task):
    """Texts of at most three words, none of which a tiny model cuts off."""
    few = lambda text: " ".join(text.split()[:3])  # noqa: E731
    split = task.splits["train"]
    examples = tuple(replace(e, text=few(e.text), pair=few(e.pair)) for e in split)
    return replace(task, splits={"train": Split("train", examples)})


def cached(encoder, task, tmp_path, **options):
    return ActivationCache(cache_activations(encoder, task, out=tmp_path / "c.h5", **options).path)


def test_texts(encoder, tmp_path):
    task = toy_task()
    with cached(encoder, task, tmp_path) as cache:
        [pieces] = cache.pieces
        assert [p.tolist() for p in pieces] == [ids(encoder, e.text) for e in task.splits["train"]]
        assert len(pieces[2]) == 0  # an empty text
        assert len(cache.index("row_to_unique")) > cache.index("row_to_unique").max() + 1  # repeated ones were run once


@pytest.mark.parametrize("pairs", [pytest.param("joint", marks=pytest.mark.slow), "separate"])
def test_pairs(encoder, tmp_path, pairs):
    task = short(toy_pairs())
    with cached(encoder, task, tmp_path, pairs=pairs) as cache:
        parts = [[p.tolist() for p in part] for part in cache.pieces]
        examples = list(enumerate(task.splits["train"]))
        assert not cache.truncated.any()
        if encoder.name.startswith("gpt2") and pairs == "joint":  # read as one text
            assert len(parts) == 1
            assert all(parts[0][i] == ids(encoder, (e.text, e.pair)) for i, e in examples)
            return
        assert len(parts) == 2
        assert parts[0] != parts[1]
        for i, e in examples:
            assert parts[0][i] == ids(encoder, e.text)
            assert parts[1][i] == ids(encoder, e.pair)


@pytest.mark.parametrize("level", ["piece", pytest.param("word-first", marks=pytest.mark.slow), "word-mean"])
def test_words(encoder, tmp_path, level):
    task = toy_tags()
    with cached(encoder, task, tmp_path, tokens=True, token_level=level) as cache:
        tokens = [encoder.tokenize([(e.words,)]) for e in task.splits["train"]]
        expected = [t.token_ids[t.word_index == i].tolist() for t in tokens for i in range(t.word_index.max() + 1)]
        assert [p.tolist() for p in cache.word_pieces] == expected
        assert len(expected) == len(cache.word_labels) == len(cache.layer_words(0))
        assert cache.word_pieces.length.max() > 1 or encoder.name.startswith("bert")  # whose words are all one piece
