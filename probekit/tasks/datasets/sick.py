"""SICK: entailment and relatedness for the same sentence pairs (Marelli et al. 2014, https://aclanthology.org/L14-1314/)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import (
    HUB_SPLITS,
    PARQUET,
    class_labels,
    examples,
    from_hub,
    hub_columns,
    hub_labels,
    locate,
    numbers,
)
from probekit.tasks.files.readers import Table, read_tsv
from probekit.tasks.task import Label, Task, TaskKind

__all__ = ["LOADERS", "sick_e", "sick_r"]

SIZES = {"train": 4500, "dev": 500, "test": 4927}
SOURCE = "Marelli et al. 2014 (SemEval-2014 task 1), https://marcobaroni.org/composes/sick.html"
LICENCE = "CC BY-NC-SA 3.0"
NAMES = ("entailment", "neutral", "contradiction")

SICK_E = Dataset(
    "sick-e",
    "SICK entailment",
    TaskKind.CLASSIFICATION,
    SIZES,
    ("accuracy",),
    SOURCE,
    LICENCE,
    NAMES,
    folder="sick",
    shown="SICK-E",
)
SICK_R = Dataset(
    "sick-r",
    "SICK relatedness, 1 to 5",
    TaskKind.REGRESSION,
    SIZES,
    ("pearson", "spearman", "rmse"),
    SOURCE,
    LICENCE,
    folder="sick",
    shown="SICK-R",
)

FILES = {
    "train": ("SICK_train.txt",),
    "dev": ("SICK_trial.txt",),
    "test": ("SICK_test_annotated.txt", "SICK_test.txt"),
    "all": ("SICK.txt",),
}


def sick_e(root: str | Path | None = None) -> Task:
    """SICK-E: does sentence A entail or contradict sentence B.

    Files: SICK_train.txt, SICK_trial.txt (dev) and SICK_test_annotated.txt of SemEval-2014, or the later SICK.txt with
    all splits in one file (9840 pairs: 4439, 495 and 4906). Ids are the pair ids.
    """
    upper = {name.upper(): i for i, name in enumerate(NAMES)}
    return _sick(
        root,
        SICK_E,
        "entailment_judgment",
        lambda table, column: class_labels(table, column, upper),
    )


def sick_r(root: str | Path | None = None) -> Task:
    """SICK-R: how related the sentences are, from 1 to 5. Files as for :func:`sick_e`."""
    return _sick(root, SICK_R, "relatedness_score", lambda table, column: numbers(table, column, 1, 5))


LOADERS = {SICK_E: sick_e, SICK_R: sick_r}


def _sick(root: str | Path | None, dataset: Dataset, column: str, read: Callable[[Table, str], list]) -> Task:
    if root is None:
        return _from_hub(dataset, column)
    files = locate(root, FILES, folder="sick", what="SICK")
    whole = files.pop("all", None)
    if files:
        tables = {
            split: read_tsv(path, required=("pair_ID", "sentence_A", "sentence_B")) for split, path in files.items()
        }
    else:
        assert whole is not None
        tables = _parts(read_tsv(whole, required=("pair_ID", "sentence_A", "sentence_B", "SemEval_set")))
        column = column.replace("judgment", "label")
    splits = {}
    for split, table in tables.items():
        labels = read(table, column) if split != "test" or column in table.columns else None
        ids = table.column("pair_ID")
        splits[split] = examples(split, table.column("sentence_A"), labels, pairs=table.column("sentence_B"), ids=ids)
    return dataset.task(splits)


def _parts(table: Table) -> dict[str, Table]:
    """SICK.txt as one table per split."""
    part = class_labels(table, "SemEval_set", {"TRAIN": 0, "TRIAL": 1, "TEST": 2})
    split: dict[str, Table] = {}
    for k, name in enumerate(("train", "dev", "test")):
        at = [i for i, p in enumerate(part) if p == k]
        split[name] = Table(table.path, table.columns, [table.rows[i] for i in at], [table.lines[i] for i in at])
    return split


def _from_hub(dataset: Dataset, column: str) -> Task:
    data = from_hub(dataset.name, "SemEvalWorkshop/sem_eval_2014_task_1", revision=PARQUET)
    splits = {}
    for split, theirs in HUB_SPLITS.items():
        rows = data[theirs]
        ids, texts, pairs = hub_columns(rows, "sentence_pair_id", "premise", "hypothesis")
        labels: list[Label]
        if dataset is SICK_E:
            indices = hub_labels(rows, column, tuple(name.upper() for name in NAMES))
            labels = list(indices)
        else:
            labels = [round(score, 4) for score in hub_columns(rows, column)[0]]  # stored there in single precision
        splits[split] = examples(split, texts, labels, pairs=pairs, ids=[str(i) for i in ids])
    return dataset.task(splits)
