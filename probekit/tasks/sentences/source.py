"""Where the sentences of a treebank are, and in which split."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import xxhash

from probekit.errors import DataError, did_you_mean
from probekit.tasks.folders import plain
from probekit.tasks.sentences.brackets import read_brackets
from probekit.tasks.sentences.constituents import of_constituents
from probekit.tasks.sentences.dependencies import of_dependencies
from probekit.tasks.sentences.parse import Parse
from probekit.tasks.treebank import read_trees

__all__ = ["BRACKETS", "Found", "find_treebank", "parses"]

BRACKETS = (".mrg", ".ptb")
"""Endings of files of constituency trees."""
CONLLU = (".conllu", ".conllu.gz")
SPLITS = {"train": ("train",), "dev": ("dev", "valid", "val"), "test": ("test",)}
HELD_OUT = 10
"""Without files for the splits, one sentence in so many is in dev, and one in test."""
FEW_DOCUMENTS = 30
"""With fewer documents, sentences are divided, not documents."""

Found = tuple[str, tuple[tuple[str, Path], ...]]
"""The name of a treebank, and its files with their splits ("" if the files do not say)."""


def find_treebank(root: str | Path, treebank: str | None = None, *, brackets: bool = False) -> Found:
    """The treebank in a folder or in one of its subfolders.

    Parameters
    ----------
    root : path
        Folder with files TREEBANK-ud-SPLIT.conllu, or other .conllu files, or .mrg or .ptb files (trees in brackets),
        directly or in subfolders.
    treebank : str, optional
        Which one, if there are several: the name before "-ud-" (``en_ewt``), otherwise the name of the folder.
    brackets : bool, default False
        Whether it must have trees in brackets.

    Raises
    ------
    DataError
        If there is none, or several and none is chosen.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{'is a file, expected a folder' if root.exists() else 'does not exist'}.", file=root)
    found = _treebanks(root)
    if treebank is not None:
        chosen = next((name for name in found if plain(name) == plain(treebank)), None)
        if chosen is None:
            hint = did_you_mean(treebank, found) if found else f"expected {_EXPECTED}."
            raise DataError(f"has no treebank {treebank!r}; {hint}", file=root)
        found = {chosen: found[chosen]}
    if brackets:
        dependencies = ", ".join(found)
        found = {name: files for name, files in found.items() if files[0][1].name.endswith(BRACKETS)}
        if not found and dependencies:
            message = f"has only dependency trees ({dependencies}); the constituents below a sentence are in trees in "
            raise DataError(
                f"{message}brackets (.mrg or .ptb files, as of the Penn Treebank). Give their folder.", file=root
            )
    if not found:
        raise DataError(f"has no treebank; expected {_EXPECTED}.", file=root)
    if len(found) > 1:
        several = ", ".join(found)
        raise DataError(
            f"holds several treebanks ({several}); choose one: treebank:NAME:{next(iter(found))}.", file=root
        )
    return next(iter(found.items()))


_EXPECTED = "TREEBANK-ud-train.conllu, or .conllu, .mrg or .ptb files, there or in a subfolder"


def _treebanks(root: Path) -> dict[str, tuple[tuple[str, Path], ...]]:
    """All treebanks in a folder and two floors below it, by name."""
    files: dict[str, list[Path]] = {}
    for pattern in ("*", "*/*", "*/*/*"):
        level: dict[str, list[Path]] = {}
        for path in sorted(root.glob(pattern)):
            if path.name.endswith((*CONLLU, *BRACKETS)) and path.is_file():
                level.setdefault(_name(path, root), []).append(path)
        files |= {name: paths for name, paths in level.items() if name not in files}  # copies below do not count
    return {name: tuple((_split(path), path) for path in paths) for name, paths in files.items()}


def _name(path: Path, root: Path) -> str:
    if "-ud-" in path.name and path.name.endswith(CONLLU):
        return path.name.partition("-ud-")[0]
    folder, kind = path.parent, "-brackets" if path.name.endswith(BRACKETS) else ""
    if not any(other.name.endswith(CONLLU) for other in folder.iterdir()):
        kind = ""  # there is nothing to confuse it with
    while folder != root and folder.name.isdigit():
        folder = folder.parent  # a section of the Wall Street Journal
    return (root.resolve().name if folder == root else folder.name) + kind


def _split(path: Path) -> str:
    words = re.split(r"[^a-z]+", path.name.lower())
    return next((split for split, names in SPLITS.items() if set(names) & set(words)), "")


def parses(found: Found) -> Mapping[str, Sequence[Parse]]:
    """The sentences of a treebank by split, in the order of the files; the last two that were read are kept in memory.

    If the files do not say the split, whole documents are divided (sentences, if there are fewer than 30 documents): in
    the order of a hash of their names, a tenth of the sentences each becomes dev and test.
    """
    name, files = found
    places = dict[tuple[str, str], Path]()
    for split, path in files:
        if split and "-ud-" in path.name and (other := places.setdefault((split, path.name), path)) != path:
            raise DataError(f"could be the {split} split of {name}, as could {path}. Keep one.", file=other)
    return _parses(name, tuple((split, path, *_stamp(path)) for split, path in files))


def _stamp(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_mtime_ns, state.st_size


@lru_cache(maxsize=2)
def _parses(name: str, files: tuple[tuple[str, Path, int, int], ...]) -> Mapping[str, Sequence[Parse]]:
    paths = [path for _, path, *_ in files]
    all_in = all(split for split, *_ in files)
    read = {path: list(_read(path, name, single=len(paths) == 1)) for path in paths}
    if not any(read.values()):
        raise DataError("has no sentences.", file=paths[0] if len(paths) == 1 else paths[0].parent)
    if all_in and "train" in (split for split, *_ in files):
        splits: dict[str, list[Parse]] = {}
        for split, path, *_ in files:
            splits.setdefault(split, []).extend(read[path])
        return {split: splits[split] for split in SPLITS if split in splits}
    return _divided([parse for path in paths for parse in read[path]])


def _read(path: Path, treebank: str, *, single: bool) -> Iterator[Parse]:
    if path.name.endswith(CONLLU):
        yield from (of_dependencies(tree, treebank) for tree in read_trees(path))
        return
    numbers: Counter[str] = Counter()
    for given, _, tree in read_brackets(path):
        document = given or ("" if single else path.stem)
        place = document or path.stem
        yield of_constituents(tree, f"{place}-{numbers[place]}", document)
        numbers[place] += 1


def _divided(sentences: Sequence[Parse]) -> Mapping[str, Sequence[Parse]]:
    documents = Counter(parse.document for parse in sentences)
    whole = len(documents) >= FEW_DOCUMENTS and "" not in documents
    units = [parse.document if whole else parse.key for parse in sentences]
    sizes, split_of, taken = Counter(units), dict[str, str](), 0
    for unit in sorted(sizes, key=lambda unit: xxhash.xxh3_64_intdigest(unit.encode("utf-8", "surrogatepass"))):
        split_of[unit] = (
            "test" if taken < len(units) / HELD_OUT else "dev" if taken < 2 * len(units) / HELD_OUT else "train"
        )
        taken += sizes[unit]
    return {s: [p for p, unit in zip(sentences, units, strict=True) if split_of[unit] == s] for s in SPLITS}
