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
            ``labels`` lists it; ``label = false`` says that there are no labels
id, domain  columns with a unique name, and with the origin of the text (genre, site …)
groups      column with the unit that examples share (premise, template, document): they are shuffled, held out
            and resampled as a whole; default: equal texts, shared sentences and near copies are found
span        column with the part of the text that the label is about, for --positions span: a text that occurs in it
            once, or (JSON lines, Parquet) its first character, from 0, and the one after its last, such as [4, 7];
            an empty cell or null for none
targets     column with a list of targets, for type = "span-labelling" (JSON lines, Parquet): each is
            {"span1": [0, 2], "span2": [3, 4], "label": "…"}, from the first word, counted from 0, up to, but not
            including, the last; span2 only for pairs of spans; a list of labels if several can hold at once
unit        "words" (default if words are named; a text is split at its blanks) or "characters", for targets
words, tags columns with a list of words and a tag for each (JSON lines, Parquet, hub); in CoNLL files the number
            of the column, by default 1 and the last
labels      names of the classes or tags, in the order of their indices; default: all in the data, sorted
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
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from probekit.errors import DataError, Faults
from probekit.metrics import unfit
from probekit.tasks.chat import transcript
from probekit.tasks.datasets.sources import examples, number
from probekit.tasks.files.chat_rows import read_chats
from probekit.tasks.files.columns import Rows, hub_rows, read_rows
from probekit.tasks.files.description import TaskFile, read_task_file
from probekit.tasks.files.no_label import class_name, missing, without_label
from probekit.tasks.files.span_rows import span_labels, with_targets
from probekit.tasks.files.squad import ANSWERS, read_squad
from probekit.tasks.task import RESPONSE_METRICS, RESPONSES, Example, Label, Span, Split, Task, TaskKind

__all__ = ["custom_task", "default_metrics", "examples_of", "one_split"]


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
    if spec.type == TaskKind.QUESTION_ANSWERING:
        return _questions(path, spec, base)
    if spec.type == TaskKind.RESPONSE_GENERATION:
        return _responses(path, spec, base)
    if spec.type == TaskKind.SPAN_LABELLING:
        return _targets(path, spec, base)
    rows = _rows(path, spec, base)
    kind = _kind(path, spec, rows)
    if wrong := unfit(spec.metrics or (), kind):
        raise DataError(wrong, file=path)
    names = () if kind is TaskKind.REGRESSION else _class_names(spec, rows)
    if kind is TaskKind.CLASSIFICATION:
        _check_alike(path, spec, rows)
    return Task(
        spec.name or path.stem,
        kind,
        _splits(rows, kind, names),
        names,
        tuple(spec.metrics or default_metrics(kind, names)),
        spec.source or spec.hub or str(path.name),
        spec.licence,
        _notes(spec, rows, names),
    )


def _questions(path: Path, spec: TaskFile, base: Path) -> Task:
    """Questions with answers in a text, from files in SQuAD's format."""
    known = {"name", "type", "splits", "metrics", "format", "source", "licence"}
    if foreign := sorted(spec.model_fields_set - known):
        raise DataError(
            f'type = "question-answering" reads files in the format of SQuAD, without {foreign[0]}; leave it out.',
            file=path,
        )
    splits = {name: Split(name, tuple(read_squad(base / file))) for name, file in spec.splits.items()}
    complete = all(e.label != 1 for split in splits.values() for e in split)
    metrics = spec.metrics or [f"{name}{'-1.1' * complete}" for name in ("answer-f1", "exact-match")]
    if wrong := unfit(metrics, TaskKind.QUESTION_ANSWERING):
        raise DataError(wrong, file=path)
    source = spec.source or path.name
    names = ANSWERS[:1] if complete else ANSWERS
    return Task(
        spec.name or path.stem, TaskKind.QUESTION_ANSWERING, splits, names, tuple(metrics), source, spec.licence
    )


