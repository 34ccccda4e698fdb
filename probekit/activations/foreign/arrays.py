"""Arrays of TransformerLens, nnsight or hooks, one for each site, with the pieces or texts beside them.

The pieces are ``token_ids``, ``input_ids`` or ``tokens``, (texts, positions) or (positions,); where a text has fewer
pieces, ``attention_mask`` says which are read. Without pieces, ``texts`` are tokenised as the model does, and rows
after the last piece are padding. Arrays are (texts, positions, width) or (positions, width); heads may have an axis of
their own before the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from probekit.activations.foreign.files import Named, npz, safetensors
from probekit.activations.foreign.names import UNDERSTOOD, site_of
from probekit.activations.foreign.source import Array, Source, View
from probekit.errors import DataError

if TYPE_CHECKING:
    import torch

__all__ = ["open_arrays"]

IDS = ("token_ids", "input_ids", "tokens")
BESIDE = (*IDS, "attention_mask")


def open_arrays(path: Path, files: Sequence[Path]) -> Source:
    """Files with the same arrays for different texts, in the order of their names."""
    read = safetensors if files[0].suffix == ".safetensors" else npz
    parts = [_Part(read(file)) for file in files]
    names = [name for name in parts[0].file.shapes if name not in BESIDE]
    sites = {name: site for name in names if (site := site_of(name)) is not None and parts[0].file.dtypes[name]}
    if not sites:
        raise DataError(
            f"none of its arrays ({', '.join(names) or 'none'}) is understood, such as {UNDERSTOOD}.", file=path
        )
    for part in parts[1:]:
        if lacking := sorted(sites.keys() ^ {n for n in part.file.shapes if site_of(n)}):
            raise DataError(f"{lacking[0]} is in some of the files only; give those of one run.", file=part.file.path)
        if bool(part.file.texts) != bool(parts[0].file.texts):
            raise DataError(
                f"has {'texts' if part.file.texts else 'pieces'}, other than the files before it.", file=part.file.path
            )
    count = np.cumsum([0, *(len(part) for part in parts)])

    def reader(name: str, axes: str) -> Callable[[int], torch.Tensor]:
        def rows(i: int) -> torch.Tensor:
            k = int(np.searchsorted(count, i, side="right")) - 1
            return parts[k].rows(name, axes, i - int(count[k]))

        return rows

    arrays = []
    for name, site in sites.items():
        fitting = [axes for axes in AXES if all(part.fits(name, axes) for part in parts)]
        views = tuple(View(axes, reader(name, axes)) for axes in fitting or [""])
        arrays.append(Array(name, site, parts[0].file.dtypes[name], views))
    texts = tuple(text for part in parts for text in part.file.texts)
    skipped = tuple(name for name in names if name not in sites)
    return Source("arrays", path, tuple(files), tuple(arrays), _Ids(parts, count), texts, skipped=skipped)


AXES = ("", "positions, texts, width", "texts, width, positions", "width, positions", "texts, heads, positions, width")
"""Orders of axes: that of the format, and those into which they are swapped."""


class _Part:
    """One file: its texts, and the vectors of each."""

    def __init__(self, file: Named) -> None:
        self.file = file
        found = [name for name in IDS if name in file.shapes]
        if not found and not file.texts:
            raise DataError(f"has neither pieces ({', '.join(IDS)}) nor texts beside its arrays.", file=file.path)
        self.ids = np.asarray(file.read(found[0]).numpy()) if found else None
        self.single = self.ids is not None and self.ids.ndim == 1
        if self.ids is not None and (self.ids.ndim > 2 or self.ids.dtype.kind not in "iu"):
            raise DataError(
                f"{found[0]} is {self.ids.dtype} {self.ids.shape}; wanted (texts, positions).", file=file.path
            )
        mask = np.asarray(file.read("attention_mask").numpy()) > 0 if "attention_mask" in file.shapes else None
        if mask is not None and (self.ids is None or mask.shape != self.ids.shape):
            raise DataError(f"attention_mask is {mask.shape}, other than the pieces.", file=file.path)
        if self.ids is not None:
            self.ids = np.atleast_2d(self.ids).astype(np.int64)
            mask = np.ones_like(self.ids, dtype=bool) if mask is None else np.atleast_2d(mask)
        self.mask = mask

    def __len__(self) -> int:
        return len(self.file.texts) if self.ids is None else len(self.ids)

    def pieces(self, i: int) -> np.ndarray:
        """int64 (t,), the pieces of text i that are read."""
        assert self.ids is not None
        assert self.mask is not None
        read: np.ndarray = self.ids[i][self.mask[i]]
        return read

    def fits(self, name: str, axes: str) -> bool:
        """Whether the axes fit the numbers of texts and positions."""
        shape, n = self.file.shapes[name], len(self)
        t = None if self.ids is None else self.ids.shape[1]
        if self.single and len(shape) in (2, 3) and shape[0] != 1:
            return {"": shape[0] == t, "width, positions": len(shape) == 2 and shape[1] == t}.get(axes, False)
        if len(shape) == 4:
            return {"": shape[:2] == (n, t), AXES[-1]: shape[0] == n and shape[2] == t}.get(axes, False)
        if len(shape) != 3:
            return False
        if t is None:
            return {"": shape[0] == n, "positions, texts, width": shape[1] == n}.get(axes, False)
        fitting = {"": shape[:2] == (n, t), "positions, texts, width": shape[:2] == (t, n)}
        return (fitting | {"texts, width, positions": (shape[0], shape[2]) == (n, t)}).get(axes, False)

    def rows(self, name: str, axes: str, i: int) -> torch.Tensor:
        """The vectors of text i, without those of padding."""
        shape = self.file.shapes[name]
        if (self.single and len(shape) == 2) or (self.single and len(shape) == 3 and shape[0] != 1):
            found = self.file.read(name)
        elif len(shape) < 3 or (axes != "positions, texts, width" and i >= shape[0]):
            raise DataError(
                f"{name} has the shape {shape}; wanted (texts, positions, width) for {len(self)} texts. A vector for "
                "each text, and none for its positions, cannot be compared or imported.",
                file=self.file.path,
            )
        else:
            found = (
                self.file.read(name, slice(None), i) if axes == "positions, texts, width" else self.file.read(name, i)
            )
        if axes.startswith(("texts, width", "width")):
            found = found.T
        if axes == AXES[-1]:
            found = found.transpose(0, 1)
        found = found.reshape(len(found), -1)
        if self.mask is None:
            return found
        mask = self.mask[i]
        return found[mask[len(mask) - len(found) :]] if len(found) <= len(mask) and not mask.all() else found


class _Ids:
    def __init__(self, parts: Sequence[_Part], count: np.ndarray) -> None:
        self.parts, self.count = parts, count

    def __len__(self) -> int:
        return int(self.count[-1])

    def __getitem__(self, i: int) -> np.ndarray:
        k = int(np.searchsorted(self.count, i, side="right")) - 1
        return self.parts[k].pieces(i - int(self.count[k]))
