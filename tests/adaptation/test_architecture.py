"""Fewer blocks, and new weights at the top, before training."""

import json

import numpy as np
import pytest
import torch
from lessons import SHORT, praise, same_weights
from transformers import AutoModel

import probekit
from probekit.adaptation.methods.adapt import reinitialise_top
from probekit.adaptation.train import train
from probekit.errors import UsageError
from probekit.models.adapted.depth import drop_blocks
from probekit.models.adapted.direction import attend
from probekit.models.encoder import Batch
from probekit.models.transformers.stock import load_model

HOW = SHORT | {"epochs": 1, "keep": "last", "save_at": "0"}
IDS = torch.tensor([[2, 6, 7, 8, 9, 3]])


def layers(net):
    with torch.inference_mode():
        return net(input_ids=IDS, output_hidden_states=True).hidden_states


@pytest.mark.parametrize("family", ["bert", "gpt2", "qwen2", "t5", "albert", "distilbert"])
def test_the_kept_layers_are_those_of_the_whole_model(tiny_model, family):
    whole, cut = load_model(tiny_model(family)), load_model(tiny_model(family))
    changes = drop_blocks(cut, 2)
    assert cut.config.num_hidden_layers == 2
    assert 2 in changes.values()
    normed = family in ("gpt2", "qwen2", "t5")  # the last hidden state has passed the final norm
    found, right = layers(cut), layers(whole)
    assert len(found) == 3
    for a, b in zip(found[: 3 - normed], right, strict=False):
        assert torch.equal(a, b)
    with pytest.raises(UsageError, match="the model has 2 blocks"):
        drop_blocks(cut, 3)


@pytest.mark.parametrize(
    ("family", "method"),
    [
        ("bert", "lora"),
        pytest.param("gpt2", "full", marks=pytest.mark.slow),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("bert", "full"), ("gpt2", "last"))),
    ],
)
def test_a_run_with_fewer_blocks_is_a_usual_model(tiny_model, tmp_path, family, method):
    done = train(praise(), tiny_model(family), tmp_path / "run", method=method, keep_layers=1, **HOW | ONE[method])
    config = json.loads((done.path / "config.json").read_text())
    assert config["n_layer" if family == "gpt2" else "num_hidden_layers"] == 1
    encoder = probekit.load_encoder(done.path)
    assert encoder.depth == 1
    whole = layers(load_model(tiny_model(family)))
    first = layers(load_model(done.path / "step-0"))
    assert torch.equal(first[0], whole[0])
    if family == "bert":
        torch.testing.assert_close(first[1], whole[1])
    if method == "full":
        assert AutoModel.from_pretrained(done.path).config.num_hidden_layers == 1
    found = probekit.evaluate(done.path, task=[praise()], split="dev").rows
    assert found[found.headline.fillna(False).astype(bool)].value.item() == done.metrics["accuracy"]


ONE = {"full": {}, "lora": {}, "last": {"last": 1}}


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_new_weights_at_the_top_are_drawn_as_the_model_draws_them(tiny_model, family):
    old, new, again, other = (load_model(tiny_model(family)) for _ in range(4))
    reinitialise_top(new, 2, 0)
    reinitialise_top(again, 2, 0)
    reinitialise_top(other, 2, 1)
    top = [f"{part}{i}." for i in (1, 2) for part in ("layer.", "h.", "layers.")]
    drawn = 0
    for name, weight in new.named_parameters():
        before = old.get_parameter(name)
        assert torch.equal(weight, again.get_parameter(name))
        if not (any(part in name for part in top) or "pooler" in name):
            assert torch.equal(weight, before)
        elif weight.ndim > 1:
            assert not torch.equal(weight, before)
            assert not torch.equal(weight, other.get_parameter(name))
            scale = 0.2 / (6**0.5 if "c_proj" in name else 1)  # GPT-2 divides by the root of twice its depth
            assert weight.std().item() == pytest.approx(scale, rel=0.15)
            drawn += 1
        else:
            assert torch.equal(
                weight,
                torch.full_like(weight, float("norm" in name.lower() or ".ln_" in name) * (name.endswith("weight"))),
            )
    assert drawn
    with pytest.raises(UsageError, match="the model has 3 blocks"):
        reinitialise_top(new, 4, 0)