def _responses(path: Path, spec: TaskFile, base: Path) -> Task:
    """Prompts (``text``) with responses (``pair``)."""
    if spec.pair is None or {"label", "labels", "metrics", "words", "tags", "choices"} & spec.model_fields_set:
        raise DataError('type = "response-generation" needs text and pair, without labels and metrics.', file=path)
    splits, faults = {}, Faults()
    for split, part in _rows(path, spec.model_copy(update={"label": False}), base).items():
        ids = _ids(part, faults)
        texts, pairs = (_texts(part, role, faults) for role in ("text", "pair"))
        faults.check()
        domains, groups = _values(part, "domain"), _values(part, "groups")
        rows = examples(split, texts, [0] * len(texts), pairs=pairs, ids=ids, domains=domains, groups=groups)
        splits[split] = Split(split, tuple(rows))
    source = spec.source or spec.hub or path.name
    kind = TaskKind.RESPONSE_GENERATION
    return Task(spec.name or path.stem, kind, splits, RESPONSES, RESPONSE_METRICS, source, spec.licence)


def _targets(path: Path, spec: TaskFile, base: Path) -> Task:
    """Spans and pairs of spans with their labels."""
    if foreign := {"pair", "label", "tags", "choices", "groups"} & spec.model_fields_set - {"groups"}:
        raise DataError(f'type = "span-labelling" has no {min(foreign)}; leave it out.', file=path)
    rows, faults, splits = _rows(path, spec.model_copy(update={"label": False}), base), Faults(), {}
    names = span_labels(rows) if spec.labels is None else tuple(map(str, spec.labels))
    for split, part in rows.items():
        ids, texts = _ids(part, faults), _texts(part, "text", faults)
        words = [tuple(w) for w in _lists(part, "words", faults)] if "words" in part.columns else None
        if words is None and spec.unit == "words":
            words = [_words(part, i, text, faults) for i, text in enumerate(texts)]
        if faults.found:
            continue
        texts = texts or [" ".join(w) for w in words or ()]
        found = examples(
            split, texts, words=words, ids=ids, domains=_values(part, "domain"), groups=_values(part, "groups")
        )
        splits[split] = Split(split, tuple(with_targets(part, found, names, faults)))
    faults.check()
    several = any(isinstance(t.label, tuple) for split in splits.values() for e in split for t in e.targets)
    metrics = tuple(spec.metrics or (("micro-f1",) if several else ("accuracy", "macro-f1")))
    if wrong := unfit(metrics, TaskKind.SPAN_LABELLING):
        raise DataError(wrong, file=path)
    source = spec.source or spec.hub or path.name
    kind, notes = TaskKind.SPAN_LABELLING, _notes(spec, rows, names)
    return Task(spec.name or path.stem, kind, splits, names, metrics, source, spec.licence, notes)


def _words(part: Rows, i: int, text: Any, faults: Faults) -> tuple[str, ...]:
    """The words of a text that spans count; a text without any is a fault."""
    words = tuple(text.split()) if isinstance(text, str) else ("",)  # what is no text is a fault already
    with faults:
        if not words:
            raise part.error(i, "text", "expected a text with words, whose spans have labels; found none.")
    return words


def _rows(path: Path, spec: TaskFile, base: Path) -> dict[str, Rows]:
    """The rows of each split, at least one, with labels unless ``label = false``."""
    rows = (
        hub_rows(path, spec) if spec.hub else {s: read_rows(path, spec, base / name) for s, name in spec.splits.items()}
    )
    for split, part in rows.items():
        if not part.lines:
            raise DataError(f"has no rows for the split {split!r}.", file=part.file)
    if spec.label is not False and not any({"label", "tags", "words"} & set(part.columns) for part in rows.values()):
        message = (
            f"no split has a column {spec.label!r}; name the column (label = …), or write label = false if there are "
            "no labels."
        )
        raise DataError(message, file=path)
    return without_label(rows, _listed(spec, rows), scores=spec.type == TaskKind.REGRESSION)


def _listed(spec: TaskFile, rows: Mapping[str, Rows]) -> Sequence[str] | None:
    """The names of the classes, if they are known without looking at the labels."""
    if spec.labels is not None:
        return [str(label) for label in spec.labels]
    if spec.choices is not None:
        return [str(i) for i in range(max(_most_choices(part) for part in rows.values()))]
    return next((part.class_names for part in rows.values() if part.class_names), None)


def _notes(spec: TaskFile, rows: Mapping[str, Rows], names: Sequence[str]) -> tuple[str, ...]:
    """What a user should know about the labels and the rows."""
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


def one_split(split: str, part: Rows, kind: TaskKind, names: Sequence[str]) -> Split:
    """The examples of some rows of a split; raises one DataError that lists all errors."""
    rows = without_label({split: part}, names or None, scores=kind is TaskKind.REGRESSION)
    return _splits(rows, kind, names)[split]


