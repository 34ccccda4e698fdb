"""ELMo's published files to a model folder: what arrives, and which files are refused."""

from __future__ import annotations

import json
import os
import subprocess

import h5py
import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tiny_elmo import CNN, LSTM, shapes, tiny_elmo
from transformers import AutoModel
from transformers.utils.logging import disable_progress_bar

from probekit.errors import ModelError, UsageError
from probekit.files import _note
from probekit.models import load_encoder
from probekit.models.conversion import converted_folder, published_name
from probekit.models.elmo import model as registered  # noqa: F401  AutoModel knows the type from then on
from probekit.models.elmo.files import convert_elmo
from probekit.models.find import resolve_model
from probekit.models.folder import model_type
from probekit.models.identity import identify
from probekit.models.transformers.stock import load_model


@pytest.fixture
def files(tmp_path):
    return tiny_elmo(tmp_path)


def test_every_number_arrives(files, tmp_path):
    """Each tensor by the formulas that the originals compute, on their layout and on ours."""
    folder = convert_elmo(*files, tmp_path / "elmo")
    ours = load_file(folder / "model.safetensors")
    with h5py.File(files[1]) as file:
        theirs = {name: file[name][...] for name in shapes({"lstm": LSTM, "char_cnn": CNN})}
    assert sum(x.size for x in ours.values()) == sum(x.size for x in theirs.values()) + 3  # the row of zeros
    rng = np.random.default_rng(0)
    assert not ours["embeddings.characters.weight"][0].any()
    np.testing.assert_array_equal(ours["embeddings.characters.weight"][1:], theirs["char_embed"])
    window = rng.normal(size=(4, 3)).astype(np.float32)  # of the filters that are 4 wide
    np.testing.assert_allclose(
        ours["embeddings.filters.2.weight"] @ window.ravel(),
        np.einsum("wd,wdn->n", window, theirs["CNN/W_cnn_2"][0]),
        atol=1e-6,
    )
    x = rng.normal(size=12).astype(np.float32)
    both = [x @ theirs[f"CNN_high_1/W_{gate}"] + theirs[f"CNN_high_1/b_{gate}"] for gate in ("transform", "carry")]
    linear = "embeddings.highways.1.linear"
    np.testing.assert_allclose(ours[f"{linear}.weight"] @ x + ours[f"{linear}.bias"], np.concatenate(both), atol=1e-5)
    for way, name in enumerate(("forward", "backward")):
        for i in range(2):
            cell, lstm = f"RNN_{way}/RNN/MultiRNNCell/Cell{i}/LSTMCell", f"layers.{i}.{name}_lstm"
            x, h = rng.normal(size=(2, 6)).astype(np.float32)
            gi, gg, gf, go = np.split(np.concatenate([x, h]) @ theirs[f"{cell}/W_0"] + theirs[f"{cell}/B"], 4)
            found = ours[f"{lstm}.input.weight"] @ x + ours[f"{lstm}.input.bias"] + ours[f"{lstm}.recurrent.weight"] @ h
            np.testing.assert_allclose(found, np.concatenate([gi, gf + 1, gg, go]), atol=1e-5)
            np.testing.assert_array_equal(ours[f"{lstm}.projection.weight"], theirs[f"{cell}/W_P_0"].T)


def test_the_folder(files, tmp_path):
    folder = convert_elmo(*files, tmp_path / "deep/elmo", splitting="blanks")
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors", "tokenizer_config.json"]
    assert os.listdir(tmp_path / "deep") == ["elmo"]
    config, told = (json.loads((folder / f"{name}.json").read_text()) for name in ("config", "tokenizer_config"))
    assert model_type(folder) == "elmo"
    assert config["filters"] == [[1, 4], [2, 5], [4, 3]]
    assert (config["projection_dim"], config["cells"], config["cell_clip"]) == (6, 9, 3)
    assert told == {"words": "blanks", "max_characters": 50}
    with pytest.raises(UsageError, match="elmo exists; choose another folder"):
        convert_elmo(*files, folder)


@pytest.mark.parametrize("clip", [None, 0.25])
def test_limits_and_skips_are_the_options(tmp_path, clip):
    lstm = {"cell_clip": clip, "proj_clip": clip, "use_skip_connections": False, "n_layers": 3}
    model = load_model(convert_elmo(*tiny_elmo(tmp_path, lstm=lstm), tmp_path / "elmo"))
    assert len(model.layers) == 3
    assert not any(layer.skip for layer in model.layers)
    assert model.layers[2].backward_lstm.cell_clip == model.layers[2].forward_lstm.proj_clip == clip
    words = torch.from_numpy(np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32))
    layers, _, (h, c) = model.run(words, torch.arange(7), np.array([3, 0, 4]))
    largest = max(float(x.abs().max()) for x in (*layers[1:], h, c))
    assert largest == clip if clip else largest > 0.25


