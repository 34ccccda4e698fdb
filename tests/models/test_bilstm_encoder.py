"""The BiLSTM as an encoder: every input, sites, words once, random weights with frozen characters, the commands."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_bilstm import INPUTS, tiny_bilstm

from probekit import read
from probekit.activations import ActivationCache
from probekit.activations.certify import certify
from probekit.errors import DataError, ModelError, UsageError
from probekit.models import load_encoder
from probekit.models.elmo.characters import BEGIN, END
from probekit.models.encoder import Batch
from probekit.models.loading import parts_pairs, text_reader
from probekit.models.transformers.encoder import all_layers
from probekit.models.transformers.onednn import onednn_available
from probekit.models.transformers.stock import load_model
from probekit.sites import Site

SENTENCES = ["the cat sleeps", "a", "the small dog sees the cat in a garden", "old"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_bert):
    here = tmp_path_factory.mktemp("bilstm")
    return {
        (kind, directions): tiny_bilstm(kind, here, tiny_bert, directions=directions)
        for kind in INPUTS
        for directions in ("joint", "separate")
    }


@pytest.fixture(scope="module")
def words_folder(folders):
    return folders["words", "joint"]


def batch_of(encoder, texts):
    tokens = encoder.tokenize(texts)
    return Batch(tokens.token_ids, tokens.type_ids, tokens.length, tokens.characters)


@pytest.mark.parametrize("directions", ["joint", "separate"])
@pytest.mark.parametrize("kind", INPUTS)
def test_every_input(folders, kind, directions):
    encoder = load_encoder(folders[kind, directions], device="cpu")
    elmo = ["elmo.0", "elmo.1", "elmo.2"] if kind == "elmo" else []
    width = {"characters": 6, "new characters": 6, "elmo": 12}.get(kind, 10)
    assert [*map(str, encoder.sites)] == [*elmo, "0", "1", "2", "output"]
    assert encoder.widths == (*[width] * len(elmo), width, 14, 14, 14 + width)
    batch = batch_of(encoder, SENTENCES)
    together = all_layers(encoder, batch)
    torch.testing.assert_close(together, encoder.own_hidden_states(batch), atol=1e-6, rtol=1e-6)
    assert torch.equal(together[-1, :, :14], together[-2, :, :14])
    assert torch.equal(together[-1, :, 14 : 14 + width], together[-4, :, :width])
    if onednn_available(torch.float32):
        alone = [all_layers(encoder, batch_of(encoder, [text])) for text in SENTENCES]
        assert torch.equal(torch.cat(alone, 1), together)


@pytest.mark.parametrize("kind", ["characters", "elmo"])
def test_an_edited_layer_changes_what_is_above(folders, kind):
    encoder = load_encoder(folders[kind, "joint"], device="cpu")
    batch = batch_of(encoder, SENTENCES)
    before = all_layers(encoder, batch)
    assert torch.equal(all_layers(encoder, batch, lambda site, hidden: hidden.clone()), before)
    for i, site in enumerate(encoder.sites):
        after = all_layers(encoder, batch, lambda at, x, site=site: torch.zeros_like(x) if at == site else x)
        assert torch.equal(after[:i], before[:i])
        assert not after[i].any()
        assert all(not torch.equal(after[j], before[j]) for j in range(i + 1, len(before)))


def test_the_mix_of_elmo(folders):
    """Untrained, the input is the mean of ELMo's layers, which are those of the ELMo itself."""
    folder = folders["elmo", "joint"]
    encoder, elmo = load_encoder(folder, device="cpu"), load_encoder(folder.parent / "elmo", device="cpu")
    found, right = all_layers(encoder, batch_of(encoder, SENTENCES)), all_layers(elmo, batch_of(elmo, SENTENCES))
    assert torch.equal(found[:3, :, :12], right)
    torch.testing.assert_close(found[3, :, :12], right.mean(0))


