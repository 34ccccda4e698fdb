"""Dictionaries in folders of SAELens and sparsify: a card in JSON, ``cfg.json``, and arrays in safetensors.

Sizes follow from the arrays; what the card says of them must agree. What is not known here is refused. Nothing is
unpickled, and no link is followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from probekit.dictionaries.dictionary import Architecture, Dictionary, Normalisation
from probekit.errors import DataError, UsageError, did_you_mean, reading
from probekit.files import digest, read_json

CARD = "cfg.json"
SAELENS, SPARSIFY = "sae_weights.safetensors", "sae.safetensors"
MOST = 1 << 22
"""The most bytes of a card."""
ARCHITECTURES = ("standard", "gated", "jumprelu", "topk", "batchtopk")
"""Those of SAELens that are read; batchtopk is jumprelu with one threshold."""
ACTIVATIONS = ("relu", "tanh-relu", "topk")
NORMALISATIONS = ("none", "expected_average_only_in", "constant_norm_rescale", "layer_norm")
WRITING = "center_writing_weights"
UNSCALED = (
    "was trained on vectors scaled to an average length (expected_average_only_in), and its folder does not say by "
    "which factor. The vectors are read as they are, as SAELens reads them from a folder"
)


def read_dictionary(folder: str | Path) -> Dictionary:
    """The dictionary of a folder.

    Parameters
    ----------
    folder : path
        Of SAELens (``cfg.json`` and ``sae_weights.safetensors``) or sparsify (``cfg.json`` and ``sae.safetensors``).

    Raises
    ------
    UsageError
        If it holds no dictionary, or one of a kind that is not known here.
    DataError
        If a file is damaged, is a link, or does not fit the others.

    Examples
    --------
    >>> dictionary = read_dictionary("gpt2-small-res-jb/blocks.8.hook_resid_pre")  # doctest: +SKIP
    >>> dictionary.width, dictionary.latents  # doctest: +SKIP
    (768, 24576)
    """
    folder = Path(folder).expanduser()
    weights = _weights_file(folder)
    for path in (folder / CARD, weights):
        if path.is_symlink():
            raise DataError(
                "it is a link, which probekit does not follow. Copy the files themselves (cp -rL FOLDER COPY).",
                file=path,
            )
    return _read(folder, weights, digest([folder / CARD, weights], folder))


def _weights_file(folder: Path) -> Path:
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; give that of a dictionary: {CARD} and {SAELENS}.")
    found = [folder / name for name in (SAELENS, SPARSIFY) if (folder / name).exists()]
    if (folder / CARD).exists() and found:
        return found[0]
    pickled = sorted(p.name for p in folder.iterdir() if p.suffix in (".pt", ".pth", ".pkl", ".bin", ".npz"))
    why = f" {pickled[0]} is not read: such files can contain programs." if pickled and not found else ""
    inside = sorted(p.parent.name for p in folder.glob(f"*/{CARD}"))
    why += f" Name one of the folders in it: {', '.join(inside[:3])} …" if inside else ""
    raise UsageError(
        f"{folder} holds no dictionary; it needs {CARD} with {SAELENS} (SAELens) or {SPARSIFY} (sparsify).{why}"
    )


@lru_cache(maxsize=2)
def _read(folder: Path, weights: Path, of_files: str) -> Dictionary:
    """The dictionary of files with this digest."""
    path = folder / CARD
    if path.stat().st_size > MOST:
        raise DataError(f"it has {path.stat().st_size:,} bytes; a card has at most {MOST:,}.", file=path)
    with reading(path, "JSON"):
        card = read_json(path)
    if not isinstance(card, dict):
        raise DataError(f"wanted an object, found {type(card).__name__}.", file=path)
    metadata = card.get("metadata", {})
    if not isinstance(metadata, dict):
        raise DataError(f"wanted 'metadata' to be an object, found {metadata!r:.60}.", file=path)
    values = _Card(path, {**metadata, **card})
    made = _of_saelens if weights.name == SAELENS else _of_sparsify
    return made(values, _Arrays(weights, values), {"name": folder.resolve().name, "digest": of_files})


@dataclass(frozen=True, slots=True)
class _Card:
    """What a card says; each value is checked when it is asked for."""

    path: Path
    values: Mapping[str, Any]

    def get(self, *names: str, kind: type = str, default: Any = None) -> Any:
        """The value of the first of some keys that is there and not null."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise DataError(f"wanted {name!r} of the type {kind.__name__}, found {value!r:.60}.", file=self.path)
            return value
        return default

    def known(self, what: str, value: str, known: tuple[str, ...]) -> str:
        """The value, if it is one of those known."""
        if value not in known:
            said = did_you_mean(value, known)
            raise UsageError(f"{self.path}: the {what} {value!r:.60} is not known here; {said}")
        return value

    def refuse(self, **why: str) -> None:
        """Raise UsageError if one of these keys is there, and true."""
        for name, text in why.items():
            if (value := self.values.get(name)) is not None and value is not False:
                raise UsageError(f"{self.path}: {name} is {value!r:.60}; {text}.")

    def k(self, latents: int, *more: Any) -> int:
        """The number of active features of topk."""
        k = next((value for value in (*more, self.values.get("k")) if value is not None), None)
        if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= latents:
            raise DataError(f"wanted k of topk between 1 and {latents:,}, the number of features, found {k!r:.60}.",
                            file=self.path)  # fmt: skip
        return k


