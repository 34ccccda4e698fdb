"""Which examples belong together: stored with the cache, told where it is read, and carried to the rows of a probe."""

import logging
from dataclasses import replace

import h5py
import numpy as np
import pytest
from toys import toy_pairs, toy_tags, toy_task

from probekit.activations import ActivationCache, cache_activations, verify
from probekit.activations.grouping import groups_of
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import layer_vectors
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.tasks.task import Example, Split, Task, TaskKind


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return load_encoder(tiny_bert, device="cpu")


def same(groups, keys):
    """Whether rows of one key have one group."""
    return all(len(set(groups[[k == key for k in keys]])) == 1 for key in set(keys))


def test_copies_are_stored_and_told(encoder, tmp_path, caplog):
    task = toy_task()
    with cache_activations(encoder, task, out=tmp_path / "a.h5") as cache:
        assert cache.groups.dtype == np.int32
        assert same(cache.groups, [e.text for e in task.split("train")])
        assert cache.grouping["made"] == "found"
        assert cache.grouping["equal"] >= 8
        assert verify(cache.path).ok
        with caplog.at_level(logging.WARNING):
            found = groups_of(cache)
        assert "are no independent evidence" in caplog.text
        assert "drawn as wholes; --groups none" in caplog.text
        assert found.columns["n_groups"] == len(set(cache.groups))
        assert layer_vectors(cache).labels.groups.tolist() == cache.groups.tolist()
        assert layer_vectors(cache, VectorOptions(groups="none")).labels.groups is None
        with pytest.raises(UsageError, match="has no domains"):
            layer_vectors(cache, VectorOptions(groups="domain"))
    with pytest.raises(UsageError, match="auto, none, domain"):
        VectorOptions(groups="premise")


def test_a_cache_without_stored_groups_is_searched_by_its_pieces(encoder, tmp_path, monkeypatch):
    with cache_activations(encoder, toy_pairs(), out=tmp_path / "a.h5") as cache:
        stored = cache.groups
        monkeypatch.setattr(ActivationCache, "groups", None)
        np.testing.assert_array_equal(groups_of(cache).of, stored)
        domains = groups_of(cache, "domain").of
        assert same(domains, cache.domains.tolist())
        assert len(set(domains)) == 2


def test_nothing_is_stored_where_nothing_belongs_together(encoder, tmp_path):
    words = "the a cat dog bird child sleeps runs sees small old red not very and never often house garden".split()
    texts = [" ".join(np.random.default_rng(i).permutation(words)[:8]) for i in range(12)]
    task = Task(
        "alone", TaskKind.CLASSIFICATION,
        {"train": Split("train", tuple(Example(str(i), t, i % 2) for i, t in enumerate(texts)))}, ("a", "b"),
    )  # fmt: skip
    with cache_activations(encoder, task, out=tmp_path / "a.h5") as cache:
        assert (cache.groups, cache.grouping, groups_of(cache).columns) == (None, {}, {})
    with h5py.File(tmp_path / "a.h5") as f:
        assert "groups" not in f
        assert "groups" not in f.attrs


def test_declared_groups_are_kept_by_name(encoder, tmp_path):
    task = toy_task()
    examples = tuple(replace(e, group=f"p{i // 3}" if i < 30 else None) for i, e in enumerate(task.split("train")))
    declared = replace(task, splits={"train": Split("train", examples)})
    assert declared.split("train").digest() != task.split("train").digest()  # other caches
    with cache_activations(encoder, declared, out=tmp_path / "a.h5") as cache:
        assert cache.groups.tolist() == [*np.repeat(np.arange(10), 3), *range(10, 40)]
        assert cache.group_names.tolist() == [*(f"p{i}" for i in range(10)), *[""] * 30]
        assert groups_of(cache).columns == {"groups": "declared", "n_groups": 40, "largest_group": 3}
        assert verify(cache.path).ok


def test_words_go_by_sentence_at_least(encoder, tmp_path):
    task = toy_tags()
    with cache_activations(encoder, task, out=tmp_path / "a.h5", pooling="none", tokens=True) as cache:
        labels = layer_vectors(cache).labels
        assert same(labels.groups, labels.sentences.tolist())
        assert len(set(labels.groups)) < len(set(labels.sentences))  # repeated sentences
        alone = layer_vectors(cache, VectorOptions(groups="none")).labels
        assert alone.sentences is None
        np.testing.assert_array_equal(alone.groups, labels.sentences)
