"""Sums over rows: all that linear analyses need of any number of them, of a cache's layer or of a running model.

Moments of two sets of rows can be added, and those of a part subtracted. Where a model is read in one pass, each row
belongs to a fold and to a bin, a random set of rows: labels that are random but equal within a bin give controls that
need no second pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

from probekit.errors import NonFiniteError, UsageError

CANCELLED = 1e-4  # of a feature's power: a smaller remainder of a subtraction has lost too many digits
CONSTANT = 1e-5  # of the mean: a smaller deviation is rounding noise


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over some rows, about ``centre`` (d,): their ``weight``, ``total`` (d,) and ``gram`` (d, d), float64.

    Moments of two sets of rows can be added, and those of a part subtracted, so folds and prefixes share them. Both
    must have the same centre.
    """

    centre: np.ndarray
    weight: float
    total: np.ndarray
    gram: np.ndarray

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.centre, self.weight + other.weight, self.total + other.total, self.gram + other.gram)

    def __sub__(self, other: Moments) -> Moments:
        return Moments(self.centre, self.weight - other.weight, self.total - other.total, self.gram - other.gram)

    def about(self, centre: np.ndarray) -> Moments:
        """The moments of the same rows about another centre."""
        by, total = centre - self.centre, self.total
        gram = self.gram - (np.outer(total, by) + np.outer(by, total) - self.weight * np.outer(by, by))
        return Moments(centre, self.weight, total - self.weight * by, gram)

    def without(self, part: Moments) -> Moments | None:
        """The moments without a part; None if the part has nearly all power of a feature, so that digits are lost."""
        remaining = self - part
        power = np.diagonal(remaining.gram) - remaining.total**2 / max(remaining.weight, 1)
        whole = np.diagonal(self.gram) - self.total**2 / self.weight
        return None if (power < CANCELLED * whole).any() else remaining

    @property
    def mean(self) -> np.ndarray:
        """The mean of the rows, (d,)."""
        return self.centre + self.total / self.weight

    @property
    def scatter(self) -> np.ndarray:
        """XᵀX of the centred rows, (d, d)."""
        return self.gram - np.outer(self.total, self.total) / self.weight

    @property
    def inverse_deviation(self) -> np.ndarray:
        """1/standard deviation of each feature, (d,); 0 where it is at most 1e-5 of the mean."""
        shift = self.total / self.weight
        sd = np.sqrt(np.maximum(np.diagonal(self.gram) / self.weight - shift**2, 0))
        return np.divide(1, sd, out=np.zeros_like(sd), where=sd > CONSTANT * np.abs(self.mean))


