"""Caches in object stores: copied whole, the manifest last; read shard by shard, and compared like others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from toys import toy_task

import probekit
from probekit.activations import ActivationCache, cache_activations, verify
from probekit.activations.writing import prepare as prepare_module
from probekit.addresses import address_of
from probekit.errors import CacheCorrupt, CacheError, UsageError
from probekit.models import load_encoder


@pytest.fixture(scope="module", autouse=True)
def _no_certificates() -> Iterator[None]:
    """Each shard has a certificate of the model, which takes longer than these shards, and is not tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare_module, "quick_certificate", lambda *_: {"verdict": "not measured"})
        yield


@pytest.fixture(scope="module")
def made(tiny_bert, tmp_path_factory):
    encoder, base = load_encoder(tiny_bert, device="cpu"), tmp_path_factory.mktemp("remote")
    many = cache_activations(encoder, toy_task(), out=base / "many", shard_size=20)
    return many, cache_activations(encoder, toy_task(), out=base / "one.h5"), encoder, base


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A memory:// store that is empty, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/", recursive=True)


@pytest.mark.parametrize("scheme", ["memory://", pytest.param("file://", marks=pytest.mark.slow)])
def test_there_and_back(made, store, tmp_path, call, scheme):
    many, one, *_ = made
    url = f"{scheme}{tmp_path}/bucket/many"
    assert probekit.copy_cache(many.path, url) == url
    assert verify(url).ok
    with ActivationCache(url) as cache:
        assert np.array_equal(cache.layer(2), many.layer(2))
        assert np.array_equal(cache.labels, many.labels)
    assert call("inspect", Path(url)).out == call("inspect", many.path).out  # a Path has one slash
    assert call("copy-cache", url, tmp_path / "back").status == 0
    files = [sorted((p.name, p.read_bytes()) for p in folder.iterdir()) for folder in (many.path, tmp_path / "back")]
    assert files[0] == files[1]
    probekit.copy_cache(one.path, f"{url}-one.h5")
    with ActivationCache(f"{url}-one.h5") as cache:
        assert np.array_equal(cache.layer(2), one.layer(2))
    with pytest.raises(UsageError, match="nothing is replaced there"):
        probekit.copy_cache(one.path, f"{url}-one.h5")


def test_only_what_is_read_is_fetched(made, store):
    many = made[0]
    probekit.copy_cache(many.path, "memory://bucket/many")
    with ActivationCache("memory://bucket/many") as cache:
        assert len(cache) == 60
        assert sorted(p.name for p in cache.path.iterdir()) == [".source", "manifest.json", "shard-00000.h5"]
        assert np.array_equal(cache.rows("/pooled/mean/1")[45:50], many.layer(1)[45:50])
        assert sorted(p.name for p in cache.path.glob("shard-*")) == ["shard-00000.h5", "shard-00002.h5"]
        folder = cache.path
    assert len(ActivationCache(folder).layer(0)) == 60  # the folder here is a cache like another


def test_a_copy_that_was_interrupted_goes_on(made, store, monkeypatch):
    many, put, sent = made[0], type(store).put_file, []

    def broken(self, file, to, **how):
        sent.append(to.rpartition("/")[2])
        if len(sent) == 4:
            raise OSError("the line is dead")
        return put(self, file, to, **how)

    monkeypatch.setattr(type(store), "put_file", broken)
    with pytest.raises(CacheError, match=r"memory://bucket/many cannot be read or written: the line is dead"):
        probekit.copy_cache(many.path, "memory://bucket/many")
    with pytest.raises(CacheError, match="does not exist, or lacks"):
        ActivationCache("memory://bucket/many")
    sent += [""]
    probekit.copy_cache(many.path, "memory://bucket/many")
    assert sent == [
        ".manifest",
        "shard-00000.h5",
        "shard-00001.h5",
        "shard-00002.h5",
        "",
        "shard-00002.h5",
        "manifest.json",
    ]
    assert verify("memory://bucket/many").ok
    assert not store.exists("/bucket/many/.manifest")


def test_what_is_damaged_in_the_store_is_noticed(made, store):
    many, _, encoder, base = made
    probekit.copy_cache(many.path, "memory://bucket/many")
    name = "/bucket/many/shard-00001.h5"
    data = bytearray(store.cat_file(name))
    data[-100] ^= 1
    store.pipe_file(name, bytes(data))
    problems = verify("memory://bucket/many").problems
    assert problems
    assert all(p.startswith("shard-00001.h5") for p in problems)
    with ActivationCache("memory://bucket/many") as cache, pytest.raises(CacheCorrupt, match=r"shard-00001.h5"):
        [cache.layer(k) for k in cache.layers]
    with pytest.raises(CacheCorrupt, match="so nothing of it is copied|is not the file of the manifest"):
        probekit.copy_cache("memory://bucket/many", base / "copy")
    other = cache_activations(encoder, toy_task(40), out=base / "other", shard_size=20)
    with pytest.raises(UsageError, match="holds another cache"):
        probekit.copy_cache(other.path, "memory://bucket/many")