def test_pieces(folders):
    characters = load_encoder(folders["characters", "joint"], device="cpu").tokenize(["a dog", "dog dog", ""])
    assert characters.length.tolist() == [4, 4, 2]
    assert characters.token_ids.tolist() == [0, 2, 3, 1, 0, 3, 3, 1, 0, 1]
    assert characters.special.tolist() == [1, 0, 0, 1, 1, 0, 0, 1, 1, 1]
    assert characters.word_index.tolist() == [-1, 0, 1, -1, -1, 0, 1, -1, -1, -1]
    assert (characters.characters[:2] == np.stack([BEGIN, END])).all()
    words = load_encoder(folders["words", "joint"], device="cpu", max_length=4)
    found = words.tokenize(["a Dog sleeps", "cat", (("the", "dog"),)])
    rows = text_reader(words.folder, words.model.config).rows
    assert found.token_ids.tolist() == [1, rows["a"], 0, 2, 1, rows["cat"], 2, 1, rows["the"], rows["dog"], 2]
    assert found.truncated.tolist() == [True, False, False]
    assert load_encoder(folders["elmo", "joint"], device="cpu").tokenize(["a dog"]).length.tolist() == [2]
    pieces = load_encoder(folders["pieces", "joint"], device="cpu").tokenize(["unhappy dogs"])
    assert pieces.length.tolist() == [6]  # [CLS] un ##happy dog ##s [SEP]


def test_pairs_are_read_separately(words_folder):
    assert not parts_pairs(words_folder)
    with pytest.raises(UsageError, match="reads one sentence at a time, not the pair"):
        load_encoder(words_folder, device="cpu").tokenize([("a dog", "a cat")])


def test_random_weights_keep_frozen_ones(folders):
    """Bowman et al.'s baseline: the LSTMs are random, the characters are ELMo's."""
    for kind in ("characters", "elmo"):
        folder = folders[kind, "joint"]
        stored, ours = load_model(folder), [load_model(folder, random_weights=seed) for seed in (1, 1, 2)]
        for name, p in stored.state_dict().items():
            first, again, other = (model.state_dict()[name] for model in ours)
            assert torch.equal(first, again)
            assert torch.equal(first, p) == torch.equal(first, other) == name.startswith(("elmo.", "mix."))
    trained = folders["new characters", "joint"]
    name = "elmo.embeddings.projection.weight"
    assert not torch.equal(
        load_model(trained).state_dict()[name], load_model(trained, random_weights=1).state_dict()[name]
    )
    spec = load_encoder(folders["characters", "joint"], device="cpu", random_weights=1).spec
    assert spec["random_weights"] == 1
    assert spec["weights_digest"] != load_encoder(folders["characters", "joint"], device="cpu").spec["weights_digest"]


def test_exchanged_frozen_weights(tmp_path):
    folder = tiny_bilstm("characters", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["elmo.embeddings.projection.bias"] += 1
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="frozen weights differ from the frozen_digest in config.json"):
        load_model(folder, random_weights=1)


def test_save_and_load(words_folder, tmp_path):
    model = load_model(words_folder)
    model.save_pretrained(tmp_path / "saved")
    again = load_model(tmp_path / "saved")
    again.config._name_or_path = model.config._name_or_path
    assert again.config.to_dict() == model.config.to_dict()
    for name, p in model.state_dict().items():
        assert torch.equal(p, again.state_dict()[name])


