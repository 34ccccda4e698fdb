"""Names of other tools, and the sites that they stand for."""

import pytest

from probekit.activations.foreign.names import site_of


@pytest.mark.parametrize(
    ("name", "site"),
    [
        ("layer_3", "3"), ("layers.3", "3"), ("3", "3"), ("hidden_states.3", "3"), ("hidden_states[3]", "3"),
        ("resid_post.3", "4"), ("resid_post_3", "4"), ("resid_pre.3", "resid_pre.3"), ("attn_out.0", "attn_out.0"),
        ("tokens/3", "3"), ("tokens/z.2", "z.2"), ("final_norm", "final_norm"), ("embeddings", "embeddings"),
        ("blocks.3.hook_resid_post", "4"), ("blocks.3.hook_resid_pre", "resid_pre.3"), ("blocks.3.hook_out", "4"),
        ("blocks.3.hook_attn_out", "attn_out_post.3"), ("blocks.3.attn.hook_out", "attn_out.3"),
        ("blocks.3.mlp.hook_post", "mlp_act.3"), ("blocks.3.attn.hook_v", "value.3"), ("hook_embed", "embeddings"),
        ("ln_final.hook_normalized", "final_norm"), ("model.layers.3.output", "4"), ("model.layers[3].output[0]", "4"),
        ("transformer.h.3", "4"), ("transformer.h.3.input", "resid_pre.3"), ("model.layers.3.mlp.output", "mlp_out.3"),
        ("model.layers.3.self_attn.output.0", "attn_out.3"), ("gpt_neox.layers.0.attention.output", "attn_out.0"),
        ("encoder.layer.3.output", "4"), ("h.3.output", "4"),
    ],
)  # fmt: skip
def test_understood(name, site):
    assert str(site_of(name)) == site


@pytest.mark.parametrize(
    "name",
    ["pattern", "blocks.3.attn.hook_pattern", "attn_probs.3", "layer", "final_norm.3", "lm_head", "layer_-1", ""],
)
def test_not_understood(name):
    assert site_of(name) is None
