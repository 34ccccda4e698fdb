"""Classification of documents: IMDb, its counterfactual version, and AG News."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probekit.files import read_lines
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import (
    class_labels,
    examples,
    from_hub,
    hub_columns,
    hub_labels,
    local_file,
    locate,
)
from probekit.tasks.files.readers import read_csv, read_tsv
from probekit.tasks.folders import task_folders
from probekit.tasks.task import Example, Task, TaskKind

__all__ = ["LOADERS", "ag_news", "imdb", "imdb_cad"]

IMDB = Dataset(
    "imdb",
    "IMDb film reviews, two classes",
    TaskKind.CLASSIFICATION,
    {"train": 25000, "test": 25000},
    ("accuracy",),
    "Maas et al. 2011, https://ai.stanford.edu/~amaas/data/sentiment/",
    "not stated",
    ("negative", "positive"),
    shown="IMDb",
)
IMDB_CAD = Dataset(
    "imdb-cad",
    "IMDb film reviews, each with a counterfactual of the other class",
    TaskKind.CLASSIFICATION,
    {"train": 3414, "dev": 490, "test": 976},
    ("accuracy",),
    "Kaushik, Hovy and Lipton 2020, https://github.com/acmi-lab/counterfactually-augmented-data",
    "Apache 2.0",
    ("negative", "positive"),
    shown="IMDb (counterfactual)",
    folder="imdb",
)
AG_NEWS = Dataset(
    "ag-news",
    "AG News, topics of news in four classes",
    TaskKind.CLASSIFICATION,
    {"train": 120000, "test": 7600},
    ("accuracy", "macro-f1"),
    "Zhang, Zhao and LeCun 2015, https://arxiv.org/abs/1509.01626",
    "non-commercial use",
    ("World", "Sports", "Business", "Sci/Tech"),
    shown="AG News",
)


def imdb(root: str | Path | None = None) -> Task:
    """IMDb: is the review positive? There is no dev split. Line breaks in HTML (<br />) are kept as they are.

    Files: the folder aclImdb, with a text file per review in train/pos, train/neg, test/pos and test/neg.
    """
    if root is None:
        return _from_hub(IMDB, "stanfordnlp/imdb", ("neg", "pos"))
    places = [f for place in task_folders("aclimdb", Path(root)) for f in (place, place / "aclImdb")]
    home = next((f for f in places if any((f / split / "pos").is_dir() for split in IMDB.sizes)), Path(root))
    splits = {}
    for split in IMDB.sizes:
        files = [
            (f, label) for label, name in enumerate(("neg", "pos")) for f in sorted((home / split / name).glob("*.txt"))
        ]
        if files:
            texts = [" ".join(read_lines(file)) for file, _ in files]
            ids = [f"{file.parent.name}/{file.stem}" for file, _ in files]
            splits[split] = examples(split, texts, [label for _, label in files], ids=ids)
    if not splits:
        locate(root, {s: (f"aclImdb/{s}/pos", f"aclImdb/{s}/neg") for s in IMDB.sizes}, what="IMDb")  # raises DataError
    return IMDB.task(splits)


def imdb_cad(root: str | Path | None = None) -> Task:
    """IMDb reviews and their counterfactuals, edited by people so that the class changes; a pair is a group.

    Files: train_paired.tsv, dev_paired.tsv and test_paired.tsv with the columns Sentiment, Text and batch_id, in the
    folder or in a subfolder cad.
    """
    names = {split: (f"{split}_paired.tsv", f"cad/{split}_paired.tsv") for split in IMDB_CAD.sizes}
    local_file(IMDB_CAD, root, *names["train"], *names["dev"], *names["test"])
    assert root is not None
    splits = {}
    for split, path in locate(root, names, folder="imdb", what=IMDB_CAD.shown).items():
        table = read_tsv(path, required=("Sentiment", "Text", "batch_id"))
        labels = class_labels(table, "Sentiment", {"Negative": 0, "Positive": 1})
        splits[split] = examples(split, table.column("Text"), labels, groups=table.column("batch_id"))
    return IMDB_CAD.task(splits)


def ag_news(root: str | Path | None = None) -> Task:
    """AG News: the topic of a news item. The text is the title, a space and the description; there is no dev split.

    Files: train.csv and test.csv with class (1 to 4), title and description.
    """
    if root is None:
        return _from_hub(AG_NEWS, "fancyzhx/ag_news", AG_NEWS.label_names)
    splits = {}
    files = locate(root, {s: (f"{s}.csv",) for s in AG_NEWS.sizes}, folder="agnews", what="AG News")
    for split, path in files.items():
        table = read_csv(path, ("class", "title", "description"))
        labels = class_labels(table, "class", {str(i): i - 1 for i in range(1, 5)})
        texts = map(" ".join, zip(table.column("title"), table.column("description"), strict=True))
        splits[split] = examples(split, list(texts), labels)
    return AG_NEWS.task(splits)


LOADERS = {IMDB: imdb, IMDB_CAD: imdb_cad, AG_NEWS: ag_news}


def _from_hub(dataset: Dataset, repository: str, theirs: Sequence[str]) -> Task:
    data = from_hub(dataset.name, repository)
    splits: dict[str, list[Example]] = {}
    for split in dataset.sizes:
        (texts,) = hub_columns(data[split], "text")
        splits[split] = examples(split, texts, hub_labels(data[split], "label", theirs))
    return dataset.task(splits)
