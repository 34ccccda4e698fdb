"""Corpora by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from probekit.adaptation.pretraining.corpora import language_modelling, replies, translation
from probekit.adaptation.pretraining.corpora.dissent import clause_files, clauses_from_sentences, parsed_file, treebank
from probekit.adaptation.pretraining.corpora.kinds import Corpus, CorpusEntry, CorpusKind, consecutive_sentences
from probekit.adaptation.pretraining.corpora.text_files import parallel_files, sentence_file
from probekit.errors import UsageError, did_you_mean


def _skip_thought(name: str, data_dir: Path | None, seed: int) -> Corpus:
    base = name.partition(":")[2] or DEFAULT
    return consecutive_sentences(load_corpus(base, data_dir, seed=seed), name)


def _dissent(name: str, data_dir: Path | None, seed: int) -> Corpus:
    base = name.partition(":")[2]
    if not base and data_dir is not None:
        return clause_files(data_dir, name, seed)
    path = _file(base or DEFAULT, data_dir)
    if base not in CORPORA:
        if path.suffix == ".conllu":
            return parsed_file(path, name, seed)
        if path.suffix == ".tsv":
            return clause_files(path, name, seed)
        if path.is_dir():
            return treebank(path, name) if any(path.glob("*.conllu")) else clause_files(path, name, seed)
    return clauses_from_sentences(load_corpus(base or DEFAULT, data_dir, seed=seed), name)


def _conversations(name: str, data_dir: Path | None, seed: int) -> Corpus:
    layout, _, file = name.partition(":")
    return replies.conversations(_file(file, data_dir), name, layout, seed)


DEFAULT = "wikitext-103"
DERIVED: dict[str, Callable[[str, Path | None, int], Corpus]] = {
    "skip-thought": _skip_thought,
    "next-sentence": _skip_thought,
    "dissent": _dissent,
    "dailydialog": _conversations,
    "twitter": _conversations,
}
CORPORA: dict[str, CorpusEntry] = {
    **language_modelling.ENTRIES,
    **translation.ENTRIES,
    **replies.ENTRIES,
    "skip-thought": CorpusEntry(
        CorpusKind.PAIRS, "SkipThought, sentences and the next ones", partial(_skip_thought, "skip-thought")
    ),
    "next-sentence": CorpusEntry(
        CorpusKind.PAIRS, "Sentences and the next ones", partial(_skip_thought, "next-sentence")
    ),
    "dissent": CorpusEntry(CorpusKind.CLAUSES, "DisSent, clauses and markers", partial(_dissent, "dissent")),
}
"""The corpora by name."""


def load_corpus(name: str, data_dir: str | Path | None = None, *, seed: int = 0) -> Corpus:
    """The corpus called ``name``; its text is read when its rows are.

    Parameters
    ----------
    name : str
        One of :data:`CORPORA`; a text file with a sentence in each line and empty lines between documents
        (``books.txt``); or two files whose lines translate each other (``train.en+train.de``). ``skip-thought:BASE``
        and ``next-sentence:BASE`` pair the sentences of another corpus or text file with the next ones.
        ``dissent:BASE`` extracts clauses with their marker from another corpus or text file by patterns of strings,
        from a CoNLL-U file or the folder of a treebank by its parses; or reads them from a TSV file (or a folder of
        such files) with the columns sentence1, sentence2 and marker. BASE is wikitext-103 by default; ``dissent`` with
        a ``data_dir`` reads pairs that others extracted. ``dailydialog:FILE`` and ``twitter:FILE`` read your own
        conversations in the layout of these corpora.
    data_dir : path, optional
        Folder with the files of the corpus, directly or in a subfolder; None loads from the Hugging Face hub. A file
        that does not exist under its name is looked for in this folder.
    seed : int, default 0
        Determines the held-out share of a corpus without an official dev split.

    Raises
    ------
    UsageError
        If the name is unknown (the message lists similar ones), or BASE has no sentences in document order.
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
    base, colon, _ = name.partition(":")
    if colon and base in DERIVED:
        return DERIVED[base](name, folder, seed)
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
