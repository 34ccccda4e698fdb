"""CoLA, SST-2, MRPC, STS-B, MNLI, RTE, WNLI, QNLI and QQP (GLUE: Wang et al. 2018, https://arxiv.org/abs/1804.07461).

``cola(root)`` reads the official files from a folder, ``cola()`` loads the hub's copy. Splits are called ``train``,
``dev`` and ``test`` unless stated otherwise; those whose file is missing are left out. GLUE's test files have no
labels. Each function raises DataError if it finds no file (the message lists the expected names), or if a file is not
valid (the message gives line and column).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probekit.errors import DataError
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import (
    HUB_SPLITS,
    class_labels,
    examples,
    from_hub,
    hub_columns,
    hub_labels,
    locate,
    numbers,
)
from probekit.tasks.files.readers import Table, read_json_lines, read_tsv
from probekit.tasks.task import Example, Task, TaskKind

__all__ = ["LOADERS", "cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli"]

Root = str | Path | None

GLUE = "nyu-mll/glue"
GLUE_FILES: dict[str, Sequence[str]] = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
ENTAILMENT = ("entailment", "not_entailment")

COLA = Dataset(
    "cola",
    "Corpus of Linguistic Acceptability",
    TaskKind.CLASSIFICATION,
    {"train": 8551, "dev": 1043, "test": 1063},
    ("matthews", "accuracy"),
    "Warstadt et al. 2019, https://nyu-mll.github.io/CoLA/",
    "texts belong to the cited publications; research use",
    ("unacceptable", "acceptable"),
    shown="CoLA",
)
SST2 = Dataset(
    "sst2",
    "Stanford Sentiment Treebank, two classes",
    TaskKind.CLASSIFICATION,
    {"train": 67349, "dev": 872, "test": 1821},
    ("accuracy",),
    "Socher et al. 2013, https://nlp.stanford.edu/sentiment/",
    "not stated",
    ("negative", "positive"),
    folder="SST-2",
    shown="SST-2",
)
MRPC = Dataset(
    "mrpc",
    "Microsoft Research Paraphrase Corpus",
    TaskKind.CLASSIFICATION,
    {"train": 3668, "dev": 408, "test": 1725},
    ("accuracy", "f1"),
    "Dolan and Brockett 2005, https://aclanthology.org/I05-5002/",
    "Microsoft Shared Source licence",
    ("not_equivalent", "equivalent"),
    shown="MRPC",
)
STSB = Dataset(
    "stsb",
    "Semantic Textual Similarity Benchmark, 0 to 5",
    TaskKind.REGRESSION,
    {"train": 5749, "dev": 1500, "test": 1379},
    ("pearson", "spearman"),
    "Cer et al. 2017, https://aclanthology.org/S17-2001/",
    "scores CC BY-SA 4.0; each source of texts has its own terms",
    folder="STS-B",
    shown="STS-B",
)
MNLI = Dataset(
    "mnli",
    "Multi-Genre Natural Language Inference",
    TaskKind.CLASSIFICATION,
    {"train": 392702, "dev-matched": 9815, "dev-mismatched": 9832, "test-matched": 9796, "test-mismatched": 9847},
    ("accuracy",),
    "Williams et al. 2018, https://cims.nyu.edu/~sbowman/multinli/",
    "OANC licence; parts of fiction CC BY 3.0 and CC BY-SA 3.0",
    ("entailment", "neutral", "contradiction"),
    shown="MNLI",
)
RTE = Dataset(
    "rte",
    "Recognizing Textual Entailment 1, 2, 3 and 5",
    TaskKind.CLASSIFICATION,
    {"train": 2490, "dev": 277, "test": 3000},
    ("accuracy",),
    "Dagan et al. 2006 and later, https://gluebenchmark.com/tasks",
    "not stated",
    ENTAILMENT,
    shown="RTE",
)
WNLI = Dataset(
    "wnli",
    "Winograd Schema Challenge as inference",
    TaskKind.CLASSIFICATION,
    {"train": 635, "dev": 71, "test": 146},
    ("accuracy",),
    "Levesque et al. 2012, https://gluebenchmark.com/tasks",
    "not stated",
    ("not_entailment", "entailment"),
    shown="WNLI",
)
QNLI = Dataset(
    "qnli",
    "Question answering (SQuAD) as inference",
    TaskKind.CLASSIFICATION,
    {"train": 104743, "dev": 5463, "test": 5463},
    ("accuracy",),
    "Rajpurkar et al. 2016, https://gluebenchmark.com/tasks",
    "CC BY-SA 4.0 (SQuAD)",
    ENTAILMENT,
    shown="QNLI",
)
QQP = Dataset(
    "qqp",
    "Quora Question Pairs",
    TaskKind.CLASSIFICATION,
    {"train": 363846, "dev": 40430, "test": 390965},
    ("accuracy", "f1"),
    "Iyer et al. 2017, https://gluebenchmark.com/tasks",
    "Quora terms of service, non-commercial",
    ("not_duplicate", "duplicate"),
    shown="QQP",
)


def cola(root: Root = None) -> Task:
    """CoLA: 1 if the sentence is acceptable. Domain: the publication that the sentence comes from (local files).

    Splits: train, dev (GLUE's, which is in-domain followed by out-of-domain), dev-in-domain, dev-out-of-domain, test.
    Files: in_domain_train.tsv or train.tsv, glue_dev.tsv or dev.tsv, in_domain_dev.tsv, out_of_domain_dev.tsv,
    test.tsv.
    """
    if root is None:
        return _hub_task(COLA, "cola", "sentence")
    files = _locate(
        root,
        COLA,
        {
            "train": ("in_domain_train.tsv", "train.tsv"),
            "dev": ("glue_dev.tsv", "dev.tsv"),
            "dev-in-domain": ("in_domain_dev.tsv",),
            "dev-out-of-domain": ("out_of_domain_dev.tsv",),
            "test": ("test.tsv",),
        },
    )
    splits = {}
    for split, path in files.items():
        if split == "test":
            splits[split] = _rows(split, read_tsv(path, required=("index", "sentence")), "sentence", ids="index")
        else:
            table = read_tsv(path, ("source", "label", "mark", "sentence"))
            splits[split] = _rows(split, table, "sentence", classes=_digits(COLA), domain="source")
    halves = [splits.get(f"dev-{half}") for half in ("in-domain", "out-of-domain")]
    if "dev" not in splits and halves[0] and halves[1]:
        both = [*halves[0], *halves[1]]
        texts, labels, domains = zip(*((e.text, e.label, e.domain) for e in both), strict=True)
        splits["dev"] = examples("dev", texts, labels, domains=domains)
    return COLA.task(splits)


def sst2(root: Root = None) -> Task:
    """SST-2: 1 if the review is positive; train has phrases, dev and test whole sentences.

    GLUE's train and dev files have a space after every text; it is dropped, since the test file has none.
    Files: train.tsv, dev.tsv, test.tsv; with test_labelled_noheader.tsv (text, label) the test split is labelled.
    """
    if root is None:
        return _hub_task(SST2, "sst2", "sentence")
    files = _locate(root, SST2, GLUE_FILES | {"gold": ("test_labelled_noheader.tsv",)})
    gold = files.pop("gold", None)
    splits = {}
    for split, path in files.items():
        if split == "test":
            splits[split] = _rows(split, read_tsv(path, required=("index", "sentence")), "sentence", ids="index")
        else:
            table = read_tsv(path, required=("sentence", "label"))
            splits[split] = _rows(split, table, "sentence", classes=_digits(SST2))
    if gold is not None:
        table = read_tsv(gold, ("sentence", "label"))
        labelled = _rows("test", table, "sentence", classes=_digits(SST2))
        splits["test"] = _labelled(splits["test"], labelled, table) if "test" in splits else labelled
    return SST2.task({split: _without_final_blank(rows) for split, rows in splits.items()}, [_BLANK])


def mrpc(root: Root = None) -> Task:
    """MRPC: 1 if the two sentences mean the same.

    Splits: train, dev and test are GLUE's; original-train and original-test are the corpus's. GLUE's test rows are the
    original ones, so they get labels if msr_paraphrase_test.txt is present.
    Files: glue_train.tsv or train.tsv,
    glue_dev.tsv or dev.tsv, glue_test.tsv or test.tsv, msr_paraphrase_train.txt, msr_paraphrase_test.txt. Ids are the
    two sentence ids joined by a dash.
    """
    if root is None:
        return _hub_task(MRPC, "mrpc", "sentence1", "sentence2")
    files = _locate(
        root,
        MRPC,
        {
            "train": ("glue_train.tsv", "train.tsv"),
            "dev": ("glue_dev.tsv", "dev.tsv"),
            "test": ("glue_test.tsv", "test.tsv"),
            "original-train": ("msr_paraphrase_train.txt",),
            "original-test": ("msr_paraphrase_test.txt",),
        },
    )
    splits, tables = {}, {}
    for split, path in files.items():
        table = tables[split] = read_tsv(path, required=("#1 ID", "#2 ID", "#1 String", "#2 String"))
        labels = class_labels(table, "Quality", _digits(MRPC)) if "Quality" in table.columns else None
        ids = [f"{a}-{b}" for a, b in zip(table.column("#1 ID"), table.column("#2 ID"), strict=True)]
        splits[split] = examples(split, table.column("#1 String"), labels, pairs=table.column("#2 String"), ids=ids)
    if "test" in splits and "original-test" in splits and "Quality" not in tables["test"].columns:
        splits["test"] = _labelled(splits["test"], splits["original-test"], tables["original-test"])
    return MRPC.task(splits)


def stsb(root: Root = None) -> Task:
    """STS-B: how similar the two sentences are, from 0 to 5. Domain: main-captions, main-forums or main-news.

    Files: train.tsv, dev.tsv, test.tsv (GLUE), or sts-train.csv, sts-dev.csv, sts-test.csv (the original, which has the
    scores of the test split). If both are present, the texts come from GLUE and the test scores from the original.
    """
    if root is None:
        return _hub_task(STSB, "stsb", "sentence1", "sentence2")
    original: dict[str, Sequence[str]] = {
        f"original-{s}": (f"sts-{s}.csv", f"original_sts-{s}.tsv") for s in GLUE_FILES
    }
    files = _locate(root, STSB, GLUE_FILES | original)
    splits = {}
    for split in GLUE_FILES:
        if split in files:
            table = read_tsv(files[split], required=("index", "genre", "sentence1", "sentence2"))
            scored = "score" in table.columns
            splits[split] = _similar(split, table, "score" if scored else None, table.column("index"))
        if f"original-{split}" in files and (split not in files or not scored):
            names = ("genre", "filename", "year", "id", "score", "sentence1", "sentence2")
            table = read_tsv(files[f"original-{split}"], names, required=names, ragged=True)
            rows = _similar(split, table, "score", None)
            splits[split] = _labelled(splits[split], rows, table) if split in splits else rows
    return STSB.task(splits)


def mnli(root: Root = None) -> Task:
    """MultiNLI: does the first sentence entail the second. Domain: the genre.

    Splits: train, dev-matched, dev-mismatched, test-matched, test-mismatched. Pairs without a gold label (``-``) are
    left out and counted in the notes.
    Files: train.tsv, dev_matched.tsv, … (GLUE), multinli_1.0_train.jsonl or .txt, multinli_1.0_dev_matched.jsonl, …,
    multinli_0.9_test_matched_unlabeled.jsonl, …, or any tab-separated train_sample.tsv with the columns genre,
    sentence1, sentence2 and gold_label.
    """
    if root is None:
        data = from_hub("mnli", "nyu-mll/multi_nli")
        theirs = {"train": "train", "dev-matched": "validation_matched", "dev-mismatched": "validation_mismatched"}
        splits = {}
        for split, hub in theirs.items():
            texts, pairs, ids, genres = hub_columns(data[hub], "premise", "hypothesis", "pairID", "genre")
            labels = hub_labels(data[hub], "label", MNLI.label_names)
            splits[split] = examples(split, texts, labels, pairs=pairs, ids=ids, domains=genres)
        return MNLI.task(*_without_unlabelled(splits))
    candidates: dict[str, Sequence[str]] = {
        "train": ("multinli_1.0_train.jsonl", "multinli_1.0_train.txt", "train.tsv", "train_sample.tsv")
    }
    for part in ("dev_matched", "dev_mismatched", "test_matched", "test_mismatched"):
        blind = f"multinli_0.9_{part}_unlabeled"
        names = (
            f"multinli_1.0_{part}.jsonl",
            f"multinli_1.0_{part}.txt",
            f"{part}.tsv",
            f"{blind}.jsonl",
            f"{blind}.txt",
        )
        candidates[part.replace("_", "-")] = names if part.startswith("test") else names[:3]
    files = _locate(root, MNLI, candidates)
    splits = {}
    for split, path in files.items():
        labelled = not split.startswith("test")
        required_columns = ("genre", "sentence1", "sentence2", *(("gold_label",) if labelled else ()))
        if path.suffix == ".jsonl":
            table = _json_table(path, (*required_columns, "pairID"))
        else:
            table = read_tsv(path, required=required_columns, ragged=True)
        classes = _names(MNLI) | {"-": None}
        column = next((c for c in ("pairID", "index") if c in table.columns), None)
        splits[split] = _rows(
            split, table, "sentence1", "sentence2", classes=classes if labelled else None, label="gold_label",
            ids=column, domain="genre",
        )  # fmt: skip
    return MNLI.task(*_without_unlabelled(splits))


def rte(root: Root = None) -> Task:
    """RTE: does the first text entail the second sentence. Files: train.tsv, dev.tsv, test.tsv (GLUE)."""
    return _glue_pairs(RTE, root, "sentence1", "sentence2", _names(RTE))


def wnli(root: Root = None) -> Task:
    """WNLI: does the sentence entail the one with its pronoun replaced. Files: train.tsv, dev.tsv, test.tsv (GLUE).

    Most dev sentences occur in train with the other label, so accuracy below chance is not a bug.
    """
    return _glue_pairs(WNLI, root, "sentence1", "sentence2", _digits(WNLI))


def qnli(root: Root = None) -> Task:
    """QNLI: does the second text, a sentence, contain the answer to the question.

    Files: train.tsv, dev.tsv, test.tsv (GLUE).
    """
    return _glue_pairs(QNLI, root, "question", "sentence", _names(QNLI))


def qqp(root: Root = None) -> Task:
    """QQP: 1 if the two questions ask the same. Files: train.tsv, dev.tsv, test.tsv (GLUE).

    Some rows of GLUE's train file are truncated; they are left out and counted in the notes.
    """
    return _glue_pairs(QQP, root, "question1", "question2", _digits(QQP), label="is_duplicate", drop_short=True)


LOADERS = {COLA: cola, SST2: sst2, MRPC: mrpc, STSB: stsb, MNLI: mnli, RTE: rte, WNLI: wnli, QNLI: qnli, QQP: qqp}

_BLANK = "The space after each text of the train and dev files is dropped."


def _locate(root: str | Path, dataset: Dataset, candidates: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    return locate(root, candidates, folder=dataset.folder or dataset.name, what=dataset.title)


def _digits(dataset: Dataset) -> dict[str, int | None]:
    return {str(i): i for i in range(len(dataset.label_names))}


def _names(dataset: Dataset) -> dict[str, int | None]:
    return {name: i for i, name in enumerate(dataset.label_names)}


def _rows(
    split: str,
    table: Table,
    text: str,
    pair: str | None = None,
    *,
    classes: Mapping[str, int | None] | None = None,
    label: str = "label",
    ids: str | None = None,
    domain: str | None = None,
) -> list[Example]:
    """The table's rows as examples; without ``classes`` they are unlabelled."""
    return examples(
        split,
        table.column(text),
        None if classes is None else class_labels(table, label, classes),
        pairs=None if pair is None else table.column(pair),
        ids=None if ids is None else table.column(ids),
        domains=None if domain is None else table.column(domain),
    )


def _glue_pairs(
    dataset: Dataset,
    root: Root,
    text: str,
    pair: str,
    classes: Mapping[str, int | None],
    *,
    label: str = "label",
    drop_short: bool = False,
) -> Task:
    """A task with three GLUE files that have the same columns; the test file has no labels."""
    if root is None:
        return _hub_task(dataset, dataset.name, text, pair)
    splits, notes = {}, []
    for split, path in _locate(root, dataset, GLUE_FILES).items():
        required = (text, pair) if split == "test" else (text, pair, label)
        table = read_tsv(path, required=required, drop_short=drop_short)
        if table.short:
            notes.append(f"{table.short} truncated rows of {path.name} are left out.")
        ids = next((c for c in ("index", "id") if c in table.columns), None)
        splits[split] = _rows(
            split, table, text, pair, classes=None if split == "test" else classes, label=label, ids=ids
        )
    return dataset.task(splits, notes)


def _hub_task(dataset: Dataset, config: str, text: str, pair: str | None = None) -> Task:
    """A task from the hub's GLUE repository."""
    data = from_hub(dataset.name, GLUE, config)
    splits = {}
    for split, theirs in HUB_SPLITS.items():
        rows = data[theirs]
        texts, indices = hub_columns(rows, text, "idx")
        labels: list[Any]
        if dataset.kind is TaskKind.REGRESSION:
            labels = [None if score < 0 else score for score in hub_columns(rows, "label")[0]]
        else:
            labels = hub_labels(rows, "label", dataset.label_names)
        pairs = None if pair is None else hub_columns(rows, pair)[0]
        splits[split] = examples(split, texts, labels, pairs=pairs, ids=[str(i) for i in indices])
    if dataset is SST2:
        return dataset.task({split: _without_final_blank(rows) for split, rows in splits.items()}, [_BLANK])
    return dataset.task(splits)


def _without_final_blank(rows: Sequence[Example]) -> list[Example]:
    return [Example(e.id, e.text.removesuffix(" "), e.label) for e in rows]


def _similar(split: str, table: Table, score: str | None, ids: Sequence[str] | None) -> list[Example]:
    """STS-B rows; the original files have spaces around some sentences, and two spellings of one genre."""
    return examples(
        split,
        [s.strip(" ") for s in table.column("sentence1")],
        None if score is None else numbers(table, score, 0, 5),
        pairs=[s.strip(" ") for s in table.column("sentence2")],
        ids=ids,
        domains=["main-forums" if g == "main-forum" else g for g in table.column("genre")],
    )


def _labelled(rows: Sequence[Example], gold: Sequence[Example], table: Table) -> list[Example]:
    """The rows with the labels from a second file with the same texts in the same order."""
    if len(rows) != len(gold):
        raise DataError(f"has {len(gold)} rows, but the file without labels has {len(rows)}.", file=table.path)
    for e, g, line in zip(rows, gold, table.lines, strict=True):
        if (e.text.strip(" "), (e.pair or "").strip(" ")) != (g.text.strip(" "), (g.pair or "").strip(" ")):
            message = "the text differs from that of the same row in the file without labels."
            raise DataError(message, file=table.path, line=line)
    return [Example(e.id, e.text, g.label, e.pair, e.words, e.domain) for e, g in zip(rows, gold, strict=True)]


def _json_table(path: Path, columns: tuple[str, ...]) -> Table:
    """The required fields of MultiNLI's JSON lines."""
    rows, lines = [], []
    for line, record in read_json_lines(path):
        missing = [c for c in columns if not isinstance(record.get(c), str)]
        if missing:
            raise DataError("expected a text.", file=path, line=line, column=missing[0])
        rows.append([record[c] for c in columns])
        lines.append(line)
    return Table(path, columns, rows, lines)


def _without_unlabelled(splits: Mapping[str, Sequence[Example]]) -> tuple[dict[str, list[Example]], list[str]]:
    """Drop pairs without a gold label from all but the test splits; return notes with their number."""
    kept = {s: [e for e in rows if s.startswith("test") or e.label is not None] for s, rows in splits.items()}
    notes = [
        f"{len(splits[s]) - len(rows)} pairs of {s} without a gold label (-) are left out."
        for s, rows in kept.items()
        if len(rows) < len(splits[s])
    ]
    return kept, notes
