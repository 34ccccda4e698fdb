"""Arrays of TransformerLens, nnsight or hooks, one for each site, with the pieces or texts beside them.

The pieces are ``token_ids``, ``input_ids`` or ``tokens``, (texts, positions) or (positions,); where a text has fewer
pieces, ``attention_mask`` says which are read. Without pieces, ``texts`` are tokenised as the model does, and rows
after the last piece are padding. Arrays are (texts, positions, width) or (positions, width); heads may have an axis of
their own before the last. ``hidden_states`` may hold several layers, which have an axis of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.foreign.files import DTYPES, Named, safetensors
from probekit.activations.foreign.names import UNDERSTOOD, site_of
from probekit.activations.foreign.npz import npz
from probekit.activations.foreign.source import Array, Source, View, check_unnamed
from probekit.errors import DataError
from probekit.sites import Site

if TYPE_CHECKING:
    import torch

IDS = ("token_ids", "input_ids", "tokens")
BESIDE = (*IDS, "attention_mask")


def open_arrays(path: Path, files: Sequence[Path], layers: Sequence[Site] | None = None) -> Source:
    """Files with the same arrays for different texts, in the order of their names; layers: those of a stack."""
    read = safetensors if files[0].suffix == ".safetensors" else npz
    parts = [_Part(read(file)) for file in files]
    first = parts[0].file
    names = [name for name in first.shapes if name not in BESIDE]
    sites = {name: site for name in names if (site := site_of(name)) is not None}
    if not sites and STACK not in names:
        raise DataError(
            f"none of its arrays ({', '.join(names) or 'none'}) is understood, such as {UNDERSTOOD}.", file=path
        )
    for part in parts:
        if lacking := sorted(_vectors(first.shapes) ^ _vectors(part.file.shapes)):
            raise DataError(f"{lacking[0]} is in some of the files only; give those of one run.", file=part.file.path)
        if (part.ids is None) != (parts[0].ids is None):
            raise DataError(
                f"has {'texts' if part.ids is None else 'pieces'}, other than the files before it.", file=part.file.path
            )
        for name in _vectors(first.shapes):
            _check_precision(part.file, name, first.dtypes[name])
    of = _Ids(parts, np.cumsum([0, *(len(part) for part in parts)]))
    arrays = [*_stacked(path, of, layers)] if STACK in names else []
    for name, site in sites.items():
        fitting = [axes for axes in AXES if all(part.fits(name, axes) for part in parts)]
        widths = {part.file.shapes[name][-1:] for part in parts}
        if "" in fitting and len(widths) > 1:
            raise DataError(f"{name} has {len(widths)} widths in its files; give those of one run.", file=path)
        views = tuple(View(axes, of.reader(_Part.rows, name, axes)) for axes in fitting or [""])
        arrays.append(Array(name, site, first.dtypes[name], views))
    if STACK not in names:
        check_unnamed(path, arrays, layers)
    texts = tuple(text for part in parts if part.ids is None for text in part.file.texts)
    skipped = tuple(name for name in names if name not in (*sites, STACK))
    return Source("arrays", path, tuple(files), tuple(arrays), of, texts, skipped=skipped)


def _vectors(names: Iterable[str]) -> set[str]:
    """Those of the names that stand for vectors."""
    return {name for name in names if name == STACK or site_of(name) is not None}


def _check_precision(file: Named, name: str, first: str) -> None:
    dtype = file.dtypes[name]
    if dtype not in DTYPES.values():
        hint = " numpy.savez does not keep bfloat16: write .safetensors." if dtype == "void16" else ""
        raise DataError(f"{name} is {dtype}; wanted one of {', '.join(DTYPES.values())}.{hint}", file=file.path)
    if dtype != first:
        raise DataError(f"{name} is {dtype}, and {first} in the first file; give those of one run.", file=file.path)


def _stacked(path: Path, of: _Ids, layers: Sequence[Site] | None) -> Iterator[Array]:
    """The layers of ``hidden_states``, one after another; raises DataError if it is not clear which axis they are."""
    shape = of.parts[0].file.shapes[STACK]
    fitting = [axes for axes in STACKED if all(part.holds(STACK, axes) for part in of.parts)]
    if len(fitting) != 1:
        either = " or ".join(f"({axes})" for axes in fitting or STACKED[: 5 if len(of.parts[0]) == 1 else 3])
        what = "may be" if fitting else "wanted"
        raise DataError(
            f"{STACK} is {shape}, for {of.parts[0].extent}: {what} {either}. Write an array for each layer: layer_0, "
            "layer_1 …",
            file=of.parts[0].file.path,
        )
    at = fitting[0].split(", ").index("layers")
    counts = {part.file.shapes[STACK][at] for part in of.parts}
    if len(counts) > 1:
        raise DataError(f"the files hold {min(counts)} to {max(counts)} layers; give those of one run.", file=path)
    if layers is not None and len(layers) != shape[at]:
        raise DataError(f"{STACK} holds {shape[at]} layers, and --layers names {len(layers)}.", file=path)
    for j in range(shape[at]):
        view = View("", of.reader(_Part.layer, STACK, fitting[0], j))
        name = f"{STACK}[{', '.join(str(j) if k == at else ':' for k in range(at + 1))}]"
        yield Array(name, None if layers is None else layers[j], of.parts[0].file.dtypes[STACK], (view,))


STACK = "hidden_states"
"""The array that may hold several layers."""
STACKED = (
    "layers, texts, positions, width",
    "texts, layers, positions, width",
    "texts, positions, layers, width",
    "layers, positions, width",
    "positions, layers, width",
)
"""Its orders of axes; one without texts is for a single text."""
AXES = ("", "positions, texts, width", "texts, width, positions", "width, positions", "texts, heads, positions, width")
"""Orders of axes: that of the format, and those into which they are swapped."""


class _Part:
    """One file: its texts, and the vectors of each."""

    def __init__(self, file: Named) -> None:
        self.file = file
        found = [name for name in IDS if name in file.shapes]
        if not found and not file.texts:
            raise DataError(f"has neither pieces ({', '.join(IDS)}) nor texts beside its arrays.", file=file.path)
        if found and (file.dtypes[found[0]][0] not in "iuIU" or len(file.shapes[found[0]]) not in (1, 2)):
            what = f"{found[0]} is {file.dtypes[found[0]]} {file.shapes[found[0]]}"
            raise DataError(f"{what}; wanted whole numbers, (texts, positions).", file=file.path)
        self.ids = np.asarray(file.read(found[0]).numpy()) if found else None
        self.single = self.ids is not None and self.ids.ndim == 1
        mask = (file.read("attention_mask").float() > 0).numpy() if "attention_mask" in file.shapes else None
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

    @property
    def extent(self) -> str:
        """The numbers of texts and positions, in words."""
        texts = f"{len(self)} text{'s' * (len(self) != 1)}"
        return texts if self.ids is None else f"{texts} of {self.ids.shape[1]} positions"

    def holds(self, name: str, axes: str) -> bool:
        """Whether a stack of layers has these axes, as far as the numbers of texts and positions say."""
        shape, names = self.file.shapes[name], axes.split(", ")
        known = {"texts": len(self)} | ({} if self.ids is None else {"positions": self.ids.shape[1]})
        return (
            len(shape) == len(names)
            and ("texts" in names or len(self) == 1)
            and all(known.get(axis, length) == length for axis, length in zip(names, shape, strict=True))
        )

    def layer(self, name: str, axes: str, j: int, i: int) -> torch.Tensor:
        """The vectors of text i in layer j of a stack."""
        at: dict[str, Any] = {"layers": j, "texts": i}
        return self._kept(self.file.read(name, *(at.get(axis, slice(None)) for axis in axes.split(", "))), i)

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
        elif len(shape) < 3 or (not axes and shape[0] != len(self)):
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
        return self._kept(found.flatten(1), i)

    def _kept(self, found: torch.Tensor, i: int) -> torch.Tensor:
        """Those of the rows of text i that are not padding."""
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

    def reader(self, how: Callable[..., torch.Tensor], *what: Any) -> Callable[[int], torch.Tensor]:
        """Reads the vectors of a text by a method of the part in which it is."""

        def rows(i: int) -> torch.Tensor:
            k = int(np.searchsorted(self.count, i, side="right")) - 1
            return how(self.parts[k], *what, i - int(self.count[k]))

        return rows
