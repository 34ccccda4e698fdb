"""Caches of chosen pieces: the vectors are those of the pieces that a slow twin picks out of a cache of all of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from toys import toy_pairs, toy_tags, toy_task

import probekit
from probekit.activations.positions import Positions
from probekit.errors import UsageError
from probekit.tasks.task import Example, Span, Split, Target, Task, TaskKind

TASK = toy_task(24, empty=False)
SPANS = Task(
    "spans",
    TaskKind.CLASSIFICATION,
    {
        "train": Split(
            "train",
            (
                Example("a", "the cat sees a small dog", 0, spans=(Span(4, 7),)),
                Example("b", "the cat sees a small dog", 1, spans=(Span(15, 24),)),  # the same text, another span
                Example("c", "unhappy birds sleep in the garden", 1, spans=(Span(2, 9),)),  # cuts through words
            ),
        )
    },
    ("no", "yes"),
)


def every(folder, task, tmp_path, **how):
    return probekit.cache_activations(folder, task, tokens=True, out=tmp_path / f"all-{len(how)}.h5", **how)


def rows_of(cache):
    return cache.index("start"), cache.index("length")


def slow_rows(positions, special):
    """The pieces of one text that are chosen."""
    t = len(special)
    if positions == "special":
        return np.flatnonzero(special)
    if positions == "first":
        return np.arange(min(t, 1))
    count = int(positions.partition(":")[2] or 1)
    return np.arange(t)[-count:]


@pytest.mark.parametrize(
    ("family", "positions"),
    [
        ("bert", "last:4"),
        ("gpt2", "last"),
        *(pytest.param(*more, marks=pytest.mark.slow) for more in (("bert", "special"), ("gpt2", "first"))),
    ],
)
def test_what_is_pooled_and_stored(family, positions, tiny_model, tmp_path):
    whole = every(tiny_model(family), TASK, tmp_path)
    pooling = "mean,first,last,max"
    cache = every(tiny_model(family), TASK, tmp_path, positions=positions, pooling=pooling)
    assert cache.spec["positions"] == positions
    assert cache.spec["tokens"] == "chosen"
    assert cache.spec_id != whole.spec_id
    position, role, special = cache.index("position"), cache.roles, whole.special_rows()
    for i in range(len(TASK.split("train"))):
        a, n = int(whole.index("start")[i]), int(whole.index("length")[i])
        b, m = int(cache.index("start")[i]), int(cache.index("length")[i])
        rows = slow_rows(positions, special[a : a + n])
        assert position[b : b + m].tolist() == rows.tolist()
        assert (role[b : b + m] == np.where(special[a : a + n][rows], "special", "text")).all()
        for layer in ("2",):
            right = whole.tokens(layer)[i][rows]
            np.testing.assert_array_equal(cache.tokens(layer)[i], right)
            np.testing.assert_allclose(cache.layer(layer, "mean")[i], right.mean(0), rtol=1e-5, atol=1e-6)
            for name, vector in (("first", right[0]), ("last", right[-1]), ("max", right.max(0))):
                np.testing.assert_array_equal(cache.layer(layer, name)[i], vector)
    assert (cache.special_rows() == (role == "special")).all()
    assert probekit.verify(cache.path).ok


def test_spans_of_equal_texts_are_each_their_own(tiny_bert, tmp_path):
    whole = every(tiny_bert, SPANS, tmp_path)
    cache = every(tiny_bert, SPANS, tmp_path, positions="answer", pooling="mean")
    assert cache.spec["positions"] == "span"
    chosen = [cache.index("position")[a : a + n].tolist() for a, n in zip(*rows_of(cache), strict=True)]
    assert chosen[:2] == [[2], [5, 6]]
    for i, e in enumerate(SPANS.split("train")):
        a, n = int(whole.index("start")[i]), int(whole.index("length")[i])
        low, high = (whole.index(f"char_{name}")[a : a + n] for name in ("start", "end"))
        rows = np.flatnonzero((high > e.spans[0].start) & (low < e.spans[0].end))
        assert chosen[i] == rows.tolist()
        np.testing.assert_allclose(cache.layer(3)[i], whole.tokens(3)[i][rows].mean(0), rtol=1e-5, atol=1e-6)
    assert cache.targets.labels.tolist() == [0, 1, 1]
    assert (cache.targets.last - cache.targets.first + 1)[:, 0].tolist() == [len(rows) for rows in chosen]


@pytest.mark.parametrize(
    ("family", "pairs"),
    [
        *(("bert", "joint"), ("gpt2", "separate")),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (("roberta", "joint"), ("bert", "separate"), ("roberta", "separate"), ("gpt2", "joint"))
        ),
    ],
)
def test_spans_of_pairs(family, pairs, tiny_model, tmp_path):
    spans = (Span(4, 7), Span(0, 5, second=True))
    example = Example("0", "the cat sat", pair="small dog runs", targets=(Target(spans, 0),))
    task = Task("pairs", TaskKind.SPAN_LABELLING, {"train": Split("train", (example,))}, ("x",))
    how = {"pairs": pairs, "tokens": True}
    whole = probekit.cache_activations(tiny_model(family), task, out=tmp_path / "a.h5", **how)
    cache = probekit.cache_activations(tiny_model(family), task, positions="span", out=tmp_path / "b.h5", **how)
    ends = whole.targets.first[0], whole.targets.last[0]
    right = [whole.tokens(2).values[a : b + 1] for a, b in zip(*ends, strict=True)]
    np.testing.assert_array_equal(cache.tokens(2).values, np.concatenate(right))
    found = cache.targets
    assert (found.last - found.first + 1)[0].tolist() == [len(rows) for rows in right]
    pooled = np.concatenate([rows.mean(0) for rows in right]) if pairs == "separate" else np.concatenate(right).mean(0)
    np.testing.assert_allclose(cache.layer(2, "mean")[0], pooled, rtol=1e-5, atol=1e-6)


def test_examples_without_such_a_piece_are_refused_or_nan(tiny_bert, tmp_path):
    long = "the cat " * 30
    examples = (
        Example("whole", "the cat sleeps", 0, spans=(Span(4, 7),)),
        Example("cut", long, 1, spans=(Span(len(long) - 4, len(long) - 1),)),
        Example("between", "a  dog", 1, spans=(Span(1, 2),)),
    )
    task = Task("few", TaskKind.CLASSIFICATION, {"train": Split("train", examples)}, ("no", "yes"))
    message = r"2 of 3 examples of few have no piece at --positions span; the first is 'cut'. Its text is truncated."
    with pytest.raises(UsageError, match=message):
        probekit.cache_activations(tiny_bert, task, positions="span", out=tmp_path / "c.h5")
    assert not list(tmp_path.iterdir())
    cache = probekit.cache_activations(
        tiny_bert, task, positions="span", allow_nonfinite=True, pooling="mean,first,last,max", out=tmp_path / "c.h5"
    )
    for pooling in cache.poolings:
        assert np.isnan(cache.layer(1, pooling)).all(1).tolist() == [False, True, True]
        assert np.isfinite(cache.layer(1, pooling)[0]).all()
    assert cache.spec["counts"]["empty"] == 2


def test_without_the_option_nothing_of_it_is_stored(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    out = tmp_path / "c.h5"
    probekit.cache_activations(tiny_bert, TASK, tokens=True, out=out).close()
    before = out.read_bytes()
    out.unlink()
    cache = probekit.cache_activations(tiny_bert, TASK, tokens=True, positions="all", out=out)
    assert out.read_bytes() == before
    assert "positions" not in json.dumps(cache.spec)
    assert "positions" not in cache.attributes["recipe"]
    with pytest.raises(UsageError, match="has no index 'role'"):
        _ = cache.roles


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        (TASK, {"positions": "middle"}, r"positions is 'middle'; expected all, first, last, last:N, special, span"),
        (TASK, {"positions": "last:0"}, r"expected last:N with N of 1 or more"),
        (TASK, {"positions": "first:2"}, r"positions is 'first:2'"),
        (TASK, {"positions": "roles:"}, r"positions names no role"),
        (TASK, {"positions": "roles:asistant"}, r"there is no role 'asistant'; did you mean assistant"),
        (TASK, {"positions": "roles:user"}, r"toy has no roles, which --positions roles:user needs"),
        (TASK, {"positions": "span"}, r"toy has no spans, which --positions span needs"),
        (TASK, {"positions": "last", "pooling": "mean-all"}, r"use mean instead of mean-all"),
        (TASK, {"positions": "last", "tokens": True, "token_level": "word-mean"}, r"vectors are of word-mean; use"),
        (TASK, {"tokens": True, "token_level": "chosen"}, r"is what --positions gives with --token-level piece"),
        (toy_tags(6), {"positions": "last"}, r"use --token-level piece, or --no-tokens"),
        (toy_pairs(6), {"positions": "span"}, r"toy-pairs has no spans"),
    ],
)
def test_bad_input(task, options, message, tiny_bert, tmp_path):
    with pytest.raises(UsageError, match=message):
        probekit.cache_activations(tiny_bert, task, out=tmp_path / "c.h5", **options)
    assert not list(tmp_path.iterdir())


def test_names():
    assert Positions.parse(" all ") is None is Positions.parse(None)
    assert [str(Positions.parse(text)) for text in ("last:1", "last:5", "answer")] == ["last", "last:5", "span"]
