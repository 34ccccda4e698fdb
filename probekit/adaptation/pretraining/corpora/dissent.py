"""DisSent (Nie et al. 2019): two clauses, and the discourse marker that joined them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from probekit.adaptation.pretraining.corpora.clauses import Parse, clause_pairs, clauses_of_sentences
from probekit.adaptation.pretraining.corpora.kinds import Corpus, CorpusKind, Row, Rows, check_kind
from probekit.adaptation.pretraining.corpora.sources import Folder
from probekit.adaptation.pretraining.corpora.text_files import (
    HELD_OUT,
    check_units,
    count_up_to,
    held_out_pairs,
    part_of,
)
from probekit.errors import DataError
from probekit.files import stream_lines
from probekit.tasks.datasets.sources import treebank_files
from probekit.tasks.files.readers import Sentence, read_conllu

COLUMNS = ("sentence1", "sentence2", "marker")
JIANT = {"train": "wikitext.dissent.*.train", "dev": "wikitext.dissent.*.valid", "test": "wikitext.dissent.*.test"}
FILES = {"train": ("train.tsv",), "dev": ("dev.tsv", "valid.tsv", "val.tsv"), "test": ("test.tsv",)}


def clauses_from_sentences(corpus: Corpus, name: str) -> Corpus:
    """Pairs of clauses from sentences in document order, by patterns of strings.

    See :mod:`~probekit.adaptation.pretraining.corpora.clauses` for the patterns.

    Raises
    ------
    UsageError
        If the corpus has no sentences in document order.
    """
    check_kind(corpus, name)
    rows: dict[str, Rows] = {split: partial(clauses_of_sentences, part) for split, part in corpus.splits.items()}
    return Corpus(name, CorpusKind.CLAUSES, rows, corpus.files)


def treebank(folder: Path, name: str) -> Corpus:
    """Pairs of clauses from the parses of a treebank, ``<treebank>-ud-<split>.conllu``.

    Raises
    ------
    DataError
        If the folder has no treebank, or several.
    """
    _, files = treebank_files(folder, None, "conllu", "a treebank")
    rows: dict[str, Rows] = {split: partial(_parsed, partial(_documents, path)) for split, path in files.items()}
    return Corpus(name, CorpusKind.CLAUSES, rows, tuple(files.values()))


def parsed_file(path: Path, name: str, seed: int = 0) -> Corpus:
    """Pairs of clauses from a CoNLL-U file; one document in 20 is held out.

    Raises
    ------
    DataError
        If there are fewer than two documents (``# newdoc id``).
    """
    documents = partial(_documents, path)
    units = check_units(count_up_to(documents(), HELD_OUT), path, "documents")
    rows: dict[str, Rows] = {
        split: partial(_parsed, partial(part_of, documents, split == "dev", units, seed)) for split in ("train", "dev")
    }
    return Corpus(name, CorpusKind.CLAUSES, rows, (path,))


def _documents(path: Path) -> Iterator[list[Sentence]]:
    """The sentences of each document; without marks of documents, all sentences are one."""
    document: list[Sentence] = []
    for sentence in read_conllu(path):
        if document and sentence.document != document[0].document:
            yield document
            document = []
        document.append(sentence)
    if document:
        yield document


def _parsed(documents: Callable[[], Iterable[list[Sentence]]]) -> Iterator[Row]:
    for document in documents():
        yield from clauses_from_parses(document)


def clauses_from_parses(document: Iterable[Sentence]) -> Iterator[Row]:
    """The pairs of clauses of the parsed sentences of a document."""
    previous = ""
    for sentence in document:
        parse = Parse.of(sentence)
        yield from clause_pairs(parse, previous)
        previous = parse.text if parse.has_subject else ""


def clause_files(data_dir: Path, name: str, seed: int = 0) -> Corpus:
    """Pairs of clauses that others extracted, with their own markers.

    Files: train.tsv, dev.tsv and test.tsv with the columns sentence1, sentence2 and marker in a header (others are
    ignored); or those of jiant's authors, wikitext.dissent.single_sent.train (or .big.), .valid and .test, without a
    header and with a number for each marker; or one TSV file, of which one pair in 20 is held out.

    Raises
    ------
    DataError
        If there is none of the files, or a column is missing.
    """
    if data_dir.is_file():
        found = {"train": data_dir}
    else:
        folder = Folder(data_dir, "diss", "DisSent", "https://github.com/windweller/DisExtract")
        marked = Folder(data_dir, "discourse", folder.title, folder.source)
        candidates = {
            split: folder.file(JIANT[split], f"*/{JIANT[split]}") or folder.file(*names) or marked.file(*names)
            for split, names in FILES.items()
        }
        found = {split: path for split, path in candidates.items() if path}
        if "train" not in found:
            raise folder.nothing("train.tsv", JIANT["train"])
    rows: dict[str, Rows] = {split: partial(_clauses_in, path) for split, path in found.items()}
    if "dev" not in rows:
        rows |= held_out_pairs(rows["train"], found["train"], seed)
    return Corpus(name, CorpusKind.CLAUSES, rows, tuple(found.values()))


def _clauses_in(path: Path) -> Iterator[Row]:
    """The rows of a file of clauses; those with an empty cell are left out."""
    places = [0, 1, 2]
    for number, line in enumerate(stream_lines(path), start=1):
        cells = line.split("\t")
        if number == 1 and set(cells) & set(COLUMNS):
            missing = [column for column in COLUMNS if column not in cells]
            if missing:
                message = f"there is no column {missing[0]!r}; expected {', '.join(COLUMNS)}."
                raise DataError(message, file=path, line=1)
            places = [cells.index(column) for column in COLUMNS]
            continue
        if len(cells) <= max(places):
            if line.strip():
                message = f"found {len(cells)} columns, expected at least {max(places) + 1} between tabs."
                raise DataError(message, file=path, line=number)
            continue
        first, second, marker = (cells[place].strip() for place in places)
        if first and second and marker:
            yield first, second, marker
