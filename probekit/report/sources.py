"""What a page is made of: files of rows with their evidence cards, and the folders of studies, with all they hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import DataError, UsageError
from probekit.paths import slug
from probekit.rows import read_card, read_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Made", "Part", "Source", "find", "read"]


@dataclass(frozen=True, slots=True)
class Source:
    """A file of rows. ``card`` is empty where there is none to trust, and ``doubt`` says why."""

    path: Path
    rows: pd.DataFrame
    card: dict[str, Any]
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """A figure or a text, and the words of the command that makes it again, where that is known."""

    path: Path
    words: tuple[str, ...] = ()


@dataclass(slots=True)
class Part:
    """What stands under one heading: a study, or the files that are of none.

    undone : what is missing of the study, and why
    """

    title: str = ""
    about: str = ""
    rows: list[Path] = field(default_factory=list)
    figures: list[Made] = field(default_factory=list)
    texts: list[Made] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)


def find(given: Iterable[Path]) -> list[Part]:
    """The parts of a page: one for each study's folder, in the order given, and one for all else, where there is any.

    A study's folder holds ``rows/*.parquet`` or ``runs/*/rows.parquet``, beside ``figures/*.svg``, ``tables/*.md``, and
    what its runner left: ``steps/*.json``, ``logs/*.log`` and ``study.json``. The folder of a training run holds
    ``rows.parquet``. No file is shown twice.
    Raises UsageError for a folder that holds no rows and for nothing given.
    """
    parts, others = [], Part()
    for path in map(Path, given):
        if not path.is_dir():
            others.rows.append(path)
        elif (path / "rows.parquet").is_file():
            others.rows.append(path / "rows.parquet")
        else:
            parts.append(_study(path))
    parts, seen = [*parts, others], set[Path]()
    for part in parts:
        part.rows = list({path.resolve(): path for path in part.rows if path.resolve() not in seen}.values())
        seen |= {path.resolve() for path in part.rows}
    parts = [part for part in parts if part.rows]
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


def _study(folder: Path) -> Part:
    patterns = ("rows/*.parquet", "rows/*.csv", "runs/*/rows.parquet")
    found = [p for pattern in patterns for p in sorted(folder.glob(pattern))]
    if not (rows := [p for p in found if not p.name.endswith(".examples.parquet")]):
        raise UsageError(
            f"{folder} is a folder without rows; wanted are files of rows (.parquet, .csv), or a study's folder with "
            "rows/*.parquet in it."
        )
    told, records = _json(folder / "study.json"), [_json(p) for p in sorted((folder / "steps").glob("*.json"))]
    steps = [step for step in told.get("steps", []) if isinstance(step, dict)]
    order = {str(step.get("step")): i for i, step in enumerate(steps)}
    records.sort(key=lambda record: order.get(str(record.get("step")), len(order)))
    report: list[str] = next((_words(r) for r in records if r.get("step") == "report"), [])
    title = str(told.get("title") or dict(pairwise(report)).get("--title", folder.name))
    return Part(
        title,
        " ".join(str(told.get("about", "")).split()),
        rows,
        _made(folder, "figures", ".svg", records),
        _made(folder, "tables", ".md", records),
        list(_undone(folder, steps, records)),
    )


def _made(folder: Path, kind: str, suffix: str, records: Sequence[dict[str, Any]]) -> list[Made]:
    """The files of one kind: those of recorded steps in their order, with their commands; then others, by name.

    A command names files where the folder lay when the step was done; here they stand where it lies now.
    """
    found: dict[Path, Made] = {}
    for record in records:
        left = record.get("left")
        for leaf in left if isinstance(left, dict) else ():
            if leaf.startswith(f"{kind}/") and leaf.endswith(suffix) and (folder / leaf).is_file():
                words = _words(record)
                root = next((w[: -len(leaf)] for w in words if w.endswith(f"/{leaf}")), "")
                here = tuple(str(folder / w.removeprefix(root)) if root and w.startswith(root) else w for w in words)
                found[folder / leaf] = Made(folder / leaf, here)
    return [*found.values(), *(Made(p) for p in sorted((folder / kind).glob(f"*{suffix}")) if p not in found)]


def _undone(folder: Path, steps: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Steps that no record says to be done, with the last words of their log; and those done without what they need.

    steps : as ``study.json`` names them, in their order; where there is none, those that left a log are known
    """
    done = {slug(str(record.get("step"))) for record in records}
    known = {slug(str(step.get("step"))): step for step in steps}
    logs = {path.name.removesuffix(".log"): path for path in sorted((folder / "logs").glob("*.log"))}
    for name in known or logs:
        if name in done or name == "report":  # which is being written
            continue
        said = logs[name].read_text("utf-8", "replace").strip().splitlines() if name in logs else []
        why = str(known.get(name, {}).get("error") or "") or (said[-1].removeprefix("probekit: ") if said else "")
        yield f"{name}: {why or 'it was not begun, or what it needs is missing'}"
    for record in records:
        digest, name = str(record.get("digest")), str(record.get("step"))
        if digest.startswith("without ") and name != "report":
            names = re.findall("'([^']*)'", digest)
            yield f"{slug(name)}: made without {', '.join(names)}"


def _words(record: dict[str, Any]) -> list[str]:
    command = record.get("command")
    return [str(word) for word in command] if isinstance(command, list) else []


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
