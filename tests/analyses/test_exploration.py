"""Scenes of toy caches: what is linked, what is left out, and what is answered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import word_caches, word_task

import probekit
from probekit.activations import cache_activations
from probekit.analyses.exploration import scene
from probekit.analyses.exploration.texts import marks
from probekit.analyses.exploration.units import largest_of_noise
from probekit.errors import UsageError


@pytest.fixture(scope="module")
def caches(tmp_path_factory, tiny_bert) -> dict[str, Path]:
    """The dev split of "is good in the sentence": of a model, of random weights, and half of it in another order."""
    folder = tmp_path_factory.mktemp("scene")
    train, dev = word_caches(folder, tiny_bert, tokens=True)
    random_train, random = word_caches(folder, f"random:{tiny_bert}", name="random", tokens=True)
    task = word_task()
    part = probekit.Split("dev", tuple(e for e in reversed(task.split("dev").examples) if int(e.id) % 2))
    shuffled = probekit.Task(task.name, task.kind, {"dev": part}, task.label_names, task.metrics)
    cache_activations(tiny_bert, shuffled, "dev", tokens=True, out=folder / "part.h5").close()
    return {"train": train, "dev": dev, "random": random, "random_train": random_train, "part": folder / "part.h5"}


def test_two_models_are_linked_by_id(caches):
    with scene(caches["dev"], caches["random"]) as found, probekit.ActivationCache(caches["dev"]) as cache:
        assert len(found) == 80
        assert found.ids.tolist() == cache.ids.tolist()
        assert found.labels.tolist() == cache.labels.tolist()
        assert found.layers == cache.layers
        assert [side.maps["pca"].xy.shape for side in found.sides] == [(len(cache.layers), 80, 2)] * 2
        assert found.movement.shape == (1, len(cache.layers), 80)
        assert (found.movement > 0).all()
        assert "random weights" in found.sides[1].name
        assert not found.tokens_unit
        assert found.notes[0] == "No rows of probes were given, so there are no predictions."
        assert "was not trained from" in found.notes[-1]


def test_predictions_are_of_one_probe_and_others_are_named(caches):
    logistic, means = (
        probekit.probe(caches["train"], caches["dev"], estimator=kind, controls=0, resamples=0)
        for kind in ("logistic", "mass-mean")
    )
    with scene(caches["dev"], rows=[logistic, means]) as both, scene(caches["dev"], rows=logistic) as one:
        np.testing.assert_array_equal(both.sides[0].prediction, one.sides[0].prediction)
        assert not any("several probes" in note for note in one.notes)
        [note] = [note for note in both.notes if "several probes" in note]
        assert "those of logistic on mean are shown, not those of mass-mean on mean" in note


def test_missing_examples_in_another_order_are_linked_and_counted(caches):
    with scene(caches["part"], caches["dev"]) as found:
        assert len(found) == 40
        assert found.ids.tolist() == [str(i) for i in range(79, 0, -2)]
        np.testing.assert_array_equal(found.movement, 0)  # the same model
        assert not any("was not trained from" in note for note in found.notes)
        np.testing.assert_allclose(found.sides[0].maps["pca"].xy, found.sides[1].maps["pca"].xy, atol=1e-6)
        assert found.notes[0].startswith("40 examples are in both caches (40 in part.h5, 80 in classification.dev.h5)")


def test_tokens_are_linked_and_sampled(caches):
    with scene(caches["dev"], caches["part"], unit="tokens") as found:
        assert found.tokens_unit
        assert len(found) == 40 * 5
        np.testing.assert_array_equal(found.movement, 0)
        assert found.ids[:2].tolist() == ["1:0", "1:1"]
    with scene(caches["dev"], unit="tokens", max_points=50, seed=4) as found:
        assert len(found) == 50
        assert found.notes[0] == "50 of 400 tokens are shown, drawn at random with seed 4."


@pytest.mark.parametrize("options", [{}, {"store": "bfloat16"}, {"compress": True}])
def test_vectors_of_tokens_of_repeated_texts(tmp_path, tiny_bert, options):
    """Equal texts are stored once, and every point has its vector."""
    examples = tuple(probekit.Example(str(i), text, 0) for i, text in enumerate(["a cat", "the dog", "a cat", "a dog"]))
    task = probekit.Task("t", "classification", {"dev": probekit.Split("dev", examples)}, ("x",))
    cache_activations(tiny_bert, task, "dev", tokens=True, out=tmp_path / "t.h5", **options).close()
    with (
        scene(tmp_path / "t.h5", unit="tokens", task=task) as found,
        probekit.ActivationCache(tmp_path / "t.h5") as cache,
    ):
        assert [text[0] for text in found.texts] == "a cat the dog a cat a dog".split()
        assert marks(found, np.arange(4)).tolist() == [[1, 0, 1], [1, 2, 5], [1, 0, 3], [1, 4, 7]]
        expected = np.concatenate([cache.tokens(1)[i][1:-1] for i in range(4)])
        np.testing.assert_array_equal(found.sources.vectors(0, 1), expected)


def test_the_same_call_gives_the_same_bytes(caches):
    with scene(caches["dev"], caches["random"]) as one, scene(caches["dev"], caches["random"]) as two:
        for a, b in zip(one.sides, two.sides, strict=True):
            assert a.maps["pca"].xy.tobytes() == b.maps["pca"].xy.tobytes()


def test_caches_that_do_not_belong_together(caches, tmp_path, tiny_bert):
    with pytest.raises(UsageError, match="holds classification dev, .* classification train: these are not the same"):
        scene(caches["dev"], caches["train"])
    task = word_task()
    few = probekit.Split("dev", task.split("dev").examples[:3])
    cache_activations(
        tiny_bert,
        probekit.Task("classification", task.kind, {"dev": few}, task.label_names),
        "dev",
        out=tmp_path / "3.h5",
    ).close()
    with pytest.raises(UsageError, match="a map needs 4 examples; classification.dev.h5 and 3.h5 share 3"):
        scene(caches["dev"], tmp_path / "3.h5")
    with pytest.raises(UsageError, match="make it with --tokens"):
        scene(tmp_path / "3.h5", unit="tokens")


def test_equal_ids_of_other_texts_are_refused(caches, tmp_path, tiny_bert):
    """The same ids and labels, but the texts in another order: nothing but the pieces tells."""
    task = word_task()
    examples = task.split("dev").examples
    texts = {label: [e.text for e in examples if e.label == label][::-1] for label in {e.label for e in examples}}
    moved = tuple(probekit.Example(e.id, texts[e.label].pop(0), e.label) for e in examples)
    other = probekit.Task(task.name, task.kind, {"dev": probekit.Split("dev", moved)}, task.label_names)
    cache_activations(tiny_bert, other, "dev", out=tmp_path / "moved.h5").close()
    with pytest.raises(UsageError, match="examples with the same id, such as .* have another text in .*moved.h5"):
        scene(caches["dev"], tmp_path / "moved.h5")
    named = probekit.Task(task.name, task.kind, {"dev": task.split("dev")}, task.label_names[::-1])
    cache_activations(tiny_bert, named, "dev", out=tmp_path / "named.h5").close()
    with pytest.raises(UsageError, match="the labels of"):
        scene(caches["dev"], tmp_path / "named.h5")


def test_a_task_of_ones_own_is_found_beside_its_cache(tmp_path, tiny_bert, monkeypatch):
    """The cache is made in its folder with ``--task own.toml``; the scene is opened from elsewhere."""
    folder = tmp_path / "own"
    folder.mkdir()
    lines = "".join(f"Text number {i}!\t{'ab'[i % 2]}\n" for i in range(8))
    (folder / "dev.tsv").write_text(f"text\tlabel\n{lines}")
    (folder / "own.toml").write_text('name = "own"\n[splits]\ntrain = "dev.tsv"\ndev = "dev.tsv"\n')
    monkeypatch.chdir(folder)
    cache_activations(tiny_bert, "own.toml", "dev", out="dev.h5").close()
    monkeypatch.chdir(tmp_path)
    with scene("own/dev.h5") as found:
        assert found.texts[3] == ("Text number 3!",)
        assert not any("decoded tokens" in note for note in found.notes)
    folder.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "dev.h5").rename(tmp_path / "dev.h5")
    for place in ("elsewhere/own.toml", Path("elsewhere/own.toml")):
        with scene("dev.h5", task=place) as found:
            assert found.texts[3] == ("Text number 3!",)


def test_few_points_have_fewer_clusters(tiny_bert, tmp_path):
    task = word_task()
    few = probekit.Task(
        task.name, task.kind, {"dev": probekit.Split("dev", task.split("dev").examples[:5])}, task.label_names
    )
    cache_activations(tiny_bert, few, "dev", out=tmp_path / "5.h5").close()
    with scene(tmp_path / "5.h5", clusters="kmeans") as found:
        assert found.sides[0].clusters.max() < 5


def test_the_largest_correlation_of_noise():
    """Below the bound in 95 % of cases; 2,000 simulations have a standard error of .005."""
    rng = np.random.default_rng(0)
    n, count, runs = 40, 50, 2000
    x = rng.normal(size=(runs, count, n))
    y = rng.normal(size=(runs, n))
    x -= x.mean(-1, keepdims=True)
    y -= y.mean(-1, keepdims=True)
    r = np.einsum("rcn,rn->rc", x, y) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)[:, None]
    assert (np.abs(r).max(1) < largest_of_noise(n, count)).mean() == pytest.approx(0.95, abs=0.02)
    assert largest_of_noise(n, count) < largest_of_noise(n, 10 * count)


def test_labelled_words_are_points(tmp_path, tiny_bert):
    _, dev = word_caches(tmp_path, tiny_bert, "sequence-labelling")
    task = word_task("sequence-labelling")
    with scene(dev, task=task) as found, probekit.ActivationCache(dev) as cache:
        assert found.tokens_unit
        assert len(found) == len(cache.word_labels)
        assert found.labels.tolist() == cache.word_labels.tolist()
        assert found.ids[5:7].tolist() == ["1:0", "1:1"]
        assert found.texts[6] == (task.split("dev")[1].words[1], task.split("dev")[1].text)
        np.testing.assert_array_equal(found.sources.vectors(0, 2), cache.layer_words(2))
        strip = found.token_strip("1:3", "unit", unit=4)
        assert strip.tokens == (task.split("dev")[1].words,)
        np.testing.assert_allclose(strip.values[0][2], cache.layer_words(2)[5:10, 4], rtol=1e-6)
        written = probekit.load_task(found.write_task(found.ids[5:7], tmp_path / "words.toml"))
        assert written.split("dev")[0].words == task.split("dev")[1].words
        assert written.labels("dev").tolist() == list(task.split("dev")[1].label)


@pytest.mark.parametrize("family", ["bert", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_pairs_read_together_and_apart(tmp_path, tiny_model, family):
    _, dev = word_caches(
        tmp_path, tiny_model(family), "pairs", tokens=True, pairs="separate" if family == "gpt2" else "auto"
    )
    task = word_task("pairs")
    with scene(dev, dev, task=task) as found:
        first = task.split("dev")[3]
        assert found.texts[3] == (first.text, first.pair)
        read = "".join(found.token_strip(3).tokens[0])
        assert read.replace(" ", "") == (first.text + first.pair).replace(" ", "")
        np.testing.assert_array_equal(found.movement, 0)
    with scene(dev, unit="tokens", task=task) as found:
        assert found.text_of(0) == (task.split("dev")[0].text, task.split("dev")[0].pair)
        assert {i.rpartition(":")[0] for i in found.ids.tolist()} == {e.id for e in task.split("dev")}
        known = marks(found, np.arange(len(found)))
        assert set(known[:, 0].tolist()) == {1, 2}  # both texts of the pair
        for (at, start, end), (token, *texts) in zip(known.tolist(), found.texts, strict=True):
            assert texts[at - 1][start:end] == token


def test_models_of_other_depth_and_width_are_matched_by_depth(tmp_path, tiny_bert):
    import tiny

    deep = tiny.tiny_model("bert", tmp_path / "deep", num_hidden_layers=6, hidden_size=16)
    _, one = word_caches(tmp_path, tiny_bert, name="one")
    _, two = word_caches(tmp_path, deep, name="two")
    with scene(one, two) as found:
        assert found.sides[0].layers == ("0", "1", "2", "3")
        assert found.sides[1].layers == ("0", "2", "4", "6")
        assert found.movement is None
        assert "same relative depth are side by side: one.dev.h5 0, 1, 2, 3; two.dev.h5 0, 2, 4, 6" in found.notes[0]
    with scene(one, two, layers="1-2") as found:
        assert found.sides[1].layers == ("1", "2")


def test_numbers_as_labels(tmp_path, tiny_bert):
    train, dev = word_caches(tmp_path, tiny_bert, "regression", tokens=True)
    rows = probekit.probe(train, dev, controls=0, resamples=0)
    with scene(dev, rows=rows, train=train, projection=("pca", "lda")) as found:
        assert found.labels.dtype == float
        assert found.sides[0].prediction.dtype == float
        table = found.compare_selection(found.ids[:20], layer=1)
        assert {"absolute error", "label"} <= set(table["quantity"])
        assert found.token_strip(3, "logit").values[0].shape[1] == 5
        assert found.rank_units(0, 1, by="correlation")["score"].abs().max() > 0.2
        with pytest.raises(UsageError, match="labels are numbers"):
            found.gained_and_lost(1, side=0)
        assert probekit.load_task(found.write_task(found.ids[1:5], tmp_path / "n.toml")).labels("dev").dtype == float


def test_a_layer_of_equal_vectors_is_a_point_and_said(caches, monkeypatch):
    from probekit.analyses.exploration.sources import Sources

    real = Sources.vectors
    monkeypatch.setattr(
        Sources, "vectors", lambda self, side, layer: real(self, side, layer) * (layer != 1) + (layer == 1)
    )
    with scene(caches["dev"], caches["random"]) as found:
        assert not found.sides[0].maps["pca"].xy[1].any()
        assert np.isnan(found.sides[0].maps["pca"].explained[1]).all()
        assert "Layer 1 of" in found.notes[1]
        assert "all vectors are equal, so the map is a single point" in found.notes[1]


def test_checkpoints_are_in_the_order_of_their_steps(caches, monkeypatch):
    opened = [probekit.ActivationCache(caches["dev"]) for _ in range(4)]
    for cache, step in zip(opened, (0, 100, 20, 30), strict=True):
        cache.spec |= {"step": step, "checkpoint": "run"}
    with scene(*opened) as found:
        assert [side.step for side in found.sides] == [0, 20, 30, 100]
        assert found.sides[1].name.endswith("run, step 20")
        assert found.movement.shape[0] == 3
    opened[0].spec |= {"step": None, "checkpoint": ""}
    with scene(*opened[:2]) as found:
        assert found.sides[0].name.endswith(", pretrained")
