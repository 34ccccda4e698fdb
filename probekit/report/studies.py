"""The sources of a page: files of rows with their evidence cards, and folders of studies with their contents."""

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
from probekit.rows.files import SUFFIXES

if TYPE_CHECKING:
    import pandas as pd

ROWS = ("rows/*.parquet", "rows/*.csv", "runs/*/rows.parquet")
"""The files of rows in the folder of a study."""
FAILED = re.compile(r"probekit: |\w*(Error|Exception): ")
"""The beginning of the last line of a log if the command failed."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file of rows. ``card`` is empty without a valid card, and ``doubt`` gives the reason."""

    path: Path
    rows: pd.DataFrame
    card: dict[str, Any]
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """The content of a study's figure: its kind, its files, its metric ("" for the main one)."""

    kind: str
    rows: frozenset[str]
    metric: str = ""
    transfer: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """A figure or a text, with the command that reproduces it and its content, if known."""

    path: Path
    words: tuple[str, ...] = ()
    plot: Plot | None = None


@dataclass(slots=True)
class Part:
    """A part of the page: a study, or the files without a study.

    Attributes
    ----------
    undone : list[str], optional
        The missing steps of the study, with reasons.
    outdated : int, default 0
        Number of files in the study's folder that none of its current steps wrote.
    """

    title: str = ""
    about: str = ""
    rows: list[Path] = field(default_factory=list)
    figures: list[Made] = field(default_factory=list)
    texts: list[Made] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    outdated: int = 0


