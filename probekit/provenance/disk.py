"""Files on disk: their sizes, whether they have changed, and the process that is writing them."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from probekit.files import draft_of, is_draft, read_json, writer_of
from probekit.models.identity import CARD, RUN_FORMAT
from probekit.rows import COLUMNS
from probekit.rows.card import is_card

PIECES = (".partial.zstd", ".partial.new", ".partial", ".journal")
"""Suffixes of a cache that is being made."""

MODEL_FILES = (
    *("config.json", CARD, "*.safetensors", ".tmp??????", "model.safetensors.index.json"),  # .tmp: of safetensors
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model"),
)
"""Files in the folder of a model or checkpoint."""


def cache_of(name: str) -> str:
    """The name of the cache that a file is or will be part of; "" for any other file."""
    for piece in PIECES:
        if name.endswith(f".h5{piece}"):
            return name.removesuffix(piece)
    return name if name.endswith(".h5") else ""


def pieces(cache: Path) -> list[Path]:
    """The files of a cache that is being made. Links do not count, nor other files with such a name."""
    paths = [cache.with_name(cache.name + piece) for piece in PIECES]
    return [p for p in paths if p.is_file() and not p.is_symlink() and _is_piece(p)]


def _is_piece(path: Path) -> bool:
    """Whether a file with the name of a piece is one: HDF5, its journal, or still empty."""
    try:
        with path.open("rb") as file:
            start = file.read(15)
    except OSError:  # gone meanwhile, or not for us to see
        return False
    return not start or start.startswith(b'{"structure": "' if path.name.endswith(".journal") else b"\x89HDF\r\n\x1a\n")


def trials_of(names: Mapping[str, Path]) -> list[Path]:
    """The storage of a search among files by name, with the journal by which SQLite undoes an unfinished change."""
    found = [names[name] for name in ("trials.db", "trials.db-journal") if name in names]
    try:
        with found[0].open("rb") as file:
            return found if file.read(16) in (b"", b"SQLite format 3\0") else []  # empty before its first change
    except (IndexError, OSError):  # there is none, or it is not for us to see
        return []


def written_by(path: Path) -> int | None:
    """The process that was to rename a temporary file; None for any other file.

    The name is not enough, because people may use such names: the content must be of the expected kind, too.
    """
    found = None if path.is_symlink() else writer_of(path.name)
    for pattern, ours in BESIDE.items():
        if found and re.fullmatch(pattern, found[0]):
            with suppress(OSError, ValueError):  # deleted, not readable, or not text
                if ours(path):
                    return found[1]
    return None


def _is_table(path: Path) -> bool:
    """Rows, examples or counts; or a Parquet file that is cut off before its schema."""
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
    content = read_json(path)
    return isinstance(content, dict) and content.get("format") == RUN_FORMAT


def _is_model(path: Path) -> bool:
    """A folder with the files of a model and nothing else; a draft that has its note; or that note."""
    if draft_of(path) is not None or is_draft(path):
        return True
    files = list(path.iterdir()) if path.is_dir() else []
    names = [f.name for f in files if f.is_file() and not f.is_symlink() and any(map(f.match, MODEL_FILES))]
    return len(names) == len(files) and any(name == "config.json" or name.endswith(".safetensors") for name in names)


BESIDE: Mapping[str, Callable[[Path], bool]] = {
    r".+\.parquet": _is_table,
    r".+\.csv": _is_csv,
    r".+\.(parquet|csv)\.json": is_card,
    re.escape(CARD): _is_run_card,
    r".+": _is_model,
}
"""Checks of temporary files, by a pattern of their final names."""


def state(path: Path) -> tuple[int, ...]:
    """Numbers that change when a file is written or replaced; empty if it does not exist."""
    try:
        status = path.lstat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def size_of(path: Path) -> int:
    """Bytes of a file, or of a folder with its contents. Links are not followed."""
    try:
        status = path.lstat()
        return sum(map(size_of, path.iterdir())) if stat.S_ISDIR(status.st_mode) else status.st_size
    except OSError:  # gone meanwhile, or not for us to see
        return 0
