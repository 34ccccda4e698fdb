"""vLLM's ``ExampleHiddenStatesConnector``: a safetensors file for each request.

``token_ids`` (t,) and ``hidden_states`` (t, layers, d) in the model's precision; the id of a layer is the number of
blocks that the stream has passed, before the final norm. The file does not say the ids
(``eagle_aux_hidden_state_layer_ids``); blocks append their states as they run, so they are in ascending order, whatever
order vLLM was given. While a request is written, vLLM keeps ``FILE.safetensors.lock`` beside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.foreign.files import DTYPES, opened
from probekit.activations.foreign.source import Array, Source, View
from probekit.errors import DataError
from probekit.sites import Site, in_order

if TYPE_CHECKING:
    import torch

KEYS = {"token_ids", "hidden_states"}


def is_vllm(path: Path) -> bool:
    """Whether a safetensors file holds ``token_ids`` with one axis and ``hidden_states`` with three, nothing else."""
    with opened(path) as file:
        return set(file.keys()) == KEYS and [len(file.get_slice(key).get_shape()) for key in sorted(KEYS)] == [3, 1]


def open_vllm(path: Path, files: Sequence[Path], layers: Sequence[Site] | None) -> Source:
    """Requests in the order of their names; see :func:`~probekit.activations.foreign.opening.open_source`."""
    _check_whole(path, files)
    shapes, dtypes = [], set()
    for file in files:
        if not is_vllm(file):
            raise DataError("wanted token_ids and hidden_states with three axes, as in the files beside it.", file=file)
        with opened(file) as one:
            states, ids = one.get_slice("hidden_states"), one.get_slice("token_ids")
            if ids.get_dtype() not in INTEGERS:
                raise DataError(f"token_ids is {ids.get_dtype()}; wanted whole numbers (I64, I32).", file=file)
            shapes.append((int(ids.get_shape()[0]), *states.get_shape()))
            dtypes.add(states.get_dtype())
    if len(dtypes) > 1 or not dtypes <= DTYPES.keys():
        raise DataError(f"the precision of hidden_states is {', '.join(sorted(dtypes))}; wanted one float.", file=path)
    if len(widths := {shape[-1] for shape in shapes}) > 1:
        raise DataError(f"the files have {min(widths)} to {max(widths)} columns; give those of one run.", file=path)
    axes = _axes(shapes)
    counts = {shape[1 + (0 if axes[0] else 1)] for shape in shapes}
    if len(counts) > 1:
        raise DataError(f"the files hold {min(counts)} to {max(counts)} layers; give those of one run.", file=path)
    if layers is not None and len(layers) != counts.copy().pop():
        raise DataError(f"hidden_states holds {counts.pop()} layers, and --layers names {len(layers)}.", file=path)
    if layers is not None and layers != (rising := sorted(set(layers), key=in_order)):
        raise DataError(
            "vLLM writes layers in ascending order, whatever order it is given: --layers "
            f"{','.join(map(str, rising))}, not {','.join(map(str, layers))}. If another program wrote the file, write "
            "an array for each layer instead: layer_1, layer_2 …",
            file=path,
        )
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


def _check_whole(path: Path, files: Sequence[Path]) -> None:
    """Raise DataError if a request has a lock and no file yet."""
    written = {file.name for file in files}
    waiting = sorted(p for p in path.glob("*.safetensors.lock") if p.stem not in written) if path.is_dir() else []
    if waiting:
        raise DataError(
            f"{len(waiting)} requests have no file: vLLM still writes them, or they were aborted. Wait until vLLM has "
            "ended, and remove the locks that are left.",
            file=waiting[0],
        )


INTEGERS = ("I64", "I32", "I16", "I8", "U8", "U16", "U32", "U64")
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
