"""Passages and conversations whose next words are to be foretold: LAMBADA, the Children's Book Test, ConvAI2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from probekit.errors import DataError
from probekit.files import read_lines, stream_lines
from probekit.tasks.datasets.published import files_of
from probekit.tasks.datasets.sources import examples
from probekit.tasks.files.description import Dataset
from probekit.tasks.files.readers import read_json_lines
from probekit.tasks.task import Example, Task

Root = str | Path | None


def lambada(d: Dataset, root: Root, part: str | None = None) -> Task:
    """All but the last word of a passage, and this word."""
    splits = {}
    for split, path in files_of(d, root).items():
        rows = [(line, text.rsplit(None, 1)) for line, text in _passages(path)]
        if wrong := next((line for line, cut in rows if len(cut) < 2), None):
            raise DataError("expected a passage of several words.", file=path, line=wrong)
        texts, words = ([cut[k] for _, cut in rows] for k in (0, 1))
        splits[split] = examples(split, texts, [0] * len(texts), pair=words)
    return d.task(splits)


def _passages(path: Path) -> Iterator[tuple[int, str]]:
    if path.suffix == ".jsonl":
        for line, record in read_json_lines(path):
            if not isinstance(record.get("text"), str):
                raise DataError(f"found {record.get('text')!r}, expected a text.", file=path, line=line, column="text")
            yield line, record["text"].strip()
        return
    for line, text in enumerate(read_lines(path), start=1):
        if text.strip():
            yield line, text.strip()


def cbt(d: Dataset, root: Root, part: str | None = None) -> Task:
    """Twenty sentences and one with a gap as the text, ten words as the choices; a type of words is a part."""
    part = part or "NE"
    splits = {split: list(_gaps(split, path)) for split, path in files_of(d, root, part).items()}
    return d.task(splits, name=f"{d.name}:{part}")


EXPECTED = "expected 20 numbered sentences, and as the next one a sentence with XXXXX, the word for it, and ten words"


def _gaps(split: str, path: Path) -> Iterator[Example]:
    before, done = list[str](), 0
    for line, text in enumerate(stream_lines(path), start=1):
        number, _, sentence = text.strip().partition(" ")
        if not number:
            continue
        if number != str(len(before) + 1):
            raise DataError(f"{EXPECTED}; number {len(before) + 1} is {text[:40]!r}.", file=path, line=line)
        if number != "21":
            before.append(sentence.strip())
            continue
        asked, answer, *_, words = [cell.strip() for cell in f"{sentence}\t\t".split("\t")[:4]]
        choices = words.split("|")
        if "XXXXX" not in asked or answer not in choices or len(choices) != 10:
            raise DataError(f"{EXPECTED}; found {sentence[:60]!r}.", file=path, line=line)
        shown = " ".join([*before, asked])
        yield Example(f"{split}-{done}", shown, choices.index(answer), choices=tuple(choices))
        before, done = [], done + 1


_TURN = re.compile(r"(\d+) (.*)")


def convai2(d: Dataset, root: Root, part: str | None = None) -> Task:
    """Each answer with the line before it; the numbers of lines begin again with each dialogue."""
    splits, notes = {}, []
    for split, path in files_of(d, root).items():
        rows, dialogue, personas = [], -1, 0
        for line, text in enumerate(stream_lines(path), start=1):
            turn = _TURN.fullmatch(text)
            if turn is None:
                message = f"expected a number and a line of a dialogue, found {text[:60]!r}."
                raise DataError(message, file=path, line=line)
            dialogue += turn[1] == "1"
            if "persona: " in turn[2].partition("\t")[0][:20]:
                personas += 1
                continue
            said, tab, rest = turn[2].partition("\t")
            answer = rest.partition("\t")[0]
            if not tab or not answer.strip():
                raise DataError("expected a line, a tab and its answer.", file=path, line=line)
            rows.append((said.strip(), answer.strip(), f"{dialogue}"))
        texts, answers, groups = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
        splits[split] = examples(split, texts, [0] * len(texts), pair=answers, group=groups)
        if personas:
            notes.append(f"{split}: {personas:,} lines of a persona are not part of the texts.")
    return d.task(splits, notes)
