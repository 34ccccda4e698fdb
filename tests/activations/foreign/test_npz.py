"""Arrays of npz files, read from their place: against numpy's own reader, and damaged ones."""

import numpy as np
import pytest

import probekit.activations.foreign.npz as room
from probekit.activations.foreign.npz import npz
from probekit.errors import DataError, UsageError

RNG = np.random.default_rng(0)
ARRAYS = {
    "layer_1": RNG.standard_normal((5, 7, 3)).astype(np.float32),
    "layer_2": np.asfortranarray(RNG.standard_normal((5, 7, 3))),
    "layer_3": RNG.standard_normal((5, 7, 3)).astype(">f2"),
    "ids": RNG.integers(0, 9, (5, 7)),
    "one": np.float64(2.5),
    "none": np.zeros((0, 4), np.float32),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_the_numbers_that_numpy_reads(save, tmp_path, monkeypatch):
    save(tmp_path / "a.npz", texts=np.array(["ö", "bc"]), **ARRAYS)
    file, opened = npz(tmp_path / "a.npz"), []
    own = room.ZipFile
    monkeypatch.setattr(room, "ZipFile", lambda path: opened.append(path) or own(path))
    assert file.texts == ("ö", "bc")
    with np.load(tmp_path / "a.npz") as right:
        for at in ((), (slice(1, 3),), (2,), (slice(None), 4), (1, slice(2, 4), 1)):
            for name in ("layer_1", "layer_2", "layer_3"):
                np.testing.assert_array_equal(file.read(name, *at).numpy(), right[name][at])
        for name in ("ids", "one", "none"):
            np.testing.assert_array_equal(file.read(name).numpy(), right[name])
    assert file.shapes == {name: array.shape for name, array in ARRAYS.items()}
    assert file.dtypes["layer_3"] == "float16"
    assert len(opened) == 5  # each array was found once


def test_damaged_files(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez(path, layer_1=ARRAYS["layer_1"])
    whole = path.read_bytes()
    at = whole.index(ARRAYS["layer_1"].tobytes()) + 100
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(DataError, match="Bad CRC-32"):
        npz(path).read("layer_1", 0)
    member = whole[whole.index(b"\x93NUMPY") :][:548]
    with room.ZipFile(path, "w") as archive:
        archive.writestr("layer_1.npy", member.replace(b"(5, 7, 3)", b"(6, 7, 3)"))
    with pytest.raises(DataError, match=r"layer_1 is float32 \(6, 7, 3\), which takes 632 bytes, but has 548"):
        npz(path)
    with room.ZipFile(path, "w") as archive:  # of one name each, with and without its ending
        for name in ("layer_1.npy", "layer_1"):
            archive.writestr(name, member)
    with pytest.raises(DataError, match="holds layer_1 twice"):
        npz(path)
    np.savez_compressed(path, layer_1=ARRAYS["layer_1"])
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: type("Free", (), {"free": 100}))
    with pytest.raises(UsageError, match="layer_1 is compressed, and unpacked it takes .* Set TMPDIR to a folder"):
        npz(path).read("layer_1", 0)
