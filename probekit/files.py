"""Where results go by default: ``data_cache/`` for caches, ``figures/`` for figures, below the working directory."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["DATA_CACHE", "FIGURES", "cache_path", "slug"]

DATA_CACHE = Path("data_cache")
FIGURES = Path("figures")


def slug(text: str) -> str:
    """``text`` as part of a file name: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.") or "unnamed"


def cache_path(task: str, split: str, model: str, spec_id: str, root: Path = DATA_CACHE) -> Path:
    """The default path of a cache: task, split, model and the first eight digits of its spec_id."""
    return root / f"{slug(task)}.{slug(split)}.{slug(model)}.{spec_id[:8]}.h5"
