"""Where a checkpoint says that it comes from, and what of that enters caches and rows."""

import json
import shutil

import pytest

from probekit import cache_activations, load_encoder
from probekit.activations.writing.request import digest
from probekit.analyses.vectors import columns_of
from probekit.errors import ModelError
from probekit.models.identity import checkpoint_of, identify

CARD = {"format": "probekit-run/1", "run": "cola-seed-1", "model": "tiny-bert", "step": 120, "total_steps": 600}
JOB = {"task": "grammar:acceptability", "split": "dev", "limit": 12, "device": "cpu"}


@pytest.fixture
def step(tiny_bert, tmp_path):
    """A checkpoint: the model's own weights, and a card."""
    folder = shutil.copytree(tiny_bert, tmp_path / "run" / "step-120")
    (folder / "probekit.json").write_text(json.dumps(CARD))
    return folder


def test_a_checkpoint_goes_by_its_model_its_run_and_its_step(step, tiny_bert):
    assert checkpoint_of(step) == {"model": "tiny-bert", "checkpoint": "cola-seed-1", "step": 120}
    told, plain = identify(step), identify(tiny_bert)
    assert {key: told.pop(key) for key in ("checkpoint", "step")} == {"checkpoint": "cola-seed-1", "step": 120}
    assert (told.pop("model"), plain.pop("model")) == ("tiny-bert", tiny_bert.name)
    assert told == plain
    assert checkpoint_of(tiny_bert) == {}
    assert identify(step, name="other")["model"] == "other"
    assert load_encoder(step, device="cpu").name == "tiny-bert"


def test_random_weights_are_of_no_checkpoint(step):
    told = identify(step, random_weights=3)
    assert told["model"] == "tiny-bert"
    assert not {"checkpoint", "step"} & set(told)


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ("{", "cannot be read as the card of a checkpoint"),
        ("[]", "cannot be read as the card of a checkpoint"),
        ({"format": "probekit-run/2"}, "format is 'probekit-run/2'; expected the format 'probekit-run/1'"),
        ({"run": ""}, "run is ''; expected the name of a run"),
        ({"model": None}, "model is None; expected the name of a model"),
        ({"step": "120"}, "step is '120'; expected a step, 0 or more"),
        ({"step": -1}, "step is -1"),
        ({"step": True}, "step is True"),
    ],
)
def test_a_card_that_is_none_is_told(step, card, said):
    (step / "probekit.json").write_text(card if isinstance(card, str) else json.dumps(CARD | card))
    for wants in (identify, cache_activations):
        with pytest.raises(ModelError) as caught:
            wants(step) if wants is identify else wants(step, "grammar:acceptability", "dev", device="cpu")
        assert said in str(caught.value)
        assert "probekit.json" in str(caught.value)


def test_run_and_step_are_in_the_spec_the_file_name_and_the_rows(step, tiny_bert, tmp_path):
    with cache_activations(step, out=f"{tmp_path}/caches/", **JOB) as cache:
        assert cache.path.parent == tmp_path / "caches"
        assert cache.path.name.startswith("grammar-acceptability.dev.tiny-bert-cola-seed-1-step-120.")
        assert {k: cache.spec[k] for k in ("model", "checkpoint", "step")} == checkpoint_of(step)
        assert {"checkpoint", "step"}.isdisjoint(cache.spec["environment"])
        row = columns_of(cache, "mean")
        assert (row["model"], row["checkpoint"], row["step"]) == ("tiny-bert", "cola-seed-1", 120)
        with cache_activations(load_encoder(step, device="cpu"), out=tmp_path / "caches", **JOB) as again:
            assert again.path == cache.path  # a loaded encoder's job is the same job
    other = step.parent / "step-130"
    shutil.copytree(step, other)
    (other / "probekit.json").write_text(json.dumps(CARD | {"step": 130}))
    with cache_activations(other, out=tmp_path / "caches", **JOB) as cache:
        assert "step-130" in cache.path.name  # the same weights, and still another point of the trajectory


def test_a_model_without_a_card_is_cached_under_the_name_it_always_had(tiny_bert, tmp_path):
    with cache_activations(tiny_bert, out=tmp_path / "c.h5", **JOB) as cache:
        spec = cache.spec
        asked = (
            *("task", "split", "data_digest", "n", "kind", "pairs", "sentences", "pooling", "tokens", "store", "model"),
            *("revision", "weights_digest", "tokenizer_digest", "random_weights", "dtype", "device", "cut_at"),
        )
        assert cache.spec_id == digest({key: spec[key] for key in asked})
        assert not {"checkpoint", "step"} & set(spec)
        assert (columns_of(cache, "mean")["checkpoint"], columns_of(cache, "mean")["step"]) == ("", None)