def examples_of(split: str, part: Rows, kind: TaskKind, names: Sequence[str]) -> tuple[Example, ...]:
    """The examples of some rows whose labels are classes or scores, or None."""
    return _splits({split: part}, kind, names)[split].examples


def _splits(rows: Mapping[str, Rows], kind: TaskKind, names: Sequence[str]) -> dict[str, Split]:
    """The examples of each split; raises one DataError that lists the errors of all splits."""
    faults, splits = Faults(), {}
    for split, part in rows.items():
        ids = _ids(part, faults)
        texts, pairs = (_texts(part, role, faults) for role in ("text", "pair"))
        chats = read_chats(part, faults) if "messages" in part.columns else None
        texts = texts if chats is None else [transcript(chat) for chat in chats]
        words = [tuple(w) for w in _lists(part, "words", faults)] if "words" in part.columns else None
        labels = _labels(part, kind, names, words, faults)
        choices = _choices(part, labels, faults) if kind is TaskKind.MULTIPLE_CHOICE else None
        if faults.found:
            continue
        found = examples(
            split,
            [" ".join(w) for w in words] if words is not None and not texts else texts,
            labels,
            pairs=pairs or None,
            words=words,
            ids=ids,
            domains=_values(part, "domain"),
            groups=_values(part, "groups"),
            spans=_spans(part, texts, faults) if "span" in part.columns else None,
            choices=choices,
        )
        if chats is not None:
            found = [replace(e, chat=chat) for e, chat in zip(found, chats, strict=True)]
        splits[split] = Split(split, tuple(found))
    faults.check()
    return splits


def _spans(part: Rows, texts: Sequence[str], faults: Faults) -> list[tuple[Span, ...]]:
    """The span of each text, () for none."""
    found = []
    for i, (given, text) in enumerate(zip(part.columns["span"], texts, strict=True)):
        span: tuple[Span, ...] = ()
        with faults:
            if isinstance(given, str) and given:
                if (times := text.count(given)) != 1:
                    raise part.error(
                        i,
                        "span",
                        f"{given[:60]!r} occurs {times} times in the text; expected once. "
                        "Give [first character, the one after its last] in its place.",
                    )
                span = (Span(text.index(given), text.index(given) + len(given)),)
            elif not missing(given):
                if not (isinstance(given, list) and len(given) == 2 and all(type(n) is int for n in given)):
                    expected = "expected a part of the text, or its first character and the one after its last"
                    raise part.error(i, "span", f"{expected}, such as [4, 7]; found {str(given)[:60]!r}.")
                if not 0 <= given[0] < given[1] <= len(text):
                    raise part.error(i, "span", f"{given} is no part of the text, which has {len(text)} characters.")
                span = (Span(*given),)
        found.append(span)
    return found


def _choices(part: Rows, labels: Sequence[Label] | None, faults: Faults) -> list[tuple[str, ...]]:
    """The texts to choose from, at least two, of which the label is one; empty cells at the end are left out."""
    if "choices" in part.columns:
        rows = _lists(part, "choices", faults)
    else:
        columns = [values for role, values in part.columns.items() if role.startswith("choice ")]
        rows = [[v for v in row if not missing(v)] for row in zip(*columns, strict=True)]
    for i, row in enumerate(rows):
        with faults:
            label = labels[i] if labels else None
            if len(row) < 2 or not all(isinstance(text, str) and text for text in row):
                raise part.error(i, "choice", f"expected two or more texts to choose from, found {str(row)[:60]}.")
            if isinstance(label, int) and label >= len(row):
                raise part.error(i, "label", f"the right choice is number {label}, from 0, but there are {len(row)}.")
    return [tuple(row) for row in rows]


def _most_choices(part: Rows) -> int:
    if "choices" in part.columns:
        return max((len(v) for v in part.columns["choices"] if isinstance(v, list)), default=0)
    return sum(role.startswith("choice ") for role in part.columns)


def _values(part: Rows, role: str) -> list[str | None]:
    """A column of names, with None for empty cells."""
    return [None if missing(value) else str(value) for value in part.columns.get(role, ())]


def _kind(path: Path, spec: TaskFile, rows: Mapping[str, Rows]) -> TaskKind:
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


