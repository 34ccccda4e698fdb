"""A matrix of features that solvers read in blocks, never as a whole.

Blocks are centred as they are read: no standardised copy is needed, and a feature whose mean is a hundred thousand
times its deviation loses no digits. Scales are folded into the weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.linalg import qr
from sklearn.exceptions import ConvergenceWarning

from probekit.constraint import check
from probekit.errors import NonFiniteError, UsageError
from probekit.runtime import resolve_device
from probekit.statistics.moments import CONSTANT, Moments
from probekit.threads import go_on

BLOCK = 1024  # rows that stay in the processor's cache between the two products of a gradient
NARROW = 512  # up to this many features, twice as many rows do
GRAM_BLOCK = 4096
HELD = 1 << 25  # largest size in bytes of centred rows to hold in memory
DEVICE_BLOCK = 1 << 16  # rows per block on an accelerator, which needs large blocks
NOT_FINITE = "the features contain NaN or infinity; no probe can be fitted on them."


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b.T``; with oneDNN for float32 on CPUs other than Intel's, where it is twice as fast as MKL.

    On Intel CPUs MKL is faster, up to three times if a has few rows.
    """
    if a.device.type == "cpu" and a.dtype == torch.float32 and not _intels() and torch.backends.mkldnn.is_available():
        return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
    return a @ b.T


@cache
def _intels() -> bool:
    """Whether the processor is an Intel one, for which MKL is optimised."""
    try:
        return torch.backends.mkl.is_available() and "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return False


def accelerator(device: str) -> str:
    """The torch device of a name; raises UsageError if it does not exist or has no float64 (MPS)."""
    found = resolve_device(check("device", str, device))
    if found.startswith("mps"):
        raise UsageError("probes need float64, which mps does not support; use device='cpu'.")
    return found


def resident(x: Any, device: str) -> Any:
    """``x`` itself on the CPU; on an accelerator a tensor, if it takes at most half of the free memory."""
    if not device.startswith("cuda"):
        return x
    free = torch.cuda.mem_get_info(device)[0]
    return torch.tensor(np.asarray(x), device=device) if 8 * x.shape[0] * x.shape[1] <= free else x


