"""What files of strangers name elsewhere: nothing connects, and a sentence says so."""

from __future__ import annotations

import gzip
import json
import sys
from types import ModuleType

import pytest

import probekit
from probekit.addresses import check_data_card, no_addresses, offline
from probekit.domains.corpora import read_hub
from probekit.errors import CacheError, DataError, ModelError, UsageError
from probekit.models.find import resolve_model
from probekit.recipe import Recipe
from probekit.studies.runner import perform
from probekit.tasks import load_task


@pytest.fixture
def data(tmp_path):
    """A folder of data whose card says where the files of its one split are."""

    def make(where: str, name: str = "README.md"):
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": "a cat", "label": 1}).encode() + b"\n"))
        card = f"configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: {json.dumps(where)}\n"
        for one in ("README.md", ".huggingface.yaml"):
            (folder / one).unlink(missing_ok=True)
        (folder / name).write_text(f"---\n{card}---\n# Data\n" if name == "README.md" else card)
        return folder

    return make


@pytest.mark.parametrize("name", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize(
    "where", ["dask://{}/x::file:///x", "https://{}/a.jsonl", "zip://a::http://{}/a.zip", "/etc/{}", "../a.jsonl"]
)
def test_the_files_of_a_data_set_are_its_own(data, listener, tmp_path, name, where):
    folder = data(where.format(listener.address), name)
    with pytest.raises(DataError, match="which is not in the data set"):
        read_hub(str(folder), "train")
    (tmp_path / "t.toml").write_text(f'hub = "{folder}"\n')
    with pytest.raises(DataError, match="which is not in the data set"):
        load_task(str(tmp_path / "t.toml"))
    assert listener.connections == []


def test_a_data_set_with_its_own_files_is_read(data):
    folder = data("a.jsonl.gz")
    check_data_card(str(folder))
    assert b"a cat" in b"".join(chunk.data for chunk in read_hub(str(folder), "train").chunks)


def test_a_card_of_references_within_references_ends(tmp_path):
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    (tmp_path / "README.md").write_text(f"---\n{bomb}configs: *a59\n---\n")
    check_data_card(str(tmp_path))


def test_offline_asks_no_hub(listener, monkeypatch):
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "ENDPOINT", f"http://{listener.address}")
    with offline(), pytest.raises(ModelError, match="nothing is fetched"):
        resolve_model("someone/no-such-model-at-all")
    assert listener.connections == []


def test_what_a_strangers_file_runs_opens_no_address_however_it_is_named():
    """The gate is where addresses are opened, so it holds for texts that no check of the file has seen."""
    with no_addresses():
        with pytest.raises(UsageError, match=r"memory://cola\.h5 is not opened, .*add --allow-remote"):
            probekit.ActivationCache("memory://cola.h5")
        with no_addresses(allowed=True), pytest.raises(UsageError, match="is not opened"):
            probekit.ActivationCache("memory://cola.h5")
    with no_addresses(allowed=True), pytest.raises(CacheError, match="does not exist"):
        probekit.ActivationCache("memory://cola.h5")


@pytest.mark.parametrize("allowed", [False, True])
def test_a_step_of_a_study_opens_an_address_only_where_it_is_allowed(tmp_path, allowed):
    recipe = Recipe("probe", {"train": "memory://a.h5", "dev": "memory://b.h5"})
    ended = perform(recipe, str(tmp_path / "log"), {}, allow_remote=allowed)
    assert ("does not exist" if allowed else "add --allow-remote") in ended.error


@pytest.mark.parametrize("when", ["before", "inside"])
def test_offline_holds_for_datasets_and_is_undone(monkeypatch, when):
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.delitem(sys.modules, "datasets.config", raising=False)
    datasets = ModuleType("datasets.config")
    datasets.HF_HUB_OFFLINE = False
    if when == "before":
        monkeypatch.setitem(sys.modules, "datasets.config", datasets)
    with offline():
        if when == "inside":  # as datasets does when it is imported
            datasets.HF_HUB_OFFLINE = hub.HF_HUB_OFFLINE
            monkeypatch.setitem(sys.modules, "datasets.config", datasets)
        assert [hub.HF_HUB_OFFLINE, datasets.HF_HUB_OFFLINE] == [True, True]
    assert [hub.HF_HUB_OFFLINE, datasets.HF_HUB_OFFLINE] == [False, False]
