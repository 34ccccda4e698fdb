"""Named entities: CoNLL-2003, WNUT-17 and Universal NER, with one B-/I-/O tag per word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from probekit.errors import DataError
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import HUB_SPLITS, PARQUET, examples, from_hub, hub_columns, locate
from probekit.tasks.datasets.ud import domain_of, treebank_files
from probekit.tasks.files.readers import Sentence, in_documents, read_conll
from probekit.tasks.task import Example, Task, TaskKind

__all__ = ["LOADERS", "bio", "conll2003", "universal_ner", "wnut17"]

Root = str | Path | None


def _tags(*types: str) -> tuple[str, ...]:
    return ("O", *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))


CONLL2003 = Dataset(
    "conll2003",
    "CoNLL-2003 named entities (English)",
    TaskKind.SEQUENCE_LABELLING,
    {"train": 14041, "dev": 3250, "test": 3453},
    ("span-f1", "token-accuracy"),
    "Tjong Kim Sang and De Meulder 2003, https://aclanthology.org/W03-0419/",
    "Reuters corpus, research use only",
    _tags("PER", "ORG", "LOC", "MISC"),
    shown="CoNLL-2003",
)
WNUT17 = Dataset(
    "wnut17",
    "WNUT-17 emerging entities",
    TaskKind.SEQUENCE_LABELLING,
    {"train": 3394, "dev": 1009, "test": 1287},
    ("span-f1", "token-accuracy"),
    "Derczynski et al. 2017, https://aclanthology.org/W17-4418/",
    "CC BY 4.0",
    _tags("corporation", "creative-work", "group", "location", "person", "product"),
    shown="WNUT-17",
)
UNIVERSAL_NER = Dataset(
    "universal-ner",
    "Universal NER (sizes: English EWT)",
    TaskKind.SEQUENCE_LABELLING,
    {"train": 12543, "dev": 2001, "test": 2077},
    ("span-f1", "token-accuracy"),
    "Mayhew et al. 2024, https://www.universalner.org/",
    "CC BY-SA 4.0",
    _tags("PER", "ORG", "LOC"),
    folder="uner",
    shown="Universal NER",
)


def conll2003(root: Root = None) -> Task:
    """CoNLL-2003: persons, organisations, locations and others, in news.

    Files: eng.train, eng.testa (dev), eng.testb (test), or train.txt, valid.txt or dev.txt, test.txt; the entity tag
    is the last column. The official files are IOB1 (B- only between two adjacent entities of a type); :func:`bio`
    converts the tags to BIO and leaves BIO files unchanged. ``-DOCSTART-`` lines are not examples; they begin
    documents, which are the groups.
    """
    if root is None:
        return CONLL2003.task(_from_hub(CONLL2003, "lhoestq/conll2003"))
    names = {
        "train": ("eng.train", "train.txt"),
        "dev": ("eng.testa", "valid.txt", "dev.txt", "testa.txt"),
        "test": ("eng.testb", "test.txt", "testb.txt"),
    }
    splits, notes = {}, []
    for split, path in locate(root, names, folder="conll2003", what=CONLL2003.title).items():
        sentences = in_documents(read_conll(path, columns=2, fallback="latin-1"), path)
        raw = [s.column(-1) for s in sentences]
        tags = [bio(sentence) for sentence in raw]
        changed = sum(a != b for old, new in zip(raw, tags, strict=True) for a, b in zip(old, new, strict=True))
        if changed:
            notes.append(f"{changed} tags of {path.name} that begin an entity are changed from I- to B-.")
        splits[split] = _tagged(split, path, sentences, 0, tags, CONLL2003)
    return CONLL2003.task(splits, notes)


def wnut17(root: Root = None) -> Task:
    """WNUT-17: rare and emerging entities in social media.

    Files: wnut17train.conll, emerging.dev.conll, emerging.test.annotated. A line with a single tab ends a sentence,
    like an empty line.
    """
    if root is None:
        return WNUT17.task(_from_hub(WNUT17, "leondz/wnut_17", revision=PARQUET))
    names = {"train": ("wnut17train.conll",), "dev": ("emerging.dev.conll",), "test": ("emerging.test.annotated",)}
    splits = {}
    for split, path in locate(root, names, folder="wnut17", what=WNUT17.title).items():
        sentences = in_documents(read_conll(path), path)
        splits[split] = _tagged(split, path, sentences, 0, [s.column(1) for s in sentences], WNUT17)
    return WNUT17.task(splits)


def universal_ner(root: Root = None, treebank: str | None = None) -> Task:
    """Universal NER on a UD treebank. Text, id and domain come from each sentence's comments.

    Files: <treebank>-ud-train.iob2, -dev, -test, in the folder or a subfolder, with the columns id, word and tag;
    further columns are ignored. The tags OTH and B-O of early releases become O.

    Parameters
    ----------
    treebank : str, optional
        The name as in the file names, such as ``en_ewt``; None takes the only one in the folder, or en_ewt from the
        hub.
    """
    if root is None:
        treebank = treebank or "en_ewt"
        splits = _from_hub(UNIVERSAL_NER, "BramVanroy/universal_ner", treebank)
        return UNIVERSAL_NER.task(splits, name=f"universal-ner:{treebank}")
    treebank, files = treebank_files(root, treebank, "iob2", "Universal NER")
    splits = {}
    for split, path in files.items():
        sentences = in_documents(read_conll(path, columns=3, comments=True), path)
        tags = [tuple("O" if t.endswith(("-OTH", "-O")) else t for t in s.column(2)) for s in sentences]
        splits[split] = _tagged(split, path, sentences, 1, tags, UNIVERSAL_NER, treebank)
    return UNIVERSAL_NER.task(splits, name=f"universal-ner:{treebank}")


LOADERS = {CONLL2003: conll2003, WNUT17: wnut17, UNIVERSAL_NER: universal_ner}


def bio(tags: Iterable[str]) -> tuple[str, ...]:
    """Convert IOB1 tags to BIO: an I- that begins an entity (after O or another type) becomes B-. BIO is kept."""
    out: list[str] = []
    before = "O"
    for tag in tags:
        out.append("B" + tag[1:] if tag.startswith("I-") and before[2:] != tag[2:] else tag)
        before = tag
    return tuple(out)


def _tagged(
    split: str,
    path: Path,
    sentences: Sequence[Sentence],
    word: int,
    tags: Sequence[Sequence[str]],
    dataset: Dataset,
    treebank: str = "",
) -> list[Example]:
    """Sentences and their tags as examples; raises DataError for an unknown tag."""
    index = {name: i for i, name in enumerate(dataset.label_names)}
    words = [s.column(word) for s in sentences]
    return examples(
        split,
        [s.comments.get("text") or " ".join(w) for s, w in zip(sentences, words, strict=True)],
        [_indices(path, s, t, index) for s, t in zip(sentences, tags, strict=True)],
        words=words,
        ids=[s.comments.get("sent_id", "") for s in sentences],
        domains=[domain_of(s.comments, treebank) for s in sentences],
        groups=[s.document or None for s in sentences],
    )


def _indices(path: Path, sentence: Sentence, tags: Sequence[str], index: Mapping[str, int]) -> tuple[int, ...]:
    try:
        return tuple(index[tag] for tag in tags)
    except KeyError as error:
        row = next(i for i, tag in enumerate(tags) if tag not in index)
        raise DataError(
            f"found the tag {tags[row]!r} for word {row + 1} ({sentence.rows[row]!r}), expected one of "
            f"{', '.join(index)}.",
            file=path,
            line=sentence.line + row,
        ) from error


def _from_hub(dataset: Dataset, repository: str, config: str | None = None, **options: str) -> dict[str, list[Example]]:
    data = from_hub(dataset.name, repository, config, **options)
    splits = {}
    for split, theirs in HUB_SPLITS.items():
        if theirs not in data:
            continue
        rows = data[theirs]
        words, tags = hub_columns(rows, "tokens", "ner_tags")
        names = getattr(getattr(rows.features["ner_tags"], "feature", None), "names", None) or list(dataset.label_names)
        if set(names) != set(dataset.label_names):
            raise DataError(f"the hub's {repository} has the tags {names}, expected {list(dataset.label_names)}.")
        index = [dataset.label_names.index(name) for name in names]
        texts = hub_columns(rows, "text")[0] if "text" in rows.column_names else [" ".join(w) for w in words]
        ids = hub_columns(rows, "idx")[0] if "idx" in rows.column_names else None
        labels = [tuple(index[t] for t in sentence) for sentence in tags]
        splits[split] = examples(split, texts, labels, words=[tuple(w) for w in words], ids=ids)
    return splits
