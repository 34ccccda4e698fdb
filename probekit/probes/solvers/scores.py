"""How the scores of a text's pieces become one score: what a monitor that watches a model piece by piece says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from probekit.errors import UsageError

NAMES = ("mean", "last", "max", "ema", "rolling", "cusum")
MOST = 100_000
"""The most pieces of a moving mean."""
BLOCK = 1 << 20
"""Scores of pieces that are read at a time."""
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
        stop = np.cumsum(length)
        if self.name == "last":
            return scores[stop - 1].astype(np.float64)
        if self.name == "mean":
            means: np.ndarray = np.add.reduceat(scores.astype(np.float64), stop - length, axis=0) / length[:, None]
            return means
        return self.highest(scores, length)

    def highest(self, scores: np.ndarray, length: np.ndarray) -> np.ndarray:
        """The highest scores after any piece of n texts, float64 (n, m); arguments as for :meth:`of`.

        It is the score of the whole text but for "mean", of which it is the highest mean of a beginning, and "last". A
        text that never fills its moving mean has the mean of all its pieces.
        """
        out, first, m = np.empty((len(length), scores.shape[1])), np.cumsum(length) - length, scores.shape[1]
        for at in _blocks(length, m):
            place = np.arange(length[at].max())
            there = place < length[at][:, None]
            new = scores[np.where(there, first[at][:, None] + place, 0)].transpose(0, 2, 1)  # (texts, m, pieces)
            after = Running(self, len(at) * m).read(np.arange(len(at) * m), new.reshape(len(at) * m, -1))
            found = np.where(there[:, None], after.reshape(new.shape), -np.inf).max(2)
            if self.name == "rolling" and (short := length[at] < self.pieces).any():
                total = np.cumsum(new[short], 2, dtype=np.float64)
                found[short] = total[np.arange(len(total)), :, length[at][short] - 1] / length[at][short][:, None]
            out[at] = found
        return out


def _blocks(length: np.ndarray, m: int) -> Iterator[np.ndarray]:
    """Numbers of texts of about the same length (at most twice another's), as many as memory takes at a time."""
    size = np.frexp(length)[1]
    for one in np.unique(size):
        at = np.flatnonzero(size == one)
        step = max(1, BLOCK // (int(length[at].max()) * m))
        yield from (at[start : start + step] for start in range(0, len(at), step))


class Running:
    """The rule's score of each of n texts, piece by piece; that of a moving mean is -inf until its pieces are there.

    Parameters
    ----------
    rule : Score
        The rule; not "last".
    texts : int
        n.
    """

    def __init__(self, rule: Score, texts: int) -> None:
        self.rule, self.count = rule, np.zeros(texts, dtype=np.int64)
        self.value = np.full(texts, -np.inf if rule.name == "max" else 0.0)
        self.recent = np.empty((texts, 0))  # of a moving mean the last pieces, as many as have come

    def read(self, at: np.ndarray, new: np.ndarray) -> np.ndarray:
        """The scores of the texts ``at`` after each of p further pieces, float64 (k, p).

        Parameters
        ----------
        at : np.ndarray
            Int (k,), different texts.
        new : np.ndarray
            Float (k, p), the scores of the pieces.
        """
        rule, new, before = self.rule, np.asarray(new, dtype=np.float64), self.value[at][:, None]
        count = self.count[at][:, None] + np.arange(1, new.shape[1] + 1)
        self.count[at] += new.shape[1]
        if rule.name == "rolling":
            return np.where(count < rule.pieces, -np.inf, self._moving(at, new))
        if rule.name == "max":
            now = np.maximum(np.maximum.accumulate(new, 1), before)
        elif rule.name == "ema":
            from scipy.signal import lfilter

            start = rule.decay * np.where(count[:, :1] == 1, new[:, :1], before)
            now = lfilter([1 - rule.decay], [1, -rule.decay], new, 1, start)[0]
        elif rule.name == "cusum":  # the sum above its lowest point
            total = before + np.cumsum(new - rule.drift, 1)
            now = total - np.minimum(np.minimum.accumulate(total, 1), 0)
        else:
            now = before + np.cumsum(new, 1)
        self.value[at] = now[:, -1]
        return now / count if rule.name == "mean" else now

    def _moving(self, at: np.ndarray, new: np.ndarray) -> np.ndarray:
        """The mean of each piece and those before it, as many as the rule says; of fewer, their sum over as many."""
        pieces, known = self.rule.pieces, self.recent.shape[1]
        both = np.concatenate([self.recent[at], new], 1)
        wide = min(pieces - 1, int(self.count.max(initial=0)))  # at most known + p, where p are new
        if wide > known:
            self.recent = np.pad(self.recent, ((0, 0), (wide - known, 0)))
        self.recent[at] = both[:, both.shape[1] - wide :]
        total = np.cumsum(both, 1)
        total[:, pieces:] -= total[:, :-pieces].copy()
        return total[:, known:] / pieces
