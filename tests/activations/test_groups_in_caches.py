"""Which examples belong together: stored with the cache, told where it is read, and carried to the rows of a probe."""

import logging
from dataclasses import replace

import h5py
import numpy as np
import pytest
from toys import WORDS, sentences, toy_pairs, toy_tags, toy_task

from probekit.activations import ActivationCache, cache_activations, verify
from probekit.activations.grouping import groups_of, seen_in_train, stored_groups
from probekit.analyses.mdl import mdl
from probekit.analyses.mi import mi
from probekit.analyses.options import VectorOptions
from probekit.analyses.probe import probe
from probekit.analyses.vectors import layer_vectors
from probekit.cli import main
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
        assert "are not independent" in caplog.text
        assert "resampled together; the option groups none" in caplog.text
        assert found.columns["n_groups"] == len(set(cache.groups))
        assert layer_vectors(cache).labels.groups.tolist() == cache.groups.tolist()
        assert layer_vectors(cache, VectorOptions(groups="none")).labels.groups is None
        with pytest.raises(UsageError, match="has no domains"):
            layer_vectors(cache, VectorOptions(groups="domain"))
        with pytest.raises(
            UsageError, match="groups is .*, but toy has no task file that names columns. Give auto, none, domain"
        ):
            layer_vectors(cache, VectorOptions(groups="premise"))


def test_a_chat_template_around_the_texts_changes_no_group():
    whole = toy_task(120, empty=False).split("train").examples
    plain = Task("toy", TaskKind.CLASSIFICATION, {"train": Split("train", whole[:60]), "dev": Split("dev", whole[60:])})
    chat = replace(plain, splits={
        name: Split(name, tuple(replace(e, text=f"<|im_start|>user\n{e.text}<|im_end|>\n<|bot|>") for e in split))
        for name, split in plain.splits.items()
    })  # fmt: skip
    of, told = stored_groups(plain.splits["train"].examples, plain.kind)
    of_chat, told_chat = stored_groups(chat.splits["train"].examples, chat.kind)
    assert same(of["/groups"], [e.text for e in plain.splits["train"]])
    np.testing.assert_array_equal(of_chat["/groups"], of["/groups"])
    assert told_chat == told
    assert 0 < seen_in_train(plain)["dev"] == seen_in_train(chat)["dev"] < 60


def test_a_cache_without_stored_groups_is_searched_by_its_pieces(encoder, tmp_path, monkeypatch):
    with cache_activations(encoder, toy_pairs(), out=tmp_path / "a.h5") as cache:
        stored = cache.groups
        monkeypatch.setattr(ActivationCache, "groups", None)
        assert groups_of(cache).of is None  # its texts were searched, and nothing was found
        monkeypatch.setattr(ActivationCache, "grouping", {})
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
        none = dict.fromkeys(("equal", "shared", "near", "domain", "apart"), 0)
        assert (cache.groups, cache.grouping, groups_of(cache).columns) == (None, {"made": "found", **none}, {})
    with h5py.File(tmp_path / "a.h5") as f:
        assert "groups" not in f


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


def test_a_column_of_the_data_of_a_task_file(tiny_bert, tmp_path):
    rows = [f"{text},{i % 2},w{i // 3},{i}" for i, text in enumerate(sentences(30, 5, longest=9))]
    data, file, out = tmp_path / "train.csv", tmp_path / "mine.toml", tmp_path / "a.h5"
    data.write_text("\n".join(["text,label,writer,number", *rows]) + "\n")
    file.write_text('[splits]\ntrain = "train.csv"\n')
    arguments = ["cache-activations", "--model", str(tiny_bert), "--task", str(file), "--split", "train"]
    assert main([*arguments, "--limit", "20", "--data-seed", "3", "--out", str(out)]) == 0
    with ActivationCache(out) as cache:
        kept = [int(name.rpartition("-")[2]) for name in cache.ids]
        found = layer_vectors(cache, VectorOptions(groups="writer"))
        assert same(found.labels.groups, [i // 3 for i in kept])
        assert found.group_columns["groups"] == "writer"
        assert groups_of(cache, "number").columns["n_groups"] == 20
        with pytest.raises(UsageError, match="'authr'; the header has 'text', 'label', 'writer', 'number'|authr"):
            groups_of(cache, "authr")
        data.write_text(data.read_text().replace(",w0,", ",w1,"))  # another writer, the same examples
        assert groups_of(cache, "writer").columns["n_groups"] == len({max(i // 3, 1) for i in kept})
        data.write_text(data.read_text().replace(",1,w", ",0,w"))
        with pytest.raises(UsageError, match=r"mine.toml have changed since the cache was created"):
            groups_of(cache, "writer")


@pytest.fixture(scope="module")
def blind(tiny_bert, tmp_path_factory):
    """Train and dev of noise: each example four times in words that the model does not know, so in equal vectors."""
    folder, rng = tmp_path_factory.mktemp("blind"), np.random.default_rng(2)
    paths = []
    for split in ("train", "dev"):
        known = rng.choice([f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS], 41, replace=False)
        labels = rng.integers(2, size=41)
        texts = [f"q{split}{k}x{i} {w} z{k}y{i} j{i}u{k}" for i, w in enumerate(known[:40]) for k in range(4)]
        examples = [Example(str(i), text, int(labels[i // 4])) for i, text in enumerate([*texts, known[40], known[40]])]
        task = Task("blind", TaskKind.CLASSIFICATION, {split: Split(split, tuple(examples))}, ("a", "b"))
        paths.append(folder / f"{split}.h5")
        cache_activations(tiny_bert, task, split, out=paths[-1]).close()
    return paths


@pytest.mark.slow
def test_equal_vectors_of_other_texts_are_copies_in_every_analysis(blind, caplog):
    with ActivationCache(blind[0]) as cache:
        assert cache.groups.max() + 1 == 161  # the texts tell of one pair
        found = layer_vectors(cache).labels.groups
        assert same(found, [*(i // 4 for i in range(160)), 40, 40])
        assert "all their vectors are equal" in caplog.text
    saved, p = {}, {}
    for groups, units in (("auto", 41), ("none", 162)):
        how = {"groups": groups, "seed": 0, "layers": [0], "controls": 0}
        coded = mdl(blind[0], orders=3, penalties=(0.01, 0.1, 1.0), **how).rows
        own = coded[(coded["target"] == "gold") & (coded["metric"] == "saved-bits")]
        saved[groups], p[groups] = own["value"].iloc[0], own["p"].iloc[0]
        said = probe(*blind, folds=3, penalties=(0.01, 1.0), resamples=0, **how).predictions[0]
        assert len(set(said.ids if said.groups is None else said.groups)) == units
    assert saved["none"] > saved["auto"] + 20
    assert p["auto"] > 0.05
    rows = mi(blind[0], layers=[0], draws=99, seed=0).rows
    assert rows.loc[rows["target"] == "gold", "p"].iloc[0] > 0.05