@dataclass(frozen=True, slots=True)
class Layout:
    """What is summed.

    Attributes
    ----------
    names, widths : tuple
        The layers.
    columns : int
        Columns of the labels: the classes, or 1 for numbers.
    folds, bins : int
        Folds and bins of the labelled rows.
    across : bool
        Whether products between all pairs of layers are summed, too, of labelled and unlabelled rows.
    """

    names: tuple[str, ...]
    widths: tuple[int, ...]
    columns: int
    folds: int
    bins: int
    across: bool = False

    @property
    def parts(self) -> int:
        """The folds, and one more for unlabelled rows if they count."""
        return self.folds + self.across

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array of :class:`LayerMoments`."""
        f, c, b, k = self.folds, self.columns, self.bins, len(self.names)
        out: dict[str, tuple[int, ...]] = {"weight": (self.parts,), "y": (f, c), "yy": (f, c), "bin_weight": (f, b)}
        for name, d in zip(self.names, self.widths, strict=True):
            out |= {f"centre/{name}": (d,), f"total/{name}": (self.parts, d), f"gram/{name}": (self.parts, d, d)}
            out |= {f"cross/{name}": (f, c, d), f"bins/{name}": (f, b, d)}
        if self.across:
            out["long"] = (k, k)
            for i, (name, d) in enumerate(zip(self.names, self.widths, strict=True)):
                out[f"lean/{name}"] = (k, d)
                for other, e in zip(self.names[i + 1 :], self.widths[i + 1 :], strict=True):
                    out[f"product/{name}|{other}"] = (d, e)
        return out

    @property
    def size(self) -> int:
        """Bytes of the sums."""
        return 8 * sum(int(np.prod(shape, dtype=np.int64)) for shape in self.shapes().values())


@dataclass(frozen=True, eq=False, slots=True)
class LayerMoments:
    """The moments of several layers by fold, of rows z = x - centre, their labels y, and p = |z|², float64.

    Attributes
    ----------
    layout : Layout
        What is summed.
    arrays : Mapping[str, np.ndarray]
        By name: ``weight`` (parts,) rows; ``y``, ``yy`` (folds, columns) Σy and Σy²; ``bin_weight`` (folds, bins); of
        each layer ``centre`` (d,), ``total`` (parts, d) Σz, ``gram`` (parts, d, d) Σzzᵀ, ``cross`` (folds, columns, d)
        Σyz, ``bins`` (folds, bins, d) Σz of each bin. Between layers a and b: ``product/a|b`` (d, e) Σ z_a z_bᵀ,
        ``lean/a`` (layers, d) Σ p_b z_a, ``long`` (layers, layers) Σ p_a p_b.
    """

    layout: Layout
    arrays: Mapping[str, np.ndarray]

    @classmethod
    def empty(cls, layout: Layout, centres: Sequence[np.ndarray]) -> LayerMoments:
        """Those of no rows, about these centres."""
        arrays = {name: np.zeros(shape) for name, shape in layout.shapes().items()}
        for name, centre in zip(layout.names, centres, strict=True):
            arrays[f"centre/{name}"] = np.array(centre, dtype=np.float64)
        return cls(layout, arrays)

    def add(self, vectors: Sequence[np.ndarray], y: np.ndarray, fold: np.ndarray, bin_: np.ndarray) -> None:
        """Add rows.

        Parameters
        ----------
        vectors : sequence of np.ndarray
            (n, d) of each layer.
        y : np.ndarray
            Float (n, columns).
        fold : np.ndarray
            Int (n,); -1 for unlabelled rows.
        bin_ : np.ndarray
            Int (n,).

        Raises
        ------
        NonFiniteError
            If a vector is NaN or infinite.
        """
        into, layout = self.arrays, self.layout
        parts = np.where(fold < 0, layout.folds, fold)
        order = np.argsort(parts, kind="stable")
        known = int((fold >= 0).sum())
        order = order if layout.across else order[:known]
        parts, y, bin_ = parts[order], y[order], bin_[order]
        cuts = np.searchsorted(parts, np.arange(layout.parts + 1))
        into["weight"][:] += np.diff(cuts)
        slices = [slice(a, b) for a, b in pairwise(cuts)]
        for f, rows in enumerate(slices[: layout.folds]):
            into["y"][f] += y[rows].sum(0)
            into["yy"][f] += (y[rows] ** 2).sum(0)
        cell = parts[:known] * layout.bins + bin_[:known]
        ones = np.ones(known)
        of_bins = sparse.csr_matrix((ones, (cell, np.arange(known))), (layout.folds * layout.bins, known))
        into["bin_weight"][:] += np.bincount(cell, minlength=of_bins.shape[0]).reshape(layout.folds, layout.bins)
        long, centred = [], []
        for name, x in zip(layout.names, vectors, strict=True):
            z = x[order].astype(np.float64) - into[f"centre/{name}"]
            if not np.isfinite(z).all():
                raise NonFiniteError(f"layer {name} contains NaN or infinity.")
            for f, rows in enumerate(slices):
                into[f"total/{name}"][f] += z[rows].sum(0)
                into[f"gram/{name}"][f] += z[rows].T @ z[rows]
                if f < layout.folds:
                    into[f"cross/{name}"][f] += y[rows].T @ z[rows]
            used = np.flatnonzero(np.diff(of_bins.indptr))
            into[f"bins/{name}"].reshape(-1, z.shape[1])[used] += of_bins[used] @ z[:known]
            if layout.across:
                long.append((z**2).sum(1))
                centred.append(z)
        if layout.across:
            self._add_across(np.stack(long), centred)

    def _add_across(self, long: np.ndarray, centred: Sequence[np.ndarray]) -> None:
        into, names = self.arrays, self.layout.names
        into["long"][:] += long @ long.T
        for i, (name, z) in enumerate(zip(names, centred, strict=True)):
            into[f"lean/{name}"][:] += long @ z
            for other, w in zip(names[i + 1 :], centred[i + 1 :], strict=True):
                into[f"product/{name}|{other}"][:] += z.T @ w

    def folds(self, name: str) -> list[Moments]:
        """The moments of a layer in each fold of the labelled rows."""
        return self._parts(name)[: self.layout.folds]

    def _parts(self, name: str) -> list[Moments]:
        centre, *of = (self.arrays[f"{kind}/{name}"] for kind in ("centre", "total", "gram"))
        return [Moments(centre, float(w), *sums) for w, *sums in zip(self.arrays["weight"], *of, strict=True)]

    def product(self, a: str, b: str) -> np.ndarray:
        """Σ z_a z_bᵀ of all rows."""
        if a == b:
            return np.asarray(self.arrays[f"gram/{a}"].sum(0))
        name = f"product/{a}|{b}"
        return self.arrays[name] if name in self.arrays else self.arrays[f"product/{b}|{a}"].T

    def plus(self, other: LayerMoments) -> LayerMoments:
        """The sums of both sets of rows; ``other`` is brought to the centres of these sums if they differ.

        Raises
        ------
        UsageError
            If other things are summed.
        """
        if other.layout != self.layout:
            raise UsageError("the sums are of other layers, labels, folds or bins.")
        centres = {name: self.arrays[f"centre/{name}"] for name in self.layout.names}
        other = other.about(centres)
        same = {f"centre/{name}" for name in self.layout.names}
        return LayerMoments(self.layout, {k: v if k in same else v + other.arrays[k] for k, v in self.arrays.items()})

    def about(self, centres: Mapping[str, np.ndarray]) -> LayerMoments:
        """The same sums about other centres, (d,) of each layer."""
        shift = {name: centres[name] - self.arrays[f"centre/{name}"] for name in self.layout.names}
        if not any(by.any() for by in shift.values()):
            return self
        old, out = self.arrays, {k: v.copy() for k, v in self.arrays.items()}
        n, total = float(old["weight"].sum()), {k: old[f"total/{k}"].sum(0) for k in self.layout.names}
        for name, by in shift.items():
            out[f"centre/{name}"] = np.asarray(centres[name], dtype=np.float64)
            for f, part in enumerate(self._parts(name)):
                moved = part.about(centres[name])
                out[f"total/{name}"][f], out[f"gram/{name}"][f] = moved.total, moved.gram
            out[f"cross/{name}"] -= old["y"][..., None] * by
            out[f"bins/{name}"] -= old["bin_weight"][..., None] * by
        if self.layout.across:
            self._shift_across(out, shift, total, n)
        return LayerMoments(self.layout, out)

    def _shift_across(
        self, out: dict[str, np.ndarray], shift: Mapping[str, np.ndarray], total: Mapping[str, np.ndarray], n: float
    ) -> None:
        """The sums between layers about the new centres: p becomes p - 2 z·by + |by|²."""
        names, old = self.layout.names, self.arrays
        power = {a: float(np.trace(self.product(a, a))) for a in names}
        square = {a: float(shift[a] @ shift[a]) for a in names}
        for i, a in enumerate(names):
            by = shift[a]
            for j, b in enumerate(names):
                to, both = shift[b], self.product(a, b)
                if j > i:
                    out[f"product/{a}|{b}"] -= np.outer(total[a], to) + np.outer(by, total[b]) - n * np.outer(by, to)
                lean = old[f"lean/{a}"][j]
                out[f"lean/{a}"][j] = (
                    lean - power[b] * by - 2 * both @ to + 2 * (to @ total[b]) * by
                    + square[b] * total[a] - n * square[b] * by
                )  # fmt: skip
                out["long"][i, j] = (
                    old["long"][i, j]
                    - 2 * lean @ by - 2 * old[f"lean/{b}"][i] @ to + 4 * by @ both @ to
                    + square[b] * power[a] + square[a] * power[b]
                    - 2 * square[b] * (by @ total[a]) - 2 * square[a] * (to @ total[b])
                    + n * square[a] * square[b]
                )  # fmt: skip
