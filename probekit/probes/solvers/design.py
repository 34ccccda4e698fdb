"""A matrix of features, read in blocks: what the solvers ask of it, and nothing that needs it whole.

Blocks are centred as they are read, so that neither a standardised copy is held nor a feature whose mean is a hundred
thousand times its deviation costs digits. Scales are folded into the weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.linalg import qr
from sklearn.exceptions import ConvergenceWarning

from probekit.errors import NonFiniteError, UsageError
from probekit.runtime import resolve_device

__all__ = [
    "Design",
    "Moments",
    "accelerator",
    "check_matrix",
    "middle",
    "moments",
    "narrowed",
    "precision",
    "product",
    "resident",
    "unsolved",
]

BLOCK = 1024  # rows of a block stay in the processor's cache between the two products of a gradient
NARROW = 512  # features, up to which twice as many rows do
GRAM_BLOCK = 4096
HELD = 1 << 25  # bytes of centred rows that may be held
DEVICE_BLOCK = 1 << 16  # of an accelerator, which wants much work at a time
NOT_FINITE = "the features hold NaN or infinity; no probe can be fitted on them."
CANCELLED = 1e-4  # of a feature's power: what is left after a subtraction has no digits to spare
CONSTANT = 1e-5  # of the mean: a smaller deviation is rounding noise


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b.T``; for float32 on a CPU that is not Intel's by oneDNN: twice as fast as MKL on those it does not know.

    On Intel's MKL is faster, up to three times where a has few rows.
    """
    if a.device.type == "cpu" and a.dtype == torch.float32 and not _intels() and torch.backends.mkldnn.is_available():
        return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
    return a @ b.T


@cache
def _intels() -> bool:
    """Whether the processor is one that MKL knows."""
    try:
        return torch.backends.mkl.is_available() and "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return False


def accelerator(device: str) -> str:
    """The torch device of a name; raises UsageError where it is not there, or has no float64 (MPS)."""
    found = resolve_device(device)
    if found.startswith("mps"):
        raise UsageError("probes are solved partly in float64, which mps does not have; use device='cpu'.")
    return found


def resident(x: Any, device: str) -> Any:
    """``x`` itself on the CPU; for an accelerator a tensor there, where it takes at most half of the free memory."""
    if not device.startswith("cuda"):
        return x
    free = torch.cuda.mem_get_info(device)[0]
    return torch.tensor(np.asarray(x), device=device) if 8 * x.shape[0] * x.shape[1] <= free else x


