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
from probekit.tasks.sentences.brackets import Node, read_brackets
from probekit.tasks.sentences.dependencies import NUMBERS, TENSES, of_dependencies
from probekit.tasks.sentences.parse import Clauses, Parse, is_word, keeps_capital
from probekit.tasks.treebank import read_trees

CLAUSES = ("S", "SINV", "SQ", "SBARQ")
LEXICAL = ("NN", "NNS", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ")
BE = frozenset(["be", "am", "is", "are", "was", "were", "been", "being", "'s", "'re", "'m"])
AUXILIARIES = BE | {"have", "has", "had", "having", "'ve", "'d", "do", "does", "did", "doing", "done"}
ADVERBIAL = {"TMP", "ADV", "EXT", "LOC", "DIR", "MNR", "PRD", "PRP", "CLR", "VOC", "TPC"}
"""Function tags of noun phrases that are no direct objects."""


def of_constituents(tree: Node, name: str, document: str = "") -> Parse:
    """What a tree says: the verb is the first finite one of the main clause, and nouns the heads of noun phrases.

    The subject is the phrase with the function tag SBJ, otherwise the last noun phrase before the verb phrase; the
    object is the first noun phrase after the last verb of the main clause. The head of a phrase is its last common
    noun; coordinated phrases have none.
    """
    leaves = tree.leaves
    words = tuple(leaf.word for leaf in leaves)
    lexical = (leaf.label in LEXICAL and leaf.word.casefold() not in AUXILIARIES for leaf in leaves)
    clause = _main_clause(tree)
    return Parse(
        id=name,
        words=words,
        tags=tuple(leaf.label if keep else "" for leaf, keep in zip(leaves, lexical, strict=True)),
        depth=tree.depth,
        top="_".join(child.label for child in tree.children) if tree.label == "S" else "",
        tense=_tense(clause) if clause else None,
        subject=_subject(clause) if clause else None,
        object=_object(clause) if clause else None,
        clauses=_clauses(tree, leaves[0]),
        document=document,
    )


def _main_clause(tree: Node) -> Node | None:
    """The clause whose child is a verb phrase; the first of coordinated clauses."""
    node: Node | None = tree
    while node is not None and node.label in CLAUSES:
        if any(child.label == "VP" for child in node.children):
            return node
        node = next((child for child in node.children if child.label in CLAUSES), None)
    return None


def _verbs(clause: Node) -> list[tuple[Node, Node]]:
    """The verbs of a clause from its first to its last verb phrase, each with the phrase that it is in."""
    found, phrase = (
        [(child, clause) for child in clause.children if child.label == "MD" or child.label in TENSES],
        clause,
    )
    while inner := next((child for child in phrase.children if child.label == "VP"), None):
        phrase = inner
        found += [(c, phrase) for c in phrase.children if c.word and (c.label[:2] == "VB" or c.label in ("MD", "TO"))]
    return found


def _tense(clause: Node) -> tuple[str, str] | None:
    for verb, _ in _verbs(clause):
        if verb.label in TENSES:
            return TENSES[verb.label], verb.word.casefold()
        if verb.label == "MD":
            return None
    return None


def _noun(phrase: Node) -> tuple[str, str] | None:
    """Number and form of the head of a noun phrase; None for pronouns, names and coordinations."""
    while not phrase.word and (inner := next((c for c in phrase.children if c.label == "NP"), None)):
        if any(child.label in ("CC", "CONJP", "POS") for child in phrase.children):
            return None
        if any(leaf.label == "POS" for leaf in inner.leaves[-1:]):
            break  # "the company 's plans": the head is outside
        phrase = inner
    if any(child.label in ("CC", "CONJP") for child in phrase.children):
        return None
    heads = [child for child in phrase.children if child.label in ("NN", "NNS", "NNP", "NNPS", "PRP", "DT", "CD")]
    return (NUMBERS[heads[-1].label], heads[-1].word.casefold()) if heads and heads[-1].label in NUMBERS else None


def _subject(clause: Node) -> tuple[str, str] | None:
    marked = [child for child in clause.children if "SBJ" in child.functions]
    at = next(i for i, child in enumerate(clause.children) if child.label == "VP")
    before = [child for child in clause.children[:at] if child.label == "NP" and not ADVERBIAL & set(child.functions)]
    phrases = [child for child in marked if child.label == "NP"] if marked else before[-1:]
    return _noun(phrases[0]) if phrases else None


def _object(clause: Node) -> tuple[str, str] | None:
    verbs = [(verb, phrase) for verb, phrase in _verbs(clause) if verb.label[:2] == "VB"]
    if not verbs or verbs[-1][0].word.casefold() in BE:
        return None
    verb, phrase = verbs[-1]
    after = phrase.children[phrase.children.index(verb) + 1 :]
    phrases = [child for child in after if child.label == "NP" and not ADVERBIAL & set(child.functions)]
    return _noun(phrases[-1]) if phrases else None  # the second of two objects is the direct one


def _clauses(tree: Node, first_word: Node) -> Clauses | None:
    """Of a sentence whose constituents are clause, (comma), conjunction, clause and (mark)."""
    parts = [child for child in tree.children if is_word("".join(leaf.word for leaf in child.leaves))]
    if tree.label != "S" or [part.label for part in parts] != ["S", "CC", "S"] or not is_word(tree.leaves[0].word):
        return None
    starts, at = [], 0
    for child in tree.children:
        starts += [at] if child in parts else []
        at += len(child.leaves)
    first, second = len(parts[0].leaves), starts[2]
    end = second + len(parts[2].leaves)
    if tree.children[0] is not parts[0] or min(first, end - second) < 2 or first_word.label == "CC":
        return None
    return Clauses(first, second, end, keeps_capital(first_word.word, name=first_word.label in ("NNP", "NNPS")))


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
