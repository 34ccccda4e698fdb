"""Minimal pairs: an acceptable and an unacceptable sentence that differ in one property."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from probekit.errors import DataError, UsageError, did_you_mean
from probekit.files import read_lines
from probekit.notes import logger
from probekit.tasks.datasets.published import dataset, files_of
from probekit.tasks.datasets.sources import treebank_files
from probekit.tasks.files.description import Dataset
from probekit.tasks.files.readers import is_quoted, read_csv, read_json_lines, read_tsv
from probekit.tasks.task import SEVERAL, Example, Task
from probekit.tasks.treebank import Tree, read_trees

log = logger(__name__)

GOOD, BAD = ("good", "sentence_good"), ("bad", "sentence_bad")
"""Names of the columns of the two sentences; the first is that of your own files, the second that of BLiMP."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences that differ in one property.

    Attributes
    ----------
    id : str
        Unique.
    good, bad : str
        The acceptable and the unacceptable sentence; they differ.
    paradigm : str
        The smallest group of pairs that test the same, such as "passive_1".
    phenomenon, field : str, default ''
        Groups of paradigms and of phenomena, such as "argument_structure" and "syntax"; "" if the source has none.
    factors : mapping
        Further columns by name, such as "distance" and "attractors".
    """

    id: str
    good: str
    bad: str
    paradigm: str
    phenomenon: str = ""
    field: str = ""
    factors: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pairs:
    """A set of minimal pairs.

    Attributes
    ----------
    name : str
        As on the command line.
    pairs : tuple of Pair
    equal : tuple of str
        Where the pairs are that were left out because their sentences are equal: "FILE, line N".
    """

    name: str
    pairs: tuple[Pair, ...]
    equal: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.pairs)

    def task(self, d: Dataset) -> Task:
        """The sentences as a classification task, two of a pair in one group; its only split is "test"."""
        found = []
        for pair in self.pairs:
            domain = SEVERAL.join(dict.fromkeys(filter(None, (pair.field, pair.phenomenon, pair.paradigm))))
            for label, text in ((1, pair.good), (0, pair.bad)):
                name = f"{pair.id}:{'good' if label else 'bad'}"
                found.append(Example(name, text, label, domain=domain, group=pair.id))
        notes = [f"{len(self.equal)} pairs of equal sentences are left out."] if self.equal else []
        return d.task({"test": found}, notes, name=self.name)


def pairs(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """The sentences of a set of pairs as a task."""
    return load_pairs(f"{d.name}:{part}" if part else str(d.name), root).task(d)


def load_pairs(name: str, data_dir: str | Path | None = None) -> Pairs:
    """The minimal pairs called ``name``.

    Parameters
    ----------
    name : str
        "blimp", "multiblimp", "marvin-linzen", "agreement" or "agreement:TREEBANK" (made from a UD treebank), or the
        path of your own file (.tsv, .csv or .jsonl) with the columns ``good`` and ``bad``, and optionally ``id``,
        ``paradigm``, ``phenomenon``, ``field`` and others, such as ``distance``.
    data_dir : path, optional
        Folder with the files of the set.

    Raises
    ------
    UsageError
        If the name is unknown.
    DataError
        If the data cannot be read, or no pair is left.

    Examples
    --------
    >>> pairs = load_pairs("blimp", "data/blimp")  # doctest: +SKIP
    """
    base, _, part = name.partition(":")
    if Path(name).suffix.lower() in OWN:
        file = Path(data_dir) / name if data_dir and not Path(name).exists() else Path(name)
        return _kept(file.stem, _of_own(file), file=file)
    names = (*READERS, "agreement")
    if base not in names:
        raise UsageError(f"unknown pairs {name!r}; {did_you_mean(name, names)} A file of pairs ends in .tsv.")
    if data_dir is None:
        raise DataError(f"{name} is read from a folder: give the one with its files (--data-dir, or data_dir).")
    if base == "agreement":
        return agreement(data_dir, part or None)
    found = list(READERS[base](data_dir))
    chosen = [(p, place) for p, place in found if not part or part in (p.field, p.phenomenon, p.paradigm)]
    if part and not chosen:
        known = sorted({name for p, _ in found for name in (p.paradigm, p.phenomenon, p.field) if name})
        raise UsageError(f"{base} has no paradigm {part!r}; {did_you_mean(part, known)}")
    return _kept(name, chosen)


def blimp(root: str | Path) -> Iterator[tuple[Pair, str]]:
    """BLiMP (Warstadt et al. 2020): 67 paradigms of 1,000 pairs, from the files ``data/PARADIGM.jsonl`` of its release.

    Pairs of equal sentences (7 in the release) are left out, with a warning that names their lines.
    """
    places = [Path(root), Path(root) / "data", Path(root) / "blimp"]
    files = next((found for place in places if (found := sorted(place.glob("*.jsonl")))), [])
    if not files:
        files_of(dataset("blimp"), root)  # raises DataError
    for file in files:
        for line, record in read_json_lines(file):
            lacking = [key for key in ("sentence_good", "sentence_bad", "UID", "pairID") if key not in record]
            if lacking:
                raise DataError(f"expected the key {lacking[0]!r} of BLiMP.", file=file, line=line)
            area = str(record.get("field", "")).replace("/", "_")  # one paradigm has "syntax/semantics"
            pair = Pair(
                f"{record['UID']}-{record['pairID']}", record["sentence_good"], record["sentence_bad"],
                str(record["UID"]), str(record.get("linguistics_term", "")), area,
            )  # fmt: skip
            yield pair, f"{file}, line {line}"


def marvin_linzen(root: str | Path) -> Iterator[tuple[Pair, str]]:
    """Marvin & Linzen 2018, from tables with the columns template, condition, sentence_good and sentence_bad.

    Tables of negative polarity items have two unacceptable sentences, ``sentence_bad_intrusive`` and
    ``sentence_bad_other``, and give two pairs a row. The release itself consists of pickles, which are never read.
    """
    for kind, file in files_of(dataset("marvin-linzen"), root).items():
        bad = ("sentence_bad",) if kind == "pairs" else ("sentence_bad_intrusive", "sentence_bad_other")
        table = read_tsv(file, required=("template", "condition", "sentence_good", *bad))
        seen: Counter[str] = Counter()
        for row, line in zip(table.rows, table.lines, strict=True):
            cells = dict(zip(table.columns, row, strict=True))
            template, condition = cells["template"], cells["condition"]
            for column in bad:
                key = f"{template}-{condition}" + column.removeprefix("sentence_bad").replace("_", "-")
                pair = Pair(
                    f"{key}-{seen[key]}", cells["sentence_good"], cells[column],
                    template + column.removeprefix("sentence_bad"), _area(template), "", {"condition": condition},
                )  # fmt: skip
                seen[key] += 1
                yield pair, f"{file}, line {line}"


def multiblimp(root: str | Path) -> Iterator[tuple[Pair, str]]:
    """MultiBLiMP (Jumelet et al. 2025): a folder for each language, with data.tsv; its field is the language."""
    places = [Path(root), Path(root) / "multiblimp"]
    files = next((found for place in places if (found := sorted(place.glob("*/data.tsv")))), [])
    if not files:
        files_of(dataset("multiblimp"), root)  # raises DataError
    for file in files:
        quoted, columns = is_quoted(read_lines(file, ends=True)), ("sen", "wrong_sen", "phenomenon")
        table = read_csv(file, required=columns, delimiter="\t") if quoted else read_tsv(file, required=columns)
        language = file.parent.name
        for at, (good, bad, phenomenon) in enumerate(zip(*map(table.column, columns), strict=True)):
            pair = Pair(f"{language}-{at}", good, bad, f"{language}-{phenomenon}", phenomenon, language)
            yield pair, f"{file}, line {table.lines[at]}"


def _area(template: str) -> str:
    """The three phenomena of the paper."""
    return "npi" if "npi" in template else "reflexives" if "reflexive" in template else "agreement"


VERBS = {"VBZ": "VBP", "VBP": "VBZ"}
NOUNS = {"NN": "VBZ", "NNS": "VBP"}
"""Penn tags of nouns, and of the present-tense verbs that agree with them."""


def agreement(root: str | Path, treebank: str | None = None) -> Pairs:
    """Subject-verb agreement in a treebank (after Linzen, Dupoux & Goldberg 2016).

    The unacceptable sentence has the verb in the other number, in a form of its lemma that the treebank attests. Only
    sentences count whose subject is one common noun before the verb, in the number of the verb. ``distance`` counts the
    words between subject and verb, ``attractors`` the common nouns between them in the other number. Verbs that are
    contracted with the word before them ("the cat's here") have no other form there, and are left out. The columns XPOS
    must hold Penn tags, as in the English treebanks. All splits are read.
    """
    name, files = treebank_files(root, treebank, "conllu", "a UD treebank")
    trees = {split: read_trees(path, split) for split, path in files.items()}
    forms: dict[tuple[str, str], Counter[str]] = {}
    for tree in (tree for some in trees.values() for tree in some):
        for lemma, tag, word in zip(tree.lemmas, tree.xpos, tree.words, strict=True):
            if tag in VERBS and _is_whole(word):
                forms.setdefault((lemma, tag), Counter())[word.lower()] += 1
    found = ((pair, pair.id) for some in trees.values() for tree in some for pair in _swapped(tree, forms))
    return _kept(f"agreement:{name}", found, distinct=True)


def _swapped(tree: Tree, forms: Mapping[tuple[str, str], Counter[str]]) -> Iterator[Pair]:
    relations, done = tree.relations, set[int]()
    for subject, head in enumerate(tree.heads):
        if relations[subject] != "nsubj" or not head or tree.xpos[subject] not in NOUNS:
            continue
        children = tree.children(head - 1)
        auxiliary = [c for c in children if relations[c] in ("aux", "cop") and tree.xpos[c] in VERBS]
        verb = auxiliary[0] if auxiliary else head - 1
        modal = any(relations[c] == "aux" and c < verb and c not in auxiliary for c in children)
        coordinated = any(relations[c] == "conj" for c in tree.children(subject))
        agrees = verb not in done and tree.xpos[verb] == NOUNS[tree.xpos[subject]]
        if verb <= subject or modal or coordinated or not agrees or not _is_whole(tree.words[verb]):
            continue
        done.add(verb)
        others = forms.get((tree.lemmas[verb], VERBS[tree.xpos[verb]]))
        if not others or (other := others.most_common(1)[0][0]) == tree.words[verb].lower():
            continue
        between = tree.xpos[subject + 1 : verb]
        attractors = sum(tag in NOUNS and tag != tree.xpos[subject] for tag in between)
        factors = {"distance": str(len(between)), "attractors": str(attractors)}
        bad = tree.written({verb: _in_case(other, tree.words[verb])})
        yield Pair(f"{tree.id}-{verb}", tree.written(), bad, "agreement", factors=factors)


def _is_whole(word: str) -> bool:
    """Whether a verb is no contraction: "'s", or the s of a writer who leaves the apostrophe out."""
    return word.isalpha() and len(word) > 1


def _in_case(form: str, like: str) -> str:
    return form.upper() if like.isupper() else form.capitalize() if like[0].isupper() else form


def _of_own(file: Path) -> Iterator[tuple[Pair, str]]:
    """The pairs of your own file; see :func:`load_pairs`."""
    if file.suffix.lower() == ".jsonl":
        rows = [(line, _cells(record, file, line)) for line, record in read_json_lines(file)]
    else:
        table = (read_csv if file.suffix.lower() == ".csv" else read_tsv)(file)
        rows = [
            (line, dict(zip(table.columns, row, strict=True)))
            for row, line in zip(table.rows, table.lines, strict=True)
        ]
    for at, (line, cells) in enumerate(rows):
        texts = []
        for names in (GOOD, BAD):
            key = next((name for name in names if name in cells), None)
            if key is None:
                expected = f"expected the columns good and bad (or {GOOD[1]} and {BAD[1]}), found {', '.join(cells)}."
                raise DataError(expected, file=file, line=line if file.suffix.lower() == ".jsonl" else 1)
            if not cells[key].strip():
                raise DataError("is empty; expected a sentence.", file=file, line=line, column=key)
            texts.append(cells[key])
        known = ("id", "paradigm", "phenomenon", "field", *GOOD, *BAD)
        paradigm = cells.get("paradigm") or cells.get("UID") or file.stem
        factors = {key: value for key, value in cells.items() if key not in known}
        place = f"{file}, line {line}"
        yield (
            Pair(
                cells.get("id") or f"{file.stem}-{at}", texts[0], texts[1], paradigm, cells.get("phenomenon", ""),
                cells.get("field", ""), factors,
            ),
            place,
        )  # fmt: skip


def _cells(record: Mapping[str, object], file: Path, line: int) -> dict[str, str]:
    for key in (*GOOD, *BAD):
        if key in record and not isinstance(record[key], str):
            raise DataError(f"found {record[key]!r}, expected a sentence.", file=file, line=line, column=key)
    return {key: str(value) for key, value in record.items() if value is not None}


def _kept(name: str, found: Iterable[tuple[Pair, str]], *, distinct: bool = False, file: Path | None = None) -> Pairs:
    """The pairs whose sentences differ, with a warning that names the others; raises DataError if none is left."""
    kept, equal, ids, texts = list[Pair](), list[str](), set[str](), set[tuple[str, str]]()
    for pair, place in found:
        if pair.good == pair.bad:
            equal.append(place)
            continue
        if pair.id in ids:
            raise DataError(f"{place}: the id {pair.id!r} is not unique.")
        if distinct and (pair.good, pair.bad) in texts:
            continue
        ids.add(pair.id)
        texts.add((pair.good, pair.bad))
        kept.append(pair)
    if equal:
        shown = "; ".join(equal[:7]) + ("; …" if len(equal) > 7 else "")
        log.warning("%s: pairs of equal sentences are left out (%d): %s.", name, len(equal), shown)
    if not kept:
        raise DataError(f"{'' if file else f'{name}: '}no pair of different sentences was found.", file=file)
    return Pairs(name, tuple(kept), tuple(equal))


OWN = (".tsv", ".csv", ".jsonl")
READERS: dict[str, Callable[..., Iterable[tuple[Pair, str]]]] = {
    "blimp": blimp,
    "multiblimp": multiblimp,
    "marvin-linzen": marvin_linzen,
}