def test_bad_vocabularies(tmp_path):
    folder = tiny_bilstm("words", tmp_path)
    encoder = load_encoder(folder, device="cpu")
    with pytest.raises(UsageError, match="has none of the 3 words of the texts, the first of which is 'Ein'"):
        encoder.tokenize(["Ein Hund", "schläft"])
    assert encoder.tokenize(["Ein dog"]).token_ids.tolist()[1] == 0
    with pytest.raises(UsageError, match="reads 3 or more pieces, but max_length is 2"):
        load_encoder(folder, device="cpu", max_length=2)
    lines = (folder / "vocab.txt").read_text().splitlines()
    for changed, message in (
        (lines[3:], "expected .* beginning with <unk>, <s>, </s>"),
        ([*lines, "two words"], "'two words' is not a word; expected one word per line"),
        ([*lines, "dog"], "'dog' is on line 7 too"),
        ([], "is empty; expected a vocabulary"),
    ):
        (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in changed))
        with pytest.raises(ModelError, match=message):
            load_encoder(folder, device="cpu")
    (folder / "vocab.txt").unlink()
    with pytest.raises(DataError, match="cannot be read: No such file"):
        load_encoder(folder, device="cpu")


def test_missing_files(tmp_path):
    folder = tiny_bilstm("new characters", tmp_path)
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ModelError, match="does not say how to split text into words"):
        load_encoder(folder, device="cpu")
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        load_encoder(folder, device="cpu")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="has no weights"):
        load_encoder(folder, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["characters", "words", "pieces", "elmo"])
def test_the_commands(folders, kind, tmp_path, monkeypatch, call):
    """Cache, probe, fine-tune, train on the cache; the run's encoder is read like any other, its CNN unchanged."""
    monkeypatch.chdir(tmp_path)
    folder = folders[kind, "joint"]
    common = ("--task", "grammar:sentiment", "--model", folder, "--device", "cpu", "--limit", 24)
    for split in ("train", "dev"):
        answer = call("cache-activations", *common, "--split", split, "--out", f"{split}.h5", "--tokens")
        assert not answer.status, answer.err
    cache = ActivationCache("train.h5")
    assert cache.layers[-4:] == ("0", "1", "2", "output")
    answer = call("probe", "train.h5", "dev.h5", "--out", "rows.parquet", "--layers", "0,2,output")
    assert not answer.status, answer.err
    assert {*read("rows.parquet").rows["site"]} >= {"resid_post", "output"}
    answer = call("train", *common, "--regime", "fine-tune", "--out", "run", "--epochs", 1, "--learning-rate", 0.01)
    assert not answer.status, answer.err
    saved = sorted((tmp_path / "run").rglob("model.safetensors"))
    assert saved
    before, after = load_file(folder / "model.safetensors"), load_file(saved[-1])
    same = {name: torch.equal(before[name], after[name]) for name in before}
    assert all(value == name.startswith("elmo.") for name, value in same.items())
    load_encoder(saved[-1].parent, device="cpu")
    again = load_model(saved[-1].parent, random_weights=1)
    assert json.loads((saved[-1].parent / "config.json").read_text())["model_type"] == again.config.model_type
    answer = call(
        "train", *common, "--regime", "feature-extraction", "--head", "linear", "--out", "frozen", "--epochs", 1
    )
    assert not answer.status, answer.err


def test_layers_of_different_widths_are_not_mixed(words_folder, tmp_path, call):
    answer = call("train", "--task", "grammar:sentiment", "--model", words_folder, "--regime", "fine-tune", "--mix",
                  "--out", tmp_path / "run", "--device", "cpu", "--limit", 8)  # fmt: skip
    assert answer.status == 2
    assert "the layers of bilstm differ in width and cannot be mixed" in answer.err


def test_sites_by_name(words_folder):
    encoder = load_encoder(words_folder, device="cpu")
    assert Site("output") in encoder.sites
    assert encoder.spec["width"] == 24


@pytest.mark.parametrize("kind", ["characters", *(pytest.param(k, marks=pytest.mark.slow) for k in INPUTS[1:])])
def test_certificate(folders, kind):
    """Packed states are those of the model's own forward pass, whatever the batch and the padding."""
    certificate = certify(folders[kind, "separate"])
    assert certificate.passed, certificate
    assert [line.check for line in certificate.lines] == ["batch", "layers", "stock", "padding right"]
