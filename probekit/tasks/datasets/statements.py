"""Statements, true and false or of a person with some trait, and names of places and works with where and when."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import xxhash

from probekit.errors import DataError, UsageError
from probekit.tasks.datasets.published import dataset, files_of
from probekit.tasks.datasets.sources import class_labels, locate, numbers
from probekit.tasks.files.description import Dataset
from probekit.tasks.files.readers import Table, read_csv, read_json_lines
from probekit.tasks.folders import task_folders
from probekit.tasks.task import Example, Task

__all__ = ["art_dates", "persona", "persona_files", "places", "truth"]

TRAIN_SHARE, SEED = 0.7, 0

QUOTED = re.compile(r"'([^']+)'")
COMPANY = re.compile(r"(.+?) (?:engages in|has headquarters in|operates in) ")


def truth(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """Geometry of Truth: statements that are true or false; each file is a domain, so ``truth:cities`` is one set.

    The files have no split. Here about 70 % of the subjects are in train and the others in dev, by a digest of the
    subject, so that a subject is in the same split of all sets: of an affirmative set and its negation, too. Statements
    with one subject are a group: a city, a Spanish word, a pair of numbers, a company, the subject of CounterFact; for
    conjunctions and disjunctions the city of the first statement (the second one may be in another split).

    Files: ``cities.csv``, ``neg_cities.csv`` … of the repository's folder ``datasets``, as many as there are, with the
    columns ``statement`` and ``label``.
    """
    found: list[Example] = []
    for name, path in files_of(d, root).items():
        table = read_csv(path, required=("statement", "label"))
        labels = class_labels(table, "label", {"0": 0, "1": 1})
        rows = zip(table.column("statement"), labels, _subjects(name, table), strict=True)
        found += [
            Example(f"{name}-{i}", text, label, domain=name, group=group) for i, (text, label, group) in enumerate(rows)
        ]
    return d.task(_split(found, lambda e: e.group or e.text))


def _subjects(name: str, table: Table) -> Iterable[str | None]:
    """What each statement is about, named alike in the sets that are about the same things."""
    texts = table.column("statement")
    if name.endswith("cities"):
        return [f"city {city}" for city in table.column("city")]
    if name.startswith("cities_cities"):
        return [f"city {city}" for city in table.column("city1")]
    if name.endswith("sp_en_trans"):
        return [f"word {_matched(QUOTED, text, table, i)}" for i, text in enumerate(texts)]
    if name.endswith("_than"):
        pairs = zip(table.column("n1"), table.column("n2"), strict=True)
        return [f"numbers {' '.join(sorted(pair))}" for pair in pairs]
    if name.startswith("counterfact"):
        return [f"subject {subject}" for subject in table.column("subject")]
    if name.startswith("companies"):
        return _companies(texts)
    return [None] * len(texts)


def _matched(pattern: re.Pattern[str], text: str, table: Table, i: int) -> str:
    if found := pattern.search(text):
        return found[1]
    raise DataError(f"found {text[:60]!r}, expected a word in quotes.", file=table.path, line=table.lines[i])


def _companies(texts: list[str]) -> list[str | None]:
    """The company of each statement: as some other statement names it, or None."""
    names = {found[1] for text in texts if (found := COMPANY.match(text))}
    longest = sorted(names, key=len, reverse=True)
    of = [next((name for name in longest if text.startswith(f"{name} ")), None) for text in texts]
    return [name and f"company {name}" for name in of]


def persona(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """Statements, and whether a person with a trait would agree with them; ``persona:openness`` is one trait.

    The label is 1 if the matching answer to "Is the following statement something you would say?" is Yes. The files
    have no split; about 70 % of the statements are in train and the others in dev, by a digest of their text.

    Files: ``TRAIT.jsonl`` of the folder ``persona``, with the keys ``statement`` and ``answer_matching_behavior``.
    """
    found = []
    for name, path in persona_files(root).items():
        for i, (line, record) in enumerate(read_json_lines(path)):
            text, answer = (_key(path, line, record, key) for key in ("statement", "answer_matching_behavior"))
            if answer.strip() not in ("Yes", "No"):
                raise DataError(f"found {answer!r}, expected ' Yes' or ' No'.", file=path, line=line)
            found.append(Example(f"{name}-{i}", text, int(answer.strip() == "Yes"), domain=name))
    return d.task(_split(found, lambda e: e.text))


def persona_files(root: str | Path | None, folder: str = "persona") -> dict[str, Path]:
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


def _key(path: Path, line: int, record: Mapping[str, Any], key: str) -> str:
    if not isinstance(record.get(key), str) or not record[key].strip():
        raise DataError(f"found {record.get(key)!r}, expected a text.", file=path, line=line, column=key)
    return str(record[key])


def _split(found: Iterable[Example], unit: Callable[[Example], str]) -> dict[str, list[Example]]:
    """Train and dev, by a digest of the unit of each example."""
    splits: dict[str, list[Example]] = {"train": [], "dev": []}
    for e in found:
        draw = xxhash.xxh3_64_intdigest(unit(e).encode("utf-8", "surrogatepass"), seed=SEED) / 2**64
        splits["train" if draw < TRAIN_SHARE else "dev"].append(e)
    return splits


LIMITS = {"latitude": 90.0, "longitude": 180.0}


def places(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """The latitude or the longitude of places, in degrees; ``part`` says which.

    Both have the same texts and ids, so ``world-places:latitude+world-places:longitude`` is one cache for both. The
    splits are those of the authors (``is_test``), the domain is the type of the place.
    """
    path = files_of(d, root)["all"]
    if part not in LIMITS:
        asked = f"{d.name}:{part}" if part else d.name
        raise UsageError(f"{asked}: choose {d.name}:latitude or {d.name}:longitude.")
    table = read_csv(path, required=("name", "latitude", "longitude", "is_test"))
    labels = numbers(table, part, -LIMITS[part], LIMITS[part])
    return _task(d, table, table.column("name"), labels, name=f"{d.name}:{part}")


def art_dates(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """The year in which a song, film or book was released, from its creator and title, such as "Stephen King's It".

    Works of one creator are a group. The splits are those of the authors (``is_test``), which do not keep groups whole;
    the domain is the type of the work.
    """
    table = read_csv(files_of(d, root)["all"], required=("title", "creator", "release_date", "is_test"))
    creators = table.column("creator")
    texts = [f"{who}'s {title}" if who else title for who, title in zip(creators, table.column("title"), strict=True)]
    years = []
    for day, line in zip(table.column("release_date"), table.lines, strict=True):
        if not day[:4].isdecimal() or day[4:5] not in ("", "-"):
            raise DataError(f"found {day!r}, expected a date.", file=table.path, line=line, column="release_date")
        years.append(float(day[:4]))
    return _task(d, table, texts, years, groups=[who or None for who in creators])


def _task(
    d: Dataset,
    table: Table,
    texts: Sequence[str],
    labels: Sequence[float],
    *,
    groups: Sequence[str | None] | None = None,
    name: str = "",
) -> Task:
    tests = class_labels(table, "is_test", {"False": 0, "True": 1})
    kinds = table.column("entity_type")
    splits: dict[str, list[Example]] = {"train": [], "test": []}
    for i, (text, label, test) in enumerate(zip(texts, labels, tests, strict=True)):
        if not text.strip():
            raise DataError("is empty; expected a name.", file=table.path, line=table.lines[i])
        group = groups[i] if groups else None
        splits["test" if test else "train"].append(Example(f"row-{i}", text, label, domain=kinds[i], group=group))
    return d.task(splits, name=name)
