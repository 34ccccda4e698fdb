"""Spans and pairs of spans as targets, and two tasks of SuperGLUE.

Tenney et al. 2019, "What do you learn from context?", https://arxiv.org/abs/1905.06316, probes tasks of spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from probekit.errors import DataError
from probekit.files import read_lines
from probekit.tasks.datasets.published import files_of, rows_in, with_targets
from probekit.tasks.datasets.sources import examples, from_hub
from probekit.tasks.files.columns import Rows
from probekit.tasks.files.description import Dataset
from probekit.tasks.files.marked import place_of
from probekit.tasks.files.readers import read_json_lines
from probekit.tasks.targets import bio_targets
from probekit.tasks.task import Example, Label, Span, Target, Task

Root = str | Path | None


def chunks(d: Dataset, root: Root, part: str | None = None) -> Task:
    """The chunks of CoNLL-2000, one target each; files of three columns (word, POS, chunk)."""
    index = {name: i for i, name in enumerate(d.label_names)}

    def of(rows: Rows, i: int) -> tuple[Target, ...]:
        tags = rows.columns["tags"][i]
        strange = [t for t in tags if t != "O" and (t[:2] not in ("B-", "I-") or t[2:] not in index)]
        if strange:
            message = f"the sentence that begins here has the tag {strange[0]!r}; expected O, B- or I- and"
            raise rows.error(i, "3", f"{message} {', '.join(index)}.")
        return tuple(bio_targets(tags, index))

    return d.task(with_targets(d, rows_in(d, files_of(d, root)), of))


def marked(d: Dataset, root: Root, part: str | None = None) -> Task:
    """The 19 classes of two marked nominals in each sentence; files: TRAIN_FILE.TXT and TEST_FILE_FULL.TXT."""
    index = {name: i for i, name in enumerate(d.label_names)}
    splits = {}
    for split, path in files_of(d, root).items():
        rows = list(_marked(path))
        for line, _, _, label, _ in rows:
            if label not in index:
                message = f"found the relation {label!r}, expected Other, or a name with (e1,e2) or (e2,e1)."
                raise DataError(message, file=path, line=line + 1)
        targets = [(Target(spans, index[label]),) for _, _, _, label, spans in rows]
        splits[split] = examples(split, [text for _, _, text, _, _ in rows], ids=[r[1] for r in rows], targets=targets)
    return d.task(splits)


_TAG = re.compile(r"</?e[12]>")


def _marked(path: Path) -> Iterator[tuple[int, str, str, str, tuple[Span, Span]]]:
    """Line, id, text without marks, relation, and the characters of e1 and e2 of each block."""
    lines = read_lines(path)
    for i, line in enumerate(lines):
        number, tab, sentence = line.partition("\t")
        if not tab:
            continue
        sentence = sentence.strip()
        marked = sentence[1:-1] if sentence[:1] == sentence[-1:] == '"' else sentence
        places, text, at = {}, "", 0
        for tag in _TAG.finditer(marked):
            text += marked[at : tag.start()]
            places[tag.group()] = len(text)
            at = tag.end()
        text += marked[at:]
        if set(places) != {"<e1>", "</e1>", "<e2>", "</e2>"} or i + 1 == len(lines):
            message = "expected a sentence with <e1>…</e1> and <e2>…</e2>, and its relation in the next line."
            raise DataError(message, file=path, line=i + 1)
        spans = Span(places["<e1>"], places["</e1>"]), Span(places["<e2>"], places["</e2>"])
        yield i + 1, number, text, lines[i + 1].strip(), spans


def pronouns(d: Dataset, root: Root, part: str | None = None) -> Task:
    """Pairs (pronoun, candidate), two for each sentence; files: train.c.txt and test.c.txt of five lines a sentence.

    The pronoun is the only one of its form in the sentence; sentences where it is not, or where a candidate does not
    occur, are left out and counted in a note. Twin sentences are one group.
    """
    splits, notes = {}, []
    for split, path in files_of(d, root).items():
        rows = list(_resolved(path))
        kept = [(i, text, targets) for i, (text, targets) in enumerate(rows) if targets]
        if left := len(rows) - len(kept):
            notes.append(f"{left} of {len(rows)} sentences of {split} do not say which words are meant; left out.")
        splits[split] = examples(
            split,
            [text for _, text, _ in kept],
            ids=[f"{split}-{i}" for i, _, _ in kept],
            group=[f"{split}-twins-{i // 2}" for i, _, _ in kept],
            targets=[targets for _, _, targets in kept],
        )
    return d.task(splits, notes)


def _resolved(path: Path) -> Iterator[tuple[str, tuple[Target, ...]]]:
    lines = [line.strip() for line in read_lines(path)]
    while lines and not lines[-1]:
        lines.pop()
    for i in range(0, len(lines), 5):
        block = lines[i : i + 4]
        text, pronoun, both, answer = (*block, "", "", "", "")[:4]
        candidates = [one.strip() for one in both.split(",")]
        if len(candidates) != 2 or answer not in candidates or (i + 4 < len(lines) and lines[i + 4]):
            message = "expected a sentence, a pronoun, two candidates with a comma between them, the right one, and an "
            raise DataError(f"{message}empty line.", file=path, line=i + 1)
        places = [_words(pronoun, text), *(_words(one, text) for one in candidates)]
        if len(places[0]) != 1 or not all(places):
            yield text, ()
            continue
        yield (
            text,
            tuple(
                Target((places[0][0], spans[0]), int(one == answer))
                for one, spans in zip(candidates, places[1:], strict=True)
            ),
        )


def _words(phrase: str, text: str) -> list[Span]:
    """Where a phrase occurs as whole words, whatever the case of its letters."""
    found = re.finditer(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE)
    return [Span(*match.span()) for match in found]


def wsc(d: Dataset, root: Root, part: str | None = None) -> Task:
    """SuperGLUE's Winograd schemas: a noun phrase and a pronoun of a text, as numbers of words between blanks."""
    splits = {}
    for split, rows in _records(d, root):
        splits[split] = [_schema(split, *row) for row in rows]
    return d.task(splits)


