"""Each family: every site is found and proven, and what a family lacks is refused with the reason."""

import numpy as np
import pytest
import tiny
import torch

from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.sites.proof import prove
from probekit.models.sites.selection import choose_sites
from probekit.sites import CROSS, NAMES, Site

FAMILIES = [*tiny.FAMILIES, *tiny.MORE]
SOON = ("bert", "gpt2", "gemma2", "mixtral")  # one with each kind of branch
FEW = [pytest.param(name, marks=[] if name in SOON else pytest.mark.slow) for name in FAMILIES]
PARALLEL = {"gpt_neox"}
EXPERTS = {"mixtral": {0, 1, 2}, "qwen2_moe": {0, 2}}
"""The blocks that are a mixture of experts."""
NORMED_BRANCHES = {"gemma2", "gemma3", "olmo2"}
INSIDE = {"value", "attn_probs", "z", "attn_out", "attn_out_post", "resid_mid", "mlp_act", "mlp_out", "mlp_out_post"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder(family):
        if family not in made:
            made[family] = tiny.tiny_model(family, tmp_path_factory.mktemp(family))
        return made[family]

    return folder


def exact(folder):
    """The model in float64, whose identities hold up to 1e-12."""
    encoder = load_encoder(folder, onednn=False)
    encoder.model.double()
    encoder.model.set_experts_implementation("eager")  # the default has no float64
    return encoder


def lacking(family, depth):
    """The sites that a family does not have."""
    missing = {Site("resid_mid", b) for b in range(depth)} if family in PARALLEL else set()
    experts = EXPERTS.get(family, set())
    missing |= {Site("mlp_act" if b in experts else "router_logits", b) for b in range(depth)}
    normed = family in tiny.FINAL_NORM or family in tiny.MORE
    return missing | (set() if normed else {Site("final_norm")})


@pytest.mark.parametrize("family", FEW)
def test_every_site_is_proven_in_float64(family, folders):
    encoder = exact(folders(family))
    proofs = prove(encoder).proofs
    expected = lacking(family, encoder.depth)
    assert {site for site, proof in proofs.items() if proof.lacking} == expected
    assert {site for site, proof in proofs.items() if proof.refusal} == expected
    errors = {proof.name: proof.error for proof in proofs.values() if not proof.lacking}
    assert max(errors.values()) <= 1e-12, errors
    there = {Site(name, b) for name in INSIDE for b in range(encoder.depth)} - expected
    assert there <= proofs.keys()
    assert {site.name for site in proofs} == NAMES.keys() - set(CROSS)
    assert all(proof.refusal for proof in proofs.values() if proof.lacking)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", tiny.families(FAMILIES))
def test_every_site_is_proven_as_it_runs(family, dtype, folders):
    encoder = load_encoder(folders(family), dtype=dtype)
    proven = prove(encoder)
    assert {site for site, proof in proven.proofs.items() if proof.refusal} == lacking(family, encoder.depth)
    largest = {"float32": 1e-6, "bfloat16": 1e-2}[dtype]  # largest seen: 3.1e-7, 6.4e-3
    assert max(proof.error for proof in proven.proofs.values() if proof.error is not None) <= largest
    for branch in ("attn", "mlp"):  # raw and added differ only where a norm is between
        taps = [proven.found.taps[Site(f"{branch}_out{post}", 1)] for post in ("", "_post")]
        assert (taps[0] != taps[1]) is (family in NORMED_BRANCHES)


@pytest.mark.parametrize("family", FEW)
def test_one_at_a_time_and_in_a_batch(family, folders):
    encoder = load_encoder(folders(family))
    choose_sites(encoder, [name for name in NAMES if name not in ("attn_probs", *CROSS, *left_out(family))])
    rng, vocabulary = np.random.default_rng(1), encoder.model.config.vocab_size
    lengths = (3, 7, 7, 9) if encoder.mixed_lengths else (7, 7, 7)
    parts = [Batch(rng.integers(vocabulary, size=k), np.zeros(k, np.uint8), np.array([k])) for k in lengths]
    alone = [read(encoder, part) for part in parts]
    together = read(encoder, Batch(*(np.concatenate([getattr(p, f) for p in parts]) for f in FIELDS)))
    assert [*together] == [*encoder.sites]  # in the order in which they are handed out
    for site, width in zip(encoder.sites, encoder.widths, strict=True):
        rows = torch.cat([one[site] for one in alone])
        assert rows.shape == (sum(lengths), width)
        if width % 32 == 0 and family not in EXPERTS:  # experts multiply as many rows as are routed to them
            assert torch.equal(together[site], rows), site
        torch.testing.assert_close(together[site], rows, rtol=1e-5, atol=1e-5)


FIELDS = ("token_ids", "type_ids", "length")


def left_out(family):
    names = {"router_logits"} if family not in EXPERTS else {"mlp_act"} if family == "mixtral" else set()
    names |= {"resid_mid"} if family in PARALLEL else set()
    return names | (set() if family in tiny.FINAL_NORM or family in tiny.MORE else {"final_norm"})


def read(encoder, batch):
    seen = {}
    encoder.encode(batch, lambda i, hidden: seen.update({encoder.sites[i]: hidden.clone()}))
    return seen
