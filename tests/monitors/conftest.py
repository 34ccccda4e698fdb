"""A tiny model, its caches of a task, and the probes that are kept of them."""

from __future__ import annotations

import pytest
import tiny

import probekit

TASK = "grammar:sentiment"


@pytest.fixture(scope="package")
def model(tmp_path_factory):
    return tiny.tiny_model("bert", tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="package")
def encoder(model):
    return probekit.load_encoder(model, device="cpu")


@pytest.fixture(scope="package")
def caches(encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("caches")
    made = {}
    for split in ("train", "dev"):
        made[split] = probekit.cache_activations(encoder, TASK, split, limit=120, tokens=True, out=out / f"{split}.h5")
    return made


@pytest.fixture(scope="package")
def kept(caches, tmp_path_factory):
    """The folder of the probes, and their result, which is saved beside it as rows.parquet."""
    folder = tmp_path_factory.mktemp("kept") / "sentiment"
    how = {"controls": 0, "resamples": 200, "layers": "1,2", "out": folder.with_name("rows.parquet")}
    return folder, probekit.probe(caches["train"], caches["dev"], keep=folder, **how)