class _Arrays:
    """The arrays of a file, as float32; sizes follow from the first."""

    def __init__(self, path: Path, card: _Card) -> None:
        from safetensors import safe_open

        self.path, self.card = path, card
        self.sizes: dict[str, int] = {}
        with reading(path, "safetensors"), safe_open(path, "pt") as file:
            self.names = set(file.keys())

    def read(self, name: str, *axes: str) -> np.ndarray:
        """An array with these axes: "d_in" or "d_sae", which must be the same everywhere."""
        from safetensors import safe_open

        if name not in self.names:
            raise DataError(f"the array {name} is missing; it has {', '.join(sorted(self.names))[:200]}.",
                            file=self.path)  # fmt: skip
        with reading(self.path, "safetensors"), safe_open(self.path, "pt") as file:
            tensor = file.get_tensor(name)
        shape = tuple(tensor.shape)
        for axis, size in zip(axes, shape, strict=False):
            said = self.card.get(axis, kind=int, default=size) if axis not in self.sizes else self.sizes[axis]
            if size != said:
                who = f"other arrays have {axis}" if axis in self.sizes else f"{CARD} says {axis}"
                raise DataError(f"{name} has the shape {shape}, and {who} = {said:,}.", file=self.path)
            self.sizes[axis] = size
        if len(shape) != len(axes) or 0 in shape or not tensor.is_floating_point():
            wanted = f"wanted numbers with the axes ({', '.join(axes)})"
            raise DataError(f"{name} is {tensor.dtype} {shape}; {wanted}.", file=self.path)
        found: np.ndarray = tensor.float().numpy()
        if not np.isfinite(found).all():
            raise DataError(f"{name} contains NaN or infinity.", file=self.path)
        return found


