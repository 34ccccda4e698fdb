"""Universal Dependencies treebanks: one universal part of speech a word (https://universaldependencies.org)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from probekit.errors import DataError
from probekit.tasks.cards import Card
from probekit.tasks.readers import Sentence, read_conllu
from probekit.tasks.sources import HUB_SPLITS, PARQUET, examples, from_hub, hub_columns, locate
from probekit.tasks.task import Example, Kind, Task

__all__ = ["CARDS", "domain_of", "treebank_of", "ud"]

UD = Card(
    "ud",
    "Universal Dependencies, parts of speech (sizes: English EWT)",
    Kind.SEQUENCE_LABELLING,
    {"train": 12544, "dev": 2001, "test": 2077},
    ("token-accuracy",),
    "Nivre et al. 2020, https://universaldependencies.org",
    "of each treebank; English EWT: CC BY-SA 4.0",
    tuple("ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split()),
)


def ud(root: str | Path | None = None, treebank: str = "en_ewt") -> Task:
    """UPOS tags of a treebank, by default English EWT. Text, id and domain (genre) come from the sentence's comments.

    Files: <treebank>-ud-train.conllu, -dev, -test, or those of the only treebank in the folder. Words are the numbered
    ones: multiword tokens (``8-9``) and empty nodes (``8.1``) are left out and counted in the notes. A word without
    tag (``_``) gets -1. The hub's copy is used where ``root`` is None.
    """
    if root is None:
        return UD.task(_from_hub(treebank), name=f"ud:{treebank}")
    names = {split: (f"{treebank}-ud-{split}.conllu", f"*-ud-{split}.conllu") for split in HUB_SPLITS}
    splits, notes = {}, []
    for split, path in locate(root, names, folder=f"UD_{treebank}", what="a UD treebank").items():
        treebank = treebank_of(path)
        sentences = list(read_conllu(path))
        splits[split] = _tagged(split, path, sentences, treebank)
        multiword, empty = sum(s.multiword for s in sentences), sum(s.empty for s in sentences)
        notes.append(f"{split}: {multiword} multiword tokens and {empty} empty nodes are left out.")
    return UD.task(splits, notes, name=f"ud:{treebank}")


CARDS = {UD: ud}


def treebank_of(path: Path) -> str:
    """``en_ewt`` of ``en_ewt-ud-dev.conllu``."""
    return path.name.partition("-ud-")[0]


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
            message = f"{unknown[0]!r} in the sentence that begins here is none of the 17 universal parts of speech."
            raise DataError(message, file=path, line=s.line, column="UPOS")
        labels.append(tuple(index[tag] for tag in tags))
    return examples(
        split,
        [s.comments.get("text") or " ".join(w) for s, w in zip(sentences, words, strict=True)],
        labels,
        words=words,
        ids=[s.comments.get("sent_id", "") for s in sentences],
        domains=[domain_of(s.comments, treebank) for s in sentences],
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
