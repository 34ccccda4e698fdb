"""The tasks made from English EWT and a sample of the Penn Treebank beside files made from them by other code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from probekit.tasks import load_task
from probekit.tasks.sentences.makers import BINS
from probekit.tasks.sentences.parse import Parse
from probekit.tasks.sentences.source import find_treebank, parses

DATA = Path(__file__).parents[3] / "../shared/data"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the shared data sets are not at {DATA}"),
]

ESCAPED_INSIDE = {"\\/": "/", "\\*": "*"}
ESCAPED = {"(": "-LRB-", ")": "-RRB-", "{": "-LCB-", "}": "-RCB-"}


@cache
def by_text(folder: str) -> dict[str, Parse]:
    found: dict[str, Parse] = {}
    for some in parses(find_treebank(DATA / folder)).values():
        for parse in some:
            found.setdefault(" ".join(ESCAPED.get(w, w) if folder == "ptb_sample" else w for w in parse.words), parse)
    return found


def lines(folder: str, name: str) -> list[list[str]]:
    text = (DATA / f"senteval_style_from_{folder}/{name}.txt").read_text(encoding="utf-8")
    for mark, plain in ESCAPED_INSIDE.items():  # the derived files keep these marks of the Penn Treebank in words
        text = text.replace(mark, plain)
    return [line.split("\t") for line in text.splitlines()]


def bin_of(parse: Parse) -> str:
    return str(next(i for i, top in enumerate(BINS) if len(parse) <= top))


AGREEMENT: dict[str, tuple[Callable[[Parse], str | None], dict[str, int]]] = {
    "sentence_length": (bin_of, {"same": 4026}),
    "tree_depth": (lambda p: str(p.depth), {"same": 2870}),
    # four sentences such as "One answer is that they left": ours is the tense of "is"
    "past_present": (lambda p: p.tense and p.tense[0], {"same": 4348, "other": 4}),
    # coordinated subjects, and pronouns with the tag NN (anyone), have no number here; two subjects: ours is the outer
    "subj_number": (lambda p: p.subject and p.subject[0], {"same": 1339, "none": 132, "other": 7}),
    "obj_number": (lambda p: p.object and p.object[0], {"same": 1100, "none": 132}),
}


@pytest.mark.parametrize("name", AGREEMENT)
def test_labels_of_english_ewt(name: str) -> None:
    label, expected = AGREEMENT[name]
    counts: Counter[str] = Counter()
    for _, theirs, text in lines("ewt", name):
        ours = label(by_text("ud_english_ewt")[text])
        counts["none" if ours is None else "same" if ours == theirs else "other"] += 1
    assert counts == expected


def test_depths_and_constituents_of_the_penn_treebank() -> None:
    trees = by_text("ptb_sample")
    depths, tops = lines("ptb_brown", "tree_depth"), lines("ptb_brown", "top_constituents")
    assert all(str(trees[text].depth) == depth for _, depth, text in depths)
    known = {top for _, top, _ in tops}
    assert all((trees[text].top if trees[text].top in known else "OTHER") == top for _, top, text in tops)
    assert (len(depths), len(tops)) == (2245, 2431)


def test_most_of_the_coordinated_clauses_are_found() -> None:
    def bag(words: Sequence[str]) -> str:
        return " ".join(sorted("".join(filter(str.isalpha, word)) for word in " ".join(words).lower().split()))

    ours = {bag(parse.words) for parse in by_text("ud_english_ewt").values() if parse.clauses}
    theirs = [bag(text.split()) for _, _, text in lines("ewt", "coordination_inversion")]
    assert len(theirs) == 414
    assert sum(bag_ in ours for bag_ in theirs) >= 390


SIZES = {
    "sentence-length": (3366, 294, 366),  # as in the derived files
    "word-content": (1088, 160, 160),
    "tree-depth": (1344, 120, 144),
    "bigram-shift": (8396, 1314, 1312),
    "past-present": (3482, 450, 422),
    "subj-number": (1072, 146, 150),
    "obj-number": (816, 126, 146),
    "odd-man-out": (4094, 488, 504),
    "coordination-inversion": (526, 68, 66),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_sizes_for_english_ewt(name: str) -> None:
    task = load_task(f"treebank:{name}", DATA / "ud_english_ewt")
    assert tuple(map(len, task.splits.values())) == SIZES[name]
    for split in task.splits.values():
        assert len(set(Counter(e.label for e in split).values())) == 1


def test_depth_says_nothing_about_length() -> None:
    for split in load_task("treebank:tree-depth", DATA / "ud_english_ewt").splits.values():
        lengths = [sorted(len(e.text.split()) for e in split if e.label == depth) for depth in range(4)]
        assert lengths[0] == lengths[1] == lengths[2] == lengths[3]