def test_a_fetched_shard_that_is_damaged_here(made, store):
    probekit.copy_cache(made[0].path, "memory://bucket/here")
    with ActivationCache("memory://bucket/here") as cache:
        shard = cache.path / "shard-00000.h5"
        whole = shard.read_bytes()
    shard.write_bytes(whole[:9000].replace(b"spec_id", b"spec-id") + whole[9000:])
    with pytest.raises(CacheCorrupt, match=r"fetched from memory://bucket/here: remove it here"):
        ActivationCache("memory://bucket/here")
    shard.unlink()
    assert len(ActivationCache("memory://bucket/here").layer(0)) == 60


@pytest.mark.parametrize("place", ["memory://bucket/begun", "begun"])
def test_shards_of_an_unfinished_cache_are_not_replaced(made, store, tmp_path, place):
    many, _, encoder, base = made
    other = cache_activations(encoder, toy_task(30), out=base / "unfinished", shard_size=20)
    probekit.copy_cache(other.path, place)
    name = f"{place}/manifest.json".removeprefix("memory:/")
    store.rm(name) if place.startswith("memory") else Path(name).unlink()
    with pytest.raises(UsageError, match="holds shards of another cache"):
        probekit.copy_cache(many.path, place)


def test_urls(tmp_path, made, store):
    assert address_of(Path("s3://bucket/a/b/")) == "s3://bucket/a/b"
    for given in ("file:///a/b", "file:/a/b", Path("file:///a/b")):
        assert address_of(given) == "file:///a/b"
    for wrong, why in {
        "nowhere://a": "probekit opens s3://",
        "http://a/b": "probekit opens s3://",
        "dask://a/x::file:///x": "probekit opens s3://",
        "s3://a::file:///x": "chains several",
        "s3://a?versionId=1": "what follows “[?]” is not read",
        "file://a/b": "write file:///a/b",
    }.items():
        with pytest.raises(UsageError, match=f"cannot be opened: .*{why}"):
            ActivationCache(wrong)
    probekit.copy_cache(made[1].path, f"file://{tmp_path}/there/one.h5")  # not a path relative to the working directory
    assert [p.name for p in tmp_path.iterdir()] == ["there"]


def test_what_a_store_cannot_do_is_a_sentence(made, store, monkeypatch):
    def refused(self, path, **how):
        raise EOFError  # as of a server that hangs up; no OSError

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "isfile", refused)
        with pytest.raises(CacheError, match=r"memory://bucket/x cannot be read or written: EOFError"):
            ActivationCache("memory://bucket/x")
    with pytest.raises(CacheError, match="does not exist"):
        ActivationCache("memory://bucket/x")


URLS = [
    "ftp://{}/shards",
    "http://{}/shards",
    "dask://{}/x::file:///x",
    "reference://x::ftp://{}/refs.json",
    "reference://x::data:application/json;base64,e30=",
    "https://{}/shards",  # a scheme that is opened, but not because a folder says so
    "s3://{}/shards",
    "\udcff",
]


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(url, marks=[pytest.mark.slow] if url.startswith(("http:", "reference", "s3")) else [])
        for url in URLS
    ],
)
def test_the_source_that_a_stranger_wrote_is_not_followed(made, tmp_path, monkeypatch, listener, call, url):
    """Neither in a folder of his own, nor in one that lies where probekit keeps its own."""
    monkeypatch.chdir(tmp_path)
    for folder in (Path("theirs"), Path("data_cache/remote/theirs.0123456789abcdef")):
        shutil.copytree(made[0].path, folder)
        (folder / "shard-00000.h5").unlink()
        (folder / ".source").write_bytes(url.format(listener.address).encode("utf-8", "surrogateescape"))
        with pytest.raises(CacheCorrupt, match=r"\.source in this folder is not followed"):
            ActivationCache(folder)
        done = call("verify", folder)
        assert (done.status, ".source" in done.out + done.err) == (1, True)
        for command in (["inspect", folder], ["copy-cache", folder, "copy"], ["probe", folder, folder]):
            assert call(*command).status == 2
    assert listener.connections == []
