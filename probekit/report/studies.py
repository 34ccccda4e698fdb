"""What a page is made of: files of rows with their evidence cards, and the folders of studies, with all they hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import DataError, UsageError
from probekit.files import read_json, slug
from probekit.rows import find_card, read_card, read_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Made", "Part", "Plot", "Source", "find", "read"]

ROWS = ("rows/*.parquet", "rows/*.csv", "runs/*/rows.parquet")
"""Where the folder of a study has its rows."""
FAILED = re.compile(r"probekit: |\w*(Error|Exception): ")
"""How the last line of a log begins where a command failed."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file of rows. ``card`` is empty where there is none to trust, and ``doubt`` says why."""

    path: Path
    rows: pd.DataFrame
    card: dict[str, Any]
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """What a figure of a study shows: its kind, of files, of a metric ("" for the main one)."""

    kind: str
    rows: frozenset[str]
    metric: str = ""
    transfer: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """A figure or a text, the words of the command that makes it again, and what it shows, as far as they are known."""

    path: Path
    words: tuple[str, ...] = ()
    plot: Plot | None = None


@dataclass(slots=True)
class Part:
    """What stands under one heading: a study, or the files that are of none.

    Attributes
    ----------
    undone : list[str], optional
        What is missing of the study, and why.
    outdated : int, default 0
        How many files lie in the study's folder that none of its steps left.
    """

    title: str = ""
    about: str = ""
    rows: list[Path] = field(default_factory=list)
    figures: list[Made] = field(default_factory=list)
    texts: list[Made] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    outdated: int = 0


def find(given: Iterable[Path]) -> list[Part]:
    """The parts of a page: one for each study's folder, in the order given, and one for all else, where there is any.

    A study's folder holds ``rows/*.parquet`` or ``runs/*/rows.parquet``, beside ``figures/*.svg``, ``tables/*.md``, and
    what its runner left: ``steps/*.json``, ``logs/*.log`` and ``study.json``. Where there is a ``study.json``, what
    none of its steps left is none of the study's: an earlier run left it, of other data or other steps.
    A folder may hold all of these directly, its rows with their cards; that of a training run holds ``rows.parquet``.
    A folder of such folders stands for them. No file is shown twice.

    Raises
    ------
    UsageError
        For a folder that holds no rows and for nothing given.
    """
    parts, others, known = [], Part(), set[Path]()
    for path in map(Path, given):
        if not path.is_dir():
            others.rows.append(path)
            continue
        inside = [path] if _holds(path) else [p for p in sorted(path.iterdir()) if p.is_dir() and _holds(p)]
        if not inside:
            raise UsageError(
                f"{path} is a folder without rows; wanted are files of rows (.parquet, .csv), a study's folder with "
                "rows/*.parquet in it, or a folder of these."
            )
        for folder in inside:
            if (folder / "rows.parquet").is_file():
                others.rows.append(folder / "rows.parquet")
            elif folder.resolve() not in known:
                parts.append(_study(folder))
            known.add(folder.resolve())
    parts, seen = [*parts, others], set[Path]()
    for part in parts:
        part.rows = list({path.resolve(): path for path in part.rows if path.resolve() not in seen}.values())
        seen |= {path.resolve() for path in part.rows}
    parts = [part for part in parts if part.rows or part.undone]
    if not parts:
        raise UsageError("no file of rows was given; probekit probe, mi, train … write some with --out.")
    return parts


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


def _holds(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("rows.parquet", "study.json")) or bool(_rows(folder))


def _rows(folder: Path) -> list[Path]:
    """The files of rows of a study, where it keeps them, or else directly in the folder."""
    found = [path for pattern in ROWS for path in sorted(folder.glob(pattern))]
    found = found or [p for p in sorted(folder.glob("*")) if p.suffix in (".parquet", ".csv") and find_card(p)]
    return [path for path in found if not path.name.endswith(".examples.parquet")]


def _study(folder: Path) -> Part:
    rows = _rows(folder)
    flat = any(path.parent == folder for path in rows)
    told, records = _json(folder / "study.json"), [_json(p) for p in sorted((folder / "steps").glob("*.json"))]
    steps = [] if flat else [step for step in told.get("steps", []) if isinstance(step, dict)]
    order = {str(step.get("step")): i for i, step in enumerate(steps)}
    if steps:
        records = [record for record in records if str(record.get("step")) in order]
    records.sort(key=lambda record: order.get(str(record.get("step")), len(order)))
    left = {folder / leaf for record in records for leaf in _left(record)}
    figures, texts = (
        sorted((folder if flat else folder / section).glob(f"*{suffix}"))
        for section, suffix in (("figures", ".svg"), ("tables", ".md"))
    )
    texts = [path for path in texts if path.with_suffix(".svg") not in figures]  # which are captions
    outdated = {path for path in (*rows, *figures, *texts) if path not in left} if steps else set[Path]()
    rows = [path for path in rows if path not in outdated]
    return Part(
        str(told.get("title") or _title(records) or folder.resolve().name),
        " ".join(str(told.get("about", "")).split()),
        rows,
        _made(folder, [path for path in figures if path not in outdated], rows, records),
        _made(folder, [path for path in texts if path not in outdated], rows, records),
        list(_undone(folder, steps, records)),
        len(outdated),
    )


