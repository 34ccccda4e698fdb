"""What a cache says of itself beside its numbers: where its model comes from, what made it, in a few words."""

import json

import h5py
import numpy as np
import pytest
import tiny
from toys import toy_task

import probekit
from probekit.activations import cache_activations, verify
from probekit.activations.writing import workers
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.models.identity import CARD, RUN_FORMAT
from probekit.runtime import devices
from probekit.sites import Site
from probekit.tasks import Example, Split, Task, TaskKind

RUN = {
    "format": RUN_FORMAT, "run": "cola.joint.fine-tune.0", "model": "bert", "step": 40, "task": "cola",
    "regime": "fine-tune", "head": {"head": "linear"}, "seeds": {"seed": 3},
}  # fmt: skip
TOLD = {
    "run": "cola.joint.fine-tune.0", "step": 40, "trained_on": "cola", "regime": "fine-tune", "head": "linear",
    "variant": "", "seed": 3,
}  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path):
    folder = tiny.tiny_model("bert", tmp_path / "run")
    (folder / CARD).write_text(json.dumps(RUN))
    return folder


def test_a_cache_of_a_trained_run_keeps_its_origin(checkpoint, tmp_path):
    cache = cache_activations(checkpoint, toy_task(), device="cpu", out=tmp_path / "c.h5")
    assert cache.origin == TOLD
    assert cache.spec["checkpoint"] == "cola.joint.fine-tune.0"
    assert "origin" not in cache.spec
    loaded = cache_activations(load_encoder(checkpoint, device="cpu"), toy_task(), out=tmp_path / "d.h5")
    assert loaded.origin == TOLD
    assert loaded.spec_id == cache.spec_id
    random = cache_activations(checkpoint, toy_task(), device="cpu", random_weights=0, out=tmp_path / "e.h5")
    assert random.origin == {}
    assert verify(cache.path).ok
    assert "cola, fine-tune, linear" in probekit.inspect(cache.path)["trained on"]


def test_caches_of_before_have_no_origin(tmp_path, tiny_bert):
    cache = cache_activations(tiny_bert, toy_task(), device="cpu", out=tmp_path / "c.h5")
    assert cache.origin == {}
    with h5py.File(cache.path) as f:
        assert "origin" not in f.attrs


def test_a_cache_keeps_the_recipe_that_makes_it(tmp_path, tiny_bert):
    cache = probekit.cache_activations(
        str(tiny_bert), "grammar:sentiment", "dev", limit=20, pooling="mean,max", device="cpu", out=tmp_path / "c.h5"
    )
    recipe = cache.recipe
    assert recipe.function == "cache_activations"
    assert recipe.arguments == {
        "model": str(tiny_bert), "task": "grammar:sentiment", "split": "dev", "limit": 20, "pooling": ["mean", "max"],
        "device": "cpu",
    }  # fmt: skip
    again = recipe.run(out=str(tmp_path / "again.h5"))
    assert again.spec_id == cache.spec_id
    np.testing.assert_array_equal(again.layer(2, "max"), cache.layer(2, "max"))
    shared = probekit.cache_activations(
        str(tiny_bert), "grammar:sentiment", "dev", limit=20, pooling=("mean", "max"), device="cpu", workers=1,
        batch_tokens=64, out=tmp_path / "b.h5",
    )  # fmt: skip
    assert shared.recipe == recipe


def test_compiled_numbers_are_other_numbers(tmp_path, tiny_bert, monkeypatch):
    """``compile`` is part of what identifies a cache; without it the spec_id is what it was."""
    from probekit.activations.options import CacheOptions
    from probekit.activations.writing.request import make_request, recipe_of

    def request(**options):
        chosen = CacheOptions(device="cpu", **options)
        return make_request(tiny_bert, toy_task(), "train", chosen, None, recipe_of("m", "t", "train", chosen, None))

    plain, compiled = request(), request(compile=True)
    assert plain.spec_id != compiled.spec_id
    assert "compile" not in plain.want
    assert plain.want == {key: value for key, value in compiled.want.items() if key != "compile"}


def test_words_and_their_labels_side_by_side(tmp_path, tiny_bert):
    """Where texts repeat, /tokens holds fewer words than /word_labels."""
    texts = ("the cat", "a dog sees", "the cat")
    examples = tuple(
        Example(str(i), text, tuple(range(10 * i, 10 * i + len(text.split()))), words=tuple(text.split()))
        for i, text in enumerate(texts)
    )
    task = Task("words", TaskKind.SEQUENCE_LABELLING, {"train": Split("train", examples)}, tuple(map(str, range(30))))
    for level in ("piece", "word-first", "word-mean"):
        cache = cache_activations(
            tiny_bert, task, device="cpu", pooling=[], tokens=True, token_level=level, out=tmp_path / f"{level}.h5"
        )
        words = cache.words(-1)
        assert list(words.labels) == [0, 1, 10, 11, 12, 20, 21]
        assert list(words.sentence) == [0, 0, 1, 1, 1, 2, 2]
        assert len(words) == len(words.vectors) == 7
        np.testing.assert_array_equal(words.vectors[:2], words.vectors[5:])
        np.testing.assert_array_equal(words.vectors, cache.layer_words(3))
        assert len(cache.tokens(3).values) != len(words) or level != "word-first"
        assert repr(words) == "<7 words of 3 examples, width 32>"


def test_one_rule_for_the_names_of_layers(tmp_path, tiny_gpt2):
    cache = cache_activations(tiny_gpt2, toy_task(), device="cpu", out=tmp_path / "c.h5")
    assert cache.layers[-1] == "final_norm"
    depth = len(cache.layers) - 2
    for asked in (-1, "-1", depth, str(depth), Site("resid_post", depth)):
        assert cache.layer_name(asked) == str(depth)
        np.testing.assert_array_equal(cache.layer(asked), cache.layer(depth))
    assert cache.layer_names() == cache.layers
    assert cache.layer_names([-1, "final_norm", depth]) == (str(depth), "final_norm")
    with pytest.raises(UsageError, match="has no layer 99"):
        cache.layer_names([99])
    assert cache.widths == (cache.width,) * len(cache.layers)


def test_caches_show_themselves_small(tmp_path, tiny_bert):
    cache = cache_activations(tiny_bert, toy_task(), device="cpu", model_name="<i>bert</i>", out=tmp_path / "c.h5")
    assert len(repr(cache)) < 300
    html = cache._repr_html_()
    assert html == cache._repr_html_()
    assert "&lt;i&gt;bert&lt;/i&gt;" in html
    assert "<i>" not in html
    assert len(html) < 3000
    assert "caches" not in probekit.inspect(cache.path)
    encoder = load_encoder(tiny_bert, device="cpu")
    assert len(repr(encoder)) < 200
    assert len(encoder._repr_html_()) < 2000


def test_workers_get_their_own_device(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert devices("cuda", 5) == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    assert devices("cuda:1", 2) == ["cuda:1", "cuda:1"]
    assert devices("cpu", 2) == ["cpu", "cpu"]
    assert workers.devices is devices
