"""Semantic proto-roles: which properties an argument has in the event of its predicate (SPR2).

A property holds if its mean response is at least 4 of 5; where it does not apply, a response counts as 1 (Rudinger et
al. 2018, https://aclanthology.org/D18-1114).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import fmean

from probekit.errors import DataError
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import examples, locate
from probekit.tasks.files.readers import read_tsv
from probekit.tasks.targets import problem
from probekit.tasks.task import Span, Target, Task, TaskKind

__all__ = ["LOADERS", "spr2"]

SPR2 = Dataset(
    "spr2",
    "Semantic proto-roles 2: the properties of an argument (sizes: sentences)",
    TaskKind.SPAN_LABELLING,
    {"train": 2195, "dev": 305, "test": 276},
    ("micro-f1",),
    "White et al. 2016, http://decomp.io/projects/semantic-proto-roles/",
    "CC BY-SA 4.0",
    (
        *("awareness", "change_of_location", "change_of_possession", "change_of_state", "change_of_state_continuous"),
        *("existed_after", "existed_before", "existed_during", "instigation", "partitive", "sentient", "volition"),
        *("was_for_benefit", "was_used"),
    ),
    folder="spr2",
    shown="SPR2",
)
LEAST = 4.0
"""The lowest mean response with which a property holds."""


def spr2(root: str | Path | None = None) -> Task:
    """Pairs (predicate, argument) with the properties that hold, several at once.

    Files: ``protoroles_eng_ud1.2*.tsv`` of the release, and ``sentences.tsv`` with the columns ``split``, ``sentnum``
    (the number of the sentence in the split of UD English 1.2, as in Sentence.ID) and ``tokens`` (its words, separated
    by blanks): the release has no text. Sentences of one document are not grouped, since the files do not name it.
    """
    if root is None:
        raise DataError(
            "spr2 is read from a folder: give the one with protoroles_eng_ud1.2_11082016.tsv (--data-dir, or data_dir "
            f"in Python), from {SPR2.source.rpartition(' ')[2]}, and sentences.tsv."
        )
    names = {"annotations": ("protoroles_eng_ud1.2*.tsv",), "sentences": ("sentences.tsv",)}
    files = locate(root, names, folder="spr2", what="SPR2")
    for name, patterns in names.items():
        if name not in files:
            raise DataError(f"has no {patterns[0]}, which SPR2 needs.", file=root)
    words = _sentences(files["sentences"])
    index = {name: i for i, name in enumerate(SPR2.label_names)}
    rows = read_tsv(files["annotations"])
    columns = [
        rows.column(name)
        for name in (
            *("Split", "Sentence.ID", "Pred.Token", "Arg.Tokens.Begin", "Arg.Tokens.End"),
            *("Property", "Response", "Applicable"),
        )
    ]
    found: dict[tuple[str, str], dict[tuple[int, int, int], dict[int, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for line, (split, sentence, *bounds, name, response, applies) in zip(
        rows.lines, zip(*columns, strict=True), strict=True
    ):
        if name not in index or response == "nan":
            continue
        if not all(b.isdecimal() for b in bounds) or response not in "12345":
            message = f"found the positions {', '.join(bounds)} and the response {response!r}, expected whole numbers."
            raise DataError(message, file=rows.path, line=line)
        predicate, begin, end = map(int, bounds)
        responses = found[split, sentence.rpartition(" ")[2]][predicate, begin, end]
        responses[index[name]].append(float(response) if applies == "yes" else 1.0)
    splits, without = {}, 0
    for split in ("train", "dev", "test"):
        ids = [key for key in found if key[0] == split and key in words]
        without += sum(key[0] == split and key not in words for key in found)
        targets = [
            tuple(
                Target(
                    (Span(predicate, predicate + 1), Span(begin, end + 1)),
                    tuple(sorted(i for i, given in responses.items() if fmean(given) >= LEAST)),
                )
                for (predicate, begin, end), responses in sorted(found[key].items())
            )
            for key in ids
        ]
        texts = [words[key] for key in ids]
        splits[split] = examples(
            split, [" ".join(w) for w in texts], words=texts, ids=[number for _, number in ids], targets=targets
        )
        for e in splits[split]:
            if wrong := problem(e):
                raise DataError(f"sentence {e.id} of {split}: {wrong}.", file=files["annotations"])
    notes = [f"{without} annotated sentences have no text in sentences.tsv, and are left out."] if without else []
    return SPR2.task({split: part for split, part in splits.items() if part}, notes)


LOADERS = {SPR2: spr2}


def _sentences(path: Path) -> dict[tuple[str, str], tuple[str, ...]]:
    table = read_tsv(path)
    columns = (table.column(name) for name in ("split", "sentnum", "tokens"))
    return {(split, number): tuple(tokens.split(" ")) for split, number, tokens in zip(*columns, strict=True)}
