"""What CoLA, SST-2, MRPC, STS-B, MNLI and SNLI have beside the files of GLUE (Wang et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from probekit.errors import DataError
from probekit.tasks.datasets.published import files_of, read
from probekit.tasks.files.description import Dataset
from probekit.tasks.task import Example, Task

BLANK = "The space after each text of the train and dev files is dropped."


def cola(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """Both halves of the original dev split are GLUE's, if that has no file."""
    splits, notes = read(d, root)
    halves = [splits.get(f"dev-{half}") for half in ("in-domain", "out-of-domain")]
    if "dev" not in splits and halves[0] and halves[1]:
        both = enumerate((*halves[0], *halves[1]))
        splits["dev"] = tuple(replace(e, id=f"dev-{i}") for i, e in both)
    return d.task(splits, notes)


def sst2(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """The blank at the end of texts is dropped, and labels of the test split come from a file of their own."""
    splits, notes = read(d, root)
    if gold := splits.pop("gold", None):
        numbered = tuple(replace(e, id=f"test-{i}") for i, e in enumerate(gold))
        splits["test"] = _labelled(d, root, "gold", splits["test"], gold) if "test" in splits else numbered
    stripped = {s: [Example(e.id, e.text.removesuffix(" "), e.label) for e in some] for s, some in splits.items()}
    return d.task(stripped, [*notes, BLANK])


def mrpc(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """GLUE's test split gets the labels of the original one, whose pairs it has."""
    splits, notes = read(d, root)
    test, original = splits.get("test"), splits.get("original-test")
    if test and original and test[0].label is None:
        splits["test"] = _labelled(d, root, "original-test", test, original)
    return d.task(splits, notes)


def stsb(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """The original files have spaces around some sentences, two spellings of a genre, and the scores of the test."""
    found, notes = read(d, root)
    if root is None:
        return d.task(found)
    plain = {split: tuple(map(_plain, some)) for split, some in found.items()}
    splits = {}
    for split in ("train", "dev", "test"):
        some, original = plain.get(split), plain.get(f"original-{split}")
        if some and original and some[0].label is None:
            splits[split] = _labelled(d, root, f"original-{split}", some, original)
        elif some is not None:
            splits[split] = some
        elif original is not None:
            splits[split] = tuple(replace(e, id=f"{split}-{i}") for i, e in enumerate(original))
    return d.task(splits, notes)


def _plain(e: Example) -> Example:
    genre = "main-forums" if e.domain == "main-forum" else e.domain
    return replace(e, text=e.text.strip(" "), pair=(e.pair or "").strip(" "), domain=genre)


def mnli(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """Pairs without a gold label are left out, and counted, unless none of a split has one."""
    splits, notes = read(d, root)
    for split, some in splits.items():
        kept = tuple(e for e in some if e.label is not None) or some
        if left := len(some) - len(kept):
            notes.append(f"{left} pairs of {split} without a gold label (-) are left out.")
        splits[split] = kept
    return d.task(splits, notes)


def _labelled(
    d: Dataset, root: str | Path | None, split: str, rows: Sequence[Example], gold: Sequence[Example]
) -> tuple[Example, ...]:
    """The rows with the labels of a second file, which has the same texts in the same order."""
    file, first = files_of(d, root)[split], 1 if d.of(split).columns else 2
    if len(rows) != len(gold):
        raise DataError(f"has {len(gold)} rows, but the file without labels has {len(rows)}.", file=file)
    for line, (e, g) in enumerate(zip(rows, gold, strict=True), start=first):
        if (e.text.strip(" "), (e.pair or "").strip(" ")) != (g.text.strip(" "), (g.pair or "").strip(" ")):
            message = "the text differs from that of the same row in the file without labels."
            raise DataError(message, file=file, line=line)
    return tuple(replace(e, label=g.label) for e, g in zip(rows, gold, strict=True))
