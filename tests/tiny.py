"""Tiny randomly initialised models with tiny tokenizers, made on the spot: a folder such as save_pretrained leaves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoModel, PreTrainedTokenizerFast

WORDS = """the a cat dog bird child teacher sleeps sleep runs run sees see small old red not very and but never often
house garden in on under with . , ! ? it was good bad great terrible film ##s ##ing ##ed un ##happy""".split()

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,  # so that a middle one is neither first nor last
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", SIZES),
    "minilm": ("BertConfig", SIZES | {"num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 12}),
    "roberta": ("RobertaConfig", SIZES | {"max_position_embeddings": 42, "type_vocab_size": 1}),
    "distilbert": (
        "DistilBertConfig",
        {"dim": 32, "hidden_dim": 64, "n_layers": 3, "n_heads": 4, "max_position_embeddings": 40},
    ),
    "albert": ("AlbertConfig", SIZES | {"embedding_size": 16}),
    "electra": ("ElectraConfig", SIZES | {"embedding_size": 16}),
    "deberta-v2": (
        "DebertaV2Config",
        SIZES
        | {
            "relative_attention": True,
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": "p2c|c2p",
            "conv_kernel_size": 3,
            "conv_act": "gelu",
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
    ),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40}),
    "gpt_neox": ("GPTNeoXConfig", SIZES),
    "llama": ("LlamaConfig", SIZES | {"num_key_value_heads": 2}),
    "mistral": ("MistralConfig", SIZES | {"num_key_value_heads": 2, "sliding_window": None}),
    "qwen2": ("Qwen2Config", SIZES | {"num_key_value_heads": 2}),
    "qwen3": ("Qwen3Config", SIZES | {"num_key_value_heads": 2, "head_dim": 8}),
    "t5": (
        "T5Config",
        {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 3, "num_decoder_layers": 1, "num_heads": 4},
    ),
}
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("Gemma2Config", SIZES | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4}),
    "gemma3": ("Gemma3TextConfig", SIZES | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4}),
    "olmo2": ("Olmo2Config", SIZES | {"num_key_value_heads": 2}),
    "phi3": ("Phi3Config", SIZES | {"num_key_value_heads": 2}),
    "mixtral": ("MixtralConfig", SIZES | {"num_key_value_heads": 2, "num_local_experts": 4, "intermediate_size": 48}),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        SIZES
        | {"num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [1]}
        | {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 48, "head_dim": 8},
    ),
    "modernbert": ("ModernBertConfig", SIZES | {"local_attention": 8}),
}
"""Families that only the tests of sites use: norms around a branch, one projection for queries, keys and values, a
mixture of experts (in one of Qwen's blocks none)."""
QUICK = {"bert", "albert", "deberta-v2", "t5", "gpt2", "gpt_neox", "gemma2", "mixtral", "modernbert"}
"""One family of each kind: shared blocks, relative positions, one norm more or fewer, parallel branches, experts."""
BYTE_LEVEL = {"roberta", "gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3"} | MORE.keys() - {"modernbert"}
DECODERS = {"gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3"}
FINAL_NORM = DECODERS | {"t5"}


def families(names: Iterable[str]) -> list[Any]:
    """Parameters of a test: those of QUICK, and the others as slow ones."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


def tiny_model(family: str, folder: Path, seed: int = 0, **config: Any) -> Path:
    """Make a tiny model of ``family`` (in FAMILIES or MORE) in ``folder``; ``config`` overrides its configuration.

    Weights are drawn ten times wider than a real model's start, so that its layers differ visibly.
    """
    tokenizer = tiny_tokenizer(family)
    tokenizer.save_pretrained(folder)
    kind, sizes = (FAMILIES | MORE)[family]
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    if family == "modernbert":
        ids |= {name: getattr(tokenizer, name) for name in ("cls_token_id", "sep_token_id")}
    options = sizes | ids | {"vocab_size": len(tokenizer), "initializer_range": 0.2} | config
    if family == "t5":
        options |= {"decoder_start_token_id": ids["pad_token_id"], "initializer_factor": 1.0}
        del options["initializer_range"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModel.from_config(getattr(transformers, kind)(**options))
    with torch.no_grad():  # biases and norms start as zeros and ones, which would hide mistakes
        generator = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    return folder


def tiny_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """Word pieces with [CLS] and [SEP], bytes (<s> … </s> for RoBERTa, no padding token for decoders), or T5's kind."""
    if family in BYTE_LEVEL:
        return _byte_level(family)
    if family == "t5":
        return _metaspace()
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return _wrapped(backend, names)


def _byte_level(family: str) -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("Ġ", "c"), ("a", "t"), ("Ġc", "at"), ("s", "l"), ("e", "e")]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if family == "roberta" else ["<|endoftext|>"]
    pieces = dict.fromkeys([*special, *letters, *(a + b for a, b in merges)])
    backend = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if family == "roberta":
        backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
        names = {"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>"}
        return _wrapped(backend, names | {"mask": "<mask>"})
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return _wrapped(backend, {"bos": "<|endoftext|>", "eos": "<|endoftext|>"})


def _metaspace() -> PreTrainedTokenizerFast:
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -9.0), *((f"▁{w}", -3.0) for w in WORDS)]
    vocabulary += [(c, -6.0) for c in "▁abcdefghijklmnopqrstuvwxyz.,"]
    backend = Tokenizer(models.Unigram(vocabulary, unk_id=2, byte_fallback=False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return _wrapped(backend, {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"})


def _wrapped(backend: Tokenizer, names: dict[str, str]) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=40, **{f"{name}_token": token for name, token in names.items()}
    )


def tiny_language_model(family: str, folder: Path, *, causal: bool, seed: int = 0) -> Path:
    """A tiny model of ``family`` with a head that predicts pieces, whose weights are as wide as those of tiny_model."""
    body = AutoModel.from_pretrained(tiny_model(family, folder, seed))
    auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMaskedLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = auto.from_config(body.config)
    model.base_model.load_state_dict(body.state_dict(), strict=False)
    model.tie_weights()
    model.save_pretrained(folder)
    return folder
