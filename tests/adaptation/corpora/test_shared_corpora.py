"""The real files: the counts that are known of them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from probekit.adaptation.pretraining.corpora.clauses import MARKERS
from probekit.adaptation.pretraining.corpora.corpus import load_corpus
from probekit.adaptation.pretraining.corpora.kinds import Corpus

DATA = Path(__file__).parents[3] / "../shared/data"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the shared data sets are not at {DATA}"),
]


@cache
def load(name: str) -> Corpus:
    return load_corpus(name, DATA)


@cache
def counts(name: str) -> dict[str, int]:
    return {split: sum(1 for row in rows() if row[0]) for split, rows in load(name).splits.items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("multi30k-en-de", {"train": 20000, "dev": 1014, "test": 1000}),
        ("multi30k-en-fr", {"train": 20000, "dev": 1014, "test": 1000}),
        ("dailydialog", {"dev": 7069, "test": 6740}),
        ("dissent", {"train": 2972, "dev": 372, "test": 372}),
        ("dissent:discourse_markers_derived", {"train": 2972, "dev": 372, "test": 372}),
    ],
)
def test_official_splits(name, expected):
    assert counts(name) == expected


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("ntrex-en-de", 1997),
        ("ntrex-en-fr", 1997),
        ("ntrex-en-ru", 1997),
        ("opennmt-en-de", 9999),  # 10,000 lines, one of them empty in one language
        ("twitter", 8703),
        ("dailydialog:dailydialog/xdailydialog_1k.en.txt", 6386),
        ("text_books/sentences_four_books.txt", 19826),
    ],
)
def test_held_out_shares(name, total):
    found = counts(name)
    assert sum(found.values()) == total
    assert found["dev"] == pytest.approx(total / 20, rel=0.1 if "twitter" in name else 0.06)  # its units differ more


@pytest.mark.parametrize("name", ["twitter", "dailydialog:dailydialog/xdailydialog_1k.en.txt"])
def test_conversations_share_no_pair(name):
    splits = load(name).splits
    assert not set(splits["train"]()) & set(splits["dev"]())


def test_wikitext_2():
    ends = {
        split: sum(row == ("",) for row in load("wikitext-2").splits[split]()) for split in ("train", "dev", "test")
    }
    assert {split: count + 1 for split, count in ends.items()} == {"train": 297, "dev": 60, "test": 60}
    words = sum(len(row[0].split()) for row in load("wikitext-2").splits["dev"]())
    lines = (DATA / "text_wikitext2/wiki.valid.tokens").read_text(encoding="utf-8").split("\n")
    assert words == sum(len(line.split()) for line in lines if not line.startswith(" ="))


def test_skip_thought_from_books():
    assert sum(counts("skip-thought:text_books/sentences_four_books.txt").values()) == 19826 - 4 - 2 * 20


@pytest.mark.slow
def test_dissent_from_parses():
    name = "dissent:ud_english_ewt"
    assert counts(name) == {"train": 2435, "dev": 266, "test": 248}
    found = Counter(row[2] for rows in load(name).splits.values() for row in rows())
    assert set(found) == set(MARKERS)
    assert found == {
        "and": 1268, "but": 566, "if": 427, "so": 262, "when": 239, "because": 126, "before": 35, "though": 26,
    }  # fmt: skip


def test_dissent_from_patterns():
    found = Counter(row[2] for row in load("dissent:text_books/sentences_four_books.txt").splits["train"]())
    assert set(found) == set(MARKERS)
    assert 2000 < sum(found.values()) < 3000
