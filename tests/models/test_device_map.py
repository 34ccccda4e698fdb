"""A model that transformers spreads over devices: the same numbers, and refusals. One CPU plays the devices."""

from __future__ import annotations

import accelerate
import pytest
import torch

import probekit
from probekit.errors import ModelError, UsageError
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.transformers import stock
from probekit.models.transformers.encoder import all_layers


def batch(encoder) -> Batch:
    tokens = encoder.tokenize(["the cat sleeps", "the dog runs in the garden"])
    lengths = tokens.length[:1] if not encoder.mixed_lengths else tokens.length
    end = int(lengths.sum())
    return Batch(tokens.token_ids[:end], tokens.type_ids[:end], lengths.astype("int64"))


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_the_same_numbers(tiny_model, family):
    plain = load_encoder(tiny_model(family), device="cpu", onednn=False)
    right = all_layers(plain, batch(plain))
    for how in ("auto", {"": "cpu"}):
        spread = load_encoder(tiny_model(family), device="cpu", device_map=how, onednn=False)
        assert torch.equal(all_layers(spread, batch(spread)), right)
        assert spread.spec["device_map"] == (how if how == "auto" else "given")
        assert spread.spec["path"] == plain.spec["path"]
    low = load_encoder(tiny_model(family), device="cpu", device_map="auto", onednn=False, last=1)
    assert low.last == 1
    assert torch.equal(all_layers(low, batch(low)), right[:2])


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_modules_that_move_their_inputs(tiny_model, family, monkeypatch):
    """With accelerate's hooks on each block, as on several devices, the packed path is the same."""
    plain = load_encoder(tiny_model(family), device="cpu", onednn=False)
    read = stock._read

    def hooked(*arguments):
        model, missing = read(*arguments)
        names = {name: "cpu" for name, child in model.named_children()}
        return accelerate.dispatch_model(model, names, main_device="cpu", force_hooks=True), missing

    monkeypatch.setattr(stock, "_read", hooked)
    spread = load_encoder(tiny_model(family), device="cpu", device_map="auto", onednn=False)
    assert hasattr(spread.model, "_hf_hook")
    assert spread.spec["path"] == plain.spec["path"]
    right, early = all_layers(plain, batch(plain)), []
    spread.encode(batch(spread), lambda _, rows: early.append(rows.clone()), wanted={1})
    assert torch.equal(torch.stack(early), right[:2])
    assert torch.equal(all_layers(spread, batch(spread)), right)


def test_refusals(tiny_model, tmp_path, monkeypatch):
    folder = tiny_model("llama")
    with pytest.raises(ModelError, match="device_map spreads a whole model that is read"):
        load_encoder(folder, device_map="auto", random_weights=0)
    read = stock._read

    def too_large(*arguments):
        model, missing = read(*arguments)
        model.layers[2].to("meta")
        return model, missing

    monkeypatch.setattr(stock, "_read", too_large)
    with pytest.raises(ModelError, match=r"does not fit on the devices: \d+ of its weights \(layers.2"):
        load_encoder(folder, device="cpu", device_map="auto")
    for options, why in (({"workers": 2}, "leave out --workers"), ({"device_map": "tensor"}, "expected auto")):
        with pytest.raises(UsageError, match=why):
            probekit.cache_activations(folder, "grammar:sentiment", **{"device_map": "auto", **options})


def test_a_cache_says_how_the_model_was_spread(tiny_model, tmp_path):
    options = {"limit": 8, "split": "dev", "device": "cpu"}
    task = "grammar:sentiment"
    one = probekit.cache_activations(tiny_model("llama"), task, out=tmp_path / "one.h5", device_map="auto", **options)
    plain = probekit.cache_activations(tiny_model("llama"), task, out=tmp_path / "plain.h5", **options)
    assert one.spec["device_map"] == "auto"
    assert "device_map" not in plain.spec
    assert one.spec_id != plain.spec_id
