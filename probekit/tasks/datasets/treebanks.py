"""Tasks whose files are trees in brackets: SST's phrases, and the categories of CCGbank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from probekit.errors import DataError
from probekit.files import read_lines
from probekit.tasks.datasets.published import files_of
from probekit.tasks.datasets.sources import examples
from probekit.tasks.files.description import Dataset
from probekit.tasks.sentences.brackets import ESCAPED, Node, read_brackets
from probekit.tasks.task import Example, Task

Root = str | Path | None


def sst_trees(d: Dataset, root: Root, part: str | None = None) -> Task:
    """The sentences of each split, and all phrases of train, each in the group of its sentence."""
    splits: dict[str, list[Example]] = {}
    for split, path in files_of(d, root).items():
        trees = [(line, tree) for _, line, tree in read_brackets(path)]
        splits[split] = [_phrase(path, line, tree, f"{split}-{i}", None) for i, (line, tree) in enumerate(trees)]
        if split == "train":
            splits["train-phrases"] = [
                _phrase(path, line, node, f"train-{i}-{k}", f"train-{i}")
                for i, (line, tree) in enumerate(trees)
                for k, node in enumerate(_below(tree))
            ]
    return d.task(splits)


def _below(tree: Node) -> Iterator[Node]:
    yield tree
    for child in tree.children:
        yield from _below(child)


def _phrase(path: Path, line: int, node: Node, name: str, group: str | None) -> Example:
    if node.label not in _CLASSES:
        raise DataError(f"found the class {node.label!r}, expected one of {', '.join(_CLASSES)}.", file=path, line=line)
    return Example(name, " ".join(leaf.word for leaf in node.leaves), int(node.label), group=group)


_CLASSES = ("0", "1", "2", "3", "4")
SECTIONS = {"train": range(2, 22), "dev": range(1), "test": range(23, 24)}
Words = list[tuple[str, str]]
"""The words of a sentence, each with its category."""


def ccgbank(d: Dataset, root: Root, part: str | None = None) -> Task:
    """The category of each word, from derivations (.auto) or from lines of word|POS|category."""
    found: dict[str, list[tuple[str, Words]]] = {}
    for split, files in _sections(root).items():
        found[split] = [sentence for file in files for sentence in _derivations(file)]
    if not any(found.values()):
        found = {split: list(_tagged(split, path)) for split, path in files_of(d, root).items()}
    names = sorted({tag for sentences in found.values() for _, words in sentences for _, tag in words})
    return d.task({split: _sentences(split, some, names) for split, some in found.items() if some}, labels=names)


def _sections(root: Root) -> dict[str, list[Path]]:
    """The .auto files of each split."""
    folder = Path(root) if root is not None else Path()
    places = [folder, *(folder / name for name in ("data/AUTO", "AUTO", "ccgbank/data/AUTO", "ccgbank_1_1/data/AUTO"))]
    return {
        split: next(
            (files for place in places if root is not None
             if (files := sorted(f for k in sections for f in place.glob(f"{k:02}/*.auto")))),
            [],
        )
        for split, sections in SECTIONS.items()
    }  # fmt: skip


_LEAF = re.compile(r"\(<L (\S+) \S+ \S+ (\S+) \S+>\)")


def _derivations(path: Path) -> Iterator[tuple[str, Words]]:
    """The sentences of a file of derivations: a line that begins with ID=, and the derivation in the next."""
    lines = read_lines(path)
    for i, line in enumerate(lines):
        if not line.startswith("ID="):
            continue
        leaves = _LEAF.findall(lines[i + 1]) if i + 1 < len(lines) else []
        if not leaves:
            raise DataError(
                "expected a derivation such as (<T S 0 2> (<L N …>)) in the next line.", file=path, line=i + 1
            )
        yield line.removeprefix("ID=").split()[0], [(_word(word), category) for category, word in leaves]


def _tagged(split: str, path: Path) -> Iterator[tuple[str, Words]]:
    """The sentences of a file with one in each line, as word|POS|category between blanks."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [token.rsplit("|", 2) for token in line.split()]
        if wrong := next((cell for cell in cells if len(cell) != 3 or not all(cell)), None):
            raise DataError(f"found {'|'.join(wrong)[:60]!r}, expected word|POS|category.", file=path, line=number)
        yield f"{split}-{number}", [(_word(word), category) for word, _, category in cells]


def _word(word: str) -> str:
    return ESCAPED.get(word, word.replace("\\/", "/"))


def _sentences(split: str, some: Iterable[tuple[str, Words]], names: Sequence[str]) -> list[Example]:
    index = {name: i for i, name in enumerate(names)}
    rows = list(some)
    words = [tuple(word for word, _ in sentence) for _, sentence in rows]
    labels = [tuple(index[tag] for _, tag in sentence) for _, sentence in rows]
    return examples(split, [" ".join(w) for w in words], labels, words=words, ids=[name for name, _ in rows])
