"""Your own data: a TOML file says which files hold the splits, and which columns hold texts and labels.

The smallest one, for tab-separated files whose header names the columns ``text`` and ``label``::

    [splits]
    train = "train.tsv"
    dev = "dev.tsv"

File names are relative to the TOML file. ``probekit tasks check mine.toml`` prints what probekit reads. All keys, which
go above ``[splits]``:

=========== ===================================================================================================
name        the task's name; default: the TOML file's
type        "classification", "regression", "sequence-labelling", "multiple-choice", "question-answering" (JSON files
            in SQuAD's format) or "response-generation" (``text`` is the
            prompt, ``pair`` the response); default: sequence labelling if words and tags are
            named or the files are CoNLL files,
            multiple choice if choices are named, otherwise classification
text, pair  columns with the sentence (default "text") and with the second sentence of a pair
messages    column with a conversation, a list such as [{"role": "user", "content": "…"}], instead of text (JSON lines,
            Parquet); JSON lines may also have "tools" (their descriptions) and "chat_template_kwargs" (further
            variables of the model's chat template)
choices     the columns of the texts to choose from, such as ["choice1", "choice2"], or one column with lists of texts;
            label is then the number of the right one, from 0, or its name in ``labels``
label       column with the label (default "label"); an empty cell, null or NaN is an unlabelled example, and so is a
            word such as "nan" or "NA" among numbers, or a -1 that is no class (see :func:`names_of_none`), unless
            ``labels`` lists it; ``label = false`` says that there are no labels; a list of columns, such as
            ["toxic", "threat"], for several labels of a text (1 or 0 in each) or, with type = "regression", several
            numbers. In JSON lines and Parquet the column may hold lists or objects of them; [] says that none holds
separator   what is between the labels in a cell of the label column, such as ";"; an empty cell is unlabelled
id, domain  columns with a unique name, and with the origin of the text (genre, site …)
groups      column with the unit that examples share (premise, template, document): they are shuffled, held out
            and resampled as a whole; default: equal texts, shared sentences and near copies are found
span        column with the part of the text that the label is about, for --positions span: a text that occurs in it
            once, or (JSON lines, Parquet) its first character, from 0, and the one after its last, such as [4, 7];
            an empty cell or null for none; or two columns with these numbers, such as ["start", "end"]
pair_span   the same for the second sentence of a pair, as for a word in two contexts
entities    column with a list of named entities (JSON lines, Parquet), each {"start": 0, "end": 4, "label": "PER"} or
            [0, 4, "PER"], the characters of ``text``; read as words with tags
targets     column with a list of targets, for type = "span-labelling" (JSON lines, Parquet): each is
            {"span1": [0, 2], "span2": [3, 4], "label": "…"}, from the first word, counted from 0, up to, but not
            including, the last; span2 only for pairs of spans; a list of labels if several can hold at once
unit        "words" (default if words are named; a text is split at its blanks) or "characters", for targets
words, tags columns with a list of words and a tag for each (JSON lines, Parquet, hub); in CoNLL files the number
            of the column, by default 1 and the last
labels      names of the classes or tags, in the order of their indices; default: all in the data, sorted
ordered     true if the classes have an order, that of ``labels`` (of numbers: from the lowest), such as stars
metrics     a list such as ["matthews", "accuracy"]; the first is the task's primary metric
format      "tsv" (.tsv, .txt, .tab), "csv", "json-lines" (.jsonl, .ndjson, .json), "parquet", "conll" (.conll, .bio,
            .iob, .iob2), "conllu"; default: by the file's suffix
header      false for TSV and CSV files without a header; columns are then numbered from 1
comments    true if lines that begin with # are comments in your CoNLL files
hub, config a Hugging Face dataset and its configuration, instead of files; ``[splits]`` then names the hub's splits
            (``dev = "validation"``), and may be left out
source, licence  for tables
=========== ===================================================================================================

A second example, sentence pairs in CSV files without a header::

    type = "regression"
    header = false
    text = 1
    pair = 2
    label = 3

    [splits]
    train = "pairs/train.csv"
    test = "pairs/test.csv"
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from probekit.errors import DataError, Faults
from probekit.metrics import ORDERED, unfit, unordered
from probekit.tasks.datasets.sources import number
from probekit.tasks.files.columns import Rows, hub_rows, read_rows
from probekit.tasks.files.description import TaskFile, read_task_file
from probekit.tasks.files.entities import with_tags
from probekit.tasks.files.examples import lists, span_labels, splits_of
from probekit.tasks.files.no_label import class_name, missing, without_label
from probekit.tasks.files.several import joined, kind_of, label_names, notes_of
from probekit.tasks.files.squad import ANSWERS, read_squad
from probekit.tasks.task import RESPONSE_METRICS, RESPONSES, Split, Task, TaskKind


def custom_task(path: str | Path, data_dir: str | Path | None = None, *, groups: str | None = None) -> Task:
    """The task that a TOML file describes.

    Parameters
    ----------
    data_dir : str | Path, optional
        Folder that the file names in it are relative to; default: the TOML file's folder.
    groups : str, optional
        The column with groups, instead of the one that the file names.

    Raises
    ------
    DataError
        If the TOML file or the data are not valid; the message names the file, and the line and column or the key.
    """
    path = Path(path)
    spec = read_task_file(path)
    if groups is not None:
        spec = spec.model_copy(update={"groups": groups if spec.header or not groups.isdigit() else int(groups)})
    base = Path(data_dir) if data_dir is not None else path.parent
    if wrong := _misplaced(spec):
        raise DataError(wrong, file=path)
    notes, names = tuple[str, ...](), tuple[str, ...]()
    if spec.type == TaskKind.QUESTION_ANSWERING:
        kind = TaskKind.QUESTION_ANSWERING
        splits = {name: Split(name, tuple(read_squad(base / file))) for name, file in spec.splits.items()}
        complete = all(e.label != 1 for split in splits.values() for e in split)
        names = ANSWERS[:1] if complete else ANSWERS
    else:
        rows = _rows(path, spec, base)
        kind = kind_of(spec, rows) or _kind(path, spec, rows)
        if wrong := unfit(spec.metrics or (), kind):
            raise DataError(wrong, file=path)
        names = _class_names(kind, spec, rows)
        if kind is TaskKind.CLASSIFICATION:
            _check_alike(path, spec, rows)
        splits = splits_of(rows, kind, names, spec.unit)
        notes = () if kind is TaskKind.RESPONSE_GENERATION else _notes(spec, kind, rows, names)
    targets = (target for split in splits.values() for e in split for target in e.targets)
    several = kind is TaskKind.SPAN_LABELLING and any(isinstance(target.label, tuple) for target in targets)
    metrics = tuple(spec.metrics or default_metrics(kind, names, several=several, ordered=spec.ordered))
    if wrong := unfit(metrics, kind) or unordered(metrics, kind, names, ORDERED if spec.ordered else ()):
        raise DataError(wrong, file=path)
    if spec.ordered and (wrong := _no_order(spec, kind, names)):
        raise DataError(wrong, file=path)
    source = spec.source or spec.hub or path.name
    return Task(spec.name or path.stem, kind, splits, names, metrics, source, spec.licence, notes)


def _no_order(spec: TaskFile, kind: TaskKind, names: Sequence[str]) -> str:
    """Why classes that are said to be ordered have no order; "" if they have one."""
    if kind is not TaskKind.CLASSIFICATION or len(names) < 3:
        return "ordered = true is for three or more classes of texts; leave it out."
    if spec.labels is None and unordered(ORDERED, kind, names):
        return 'ordered = true needs their order: write labels = ["LOWEST", …, "HIGHEST"].'
    return ""


def _misplaced(spec: TaskFile) -> str:
    """What is wrong with keys that a type of task has not, or lacks; "" if nothing is."""
    given = spec.model_fields_set
    if spec.type == TaskKind.QUESTION_ANSWERING:
        if foreign := given - {"name", "type", "splits", "metrics", "format", "source", "licence"}:
            message = "reads files in the format of SQuAD, without"
            return f'type = "question-answering" {message} {min(foreign)}; leave it out.'
    elif spec.type == TaskKind.RESPONSE_GENERATION:
        if spec.pair is None or {"label", "labels", "metrics", "words", "tags", "choices"} & given:
            return 'type = "response-generation" needs text and pair, without labels and metrics.'
    elif spec.type == TaskKind.SPAN_LABELLING and (foreign := {"pair", "label", "tags", "choices"} & given):
        return f'type = "span-labelling" has no {min(foreign)}; leave it out.'
    return ""


def _rows(path: Path, spec: TaskFile, base: Path) -> dict[str, Rows]:
    """The rows of each split, at least one, with labels unless ``label = false`` or the task has none."""
    if spec.type in (TaskKind.RESPONSE_GENERATION, TaskKind.SPAN_LABELLING):
        spec = spec.model_copy(update={"label": False})
    rows = (
        hub_rows(path, spec) if spec.hub else {s: read_rows(path, spec, base / name) for s, name in spec.splits.items()}
    )
    for split, part in rows.items():
        if not part.lines:
            raise DataError(f"has no rows for the split {split!r}.", file=part.file)
    rows = {split: joined(spec, part) for split, part in rows.items()}
    if spec.label is not False and not any(
        {"label", "tags", "words", "entities"} & set(part.columns) for part in rows.values()
    ):
        message = (
            f"no split has a column {spec.label!r}; name the column (label = …), or write label = false if there are "
            "no labels."
        )
        raise DataError(message, file=path)
    if kind_of(spec, rows):
        return rows
    return without_label(with_tags(rows), _listed(spec, rows), scores=spec.type == TaskKind.REGRESSION)


def _listed(spec: TaskFile, rows: Mapping[str, Rows]) -> Sequence[str] | None:
    """The names of the classes, if they are known without looking at the labels."""
    if spec.labels is not None:
        return [str(label) for label in spec.labels]
    if spec.choices is not None:
        return [str(i) for i in range(max(_most_choices(part) for part in rows.values()))]
    return next((part.class_names for part in rows.values() if part.class_names), None)


def _most_choices(part: Rows) -> int:
    if "choices" in part.columns:
        return max((len(v) for v in part.columns["choices"] if isinstance(v, list)), default=0)
    return sum(role.startswith("choice ") for role in part.columns)


def _notes(spec: TaskFile, kind: TaskKind, rows: Mapping[str, Rows], names: Sequence[str]) -> tuple[str, ...]:
    """What a user should know about the labels and the rows."""
    if kind.several:
        return (*notes_of(kind, rows, names), *(f"{s}: {note}" for s, part in rows.items() for note in part.notes))
    notes = [f"{s} has no labels." for s, part in rows.items() if not {"label", "tags"} & set(part.columns)]
    if spec.labels is None and names:
        notes.append(f"Labels found: {', '.join(names)}.")
    if "tags" in next(iter(rows.values())).columns and spec.labels is None:
        alike: dict[str, list[str]] = {}
        for name in names:
            alike.setdefault(unicodedata.normalize("NFKC", name).strip().casefold(), []).append(name)
        same = [", ".join(map(ascii, some)) for some in alike.values() if len(some) > 1]
        notes += [f"The tags {some} are different classes; if they are one, spell them alike." for some in same]
    if any(name.startswith("I-") for name in names) and not any(name.startswith("B-") for name in names):
        notes.append("The tags are IO (I- without B-): adjacent words of one type form one span.")
    return (*notes, *(f"{split}: {note}" for split, part in rows.items() for note in part.notes))


def _kind(path: Path, spec: TaskFile, rows: Mapping[str, Rows]) -> TaskKind:
    if spec.type in (TaskKind.RESPONSE_GENERATION, TaskKind.SPAN_LABELLING):
        return TaskKind(spec.type)
    tokens = any("words" in part.columns for part in rows.values())
    choices = spec.choices is not None
    if choices or spec.type == TaskKind.MULTIPLE_CHOICE:
        if not choices or (spec.type or TaskKind.MULTIPLE_CHOICE) != TaskKind.MULTIPLE_CHOICE or tokens or spec.pair:
            message = 'type = "multiple-choice" needs choices = ["…", "…"], without pair, words and tags.'
            raise DataError(message, file=path)
        return TaskKind.MULTIPLE_CHOICE
    if spec.type is not None:
        kind = TaskKind(spec.type)
        if (kind is TaskKind.SEQUENCE_LABELLING) != tokens:
            need = "needs words and tags" if not tokens else "has one label per text, but the file names words and tags"
            raise DataError(f'type = "{kind}" {need}.', file=path)
        return kind
    if tokens:
        return TaskKind.SEQUENCE_LABELLING
    labels = [v for part in rows.values() for v in part.columns.get("label", ()) if not missing(v)]
    numeric = [number(str(v)) for v in labels]
    broken = [v for v, x in zip(labels, numeric, strict=True) if x is not None and x != int(x)]
    if broken and None not in numeric and spec.labels is None:
        message = f'labels such as {broken[0]} look like scores; write type = "regression" or type = "classification".'
        raise DataError(message, file=path)
    return TaskKind.CLASSIFICATION


def _check_alike(path: Path, spec: TaskFile, rows: Mapping[str, Rows]) -> None:
    """Refuse infinity, and labels that may be the same (1 and 1.0, Yes and "yes ", two forms of é) unless listed."""
    first: dict[float | str, tuple[str, Rows, int]] = {}
    for part in rows.values() if spec.labels is None and not any(p.class_names for p in rows.values()) else ():
        for i, value in enumerate(part.columns.get("label", ())):
            if missing(value) or isinstance(value, bool):
                continue
            if _is_infinite(value):
                raise part.error(i, "label", f"found {value!r}, which is too large for a number.")
            amount = number(class_name(value))
            key = unicodedata.normalize("NFKC", class_name(value)).strip().casefold() if amount is None else amount
            name, where, line = first.setdefault(key, (class_name(value), part, i))
            if name != class_name(value):
                alike = unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", class_name(value))
                shown = ascii if alike else repr  # labels that look the same are shown by their code points
                raise part.error(
                    i,
                    "label",
                    f"found the label {shown(class_name(value))}, but {shown(name)} in line {where.lines[line]} of "
                    f"{where.file}. If they are the same class, spell them alike; if they are two classes, list all "
                    f"labels in {path} (labels = [...]).",
                )


def _is_infinite(value: Any) -> bool:
    """Whether a label overflows a float: 1e400, or inf where a reader has parsed it."""
    if isinstance(value, str) and not re.fullmatch(r"\s*[-+]?[\d.]+[eE][-+]?\d+\s*", value):
        return False
    try:
        return math.isinf(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _class_names(kind: TaskKind, spec: TaskFile, rows: Mapping[str, Rows]) -> tuple[str, ...]:
    if kind in (TaskKind.REGRESSION, TaskKind.RESPONSE_GENERATION):
        return RESPONSES if kind is TaskKind.RESPONSE_GENERATION else ()
    if kind.several:
        return label_names(spec, kind, rows)
    if (listed := _listed(spec, rows)) is not None:
        return tuple(listed)
    if kind is TaskKind.SPAN_LABELLING:
        return span_labels(rows)
    names = {class_name(v) for part in rows.values() for v in part.columns.get("label", ()) if not missing(v)}
    for part in rows.values():
        if "tags" in part.columns:
            of_words = chain.from_iterable(lists(part, "tags", Faults(), holes=True))
            names |= {class_name(tag) for tag in of_words if not missing(tag)}
    whole = all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
    return tuple(sorted(names, key=int) if whole else sorted(names))


def default_metrics(
    kind: TaskKind, names: Sequence[str], *, several: bool = False, ordered: bool = False
) -> tuple[str, ...]:
    """The metrics of a task whose file names none."""
    if ordered:
        return ("quadratic-kappa", "spearman", "accuracy")
    if kind in (TaskKind.REGRESSION, TaskKind.MULTI_OUTPUT):
        return ("pearson", "spearman")
    if kind is TaskKind.MULTI_LABEL:
        return ("micro-f1", "macro-f1")
    if kind is TaskKind.SEQUENCE_LABELLING:
        spans = any(name.startswith(("B-", "I-")) for name in names)
        return ("span-f1", "token-accuracy") if spans else ("token-accuracy",)
    if kind is TaskKind.MULTIPLE_CHOICE:
        return ("accuracy",)
    if kind is TaskKind.RESPONSE_GENERATION:
        return RESPONSE_METRICS
    if kind is TaskKind.QUESTION_ANSWERING:
        return ("answer-f1-1.1", "exact-match-1.1") if len(names) == 1 else ("answer-f1", "exact-match")
    if several:
        return ("micro-f1",)
    return ("accuracy", "macro-f1")
