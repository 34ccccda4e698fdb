"""What a page is made of: files of rows with their evidence cards, figures, texts, or a folder that holds them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import DataError, UsageError
from probekit.rows import read_card, read_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Source", "find", "read"]


@dataclass(frozen=True, slots=True)
class Source:
    """A file of rows. ``card`` is empty where there is none to trust, and ``doubt`` says why."""

    path: Path
    rows: pd.DataFrame
    card: dict[str, Any]
    doubt: str = ""


def find(given: Iterable[Path]) -> tuple[list[Path], list[Path], list[Path]]:
    """Files of rows, figures and texts, each once, in the order given; of a folder, sorted by name.

    A folder is that of a study (``rows/*.parquet``, ``figures/*.svg``, ``tables/*.md``; the ``rows.parquet`` of its
    ``runs/`` where no file in ``rows/`` is there) or of a training run (``rows.parquet``).
    Raises UsageError for a folder that holds no rows and for nothing given.
    """
    rows: list[Path] = []
    figures: list[Path] = []
    texts: list[Path] = []
    for path in map(Path, given):
        if not path.is_dir():
            rows.append(path)
            continue
        own = _rows_of(path)
        if not own:
            raise UsageError(
                f"{path} is a folder without rows; wanted are files of rows (.parquet, .csv), or a study's folder with "
                "rows/*.parquet in it."
            )
        rows += own
        figures += sorted((path / "figures").glob("*.svg"))
        texts += sorted((path / "tables").glob("*.md"))
    if not rows:
        raise UsageError("no file of rows was given; probekit probe, mi, train … write some with --out.")
    return _once(rows), figures, texts


def _rows_of(folder: Path) -> list[Path]:
    for pattern in ("rows/*.parquet", "rows/*.csv", "rows.parquet", "runs/*/rows.parquet"):
        if found := sorted(p for p in folder.glob(pattern) if not p.name.endswith(".examples.parquet")):
            return found
    return []


def _once(paths: Sequence[Path]) -> list[Path]:
    return list({path.resolve(): path for path in reversed(paths)}.values())[::-1]


def read(path: Path) -> Source:
    """The rows at ``path`` and their card. Raises DataError for a file that holds no rows; a card may be missing."""
    rows = read_rows(path)
    try:
        card, doubt = read_card(path), ""
    except DataError as error:  # the message begins with the whole path, which the page shows anyway
        card, doubt = {}, str(error).removeprefix(f"{error.file}: ")
    except AttributeError:  # a list or a number, which has no entries
        card, doubt = {}, f"the evidence card beside {path.name} is no JSON object."
    except (OSError, ValueError) as error:
        card, doubt = {}, f"the evidence card beside {path.name} cannot be read as UTF-8 JSON ({error})."
    return Source(path, rows, card, doubt)