def _schema(split: str, path: Path | str, line: int, row: Mapping[str, Any]) -> Example:
    text, target = _text(path, line, row, "text"), row.get("target", row)
    words = [match.span() for match in re.finditer(r"\S+", text)]
    spans = []
    for number in (1, 2):
        phrase, first = (target.get(f"span{number}_{key}") for key in ("text", "index"))
        if not isinstance(phrase, str) or not isinstance(first, int) or not 0 <= first < len(words):
            message = (
                f"expected span{number}_text, and span{number}_index below {len(words)}; found {str(target)[:80]}."
            )
            raise DataError(message, file=path, line=line, column="target")
        spans.append(_nearest(phrase.rstrip("."), text, words, first))
    name, label = f"{split}-{row.get('idx', line - 1)}", _label(path, line, row)
    targets = (Target((spans[0], spans[1]), label if isinstance(label, int) else None),)
    return Example(name, text, group=text, targets=targets)


def _nearest(phrase: str, text: str, words: Sequence[tuple[int, int]], first: int) -> Span:
    """A phrase where it occurs nearest to a word; as many words from there if it does not (in 2 of 500 places)."""
    start = words[first][0]
    if found := _words(phrase, text):
        return min(found, key=lambda span: abs(span.start - start))
    return Span(start, words[min(first + len(phrase.split()), len(words)) - 1][1])


QUESTIONS = {"cause": "What was the cause?", "effect": "What was the effect?"}