def find(given: Iterable[Path]) -> list[Part]:
    """The parts of a page: one for each study's folder, in the given order, and one for all other files.

    A study's folder contains ``rows/*.parquet`` or ``runs/*/rows.parquet``, ``figures/*.svg``, ``tables/*.md``, and
    the runner's records ``steps/*.json``, ``logs/*.log`` and ``study.json``. If there is a ``study.json``, files that
    none of its steps wrote are ignored: they are from an earlier version of the study.
    A folder may also contain all of these directly, with the cards of its rows; a training run's folder contains
    ``rows.parquet``. A folder of such folders stands for them. No file is shown twice.

    Raises
    ------
    UsageError
        For a folder without rows, and if nothing is given.
    """
    parts, others, known = [], Part(), set[Path]()
    for path in map(Path, given):
        if not path.is_dir():
            others.rows.append(path)
            continue
        inside = [path] if _holds(path) else [p for p in sorted(path.iterdir()) if p.is_dir() and _holds(p)]
        if not inside:
            raise UsageError(
                f"{path} is a folder without rows; expected files of rows (.parquet, .csv), a study's folder with "
                "rows/*.parquet, or a folder of these."
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
        raise UsageError("expected at least one file of rows; probekit probe, mi, train … write one with --out.")
    return parts


def read(path: Path) -> Source:
    """The rows at ``path`` and their card, which may be missing. Raises DataError for a file without rows."""
    rows = read_rows(path)
    try:
        card, doubt = read_card(path), ""
    except DataError as error:  # the message begins with the whole path, which the page shows anyway
        card, doubt = {}, str(error).removeprefix(f"{error.file}: ")
    except AttributeError:  # a list or a number
        card, doubt = {}, f"the evidence card of {path.name} is not a JSON object."
    except (OSError, ValueError) as error:
        card, doubt = {}, f"the evidence card of {path.name} cannot be read as UTF-8 JSON ({error})."
    return Source(path, rows, card, doubt)


def _holds(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("rows.parquet", "study.json")) or bool(_rows(folder))


def _rows(folder: Path) -> list[Path]:
    """The files of rows of a study, in its subfolders or else directly in the folder."""
    found = [path for pattern in ROWS for path in sorted(folder.glob(pattern))]
    found = found or [p for p in sorted(folder.glob("*")) if p.suffix in SUFFIXES and find_card(p)]
    return [path for path in found if not path.name.endswith(".examples.parquet")]


def _study(folder: Path) -> Part:
    rows = _rows(folder)
    flat = any(path.parent == folder for path in rows)
    study, records = _json(folder / "study.json"), [_json(p) for p in sorted((folder / "steps").glob("*.json"))]
    steps = [] if flat else [step for step in study.get("steps", []) if isinstance(step, dict)]
    order = {str(step.get("step")): i for i, step in enumerate(steps)}
    if steps:
        records = [record for record in records if str(record.get("step")) in order]
    records.sort(key=lambda record: order.get(str(record.get("step")), len(order)))
    left = {folder / leaf: i for i, record in enumerate(records) for leaf in _left(record)}
    figures, texts = (
        sorted((folder if flat else folder / section).glob(f"*{suffix}"))
        for section, suffix in (("figures", ".svg"), ("tables", ".md"))
    )
    texts = [path for path in texts if path.with_suffix(".svg") not in figures]  # without captions
    outdated = {path for path in (*rows, *figures, *texts) if path not in left} if steps else set[Path]()
    rows = sorted((path for path in rows if path not in outdated), key=lambda path: left.get(path, len(left)))
    return Part(
        str(study.get("title") or _title(records) or folder.resolve().name),
        " ".join(str(study.get("about", "")).split()),
        rows,
        _made(folder, [path for path in figures if path not in outdated], rows, records),
        _made(folder, [path for path in texts if path not in outdated], rows, records),
        list(_undone(folder, steps, records)),
        len(outdated),
    )


def _title(records: Sequence[Mapping[str, Any]]) -> str:
    """The title of the page that the study wrote itself."""
    report: Mapping[str, Any] = next((r for r in records if r.get("step") == "report"), {})
    recipe = report.get("recipe")
    arguments = recipe.get("arguments", {}) if isinstance(recipe, dict) else {}
    return str(arguments.get("title") or dict(pairwise(_words(report))).get("--title", ""))


def _made(
    folder: Path, paths: Sequence[Path], rows: Sequence[Path], records: Sequence[Mapping[str, Any]]
) -> list[Made]:
    """The files that recorded steps wrote, in the order of the steps, with their commands; then others, by name.

    A record has the folder's path at the time of the step; the commands get its current path, without rows that were
    missing then.
    """
    found: dict[Path, Made] = {}
    for record in records:
        words = _words(record)
        for leaf in _left(record):
            if (folder / leaf) in paths:
                root = next((w[: -len(leaf)] for w in words if w.endswith(f"/{leaf}")), "")
                here = [folder / w.removeprefix(root) if root and w.startswith(root) else w for w in words]
                given = [w for before, w in pairwise(here) if isinstance(w, Path) and not str(before).startswith("--")]
                gone = {str(w) for w in given if w.suffix in SUFFIXES and w not in rows}
                command = tuple(w for w in map(str, here) if w not in gone)
                found[folder / leaf] = Made(folder / leaf, command, _plot(record, command, root, folder))
    return [*found.values(), *(Made(path) for path in paths if path not in found)]


def _plot(record: Mapping[str, Any], words: Sequence[str], root: str, folder: Path) -> Plot | None:
    """The plot that a step drew, from its recipe; from its command in old records without recipes."""
    recipe = record.get("recipe")
    if isinstance(recipe, dict):
        given = {**recipe.get("defaults", {}), **recipe.get("arguments", {})}
        if recipe.get("function") != "plot":
            return None
        named = [str(row) for row in given.get("rows") or ()]
        rows = [str(folder / row.removeprefix(root)) if root and row.startswith(root) else row for row in named]
        return Plot(str(given.get("kind")), frozenset(rows), given.get("metric") or "", bool(given.get("transfer")))
    if tuple(words[:2]) != ("probekit", "plot"):
        return None
    kind, *options = words[2:]
    rows = [str(Path(word)) for word in options if Path(word).suffix in SUFFIXES]
    return Plot(kind, frozenset(rows), dict(pairwise(options)).get("--metric", ""), "--transfer" in options)


def _undone(folder: Path, steps: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Steps without a record, with the last line of their log; and steps done without some of their inputs.

    steps : those of ``study.json``, in their order; without it, those with a log. Logs older than ``study.json`` are
        ignored: they are from an earlier run.
    """
    done = {slug(str(record.get("step"))) for record in records}
    known = {slug(str(step.get("step"))): step for step in steps}
    logs = {path.name.removesuffix(".log"): path for path in sorted((folder / "logs").glob("*.log"))}
    if steps:
        began = (folder / "study.json").stat().st_mtime_ns
        logs = {name: path for name, path in logs.items() if path.stat().st_mtime_ns >= began}
    for name in known or logs:
        if name in done or name == "report":  # the report is being written now
            continue
        why = str(known.get(name, {}).get("error") or "not started, or an input is missing")
        if name in logs and "error" not in known.get(name, {}):
            last = logs[name].read_text("utf-8", "replace").strip().rpartition("\n")[2].strip()
            ended = f"; its log ends with: {last}" if last else ""
            why = last.removeprefix("probekit: ") if FAILED.match(last) else f"started, but not finished{ended}"
        yield f"{name}: {why}"
    for record in records:
        digest, name, lacking = str(record.get("digest")), str(record.get("step")), record.get("without") or ()
        if digest.startswith("without "):  # the form in old records
            lacking = re.findall("'([^']*)'", digest)
        if lacking and name != "report":
            yield f"{slug(name)}: done without {', '.join(map(str, lacking))}"


def _left(record: Mapping[str, Any]) -> list[str]:
    """The files that a step wrote, relative to the study's folder."""
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