def _of_saelens(card: _Card, arrays: _Arrays, about: Mapping[str, Any]) -> Dictionary:
    """A folder of SAELens, before version 6 or after."""
    architecture = card.known("architecture", card.get("architecture", default="standard"), ARCHITECTURES)
    activation = card.known(
        "activation function", card.get("activation_fn_str", "activation_fn", default="relu"), ACTIVATIONS
    )
    given = card.get("activation_fn_kwargs", kind=dict, default={})
    if more := set(given) - {"k", "use_sparse_activations"}:
        raise UsageError(f"{card.path}: activation_fn_kwargs has {min(more)!r:.60}; only k is known here.")
    if activation == "topk" and architecture not in ("standard", "topk"):
        raise UsageError(f"{card.path}: {architecture} with the activation function topk is not known here.")
    card.refuse(
        hook_head_index="a dictionary of a single head is not read",
        hook_name_out="a transcoder, which predicts another site, is not read",
        normalize_decoder="a decoder that is normalised when it is used is not read",
    )
    arrays_of = {
        name: arrays.read(name, *axes)
        for name, axes in (("W_enc", ("d_in", "d_sae")), ("W_dec", ("d_sae", "d_in")), ("b_dec", ("d_in",)))
    }
    biases = ("b_gate", "b_mag", "r_mag") if architecture == "gated" else ("b_enc",)
    arrays_of |= {name: arrays.read(name, "d_sae") for name in biases}
    kind, k = Architecture.JUMPRELU if architecture == "batchtopk" else Architecture(architecture), 0
    if Architecture.TOPK in (architecture, activation):
        kind, k = Architecture.TOPK, card.k(arrays.sizes["d_sae"], given.get("k"))
    if kind is Architecture.JUMPRELU:
        arrays_of["threshold"] = _threshold(arrays)
    normalisation, notes = _normalisation(card), tuple[str, ...]()
    if normalisation == "expected_average_only_in":
        normalisation, notes = "none", (UNSCALED,)
    model = card.get("model_from_pretrained_kwargs", kind=dict, default={})
    return Dictionary(
        architecture=kind, arrays=arrays_of, k=k, tanh=activation == "tanh-relu",
        normalisation=Normalisation(normalisation), centred=bool(model.get(WRITING)) and _is_written(card),
        subtracts_bias=card.get("apply_b_dec_to_input", kind=bool, default=True),
        sized=card.get("rescale_acts_by_decoder_norm", kind=bool, default=False), scale=_scale(card, arrays),
        model=card.get("model_name", default=""), hook=card.get("hook_name", "hook_point", default=""), notes=notes,
        **about,
    )  # fmt: skip


def _is_written(card: _Card) -> bool:
    """Whether its site is written by weights that TransformerLens centres."""
    return not str(card.get("hook_name", "hook_point", default="")).endswith(("hook_z", "hook_v", "mlp.hook_post"))


def _normalisation(card: _Card) -> str:
    value = card.values.get("normalize_activations")
    if value is None or isinstance(value, bool):  # before it had a name
        return NORMALISATIONS[bool(value)]
    return card.known("normalisation", str(value), NORMALISATIONS)


def _threshold(arrays: _Arrays) -> np.ndarray:
    """One of each feature; of a batchtopk in training one for all, of a jumprelu perhaps its logarithm."""
    if "threshold" not in arrays.names and "topk_threshold" in arrays.names:
        return np.full(arrays.sizes["d_sae"], arrays.read("topk_threshold"), dtype=np.float32)
    if "threshold" not in arrays.names and "log_threshold" in arrays.names:
        return np.exp(arrays.read("log_threshold", "d_sae"))
    return arrays.read("threshold", "d_sae")


def _scale(card: _Card, arrays: _Arrays) -> np.ndarray | None:
    """The factors of a fine-tuned decoder, if they are not all 1."""
    for name in ("scaling_factor", "finetuning_scaling_factor"):
        if name in arrays.names and (found := arrays.read(name, "d_sae") != 1).any():
            if not card.get("finetuning_scaling_factor", kind=bool, default=False):
                raise DataError(f"it has {name}, and {CARD} says that there is none.", file=arrays.path)
            return arrays.read(name, "d_sae") if found.any() else None
    return None


def _of_sparsify(card: _Card, arrays: _Arrays, about: Mapping[str, Any]) -> Dictionary:
    """A folder of EleutherAI's sparsify, which does not say of which model and site it is."""
    card.known("activation function", card.get("activation", default="topk"), ("topk",))
    card.refuse(
        transcode="a transcoder, which predicts another site, is not read",
        skip_connection="a dictionary with a skip connection is not read",
        embed_skip="a dictionary with a skip connection is not read",
        gram_lookup="a dictionary of what is left of n-gram means is not read",
        signed="a dictionary with negative activations is not read",
    )
    encoder = arrays.read("encoder.weight", "d_sae", "d_in")
    arrays_of = {
        "W_enc": np.ascontiguousarray(encoder.T), "b_enc": arrays.read("encoder.bias", "d_sae"),
        "W_dec": arrays.read("W_dec", "d_sae", "d_in"), "b_dec": arrays.read("b_dec", "d_in"),
    }  # fmt: skip
    return Dictionary(architecture=Architecture.TOPK, arrays=arrays_of, k=card.k(len(encoder)), **about)
