"""ELMo's published files, ``options.json`` and ``weights.hdf5`` in TensorFlow's layout, as a model folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from probekit.errors import DataError, ModelError, first_line
from probekit.files import new_folder, read_json
from probekit.models.folder import save_tensors
from probekit.models.words import Splitting

__all__ = ["convert_elmo", "read_options", "read_weights"]

N_CHARACTERS, MAX_CHARACTERS = 262, 50
_THEIRS = {"char_dim": "the embedding's dim", "cells": "dim", "num_hidden_layers": "n_layers"}


def convert_elmo(
    options: str | Path, weights: str | Path, out: str | Path, *, splitting: Splitting | str = Splitting.TREEBANK
) -> Path:
    """Write the model folder ``out`` (config.json, model.safetensors, tokenizer_config.json), which appears whole.

    Parameters
    ----------
    options, weights : str | Path
        The two published files.
    splitting : Splitting | str, default Splitting.TREEBANK
        How plain text will be cut into words.

    Raises
    ------
    ModelError
        Where a file is not what is published, lacks a tensor, or the two do not belong together.
    UsageError
        Where ``out`` is there already, or the splitting is unknown.
    """
    splitting, config = Splitting(splitting), read_options(options)
    tensors = read_weights(weights, config)
    with new_folder(Path(out)) as folder:
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        told = {"words": splitting, "max_characters": MAX_CHARACTERS}
        (folder / "tokenizer_config.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        save_tensors(tensors, folder / "model.safetensors", format="pt")
    return Path(out)


def read_options(path: str | Path) -> dict[str, Any]:
    """The configuration, as config.json holds it, of an ``options.json``; raises ModelError where it is none."""
    try:
        told = read_json(Path(path))
        lstm, cnn = told["lstm"], told["char_cnn"]
        config = {
            "model_type": "elmo",
            "architectures": ["ElmoModel"],
            "char_dim": cnn["embedding"]["dim"],
            "filters": [[int(width), int(n)] for width, n in cnn["filters"]],
            "n_highway": cnn["n_highway"],
            "n_characters": cnn["n_characters"],
            "activation": cnn["activation"],
            "projection_dim": lstm["projection_dim"],
            "cells": lstm["dim"],
            "num_hidden_layers": lstm["n_layers"],
            "cell_clip": lstm.get("cell_clip"),
            "proj_clip": lstm.get("proj_clip"),
            "use_skip_connections": lstm.get("use_skip_connections", False),
            "dtype": "float32",
        }
        longest = cnn.get("max_characters_per_token", MAX_CHARACTERS)
    except FileNotFoundError:
        raise ModelError(f"{path} is not there; wanted ELMo's options.json.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"cannot be read ({error})"
        raise ModelError(
            f"{path} {what}; wanted ELMo's options.json, with the parts 'lstm' and 'char_cnn'. Are options and weights "
            "given in this order?"
        ) from error
    for name in ("char_dim", "n_highway", "projection_dim", "cells", "num_hidden_layers"):
        if type(config[name]) is not int or config[name] < (name != "n_highway"):
            raise ModelError(f"{path}: {_THEIRS.get(name, name)} is {config[name]!r}; wanted a whole number.")
    for name in ("cell_clip", "proj_clip"):
        if config[name] is not None and not (type(config[name]) in (int, float) and config[name] > 0):
            raise ModelError(f"{path}: {name} is {config[name]!r}; wanted a number above 0, or null for no limit.")
    if type(config["use_skip_connections"]) is not bool:
        raise ModelError(f"{path}: use_skip_connections is {config['use_skip_connections']!r}; wanted true or false.")
    if not config["filters"] or not all(1 <= width <= MAX_CHARACTERS and n > 0 for width, n in config["filters"]):
        raise ModelError(f"{path}: filters are {config['filters']}; wanted widths, 1 to {MAX_CHARACTERS}, and numbers.")
    if config["activation"] not in ("relu", "tanh"):
        raise ModelError(f"{path}: the activation is {config['activation']!r}; relu and tanh are known.")
    if (config["n_characters"], longest) != (N_CHARACTERS, MAX_CHARACTERS):
        raise ModelError(
            f"{path}: {config['n_characters']} characters, {longest} a word; wanted {N_CHARACTERS}, as bilm-tf counts "
            f"them where weights are used (it trains with 261), and {MAX_CHARACTERS}."
        )
    return config


def read_weights(path: str | Path, config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors of a ``weights.hdf5`` by our names, float32; raises ModelError where one is missing or misshapen.

    TensorFlow multiplies from the left, so matrices are turned round; its gates i, g, f, o become i, f, g, o; the 1
    that its cells add to the forget gate's bias goes into it; the characters get a row of zeros for what is no word.
    """
    n, p, dim = config["cells"], config["projection_dim"], config["char_dim"]
    total = sum(count for _, count in config["filters"])
    out: dict[str, np.ndarray] = {}
    with _opened(path) as read:
        embedding = read("char_embed", (N_CHARACTERS - 1, dim))
        out["embeddings.characters.weight"] = np.concatenate([np.zeros((1, dim), np.float32), embedding])
        for i, (width, count) in enumerate(config["filters"]):
            filters = read(f"CNN/W_cnn_{i}", (1, width, dim, count))
            out[f"embeddings.filters.{i}.weight"] = filters.reshape(width * dim, count).T
            out[f"embeddings.filters.{i}.bias"] = read(f"CNN/b_cnn_{i}", (count,))
        for i in range(config["n_highway"]):
            pair = [
                (read(f"CNN_high_{i}/W_{x}", (total, total)).T, read(f"CNN_high_{i}/b_{x}", (total,)))
                for x in ("transform", "carry")
            ]
            for name, parts in zip(("weight", "bias"), zip(*pair, strict=True), strict=True):
                out[f"embeddings.highways.{i}.linear.{name}"] = np.concatenate(parts)
        out["embeddings.projection.weight"] = read("CNN_proj/W_proj", (total, p)).T
        out["embeddings.projection.bias"] = read("CNN_proj/b_proj", (p,))
        for way, direction in enumerate(("forward", "backward")):
            for i in range(config["num_hidden_layers"]):
                theirs, ours = f"RNN_{way}/RNN/MultiRNNCell/Cell{i}/LSTMCell", f"layers.{i}.{direction}_lstm"
                weight, bias = _gates(read(f"{theirs}/W_0", (2 * p, 4 * n)).T), _gates(read(f"{theirs}/B", (4 * n,)))
                bias[n : 2 * n] += 1
                out[f"{ours}.input.weight"], out[f"{ours}.recurrent.weight"] = weight[:, :p], weight[:, p:]
                out[f"{ours}.input.bias"] = bias
                out[f"{ours}.projection.weight"] = read(f"{theirs}/W_P_0", (n, p)).T
    return {name: np.ascontiguousarray(tensor) for name, tensor in out.items()}


