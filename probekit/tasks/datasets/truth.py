"""Statements: true and false ones (Geometry of Truth), and what a person with some trait would say (personas)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import xxhash

from probekit.errors import DataError
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import class_labels, locate
from probekit.tasks.files.readers import Table, read_csv, read_json_lines
from probekit.tasks.folders import task_folders
from probekit.tasks.task import Example, Task, TaskKind

__all__ = ["LOADERS", "persona", "persona_files", "truth"]

TRAIN_SHARE, SEED = 0.7, 0

TRUTH = Dataset(
    "truth",
    "Geometry of Truth: is a statement true (sizes: all sets of its files together; a split by subject, made here)",
    TaskKind.CLASSIFICATION,
    {},
    ("accuracy",),
    "Marks and Tegmark 2023, https://github.com/saprmarks/geometry-of-truth",
    "not stated",
    ("false", "true"),
    folder="geometry_of_truth",
    shown="Truth",
)
PERSONA = Dataset(
    "persona",
    "Model-written evaluations: would a person with a trait say this (a split made here)",
    TaskKind.CLASSIFICATION,
    {},
    ("accuracy",),
    "Perez et al. 2022, https://github.com/anthropics/evals",
    "CC BY 4.0",
    ("does not match", "matches"),
    folder="persona",
    shown="Persona",
)

SETS = (
    *("cities", "neg_cities", "sp_en_trans", "neg_sp_en_trans", "larger_than", "smaller_than"),
    *("cities_cities_conj", "cities_cities_disj", "companies_true_false", "common_claim_true_false"),
    "counterfact_true_false",
)
QUOTED = re.compile(r"'([^']+)'")
COMPANY = re.compile(r"(.+?) (?:engages in|has headquarters in|operates in) ")


def truth(root: str | Path | None = None) -> Task:
    """Geometry of Truth: statements that are true or false; each file is a domain, so ``truth:cities`` is one set.

    The files have no split. Here about 70 % of the subjects are in train and the others in dev, by a digest of the
    subject, so that a subject is in the same split of all sets: of an affirmative set and its negation, too. Statements
    with one subject are a group: a city, a Spanish word, a pair of numbers, a company, the subject of CounterFact; for
    conjunctions and disjunctions the city of the first statement (the second one may be in another split).

    Files: ``cities.csv``, ``neg_cities.csv`` … of the repository's folder ``datasets``, as many as there are, with the
    columns ``statement`` and ``label``.
    """
    if root is None:
        raise DataError(
            "truth is read from a folder: give the one with cities.csv and the other files (--data-dir, or data_dir in "
            f"Python), from {TRUTH.source.rpartition(' ')[2]}."
        )
    files = locate(
        root, {name: (f"{name}.csv", f"{name}_sample.csv") for name in SETS}, folder="geometry_of_truth", what="truth"
    )
    found: list[Example] = []
    for name, path in files.items():
        table = read_csv(path, required=("statement", "label"))
        labels = class_labels(table, "label", {"0": 0, "1": 1})
        rows = zip(table.column("statement"), labels, _subjects(name, table), strict=True)
        found += [
            Example(f"{name}-{i}", text, label, domain=name, group=group) for i, (text, label, group) in enumerate(rows)
        ]
    return TRUTH.task(_split(found, lambda e: e.group or e.text))


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


def persona(root: str | Path | None = None) -> Task:
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
    return PERSONA.task(_split(found, lambda e: e.text))


def persona_files(root: str | Path | None, folder: str = "persona") -> dict[str, Path]:
    """The files of a folder of model-written evaluations, by trait; raises DataError if there are none."""
    if root is None:
        raise DataError(
            f"{folder} is read from a folder: give the one with its .jsonl files (--data-dir, or data_dir in Python), "
            f"from {PERSONA.source.rpartition(' ')[2]}."
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


LOADERS = {TRUTH: truth, PERSONA: persona}
