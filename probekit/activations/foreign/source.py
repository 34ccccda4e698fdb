"""Activations in a file or folder of another program: which arrays there are, of which texts; read when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from probekit.errors import DataError
from probekit.sites import Site

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class View:
    """A way to read an array.

    Attributes
    ----------
    axes : str
        The axes as they lie in the file; "" if they are those of the format.
    rows : callable
        ``rows(i)`` is a tensor (positions, width): the vectors of text i, in the file's precision.
    """

    axes: str
    rows: Callable[[int], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Array:
    """An array of a file: vectors of one site, for every position of every text.

    Attributes
    ----------
    name : str
        Its name in the file.
    site : Site or None
        The site that it is said to be; None if the file does not say.
    dtype : str
        Its precision: float64, float32, float16 or bfloat16.
    views : tuple of View
        The ways to read it, the most likely first: axes may have been swapped.
    """

    name: str
    site: Site | None
    dtype: str
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Activations that another program wrote.

    Attributes
    ----------
    format : str
        "vllm", "arrays" or "saelens".
    path : Path
        The file or folder.
    files : tuple of Path
        The files that it consists of.
    arrays : tuple of Array
        Its arrays.
    ids : Texts
        The texts: ``len(ids)`` of them, and ``ids[i]`` is int64 (t,), the pieces of text i.
    texts : sequence of str
        The texts themselves where the file holds them instead of pieces; else empty.
    names : sequence of str
        The names of the texts; empty if they have none.
    skipped : tuple of str
        Names of arrays that stand for no site.
    """

    format: str
    path: Path
    files: tuple[Path, ...]
    arrays: tuple[Array, ...]
    ids: Texts
    texts: Sequence[str] = ()
    names: Sequence[str] = ()
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts) or len(self.ids)

    def pieces(self, i: int) -> np.ndarray:
        """int64 (t,), the pieces of text i.

        Raises
        ------
        DataError
            If one is not the number of a piece.
        """
        ids = self.ids[i]
        if len(wrong := ids[(ids < 0) | (ids >= 1 << 31)]):
            hint = " Where it stands for padding, write an attention_mask beside, and any piece there."
            what = f"text {i} has the piece {wrong[0]}; wanted whole numbers from 0 to {(1 << 31) - 1}."
            raise DataError(what + (hint if wrong[0] < 0 else ""), file=self.path)
        return ids


class Texts(Protocol):
    """The pieces of texts, read when asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> np.ndarray: ...


def check_unnamed(path: Path, arrays: Sequence[Array], layers: Sequence[Site] | None) -> None:
    """Raise DataError if layers are given for arrays that have names."""
    if layers is not None:
        names = ", ".join(f"{a.name} is {a.site}" for a in arrays[:3])
        raise DataError(f"its arrays have names ({names} …); leave out --layers.", file=path)