def test_options_may_leave_limits_out(tmp_path):
    options, weights = tiny_elmo(tmp_path)
    told = json.loads(options.read_text())
    for name in ("cell_clip", "proj_clip", "use_skip_connections"):
        del told["lstm"][name]
    options.write_text(json.dumps(told))
    config = load_model(convert_elmo(options, weights, tmp_path / "elmo")).config
    assert (config.cell_clip, config.proj_clip, config.use_skip_connections) == (None, None, False)


def test_published_files_are_converted_once(tmp_path, monkeypatch):
    monkeypatch.setattr("probekit.files.DATA_CACHE", tmp_path / "cache")
    options, weights = tiny_elmo(tmp_path)
    weights = weights.rename(tmp_path / "elmo_tiny_weights.hdf5")
    word = f"elmo:{options},{weights}"
    folder = converted_folder(word)
    assert folder.parent == tmp_path / "cache/models"
    stamp = (folder / "config.json").stat().st_mtime_ns
    assert resolve_model(word) == folder
    assert (folder / "config.json").stat().st_mtime_ns == stamp
    assert published_name(word) == identify(word)["model"] == load_encoder(word).name == "elmo_tiny"
    assert converted_folder("bert-base-uncased") is None
    tiny_elmo(tmp_path, seed=1)[1].rename(weights)
    other = converted_folder(word)
    assert other != folder
    assert identify(word)["weights_digest"] != identify(folder)["weights_digest"]
    assert len(os.listdir(tmp_path / "cache/models")) == 2


def test_save_and_load_again(files, tmp_path):
    model = load_model(convert_elmo(*files, tmp_path / "elmo"))
    disable_progress_bar()
    model.save_pretrained(tmp_path / "again")
    again = AutoModel.from_pretrained(tmp_path / "again")
    assert type(again) is type(model)
    later = {"_name_or_path": str(tmp_path / "again"), "transformers_version": again.config.transformers_version}
    assert again.config.to_dict() | {"use_cache": False} == model.config.to_dict() | later
    for (name, x), (same, y) in zip(model.state_dict().items(), again.state_dict().items(), strict=True):
        assert name == same
        torch.testing.assert_close(x, y, atol=0, rtol=0)


def options(change):
    """A damage to options.json: ``change`` of what it holds, or what is written instead."""

    def damage(options, weights):
        if isinstance(change, (str, bytes)):
            options.write_bytes(change if isinstance(change, bytes) else change.encode())
        else:
            told = json.loads(options.read_text())
            change(told["lstm"], told["char_cnn"])
            options.write_text(json.dumps(told))
        return options, weights

    return damage


def weights(name, change):
    """A damage to weights.hdf5: a tensor taken away (None), or another in its place."""

    def damage(options, weights):
        with h5py.File(weights, "a") as file:
            tensor = file[name][...]
            del file[name]
            if change is not None:
                file[name] = change(tensor)
        return options, weights

    return damage


def with_nan(x):
    x.flat[1] = np.nan
    return x


def cut(keep):
    def damage(options, weights):
        weights.write_bytes(weights.read_bytes()[: int(keep * weights.stat().st_size)])
        return options, weights

    return damage