def _class_names(spec: TaskFile, rows: Mapping[str, Rows]) -> tuple[str, ...]:
    if (listed := _listed(spec, rows)) is not None:
        return tuple(listed)
    names = {class_name(v) for part in rows.values() for v in part.columns.get("label", ()) if not missing(v)}
    for part in rows.values():
        if "tags" in part.columns:
            of_words = chain.from_iterable(_lists(part, "tags", Faults(), holes=True))
            names |= {class_name(tag) for tag in of_words if not missing(tag)}
    whole = all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
    return tuple(sorted(names, key=int) if whole else sorted(names))


def _texts(part: Rows, role: str, faults: Faults) -> list[str]:
    values = part.columns.get(role, [])
    for i, value in enumerate(values if not all(isinstance(value, str) for value in values) else ()):
        with faults:
            if not isinstance(value, str):
                raise part.error(i, role, f"expected a text, found {value!r}.")
    return values


def _lists(part: Rows, role: str, faults: Faults, *, holes: bool = False) -> list[list[Any]]:
    """A column of lists: words, or (with ``holes``) tags, which may be missing."""
    values = part.columns[role]
    for i, value in enumerate(values):
        if holes and value is None:
            continue
        with faults:
            if not isinstance(value, list) or not (holes or all(isinstance(w, str) for w in value)):
                expected = "tags" if holes else "words"
                raise part.error(i, role, f"expected a list of {expected}, found {str(value)[:60]!r}.")
            if not value:
                raise part.error(i, role, "expected words, found an empty list.")
    return [value if isinstance(value, list) else [] for value in values]


def _labels(
    part: Rows, kind: TaskKind, names: Sequence[str], words: Sequence[tuple[str, ...]] | None, faults: Faults
) -> list[Label] | None:
    index = {name: i for i, name in enumerate(names)}
    out: list[Label] = []
    if words is not None:
        if "tags" not in part.columns:
            return None
        for i, tags in enumerate(_lists(part, "tags", faults, holes=True)):
            with faults:
                if tags and len(tags) != len(words[i]):
                    raise part.error(i, "tags", f"found {len(tags)} tags for {len(words[i])} words.")
                out.append(tuple(-1 if missing(t) else _index(part, i, "tags", t, index) for t in tags) or None)
        return out
    if "label" not in part.columns:
        return None
    if kind is not TaskKind.REGRESSION and all(isinstance(v, str) and v in index for v in part.columns["label"]):
        return [index[value] for value in part.columns["label"]]
    for i, value in enumerate(part.columns["label"]):
        with faults:
            if missing(value):
                out.append(None)
            elif kind is TaskKind.REGRESSION:
                score = None if isinstance(value, bool) else number(str(value))
                if score is None:
                    raise part.error(i, "label", f"expected a number, found {value!r}.")
                out.append(score)
            else:
                out.append(_index(part, i, "label", value, index))
    return out


def _index(part: Rows, i: int, role: str, value: Any, index: Mapping[str, int]) -> int:
    if isinstance(value, list | dict | bytes):
        raise part.error(i, role, f"expected one label, found {str(value)[:60]!r}.")
    if class_name(value) not in index:
        raise part.error(i, role, f"{class_name(value)!r} is not one of the labels {', '.join(map(repr, index))}.")
    return index[class_name(value)]


def _ids(part: Rows, faults: Faults) -> list[str] | None:
    """The ids as strings; one that occurs twice is a fault that names both lines."""
    if "id" not in part.columns:
        return None
    first: dict[str, int] = {}
    for i, value in enumerate(part.columns["id"]):
        with faults:
            if missing(value):
                raise part.error(i, "id", "expected an id, found an empty cell.")
            if str(value) in first:
                before = part.lines[first[str(value)]]
                raise part.error(
                    i, "id", f"the id {str(value)!r} is already that of line {before}; ids must be unique."
                )
            first[str(value)] = i
    return list(first)


def default_metrics(kind: TaskKind, names: Sequence[str]) -> tuple[str, ...]:
    """The metrics of a task whose file names none."""
    if kind is TaskKind.REGRESSION:
        return ("pearson", "spearman")
    if kind is TaskKind.SEQUENCE_LABELLING:
        spans = any(name.startswith(("B-", "I-")) for name in names)
        return ("span-f1", "token-accuracy") if spans else ("token-accuracy",)
    if kind is TaskKind.MULTIPLE_CHOICE:
        return ("accuracy",)
    return ("accuracy", "macro-f1")
