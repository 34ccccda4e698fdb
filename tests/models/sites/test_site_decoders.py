"""T5's decoder: self-attention, cross-attention and MLP are proven, by hand and by identities; mistakes are refused."""

import numpy as np
import pytest
import tiny
import torch
import transformers

import probekit
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.sites.proof import prove
from probekit.models.sites.selection import choose_sites
from probekit.sites import CROSS, Site
from probekit.tasks.task import Example, Split, Task, TaskKind

IDS = np.array([5, 9, 17, 30, 8, 1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.tiny_model("t5", tmp_path_factory.mktemp("t5"), num_decoder_layers=2)


@pytest.mark.parametrize(("dtype", "largest"), [("float64", 1e-12), ("float32", 1e-6), ("bfloat16", 1e-2)])
def test_every_site_is_proven(dtype, largest, folder):
    encoder = load_encoder(folder, dtype="float32" if dtype == "float64" else dtype, onednn=False, decoder=True)
    if dtype == "float64":
        encoder.model.double()
    proofs = prove(encoder).proofs
    assert {proof.name for proof in proofs.values() if proof.refusal} == {"router_logits.0", "router_logits.1"}
    assert max(proof.error for proof in proofs.values() if proof.error is not None) <= largest  # seen: 0, 6e-8, 4e-3
    assert {Site(name, b) for name in CROSS for b in (0, 1)} <= proofs.keys()


def test_by_hand(folder):
    encoder = load_encoder(folder, decoder=True)
    choose_sites(encoder, ["resid_pre", "resid_post", "attn_out_post", "cross_out_post", "mlp_out_post", "final_norm"])
    read = {}
    batch = Batch(IDS, np.zeros(6, np.uint8), np.array([6]))
    encoder.encode(batch, lambda i, rows: read.update({str(encoder.sites[i]): rows.clone()}))
    model = transformers.T5Model.from_pretrained(folder).eval()
    own = {}
    for b, block in enumerate(model.decoder.block):
        for part, name in zip(block.layer, ("attn", "cross", "mlp"), strict=True):
            inner = (
                part.DenseReluDense if name == "mlp" else part.SelfAttention if name == "attn" else part.EncDecAttention
            )
            inner.register_forward_hook(
                lambda _m, _a, out, key=f"{name}_out_post.{b}": own.update(
                    {key: out[0] if isinstance(out, tuple) else out}
                )
            )
    ids = torch.from_numpy(IDS)[None]
    before = torch.cat([torch.tensor([[model.config.decoder_start_token_id]]), ids[:, :-1]], 1)
    with torch.inference_mode():
        out = model(input_ids=ids, decoder_input_ids=before, output_hidden_states=True)
    for name, rows in own.items():
        torch.testing.assert_close(read[name], rows.reshape(6, -1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(read["resid_pre.0"], out.decoder_hidden_states[0][0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(read["1"], out.decoder_hidden_states[1][0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(read["final_norm"], out.last_hidden_state[0], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(read["attn_out_post.1"], read["cross_out_post.1"], atol=0.1)


def test_another_text_for_the_decoder(folder):
    encoder, read = load_encoder(folder, decoder=True), []
    source, target = torch.from_numpy(IDS)[None], torch.tensor([[11, 4, 25, 7]])
    encoder.run({"input_ids": source, "decoder_ids": target}, lambda _, rows: read.append(rows.clone()))
    model = transformers.T5Model.from_pretrained(folder).eval()
    before = torch.cat([torch.tensor([[model.config.decoder_start_token_id]]), target[:, :-1]], 1)
    with torch.inference_mode():
        out = model(input_ids=source, decoder_input_ids=before, output_hidden_states=True)
    *own, last = out.decoder_hidden_states  # the last one has passed the final norm
    assert len(read) == len(own) + 2
    for rows, right in zip([*read[:-2], read[-1]], [*own, last], strict=True):
        assert rows.shape == (4, 32)
        torch.testing.assert_close(rows, right[0], rtol=1e-5, atol=1e-6)
    encoder.run({"input_ids": source, "decoder_ids": source[:, :4]}, lambda i, rows: read.__setitem__(i, rows.clone()))
    assert not torch.allclose(read[1], own[1][0], atol=0.1)


@pytest.mark.parametrize(
    ("site", "instead", "refused"),
    [
        ("attn_out_post", "cross_out_post", {"attn_out_post.1", "attn_out.1", "z.1", "value.1", "attn_probs.1"}),
        pytest.param("cross_out_post", "attn_out_post", {"cross_out_post.1"}, marks=pytest.mark.slow),
        pytest.param("cross_out_post", "mlp_out_post", {"cross_out_post.1"}, marks=pytest.mark.slow),
        ("resid_cross", "resid_mid", {"resid_cross.1", "attn_out_post.1", "cross_out_post.1"}),
    ],
)
def test_one_read_for_another_is_refused(site, instead, refused, folder):
    encoder = load_encoder(folder, decoder=True)
    found = prove(encoder).found
    found.taps[Site(site, 1)] = found.taps[Site(instead, 1)]
    proofs = prove(encoder, found).proofs
    wrong = {proof.name for proof in proofs.values() if proof.refusal and not proof.lacking}
    assert refused <= wrong
    assert not {name for name in wrong if name.endswith(".0")}
    assert "is wrong by" in proofs[Site(site, 1)].refusal


def test_a_cache_of_the_decoder(folder, tmp_path):
    texts = ("the cat sleeps", "a dog", "the old bird sees a small garden")
    examples = tuple(Example(str(i), text, i % 2) for i, text in enumerate(texts))
    task = Task("t", TaskKind.CLASSIFICATION, {"train": Split("train", examples)}, ("a", "b"))
    sites = "resid_post,cross_out_post"
    cache = probekit.cache_activations(folder, task, decoder=True, sites=sites, tokens=True, out=tmp_path / "d.h5")
    plain = probekit.cache_activations(folder, task, out=tmp_path / "e.h5")
    assert cache.spec["part"] == "decoder"
    assert "part" not in plain.spec
    assert "decoder" not in plain.attributes["recipe"]
    assert cache.layers == ("cross_out_post.0", "1", "cross_out_post.1", "2")
    encoder = load_encoder(folder, decoder=True, sites=sites)
    again = probekit.cache_activations(encoder, task, tokens=True, out=tmp_path / "d.h5")  # opened, not made
    assert again.spec_id == cache.spec_id
    tokens, read = encoder.tokenize([texts[2]]), []
    encoder.encode(Batch(tokens.token_ids, tokens.type_ids, tokens.length), lambda _, rows: read.append(rows.clone()))
    for layer, rows in zip(cache.layers, read, strict=True):
        np.testing.assert_allclose(cache.tokens(layer)[2], rows.numpy(), rtol=1e-4, atol=1e-5)


def test_models_without_such_a_decoder(folder, tmp_path):
    bert = tiny.tiny_model("bert", tmp_path / "bert")
    with pytest.raises(UsageError, match="BertModel has no decoder beside an encoder"):
        load_encoder(bert, decoder=True)
    with pytest.raises(UsageError, match="has no cross_out_post: its blocks attend to no encoder"):
        load_encoder(folder, sites="cross_out_post")