CELL = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell"
BAD = {
    "swapped": (lambda o, w: (w, o), "weights.hdf5 cannot be read .*expected ELMo's options.json.* in this order"),
    "options twice": (lambda o, w: (o, o), "options.json cannot be read as HDF5 .*expected ELMo's complete weights"),
    "no options": (lambda o, w: (o.with_name("none.json"), w), "none.json does not exist; expected ELMo's options"),
    "no weights": (lambda o, w: (o, w.with_name("none.hdf5")), "none.hdf5 does not exist; expected ELMo's weights"),
    "folder for options": (lambda o, w: (o.parent, w), "cannot be read .*expected ELMo's options.json"),
    "folder for weights": (lambda o, w: (o, w.parent), "cannot be read as HDF5 .*expected ELMo's complete weights"),
    "no JSON": (options("{"), "options.json cannot be read .*expected ELMo's options.json, with the parts 'lstm'"),
    "no UTF-8": (options(b'{"lstm": "\xff"}'), "options.json cannot be read"),
    "no object": (options("[1, 2]"), "options.json cannot be read .*with the parts 'lstm' and 'char_cnn'"),
    "nothing": (options("{}"), "options.json lacks 'lstm'; expected"),
    "no char_cnn": (options('{"lstm": {}}'), "options.json lacks 'char_cnn'; expected"),
    "no dim": (options(lambda lstm, cnn: lstm.pop("dim")), "options.json lacks 'dim'"),
    "no filters": (options(lambda lstm, cnn: cnn.pop("filters")), "options.json lacks 'filters'"),
    "other filters": (options(lambda lstm, cnn: cnn.update(filters=[[1], [2]])), "options.json cannot be read"),
    "empty filters": (options(lambda lstm, cnn: cnn.update(filters=[])), "options.json.* filters"),
    "too wide a filter": (options(lambda lstm, cnn: cnn.update(filters=[[60, 4]])), "options.json.* filters"),
    "size in words": (options(lambda lstm, cnn: lstm.update(dim="9")), "options.json.*dim.*'9'"),
    "no layers": (options(lambda lstm, cnn: lstm.update(n_layers=0)), "options.json.*n_layers.* 0"),
    "a half": (options(lambda lstm, cnn: lstm.update(projection_dim=6.5)), "options.json.*projection_dim.* 6.5"),
    "clip in words": (options(lambda lstm, cnn: lstm.update(cell_clip="3")), "options.json.*cell_clip.*'3'"),
    "activation": (options(lambda lstm, cnn: cnn.update(activation="gelu")), "'gelu'; expected relu or tanh"),
    "training's": (options(lambda lstm, cnn: cnn.update(n_characters=261)), "261 characters and 50 .*; expected 262"),
    "short words": (
        options(lambda lstm, cnn: cnn.update(max_characters_per_token=30)), "262 characters and 30 .*expected .* 50"
    ),
    "cut in half": (cut(0.5), "weights.hdf5 cannot be read as HDF5 .*complete"),
    "empty": (cut(0), "weights.hdf5 cannot be read as HDF5"),
    "missing": (weights(f"{CELL}/W_P_0", None), f"lacks the tensor {CELL}/W_P_0 with shape .9, 6."),
    "missing filter": (weights("CNN/W_cnn_2", None), "lacks the tensor CNN/W_cnn_2 with shape"),
    "misshapen": (weights("char_embed", lambda x: x[1:]), "char_embed is float32 .260, 3.; expected .261, 3."),
    "turned": (weights("CNN_proj/W_proj", lambda x: x.T), "CNN_proj/W_proj is float32 .6, 12.; expected .12, 6."),
    "integers": (weights("CNN/b_cnn_0", lambda x: x.astype(int)), "CNN/b_cnn_0 is int64 .4,.; expected .4,."),
    "NaN": (weights(f"{CELL}/B", with_nan), f"the tensor {CELL}/B contains NaN or infinity; download the file again"),
    "others": (
        options(lambda lstm, cnn: lstm.update(dim=8)), "W_0 is float32 .12, 36.; expected .12, 32..* belong together"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "says"), BAD.values(), ids=BAD)
def test_files_that_are_not_what_they_should_be(tmp_path, files, damage, says):
    files = damage(*files)
    with pytest.raises(ModelError, match=says):
        convert_elmo(*files, tmp_path / "out/elmo")
    assert not (tmp_path / "out").exists()


def test_float64_is_read_as_float32(tmp_path, files):
    first = convert_elmo(*files, tmp_path / "first")
    weights("char_embed", lambda x: x.astype(np.float64))(*files)
    second = convert_elmo(*files, tmp_path / "second")
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


@pytest.mark.parametrize("word", ["elmo:one", "elmo:a,b,c", "elmo:", "elmo:,b", "elmo:a,"])
def test_words_that_name_no_two_files(word):
    with pytest.raises(
        ModelError, match=f"'{word}' is not a valid name; expected elmo:OPTIONS,WEIGHTS, the two published"
    ):
        load_encoder(word)


def test_a_word_that_names_no_files(tmp_path, files):
    with pytest.raises(ModelError, match="none.json does not exist; expected elmo:OPTIONS,WEIGHTS"):
        load_encoder(f"elmo:{tmp_path}/none.json,{files[1]}")
    with pytest.raises(ModelError, match="none.hdf5 does not exist; expected elmo:OPTIONS,WEIGHTS"):
        load_encoder(f"elmo:{files[0]},{tmp_path}/none.hdf5")


