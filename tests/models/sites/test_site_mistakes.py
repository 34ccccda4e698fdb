"""The classical mistakes of reading a model's insides, planted one by one: each is refused."""

from dataclasses import replace

import pytest
import tiny
import torch
from torch import nn

from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.sites.proof import prove
from probekit.models.sites.taps import Tap
from probekit.sites import Site


def loaded(family, tmp_path, **config):
    return load_encoder(tiny.tiny_model(family, tmp_path, **config))


def planted(encoder, taps):
    """The proofs of a model some of whose sites are read elsewhere."""
    found = prove(encoder).found
    before = found.taps.copy()
    found.taps |= {site: change(before) for site, change in taps.items()}
    return prove(encoder, found).proofs


def refused(proofs):
    return {proof.name for proof in proofs.values() if proof.refusal and not proof.lacking}


def test_nothing_planted(tmp_path):
    encoder = loaded("gemma2", tmp_path)
    assert refused(prove(encoder).proofs) == refused(planted(encoder, {})) == set()


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("branch", ["attn", "mlp"])
@pytest.mark.parametrize("family", ["gemma2", *(pytest.param(f, marks=pytest.mark.slow) for f in ("gemma3", "olmo2"))])
def test_raw_taken_for_what_is_added(family, branch, dtype, tmp_path):
    encoder = load_encoder(tiny.tiny_model(family, tmp_path), dtype=dtype)
    raw, post = Site(f"{branch}_out", 1), Site(f"{branch}_out_post", 1)
    proofs = planted(encoder, {post: lambda taps: taps[raw]})
    assert f"{branch}_out_post.1" in refused(proofs)
    assert proofs[post].error > 0.3
    assert "is wrong by" in proofs[post].refusal
    others = {name for name in refused(proofs) if not name.endswith(".1")}
    assert not others  # the other blocks stay proven


@pytest.mark.parametrize("branch", ["attn", "mlp"])
def test_what_is_added_taken_for_raw(branch, tmp_path):
    proofs = planted(
        loaded("gemma2", tmp_path), {Site(f"{branch}_out", 1): lambda taps: taps[Site(f"{branch}_out_post", 1)]}
    )
    reads = {"attn": {"z.1", "value.1", "attn_probs.1"}, "mlp": {"mlp_act.1"}}[branch]
    assert refused(proofs) == {f"{branch}_out.1"} | reads
    assert proofs[Site(f"{branch}_out", 1)].error > 0.3


@pytest.mark.parametrize(
    "family", ["llama", *(pytest.param(f, marks=pytest.mark.slow) for f in ("bert", "gpt2", "gpt_neox", "albert"))]
)
@pytest.mark.parametrize(
    "name",
    [
        "attn_out_post",
        "mlp_act",
        "value",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("attn_out", "mlp_out_post", "z")),
    ],
)
def test_a_block_too_far(name, family, tmp_path):
    encoder = loaded(family, tmp_path)
    proofs = planted(encoder, {Site(name, 1): lambda taps: taps[Site(name, 2)]})
    assert f"{name}.1" in refused(proofs)
    assert f"{name}.2" not in refused(proofs)


def test_another_tensor_for_the_last_layer_before_the_norm(tmp_path):
    """That it equals what the last block was seen to return holds of any tensor that is taken for this output."""
    encoder = loaded("gpt2", tmp_path)
    found, own_encode = prove(encoder).found, encoder.encode
    last = Site("resid_post", 3), Site("block_out", 2)

    def wrong(batch, sink, edit=None):
        own_encode(batch, lambda i, rows: sink(i, rows.roll(1, 1) if encoder.sites[i] in last else rows), edit)

    encoder.encode = wrong
    assert "resid_post.2" in refused(prove(encoder, found).proofs)


def test_a_stream_of_the_block_before(tmp_path):
    """Layer l for layer l + 1: the hidden states that the model itself returns tell."""
    encoder = loaded("llama", tmp_path)
    found, own_encode = prove(encoder).found, encoder.encode

    def shifted(batch, sink, edit=None):
        layers = [i for i, site in enumerate(encoder.sites) if site.name == "resid_post"]
        own_encode(batch, lambda i, rows: sink(layers[max(layers.index(i) - 1, 0)] if i in layers else i, rows), edit)

    encoder.encode = shifted
    proofs = prove(encoder, found).proofs
    assert {"resid_post.0", "resid_post.1"} <= refused(proofs)


@pytest.mark.parametrize(
    "family",
    [pytest.param("bert", marks=pytest.mark.slow), pytest.param("gpt2", marks=pytest.mark.slow), "llama", "t5"],
)
def test_swapped_heads(family, tmp_path):
    encoder = loaded(family, tmp_path)
    columns = (*range(8, 16), *range(8), *range(16, 32))
    proofs = planted(encoder, {Site("z", 1): lambda taps: replace(taps[Site("z", 1)], columns=columns)})
    assert refused(proofs) == {"z.1", "value.1", "attn_probs.1"}
    assert "W_O z = attn_out" in proofs[Site("z", 1)].refusal


@pytest.mark.parametrize(
    "family",
    [
        "bert",
        pytest.param("gpt2", marks=pytest.mark.slow),
        "gpt_neox",
        pytest.param("phi3", marks=pytest.mark.slow),
        pytest.param("modernbert", marks=pytest.mark.slow),
    ],
)
def test_keys_taken_for_values(family, tmp_path):
    encoder = loaded(family, tmp_path)

    def keys(taps):
        tap = taps[Site("value", 1)]
        if family == "bert":
            return Tap(1, tap.path.replace("value", "key"))
        return replace(tap, columns=tuple(column - 8 for column in tap.columns))

    assert refused(planted(encoder, {Site("value", 1): keys})) == {"value.1", "attn_probs.1"}


