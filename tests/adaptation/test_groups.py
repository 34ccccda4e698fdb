"""Parameters by layer: found by name, and held against what the blocks' outputs depend on."""

from __future__ import annotations

from collections import Counter

import pytest
import tiny
import torch
from torch import nn

from probekit.adaptation.training.groups import layer_groups, param_groups
from probekit.models.transformers.blocks import find_blocks
from probekit.models.transformers.stock import load_model


def encoder_of(folder):
    return load_model(folder).requires_grad_(True)


def names(groups):
    return {name: [key for key, _ in members] for name, members in groups}


@pytest.mark.parametrize("family", tiny.families(tiny.FAMILIES))
def test_each_parameter_is_in_the_layer_that_it_acts_in(tiny_model, family):
    encoder, head = encoder_of(tiny_model(family)), nn.Linear(4, 2)
    groups = layer_groups(encoder, head=head)
    held = Counter(id(p) for _, members in groups for _, p in members)
    assert held == Counter(map(id, [*encoder.parameters(), *head.parameters()]))

    depth = {id(p): i for i, (_, members) in enumerate(groups) for _, p in members}
    outputs: list[torch.Tensor] = []
    blocks = find_blocks(encoder)
    for block in blocks:
        block.register_forward_hook(lambda _, args, out: outputs.append(out[0] if isinstance(out, tuple) else out))
    last = encoder(input_ids=torch.tensor([[5, 6, 7, 8, 9]])).last_hidden_state
    assert len(groups) == len(blocks) + 2
    for i, output in enumerate(outputs if len(blocks) > 1 else outputs[-1:], start=1):
        encoder.zero_grad()
        output.square().sum().backward(retain_graph=True)
        reached = {depth[id(p)] for p in encoder.parameters() if p.grad is not None}
        assert reached == set(range(i + 1))
    encoder.zero_grad()
    last.square().sum().backward()
    beside = [name for name, p in encoder.named_parameters() if p.grad is None]
    assert all(name.startswith("pooler.") for name in beside)
    assert {f"encoder.{name}" for name in beside} <= set(names(groups)["head"])


def test_where_the_awkward_ones_are(tiny_model):
    head = nn.Linear(4, 2)
    t5 = names(layer_groups(encoder_of(tiny_model("t5")), head=head))
    assert "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight" in t5["block 1"]
    assert "encoder.final_layer_norm.weight" in t5["block 3"]
    assert "encoder.ln_f.bias" in names(layer_groups(encoder_of(tiny_model("gpt2")), head=head))["block 3"]
    assert (
        "encoder.encoder.LayerNorm.weight"
        in names(layer_groups(encoder_of(tiny_model("deberta-v2")), head=head))["embeddings"]
    )
    assert list(names(layer_groups(encoder_of(tiny_model("albert")), head=head))) == ["embeddings", "block 1", "head"]
    bert = names(layer_groups(encoder_of(tiny_model("bert")), head=head))
    assert list(bert) == ["embeddings", "block 1", "block 2", "block 3", "head"]
    assert bert["head"] == ["encoder.pooler.dense.weight", "encoder.pooler.dense.bias", "head.weight", "head.bias"]


def test_tied_and_frozen_parameters(tiny_bert):
    encoder = encoder_of(tiny_bert)
    head = nn.Linear(32, 50, bias=False)
    head.weight = encoder.embeddings.word_embeddings.weight
    groups = names(layer_groups(encoder, head=head))
    assert "encoder.embeddings.word_embeddings.weight" in groups["embeddings"]
    assert "head.weight" not in groups["head"]
    encoder.embeddings.requires_grad_(False)
    assert list(names(layer_groups(encoder, head=head))) == ["block 1", "block 2", "block 3", "head"]


def test_rates_and_decay(tiny_bert):
    groups = layer_groups(encoder_of(tiny_bert), head=nn.Linear(32, 2))
    optimizer = torch.optim.SGD(param_groups(groups, lr=1.0, weight_decay=0.1, layer_factor=0.4))
    rates = {group["layer"]: group["lr"] for group in optimizer.param_groups}
    assert rates == {"embeddings": 0.4**4, "block 1": 0.4**3, "block 2": 0.4**2, "block 3": 0.4, "head": 1.0}
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    for _, members in groups:
        for name, parameter in members:
            plain = name.endswith("bias") or "LayerNorm" in name  # what google-research/bert leaves out, by name
            assert decays.pop(id(parameter)) == (0.0 if plain else 0.1), name
    assert not decays
