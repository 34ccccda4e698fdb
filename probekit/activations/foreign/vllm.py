"""vLLM's ``ExampleHiddenStatesConnector``: a safetensors file for each request.

``token_ids`` (t,) and ``hidden_states`` (t, layers, d) in the model's precision; the id of a layer is the number of
blocks that the stream has passed, before the final norm. The file does not say the ids
(``eagle_aux_hidden_state_layer_ids``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.foreign.files import DTYPES, opened
from probekit.activations.foreign.source import Array, Source, View
from probekit.errors import DataError
from probekit.sites import Site

if TYPE_CHECKING:
    import torch

__all__ = ["is_vllm", "open_vllm"]

KEYS = {"token_ids", "hidden_states"}


def is_vllm(path: Path) -> bool:
    """Whether a safetensors file holds ``token_ids`` and ``hidden_states`` with three axes, and nothing else."""
    with opened(path) as file:
        return set(file.keys()) == KEYS and len(file.get_slice("hidden_states").get_shape()) == 3


def open_vllm(path: Path, files: Sequence[Path], layers: Sequence[Site] | None) -> Source:
    """Requests in the order of their names; see :func:`~probekit.activations.foreign.source.open_source`."""
    shapes, dtypes = [], set()
    for file in files:
        if not is_vllm(file):
            raise DataError("wanted token_ids and hidden_states with three axes, as in the files beside it.", file=file)
        with opened(file) as one:
            states = one.get_slice("hidden_states")
            shapes.append((int(one.get_slice("token_ids").get_shape()[0]), *states.get_shape()))
            dtypes.add(states.get_dtype())
    if len(dtypes) > 1 or not dtypes <= DTYPES.keys():
        raise DataError(f"the precision of hidden_states is {', '.join(sorted(dtypes))}; wanted one float.", file=path)
    axes = _axes(shapes)
    counts = {shape[1 + (0 if axes[0] else 1)] for shape in shapes}
    if len(counts) > 1:
        raise DataError(f"the files hold {min(counts)} to {max(counts)} layers; give those of one run.", file=path)
    if layers is not None and len(layers) != counts.copy().pop():
        raise DataError(f"hidden_states holds {counts.pop()} layers, and --layers names {len(layers)}.", file=path)
    arrays = [
        Array(
            f"hidden_states[:, {j}]",
            None if layers is None else layers[j],
            DTYPES[dtypes.copy().pop()],
            tuple(View(words, _reader(files, words, j)) for words in axes),
        )
        for j in range(counts.pop())
    ]
    return Source("vllm", path, tuple(files), tuple(arrays), _Ids(files), names=tuple(p.stem for p in files))


SWAPPED = "layers, positions, width"


def _axes(shapes: Sequence[tuple[int, ...]]) -> list[str]:
    """The orders of axes that fit the numbers of pieces, the documented one ("") first; it alone if none fits."""
    documented = all(shape[1] == shape[0] for shape in shapes)
    swapped = all(shape[2] == shape[0] for shape in shapes) and len({shape[1] for shape in shapes}) == 1
    return [*([""] if documented or not swapped else []), *([SWAPPED] if swapped else [])]


def _reader(files: Sequence[Path], axes: str, j: int) -> Callable[[int], torch.Tensor]:
    def rows(i: int) -> torch.Tensor:
        with opened(files[i]) as file:
            states: Any = file.get_slice("hidden_states")
            found: torch.Tensor = states[j] if axes else states[:, j]
            return found

    return rows


class _Ids:
    def __init__(self, files: Sequence[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> np.ndarray:
        with opened(self.files[i]) as file:
            return np.asarray(file.get_tensor("token_ids").numpy(), dtype=np.int64)
