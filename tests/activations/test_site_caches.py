"""Caches of sites inside blocks: the numbers of one text alone, each with its width, for every analysis to read."""

import json

import numpy as np
import pytest
import tiny
import tiny_elmo
from toys import toy_pairs, toy_task

import probekit
from probekit.activations.tokens import TokenReader
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.sites.selection import read_alone
from probekit.sites import Site

SITES = "resid_post,attn_out,attn_out_post,mlp_out,z,mlp_act"
TASK = toy_task(24)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder(family):
        if family not in made:
            made[family] = tiny.tiny_model(family, tmp_path_factory.mktemp(family))
        return made[family]

    return folder


def alone(encoder, text):
    tokens = encoder.tokenize([text])
    return tokens, read_alone(encoder, Batch(tokens.token_ids, tokens.type_ids, tokens.length), encoder.proofs)


@pytest.mark.parametrize(
    "family", ["mixtral", *(pytest.param(f, marks=pytest.mark.slow) for f in ("gpt2", "t5", "bert", "gemma2"))]
)
def test_what_is_stored_is_what_one_text_alone_gives(family, folders, tmp_path):
    sites = SITES.replace(",mlp_act", ",router_logits") if family == "mixtral" else SITES
    cache = probekit.cache_activations(
        folders(family), TASK, sites=sites, layers="0:3:2", tokens=True, pooling="mean,last", out=tmp_path / "c.h5"
    )
    wanted = {Site(name, b + (name == "resid_post")) for name in sites.split(",") for b in (0, 2)}
    assert set(cache.sites) == wanted
    encoder = load_encoder(folders(family), sites=sites)
    pooled = {site: cache.layer(site) for site in cache.sites}
    last, tokens = {site: cache.layer(site, "last") for site in cache.sites}, {s: cache.tokens(s) for s in cache.sites}
    texts = TASK.split("train").examples
    for i in (0, 5, 11, 23):
        read, right = alone(encoder, texts[i].text)
        content = read.special == 0
        for site, width in zip(cache.sites, cache.widths, strict=True):
            rows = right[site].numpy()
            assert rows.shape[1] == width == pooled[site].shape[1]
            np.testing.assert_allclose(tokens[site][i], rows, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(pooled[site][i], rows[content].mean(0), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(last[site][i], rows[-1], rtol=1e-4, atol=1e-5)


def test_resid_post_of_a_block_is_the_layer_after_it(folders, tmp_path):
    layers = probekit.cache_activations(folders("gpt2"), TASK, out=tmp_path / "layers.h5")
    sites = probekit.cache_activations(
        folders("gpt2"), TASK, sites="resid_pre,resid_post,final_norm", out=tmp_path / "sites.h5"
    )
    assert sites.layers == ("resid_pre.0", "1", "resid_pre.1", "2", "resid_pre.2", "3", "final_norm")
    for block in range(3):
        np.testing.assert_array_equal(sites.layer(f"resid_post.{block}"), layers.layer(block + 1))
        np.testing.assert_array_equal(sites.layer(f"resid_pre.{block}"), layers.layer(block))
    np.testing.assert_array_equal(sites.layer("final_norm"), layers.layer("final_norm"))
    assert sites.spec_id != layers.spec_id
    assert sites.spec["certificate"]["sites"]["verdict"] == "proven"
    assert sites.spec["certificate"]["sites"]["relative"] < 1e-6
    assert sites.spec["certificate"]["passed"]


def test_without_sites_nothing_of_them_is_stored(folders, tmp_path):
    cache = probekit.cache_activations(folders("bert"), TASK, out=tmp_path / "c.h5")
    assert not {"sites", "blocks"} & cache.spec.keys()
    assert not {"sites", "blocks"} & cache.spec["environment"].keys()
    assert "sites" not in json.dumps(cache.attributes["recipe"])
    assert "sites" not in cache.spec["certificate"]


def test_the_same_cache_from_a_loaded_encoder(folders, tmp_path):
    made = probekit.cache_activations(folders("bert"), TASK, sites="z,mlp_out", layers="1-2", out=tmp_path / "c.h5")
    loaded = load_encoder(folders("bert"), sites="z,mlp_out", blocks="1-2")
    again = probekit.cache_activations(loaded, TASK, out=tmp_path / "c.h5")  # opened, not made
    assert again.spec_id == made.spec_id
    assert made.layers == ("z.1", "mlp_out.1", "z.2", "mlp_out.2")


def test_analyses_read_a_site_by_its_name(folders, tmp_path):
    train, dev = (
        probekit.cache_activations(
            folders("bert"), "grammar:sentiment", split, sites="attn_out,z", limit=60, out=tmp_path / f"{split}.h5"
        )
        for split in ("train", "dev")
    )
    result = probekit.probe(train, dev, layers="attn_out.2", folds=2, controls=1, resamples=0)
    assert train.layers == ("z.0", "attn_out.0", "z.1", "attn_out.1", "z.2", "attn_out.2")
    rows = result.rows
    assert set(rows.site) - {""} == {"attn_out"}  # text baselines have none
    assert set(rows.layer.dropna()) == {2}
    information = probekit.mi(train, layers="z.0,attn_out.0", draws=19, controls=0)
    assert set(information.rows.site) == {"z", "attn_out"}


def test_pairs_read_separately(folders, tmp_path):
    task = toy_pairs(12)
    cache = probekit.cache_activations(
        folders("bert"), task, sites="mlp_act", layers="1", pairs="separate", out=tmp_path / "c.h5"
    )
    encoder = load_encoder(folders("bert"), sites="mlp_act", blocks=[1])
    example = task.split("train").examples[3]
    both = []
    for text in (example.text, example.pair):
        read, right = alone(encoder, text)
        both.append(right[Site("mlp_act", 1)].numpy()[read.special == 0].mean(0))
    np.testing.assert_allclose(cache.layer("mlp_act.1")[3], np.concatenate(both), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_several_workers_write_the_same_numbers(folders, tmp_path):
    caches = [
        probekit.cache_activations(folders("gpt2"), TASK, sites=SITES, workers=n, out=tmp_path / f"{n}.h5")
        for n in (1, 2)
    ]
    assert caches[0].spec_id == caches[1].spec_id
    for layer in caches[0].layers:
        np.testing.assert_array_equal(caches[0].layer(layer), caches[1].layer(layer))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sites": "atn_out"}, r"there is no site 'atn_out'; did you mean attn_out"),
        ({"sites": "attn_out.x"}, r"there is no site 'attn_out\.x'"),
        ({"sites": "attn_probs"}, r"is not stored"),
        ({"sites": ""}, r"the list of sites is empty; there are embeddings, resid_pre"),
        ({"sites": "z", "layers": "3"}, r"has no block 3; it has 0 … 2\. Block l turns layer l into layer l \+ 1\."),
        ({"sites": "z", "layers": "final_norm"}, r"'final_norm' is not a block; with sites, layers are the numbers"),
        (
            {"sites": "resid_mid"},
            r"has no resid_mid: no module reads or returns resid_pre \+ attn_out_post; in a parallel",
        ),
        ({"sites": "router_logits"}, r"has no router_logits: the model has no router of experts"),
        ({"sites": "z", "compile": True}, r"--compile hides what is inside a block"),
        ({"layers": "8:4"}, r"layers 8:4: a slice is FIRST:STOP:STEP"),
    ],
)
def test_sites_that_cannot_be_stored(options, message, folders, tmp_path):
    with pytest.raises(UsageError, match=message):
        probekit.cache_activations(folders("gpt_neox"), TASK, out=tmp_path / "c.h5", **options)
    assert not list(tmp_path.iterdir())


def test_sites_of_a_loaded_encoder_are_chosen_when_it_is_loaded(folders, tmp_path):
    encoder = load_encoder(folders("bert"))
    with pytest.raises(UsageError, match="sites does not apply to a loaded encoder; pass sites to load_encoder"):
        probekit.cache_activations(encoder, TASK, sites="z", out=tmp_path / "c.h5")
    with pytest.raises(UsageError, match="blocks are those of sites"):
        load_encoder(folders("bert"), blocks="1")
    chosen = load_encoder(folders("bert"), sites="z")
    with pytest.raises(UsageError, match="certify compares layers"):
        probekit.certify(chosen)


def test_a_site_that_is_not_proven_is_not_stored(folders, monkeypatch, tmp_path):
    from probekit.models.sites import find

    own = find.find_sites

    def shifted(model, recording):
        found = own(model, recording)
        found.taps[Site("mlp_out", 0)] = found.taps[Site("mlp_out", 1)]
        return found

    monkeypatch.setattr("probekit.models.sites.proof.find_sites", shifted)
    with pytest.raises(UsageError, match=r"mlp_out\.0 cannot be trusted: mlp_out = mlp_out_post is wrong by"):
        probekit.cache_activations(folders("bert"), TASK, sites="mlp_out", out=tmp_path / "c.h5")
    assert not list(tmp_path.iterdir())
    probekit.cache_activations(folders("bert"), TASK, sites="mlp_out", layers="1", out=tmp_path / "c.h5")


def test_models_without_blocks(tmp_path):
    (tmp_path / "elmo").mkdir()
    options, weights = tiny_elmo.tiny_elmo(tmp_path / "elmo")
    with pytest.raises(UsageError, match="sites are those of transformers"):
        probekit.cache_activations(f"elmo:{options},{weights}", TASK, sites="z", out=tmp_path / "c.h5")


def test_layers_of_different_widths_are_not_read_together(folders, tmp_path):
    cache = probekit.cache_activations(
        folders("bert"), TASK, sites="z,mlp_act", layers="1", tokens=True, out=tmp_path / "c.h5"
    )
    assert cache.widths == (32, 64)
    with pytest.raises(UsageError, match=r"z\.1 has width 32, and mlp_act\.1 64; choose layers of one width"):
        TokenReader(cache)
    assert TokenReader(cache, ["mlp_act.1"]).width == 64