def _title(records: Sequence[Mapping[str, Any]]) -> str:
    """Of the page that the study made itself."""
    own: Mapping[str, Any] = next((r for r in records if r.get("step") == "report"), {})
    recipe = own.get("recipe")
    told = recipe.get("arguments", {}) if isinstance(recipe, dict) else {}
    return str(told.get("title") or dict(pairwise(_words(own))).get("--title", ""))


def _made(
    folder: Path, paths: Sequence[Path], rows: Sequence[Path], records: Sequence[Mapping[str, Any]]
) -> list[Made]:
    """Those files that recorded steps left, in the order of the steps, with their commands; then others, by name.

    A record names files where the folder lay when the step was done; here they stand where it lies now, without rows
    that are not there, which it was done without.
    """
    found: dict[Path, Made] = {}
    for record in records:
        words = _words(record)
        for leaf in _left(record):
            if (folder / leaf) in paths:
                root = next((w[: -len(leaf)] for w in words if w.endswith(f"/{leaf}")), "")
                here = [folder / w.removeprefix(root) if root and w.startswith(root) else w for w in words]
                given = [w for before, w in pairwise(here) if isinstance(w, Path) and not str(before).startswith("--")]
                gone = {str(w) for w in given if w.suffix in (".parquet", ".csv") and w not in rows}
                told = tuple(w for w in map(str, here) if w not in gone)
                found[folder / leaf] = Made(folder / leaf, told, _plot(record, told, root, folder))
    return [*found.values(), *(Made(path) for path in paths if path not in found)]


def _plot(record: Mapping[str, Any], words: Sequence[str], root: str, folder: Path) -> Plot | None:
    """What a step drew: its recipe says it; of records of before there were recipes, the words of its command."""
    recipe = record.get("recipe")
    if isinstance(recipe, dict):
        told = {**recipe.get("defaults", {}), **recipe.get("arguments", {})}
        if recipe.get("function") != "plot":
            return None
        named = [str(row) for row in told.get("rows") or ()]
        rows = [str(folder / row.removeprefix(root)) if root and row.startswith(root) else row for row in named]
        return Plot(str(told.get("kind")), frozenset(rows), told.get("metric") or "", bool(told.get("transfer")))
    if tuple(words[:2]) != ("probekit", "plot"):
        return None
    kind, *rest = words[2:]
    rows = [str(Path(word)) for word in rest if Path(word).suffix in (".parquet", ".csv")]
    return Plot(kind, frozenset(rows), dict(pairwise(rest)).get("--metric", ""), "--transfer" in rest)


def _undone(folder: Path, steps: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Steps that no record says to be done, with the last words of their log; and those done without what they need.

    steps : as ``study.json`` names them, in their order; where there is none, those that left a log are known. What a
        log says that is older than ``study.json`` is of an earlier run.
    """
    done = {slug(str(record.get("step"))) for record in records}
    known = {slug(str(step.get("step"))): step for step in steps}
    logs = {path.name.removesuffix(".log"): path for path in sorted((folder / "logs").glob("*.log"))}
    if steps:
        began = (folder / "study.json").stat().st_mtime_ns
        logs = {name: path for name, path in logs.items() if path.stat().st_mtime_ns >= began}
    for name in known or logs:
        if name in done or name == "report":  # which is being written
            continue
        why = str(known.get(name, {}).get("error") or "it was not begun, or what it needs is missing")
        if name in logs and "error" not in known.get(name, {}):
            last = logs[name].read_text("utf-8", "replace").strip().rpartition("\n")[2].strip()
            ended = f"; its log ends with: {last}" if last else ""
            why = last.removeprefix("probekit: ") if FAILED.match(last) else f"it was begun, and is not done{ended}"
        yield f"{name}: {why}"
    for record in records:
        digest, name, lacking = str(record.get("digest")), str(record.get("step")), record.get("without") or ()
        if digest.startswith("without "):  # as records said it before they had a place for it
            lacking = re.findall("'([^']*)'", digest)
        if lacking and name != "report":
            yield f"{slug(name)}: made without {', '.join(map(str, lacking))}"


def _left(record: Mapping[str, Any]) -> list[str]:
    """The files that a step left, relative to the study's folder."""
    left = record.get("left")
    return list(left) if isinstance(left, dict) else []


def _words(record: Mapping[str, Any]) -> list[str]:
    command = record.get("command")
    return [str(word) for word in command] if isinstance(command, list) else []


def _json(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
