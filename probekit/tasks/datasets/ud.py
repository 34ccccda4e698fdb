"""Words with tags, and treebanks: Universal Dependencies and what is annotated on them, CoNLL-2003."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from probekit.errors import DataError
from probekit.tasks.datasets.published import examples_in, files_of, rows_in, rows_of_hub, with_targets
from probekit.tasks.datasets.sources import one_treebank
from probekit.tasks.files.columns import Rows
from probekit.tasks.files.description import Dataset
from probekit.tasks.files.readers import Sentence, domain_of
from probekit.tasks.task import Span, Target, Task
from probekit.tasks.treebank import not_a_tree

Root = str | Path | None


def bio(tags: Iterable[str]) -> tuple[str, ...]:
    """Convert IOB1 tags to BIO: an I- that begins an entity (after O or another type) becomes B-. BIO is kept."""
    out: list[str] = []
    before = "O"
    for tag in tags:
        out.append("B" + tag[1:] if tag.startswith("I-") and before[2:] != tag[2:] else tag)
        before = tag
    return tuple(out)


def _retagged(rows: Rows, change: Callable[[Sequence[str]], Iterable[str]]) -> Rows:
    return rows.with_columns({**rows.columns, "tags": [list(change(tags)) for tags in rows.columns["tags"]]})


def conll2003(d: Dataset, root: Root, part: str | None = None) -> Task:
    """The tags of the official files become BIO, and a note counts those that change."""
    if root is None:
        return d.task(examples_in(d, rows_of_hub(d)))
    files, notes = files_of(d, root), []
    found = rows_in(d, files)
    rows = {split: _retagged(some, bio) for split, some in found.items()}
    for split, path in files.items():
        both = zip(found[split].columns["tags"], rows[split].columns["tags"], strict=True)
        if changed := sum(a != b for old, new in both for a, b in zip(old, new, strict=True)):
            notes.append(f"{changed} tags of {path.name} that begin an entity are changed from I- to B-.")
    return d.task(examples_in(d, rows), notes)


def universal_ner(d: Dataset, root: Root, treebank: str | None = None) -> Task:
    """The tags OTH and B-O of early releases become O; None takes the only treebank, or en_ewt from the hub."""
    if root is None:
        name = treebank or "en_ewt"
        rows = rows_of_hub(d.model_copy(update={"config": name}))
    else:
        files = files_of(d, root, treebank)
        name = one_treebank(root, files)
        rows = {split: _retagged(some, _without_other) for split, some in rows_in(d, files).items()}
    return d.task(examples_in(d, rows), name=f"{d.name}:{name}")


def _without_other(tags: Sequence[str]) -> Iterable[str]:
    return ("O" if tag.endswith(("-OTH", "-O")) else tag for tag in tags)


def ud(d: Dataset, root: Root, treebank: str | None = None) -> Task:
    """Parts of speech; the hub lists multiword tokens and empty nodes among the words, with the tag "_"."""
    if root is None:
        name, notes = treebank or "en_ewt", list[str]()
        found = rows_of_hub(d.model_copy(update={"name": f"ud:{name}"}), data_dir=name)
        rows = {split: _words_of_hub(some, name) for split, some in found.items()}
    else:
        files = files_of(d, root, treebank)
        name, rows = one_treebank(root, files), rows_in(d, files)
        notes = [f"{split}: {some.left_out}" for split, some in rows.items()]
    return d.task(examples_in(d, rows), notes, name=f"{d.name}:{name}")


def _words_of_hub(rows: Rows, treebank: str) -> Rows:
    both = zip(rows.columns["words"], rows.columns["tags"], strict=True)
    kept = [[(word, tag) for word, tag in zip(*sentence, strict=True) if tag != "_"] for sentence in both]
    words, tags = ([[pair[i] for pair in sentence] for sentence in kept] for i in (0, 1))
    domains = [domain_of({"sent_id": name}, treebank) for name in rows.columns["id"]]
    return rows.with_columns({**rows.columns, "words": words, "tags": tags, "domain": domains})


def relations(d: Dataset, root: Root, treebank: str | None = None) -> Task:
    """The universal relation (without subtype) of each word to its head; the targets are (word, head)."""
    files = files_of(d, root, treebank)
    known = {relation: i for i, relation in enumerate(d.label_names)}
    found = with_targets(d, rows_in(d, files), lambda rows, i: _to_heads(rows.columns["sentence"][i], rows, known))
    return d.task(found, name=f"{d.name}:{one_treebank(root or '', files)}")


def features(d: Dataset, root: Root, treebank: str | None = None) -> Task:
    """The features of each word, such as Number=Sing; the labels are those of train."""
    files = files_of(d, root, treebank)
    name, rows = one_treebank(root or "", files), rows_in(d, files)
    first = rows["train" if "train" in rows else min(rows)].columns["sentence"]
    names = sorted({feature for s in first for cell in s.column(5) for feature in _features(cell)})
    known = {feature: i for i, feature in enumerate(names)}

    def of(rows: Rows, i: int) -> tuple[Target, ...]:
        cells = rows.columns["sentence"][i].column(5)
        labels = (tuple(sorted(known[f] for f in _features(cell) if f in known)) for cell in cells)
        return tuple(Target((Span(k, k + 1),), label) for k, label in enumerate(labels))

    return d.task(with_targets(d, rows, of), name=f"{d.name}:{name}", labels=names)


def _features(cell: str) -> list[str]:
    return [] if cell == "_" else cell.split("|")


def _to_heads(s: Sentence, rows: Rows, known: Mapping[str, int]) -> tuple[Target, ...]:
    found = []
    for i, (head, relation) in enumerate(zip(s.column(6), s.column(7), strict=True)):
        name = relation.partition(":")[0]
        if not head.isdecimal() or int(head) > len(s.rows) or int(head) == i + 1:
            message = f"word {i + 1} of the sentence that begins here has the head {head!r}; expected another, 0 to "
            raise DataError(f"{message}{len(s.rows)}.", file=rows.file, line=s.line, column="HEAD")
        if int(head) and name not in known:
            message = f"word {i + 1} of the sentence that begins here has the relation {relation!r}, not one of "
            raise DataError(f"{message}the {len(known)} universal ones.", file=rows.file, line=s.line, column="DEPREL")
        if int(head):
            found.append(Target((Span(i, i + 1), Span(int(head) - 1, int(head))), known[name]))
    if wrong := not_a_tree([int(head) for head in s.column(6)]):
        message = f"the sentence that begins here is not a tree; it has {wrong}. Mend it, or take it out of the file."
        raise DataError(message, file=rows.file, line=s.line, column="HEAD")
    return tuple(found)
