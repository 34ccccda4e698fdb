"""Rows as files: Parquet or CSV, written atomically, with an evidence card next to them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.calls import checked
from probekit.errors import DataError, UsageError, reading
from probekit.files import FileKind, check_folder, digest_of_content, whole
from probekit.parquet import open_parquet
from probekit.recipe import Json, Read
from probekit.rows.card import CARD_FILE, card_path, describes, find_card, read_card, reads_of
from probekit.rows.examples import EXAMPLES_FILE, examples_of, examples_path, told_by
from probekit.rows.model_names import rows_apart
from probekit.rows.schema import NEEDED, TEXT, make_rows
from probekit.rows.upgrade import is_old, upgrade

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".parquet", ".csv")
"""Of files of rows."""

log = logging.getLogger(__name__)


def check_out(path: Path | None, reads: Json = None) -> None:
    """Raise UsageError, before the computation, if no file of rows can be written at ``path``.

    Parameters
    ----------
    path
        The path for the rows; None if they are not written.
    reads
        The arguments of a recipe: the files that they name are inputs and must not be replaced, nor the examples of
        rows.
    """
    if path is None:
        return
    if path.is_dir():
        raise UsageError(
            f"--out is {str(path)!r}, a folder; it must be a file that ends in .parquet or .csv, such as "
            f"{path / 'rows.parquet'}."
        )
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--out is {str(path)!r}; it must end in .parquet or .csv.")
    for place in (path, *saved_examples(path)) if path.is_file() else ():
        if any(_is_at(place, read) for read in _named(reads)):
            raise UsageError(f"{place} is an input; choose another --out.")
    _check_replaceable(path)
    check_folder(path.parent)


def _is_at(place: Path, named: str) -> bool:
    """Whether ``named`` is the file at ``place``, or the run whose rows are there."""
    for candidate in (Path(named), Path(named) / "rows.parquet"):
        with suppress(OSError, ValueError):
            if place.samefile(candidate):
                return True
    return False


def _named(reads: Json) -> Iterator[str]:
    """The strings among the arguments of a recipe and of nested recipes; some are paths."""
    if isinstance(reads, str):
        yield reads
    elif isinstance(reads, dict):
        inner = reads.get("recipe")
        yield from _named(inner.get("arguments") if isinstance(inner, dict) else list(reads.values()))
    elif isinstance(reads, list):
        for item in reads:
            yield from _named(item)


ROWS_FILE = FileKind(
    "a file of rows that matches its evidence card",
    describes,
    "choose another name for the rows, or delete that file if nobody needs it",
)


def _check_replaceable(path: Path) -> None:
    """Raise UsageError if a file that probekit did not write is in the place of rows, their card or examples."""
    CARD_FILE.check(card_path(path))
    ROWS_FILE.check(path)
    for examples in {examples_path(path), *examples_of(path)}:
        EXAMPLES_FILE.check(examples)


def card_of(path: Path) -> dict[str, Any]:
    """The evidence card of the rows at ``path``; {} if there is none."""
    try:
        return read_card(path)
    except DataError:
        return {}


def saved_examples(path: Path) -> list[Path]:
    """The files of examples of the result that is saved at ``path``; [] if that file is missing."""
    with suppress(DataError):
        return told_by(card_of(path), examples_of(path)) if path.exists() else []
    return []


@checked
def write_rows(rows: Any, path: str | Path, card: Mapping[str, Any]) -> Path:
    """Write ``rows`` as Parquet, or CSV by suffix, and ``card`` (see :mod:`probekit.rows.card`) as JSON next to them.

    Both files are written atomically, the card last; the card stores the number of rows and the xxh3 digest of their
    file, which shows that the two belong together. Returns ``path``.

    Raises
    ------
    UsageError
        If the suffix is neither .parquet nor .csv.
    DataError
        If ``rows`` are not valid rows.
    """
    path, rows = Path(path), make_rows(as_rows(rows))
    writers: dict[str, Callable[[Path], None]] = {
        ".parquet": lambda to: rows.to_parquet(to, index=False, write_page_checksum=True),
        ".csv": lambda to: rows.to_csv(to, index=False),
    }
    writer = writers.get(path.suffix)
    if writer is None:
        raise UsageError(f"rows must be written as .parquet or .csv, not {path.suffix!r} ({path}).")
    _check_replaceable(path)
    with whole(card_path(path), CARD_FILE) as new_card, whole(path, ROWS_FILE) as new:
        writer(new)
        about_rows = {"file": path.name, "count": len(rows), "xxh3_128": digest_of_content(new)}
        body = {"rows": about_rows, **{key: value for key, value in card.items() if key != "rows"}}
        new_card.write_text(json.dumps(body, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    return path


@checked
def read_rows(*paths: str | Path) -> pd.DataFrame:
    """The rows alone of all files (Parquet or CSV), as one DataFrame; a file that no longer fits its card is warned of.

    Models of one name that have other weights, by the cards, are told apart.

    Raises
    ------
    DataError
        If a file has no valid rows; the message names it.
    """
    if not paths:
        raise UsageError("there is no file of rows; give one or more.")
    return _read(Path(paths[0])) if len(paths) == 1 else as_rows(list(paths))


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    if path.suffix in {".h5", ".hdf5"}:
        raise DataError(
            f"this is an activation cache, and rows (results) are needed. Make them: probekit probe {path.name} DEV.h5 "
            "--out rows.parquet, and give rows.parquet.",
            file=path,
        )
    if path.suffix not in SUFFIXES:
        raise DataError(f"rows must be .parquet or .csv, not {path.suffix!r}.", file=path)
    if not path.is_file():
        raise DataError("does not exist; expected a file of rows.", file=path)
    if (card := find_card(path)) is not None and not describes(path):
        log.warning("%s has changed since %s was written: its numbers are not those of the analysis.", path, card.name)
    try:
        if path.suffix == ".parquet":
            with open_parquet(path):
                return _upgraded(pd.read_parquet(path, page_checksum_verification=True))
        text = dict.fromkeys((*TEXT, "layer_name"), "str")  # only an empty cell is missing: a task may be called "NA"
        with reading(path, "csv"):
            return _upgraded(
                pd.read_csv(path, dtype=text, keep_default_na=False, na_values=[""], float_precision="round_trip")
            )
    except DataError as error:
        raise error if error.file else DataError(str(error), file=path) from None


def _upgraded(rows: pd.DataFrame) -> pd.DataFrame:
    return make_rows(upgrade(rows) if is_old(rows) and set(NEEDED) <= set(rows.columns) else rows)


def as_rows(given: Any) -> pd.DataFrame:
    """Rows from a DataFrame, a :class:`probekit.rows.Result`, the path of a file, or a list of these."""
    import pandas as pd

    if isinstance(given, pd.DataFrame):
        return given
    if isinstance(rows := getattr(given, "rows", None), pd.DataFrame):
        return rows
    if isinstance(given, list | tuple):
        if not given:
            raise UsageError("there are no rows in an empty list; give a DataFrame, a Result or a file of rows.")
        try:
            return make_rows(pd.concat(rows_apart(list(_with_reads(given))), ignore_index=True))
        except RecursionError:
            raise UsageError("the list of rows holds itself; give DataFrames, Results or files of rows.") from None
    if hasattr(given, "__fspath__") or isinstance(given, str):
        return read_rows(given)
    raise UsageError(f"expected a DataFrame, a Result or a file of rows, got {type(given).__name__}.")


def _with_reads(given: Iterable[Any]) -> Iterator[tuple[pd.DataFrame, Sequence[Read]]]:
    """The rows of each item, and what they were made of, as far as that is known."""
    for item in given:
        if isinstance(item, list | tuple):
            yield from _with_reads(item)
        elif isinstance(item, str | Path):
            reads: Sequence[Read] = ()
            with suppress(KeyError, TypeError, AttributeError):  # a stranger's card
                reads = reads_of(card_of(Path(item)))
            yield as_rows(item), reads
        else:
            yield as_rows(item), getattr(item, "reads", ())