def copa(d: Dataset, root: Root, part: str | None = None) -> Task:
    """COPA: which of two sentences is the cause, or the effect, of the premise.

    The text is the premise followed by "What was the cause?" or "What was the effect?"; the domain is cause or effect.
    Files: train.jsonl, val.jsonl (dev) and test.jsonl of SuperGLUE, whose test split has no labels.
    """
    splits = {}
    for split, rows in _records(d, root):
        splits[split] = [_choice(split, *row) for row in rows]
    return d.task(splits)


def wic(d: Dataset, root: Root, part: str | None = None) -> Task:
    """WiC: 1 if a word has the same meaning in both sentences; its place in each is in ``spans``.

    Files: train.jsonl, val.jsonl (dev) and test.jsonl of SuperGLUE, whose test split has no labels. In files without
    the characters of the word (start1, end1 …) it is found as the only word of the sentence with its beginning; other
    rows are left out, and counted in a note. The domain is the part of speech if the file names it.
    """
    splits, notes = {}, []
    for split, rows in _records(d, root):
        found = [_word_in_context(split, *row) for row in rows]
        splits[split] = [one for one in found if one is not None]
        if left := len(found) - len(splits[split]):
            notes.append(f"{left} of {len(found)} rows of {split} do not say where the word is, and are left out.")
    return d.task(splits, notes)


Row = tuple[Path | str, int, Mapping[str, Any]]


def _records(d: Dataset, root: Root) -> Iterator[tuple[str, list[Row]]]:
    if root is None:
        data = from_hub(str(d.name), str(d.hub), d.config, revision=d.revision)
        for split, theirs in d.splits.items():
            yield split, [(f"{d.hub} ({theirs})", i, row) for i, row in enumerate(data[theirs], start=1)]
        return
    for split, path in files_of(d, root).items():
        yield split, [(path, line, record) for line, record in read_json_lines(path)]


def _choice(split: str, path: Path | str, line: int, row: Mapping[str, Any]) -> Example:
    premise, *choices = (_text(path, line, row, key) for key in ("premise", "choice1", "choice2"))
    asked = row.get("question")
    if asked not in QUESTIONS:
        raise DataError(f"found {asked!r}, expected cause or effect.", file=path, line=line, column="question")
    name = f"{split}-{row.get('idx', line - 1)}"
    text = f"{premise} {QUESTIONS[str(asked)]}"
    return Example(name, text, _label(path, line, row), domain=str(asked), choices=tuple(choices))


def _word_in_context(split: str, path: Path | str, line: int, row: Mapping[str, Any]) -> Example | None:
    word, first, second = (_text(path, line, row, key) for key in ("word", "sentence1", "sentence2"))
    spans = []
    for number, sentence in enumerate((first, second), start=1):
        ends = row.get(f"start{number}"), row.get(f"end{number}")
        place = place_of(word, sentence) if ends == (None, None) else ends
        if place is None:
            return None
        start, end = place
        if not (isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(sentence)):
            message = f"{word!r} is at characters {start} to {end}, but the sentence has {len(sentence)}."
            raise DataError(message, file=path, line=line, column=f"sentence{number}")
        spans.append(Span(start, end, second=number == 2))
    name, domain = f"{split}-{row.get('idx', line - 1)}", {"N": "noun", "V": "verb"}.get(str(row.get("pos")))
    label = _label(path, line, row)
    return Example(name, first, label, pair=second, domain=domain, spans=tuple(spans))


def _text(path: Path | str, line: int, row: Mapping[str, Any], key: str) -> str:
    if not isinstance(row.get(key), str):
        raise DataError(f"found {row.get(key)!r}, expected a text.", file=path, line=line, column=key)
    return str(row[key])


LABELS: dict[str, Label] = {"0": 0, "1": 1, "false": 0, "true": 1, "none": None, "-1": None}


def _label(path: Path | str, line: int, row: Mapping[str, Any]) -> Label:
    given = str(row.get("label")).lower()
    if given not in LABELS:
        raise DataError(f"found {row.get('label')!r}, expected 0 or 1.", file=path, line=line, column="label")
    return LABELS[given]