def precision(rows: int, width: int) -> torch.dtype:
    """What is computed in: float64 where there are fewer than 4 rows a feature, as minima are flat then."""
    return torch.float64 if rows < 4 * width else torch.float32


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over some rows, about ``centre`` (d,): their ``weight``, ``total`` (d,) and ``gram`` (d, d), float64.

    Those of two sets of rows are added, those of a part are taken away: what folds and prefixes share. Both must come
    from one call of :func:`moments`, and so have one centre.
    """

    centre: np.ndarray
    weight: float
    total: np.ndarray
    gram: np.ndarray

    def __add__(self, other: Moments) -> Moments:
        return replace(
            self, weight=self.weight + other.weight, total=self.total + other.total, gram=self.gram + other.gram
        )

    def __sub__(self, other: Moments) -> Moments:
        return replace(
            self, weight=self.weight - other.weight, total=self.total - other.total, gram=self.gram - other.gram
        )

    def without(self, part: Moments) -> Moments | None:
        """Of the rows less a part's; None where the part had nearly all of a feature's power: digits are lost then."""
        rest = self - part
        power = np.diagonal(rest.gram) - rest.total**2 / max(rest.weight, 1)
        whole = np.diagonal(self.gram) - self.total**2 / self.weight
        return None if (power < CANCELLED * whole).any() else rest

    @property
    def mean(self) -> np.ndarray:
        """Of the rows themselves, (d,)."""
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


@np.errstate(invalid="ignore")
def moments(
    x: Any,
    parts: Sequence[np.ndarray | None] = (None,),
    *,
    weights: np.ndarray | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> list[Moments]:
    """The moments of each part of the rows of ``x``, in one pass; a part is an array of row numbers, None for all.

    Parameters
    ----------
    weights : np.ndarray, optional
        (n,) of the rows, for None all 1. Raises NonFiniteError where a feature is NaN or infinite.
    """
    n, d = x.shape
    used = np.concatenate([np.arange(n) if rows is None else rows for rows in parts])
    sample = x[used[:: max(1, len(used) // 512)]]
    centre = np.asarray(sample.cpu() if isinstance(sample, torch.Tensor) else sample, dtype=np.float64).mean(0)
    centre = middle(x, centre)
    out = []
    for rows in parts:
        design = Design(x, rows, centre, dtype=dtype, device=device, block=GRAM_BLOCK)
        total, gram, weight = np.zeros(d), np.zeros((d, d)), 0.0
        for at, block in design.blocks():
            w = None if weights is None else torch.as_tensor(weights[at if rows is None else rows[at]]).to(block)
            if w is None:
                total += block.sum(0).double().cpu().numpy()
                weight += len(block)
            else:
                total += (w @ block).double().cpu().numpy()
                weight += float(w.double().sum())
                block *= w.sqrt()[:, None]
            if block.device.type == "cpu":  # numpy's product of a matrix with itself computes one half only
                gram += block.numpy().T @ block.numpy()
            else:
                gram += (block.T @ block).double().cpu().numpy()
        if not np.isfinite(total).all():
            raise NonFiniteError(NOT_FINITE)
        out.append(Moments(centre, weight, total, gram))
    return out


@dataclass(frozen=True)
class Design:
    """Some rows of a matrix as a linear model sees them: (x - centre) · scale.

    Attributes
    ----------
    x : Any
        (n, d) array, memory map, tensor on ``device``, or anything with ``shape`` that gives rows by slice and number.
    rows : np.ndarray | None
        Int (m,), which of them, None for all.
    centre, scale : np.ndarray
        (d,), a scale of None is 1 everywhere.
    block : int
        Rows that are read at a time; 0 for as many as a processor's cache holds.
    """

    x: Any
    rows: np.ndarray | None
    centre: np.ndarray
    scale: np.ndarray | None = None
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    block: int = 0

    def __len__(self) -> int:
        return int(self.x.shape[0]) if self.rows is None else len(self.rows)

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.x.shape[1])

    @property
    def size(self) -> int:
        """Rows that are read at a time."""
        if self.device != "cpu":
            return DEVICE_BLOCK
        return self.block or BLOCK * (2 if self.width <= NARROW else 1)

    def blocks(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """Which of the rows, and x - centre of them (b, d); the memory is used again for the next block."""
        n, kind = len(self), np.float64 if self.dtype == torch.float64 else np.float32
        size = self.size
        if isinstance(self.x, torch.Tensor):
            mean = torch.as_tensor(self.centre, dtype=self.dtype, device=self.x.device)
            rows = None if self.rows is None else torch.as_tensor(self.rows, device=self.x.device)
            for start in range(0, n, size):
                at = slice(start, min(start + size, n))
                yield at, (self.x[at] if rows is None else self.x[rows[at]]).to(self.dtype) - mean
            return
        buffer = np.empty((min(size, n), self.width), dtype=kind)
        centre = self.centre if _wide(self.x) else self.centre.astype(kind)
        for start in range(0, n, size):
            at = slice(start, min(start + size, n))
            out = buffer[: at.stop - at.start]
            if self.rows is not None and isinstance(self.x, np.ndarray) and self.x.dtype == kind:
                np.take(self.x, self.rows[at], axis=0, out=out, mode="clip")  # without a copy in between
                out -= centre
            else:
                part = self.x[at] if self.rows is None else self.x[self.rows[at]]
                np.subtract(part.toarray() if hasattr(part, "toarray") else part, centre, out=out, casting="same_kind")
            yield at, torch.from_numpy(out).to(self.device)

    def held(self) -> Design:
        """The same with its centred rows in memory, where they are so few that it is nothing: for many passes."""
        size = len(self) * self.width * (8 if self.dtype == torch.float64 else 4)
        if self.device != "cpu" or size > HELD:
            return self
        own = np.empty((len(self), self.width), dtype=np.float64 if self.dtype == torch.float64 else np.float32)
        for at, block in self.blocks():
            own[at] = block.numpy()
        return _Held(self.x, self.rows, self.centre, self.scale, self.dtype, self.device, self.block, own)

    def __call__(self, weights: torch.Tensor) -> torch.Tensor:
        """Products of all rows with weights (p, d) that are already scaled: (p, m)."""
        out = torch.empty((len(weights), len(self)), dtype=self.dtype, device=self.device)
        for at, block in self.blocks():
            out[:, at] = product(weights, block)
        return out

    @cached_property
    def factors(self) -> np.ndarray:
        """What a weight on the scaled features is multiplied with to act on x - centre, (d,)."""
        return np.ones(self.width) if self.scale is None else self.scale


@dataclass(frozen=True)
class _Held(Design):
    """Rows that are centred once; nobody may write to a block."""

    own: np.ndarray | None = None

    def blocks(self) -> Iterator[tuple[slice, torch.Tensor]]:
        assert self.own is not None
        for start in range(0, len(self), self.size):
            at = slice(start, min(start + self.size, len(self)))
            yield at, torch.from_numpy(self.own[at])


def middle(x: Any, mean: np.ndarray) -> np.ndarray:
    """The mean of features as a number that float32 holds, unless x is float64: x - centre is one in any precision."""
    return mean if _wide(x) else mean.astype(np.float32).astype(np.float64)


def _wide(x: Any) -> bool:
    return getattr(x, "dtype", None) == np.float64


def narrowed(
    x: Any, rows: np.ndarray | None, *, standardise: bool
) -> tuple[np.ndarray, Moments | None, np.ndarray, np.ndarray, np.ndarray]:
    """Rows that are fewer than features, in a basis of their own span: as wide as they are many.

    No weight leaves the span, and the basis is orthonormal, so a linear model with an L2 penalty is the same in it, and
    work grows with the square of the rows, not of the features. Returns the rows float64 (m, r), their moments (about
    0), the mean (d,), the matrix (d, r) that leads weights back to x - mean, and what was rounded off the mean (d,).

    The basis is that of the rows' products with each other. Where rows or features differ so much in size that small
    ones drown in those, it is a QR decomposition's, whose columns' sizes do not matter, and there are no moments.

    Raises
    ------
    NonFiniteError
        Where a feature is NaN or infinite.
    """
    part = x if rows is None else x[rows]
    z = np.array(part.cpu() if isinstance(part, torch.Tensor) else part, dtype=np.float64)
    if not np.isfinite(z).all():
        raise NonFiniteError(NOT_FINITE)
    exact = z.mean(0)
    mean = middle(x, exact)
    scale = np.ones(z.shape[1])
    if standardise:
        sd = z.std(0)
        scale = np.divide(1, sd, out=np.zeros_like(sd), where=sd > CONSTANT * np.abs(mean))
    z = (z - exact) * scale
    products = z @ z.T
    power, basis = np.linalg.eigh(products)
    kept = power > 1e-10 * power[-1]
    if len(z) > 2 and _drowned(power, products.diagonal()):
        q, r, order = qr(z.T, mode="economic", pivoting=True)
        own = np.empty((len(z), len(r)))
        own[order] = r.T
        return own, None, mean, scale[:, None] * q, mean - exact
    kept[-1] = True  # all features may be constant
    root, basis = np.sqrt(np.maximum(power[kept], 0)), basis[:, kept]
    back = scale[:, None] * (z.T @ (basis / np.maximum(root, 1e-150)))
    none = np.zeros(len(root))
    return basis * root, Moments(none, len(z), none, np.diag(root**2)), mean, back, mean - exact


def _drowned(power: np.ndarray, norms: np.ndarray) -> bool:
    """Whether eigenvalues (ascending) of rows' products are too wide for float64, or a row, of norms², outgrows all."""
    small = power < 1e-10 * power[-1]
    alone = norms.max() > max(0.5 * power[-1], 20 * np.median(norms)) or power[-2] < 1e-8 * power[-1]
    return bool(alone or (power[small] > 1e-12 * power[-1]).any())


def unsolved(converged: np.ndarray, penalties: str) -> None:
    """Warn of models (targets, penalties) that are not where they were going."""
    if not converged.all():
        warnings.warn(
            f"{np.count_nonzero(~converged)} of {converged.size} models (targets × {penalties}) have not converged. "
            "Allow more iterations if they are limited; else features or rows are too unlike in size: standardise the "
            "features, look for rows far from all others, or penalise more.",
            ConvergenceWarning,
            stacklevel=3,
        )


def check_matrix(x: Any, rows: int) -> None:
    """Raise UsageError unless ``x`` is (rows, d) with rows and d positive."""
    shape: Iterable[int] = getattr(x, "shape", ())
    if len(tuple(shape)) != 2 or 0 in tuple(shape):
        raise UsageError(f"features are a matrix (n, d) with at least one row and column, not of shape {tuple(shape)}.")
    if x.shape[0] != rows:
        raise UsageError(f"{x.shape[0]} rows of features do not go with {rows} labels.")
