"""``probekit structural``: from trees to rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import probekit
from probekit.activations import ActivationCache
from probekit.analyses.trees import treebank
from probekit.errors import DataError, UsageError
from probekit.tasks import load_task
from probekit.tasks.task import Example, Span, Split, Target, Task, TaskKind

WORDS = ("the", "cat", "sat", "on", "mats", "dogs", "bark", ".")


def heads_of(rng: np.random.Generator, n: int) -> list[int]:
    order = rng.permutation(n).tolist()
    heads = [0] * n
    for i in range(1, n):
        heads[order[i]] = order[int(rng.integers(i))] + 1
    return heads


def task(heads: dict[str, list[list[int]]]) -> Task:
    rng, splits = np.random.default_rng(0), {}
    for split, trees in heads.items():
        found = []
        for i, tree in enumerate(trees):
            words = tuple(str(rng.choice(WORDS)) for _ in tree)
            targets = tuple(
                Target((Span(w, w + 1), Span(h - 1, h)), int(words[w] == ".")) for w, h in enumerate(tree) if h
            )
            found.append(Example(f"{split}{i}", " ".join(words), words=words, targets=targets))
        splits[split] = Split(split, tuple(found))
    return Task("toy", TaskKind.SPAN_LABELLING, splits, ("dep", "punct"))


@pytest.fixture(scope="module")
def trees() -> dict[str, list[list[int]]]:
    rng = np.random.default_rng(1)
    return {
        split: [heads_of(rng, int(rng.integers(1, 8))) for _ in range(n)] for split, n in (("train", 60), ("dev", 30))
    }


def cached(model: Path, of: Task, folder: Path, **options: object) -> list[Path]:
    return [
        probekit.cache_activations(model, of, split, out=folder / f"{split}.h5", **options).path  # type: ignore[misc]
        for split in of.splits
    ]


def test_the_trees_of_a_cache_are_those_of_its_task(tiny_bert: Path, tmp_path: Path, trees: dict) -> None:
    path = cached(tiny_bert, task(trees), tmp_path)[1]
    with ActivationCache(path) as cache:
        bank = treebank(cache)
        kept = [tree for tree in trees["dev"] if len(tree) > 1]
        assert bank.heads.tolist() == [head for tree in kept for head in tree]
        assert bank.length.tolist() == [len(tree) for tree in kept]
        assert bank.left_out == len(trees["dev"]) - len(kept)
        x = bank.layers["1"]()
        assert x.shape == (len(bank.heads), cache.width)
        tokens, word = cache.tokens(1), cache.index("word_index")
        i = int(bank.example[0])
        start = int(cache.index("start")[i])
        rows = start + np.flatnonzero(word[start : start + int(cache.index("length")[i])] == 1)
        np.testing.assert_allclose(x[1], tokens.values[rows].mean(0), rtol=1e-5)


def test_rows_have_scores_controls_and_the_linear_chain(tiny_bert: Path, tmp_path: Path, trees: dict) -> None:
    caches = cached(tiny_bert, task(trees), tmp_path)
    rows = probekit.structural(*caches, ranks=(2, 500), epochs=2, resamples=100, groups="none").rows
    assert set(rows["metric"]) == {"uuas", "distance-spearman", "root-accuracy", "depth-spearman"}
    assert set(rows["target"]) == {"gold", "shuffled"}
    with ActivationCache(caches[0]) as cache:
        assert set(rows["rank"].dropna()) == {2, cache.width}
    line = rows[(rows["estimator"] == "linear-chain") & (rows["metric"] == "uuas")].iloc[0]
    kept = [tree for tree in trees["dev"] if len(tree) > 1]
    punct = task(trees).split("dev")
    edges = right = 0
    for e, tree in zip(punct, trees["dev"], strict=True):
        if len(tree) > 1 and all(t.label == 0 for t in e.targets):
            edges += len(tree) - 1
            right += sum(abs(h - 1 - w) == 1 for w, h in enumerate(tree) if h)
    assert edges
    assert 0 < line["value"] < 1
    assert line["n"] == len(kept)
    found = rows.dropna(subset="ci_low")
    assert (found["ci_low"] <= found["ci_high"]).all()
    again = probekit.structural(*caches, ranks=(2, 500), epochs=2, resamples=100, groups="none").rows
    assert again["value"].equals(rows["value"])


def test_what_is_not_a_tree_says_which_sentence(tiny_bert: Path, tmp_path: Path, trees: dict) -> None:
    two_roots = Example(
        "broken", "the cat sat on", words=("the", "cat", "sat", "on"), targets=(Target((Span(0, 1), Span(3, 4)), 0),)
    )
    good = task(trees)
    bad = Task("toy", good.kind, {"train": good.split("train"), "dev": Split("dev", (*good.split("dev"), two_roots))},
               good.label_names)  # fmt: skip
    with pytest.raises(DataError, match="the sentence broken is not a tree: it has two roots"):
        probekit.structural(*cached(tiny_bert, bad, tmp_path))
    cycle = task({"train": trees["train"], "dev": [[2, 1, 0], [2, 0]]})
    (tmp_path / "c").mkdir()
    with pytest.raises(DataError, match="leads into a cycle"):
        probekit.structural(*cached(tiny_bert, cycle, tmp_path / "c"))


def test_tasks_without_heads_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    plain = load_task("grammar:acceptability")
    caches = cached(tiny_bert, plain, tmp_path, limit=20, tokens=True)
    with pytest.raises(UsageError, match="no labels of spans"):
        probekit.structural(*caches[:2])
    with pytest.raises(UsageError, match="given in pairs"):
        probekit.structural(*caches[:2], caches[0])
