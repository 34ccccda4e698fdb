"""Corpora by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from probekit.adaptation.pretraining.corpora.kinds import Corpus, CorpusKind, Row, Rows
from probekit.adaptation.pretraining.corpora.text_files import parallel_files, sentence_file
from probekit.errors import UsageError, did_you_mean

__all__ = ["CORPORA", "Corpus", "CorpusEntry", "CorpusKind", "Row", "Rows", "load_corpus"]


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """A corpus before it is loaded.

    Attributes
    ----------
    kind : CorpusKind
        What a row is.
    title : str
        A readable title.
    load : Callable
        ``load(data_dir, seed) -> Corpus``; ``data_dir`` None loads from the Hugging Face hub.
    """

    kind: CorpusKind
    title: str
    load: Callable[[Path | None, int], Corpus]


CORPORA: dict[str, CorpusEntry] = {}
"""The corpora by name."""


def load_corpus(name: str, data_dir: str | Path | None = None, *, seed: int = 0) -> Corpus:
    """The corpus called ``name``; its text is read when its rows are.

    Parameters
    ----------
    name : str
        One of :data:`CORPORA`; a text file with a sentence in each line and empty lines between documents
        (``books.txt``); or two files whose lines translate each other (``train.en+train.de``).
    data_dir : path, optional
        Folder with the files of the corpus, directly or in a subfolder; None loads from the Hugging Face hub. A file
        that does not exist under its name is looked for in this folder.
    seed : int, default 0
        Determines the held-out share of a corpus without an official dev split.

    Raises
    ------
    UsageError
        If the name is unknown; the message lists similar ones.
    DataError
        If the text cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "books.txt").write_text("".join(f"Sentence {i}.\\n" for i in range(200)))
    >>> corpus = load_corpus("books.txt", folder)
    >>> corpus.kind, {split: sum(1 for row in rows() if row[0]) for split, rows in corpus.splits.items()}
    (<CorpusKind.SENTENCES: 'sentences'>, {'train': 150, 'dev': 50})
    """
    folder = None if data_dir is None else Path(data_dir)
    if name in CORPORA:
        return CORPORA[name].load(folder, seed)
    files = [_file(part, folder) for part in name.split("+")]
    if len(files) == 2 and (files[0].exists() or files[1].exists()):
        return parallel_files(*files, name=name, seed=seed)
    if len(files) == 1 and (files[0].is_file() or files[0].suffix):
        return sentence_file(files[0], seed=seed)
    hint = did_you_mean(name, CORPORA, most=3)
    raise UsageError(
        f"unknown corpus {name!r}; {hint} A text file with a sentence in each line, or two files joined by a plus "
        "(train.en+train.de), are corpora too."
    )


def _file(name: str, folder: Path | None) -> Path:
    """The file of this name, or the one in the folder if only that exists."""
    path = Path(name)
    return folder / name if folder is not None and not path.exists() and (folder / name).exists() else path
