"""The files with the predictions for each example, next to rows: names, ownership and replacement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from glob import escape
from pathlib import Path
from typing import Any

from probekit.errors import DataError
from probekit.files import FileKind, digest_of_content, parse_json

EXAMPLES = ".examples.parquet"
EXAMPLES_KEY = b"probekit"
EXAMPLES_FORMATS = ("probekit-examples/2", "probekit-examples/1", "probekit-examples/3")
"""Formats in the metadata of such a file: the current one, that of versions before 0.2, and the current one for several
labels, which versions that take their means over "holds" and "does not hold" refuse."""


def _is_examples(path: Path) -> bool:
    from pyarrow.parquet import read_schema

    metadata = parse_json((read_schema(path).metadata or {})[EXAMPLES_KEY])
    return metadata["format"] in EXAMPLES_FORMATS


EXAMPLES_FILE = FileKind("a file of evaluated examples", _is_examples, "choose another name for the rows")


def _stem(rows: Path) -> str:
    """The beginning of the files' names: X for X.parquet but X.csv for X.csv, so that the two never collide."""
    return rows.stem if rows.suffix == ".parquet" else rows.name


def examples_path(rows: Path, middle: str = "") -> Path:
    """The path for examples next to ``rows``; middle : distinguishes several files."""
    return rows.with_name(f"{_stem(rows)}{middle and '.'}{middle}{EXAMPLES}")


def examples_of(rows: Path, stem: str | None = None) -> list[Path]:
    """The files of examples next to ``rows``, found by name; those of other rows with a similar name are left out.

    Parameters
    ----------
    stem
        The beginning of their names, if it differs.
    """
    stem = _stem(rows) if stem is None else stem

    def belongs(examples: Path) -> bool:
        middle = examples.name.removeprefix(stem).removesuffix(EXAMPLES)
        other = middle == ".csv" or middle.startswith(".csv.") or rows.with_name(f"{stem}{middle}.parquet").exists()
        return not middle or (middle.startswith(".") and not other)

    return sorted(p for p in rows.parent.glob(f"{escape(stem)}*{EXAMPLES}") if belongs(p))


def told_by(card: Mapping[str, Any], found: Iterable[Path]) -> list[Path]:
    """The files whose digests are in a card; all of them if the card's version has no digests.

    Raises
    ------
    DataError
        If other files have replaced them.
    """
    digests_in_card = card.get("examples")
    if not isinstance(digests_in_card, list):
        return list(found)
    digests = {path: digest_of_content(path) for path in found}
    unknown = [path for path, digest in digests.items() if digest not in digests_in_card]
    if unknown and set(digests_in_card) - set(digests.values()):
        raise DataError("the evidence card describes other examples. Compute the rows again.", file=unknown[0])
    return [path for path in digests if path not in unknown]
