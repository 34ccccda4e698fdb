"""Low layers without the weights of the blocks after them: the bits, the names and the cache of the whole model."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_layers import TEXTS, batches

import probekit
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.models.transformers.blocks import find_blocks
from probekit.models.transformers.encoder import all_layers

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import tiny_models

FAMILIES = ["bert", "gpt2", "llama", "gemma3", "t5", "save opt", "save gemma3", "save xlnet"]
"""Those with ``save`` are made as benchmarks make them: OPT, a Gemma 3 that sees images, XLNet."""


@pytest.fixture
def folder(request, tiny_model, tmp_path):
    kind = request.param.removeprefix("save ")
    if kind == request.param:
        return tiny_model(kind)
    tiny_models.save_tiny(kind, tmp_path / kind)
    return tmp_path / kind


@pytest.mark.parametrize("folder", FAMILIES, indirect=True)
def test_the_first_blocks_give_the_bits_of_the_whole_model(folder):
    whole, part = (load_encoder(folder, device="cpu", last=last) for last in (None, 1))
    assert part.last == 1
    assert len(find_blocks(part.model)) == 2 < whole.depth == len(find_blocks(whole.model))
    assert part.spec == whole.spec
    assert (part.sites, part.widths, part.mixed_lengths) == (whole.sites, whole.widths, whole.mixed_lengths)
    stored = {name.rpartition(".")[0] for name, _ in part.model.named_parameters()}
    assert stored < {name.rpartition(".")[0] for name, _ in whole.model.named_parameters()}
    for batch in batches(whole.tokenize(TEXTS)):
        assert torch.equal(all_layers(part, batch), all_layers(whole, batch, wanted=(0, 1)))


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_the_cache_of_low_layers_is_that_of_a_whole_model(family, tiny_model, tmp_path):
    how = {"split": "dev", "limit": 20, "layers": (1,)}
    whole = load_encoder(tiny_model(family), device="cpu")
    with (
        probekit.cache_activations(whole, "grammar:sentiment", out=tmp_path / "whole.h5", **how) as one,
        probekit.cache_activations(
            tiny_model(family), "grammar:sentiment", out=tmp_path / "part.h5", device="cpu", **how
        ) as other,
    ):
        assert np.array_equal(one.layer(1), other.layer(1))
        assert (one.spec, one.spec_id) == (other.spec, other.spec_id)
        assert one.spec["certificate"]["passed"]


def test_layers_whose_blocks_were_not_read_are_refused(tiny_bert, tmp_path):
    part = load_encoder(tiny_bert, device="cpu", last=1)
    with pytest.raises(UsageError, match="was loaded up to layer 1; load it without last"):
        probekit.cache_activations(part, "grammar:sentiment", "dev", limit=4, out=tmp_path / "all.h5")
    with pytest.raises(UsageError, match="of sites, the whole model is read"):
        load_encoder(tiny_bert, last=1, sites="attn_out")


@pytest.mark.parametrize(
    ("family", "how"), [("albert", {"last": 1}), ("bert", {"last": 2}), ("bert", {"last": 1, "random_weights": 0})]
)
def test_where_blocks_cannot_be_left_out_all_are_read(family, how, tiny_model):
    encoder = load_encoder(tiny_model(family), device="cpu", **how)
    assert encoder.last is None
    assert len(all_layers(encoder, batches(encoder.tokenize(TEXTS))[0])) == 4
