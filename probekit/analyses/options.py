"""Options that several analyses share."""

from __future__ import annotations

from dataclasses import dataclass

from probekit.recipe import option

__all__ = ["VectorOptions"]


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """Which vectors of a cache are looked at."""

    pooling: str | None = option(None, "Which sentence vectors; the caches' first without it.")
    layers: tuple[int | str, ...] | None = option(
        None, "Some of the layers, with commas: 0,6,final_norm; -1 is the last."
    )
