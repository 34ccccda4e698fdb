"""Attention, heads and MLP of BERT, GPT-2 and Llama, computed here from the weights with NumPy alone."""

import math

import numpy as np
import pytest
import tiny
from safetensors.numpy import load_file

from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.sites.selection import read_alone
from probekit.sites import Site

HEADS, SIZE = 4, 8
ERF = np.vectorize(math.erf)


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


def rms_norm(x, weight, eps=1e-6):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def attention(q, k, v, *, causal):
    """Heads side by side: the probabilities (heads, t, t) and z (t, width); fewer keys than queries are repeated."""
    t = len(q)
    split = [x.reshape(t, -1, SIZE).transpose(1, 0, 2) for x in (q, k, v)]
    q, k, v = (np.repeat(x, HEADS // len(x), 0) for x in split)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(SIZE)
    if causal:
        scores = np.where(np.tril(np.ones((t, t), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights, (weights @ v).transpose(1, 0, 2).reshape(t, -1)


def rotated(x, t):
    """Rotary positions of Llama: the first and second half of each head turn together."""
    angle = np.arange(t)[:, None] / 10000.0 ** (np.arange(0, SIZE, 2) / SIZE)
    cos, sin = (np.concatenate([f(angle)] * 2, 1)[:, None] for f in (np.cos, np.sin))
    heads = x.reshape(t, -1, SIZE)
    turned = np.concatenate([-heads[..., SIZE // 2 :], heads[..., : SIZE // 2]], -1)
    return (heads * cos + turned * sin).reshape(t, -1)


def bert(w, ids, types):
    e, sites = "embeddings.", {}
    pieces = w[f"{e}word_embeddings.weight"][ids]
    sites["embeddings"] = pieces
    x = pieces + w[f"{e}token_type_embeddings.weight"][types] + w[f"{e}position_embeddings.weight"][: len(ids)]
    x = layer_norm(x, w[f"{e}LayerNorm.weight"], w[f"{e}LayerNorm.bias"], 1e-12)
    for b in range(3):
        p = f"encoder.layer.{b}."

        def linear(name, y, p=p):
            return y @ w[f"{p}{name}.weight"].T + w[f"{p}{name}.bias"]

        q, k, v = (linear(f"attention.self.{name}", x) for name in ("query", "key", "value"))
        probabilities, z = attention(q, k, v, causal=False)
        out = linear("attention.output.dense", z)
        norm = f"{p}attention.output.LayerNorm."
        middle = layer_norm(x + out, w[norm + "weight"], w[norm + "bias"], 1e-12)
        inner = linear("intermediate.dense", middle)
        act = inner * (1 + ERF(inner / np.sqrt(2))) / 2
        down = linear("output.dense", act)
        after = layer_norm(middle + down, w[f"{p}output.LayerNorm.weight"], w[f"{p}output.LayerNorm.bias"], 1e-12)
        sites |= named(b, x, v, probabilities, z, out, middle, act, down, after)
        x = after
    return sites


def gpt2(w, ids, _):
    sites = {"embeddings": w["wte.weight"][ids]}
    x = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)]
    for b in range(3):
        p = f"h.{b}."

        def linear(name, y, p=p):
            return y @ w[f"{p}{name}.weight"] + w[f"{p}{name}.bias"]

        normed = layer_norm(x, w[p + "ln_1.weight"], w[p + "ln_1.bias"], 1e-5)
        q, k, v = np.split(linear("attn.c_attn", normed), 3, 1)
        probabilities, z = attention(q, k, v, causal=True)
        out = linear("attn.c_proj", z)
        middle = x + out
        inner = linear("mlp.c_fc", layer_norm(middle, w[p + "ln_2.weight"], w[p + "ln_2.bias"], 1e-5))
        act = inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3))) / 2
        down = linear("mlp.c_proj", act)
        after = middle + down
        sites |= named(b, x, v, probabilities, z, out, middle, act, down, after)
        x = after
    return sites | {"final_norm": layer_norm(x, w["ln_f.weight"], w["ln_f.bias"], 1e-5)}


def llama(w, ids, _):
    sites = {"embeddings": w["embed_tokens.weight"][ids]}
    x, t = w["embed_tokens.weight"][ids], len(ids)
    for b in range(3):
        p = f"layers.{b}."
        normed = rms_norm(x, w[p + "input_layernorm.weight"])
        q, k, v = (normed @ w[f"{p}self_attn.{name}_proj.weight"].T for name in "qkv")
        probabilities, z = attention(rotated(q, t), rotated(k, t), v, causal=True)
        out = z @ w[p + "self_attn.o_proj.weight"].T
        middle = x + out
        normed = rms_norm(middle, w[p + "post_attention_layernorm.weight"])
        gate, up = (normed @ w[f"{p}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        act = gate / (1 + np.exp(-gate)) * up
        down = act @ w[p + "mlp.down_proj.weight"].T
        after = middle + down
        sites |= named(b, x, v, probabilities, z, out, middle, act, down, after)
        x = after
    return sites | {"final_norm": rms_norm(x, w["norm.weight"])}


def named(b, before, value, probabilities, z, out, middle, act, down, after):
    values = {"resid_pre": before, "value": value, "attn_probs": probabilities, "z": z, "attn_out": out}
    values |= {"attn_out_post": out, "resid_mid": middle, "mlp_act": act, "mlp_out": down, "mlp_out_post": down}
    return {f"{name}.{b}": array for name, array in values.items()} | {f"resid_post.{b}": after}


@pytest.mark.parametrize(("family", "by_hand"), [("bert", bert), ("gpt2", gpt2), ("llama", llama)])
def test_every_site_by_hand(family, by_hand, tmp_path):
    folder = tiny.tiny_model(family, tmp_path)
    encoder = load_encoder(folder)
    weights = {name: array.astype(np.float64) for name, array in load_file(folder / "model.safetensors").items()}
    rng = np.random.default_rng(3)
    ids = rng.integers(encoder.model.config.vocab_size, size=11)
    types = np.arange(11) // 6 % 2 if family == "bert" else np.zeros(11, int)
    right = by_hand(weights, ids, types)
    found = read_alone(encoder, Batch(ids, types.astype(np.uint8), np.array([11])))
    assert {str(Site.parse(name)) for name in right} | {"0"} == {*map(str, found)}
    for name, array in right.items():
        np.testing.assert_allclose(found[Site.parse(name)].numpy(), array, rtol=2e-4, atol=2e-5, err_msg=name)