def _gates(rows: np.ndarray) -> np.ndarray:
    """Rows of TensorFlow's gates i, g, f, o in the order i, f, g, o; a copy."""
    i, g, f, o = np.split(rows, 4)
    return np.concatenate([i, f, g, o])


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """A function that reads a tensor by its name, of a shape that it must have."""
    import h5py

    from probekit.hdf5 import DAMAGE, own_dataset

    try:
        file = h5py.File(path, "r")
    except FileNotFoundError:
        raise ModelError(f"{path} is not there; wanted ELMo's weights.hdf5.") from None
    except DAMAGE as error:
        raise ModelError(
            f"{path} cannot be read as HDF5 ({first_line(error)}); wanted ELMo's weights.hdf5, whole."
        ) from error

    def read(name: str, shape: tuple[int, ...]) -> np.ndarray:
        try:
            found = own_dataset(file, name)
        except DataError as error:
            raise ModelError(f"{path}: the tensor {error}") from error
        if found is None:
            raise ModelError(f"{path} lacks the tensor {name}, wanted of shape {shape}. {_TOGETHER}")
        if found.shape != shape or found.dtype.kind != "f":
            raise ModelError(f"{path}: the tensor {name} is {found.dtype} {found.shape}, wanted {shape}. {_TOGETHER}")
        try:
            with np.errstate(over="ignore"):  # told below
                tensor = found[...].astype(np.float32)
        except DAMAGE as error:
            raise ModelError(f"{path}: the tensor {name} cannot be read ({error}); fetch the file again.") from error
        if not np.isfinite(tensor).all():
            raise ModelError(f"{path}: the tensor {name} holds NaN or infinity; fetch the file again.")
        return tensor

    with file:
        yield read


_TOGETHER = "Do options and weights belong together?"