@pytest.mark.slow
def test_a_run_with_new_weights_is_the_same_for_the_same_seed(tiny_bert, tmp_path):
    runs = [train(praise(), tiny_bert, tmp_path / str(i), reinit_top=1, **HOW) for i in range(2)]
    assert same_weights(runs[0].path, runs[1].path)
    whole, start = layers(load_model(tiny_bert)), layers(load_model(runs[0].path / "step-0"))
    for layer, equal in enumerate((True, True, True, False)):
        assert torch.allclose(whole[layer], start[layer], atol=1e-6) == equal


def test_blocks_that_run_several_times_have_no_top(tiny_model):
    with pytest.raises(UsageError, match="several times"):
        reinitialise_top(load_model(tiny_model("albert")), 1, 0)


def ends(net, width, **mask):
    """The last layer of a sentence, and of the same with padding behind it."""
    with torch.inference_mode():
        return net(input_ids=torch.nn.functional.pad(IDS, (0, width - IDS.shape[1])), **mask).last_hidden_state[:, :6]


@pytest.mark.parametrize(
    "family",
    [
        *("llama", "bert"),
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("gpt2", "roberta", "gpt_neox", "qwen3", "electra")),
    ],
)
@pytest.mark.parametrize("width", [6, 9])
def test_a_model_that_reads_in_the_other_direction_is_the_same_model_with_another_mask(tiny_model, family, width):
    net, twin = (load_model(tiny_model(family), attention=kind) for kind in ("sdpa", "eager"))
    causal = family in ("bert", "roberta", "electra")
    changes = attend(net, causal=causal)
    assert changes["is_causal"] == causal
    real = (torch.arange(width) < 6).long()[None]
    seen = real[:, None, None, :].expand(1, 1, width, width).bool()
    seen = seen & torch.ones(width, width).tril().bool() if causal else seen
    mask = torch.zeros(seen.shape).masked_fill(~seen, -1e30)
    found, right = ends(net, width, attention_mask=real), ends(twin, width, attention_mask=mask)
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found, ends(twin, width, attention_mask=real), atol=1e-2)


@pytest.mark.parametrize("family", ["t5", "albert", "distilbert", "deberta-v2"])
def test_models_without_a_causal_form_are_refused(tiny_model, family):
    with pytest.raises(UsageError, match="no causal form"):
        attend(load_model(tiny_model(family)), causal=True)


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"attention": "both"}, "attention is 'both'"),
        ({"attention": "causal", "lm_loss": 0.5}, "leave out --lm-loss"),
        ({"attention": "causal", "regime": "feature-extraction"}, "--attention is for fine-tuning"),
    ],
)
def test_attention_that_has_no_effect_is_refused(tiny_bert, tmp_path, how, problem):
    with pytest.raises(UsageError, match=problem):
        train(praise(), tiny_bert, tmp_path / "run", **how)


@pytest.mark.parametrize(
    ("family", "attention", "method"),
    [
        pytest.param("llama", "bidirectional", "lora", marks=pytest.mark.slow),
        ("bert", "causal", "full"),
        pytest.param("llama", "bidirectional", "full", marks=pytest.mark.slow),
        pytest.param("bert", "causal", "lora", marks=pytest.mark.slow),
    ],
)
def test_every_command_reads_a_run_in_its_direction(tiny_model, tmp_path, family, attention, method):
    base = tiny_model(family)
    done = train(praise(), base, tmp_path / "run", method=method, attention=attention, **HOW)
    assert done.card["head"]["pooling"] == {"llama": "mean", "bert": "last"}[family]
    twin = load_model(base)
    attend(twin, causal=attention == "causal")
    for a, b in zip(layers(load_model(done.path / "step-0")), layers(twin), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    trained = load_model(done.path)
    encoder = probekit.load_encoder(done.path)  # packed
    right = layers(trained)
    for a, b in zip(encoder.own_hidden_states(Batch(*packed(IDS))), right, strict=True):
        torch.testing.assert_close(a, b[0], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(right[-1], layers(load_model(base))[-1], atol=1e-2)
    found = probekit.evaluate(done.path, task=[praise()], split="dev").rows
    assert found[found.headline.fillna(False).astype(bool)].value.item() == done.metrics["accuracy"]
    if method == "full":  # further training goes on in the same direction
        again = train(praise(), done.path, tmp_path / "again", **HOW)
        assert again.card["head"]["pooling"] == done.card["head"]["pooling"]


def packed(ids):
    return ids[0].numpy(), np.zeros(ids.shape[1], np.uint8), np.array([ids.shape[1]])
