"""Files as the disk knows them: their sizes, whether they have changed, and who is writing them."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from probekit.files import read_json, writer_of
from probekit.models.identity import CARD, RUN_FORMAT
from probekit.rows import COLUMNS
from probekit.rows.card import is_card

__all__ = ["cache_of", "pieces", "size_of", "state", "written_by"]

PIECES = (".partial.zstd", ".partial.new", ".partial", ".journal")
"""What follows the name of a cache while it is made."""

MODEL_FILES = (
    *("config.json", CARD, "*.safetensors", ".tmp??????", "model.safetensors.index.json"),  # .tmp: of safetensors
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model"),
)
"""What the folder of a model or of a checkpoint holds."""


def cache_of(name: str) -> str:
    """The name of the cache that a file is, or is a piece of in the making; "" of any other file."""
    for piece in PIECES:
        if name.endswith(f".h5{piece}"):
            return name.removesuffix(piece)
    return name if name.endswith(".h5") else ""


def pieces(cache: Path) -> list[Path]:
    """The files there are of the making of a cache. Links are none, nor what only has the name of one."""
    paths = [cache.with_name(cache.name + piece) for piece in PIECES]
    return [p for p in paths if p.is_file() and not p.is_symlink() and _is_piece(p)]


def _is_piece(path: Path) -> bool:
    """Whether what has the name of a piece is one: HDF5, or the journal of one, or empty as it is made."""
    try:
        with path.open("rb") as file:
            start = file.read(15)
    except OSError:  # gone meanwhile, or not for us to see
        return False
    return not start or start.startswith(b'{"structure": "' if path.name.endswith(".journal") else b"\x89HDF\r\n\x1a\n")


def written_by(path: Path) -> int | None:
    """The process that was to rename what lies here; None of anything else.

    The name alone says nothing, for people may keep what is theirs under such names: it must hold what is written under
    that name.
    """
    found = None if path.is_symlink() else writer_of(path.name)
    for pattern, ours in BESIDE.items():
        if found and re.fullmatch(pattern, found[0]):
            with suppress(OSError, ValueError):  # gone meanwhile, not for us to see, or no text
                if ours(path):
                    return found[1]
    return None


def _is_table(path: Path) -> bool:
    """Rows, examples or counts; or Parquet without its end, which says what it is."""
    from pyarrow import ArrowException, parquet

    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            return False
    try:
        schema = parquet.read_schema(path)
    except ArrowException:
        return True
    return b"probekit" in (schema.metadata or {}) or set(COLUMNS) <= set(schema.names)


def _is_csv(path: Path) -> bool:
    with path.open(encoding="utf-8") as file:
        return file.readline().startswith(",".join(COLUMNS))


def _is_run_card(path: Path) -> bool:
    told = read_json(path)
    return isinstance(told, dict) and told.get("format") == RUN_FORMAT


def _is_model(path: Path) -> bool:
    """A folder of the files of a model and of nothing else."""
    files = list(path.iterdir()) if path.is_dir() else []
    own = [f.name for f in files if f.is_file() and not f.is_symlink() and any(map(f.match, MODEL_FILES))]
    return len(own) == len(files) and any(name == "config.json" or name.endswith(".safetensors") for name in own)


BESIDE: Mapping[str, Callable[[Path], bool]] = {
    r".+\.parquet": _is_table,
    r".+\.csv": _is_csv,
    r".+\.(parquet|csv)\.json": is_card,
    re.escape(CARD): _is_run_card,
    r".+": _is_model,
}
"""What is written beside, by the name that it is to have, and whether that is what lies there."""


def state(path: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced; empty where it is gone."""
    try:
        status = path.lstat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def size_of(path: Path) -> int:
    """Bytes of a file, or of a folder with all that is in it. Links are not followed."""
    try:
        status = path.lstat()
        return sum(map(size_of, path.iterdir())) if stat.S_ISDIR(status.st_mode) else status.st_size
    except OSError:  # gone meanwhile, or not for us to see
        return 0
