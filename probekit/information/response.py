"""Labels of an information estimate: classes or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.constraint import as_array
from probekit.errors import NonFiniteError, UsageError

EXTREME = 1e12
GONE = -4000  # a power of two that leaves nothing
SMALLEST = 20  # examples; with fewer no estimator here says anything


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """Labels of n examples.

    Attributes
    ----------
    codes : np.ndarray, optional
        int64 (n,), class indices 0 … classes-1, all of which occur; None for numbers.
    numbers : np.ndarray, optional
        float64 (n, m); None for classes.
    """

    codes: np.ndarray | None = None
    numbers: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.codes if self.codes is not None else self.numbers)  # type: ignore[arg-type]

    @property
    def classes(self) -> int:
        """Number of classes; 0 for numbers."""
        return 0 if self.codes is None else int(self.codes.max()) + 1

    @property
    def several(self) -> bool:
        """Whether these are numbers in more than one column."""
        return self.numbers is not None and self.numbers.shape[1] > 1

    @property
    def entropy(self) -> float:
        """H(Y) of classes in bits, from their shares; infinite for numbers."""
        return np.inf if self.codes is None else entropy(np.bincount(self.codes))


def entropy(counts: np.ndarray) -> float:
    """Of a distribution given by counts, in bits; its plug-in value."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log2(p)).sum()) + 0.0


def response(y: Any, *, discrete: bool | None = None) -> Response:
    """Labels as given to classes or numbers.

    Parameters
    ----------
    y : Any
        (n,) integers, booleans or strings are classes, by value; floats are numbers, unless all are whole, as in
        scikit-learn. (n, k) one-hot rows (of 0 and 1, one 1 each) are classes; other (n, m) arrays are numbers.
    discrete : bool, optional
        True for classes and False for numbers, whatever the type.

    Raises
    ------
    UsageError
        For other shapes, one class only, or fewer than 20 labels.
    NonFiniteError
        For NaN and infinity.
    """
    _unmasked(y, "labels")
    y = as_array("y", y)
    if y.dtype == object:
        kinds = {type(v) for v in y.ravel()}
        if kinds != {str}:
            names = ", ".join(sorted(k.__name__ for k in kinds))
            raise UsageError(f"labels are integers, booleans, strings or floats; these are objects of type {names}.")
        y = y.astype(str)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim not in (1, 2) or y.size == 0:
        raise UsageError(f"labels are an array (n,) or (n, m), not of shape {y.shape}.")
    if len(y) < SMALLEST:
        raise UsageError(f"mutual information needs at least {SMALLEST} examples; there are {len(y)}.")
    if y.dtype.kind == "f":
        if not np.isfinite(y).all():
            row = int((~np.isfinite(y)).reshape(len(y), -1).any(1).argmax())
            raise NonFiniteError(f"label {row} is NaN or infinite; leave unlabelled examples out.")
    elif y.dtype.kind not in "biuUS":
        raise UsageError(f"labels are integers, booleans, strings or floats, not {y.dtype}.")
    if y.ndim == 2:
        if discrete is not False and _one_hot(y):
            y = y.argmax(1)
        elif discrete or y.dtype.kind in "US":
            raise UsageError(f"classes are (n,) or one-hot (n, k); shape {y.shape} is neither.")
        else:
            return _numbers(y)
    if discrete is None:
        discrete = y.dtype.kind != "f" or bool((y == np.rint(y)).all())
    if not discrete:
        if y.dtype.kind in "US":
            raise UsageError("labels are strings, so they are classes, not numbers.")
        return _numbers(y[:, None])
    kinds_, codes = np.unique(y, return_inverse=True)
    if len(kinds_) < 2:
        raise UsageError(f"all {len(y)} labels are {kinds_[0].item()!r}: there is nothing to know about them.")
    return Response(codes=codes.astype(np.int64).ravel())


def _unmasked(values: Any, what: str) -> None:
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise UsageError(f"some {what} are masked; leave these examples out, or fill them.")


def _one_hot(y: np.ndarray) -> bool:
    return y.dtype.kind in "biuf" and bool(((y == 0) | (y == 1)).all() and (y.sum(1) == 1).all())


def _numbers(y: np.ndarray) -> Response:
    y = y.astype(np.float64)
    if (y == y[:1]).all():
        raise UsageError(f"all {len(y)} labels are {y[0].tolist()}: there is nothing to know about them.")
    return Response(numbers=y)


def symbols(x: Any, rows: int) -> np.ndarray | None:
    """``x`` where it is (n,) integers, booleans or strings, each value of which is one of a kind; None where it is not.

    Raises
    ------
    UsageError
        If there are not ``rows`` of them.
    """
    try:
        x = as_array("x", x) if getattr(x, "ndim", 1) == 1 else None
    except UsageError:  # ragged: no symbols, and no vectors either
        return None
    if x is not None and x.dtype == object and x.ndim == 1 and all(isinstance(v, str) for v in x):
        x = x.astype(str)
    if x is None or x.ndim != 1 or x.dtype.kind not in "biuUS":
        return None
    if len(x) != rows:
        raise UsageError(f"{len(x)} values do not go with {rows} labels.")
    return x


def vectors(x: Any, rows: int) -> np.ndarray:
    """``x`` as a matrix (n, d) of float32 or float64 beside ``rows`` labels; float16 and integers are widened.

    Raises
    ------
    UsageError
        For other shapes and types. NaN and infinity are found where sums are computed.
    """
    _unmasked(x, "vectors")
    try:
        x = x if isinstance(x, np.ndarray) or not hasattr(x, "__array__") else np.asarray(x)
    except (TypeError, RuntimeError) as error:  # torch's word on bfloat16, gradients and devices
        raise UsageError(f"vectors cannot be read as an array ({error}).") from None
    x = as_array("x", x)
    if x.ndim == 1:
        x = x[:, None]
    if x.ndim != 2 or 0 in x.shape:
        raise UsageError(f"vectors are a matrix (n, d) with at least one column, not of shape {x.shape}.")
    if x.dtype.kind not in "biuf":
        raise UsageError(f"vectors are numbers, not {x.dtype}.")
    if len(x) != rows:
        raise UsageError(f"{len(x)} vectors do not go with {rows} labels.")
    if x.dtype in (np.float32, np.float64):
        return x
    return x.astype(np.float32 if x.dtype == np.float16 else np.float64)


def of_size(x: np.ndarray) -> np.ndarray:
    """``x`` (n, d), times a power of two where squares of most columns would be lost in float32, or in float64.

    That is where the median of the columns' largest numbers is beyond 1e12 or below 1e-12, which is near 1 then.
    Columns above 1e12 are then brought near 1, too, and columns below 1e-24, which only underflow moves, are 0.
    """
    from probekit.information.hashing._kernels import column_extents

    extent = column_extents(x)
    if not np.isfinite(extent).all() or not extent.any():
        return x
    middle = np.median(extent[extent > 0])
    power = np.full(len(extent), 0 if 1 / EXTREME < middle < EXTREME else -np.frexp(middle)[1])
    with np.errstate(over="ignore"):
        sized = np.ldexp(extent, power)
    large = sized > EXTREME
    power[large] = -np.frexp(extent)[1][large]
    power[(sized > 0) & (sized < EXTREME**-2)] = GONE
    return np.asarray(np.ldexp(x, power)) if power.any() else x
