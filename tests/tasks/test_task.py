"""Tasks as values: what identifies a split, and how they show themselves."""

from dataclasses import dataclass

import numpy as np
import pytest

from probekit.errors import UsageError
from probekit.tasks import Example, Split, Task, TaskKind, load_task

EXAMPLES = (
    Example("1", "a b", 0),
    Example("2", "c", None, pair="d", domain="é\ud800"),
    Example("3", "x y", (1, -1), words=("x", "y")),
    Example("4", "z", 0.5),
)


@dataclass(frozen=True, slots=True)
class WithSpans(Example):
    """An example as a later version may have it."""

    spans: tuple[tuple[int, int], ...] | None = None


def test_digests_that_caches_hold():
    """Stored values: caches made by earlier versions are found again by them."""
    assert Split("x", EXAMPLES).digest() == "f0e10b8fa6ac1af4b21ea7cacfc3fde1"
    assert load_task("grammar:acceptability").split("dev").digest() == "fd2db2ea87cef96c29a9c4215bdf6841"


def test_a_new_field_changes_the_digest_only_where_it_is_set():
    def digest(spans):
        told = [(e.id, e.text, e.label, e.pair, e.words, e.domain) for e in EXAMPLES]
        return Split("x", tuple(WithSpans(*one, spans) for one in told)).digest()

    assert digest(None) == Split("x", EXAMPLES).digest()
    assert len({digest(None), digest(((0, 1),)), digest(((0, 2),))}) == 3


def test_a_sample_keeps_the_sentences_of_a_minimal_pair_together():
    def made(ids):
        return Split("test", tuple(Example(f"{g}:{side}", "a", group=f"{g}" if ids else None)
                                   for g in range(50) for side in ("good", "bad")))  # fmt: skip

    drawn = [e.id for e in made(ids=True).sample(21, 3)]
    assert len(drawn) == 20
    assert {name.partition(":")[0] for name in drawn[::2]} == {name.partition(":")[0] for name in drawn[1::2]}
    assert drawn == sorted(drawn, key=lambda name: int(name.partition(":")[0]))
    assert drawn != [e.id for e in made(ids=True).sample(21, 4)]
    with pytest.raises(UsageError, match="the limit is 1, but 2 examples stay together; give 2 or more"):
        made(ids=True).sample(1)
    uneven = Split("test", (*made(ids=True), Example("50:good", "a", group="50")))
    assert len(uneven.sample(21, 3)) == 21  # documents, say
    single = made(ids=False)
    at = np.sort(np.random.default_rng(3).choice(100, 21, replace=False))  # as in all caches that there are
    assert [e.id for e in single.sample(21, 3)] == [single[int(i)].id for i in at]


def test_nothing_prints_a_data_set():
    examples = tuple(Example(str(i), f"secret {i} " + "word " * 50, i % 2) for i in range(1000))
    task = Task("<b>", TaskKind.CLASSIFICATION, {"train": Split("train", examples)}, ("a", "b"), notes=("x & y",))
    split = task.split("train")
    for value in (task, split, split.examples, split[:500], split.sample(3)):
        assert len(repr(value)) < 200
    assert repr(task) == "Task('<b>': classification, 1000 train, 2 classes: a, b)"
    assert split[:2] == examples[:2]
    assert split.examples == examples
    html = task._repr_html_()
    assert "1000 train" in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert html == task._repr_html_()
    assert len(html) < 1000


def test_a_split_at_a_glance():
    examples = (
        Example("1", "a b", 0, domain="web"), Example("2", "<i>x</i> " + "y " * 400, None, domain="news"),
        Example("3", "a b c d", 1, domain="web"), Example("4", "not shown", 1, domain="web"),
    )  # fmt: skip
    html = Split("dev", examples)._repr_html_()
    for fact in ("Split dev", "4 texts, 3 labelled", "2 to 401, median 3", "2: news, web", "&lt;i&gt;x"):
        assert fact in html
    assert "<i>" not in html
    assert "not shown" not in html
    assert len(html) < 1000
    assert "0 texts, 0 labelled" in Split("none", ())._repr_html_()


@pytest.mark.parametrize("split", [Split("none", ()), Split("one", EXAMPLES[:1])])
def test_short_splits_show_themselves(split):
    assert f"{len(split)} examples" in repr(split)
