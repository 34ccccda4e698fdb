"""Vectors that are handed out without a file are those of a cache, bit for bit."""

import numpy as np
import pytest
from builders import word_task

from probekit.activations import cache_activations
from probekit.activations.writing.chunk import read_chunk
from probekit.activations.writing.reading import Reading
from probekit.models import load_encoder


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        pytest.param("classification", None, marks=pytest.mark.slow),
        pytest.param("pairs", "separate", marks=pytest.mark.slow),
        ("pairs", "joint"),
        ("sequence-labelling", None),
    ],
)
def test_the_bits_of_a_cache(tiny_bert, tmp_path, kind, pairs):
    encoder, task = load_encoder(tiny_bert, device="cpu"), word_task(kind)
    words = kind == "sequence-labelling"
    how = {"pooling": "none", "tokens": True} if words else {"pooling": "mean"}
    how |= {"pairs": pairs} if pairs else {}
    reading = Reading(
        task, None if words else "mean", "word-first" if words else None, pairs,
        tuple(zip(encoder.sites, encoder.widths, strict=True)),
    )  # fmt: skip
    found = read_chunk(encoder, task.split("train").examples, reading, batch_tokens=100)
    with cache_activations(encoder, task, "train", out=tmp_path / "cache.h5", **how) as cache:
        for layer, x in zip(cache.layers, found.vectors, strict=True):
            assert (x == np.asarray(cache.layer_words(layer) if words else cache.layer(layer))).all()
        assert found.pieces == cache.spec["counts"]["pieces"]
    assert len(found.read) == (5 if words else 1) * len(task.split("train"))
    assert found.read.all()
