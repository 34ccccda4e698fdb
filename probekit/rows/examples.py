"""The files beside rows that hold what was said of each example: their names, whose they are, what replaces them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from glob import escape
from pathlib import Path
from typing import Any

from probekit.errors import DataError
from probekit.files import FileKind, digest_of_content, parse_json

__all__ = ["EXAMPLES", "EXAMPLES_FILE", "EXAMPLES_FORMATS", "EXAMPLES_KEY", "examples_of", "examples_path", "told_by"]

EXAMPLES = ".examples.parquet"
EXAMPLES_KEY = b"probekit"
EXAMPLES_FORMATS = ("probekit-examples/2", "probekit-examples/1")
"""What the metadata of such a file hold under the key: today's, and that of before version 0.2."""


def _is_examples(path: Path) -> bool:
    from pyarrow.parquet import read_schema

    told = parse_json((read_schema(path).metadata or {})[EXAMPLES_KEY])
    return told["format"] in EXAMPLES_FORMATS


EXAMPLES_FILE = FileKind("a file of evaluated examples", _is_examples, "give the rows another name")


def _stem(rows: Path) -> str:
    """How the names of the files begin: X of X.parquet, X.csv of X.csv, so that the two share none."""
    return rows.stem if rows.suffix == ".parquet" else rows.name


def examples_path(rows: Path, middle: str = "") -> Path:
    """Where examples go beside ``rows``; middle : what tells several files apart."""
    return rows.with_name(f"{_stem(rows)}{middle and '.'}{middle}{EXAMPLES}")


def examples_of(rows: Path, stem: str | None = None) -> list[Path]:
    """The files of examples beside ``rows`` by their names, not those of a file of rows whose name begins alike.

    Parameters
    ----------
    stem
        How their names begin, where it is otherwise.
    """
    stem = _stem(rows) if stem is None else stem

    def belongs(examples: Path) -> bool:
        middle = examples.name.removeprefix(stem).removesuffix(EXAMPLES)
        other = middle == ".csv" or middle.startswith(".csv.") or rows.with_name(f"{stem}{middle}.parquet").exists()
        return not middle or (middle.startswith(".") and not other)

    return sorted(p for p in rows.parent.glob(f"{escape(stem)}*{EXAMPLES}") if belongs(p))


def told_by(card: Mapping[str, Any], found: Iterable[Path]) -> list[Path]:
    """The files of these whose digests a card holds; all where it is of a version that held none.

    Raises
    ------
    DataError
        There are others in their place.
    """
    told = card.get("examples")
    if not isinstance(told, list):
        return list(found)
    digests = {path: digest_of_content(path) for path in found}
    other = [path for path, one in digests.items() if one not in told]
    if other and set(told) - set(digests.values()):
        raise DataError("the evidence card tells of other examples. Make the rows again.", file=other[0])
    return [path for path in digests if path not in other]
