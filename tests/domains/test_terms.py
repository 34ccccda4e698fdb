"""Counting terms: against Python's own strings, in the order of any chunks, saved, merged, and bounded."""

import random
import re
import unicodedata
from collections import Counter
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from probekit.domains import corpora, counting, scanning
from probekit.domains.corpora import read_files, read_texts
from probekit.domains.counting import count
from probekit.domains.options import DocumentUnit, Tokenization
from probekit.domains.terms import choose_terms, count_domains, load_counts, merge, save_counts
from probekit.errors import DataError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in scalar")
"""Hashes are meant to overflow; with NUMBA_DISABLE_JIT=1, numpy says so."""


def words(text):
    """The twin of the tokenizer ``word``: runs of letters, numbers, marks and connecting punctuation."""
    runs = groupby(text, lambda c: unicodedata.category(c)[0] in "LMN" or unicodedata.category(c) == "Pc")
    return ["".join(run) for inside, run in runs if inside]


CHARACTERS = st.characters(codec="utf-8") | st.sampled_from("aB \n\t.é的\0")
TWINS = {"word": words, "whitespace": lambda text: text.replace("\0", " ").split()}
PLAIN = "the cat sat on a mat while seven dogs ran far off under some old grey moon".split()


def corpus(seed, n, length=6):
    """Texts with Zipf's law over a few words and, rarely, a word of their own."""
    rng = np.random.default_rng(seed)
    draws = np.minimum(rng.zipf(1.4, size=(n, length)) - 1, len(PLAIN))
    return [" ".join(PLAIN[k] if k < len(PLAIN) else f"own{i}" for k in row) for i, row in enumerate(draws)]


def totals(counts):
    return dict(zip(counts.terms, counts.matrix.sum(axis=0).tolist(), strict=True))


def same(a, b):
    assert (a.terms, a.documents, a.tokens, a.pruned, a.bound) == (b.terms, b.documents, b.tokens, b.pruned, b.bound)
    assert a.matrix.shape == b.matrix.shape
    assert (a.matrix != b.matrix).nnz == 0
    assert (a.deals is None) == (b.deals is None)
    assert a.deals is None or np.array_equal(a.deals, b.deals)


@pytest.mark.parametrize("name", TWINS)
@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text(st.characters(codec="utf-8") | st.sampled_from("aB \n\t.é的\0"), max_size=30), max_size=8)
)
def test_terms_are_those_of_python(name, texts):
    """Any characters, also beyond the first plane, upper case whose lower case is two characters, and control ones."""
    split = TWINS[name]
    given_texts, texts = texts, [unicodedata.normalize("NFC", text) for text in texts]
    expected = Counter(term.lower() for text in texts for term in split(text.replace("\0", " ")))
    if not expected:
        with pytest.raises(DataError, match="is empty"):
            count("x", read_texts(given_texts), tokenizer=name)
        return
    found = count("x", read_texts(given_texts), tokenizer=name)
    assert totals(found) == expected
    assert found.documents == sum(bool(split(text.replace("\0", " "))) for text in texts)
    assert found.tokens == expected.total()
    assert totals(count("x", read_texts(given_texts), tokenizer=name, lower=False)) == Counter(
        term for text in texts for term in split(text.replace("\0", " "))
    )


MARKS = st.sampled_from([*"aeioué\u0301\u0327\u0323\u1100\u1161\u11a8\uac00가\u212b\u0958\u093c\u0915 \n"])


@settings(max_examples=200, deadline=None)
@given(text=st.text(MARKS | st.characters(codec="utf-8"), max_size=12))
def test_text_without_doubtful_characters_is_in_normal_form(text):
    doubtful = any(scanning._kinds(Tokenization.WORD)[ord(c)] & 2 for c in text)
    assert doubtful or unicodedata.is_normalized("NFC", text)


def test_an_accent_is_the_same_however_it_was_typed(tmp_path):
    one, two = "caf\u00e9 \u1e69 \ud55c", "cafe\u0301 s\u0307\u0323 \u1112\u1161\u11ab"
    found = count("x", read_texts([one, two]))
    assert totals(found) == {"café": 2, "\u1e69": 2, "한": 2}
    assert (found.matrix.toarray() == 1).all()
    (tmp_path / "a.txt").write_text(f"{one}\n\n{two}\n\nplain\n\n{two}", encoding="utf-8")
    assert count("x", read_files(tmp_path)).documents == 4
    asit = count("x", read_texts([one, two]), tokenizer=lambda batch: [text.split() for text in batch])
    assert len(asit.terms) == 6
    with pytest.raises(UsageError, match=r"tokenizer word and <lambda>; form NFC and"):
        merge(found, asit)