class Unused(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.spare = inner, nn.Linear(32, 32)

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


def test_a_module_that_is_not_called(tmp_path):
    encoder = loaded("llama", tmp_path)
    encoder.model.layers[1].mlp = Unused(encoder.model.layers[1].mlp)
    assert refused(prove(encoder).proofs) == set()
    proofs = planted(encoder, {Site("mlp_out", 1): lambda _: Tap(1, "mlp.spare")})
    assert refused(proofs) == {"mlp_out.1", "mlp_act.1"}
    assert proofs[Site("mlp_out", 1)].refusal == "the module mlp.spare is not called in every pass"


class InPlace(nn.Module):
    """Doubles the output of a module in its own memory."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x).mul_(2)


def test_a_change_in_place_after_the_tap(tmp_path):
    """A kept reference holds the doubled numbers, which satisfy the identity; what is handed out does not."""
    encoder = loaded("llama", tmp_path)
    down = encoder.model.layers[1].mlp.down_proj
    encoder.model.layers[1].mlp.down_proj = InPlace(down)
    proofs = prove(encoder)
    assert refused(proofs.proofs) == set()
    assert proofs.found.taps[Site("mlp_out", 1)].path == "mlp.down_proj"  # not the layer inside
    tap = Tap(1, "mlp.down_proj.inner")
    wrong = planted(encoder, {Site("mlp_out", 1): lambda _: tap, Site("mlp_out_post", 1): lambda _: tap})
    assert {"mlp_out.1", "mlp_out_post.1"} <= refused(wrong)
    assert wrong[Site("mlp_out_post", 1)].error > 0.1
    assert wrong[Site("mlp_out_post", 1)].copied

    kept = {}
    down.register_forward_hook(lambda module, args, output: kept.update(reference=output, copy=output.clone()))
    encoder.encode(batch_of(encoder), lambda i, rows: None)
    torch.testing.assert_close(kept["reference"], 2 * kept["copy"])


class Accumulating(nn.Module):
    """A block whose attention's output becomes the stream in place, after it was read."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, hidden_states, past_key_values=None, attention_mask=None, *args, **kwargs):
        block = self.block
        out, _ = block.attn(block.ln_1(hidden_states), attention_mask=attention_mask, **kwargs)
        middle = out.add_(hidden_states)
        return middle + block.mlp(block.ln_2(middle))


def test_what_is_overwritten_later_is_handed_out_as_a_copy(tmp_path):
    encoder = loaded("gpt2", tmp_path)
    plain = prove(encoder).proofs
    changed = loaded("gpt2", tmp_path)
    changed.model.h[1].forward = Accumulating(changed.model.h[1]).forward
    proofs = prove(changed)
    assert refused(proofs.proofs) == set()
    copied = {proof.name for proof in proofs.proofs.values() if proof.copied}
    assert copied == {"attn_out.1", "attn_out_post.1"}
    assert not any(proof.copied for proof in plain.values())

    kept = {}
    sites = {site: proof.width for site, proof in proofs.proofs.items() if site.name == "attn_out"}
    changed.read_sites(sites, proofs.found.taps, proofs.found.blocks, frozenset({Site("attn_out", 1)}))
    batch = batch_of(changed)
    changed.encode(batch, lambda i, rows: kept.update({changed.sites[i]: (rows, rows.clone())}))
    assert all(torch.equal(rows, copy) for rows, copy in kept.values())
    changed.read_sites(sites, proofs.found.taps, proofs.found.blocks)
    changed.encode(batch, lambda i, rows: kept.update({changed.sites[i]: (rows, rows.clone())}))
    assert not torch.equal(*kept[Site("attn_out", 1)])  # the control: without the copy it is overwritten


def test_values_that_only_one_kind_of_attention_reads(tmp_path):
    """Without its mask, eager attention sees what follows, and the packed one does not: values above differ."""
    encoder = loaded("gpt2", tmp_path)
    block = encoder.model.h[1]
    own = block.attn.forward
    block.attn.forward = lambda x, attention_mask=None, **kwargs: own(x, attention_mask=None, **kwargs)
    proofs = prove(encoder).proofs
    assert refused(proofs) == {"z.1", "value.1", "attn_probs.1", "z.2", "value.2", "attn_probs.2"}
    assert "between the model's own attention and the encoder's" in proofs[Site("value", 2)].refusal


def batch_of(encoder):
    tokens = encoder.tokenize(["the cat sleeps."])
    return Batch(tokens.token_ids, tokens.type_ids, tokens.length)


class Scaled(nn.Module):
    """A branch whose output is scaled where no module shows it (Granite, MiniCPM)."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, hidden_states, past_key_values=None, attention_mask=None, *args, **kwargs):
        block = self.block
        out, _ = block.attn(block.ln_1(hidden_states), attention_mask=attention_mask, **kwargs)
        middle = hidden_states + 0.5 * out
        return middle + block.mlp(block.ln_2(middle))


def test_what_no_module_shows_is_not_handed_out(tmp_path):
    encoder = loaded("gpt2", tmp_path)
    encoder.model.h[1].forward = Scaled(encoder.model.h[1]).forward
    proofs = prove(encoder).proofs
    assert refused(proofs) == set()
    lacking = {proof.name for proof in proofs.values() if proof.lacking and "router" not in proof.name}
    expected = {"attn_out.1", "attn_out_post.1", "resid_mid.1", "mlp_act.1", "mlp_out.1", "mlp_out_post.1"}
    assert lacking == expected
    assert "do not add up to what the block adds" in proofs[Site("attn_out", 1)].refusal
