"""Spans as rows of a cache's tokens, and one cache that serves several tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import probekit
from probekit.activations import ActivationCache
from probekit.errors import CacheMismatch, UsageError
from probekit.tasks.task import Example, Span, Split, Target, Task, TaskKind

WORDS = (("the", "cat", "sat", "on", "unbelievable", "mats"), ("dogs", "bark"), ("a", "cat", "and", "dogs", "."))


def of_words(name: str = "spans", label: int = 0) -> Task:
    examples = tuple(
        Example(
            str(i),
            " ".join(words),
            words=words,
            targets=tuple(Target((Span(a, a + 2), Span(0, 1)), label + a) for a in range(len(words) - 1)),
        )
        for i, words in enumerate(WORDS)
    )
    return Task(name, TaskKind.SPAN_LABELLING, {"dev": Split("dev", examples)}, tuple("abcdefgh"))


def slow(cache: ActivationCache, task: Task, segment: np.ndarray | None = None) -> list[tuple[list[int], list[int]]]:
    """First and last row of each span, piece by piece."""
    found = []
    word, start_of, end_of = (cache.index(name) for name in ("word_index", "char_start", "char_end"))
    second = cache.second_pieces() if segment is None else segment
    for i, e in enumerate(task.split("dev")):
        start, length = int(cache.index("start")[i]), int(cache.index("length")[i])
        for target in e.targets:
            rows = [
                [
                    r
                    for r in range(start, start + length)
                    if word[r] >= 0
                    and bool(second[r]) == span.second
                    and (
                        span.start <= word[r] < span.end
                        if e.words
                        else start_of[r] < span.end and end_of[r] > span.start
                    )
                ]
                for span in target.spans
            ]
            found.append(([r[0] for r in rows], [r[-1] for r in rows]))
    return found


def test_words_become_all_of_their_pieces(tiny_bert: Path, tmp_path: Path) -> None:
    task = of_words()
    cache = probekit.cache_activations(tiny_bert, task, "dev", out=tmp_path / "a.h5")
    assert cache.spec["tokens"] == "piece"
    assert (cache.labels == -1).all()
    got = cache.targets
    expected = slow(cache, task)
    assert got.first.tolist() == [a for a, _ in expected]
    assert got.last.tolist() == [b for _, b in expected]
    assert got.labels.tolist() == task.labels("dev").tolist()
    assert got.left_out == 0
    assert got.example.tolist() == [0] * 5 + [1] + [2] * 4
    assert (got.last > got.first).any()


@pytest.mark.parametrize("family", ["bert", "gpt2", "roberta"])
def test_characters_in_pairs_of_texts(tiny_model: object, family: str, tmp_path: Path) -> None:
    examples = (
        Example("0", "the cat sat", 1, "a dog and a cat", spans=(Span(4, 7), Span(12, 15, second=True))),
        Example("1", "dogs bark", 0, "the cat", spans=(Span(0, 4), Span(0, 3, second=True))),
    )
    task = Task("pairs", TaskKind.CLASSIFICATION, {"dev": Split("dev", examples)}, ("no", "yes"))
    cache = probekit.cache_activations(tiny_model(family), task, "dev", out=tmp_path / "a.h5", tokens=True)  # type: ignore[operator]
    twin = tuple(Example(e.id, e.text, pair=e.pair, targets=(Target(e.spans, e.label),)) for e in examples)  # type: ignore[arg-type]
    segment = None
    if family == "gpt2":  # nothing stands between the two texts
        first = [len(probekit.load_encoder(tiny_model(family)).tokenize([e.text]).token_ids) for e in examples]  # type: ignore[operator]
        rows = np.arange(len(cache.index("word_index")))
        segment = np.zeros(len(rows), dtype=bool)
        for i, n in enumerate(first):
            start, length = int(cache.index("start")[i]), int(cache.index("length")[i])
            segment |= (rows >= start + n) & (rows < start + length)
    expected = slow(cache, Task("x", TaskKind.SPAN_LABELLING, {"dev": Split("dev", twin)}, ("no", "yes")), segment)
    got = cache.targets
    assert got.first.tolist() == [a for a, _ in expected]
    assert got.last.tolist() == [b for _, b in expected]
    assert got.labels.tolist() == [1, 0]


def test_spans_that_were_cut_off_are_left_out_and_counted(tiny_bert: Path, tmp_path: Path) -> None:
    task = of_words()
    cache = probekit.cache_activations(tiny_bert, task, "dev", out=tmp_path / "a.h5", max_length=6, on_truncate="keep")
    got = cache.targets
    assert got.left_out > 0
    assert got.left_out + len(got) == 10
    assert (got.last < len(cache.index("word_index"))).all()
    assert (got.first <= got.last).all()


def test_a_cache_of_several_tasks_gives_each_its_labels(tiny_bert: Path, tmp_path: Path) -> None:
    from probekit.tasks.union import union

    one, two = of_words("one"), of_words("two", label=1)
    tags = Task(
        "tags",
        TaskKind.SEQUENCE_LABELLING,
        {"dev": Split("dev", tuple(Example(f"t{i}", "", (1,) * len(w), words=w) for i, w in enumerate(WORDS[::-1])))},
        ("x", "y"),
    )
    cache = probekit.cache_activations(tiny_bert, union("one+two+tags", [one, two, tags]), "dev", out=tmp_path / "a.h5")
    assert len(cache) == 3
    alone = probekit.cache_activations(tiny_bert, two, "dev", out=tmp_path / "b.h5")
    seen = cache.for_task(two, "dev")
    assert seen.spec["task"] == "two"
    assert seen.ids.tolist() == alone.ids.tolist()
    assert seen.spec["data_digest"] == alone.spec["data_digest"]
    for layer in cache.layers:
        np.testing.assert_array_equal(seen.layer(layer), alone.layer(layer))
        a, b = seen.tokens(layer).values[seen.targets.first], alone.tokens(layer).values[alone.targets.first]
        np.testing.assert_array_equal(a, b)
    assert seen.targets.labels.tolist() == alone.targets.labels.tolist()
    words = cache.for_task(tags, "dev")
    assert words.spec["kind"] == "sequence-labelling"
    assert words.layer_words(1).shape == (13, cache.width)
    assert [w.tolist() for w in (words.word_sentence[:5],)] == [[0] * 5]
    assert len(words.targets) == 13
    assert (words.targets.labels == 1).all()


def test_sentences_that_are_not_cached_are_counted(tiny_bert: Path, tmp_path: Path) -> None:
    from probekit.tasks.union import union

    one = of_words("one")
    cache = probekit.cache_activations(
        tiny_bert, union("one+two", [one, of_words("two")]), "dev", out=tmp_path / "a.h5"
    )
    other = Task("other", TaskKind.CLASSIFICATION, {"dev": Split("dev", (Example("0", "New text.", 0),))}, ("n", "y"))
    with pytest.raises(CacheMismatch, match="lacks 1 of the 1 sentences of other dev"):
        cache.for_task(other, "dev")
    plain = probekit.cache_activations(tiny_bert, other, "dev", out=tmp_path / "b.h5")
    with pytest.raises(CacheMismatch, match="need a cache of their sentences"):
        plain.for_task(one, "dev")
    with pytest.raises(UsageError, match="no token vectors"):
        _ = plain.targets