@pytest.mark.parametrize("unit", DocumentUnit)
@pytest.mark.parametrize("chunk", [7, 64, 1 << 18])
def test_files_are_counted_as_by_the_twin_whatever_the_chunks(tmp_path, monkeypatch, unit, chunk):
    monkeypatch.setattr(corpora, "CHUNK", chunk)
    text = "One line\nand two\n \t\r\nA paragraph.\n\n\n***\n\nof three\n* * *\nLines: été\u3000ÉTÉ\n\xa0\nmore" * 3
    (tmp_path / "a.txt").write_text(text, encoding="utf-8", newline="")
    (tmp_path / "b.txt").write_text("last of all", encoding="utf-8")
    found = count("x", read_files(tmp_path), unit=unit)
    same_way = count("x", read_files(tmp_path), unit=unit, tokenizer=lambda texts: [words(t.lower()) for t in texts])
    assert (found.terms, found.documents) == (same_way.terms, same_way.documents)
    assert (found.matrix != same_way.matrix).nnz == 0
    pieces = {"line": text.split("\n"), "paragraph": re.split(r"\n[ \t\r]*(?=\n)", text), "file": [text]}[unit]
    documents = [Counter(words(piece.lower())) for piece in [*pieces, "last of all"] if words(piece)]
    assert found.documents == len(documents)
    rows = [dict(zip(found.terms, row, strict=True)) for row in found.matrix.toarray()]
    assert [{t: n for t, n in row.items() if n} for row in rows] == documents


@pytest.mark.slow
def test_documents_are_dealt_to_blocks_at_random_and_none_is_lost():
    texts = [f"same own{i}" for i in range(5000)]
    found = count("x", read_texts(texts), blocks=50, seed=3)
    assert found.matrix.shape == (50, 5001)
    sizes = found.matrix[:, [found.terms.index("same")]].toarray()[:, 0]
    assert sizes.sum() == 5000
    assert sizes.min() > 70  # 100 each; the standard deviation of a binomial is 9.9
    assert sizes.max() < 140
    assert sizes.std() == pytest.approx(9.9, rel=0.4)
    assert (found.matrix != count("x", read_texts(texts), blocks=50, seed=4).matrix).nnz > 0
    same(found, count("x", read_texts(texts), blocks=50, seed=3))
    few = count("x", read_texts(texts[:50]), blocks=50)
    assert (few.matrix.sum(axis=1) == 2).all()  # each document a block


@pytest.mark.parametrize(
    "sizes", [(10, 20), (10, 200), *(pytest.param(s, marks=pytest.mark.slow) for s in ((200, 10), (150, 300)))]
)
def test_two_halves_give_the_whole(tmp_path, sizes):
    folders = [tmp_path / name for name in ("one", "two", "whole")]
    for folder in folders:
        folder.mkdir()
    for i, n in enumerate(sizes):
        for folder in (folders[i], folders[2]):
            (folder / f"{i}.txt").write_text("\n".join(corpus(i, n)), encoding="utf-8")
    one, two, whole = (count("x", read_files(f), unit="line", blocks=100, seed=1) for f in folders)
    same(merge(one, two), whole)
    other = merge(two, one)
    assert other.terms == whole.terms
    assert totals(other) == totals(whole)
    path = save_counts(tmp_path / "counts.parquet", [one, *count_all({"y": corpus(5, 30)}, blocks=100, seed=1)])
    read = load_counts(path)
    same(read[0], one)
    assert [c.name for c in read] == ["x", "y"]
    assert read[0].settings == one.settings


def count_all(sources, **options):
    return [count(name, read_texts(texts), unit="line", **options) for name, texts in sources.items()]


def test_saved_counts_are_read_by_anyone(tmp_path):
    import pandas as pd

    path = save_counts(tmp_path / "c.parquet", count_all({"a": ["x y x", "y"], "b": ["z z"]}))
    table = pd.read_parquet(path).astype({"domain": str, "term": str})
    assert table.values.tolist() == [["a", "x", 0, 2], ["a", "y", 0, 1], ["a", "y", 1, 1], ["b", "z", 0, 2]]


def test_the_vocabulary_is_the_most_frequent_of_all_and_the_rest_is_told():
    a, b = ["the the the cat", "zebra"], ["the dog dog dog dog", "apple"]
    terms = count_domains({"a": a, "b": b}, vocabulary=3)
    assert terms.vocabulary == ("dog", "the", "apple")  # 4, 4, and of those that come once the first
    assert terms.totals.tolist() == [[0, 3, 0], [4, 1, 1]]
    assert terms.counts[0].toarray().tolist() == [[0, 3, 0], [0, 0, 0]]
    assert terms.counts[0].dtype == np.int64
    assert terms.outside.tolist() == [2, 0]
    assert terms.tokens.tolist() == [5, 6]
    assert terms.documents.tolist() == [2, 2]
    assert terms.distributions == pytest.approx(np.array([[0, 1, 0], [4 / 6, 1 / 6, 1 / 6]]))
    assert count_domains({"a": a, "b": b}, min_count=4).vocabulary == ("dog", "the")
    without = count_domains({"a": a, "b": b}, leave_out=["the"])
    assert without.vocabulary == ("dog", "apple", "cat", "zebra")
    assert without.outside.tolist() == [3, 1]