def test_a_full_disk_and_what_is_left_of_a_kill(tmp_path, files, monkeypatch):
    monkeypatch.setattr("probekit.files.DATA_CACHE", tmp_path / "cache")

    def full(*args, **kwargs):
        raise SafetensorError("No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(ModelError, match=r"cannot be converted into .*No space left.*probekit convert elmo"):
        converted_folder(f"elmo:{files[0]},{files[1]}")
    with pytest.raises(OSError, match=r"No space left on device: .*model\.safetensors"):
        convert_elmo(*files, tmp_path / "out")
    monkeypatch.undo()
    done = subprocess.Popen(["true"])
    done.wait()
    for pid in (done.pid, os.getppid()):
        (tmp_path / (draft := f".out.{pid}-140012345678912")).mkdir()
        (tmp_path / f".out.draft.{pid}-140012345678912").write_bytes(_note(draft))
    (tmp_path / (theirs := f".out.{done.pid}-140012345678913")).mkdir()  # a name like ours, and no note
    assert convert_elmo(*files, tmp_path / "out").is_dir()
    at_work = [f".out.{draft}{os.getppid()}-140012345678912" for draft in ("", "draft.")]
    assert sorted(f.name for f in tmp_path.glob(".out.*")) == sorted([*at_work, theirs])


def test_names(tmp_path):
    assert published_name(f"elmo:{tmp_path}/small/options.json,{tmp_path}/small/weights.hdf5") == "small"
    assert published_name("elmo:o.json,x/elmo_2x4096_512_weights.hdf5") == "elmo_2x4096_512"
    assert published_name(f"skip-thoughts:{tmp_path}/st") == "st"


def test_how_words_are_cut_must_be_known(tmp_path, files):
    with pytest.raises(UsageError, match="'spaces'.*treebank, blanks"):
        convert_elmo(*files, tmp_path / "elmo", splitting="spaces")


def test_a_damaged_folder(tmp_path, files):
    folder = convert_elmo(*files, tmp_path / "elmo")
    told = (folder / "tokenizer_config.json").read_text()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ModelError, match="tokenizer"):
        load_encoder(folder)
    (folder / "tokenizer_config.json").write_text(told)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"n_highway": 3}))
    with pytest.raises(ModelError, match=r"lacks 2 of the weights .*embeddings.highways.2"):
        load_encoder(folder)
    (folder / "config.json").write_text(json.dumps(config | {"cells": 8}))
    with pytest.raises(ModelError, match="cannot be loaded as a model"):
        load_encoder(folder)
    (folder / "config.json").write_text(json.dumps(config | {"activation": "gelu"}))
    with pytest.raises(ModelError, match="gelu"):
        load_encoder(folder)


def elsewhere(kind):
    """A tensor that is kept elsewhere: in another file by HDF5's three ways, or nowhere."""

    def damage(options, weights):
        secret = weights.with_name("secret.h5")
        secret.write_bytes(b"\x00\x00\x80?" * 4096)
        name, shape = "CNN/b_cnn_0", (4,)
        with h5py.File(weights, "a") as file:
            tensor = file[name][...]
            del file[name]
            if kind == "external":
                file.create_dataset(name, shape, "f4", external=[(str(secret), 0, 16)])
            elif kind == "link":
                with h5py.File(secret, "w") as other:
                    other["x"] = tensor
                file[name] = h5py.ExternalLink(str(secret), "/x")
            elif kind == "link above":
                with h5py.File(secret, "w") as other:
                    file.copy("CNN", other)
                    other["CNN/b_cnn_0"] = tensor
                del file["CNN"]
                file["CNN"] = h5py.ExternalLink(str(secret), "/CNN")
            elif kind == "soft":
                file[name] = h5py.SoftLink("/CNN/b_cnn_1")
            elif kind == "virtual":
                with h5py.File(secret, "w") as other:
                    other["x"] = tensor
                layout = h5py.VirtualLayout(shape, "f4")
                layout[:] = h5py.VirtualSource(str(secret), "x", shape)
                file.create_virtual_dataset(name, layout)
        return options, weights

    return damage


@pytest.mark.parametrize("kind", ["external", "link", "link above", "soft", "virtual"])
def test_no_other_file_is_read(tmp_path, files, kind):
    files = elsewhere(kind)(*files)
    with pytest.raises(ModelError, match=r"the tensor CNN/\S+ (is a link|stores its data in another file)"):
        convert_elmo(*files, tmp_path / "out/elmo")
    assert not (tmp_path / "out").exists()


def test_sizes_that_no_file_holds_are_not_allocated(tmp_path):
    """A file of some kilobytes that declares 149 GiB, as its options do."""
    dim = 40_000_000_000 // 261
    options, weights = tiny_elmo(tmp_path)
    told = json.loads(options.read_text())
    told["char_cnn"]["embedding"]["dim"] = dim
    options.write_text(json.dumps(told))
    with h5py.File(weights, "a") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (261, dim), "f4", chunks=(1, 1 << 20), compression="gzip")
    with pytest.raises(ModelError, match=r"the tensor char_embed declares 15\d{10} bytes, but only 0 are stored"):
        convert_elmo(options, weights, tmp_path / "elmo")
