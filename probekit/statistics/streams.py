"""Random numbers by key: those of a key and a seed are the same whichever other keys there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

STEP, MIX = np.uint64(0x9E3779B97F4A7C15), (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def uniform(keys: np.ndarray, start: int, stop: int, seed: Sequence[int]) -> np.ndarray:
    """Numbers start … stop - 1 of the streams of some keys, float64 between 0 and 1, (stop - start, keys).

    SplitMix64 (Steele, Lea & Flood 2014), a stream for each key and seed.

    keys : uint64 (units,), hashes, so that streams start at random places.
    """
    own = keys
    for part in seed:
        own = _mixed(own ^ _mixed(np.array([part], dtype=np.uint64) + STEP))
    numbers = own + np.arange(start + 1, stop + 1, dtype=np.uint64)[:, None] * STEP
    return ((_mixed(numbers) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mixed(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * MIX[0]
    z = (z ^ (z >> np.uint64(27))) * MIX[1]
    return np.asarray(z ^ (z >> np.uint64(31)))
