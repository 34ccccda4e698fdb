"""Statements, true and false or of a person with some trait, and names of places and works with where and when."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import xxhash

from probekit.errors import DataError, UsageError
from probekit.tasks.datasets.published import dataset, divided, examples_in, files_of, rows_in
from probekit.tasks.datasets.sources import locate
from probekit.tasks.files.columns import Rows
from probekit.tasks.files.description import Dataset
from probekit.tasks.folders import task_folders
from probekit.tasks.task import Example, Task

Root = str | Path | None
TRAIN_SHARE, SEED = 0.7, 0
QUOTED = re.compile(r"'([^']+)'")
COMPANY = re.compile(r"(.+?) (?:engages in|has headquarters in|operates in) ")
LIMITS = {"latitude": 90.0, "longitude": 180.0}
TESTS = {"False": "train", "True": "test"}


def truth(d: Dataset, root: Root, part: str | None = None) -> Task:
    """Statements that are true or false; each file is a domain."""
    rows = rows_in(d, files_of(d, root))
    found: list[Example] = []
    for name, some in examples_in(d, rows).items():
        groups = _subjects(name, rows[name])
        found += [replace(e, domain=name, group=group) for e, group in zip(some, groups, strict=True)]
    return d.task(_split(found, lambda e: e.group or e.text))


def _subjects(name: str, rows: Rows) -> Iterable[str | None]:
    """What each statement is about, named alike in the sets that are about the same things."""
    texts, given = rows.columns["text"], rows.columns.get("groups")
    if name.endswith("sp_en_trans"):
        return [f"word {_quoted(rows, i)}" for i in range(len(texts))]
    if name.startswith("companies"):
        return _companies(texts)
    if name.endswith("_than"):
        return [f"numbers {' '.join(sorted(pair.split(' | ')))}" for pair in given or ()]
    return given or [None] * len(texts)


def _quoted(rows: Rows, i: int) -> str:
    if found := QUOTED.search(text := rows.columns["text"][i]):
        return found[1]
    raise DataError(f"found {text[:60]!r}, expected a word in quotes.", file=rows.file, line=rows.lines[i])


def _companies(texts: Sequence[str]) -> list[str | None]:
    """The company of each statement: as some other statement names it, or None."""
    names = {found[1] for text in texts if (found := COMPANY.match(text))}
    longest = sorted(names, key=len, reverse=True)
    of = [next((name for name in longest if text.startswith(f"{name} ")), None) for text in texts]
    return [name and f"company {name}" for name in of]


def persona(d: Dataset, root: Root, part: str | None = None) -> Task:
    """Statements, and whether a person with a trait would agree with them; each file is a domain."""
    found: list[Example] = []
    for name, rows in rows_in(d, persona_files(root)).items():
        answers = [a.strip() if isinstance(a, str) else a for a in rows.columns["label"]]
        some = examples_in(d, {name: rows.with_columns({**rows.columns, "label": answers})})[name]
        found += [replace(e, domain=name) for e in some]
    return d.task(_split(found, lambda e: e.text))


def persona_files(root: Root, folder: str = "persona") -> dict[str, Path]:
    """The files of a folder of model-written evaluations, by trait; raises DataError if there are none."""
    if root is None:
        raise DataError(
            f"{folder} is read from a folder: give the one with its .jsonl files (--data-dir, or data_dir in Python), "
            f"from {dataset('persona').source.rpartition(' ')[2]}."
        )
    homes = Path(root), *task_folders("model_written_evals", Path(root))
    for place in (*(home / folder for home in homes), Path(root)):
        if files := sorted(place.glob("*.jsonl")):
            return {path.stem: path for path in files}
    return locate(root, {"": (f"{folder}/*.jsonl", "*.jsonl")}, what=folder)  # raises DataError


def _split(found: Iterable[Example], unit: Callable[[Example], str]) -> dict[str, list[Example]]:
    """Train and dev, by a digest of the unit of each example."""
    splits: dict[str, list[Example]] = {"train": [], "dev": []}
    for e in found:
        draw = xxhash.xxh3_64_intdigest(unit(e).encode("utf-8", "surrogatepass"), seed=SEED) / 2**64
        splits["train" if draw < TRAIN_SHARE else "dev"].append(e)
    return splits


def places(d: Dataset, root: Root, part: str | None = None) -> Task:
    """The latitude or the longitude of places, in degrees; ``part`` says which."""
    files = files_of(d, root)
    if part not in LIMITS:
        asked = f"{d.name}:{part}" if part else d.name
        raise UsageError(f"{asked}: choose {d.name}:latitude or {d.name}:longitude.")
    d = d.model_copy(update={"label": part, "between": [-LIMITS[part], LIMITS[part]]})
    rows = rows_in(d, files)["all"]
    for i, text in enumerate(rows.columns["text"]):
        if not text.strip():
            raise rows.error(i, "text", "is empty; expected a name.")
    return d.task(divided(d, rows, TESTS), name=f"{d.name}:{part}")


def art_dates(d: Dataset, root: Root, part: str | None = None) -> Task:
    """The year in which a song, film or book was released, from its creator, if known, and title."""
    rows = rows_in(d, files_of(d, root))["all"]
    for i, day in enumerate(rows.columns["label"]):
        if not day[:4].isdecimal() or day[4:5] not in ("", "-"):
            raise rows.error(i, "label", f"found {day!r}, expected a date.")
    years = [day[:4] for day in rows.columns["label"]]
    texts = [text.removeprefix("'s ") for text in rows.columns["text"]]
    return d.task(divided(d, rows.with_columns({**rows.columns, "text": texts, "label": years}), TESTS))