def precision(rows: int, width: int) -> torch.dtype:
    """The dtype of computations: float64 for fewer than 4 rows per feature, because minima are then flat."""
    return torch.float64 if rows < 4 * width else torch.float32


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
        (n,), weights of the rows (default: 1). Raises NonFiniteError if a feature is NaN or infinite.
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
            if block.device.type == "cpu":  # numpy computes only one half of a matrix's product with itself
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
        (n, d) array, memory map, tensor on ``device``, or object with ``shape`` and rows by slice and index.
    rows : np.ndarray | None
        Int (m,), indices of the rows; None for all.
    centre, scale : np.ndarray
        (d,), a scale of None is 1 everywhere.
    block : int
        Rows per block; 0 for as many as fit into a processor's cache.
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
        """Rows per block."""
        if self.device != "cpu":
            return DEVICE_BLOCK
        return self.block or BLOCK * (2 if self.width <= NARROW else 1)

    def blocks(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """Slices of the rows, and their x - centre (b, d); the next block reuses the memory."""
        n, kind = len(self), np.float64 if self.dtype == torch.float64 else np.float32
        size = self.size
        if isinstance(self.x, torch.Tensor):
            mean = torch.as_tensor(self.centre, dtype=self.dtype, device=self.x.device)
            rows = None if self.rows is None else torch.as_tensor(self.rows, device=self.x.device)
            for start in range(0, n, size):
                go_on()
                at = slice(start, min(start + size, n))
                yield at, (self.x[at] if rows is None else self.x[rows[at]]).to(self.dtype) - mean
            return
        buffer = np.empty((min(size, n), self.width), dtype=kind)
        centre = self.centre if _wide(self.x) else self.centre.astype(kind)
        for start in range(0, n, size):
            go_on()
            at = slice(start, min(start + size, n))
            out = buffer[: at.stop - at.start]
            if self.rows is not None and isinstance(self.x, np.ndarray) and self.x.dtype == kind:
                np.take(self.x, self.rows[at], axis=0, out=out, mode="clip")  # without an intermediate copy
                out -= centre
            else:
                part = self.x[at] if self.rows is None else self.x[self.rows[at]]
                np.subtract(part.toarray() if hasattr(part, "toarray") else part, centre, out=out, casting="same_kind")
            yield at, torch.from_numpy(out).to(self.device)

    def held(self) -> Design:
        """The same design with its centred rows in memory, if they are few: for many passes."""
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
        """The factors that turn weights on scaled features into weights on x - centre, (d,)."""
        return np.ones(self.width) if self.scale is None else self.scale


@dataclass(frozen=True)
class _Held(Design):
    """A design whose rows are centred once; its blocks must not be modified."""

    own: np.ndarray | None = None

    def blocks(self) -> Iterator[tuple[slice, torch.Tensor]]:
        assert self.own is not None
        for start in range(0, len(self), self.size):
            go_on()
            at = slice(start, min(start + self.size, len(self)))
            yield at, torch.from_numpy(self.own[at])


def middle(x: Any, mean: np.ndarray) -> np.ndarray:
    """The mean rounded to float32, unless x is float64, so that x - centre is the same in any precision."""
    return mean if _wide(x) else mean.astype(np.float32).astype(np.float64)


def _wide(x: Any) -> bool:
    return getattr(x, "dtype", None) == np.float64


def narrowed(
    x: Any, rows: np.ndarray | None, *, standardise: bool
) -> tuple[np.ndarray, Moments | None, np.ndarray, np.ndarray, np.ndarray]:
    """Project rows that are fewer than features onto an orthonormal basis of their span.

    The weights of a linear model with an L2 penalty lie in the span, so the model is the same in this basis, and work
    grows with the square of the rows, not of the features. Returns the rows float64 (m, r), their moments (about 0),
    the mean (d,), the matrix (d, r) that maps weights back to x - mean, and the rounding error of the mean (d,).

    The basis comes from the products of the rows with each other. If rows or features differ so much in scale that
    small ones are lost in these products, it comes from a QR decomposition, which is insensitive to column scales, and
    there are no moments.

    Raises
    ------
    NonFiniteError
        If a feature is NaN or infinite.
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
        reduced = np.empty((len(z), len(r)))
        reduced[order] = r.T
        return reduced, None, mean, scale[:, None] * q, mean - exact
    kept[-1] = True  # all features may be constant
    root, basis = np.sqrt(np.maximum(power[kept], 0)), basis[:, kept]
    back = scale[:, None] * (z.T @ (basis / np.maximum(root, 1e-150)))
    none = np.zeros(len(root))
    return basis * root, Moments(none, len(z), none, np.diag(root**2)), mean, back, mean - exact


def _drowned(power: np.ndarray, norms: np.ndarray) -> bool:
    """Whether the range of eigenvalues (ascending) exceeds float64, or one row (norms²) dominates all others."""
    small = power < 1e-10 * power[-1]
    dominant = norms.max() > max(0.5 * power[-1], 20 * np.median(norms)) or power[-2] < 1e-8 * power[-1]
    return bool(dominant or (power[small] > 1e-12 * power[-1]).any())


def unsolved(converged: np.ndarray, penalties: str) -> None:
    """Warn of models (targets, penalties) that did not converge."""
    if not converged.all():
        warnings.warn(
            f"{np.count_nonzero(~converged)} of {converged.size} models (targets × {penalties}) have not converged. "
            "Allow more iterations if they ran out, or a larger tolerance if rounding does not let it be reached. "
            "Otherwise features or rows differ too much in scale: standardise the features, look for outlying rows, "
            "or use a stronger penalty.",
            ConvergenceWarning,
            stacklevel=3,
        )


def check_matrix(x: Any, rows: int) -> None:
    """Raise UsageError unless ``x`` is (rows, d) with rows and d positive."""
    shape: Iterable[int] = getattr(x, "shape", ())
    if len(tuple(shape)) != 2 or 0 in tuple(shape):
        raise UsageError(f"features must be a matrix (n, d) with at least one row and column, not {tuple(shape)}.")
    if x.shape[0] != rows:
        raise UsageError(f"features have {x.shape[0]} rows, but there are {rows} labels.")
