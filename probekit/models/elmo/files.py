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

N_CHARACTERS, MAX_CHARACTERS = 262, 50
_THEIRS = {"char_dim": "the embedding's dim", "cells": "dim", "num_hidden_layers": "n_layers"}


def convert_elmo(
    options: str | Path, weights: str | Path, out: str | Path, *, splitting: Splitting | str = Splitting.TREEBANK
) -> Path:
    """Write the model folder ``out`` (config.json, model.safetensors, tokenizer_config.json); it appears when complete.

    Parameters
    ----------
    options, weights : str | Path
        The two published files.
    splitting : Splitting | str, default Splitting.TREEBANK
        How to split plain text into words.

    Raises
    ------
    ModelError
        If a file differs from the published format or lacks a tensor, or the two do not belong together.
    UsageError
        If ``out`` exists, or the splitting is unknown.
    """
    splitting, config = Splitting(splitting), read_options(options)
    tensors = read_weights(weights, config)
    with new_folder(Path(out)) as folder:
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        tokenizer_config = {"words": splitting, "max_characters": MAX_CHARACTERS}
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=2) + "\n", encoding="utf-8")
        save_tensors(tensors, folder / "model.safetensors", format="pt")
    return Path(out)


def read_options(path: str | Path) -> dict[str, Any]:
    """The configuration for config.json from an ``options.json``; raises ModelError if it is not valid."""
    try:
        published = read_json(Path(path))
        lstm, cnn = published["lstm"], published["char_cnn"]
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
        raise ModelError(f"{path} does not exist; expected ELMo's options.json.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"lacks {error}" if isinstance(error, KeyError) else f"cannot be read ({error})"
        raise ModelError(
            f"{path} {problem}; expected ELMo's options.json, with the parts 'lstm' and 'char_cnn'. Are options and "
            "weights in this order?"
        ) from error
    for name in ("char_dim", "n_highway", "projection_dim", "cells", "num_hidden_layers"):
        if type(config[name]) is not int or config[name] < (name != "n_highway"):
            raise ModelError(f"{path}: {_THEIRS.get(name, name)} is {config[name]!r}; expected a whole number.")
    for name in ("cell_clip", "proj_clip"):
        if config[name] is not None and not (type(config[name]) in (int, float) and config[name] > 0):
            raise ModelError(f"{path}: {name} is {config[name]!r}; expected a number above 0, or null for no limit.")
    if type(config["use_skip_connections"]) is not bool:
        raise ModelError(f"{path}: use_skip_connections is {config['use_skip_connections']!r}; expected true or false.")
    if not config["filters"] or not all(1 <= width <= MAX_CHARACTERS and n > 0 for width, n in config["filters"]):
        raise ModelError(
            f"{path}: filters are {config['filters']}; expected pairs of a width (1 to {MAX_CHARACTERS}) and a "
            "number of filters."
        )
    if config["activation"] not in ("relu", "tanh"):
        raise ModelError(f"{path}: the activation is {config['activation']!r}; expected relu or tanh.")
    if (config["n_characters"], longest) != (N_CHARACTERS, MAX_CHARACTERS):
        raise ModelError(
            f"{path}: found {config['n_characters']} characters and {longest} per word; expected {N_CHARACTERS} (which "
            f"bilm-tf uses with trained weights; it trains with 261) and {MAX_CHARACTERS}."
        )
    return config


def read_weights(path: str | Path, config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors of a ``weights.hdf5`` under probekit's names, float32; raises ModelError if one does not fit.

    TensorFlow multiplies from the left, so matrices are transposed; its gates i, g, f, o become i, f, g, o; the 1 that
    its cells add to the forget gate's bias is added to the stored bias; the characters get a row of zeros for positions
    without a word.
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
                published, name_here = f"RNN_{way}/RNN/MultiRNNCell/Cell{i}/LSTMCell", f"layers.{i}.{direction}_lstm"
                weight, bias = (
                    _gates(read(f"{published}/W_0", (2 * p, 4 * n)).T),
                    _gates(read(f"{published}/B", (4 * n,))),
                )
                bias[n : 2 * n] += 1
                out[f"{name_here}.input.weight"], out[f"{name_here}.recurrent.weight"] = weight[:, :p], weight[:, p:]
                out[f"{name_here}.input.bias"] = bias
                out[f"{name_here}.projection.weight"] = read(f"{published}/W_P_0", (n, p)).T
    return {name: np.ascontiguousarray(tensor) for name, tensor in out.items()}


def _gates(rows: np.ndarray) -> np.ndarray:
    """Rows of TensorFlow's gates i, g, f, o in the order i, f, g, o; a copy."""
    i, g, f, o = np.split(rows, 4)
    return np.concatenate([i, f, g, o])


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """A function that reads a tensor by name and checks its shape."""
    import h5py

    from probekit.hdf5 import DAMAGE, own_dataset

    try:
        file = h5py.File(path, "r")
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist; expected ELMo's weights.hdf5.") from None
    except DAMAGE as error:
        raise ModelError(
            f"{path} cannot be read as HDF5 ({first_line(error)}); expected ELMo's complete weights.hdf5."
        ) from error

    def read(name: str, shape: tuple[int, ...]) -> np.ndarray:
        try:
            found = own_dataset(file, name)
        except DataError as error:
            raise ModelError(f"{path}: the tensor {error}") from error
        if found is None:
            raise ModelError(f"{path} lacks the tensor {name} with shape {shape}. {_TOGETHER}")
        if found.shape != shape or found.dtype.kind != "f":
            raise ModelError(f"{path}: the tensor {name} is {found.dtype} {found.shape}; expected {shape}. {_TOGETHER}")
        try:
            with np.errstate(over="ignore"):  # reported below
                tensor = found[...].astype(np.float32)
        except DAMAGE as error:
            raise ModelError(f"{path}: the tensor {name} cannot be read ({error}); download the file again.") from error
        if not np.isfinite(tensor).all():
            raise ModelError(f"{path}: the tensor {name} contains NaN or infinity; download the file again.")
        return tensor

    with file:
        yield read


_TOGETHER = "Do options and weights belong together?"
