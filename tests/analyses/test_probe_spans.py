"""``probekit probe`` on spans: from sentences to rows, alone and from a cache of several tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import probekit
from probekit.analyses.options import VectorOptions
from probekit.analyses.train_dev import Pairs
from probekit.analyses.vectors import layer_vectors
from probekit.errors import UsageError
from probekit.tasks.task import Example, Span, Split, Target, Task, TaskKind
from probekit.tasks.union import union

ANIMALS, VERBS, OTHERS = ("cat", "dog", "bird"), ("sees", "bites"), ("the", "old", "a")


def sentences(n: int, seed: int) -> list[tuple[str, ...]]:
    rng = np.random.default_rng(seed)
    return [tuple(str(rng.choice(some)) for some in (OTHERS, ANIMALS, VERBS, OTHERS, ANIMALS)) for _ in range(n)]


def task(name: str, *, several: bool) -> Task:
    """The animal and its verb: whether the animal is a bird; or all that holds of each word."""
    splits = {}
    for split, n, seed in (("train", 150, 0), ("dev", 80, 1)):
        found = []
        for i, words in enumerate(sentences(n, seed)):
            if several:
                targets = tuple(
                    Target((Span(j, j + 1),), tuple(c for c, some in enumerate((ANIMALS, VERBS)) if word in some))
                    for j, word in enumerate(words)
                )
            else:
                targets = tuple(
                    Target((Span(j, j + 1), Span(2, 3)), int(words[j] == "bird") + int(words[j] in OTHERS) * 2)
                    for j in (0, 1, 3, 4)
                )
            found.append(Example(f"{split}{i}", " ".join(words), words=words, targets=targets))
        splits[split] = Split(split, tuple(found))
    names = ("animal", "verb") if several else ("mammal", "bird", "none")
    metrics = ("micro-f1",) if several else ("accuracy", "macro-f1")
    return Task(name, TaskKind.SPAN_LABELLING, splits, names, metrics)


ONE, MANY = task("one", several=False), task("many", several=True)


def cached(model: Path, of: Task, folder: Path) -> list[Path]:
    return [
        probekit.cache_activations(model, of, split, out=folder / f"{split}.h5").path  # type: ignore[misc]
        for split in ("train", "dev")
    ]


def gold(rows: object, name: str) -> dict[int, float]:
    its = rows[(rows["metric"] == name) & (rows["target"] == "gold") & rows["layer"].notna()]  # type: ignore[index]
    return dict(zip(its["layer"].astype(int), its["value"], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ends", "mean"])
def test_pairs_of_spans_are_probed_with_the_controls_of_words(tiny_bert: Path, tmp_path: Path, how: str) -> None:
    result = probekit.probe(
        *cached(tiny_bert, ONE, tmp_path), span=how, controls=1, groups="none", penalties=(0.1, 10.0)
    )
    rows = result.rows
    assert set(rows["target"]) == {"gold", "shuffled", "control-task"}
    assert set(rows.loc[rows["layer"].notna(), "representation"]) == {how}
    assert gold(rows, "accuracy")[0] > 0.95
    assert rows["n"].iloc[0] == 320
    (found,) = result.predictions
    assert len(np.unique(found.groups)) < 80 + 1
    assert found.ids[:5].tolist() == ["dev0:0", "dev0:1", "dev0:2", "dev0:3", "dev1:0"]


def test_a_card_names_the_task_that_a_cache_of_several_is_read_for(tiny_bert: Path, tmp_path: Path) -> None:
    with Pairs(cached(tiny_bert, union("one+many", [ONE, MANY]), tmp_path)) as pairs:
        ((train, dev),) = pairs.opened(ONE)
        read = [one.about["spec"]["task"] for one in pairs.reads]
    assert read == [train.spec["task"], dev.spec["task"]] == ["one", "one"]  # scoreboards look for it


@pytest.mark.slow
def test_several_labels_from_a_cache_of_several_tasks(tiny_bert: Path, tmp_path: Path) -> None:
    alone = probekit.probe(*cached(tiny_bert, MANY, tmp_path), controls=1, groups="none", penalties=(1.0,))
    assert gold(alone.rows, "micro-f1")[0] > 0.95
    both = tmp_path / "both"
    both.mkdir()
    caches = cached(tiny_bert, union("one+many", [ONE, MANY]), both)
    again = probekit.probe(*caches, task=MANY, controls=1, groups="none", penalties=(1.0,))
    assert gold(again.rows, "micro-f1") == pytest.approx(gold(alone.rows, "micro-f1"), abs=1e-9)
    assert set(again.rows["task"]) == {"many"}
    one = probekit.probe(*caches, task=ONE, controls=1, groups="none", penalties=(1.0,))
    assert gold(one.rows, "accuracy")[0] > 0.95


def test_pairs_of_spans_are_compared_as_pairs_of_texts_are(tiny_bert: Path, tmp_path: Path) -> None:
    """[u; v; |u - v|; u * v], or both sides; the cosine is a baseline of the layer that train chooses."""
    caches = cached(tiny_bert, ONE, tmp_path)
    with probekit.ActivationCache(caches[1]) as cache:
        found = {
            pair: layer_vectors(cache, VectorOptions(span="mean", span_pair=pair)) for pair in ("compared", "sides")
        }
        tokens, of = cache.tokens("2").values, cache.targets
        u, v = (np.stack([tokens[a : b + 1].mean(0) for a, b in zip(of.first[:, k], of.last[:, k], strict=True)])
                for k in (0, 1))  # fmt: skip
        np.testing.assert_allclose(found["sides"].layers["2"]()[:], np.hstack([u, v]), rtol=1e-5, atol=1e-6)
        compared = np.hstack([u, v, np.abs(u - v), u * v])
        np.testing.assert_allclose(found["compared"].layers["2"]()[:], compared, rtol=1e-4, atol=1e-6)
        norms = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
        for one in found.values():
            np.testing.assert_allclose(one.cosines["2"]()[:, 0], (u * v).sum(1) / norms, rtol=1e-5)
    how = {"span": "mean", "controls": 0, "resamples": 0, "groups": "none", "penalties": (1.0,), "layers": "0,2"}
    result = probekit.probe(*caches, **how)
    (cosine,) = result.rows[result.rows["representation"] == "cosine"].query("metric == 'accuracy'")["value"]
    assert 0.3 < cosine < gold(result.rows, "accuracy")[2]
    assert f"cosine of the two {cosine:.3f}".replace(" 0.", " .") in result.verdict[0]
    with pytest.raises(UsageError, match="leave out --pooling, or give --span"):
        probekit.probe(*caches, pooling="mean")


def test_an_unknown_vector_of_spans_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean ends"):
        probekit.probe(tmp_path / "train.h5", tmp_path / "dev.h5", span="end")