def test_memory_is_bounded_and_what_that_costs_is_told(monkeypatch):
    monkeypatch.setattr(counting, "DENSE", 20 * 8)  # 8 terms in 20 blocks
    monkeypatch.setattr(corpora, "CHUNK", 512)
    texts = corpus(0, 4000, 8)
    exact = totals(count("x", read_texts(texts), blocks=20))
    assert exact == Counter(term for text in texts for term in text.split())
    monkeypatch.setattr(counting, "PAIRS", 400)
    for tokenizer in ("word", lambda batch: [words(text) for text in batch]):
        found = count("x", read_texts(texts), blocks=20, tokenizer=tokenizer)
        assert found.pruned > 0
        assert found.matrix.nnz < 20 * 8 + 400 + 512
        assert found.tokens == sum(exact.values()) == found.pruned + found.matrix.sum()
        assert 0 < found.bound < exact["the"] / 10
        kept = totals(found)
        for term, n in exact.items():
            assert n - found.bound <= kept.get(term, 0) <= n
        assert kept["the"] == exact["the"]
    terms = choose_terms([found], vocabulary=5)
    assert terms.pruned.tolist() == [found.pruned]
    assert terms.outside[0] == found.tokens - terms.totals.sum()


def test_what_is_wrong_is_said():
    two = ["a b", "c"]
    with pytest.raises(DataError, match="the domain 'n' is empty: its text contains no term"):
        count_domains({"m": two, "n": ["  ", "..."]})
    with pytest.raises(DataError, match="'n' is a single document"):
        count_domains({"m": two, "n": ["a b"]})
    with pytest.raises(DataError, match="'n' has none of the 2 terms of the vocabulary"):
        count_domains({"m": ["a b", "a b"], "n": ["c", "d"]}, vocabulary=2)
    with pytest.raises(UsageError, match="several domains are called 'm'; give each a different name"):
        count_domains([("m", two), ("m", two)])
    with pytest.raises(UsageError, match="tokenizer is 'letters'; it must be one of word, whitespace"):
        count_domains({"m": two}, tokenizer="letters")
    with pytest.raises(UsageError, match="document is 'page'; it must be one of paragraph, line, file"):
        count_domains({"m": two}, unit="page")
    with pytest.raises(UsageError, match="'a' and 'b' differ in their settings .seed 0 and 1.; count one"):
        choose_terms([*count_all({"a": two}), *count_all({"b": two}, seed=1)])


def test_a_file_of_something_else_is_no_counts(tmp_path):
    import pandas as pd

    other = tmp_path / "o.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(other)
    with pytest.raises(DataError, match="o.parquet: contains no counts of terms .probekit-counts/1."):
        load_counts(other)
    other.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="o.parquet: cannot be read as Parquet"):
        load_counts(other)
    with pytest.raises(DataError, match="none.parquet: cannot be read"):
        load_counts(tmp_path / "none.parquet")


def test_damaged_counts_are_told_or_the_same(tmp_path):
    path = tmp_path / "c.parquet"
    corpora = {name: [f"{name} one two {i % 7}" for i in range(30)] for name in "ab"}
    whole = save_counts(path, count_all(corpora)).read_bytes()
    first, rng, told = load_counts(path), random.Random(0), 0
    for _ in range(300):
        at, size = rng.randrange(len(whole)), rng.choice((1, 1, 8, 30))
        path.write_bytes(whole[:at] + rng.choice((bytes(size), rng.randbytes(size))) + whole[at + size :])
        try:
            again = load_counts(path)
        except DataError:
            told += 1
            continue
        for one, other in zip(first, again, strict=True):
            assert (one.name, one.terms, one.documents, one.tokens) == (
                other.name,
                other.terms,
                other.documents,
                other.tokens,
            )
            assert (one.matrix != other.matrix).nnz == 0
    assert told > 100
    path.write_bytes(whole)
    table = parquet.read_table(path)
    about = table.schema.metadata[b"probekit"].replace(b'"documents": 30', b'"documents": 31')
    parquet.write_table(table.replace_schema_metadata({b"probekit": about}), path)
    with pytest.raises(DataError, match="its metadata were changed"):
        load_counts(path)
