"""Universal Dependencies treebanks: one universal part of speech per word (https://universaldependencies.org)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from probekit.errors import DataError
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import HUB_SPLITS, PARQUET, examples, from_hub, hub_columns, locate
from probekit.tasks.files.readers import Sentence, in_documents, read_conllu
from probekit.tasks.task import Example, Task, TaskKind

__all__ = ["LOADERS", "domain_of", "treebank_files", "ud"]

UD = Dataset(
    "ud",
    "Universal Dependencies, parts of speech (sizes: English EWT)",
    TaskKind.SEQUENCE_LABELLING,
    {"train": 12544, "dev": 2001, "test": 2077},
    ("token-accuracy",),
    "Nivre et al. 2020, https://universaldependencies.org",
    "of each treebank; English EWT: CC BY-SA 4.0",
    (
        *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
        *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
    ),
    shown="UD",
)


def ud(root: str | Path | None = None, treebank: str | None = None) -> Task:
    """UPOS tags of a treebank. Text, id, domain (genre) and document come from each sentence's comments.

    Files: <treebank>-ud-train.conllu, -dev, -test, in the folder or a subfolder. Multiword tokens (``8-9``) and empty
    nodes (``8.1``) are not words: they are left out and counted in the notes. A word without a tag (``_``) gets -1.

    Parameters
    ----------
    treebank : str, optional
        The name as in the file names, such as ``en_ewt``; None takes the only one in the folder, or en_ewt from the
        hub.
    """
    if root is None:
        treebank = treebank or "en_ewt"
        return UD.task(_from_hub(treebank), name=f"ud:{treebank}")
    treebank, files = treebank_files(root, treebank, "conllu", "a UD treebank")
    splits, notes = {}, []
    for split, path in files.items():
        sentences = in_documents(read_conllu(path), path)
        splits[split] = _tagged(split, path, sentences, treebank)
        multiword, empty = sum(s.multiword for s in sentences), sum(s.empty for s in sentences)
        notes.append(f"{split}: {multiword} multiword tokens and {empty} empty nodes are left out.")
    return UD.task(splits, notes, name=f"ud:{treebank}")


LOADERS = {UD: ud}


def treebank_files(root: str | Path, treebank: str | None, suffix: str, what: str) -> tuple[str, dict[str, Path]]:
    """The treebank, and its files ``<treebank>-ud-<split>.<suffix>`` in the folder or a subfolder."""
    name = treebank or "*"
    names = {s: (f"{name}-ud-{s}.{suffix}", f"*/{name}-ud-{s}.{suffix}") for s in HUB_SPLITS}
    files = locate(root, names, what=what)
    found = sorted({path.name.partition("-ud-")[0] for path in files.values()})
    if len(found) > 1:
        message = f"holds several treebanks ({', '.join(found)}); choose one, such as {found[0]}."
        raise DataError(message, file=root)
    return found[0], files


def domain_of(comments: Mapping[str, str], treebank: str) -> str | None:
    """The genre of a sentence: its ``# genre``, or in English EWT the first part of its id."""
    if treebank == "en_ewt" and "-" in comments.get("sent_id", ""):
        return comments["sent_id"].partition("-")[0]
    return comments.get("genre")


def _tagged(split: str, path: Path, sentences: list[Sentence], treebank: str) -> list[Example]:
    index = {name: i for i, name in enumerate(UD.label_names)} | {"_": -1}
    words = [s.column(1) for s in sentences]
    labels = []
    for s in sentences:
        tags = s.column(3)
        unknown = [tag for tag in tags if tag not in index]
        if unknown:
            message = (
                f"the sentence that begins here has the tag {unknown[0]!r}, which is not one of the 17 universal "
                "parts of speech."
            )
            raise DataError(message, file=path, line=s.line, column="UPOS")
        labels.append(tuple(index[tag] for tag in tags))
    return examples(
        split,
        [s.comments.get("text") or " ".join(w) for s, w in zip(sentences, words, strict=True)],
        labels,
        words=words,
        ids=[s.comments.get("sent_id", "") for s in sentences],
        domains=[domain_of(s.comments, treebank) for s in sentences],
        groups=[s.document or None for s in sentences],
    )


def _from_hub(treebank: str) -> dict[str, list[Example]]:
    repository = "universal-dependencies/universal_dependencies"
    data = from_hub(f"ud:{treebank}", repository, revision=PARQUET, data_dir=treebank)
    index = {name: i for i, name in enumerate(UD.label_names)}
    splits = {}
    for split, theirs in HUB_SPLITS.items():
        if theirs not in data:
            continue
        rows = data[theirs]
        ids, texts, tokens, upos = hub_columns(rows, "idx", "text", "tokens", "upos")
        names = getattr(getattr(rows.features["upos"], "feature", None), "names", None)
        tags = [[names[t] if names and isinstance(t, int) else t for t in sentence] for sentence in upos]
        # The hub lists multiword tokens and empty nodes among the words; their tag is "_".
        kept = [[(w, t) for w, t in zip(ws, ts, strict=True) if t != "_"] for ws, ts in zip(tokens, tags, strict=True)]
        words = [tuple(w for w, _ in sentence) for sentence in kept]
        labels = [tuple(index[t] for _, t in sentence) for sentence in kept]
        domains = [domain_of({"sent_id": i}, treebank) for i in ids]
        splits[split] = examples(split, texts, labels, words=words, ids=ids, domains=domains)
    return splits
