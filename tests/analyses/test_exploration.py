"""Scenes of toy caches: what is linked, what is left out, and what is answered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import word_caches, word_task

import probekit
from probekit.activations import cache_activations
from probekit.analyses.exploration import scene
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
        assert "random weights 0" in found.sides[1].name
        assert not found.tokens_unit
        assert found.notes == ()


def test_missing_examples_in_another_order_are_linked_and_counted(caches):
    with scene(caches["part"], caches["dev"]) as found:
        assert len(found) == 40
        assert found.ids.tolist() == [str(i) for i in range(79, 0, -2)]
        np.testing.assert_array_equal(found.movement, 0)  # the same model
        np.testing.assert_allclose(found.sides[0].maps["pca"].xy, found.sides[1].maps["pca"].xy, atol=1e-6)
        assert found.notes[0].startswith("40 examples are in all caches (40 in part.h5, 80 in classification.dev.h5)")


def test_tokens_are_linked_and_sampled(caches):
    with scene(caches["dev"], caches["part"], unit="tokens") as found:
        assert found.tokens_unit
        assert len(found) == 40 * 5
        np.testing.assert_array_equal(found.movement, 0)
        assert found.ids[:2].tolist() == ["1:0", "1:1"]
    with scene(caches["dev"], unit="tokens", max_points=50, seed=4) as found:
        assert len(found) == 50
        assert found.notes == ("50 of 400 tokens are shown, drawn at random with seed 4.",)


def test_the_same_call_gives_the_same_bytes(caches):
    with scene(caches["dev"], caches["random"]) as one, scene(caches["dev"], caches["random"]) as two:
        for a, b in zip(one.sides, two.sides, strict=True):
            assert a.maps["pca"].xy.tobytes() == b.maps["pca"].xy.tobytes()


def test_caches_that_do_not_belong_together(caches, tmp_path, tiny_bert):
    with pytest.raises(UsageError, match="classification dev.* classification train; equal ids there are not the same"):
        scene(caches["dev"], caches["train"])
    task = word_task()
    few = probekit.Split("dev", task.split("dev").examples[:3])
    cache_activations(
        tiny_bert,
        probekit.Task("classification", task.kind, {"dev": few}, task.label_names),
        "dev",
        out=tmp_path / "3.h5",
    ).close()
    with pytest.raises(UsageError, match="share 3 examples by id, and a map needs 4: .*has 80, such as '0'"):
        scene(caches["dev"], tmp_path / "3.h5")
    with pytest.raises(UsageError, match="make it with --tokens"):
        scene(tmp_path / "3.h5", unit="tokens")
