"""Spans and pairs of spans as targets: chunks, relations, coreference (edge probing).

Tenney et al. 2019, "What do you learn from context?", https://arxiv.org/abs/1905.06316, probes such tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from probekit.errors import DataError
from probekit.files import read_lines
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import HUB_SPLITS, examples, locate
from probekit.tasks.files.readers import read_conll
from probekit.tasks.targets import bio_targets
from probekit.tasks.task import Span, Target, Task, TaskKind

__all__ = ["LOADERS", "chunks", "dpr", "semeval"]

ONE_LABEL = ("accuracy", "macro-f1")

CHUNKS = Dataset(
    "conll2000",
    "CoNLL-2000: the type of each chunk",
    TaskKind.SPAN_LABELLING,
    {"train": 8936, "test": 2012},
    ONE_LABEL,
    "Tjong Kim Sang and Buchholz 2000, https://www.clips.uantwerpen.be/conll2000/chunking/",
    "not stated; the text is from the Wall Street Journal",
    ("ADJP", "ADVP", "CONJP", "INTJ", "LST", "NP", "PP", "PRT", "SBAR", "UCP", "VP"),
    folder="conll2000",
    shown="Chunks",
)
NINE = (
    *("Cause-Effect", "Component-Whole", "Content-Container", "Entity-Destination", "Entity-Origin"),
    *("Instrument-Agency", "Member-Collection", "Message-Topic", "Product-Producer"),
)
SEMEVAL = Dataset(
    "semeval2010",
    "SemEval-2010 task 8: the relation between two nominals, with its direction",
    TaskKind.SPAN_LABELLING,
    {"train": 8000, "test": 2717},
    ONE_LABEL,
    "Hendrickx et al. 2010, https://aclanthology.org/S10-1006",
    "CC BY 3.0",
    (*(f"{name}({order})" for name in NINE for order in ("e1,e2", "e2,e1")), "Other"),
    folder="semeval2010_task8",
    shown="SemEval relations",
)
DPR = Dataset(
    "dpr",
    "Definite pronoun resolution: whether a pronoun means a candidate",
    TaskKind.SPAN_LABELLING,
    {"train": 1316, "test": 564},
    ONE_LABEL,
    "Rahman and Ng 2012, https://www.hlt.utdallas.edu/~vince/data/emnlp12/",
    "not stated",
    ("no", "yes"),
    folder="dpr_wscr",
    shown="DPR",
)


def chunks(root: str | Path | None = None) -> Task:
    """The chunks of CoNLL-2000, one target each; files: train.txt and test.txt, three columns (word, POS, chunk)."""
    files = _local(CHUNKS, root, {"train": ("train.txt",), "test": ("test.txt",)})
    index = {name: i for i, name in enumerate(CHUNKS.label_names)}
    splits = {}
    for split, path in files.items():
        found = list(read_conll(path, columns=3))
        for s in found:
            strange = [t for t in s.column(2) if t != "O" and (t[:2] not in ("B-", "I-") or t[2:] not in index)]
            if strange:
                message = f"the sentence that begins here has the tag {strange[0]!r}; expected O, B- or I- and"
                raise DataError(f"{message} {', '.join(index)}.", file=path, line=s.line, column="3")
        words = [s.column(0) for s in found]
        targets = [tuple(bio_targets(s.column(2), index)) for s in found]
        splits[split] = examples(split, [" ".join(w) for w in words], words=words, targets=targets)
    return CHUNKS.task(splits)


def semeval(root: str | Path | None = None) -> Task:
    """The 19 classes of two marked nominals in each sentence; files: TRAIN_FILE.TXT and TEST_FILE_FULL.TXT."""
    patterns = {"train": ("TRAIN_FILE.TXT", "*/TRAIN_FILE.TXT"), "test": ("TEST_FILE_FULL.TXT", "*/TEST_FILE_FULL.TXT")}
    index = {name: i for i, name in enumerate(SEMEVAL.label_names)}
    splits = {}
    for split, path in _local(SEMEVAL, root, patterns).items():
        rows = list(_marked(path))
        for line, _, _, label, _ in rows:
            if label not in index:
                message = f"found the relation {label!r}, expected Other, or a name with (e1,e2) or (e2,e1)."
                raise DataError(message, file=path, line=line + 1)
        targets = [(Target(spans, index[label]),) for _, _, _, label, spans in rows]
        splits[split] = examples(split, [text for _, _, text, _, _ in rows], ids=[r[1] for r in rows], targets=targets)
    return SEMEVAL.task(splits)


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


def dpr(root: str | Path | None = None) -> Task:
    """Pairs (pronoun, candidate), two for each sentence; files: train.c.txt and test.c.txt of five lines a sentence.

    The pronoun is the only one of its form in the sentence; sentences where it is not, or where a candidate does not
    occur, are left out and counted in a note. Twin sentences are one group.
    """
    files = _local(DPR, root, {"train": ("train.c.txt",), "test": ("test.c.txt",)})
    splits, notes = {}, []
    for split, path in files.items():
        rows = list(_resolved(path))
        kept = [(i, text, targets) for i, (text, targets) in enumerate(rows) if targets]
        if left := len(rows) - len(kept):
            notes.append(f"{left} of {len(rows)} sentences of {split} do not say which words are meant; left out.")
        splits[split] = examples(
            split,
            [text for _, text, _ in kept],
            ids=[f"{split}-{i}" for i, _, _ in kept],
            groups=[f"{split}-twins-{i // 2}" for i, _, _ in kept],
            targets=[targets for _, _, targets in kept],
        )
    return DPR.task(splits, notes)


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


def _local(dataset: Dataset, root: str | Path | None, names: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """The files of a dataset that is not on the hub in this form."""
    if root is None:
        raise DataError(
            f"{dataset.name} is read from a folder: give the one with {names['train'][0]} (--data-dir, or data_dir in "
            f"Python), from {dataset.source.rpartition(' ')[2]}."
        )
    found = locate(root, names, folder=dataset.folder or dataset.name, what=dataset.shown)
    return {split: found[split] for split in HUB_SPLITS if split in found}


LOADERS = {CHUNKS: chunks, SEMEVAL: semeval, DPR: dpr}
