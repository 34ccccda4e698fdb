"""Exported caches, read with each format's own library: the same bits, in any number of parts."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open
from toys import toy_pairs, toy_task

import probekit
from probekit.activations.foreign import export as room
from probekit.errors import CacheCorrupt, UsageError
from probekit.files import digest_of_content


@pytest.fixture(scope="module")
def caches(tiny_model, tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("caches"), {}
    options = {
        "float32": {"tokens": True, "pooling": "mean,last"},
        "bfloat16": {"tokens": True, "store": "bfloat16"},
        "float16": {"store": "float16", "compress": True},
        "sites": {"sites": "z,mlp_act", "layers": "1", "tokens": True},
    }
    for name, how in options.items():
        made[name] = probekit.cache_activations(tiny_model("bert"), toy_task(30), out=folder / f"{name}.h5", **how)
    made["pairs"] = probekit.cache_activations(
        tiny_model("bert"), toy_pairs(12), pairs="separate", tokens=True, out=folder / "pairs.h5"
    )
    made["shards"] = probekit.cache_activations(
        tiny_model("bert"), toy_task(30), tokens=True, pooling="mean,last", shard_size=9, out=folder / "shards"
    )
    return made


def read_npy(folder, name):
    return np.load(folder / f"{name.replace('/', '.')}.npy", mmap_mode="r", allow_pickle=False)


def read_zarr(folder, name):
    zarr = pytest.importorskip("zarr", reason="needs the extra 'zarr'")
    return zarr.open_group(folder / "activations.zarr", mode="r")[name][:]


def read_parquet(folder, name):
    table = "tokens" if name.startswith("tokens/") else "examples"
    return np.stack(pd.read_parquet(folder / f"{table}.parquet")[name].to_list())


def read_safetensors(folder, name):
    table, parts = "tokens" if name.startswith("tokens/") else "examples", []
    for path in sorted(folder.glob(f"{table}-*.safetensors")):
        with safe_open(path, "pt") as file:
            assert file.metadata()["first_row"] == str(sum(map(len, parts)))
            parts.append(file.get_tensor(name))
    return torch.cat(parts)


READ = {"npy": read_npy, "zarr": read_zarr, "parquet": read_parquet, "safetensors": read_safetensors}


KINDS = [(to, name) for to in READ for name in ("float32", "bfloat16", "float16", "sites", "pairs")]
FEWER = [("zarr", "float16"), ("zarr", "sites")]  # its arrays take longest
LONG = [("zarr", "bfloat16"), ("zarr", "pairs"), ("parquet", "bfloat16")]


@pytest.mark.parametrize(
    ("to", "name"),
    [pytest.param(*kind, marks=[pytest.mark.slow] if kind in LONG else []) for kind in KINDS if kind not in FEWER],
)
def test_the_same_bits_come_back(to, name, caches, tmp_path, monkeypatch):
    if to == "zarr":
        pytest.importorskip("zarr", reason="needs the extra 'zarr'")
    monkeypatch.setattr(room, "BYTES", 100_000 if to == "zarr" else 4000)  # several parts
    monkeypatch.setattr("probekit.activations.foreign.writers.SHARD", 9000)
    cache = caches[name]
    made = probekit.export(cache, to=to, out=tmp_path / "out")
    arrays = {f"pooled/{p}/{layer}": cache.layer(layer, p) for p in cache.poolings for layer in cache.layers}
    if cache.spec["tokens"]:
        arrays |= {f"tokens/{layer}": cache.tokens(layer).values for layer in cache.layers}
    for at, right in arrays.items():
        found = READ[to](made.path, at)
        if isinstance(found, torch.Tensor):
            assert str(found.dtype) == f"torch.{cache.spec['store']}"
            found = found.float().numpy() if name == "bfloat16" else found.numpy()
        assert found.dtype == right.dtype
        assert found.tobytes() == right.tobytes()
    assert len(made.notes) == (name == "bfloat16" and to != "safetensors")
    if to == "safetensors" and name == "float32":
        assert len(list(made.path.glob("tokens-*"))) > 2


def test_what_stands_beside(caches, tmp_path):
    cache = caches["float32"]
    made = probekit.export(cache, to="npy", layers="1,-1", out=tmp_path / "out")
    arrays = [f"{kind}.{layer}.npy" for kind in ("pooled.mean", "pooled.last", "tokens") for layer in (1, 3)]
    assert sorted(made.files) == sorted([*arrays, "examples.parquet", "tokens.parquet", "spec.json"])
    examples, tokens = (pd.read_parquet(made.path / f"{name}.parquet") for name in ("examples", "tokens"))
    assert examples["id"].tolist() == cache.ids.tolist()
    assert examples["label"].tolist() == cache.labels.tolist()
    assert tokens["token_id"].tolist() == cache.index("token_ids").tolist()
    i = 7
    rows = slice(examples["first_token"][i], examples["first_token"][i] + examples["tokens"][i])
    np.testing.assert_array_equal(read_npy(made.path, "tokens/1")[rows], cache.tokens(1)[i])
    about = json.loads((made.path / "spec.json").read_text())
    assert about["spec"] == json.loads(json.dumps(cache.spec))
    assert about["layers"] == ["1", "3"]
    assert about["files"].keys() == set(made.files) - {"spec.json"}
    for name, digest in about["files"].items():
        assert digest_of_content(made.path / name) == digest
    assert pq.read_schema(made.path / "examples.parquet").metadata[b"spec_id"].decode() == cache.spec_id
    again = probekit.export(cache.path, to="npy", layers="1,-1", out=tmp_path / "again")
    assert (again.path / "spec.json").read_bytes() == (made.path / "spec.json").read_bytes()  # the same digests


def test_shards_give_what_one_file_gives(caches, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "BYTES", 4000)
    one, many = (probekit.export(caches[name], to="npy", out=tmp_path / name) for name in ("float32", "shards"))
    for name in set(one.files) - {"spec.json"}:
        if name.startswith(("tokens", "examples")):  # tokens lie in another order
            continue
        assert (one.path / name).read_bytes() == (many.path / name).read_bytes()
    examples = pd.read_parquet(many.path / "examples.parquet")
    rows = slice(examples["first_token"][20], examples["first_token"][20] + examples["tokens"][20])
    np.testing.assert_array_equal(read_npy(many.path, "tokens/2")[rows], caches["float32"].tokens(2)[20])


@pytest.mark.parametrize("name", ["/pooled/mean/2", "/tokens/1", "/labels", "/pooled/last/3"])
@pytest.mark.parametrize("last", [False, True])
def test_a_flipped_bit_leaves_nothing(name, last, caches, tmp_path):
    import h5py

    path = tmp_path / "c.h5"
    path.write_bytes(caches["float32"].path.read_bytes())
    with h5py.File(path) as f:
        at = f[name].id.get_offset() + (f[name].nbytes - 1) * last
    with path.open("rb+") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(CacheCorrupt, match=name):
        probekit.export(path, to="npy", out=tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["c.h5"]


def test_a_repeated_text_that_differs_is_found(caches, tmp_path):
    import h5py

    path, cache = tmp_path / "c.h5", caches["float32"]
    path.write_bytes(cache.path.read_bytes())
    slots = cache.index("row_to_unique")
    again = next(i for i in range(len(slots)) if slots[i] in slots[:i])
    with h5py.File(path) as f:
        at = f["/pooled/mean/1"].id.get_offset() + again * 32 * 4
    with path.open("rb+") as file:
        file.seek(at)
        file.write(b"\x01\x02\x03\x04")
    with pytest.raises(CacheCorrupt, match=f"row {again} differs"):
        probekit.export(path, to="npy", out=tmp_path / "out")


def test_memory_does_not_grow(caches, tmp_path, monkeypatch):
    seen = []
    own = room.joined
    monkeypatch.setattr(room, "BYTES", 4000)
    monkeypatch.setattr(room, "joined", lambda streams: (seen.append(size(p)) or p for p in own(streams)))
    probekit.export(caches["float32"], to="npy", out=tmp_path / "out")
    assert len(seen) > 10
    assert max(seen) <= 4000


def size(part):
    return sum(rows.nbytes for name, rows in part.items() if "/" in name)


def test_command(caches, tmp_path, call):
    path = caches["bfloat16"].path
    done = call("export", path, "--to", "parquet", "--out", tmp_path / "out")
    assert done.status == 0
    assert "out: 3 files" in done.out
    assert "parquet has no bfloat16; the numbers are the same, written as float32" in " ".join(done.err.split())
    again = call("export", path, "--to", "npy", "--out", tmp_path / "out")
    assert again.status == 2
    assert "exists; choose another folder" in again.err
    assert call("export", path, "--to", "csv", "--out", tmp_path / "b").status == 2
    assert "has no layer '9'" in call("export", path, "--to", "npy", "--layers", "9", "--out", tmp_path / "b").err
    assert not (tmp_path / "b").exists()


def test_without_zarr(caches, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zarr", None)
    with pytest.raises(UsageError, match=r"needs zarr 3: pip install 'probekit-lm\[zarr\]'"):
        probekit.export(caches["float32"], to="zarr", out=tmp_path / "out")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="to is .h5."):
        probekit.export(caches["float32"], to="h5", out=tmp_path / "out")
