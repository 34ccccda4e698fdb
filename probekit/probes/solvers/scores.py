"""How the scores of a text's pieces become one score: what a monitor that watches a model piece by piece says of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probekit.errors import UsageError

NAMES = ("mean", "last", "max", "ema", "rolling", "cusum")
MOST = 100_000
"""The most pieces of a moving mean."""
EXPECTED = (
    "expected mean, last, max, ema:DECAY (such as ema:0.5), rolling:PIECES (such as rolling:10) or cusum:DRIFT (such "
    "as cusum:1)"
)


@dataclass(frozen=True, slots=True)
class Score:
    """A score of a text.

    Attributes
    ----------
    name : str
        "mean", "last", "max"; "ema": the largest value of the exponential moving average, which begins with the first
        piece; "rolling": the largest mean of neighbouring pieces (Kramár et al. 2026, *Building Production-Ready Probes
        For Gemini*). A text with fewer pieces has one such mean, of all of them; "cusum": the largest of the sums S of
        pieces' scores above a drift, S = max(0, S + score - drift) after each piece (Page 1954).
    decay : float
        For "ema": what each piece leaves of the average before it.
    pieces : int
        For "rolling": how many pieces.
    drift : float
        For "cusum": what is taken from each piece's score.

    Examples
    --------
    >>> Score.parse("rolling:2").of(np.array([[1.0], [3], [0], [5]]), np.array([3, 1])).tolist()
    [[2.0], [5.0]]
    """

    name: str
    decay: float = 0.5
    pieces: int = 10
    drift: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Score:
        """The score as it is written; raises UsageError if it is none."""
        name, colon, rest = text.strip().partition(":")
        try:
            if name not in NAMES or (colon and name not in ("ema", "rolling", "cusum")):
                raise ValueError
            if not colon:
                return cls(name)
            of = {"ema": ("decay", float), "rolling": ("pieces", int), "cusum": ("drift", float)}[name]
            found = cls(name, **{of[0]: of[1](rest)})
            if not 0 < found.decay < 1 or not 1 <= found.pieces <= MOST or not np.isfinite(found.drift):
                raise ValueError
        except ValueError:
            raise UsageError(f"scores is {text!r}; {EXPECTED}.") from None
        return found

    def __str__(self) -> str:
        rest = {"ema": f":{self.decay:g}", "rolling": f":{self.pieces}", "cusum": f":{self.drift:g}"}
        return self.name + rest.get(self.name, "")

    def of(self, scores: np.ndarray, length: np.ndarray) -> np.ndarray:
        """The scores of n texts, float64 (n, m).

        Parameters
        ----------
        scores : np.ndarray
            Float (t, m), of the pieces of the texts, one text after another.
        length : np.ndarray
            Int (n,), how many pieces each has, 1 or more.
        """
        scores = scores.astype(np.float64)
        stop = np.cumsum(length)
        first = stop - length
        if self.name == "last":
            return scores[stop - 1]
        if self.name == "max":
            return np.maximum.reduceat(scores, first, axis=0)
        if self.name == "mean":
            return np.add.reduceat(scores, first, axis=0) / length[:, None]
        by_piece = {"ema": self._ema, "rolling": self._rolling, "cusum": self._cusum}
        return by_piece[self.name](scores, first, length)

    def _cusum(self, scores: np.ndarray, first: np.ndarray, length: np.ndarray) -> np.ndarray:
        total = np.zeros((len(length), scores.shape[1]))
        largest = total.copy()
        for k in range(int(length.max(initial=0))):
            going = np.flatnonzero(length > k)
            total[going] = np.maximum(total[going] + scores[first[going] + k] - self.drift, 0)
            largest[going] = np.maximum(largest[going], total[going])
        return largest

    def _ema(self, scores: np.ndarray, first: np.ndarray, length: np.ndarray) -> np.ndarray:
        average = scores[first]
        largest = average.copy()
        for k in range(1, int(length.max(initial=0))):
            going = np.flatnonzero(length > k)
            average[going] = self.decay * average[going] + (1 - self.decay) * scores[first[going] + k]
            largest[going] = np.maximum(largest[going], average[going])
        return largest

    def _rolling(self, scores: np.ndarray, first: np.ndarray, length: np.ndarray) -> np.ndarray:
        out = np.empty((len(length), scores.shape[1]))
        for i, (start, count) in enumerate(zip(first, length, strict=True)):
            width = min(self.pieces, int(count))
            total = np.cumsum(scores[start : start + count], axis=0)
            total[width:] -= total[:-width].copy()
            out[i] = total[width - 1 :].max(0) / width
        return out
