"""Fused steps against the same model without them, and against mistakes that the self-check must find."""

import numpy as np
import pytest
import tiny
import torch

from probekit.errors import ModelError
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.transformers import encoder as huggingface
from probekit.models.transformers import fused
from probekit.models.transformers.encoder import all_layers, relative_error
from probekit.models.transformers.fused import AddedNorm, GatedMLP, RMSNorm, rotated
from probekit.models.transformers.onednn import PrepackedLinear, onednn_available

pytestmark = pytest.mark.skipif(not onednn_available(torch.float32), reason="oneDNN does not work here")

BATCH = Batch(np.arange(5, 21), np.zeros(16, np.uint8), np.array([3, 5, 8]))
REPLACED = {"bert": (AddedNorm, 2), "roberta": (AddedNorm, 2), "llama": (GatedMLP, 1), "qwen3": (RMSNorm, 4)}
"""Modules of each block."""


@pytest.mark.parametrize(
    "family", tiny.families(["bert", "roberta", "gpt2", "gpt_neox", "distilbert", "albert", "llama", "qwen3"])
)
def test_fused_steps_change_nothing_but_rounding(family, tiny_model, monkeypatch):
    new = load_encoder(tiny_model(family))
    monkeypatch.setattr(huggingface, "fuse", lambda model, run: False)
    old = load_encoder(tiny_model(family))
    assert new.spec["path"] == old.spec["path"] + "+fused"
    assert relative_error(all_layers(new, BATCH), all_layers(old, BATCH)) < 2e-6  # the largest seen is 8.7e-7
    assert any(m.then[0] for m in new.model.modules() if isinstance(m, PrepackedLinear) and m.then[0] != "none")
    if family in REPLACED:
        kind, count = REPLACED[family]
        blocks = list(new.model.get_submodule("encoder.layer" if kind is AddedNorm else "layers"))
        assert all(sum(isinstance(m, kind) for m in block.modules()) == count for block in blocks)
    assert all(("forward" in vars(m)) == (family in ("llama", "qwen3")) for m in new.model.modules()
               if type(m).__name__.endswith("Attention") and hasattr(m, "q_proj"))  # fmt: skip


def test_layers_are_the_same_bits_beside_sites_inside_blocks(tiny_model):
    plain, read = (
        load_encoder(tiny_model("bert")),
        load_encoder(tiny_model("bert"), sites="resid_post,attn_out,mlp_out"),
    )
    both = [site for site in read.sites if site in plain.sites]
    one, two = all_layers(plain, BATCH), all_layers(read, BATCH)
    assert len(both) == plain.depth
    for site in both:
        assert torch.equal(one[plain.sites.index(site)], two[read.sites.index(site)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_do_not_depend_on_their_number(dtype):
    if not onednn_available(dtype):
        pytest.skip("oneDNN is not available here")
    generator = torch.Generator().manual_seed(0)
    weight, bias, x, other = (
        torch.randn(*n, generator=generator).to(dtype) for n in ((96, 64), (96,), (300, 64), (300, 96))
    )
    layer = PrepackedLinear(weight / 8, bias)
    with torch.inference_mode():
        right = torch.nn.functional.linear(x.double(), weight.double() / 8, bias.double())
        for then, function in (
            (("gelu", "none"), torch.nn.functional.gelu),
            (("gelu", "tanh"), lambda y: torch.nn.functional.gelu(y, approximate="tanh")),
            (("swish", ""), torch.nn.functional.silu),
            (("relu", ""), torch.relu),
        ):
            layer.then = then
            full = layer(x)
            torch.testing.assert_close(
                full.double(), function(right), rtol=0, atol=1e-5 if dtype is torch.float32 else 5e-2
            )
            assert all(torch.equal(layer(x[:n]), full[:n]) for n in (1, 2, 7, 33, 256, 257))
        for how, expected in (("add", right + other.double()), ("mul", right * other.double())):
            full = layer.combined(x, other, how)
            torch.testing.assert_close(
                full.double(), expected, rtol=1e-2, atol=2e-5 if dtype is torch.float32 else 5e-2
            )
            assert all(torch.equal(layer.combined(x[:n], other[:n], how), full[:n]) for n in (1, 2, 7, 33, 256, 257))


def test_rotation_is_that_of_transformers():
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as of_pairs
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    assert fused._same_rotation(apply_rotary_pos_emb)
    assert not fused._same_rotation(of_pairs)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_control_wrong_fusions_are_found(family, tiny_model, monkeypatch):
    if family == "bert":
        monkeypatch.setattr(
            fused, "_in_onednn", lambda module: ("relu", "") if "GELU" in type(module).__name__ else ("", "")
        )
    else:
        monkeypatch.setattr(fused, "rotated", lambda query, key, cos, sin: rotated(query, key, sin, cos))
        monkeypatch.setattr(fused, "_same_rotation", lambda own: True)
    with pytest.raises(ModelError, match="relative error"):
        load_encoder(tiny_model(family))
