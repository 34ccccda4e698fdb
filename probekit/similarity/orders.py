"""Which permutations make up the null distribution, so that p is exact.

Rows of one side are exchanged against the other side's: whole layers keep their spectra and their nearness to each
other, only the pairing of the two sides is destroyed. Clusters of rows move as a whole, to places of clusters of the
same size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOVED = ((0.999, 1), (0.9, 2), (0.75, 10), (0.5, 20))
"""Shares of the rows that are in cycles, the most if it can be had, and the cosets that are needed then: the other rows
move only from coset to coset, so p of what they alone share is at least 1 / cosets."""
LONGEST = 1.5  # cycles are at most this many times longer than needed
SQUARE = 1000
SHORTEST = 16  # shorter cycles, or shorter than n / 50, need more products than random permutations


@dataclass(frozen=True, eq=False, slots=True)
class Cycles:
    """Permutations that form cosets of a cyclic group: position t of each class moves to t + s, for s = 0 … m - 1.

    Rows that fit into no class, since few clusters have their size, stay during a cycle.

    The observed order is one element of the first coset. Under the null hypothesis every other coset, that of a
    random order, is as likely as the first, and within a coset every shift is as likely as none, so the observed
    statistic is a random one of all (Hemerik & Goeman 2018, theorem 2; Ramdas et al. 2023).

    Attributes
    ----------
    classes : ndarray
        int (g, m): the rows of each class, on the side that stays.
    cosets : ndarray
        int (R, g, m): the rows of the other side that begin opposite to them; the first is ``classes``.
    rest, rests : ndarray
        int (r,) and (R, r): the other rows, and those of the other side opposite to them.
    """

    classes: np.ndarray
    cosets: np.ndarray
    rest: np.ndarray
    rests: np.ndarray

    @property
    def draws(self) -> int:
        """Permutations other than the observed order."""
        return self.cosets.shape[0] * self.cosets.shape[2] - 1

    @property
    def fixed(self) -> int:
        """The first permutations, from the observed order on, that leave the rest where it is, if later ones do not."""
        return self.cosets.shape[2] if len(self.rest) and len(self.cosets) > 1 else 0


@dataclass(frozen=True, eq=False, slots=True)
class Exchange:
    """Rows that can be exchanged.

    Attributes
    ----------
    n : int
        Number of rows.
    places : list of ndarray
        For each cluster size z, (clusters, z) rows.
    """

    n: int
    places: list[np.ndarray]

    @property
    def moving(self) -> int:
        """Rows in clusters that have another one of their size."""
        return sum(p.size for p in self.places if len(p) > 1)

    def random(self, draws: int, rng: np.random.Generator) -> np.ndarray:
        """Random permutations, int (draws, n): row i is paired with row ``[i]`` of the other side."""
        out = np.empty((draws, self.n), dtype=np.int64)
        for order in out:
            for place in self.places:
                order[place] = place[rng.permutation(len(place))]
        return out

    def cycles(self, draws: int, rng: np.random.Generator) -> Cycles | None:
        """Cycles for so many draws or more; None if the clusters are too unlike for them."""
        length, fewest = self._length(draws + 1)
        if not length:
            return None
        found = [self._arranged(length, rng)]
        while len(found) < fewest or len(found) * length < draws + 1:
            found.append(self._arranged(length, rng))
        cosets, rests = (np.stack(part) for part in zip(*found, strict=True))
        return Cycles(cosets[0], cosets, rests[0], rests)

    def _arranged(self, length: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """All rows in random order: in classes of a length (g, length), and those that are left over."""
        places = [place[rng.permutation(len(place))] for place in self.places]
        cuts = [len(place) // length * length for place in places]
        parts = [p[:cut].reshape(-1, length, p.shape[1]) for p, cut in zip(places, cuts, strict=True)]
        classes = [part.swapaxes(1, 2).reshape(-1, length) for part in parts]  # z classes for clusters of size z
        return np.concatenate(classes), np.concatenate([p[cut:].ravel() for p, cut in zip(places, cuts, strict=True)])

    def _length(self, wanted: int) -> tuple[int, int]:
        """The best length of cycles, and the fewest cosets; 0 if there is none.

        It leaves out few rows, is long, and quick to transform.
        """
        counts = [(len(p), p.shape[1]) for p in self.places]
        wanted = max(wanted, min(self.n, SQUARE))  # more draws cost nothing, smaller matrices do
        longest = min(int(LONGEST * wanted), max(c for c, _ in counts))
        shortest = max(1, self.n // 50, min(SHORTEST, longest))
        lengths = np.arange(shortest, longest + 1)
        moved = sum((c // lengths) * lengths * z for c, z in counts) / self.n
        for share, cosets in MOVED:
            best = wanted / cosets
            if len(able := lengths[(moved >= share) & (lengths <= max(LONGEST * best, shortest))]):
                return _best_length(able.tolist(), best), cosets
        return 0, 0


def _best_length(lengths: list[int], wanted: float) -> int:
    """The length nearest to what is wanted; of those that reach it, the shortest that is quick to transform."""
    from scipy.fft import next_fast_len

    return max(lengths, key=lambda m: (min(m / wanted, 1.0), next_fast_len(m, real=True) == m, -m))


def exchange(groups: np.ndarray | None, n: int) -> Exchange:
    """What can be exchanged among n rows with cluster codes ``groups`` (n,), or None if each row is a cluster."""
    if groups is None:
        return Exchange(n, [np.arange(n)[:, None]])
    order = np.argsort(groups, kind="stable")
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    clusters = np.split(order, cuts)
    sizes = np.array([len(c) for c in clusters])
    return Exchange(n, [np.stack([clusters[i] for i in np.flatnonzero(sizes == z)]) for z in np.unique(sizes)])


def choose_rows(n: int, groups: np.ndarray | None, most: int | None, rng: np.random.Generator) -> np.ndarray:
    """Positions of at most ``most`` rows, ascending: whole clusters, in random order, while they fit."""
    if most is None or n <= most:
        return np.arange(n)
    if groups is None:
        return np.sort(rng.permutation(n)[:most])
    _, code, size = np.unique(groups, return_inverse=True, return_counts=True)
    order = rng.permutation(len(size))
    fits = np.zeros(len(size), dtype=bool)
    left = most
    for cluster in order:
        if size[cluster] <= left:
            fits[cluster] = True
            left -= size[cluster]
    return np.flatnonzero(fits[code])
