"""Tiny random models of every type that transformers has: its configuration, shrunk by rules that know no family.

A rule gives a number for a name in a configuration; ``OVERRIDES`` has what the rules get wrong, by model type.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultimodalLM,
    AutoModelForPreTraining,
    AutoModelForSeq2SeqLM,
)
from transformers.models.auto.auto_factory import _get_model_class

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import tiny

PIECES, PLACES, DEPTH, WINDOW = 400, 64, 4, 4
RULES: tuple[tuple[str, int], ...] = (
    (r"(\w+_)?vocab_size(_per_layer_input)?|vocab_size_\w+|num_embeddings", PIECES),
    (r"(num_hidden|n|num|encoder|decoder|num_encoder|num_decoder|text_encoder)_layers?|num_blocks", DEPTH),
    (r"\w*(max_position_embeddings|n_positions|max_seq_len|max_sequence_length|n_ctx|context_length)\w*", PLACES),
    (r"(seq_length|max_(target|source|position)\w*|model_max_length|\w*original_max_position\w*)", PLACES),
    (r"\w*(key_value_heads|kv_heads|query_group_num|num_kv)\w*|num_attention_groups|kv_n_heads", 2),
    (r"(index_n_heads|linear_num_key_heads|linear_num_heads)", 2),
    (r"(mamba_(n|num)_heads|mamba_n_ssm_heads)", 8),
    (r"\w*(attention_heads|n_heads?|num_heads|heads)|linear_num_value_heads|nhead", 4),
    (r"rotary_dim", 4),
    (
        r"\w*(head_dim|head_size|d_kv|dim_head|kv_channels|d_head|qk_nope_head_dim|qk_rope_head_dim|rope_head_dim|v_head_dim)\w*",
        8,
    ),
    (r"\w*(lora_rank|q_rank|kv_rank|lora_dim|latent_size|_rank)", 16),
    (r"(n_group|topk_group|\w*n_shared_experts|\w*num_shared_experts\w*|first_k_dense_replace|num_dense_layers)", 1),
    (r"\w*(num_experts_per_tok|experts_per_token|top_?k|moe_k|num_selected_experts)\w*", 2),
    (r"\w*(num_experts|num_local_experts|n_routed_experts|n_experts|num_zero_experts|experts_num|zero_expert_num)", 4),
    (r"\w*(state_size|d_state|d_conv_state)", 8),
    (r"\w*(sliding_window|local_attention|attention_window|window_size|chunk_size|block_size|local_radius)\w*", WINDOW),
    (r"\w*(local_attn_chunk_length|lsh_attn_chunk_length|num_landmarks|global_block_size|num_random_blocks)", WINDOW),
    (r"(n_groups|mamba_n_groups)", 1),
    (r"\w*(intermediate|ffn|d_ff|d_inner|n_inner|mlp_dim|feedforward|mlp_hidden|expert_hidden)\w*|hidden_dim", 64),
    (r"\w*(hidden_size|d_model|n_embd|embed_dim|emb_dim|model_dim|proj_dim|embedding_size|width|d_embed)\w*|dim", 32),
    (r"hidden_size_per_layer_input|attention_hidden_size", 32),
    (r"(patch_size|spatial_patch_size)", 14),
    (r"(image_size|img_size)", 28),
)
BESIDE = re.compile(r"vision|visual|image|audio|speech|video|qformer|talker|code|token2wav|depth|vq|backbone|detector")
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
SECTIONS = {"mrope_section": [2, 1, 1]}
MROPE = re.compile(r"qwen2(_5)?_vl|glm4v(?!_moe)|glm46v|glm_ocr|glm_image|glmga|paddleocr_vl|colqwen2|omni")
OVERRIDES: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8},
    "esm": {"vocab_size": PIECES, "pad_token_id": 1, "mask_token_id": 4, "position_embedding_type": "rotary"},
    "esmc": {"num_key_value_heads": 4, "vocab_size": PIECES},
    "ministral": {"head_dim": 8, "rope_parameters": ROPE},
    "hunyuan_v1_dense": {"head_dim": 8, "rope_parameters": ROPE | {"alpha": 1.0}},
    "hunyuan_v1_moe": {"head_dim": 8, "rope_parameters": ROPE | {"alpha": 1.0}},
    "nemotron": {"num_key_value_heads": 2, "head_dim": 8, "rope_parameters": ROPE | {"partial_rotary_factor": 0.5}},
    "reformer": {"axial_pos_shape": [8, 8], "axial_pos_embds_dim": [16, 16]},
    "glm5_next_text": {"num_key_value_heads": 4},
    "glm5_next": {"text_config.num_key_value_heads": 4},
    "bamba": {"attn_layer_indices": [1, 3]},
    "hunyuan_vl": {"text_config.head_dim": 8, "text_config.rope_parameters": ROPE | {"alpha": 1.0} | SECTIONS},
    "mobilebert": {"hidden_size": 64, "embedding_size": 32, "true_hidden_size": 32, "intra_bottleneck_size": 32},
    "nystromformer": {"num_landmarks": 64, "segment_means_seq_len": 64},
    "lilt": {"hidden_size": 48},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "hunyuan_vl_text": {"head_dim": 8, "rope_parameters": ROPE | {"alpha": 1.0} | SECTIONS},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_offset": 1},
    "gemma4_text": {"hidden_size_per_layer_input": 16},
    "xmod": {"languages": ["de_DE", "en_XX"], "default_language": "de_DE"},
    "zamba": {"attention_hidden_size": 64, "attention_head_dim": 16, "num_key_value_heads": 4},
    "zamba2": {"attention_hidden_size": 64, "attention_head_dim": 16, "num_key_value_heads": 4, "mamba_headdim": 16}
    | {"hybrid_layer_ids": [1, 3], "num_query_groups": 4},
}


def tiny_config(kind: str) -> Any:
    """A small configuration of a model type; raises what transformers raises if the rules do not fit it."""
    whole = AutoConfig.for_model(kind)
    values = _shrunk(whole.to_dict(), depth=DEPTH)
    for path, value in OVERRIDES.get(kind, {}).items():
        *parents, name = path.split(".")
        part = values
        for parent in parents:
            part = part[parent]
        part[name] = value
    return type(whole).from_dict(values)


def _shrunk(values: dict[str, Any], *, depth: int) -> dict[str, Any]:
    known = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "num_blocks", "depth")
    before = {values[name] for name in known if isinstance(values.get(name), int)}
    found, ids = {}, iter(range(PIECES - 1, 0, -1))
    for name, value in values.items():
        if name in ("id2label", "label2id") or not isinstance(name, str):
            found |= {} if isinstance(name, str) else {name: value}
            continue
        if name == "mrope_section":
            found[name] = [2, 1, 1]
        elif name == "per_layer_config" and isinstance(value, dict) and value:
            found[name] = {1: _shrunk(next(iter(value.values())), depth=depth)}
        elif isinstance(value, dict) and "rope" in name and name != "rope":
            turned = MROPE.search(values.get("model_type", "")) and "mrope_section" not in value
            found[name] = _shrunk(value, depth=depth) | (SECTIONS if turned else {})
        elif isinstance(value, dict):
            inner = 1 if BESIDE.search(name) else depth
            found[name] = _shrunk(value, depth=inner)
        elif isinstance(value, list) and len(value) in before | {4 * depth} and "label" not in name:
            found[name] = _fewer(value, depth)
        elif name.endswith(("token_id", "token_index", "_id")) and isinstance(value, int) and value >= PIECES - 40:
            found[name] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}.get(name) or next(ids)
        elif type(value) is int and value > 0:
            found[name] = min(value, _by_rule(name, value, depth))
        else:
            found[name] = value
    if "qk_rope_head_dim" in found and found.get("num_key_value_heads"):
        found["num_key_value_heads"] = found["num_attention_heads"]  # compressed keys and values have no groups
    return found


def _by_rule(name: str, value: int, depth: int) -> int:
    number = next((number for rule, number in RULES if re.fullmatch(rule, name)), value)
    return depth if number == DEPTH and "layer" in name else number


def _fewer(items: list[Any], depth: int) -> list[Any]:
    """Some of a list with an item for each layer, of each kind at least one if there are few kinds."""
    kinds = [item for i, item in enumerate(items) if item not in items[:i]]
    if len(kinds) > depth:
        return items[:depth]
    return (kinds * depth)[:depth] if len(kinds) > 1 else items[:depth]


def model_class(config: Any) -> tuple[Any, str]:
    """The class with the head of a language model, or the one without a head, and which: "causal", "masked", ""."""
    order = [(AutoModelForMaskedLM, "masked"), (AutoModelForCausalLM, "causal"), (AutoModelForMultimodalLM, "causal")]
    if config.get_text_config() is not config:
        order.reverse()
    if config.is_encoder_decoder:
        order = [(AutoModelForSeq2SeqLM, "")]
    for auto, head in (*order, (AutoModel, ""), (AutoModelForPreTraining, "")):
        if type(config) in auto._model_mapping:
            return _get_model_class(config, auto._model_mapping), head
    raise LookupError("transformers has no model of this type that its AutoModel makes")


def save_tiny(kind: str, folder: Path) -> str:
    """Make the model of a type and a tokenizer in a folder; returns the kind of its head.

    Its matrices are wide and no bias is zero, so that each part shows in its layers.
    """
    config = tiny_config(kind)
    made, head = model_class(config)
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in made(type(config).from_dict(config.to_dict())).parameters())
    if count > 200_000_000:
        raise MemoryError(f"{count:,} parameters: the rules leave something large")
    torch.manual_seed(0)
    model = made(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and not re.search(r"A_log|conv|decay|time_", name):
                parameter.normal_(0, 0.2, generator=generator)
            elif (
                parameter.ndim == 1
                and parameter.is_floating_point()
                and not re.search(r"A_log|dt_bias|\bD$|time_", name)
            ):
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer = tiny.tiny_tokenizer("roberta" if head == "masked" else "llama")
    tokenizer.model_max_length = int(1e30)  # no limit of its own
    tokenizer.save_pretrained(folder)
    return head
