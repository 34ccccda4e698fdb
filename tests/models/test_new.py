"""Untrained model folders: complete, the same bytes with the same seed, never over what exists."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from tiny_bilstm import tiny_bilstm
from tiny_elmo import tiny_elmo

from probekit.errors import ModelError, UsageError
from probekit.models import load_encoder
from probekit.models.elmo.files import convert_elmo
from probekit.models.encoder import Batch
from probekit.models.identity import trained_by
from probekit.models.new import new_encoder
from probekit.models.transformers.encoder import all_layers

GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
BERT = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 32}  # fmt: skip
PIECES = {"model_type": "bilstm", "input": "pieces", "cells": 5, "embedding_size": 6}


def bytes_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize(("config", "family"), [(GPT2, "gpt2"), (BERT, "bert"), (PIECES, "bert"), (PIECES, "gpt2")])
def test_a_new_folder(tmp_path, tiny_model, config, family):
    path, tokenizer = tmp_path / "config.json", tiny_model(family)
    path.write_text(json.dumps(config))
    folders = [new_encoder(path, tmp_path / str(i), tokenizer=tokenizer, seed=i // 2) for i in range(3)]
    assert bytes_of(folders[0]) == bytes_of(folders[1])
    assert bytes_of(folders[0])["model.safetensors"] != bytes_of(folders[2])["model.safetensors"]
    assert [trained_by(folder) for folder in folders] == [{"untrained": 0}, {"untrained": 0}, {"untrained": 1}]
    encoder, theirs = (load_encoder(folder, device="cpu") for folder in (folders[0], tokenizer))
    texts = ["the cat sleeps", "a dog"]
    tokens, right = encoder.tokenize(texts), theirs.tokenize(texts)
    assert tokens.token_ids.tolist() == right.token_ids.tolist()
    stored = json.loads((folders[0] / "config.json").read_text())
    theirs_stored = json.loads((tokenizer / "config.json").read_text())
    assert stored["vocab_size"] == theirs_stored["vocab_size"]
    assert all((stored.get(f"{name}_token_id") or 0) < stored["vocab_size"] for name in ("pad", "bos", "eos"))
    batch = Batch(tokens.token_ids[: tokens.length[0]], tokens.type_ids[: tokens.length[0]], tokens.length[:1])
    assert torch.isfinite(all_layers(encoder, batch)).all()


def test_only_the_random_generator_of_the_seed_is_used(tmp_path):
    torch.manual_seed(3)
    right = torch.rand(1)
    torch.manual_seed(3)
    tiny_bilstm("words", tmp_path)
    assert torch.equal(torch.rand(1), right)


def test_weights_of_an_elmo_are_copied(tmp_path):
    elmo = convert_elmo(*tiny_elmo(tmp_path), tmp_path / "elmo")
    stored = load_file(elmo / "model.safetensors")
    for kind, copied in (("characters", "embeddings."), ("elmo", "")):
        new = load_file(tiny_bilstm(kind, tmp_path) / "model.safetensors")
        found = {name.removeprefix("elmo."): x for name, x in new.items() if name.startswith("elmo.")}
        assert found.keys() == {name for name in stored if name.startswith(copied)}
        assert all(torch.equal(x, stored[name]) for name, x in found.items())


def test_lower_case(tmp_path):
    (tmp_path / "words.txt").write_text("The\nthe\ncat\n")
    folder = new_encoder(
        PIECES | {"input": "words"}, tmp_path / "new", vocabulary=tmp_path / "words.txt", lower_case=True
    )
    assert (folder / "vocab.txt").read_text().split() == ["<unk>", "<s>", "</s>", "the", "cat"]
    assert load_encoder(folder, device="cpu").tokenize(["THE Cat"]).token_ids.tolist() == [1, 3, 4, 2]


def test_bad_input(tmp_path, tiny_bert):
    words = tmp_path / "words.txt"
    words.write_text("the\ncat\n")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "exists").mkdir()
    bilstm = {"model_type": "bilstm"}
    cases = [
        (bilstm | {"input": "bytes"}, {}, UsageError, "input is 'bytes'; expected one of characters"),
        (bilstm | {"input": "words"}, {}, UsageError, "the input 'words' needs vocabulary: .* --vocabulary words.txt"),
        (bilstm | {"input": "words"}, {"vocabulary": words, "tokenizer": tiny_bert}, UsageError,
         "the input 'words' does not read tokenizer; leave it out"),
        (bilstm | {"input": "elmo"}, {}, UsageError, "the input 'elmo' needs elmo"),
        (bilstm | {"input": "elmo"}, {"elmo": tiny_bert}, ModelError, "is of type 'bert'; expected an ELMo"),
        (PIECES, {"tokenizer": tiny_bert, "lower_case": True}, UsageError, "lower_case is for the input 'words'"),
        (PIECES | {"cells": 0}, {"tokenizer": tiny_bert}, ModelError, "cells is 0; expected a whole number"),
        (PIECES | {"vocab_size": 3}, {"tokenizer": tiny_bert}, ModelError, "vocab_size is 3, but the tokenizer in"),
        (GPT2, {}, UsageError, "a model of transformers needs tokenizer: .* --tokenizer minilm"),
        (GPT2 | {"model_type": "gpt99"}, {"tokenizer": tiny_bert}, ModelError, "cannot be loaded as a model"),
        ({"model_type": "t5", "d_model": 8, "num_layers": 1, "num_heads": 2}, {"tokenizer": tiny_bert}, ModelError,
         "describes an encoder with a decoder"),
        (tmp_path / "none.json", {"tokenizer": tiny_bert}, ModelError, "none.json does not exist; expected"),
        (tmp_path / "list.json", {"tokenizer": tiny_bert}, ModelError, "holds a list; expected a model"),
    ]  # fmt: skip
    for config, source, error, message in cases:
        with pytest.raises(error, match=message):
            new_encoder(config, tmp_path / "new", **source)
        assert not (tmp_path / "new").exists()
    with pytest.raises(UsageError, match="exists; choose another folder"):
        new_encoder(PIECES, tmp_path / "exists", tokenizer=tiny_bert)
