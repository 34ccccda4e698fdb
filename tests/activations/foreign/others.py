"""Files as other programs write them, of tiny models: rightly, and with each classical mistake."""

from __future__ import annotations

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModel

from probekit.models import load_encoder
from probekit.models.sites.proof import prove

MODULES = {
    "gpt2": {"attn_out_post": "h.{}.attn", "mlp_out_post": "h.{}.mlp", "resid_post": "h.{}"},
    "gemma2": {
        "attn_out": "layers.{}.self_attn",
        "attn_out_post": "layers.{}.post_attention_layernorm",
        "mlp_out": "layers.{}.mlp",
        "mlp_out_post": "layers.{}.post_feedforward_layernorm",
        "resid_post": "layers.{}",
    },
    "bert": {"attn_out_post": "encoder.layer.{}.attention.output.dense", "resid_post": "encoder.layer.{}"},
}
INPUTS = {
    "gpt2": {"resid_mid": "h.{}.ln_2", "z": "h.{}.attn.c_proj", "resid_pre": "h.{}"},
    "gemma2": {"resid_mid": "layers.{}.pre_feedforward_layernorm", "z": "layers.{}.self_attn.o_proj"},
    "bert": {"mlp_sum": "encoder.layer.{}.output.LayerNorm"},
}
FINAL = {"gpt2": "ln_f", "gemma2": "norm", "bert": None}


class Stock:
    """Sites of random texts, read with hooks from transformers' own model: ``stock["resid_post.1"]``, (t, width) each.

    Layers are "0", "1" … (blocks that were passed).
    """

    def __init__(self, family, folder, lengths=(9, 9, 9), seed=0, dtype=torch.float32):
        self.model = AutoModel.from_pretrained(folder, dtype=dtype).eval()
        rng = np.random.default_rng(seed)
        self.ids = [rng.integers(5, self.model.config.vocab_size, size=t) for t in lengths]
        self.depth, self.of = self.model.config.num_hidden_layers, {}
        for block in range(self.depth):
            for modules, before in ((MODULES[family], False), (INPUTS[family], True)):
                for site, path in modules.items():
                    self._hook(f"{site}.{block}", path.format(block), before)
        if FINAL[family]:
            self._hook("final_norm", FINAL[family], before=False)
        with torch.no_grad():
            states = [self.model(torch.from_numpy(ids)[None], output_hidden_states=True) for ids in self.ids]
        for layer in range(self.depth):
            self.of[str(layer)] = [output.hidden_states[layer][0] for output in states]
        self.of[str(self.depth)] = self.of[f"resid_post.{self.depth - 1}"]

    def __getitem__(self, name):
        return self.of[name]

    def _hook(self, name, path, before):
        def take(value):
            tensor = value[0] if isinstance(value, tuple) else value
            self.of.setdefault(name, []).append(tensor[0].clone())

        module = self.model.get_submodule(path)
        if before:
            module.register_forward_pre_hook(lambda _, args: take(args))
        else:
            module.register_forward_hook(lambda _, args, output: take(output))


def proven(folder):
    """A model whose sites are proven once for all tests."""
    encoder = load_encoder(folder)
    encoder.proofs = prove(encoder)
    return encoder


def write_vllm(folder, ids, layers, *, axes=(0, 1, 2)):
    """A file for each request; ``layers`` is a list of layers, each a list of (t, d)."""
    folder.mkdir(parents=True)
    for i, pieces in enumerate(ids):
        states = torch.stack([layer[i] for layer in layers], 1).permute(*axes).contiguous()
        save_file({"hidden_states": states, "token_ids": torch.from_numpy(pieces)}, folder / f"{i}-0a1b.safetensors")
    return folder


def write_npz(path, ids, arrays):
    """(texts, positions, width) for each name, of numpy's own dtypes."""
    stacked = {name: torch.stack(list(rows)).numpy() for name, rows in arrays.items()}
    np.savez(path, token_ids=np.stack(ids), **stacked)
    return path


def write_safetensors(path, ids, arrays):
    """The same, with any precision."""
    stacked = {name: torch.stack(list(rows)).contiguous() for name, rows in arrays.items()}
    save_file(stacked | {"token_ids": torch.from_numpy(np.stack(ids))}, path)
    return path


def write_saelens(folder, ids, arrays, shards=2):
    """Shards as SAELens's CacheActivationsRunner consolidates them: one folder, several Arrow files."""
    from datasets import Array2D, Dataset, Features, Sequence, Value, disable_progress_bars

    first = {name: rows[0] for name, rows in arrays.items()}
    features = Features(
        {name: Array2D(tuple(rows.shape), str(rows.dtype).removeprefix("torch.")) for name, rows in first.items()}
        | {"token_ids": Sequence(Value("int32"), length=len(ids[0]))}
    )
    columns = {name: torch.stack(list(rows)).numpy() for name, rows in arrays.items()}
    data = Dataset.from_dict(columns | {"token_ids": np.stack(ids).astype(np.int32)}, features=features)
    disable_progress_bars()
    data.save_to_disk(str(folder), num_shards=shards)
    return folder
