"""Text files as corpora."""

from __future__ import annotations

import pickle
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest

from probekit.adaptation.pretraining.corpora.corpus import load_corpus
from probekit.adaptation.pretraining.corpora.kinds import CorpusKind
from probekit.errors import DataError, UsageError


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def documents(path: Path, sizes: list[int]) -> Path:
    text = "\n\n".join("\n".join(f"d{d} s{s}" for s in range(n)) for d, n in enumerate(sizes))
    return write(path, text + "\n")


def rows(corpus, split):
    return list(corpus.splits[split]())


def test_whole_documents_are_held_out(tmp_path):
    corpus = load_corpus(str(documents(tmp_path / "many.txt", [3] * 60)))
    assert corpus.kind is CorpusKind.SENTENCES
    assert corpus.files == (tmp_path / "many.txt",)
    train, dev = rows(corpus, "train"), rows(corpus, "dev")
    assert sum(row != ("",) for row in train) == 57 * 3
    assert sum(row != ("",) for row in dev) == 3 * 3
    names = [{row[0].split()[0] for row in part if row[0]} for part in (train, dev)]
    assert not names[0] & names[1]
    text = "\n".join(row[0] for row in dev)
    assert [len(document.split("\n")) for document in text.split("\n\n")] == [3, 3, 3]
    assert rows(corpus, "dev") == dev  # a second stream starts anew


def test_the_seed_chooses_the_documents(tmp_path):
    path = documents(tmp_path / "many.txt", [1] * 400)
    parts = [tuple(rows(load_corpus(str(path), seed=seed), "dev")) for seed in (0, 0, 1, 2)]
    assert parts[0] == parts[1]
    assert len(set(parts)) == 3


def test_passages_of_long_documents_are_held_out(tmp_path):
    corpus = load_corpus(str(documents(tmp_path / "books.txt", [1000, 500, 10])))
    train, dev = rows(corpus, "train"), rows(corpus, "dev")
    sentences = [row[0] for row in train + dev if row[0]]
    assert len(sentences) == len(set(sentences)) == 1510
    assert sum(row != ("",) for row in dev) in (50, 100, 60)
    for part in (train, dev):  # neighbours without ("",) between them are neighbours in the text
        for (first,), (second,) in pairwise(part):
            if first and second:
                (d, s), (e, t) = first.split(), second.split()
                assert d == e
                assert int(t[1:]) == int(s[1:]) + 1
        assert part[0] != ("",) != part[-1]
        assert not any(a == b == ("",) for a, b in pairwise(part))


def test_blank_lines_carriage_returns_and_a_byte_order_mark(tmp_path):
    body = b"\xef\xbb\xbf one \r\n\r\n \r\n" + b"".join(b"s%d\r\n" % i for i in range(99))
    corpus = load_corpus(str(write(tmp_path / "a.txt", body)))
    assert sorted(row[0] for split in corpus.splits for row in rows(corpus, split) if row[0]) == sorted(
        ["one", *(f"s{i}" for i in range(99))]
    )


def test_pairs_of_files(tmp_path):
    write(tmp_path / "t.en", "".join(f"e{i}\n" for i in range(100)) + "\n")
    write(tmp_path / "t.de", "".join(f"d{i}\n" for i in range(100)) + "d\n")
    corpus = load_corpus("t.en+t.de", tmp_path)
    assert corpus.kind is CorpusKind.PAIRS
    train, dev = rows(corpus, "train"), rows(corpus, "dev")
    assert (len(train), len(dev)) == (95, 5)
    assert {(a[0], b[0]) for a, b in train + dev} == {("e", "d")}
    assert all(a[1:] == b[1:] for a, b in train + dev)


def test_copies_of_a_pair_are_in_one_split(tmp_path):
    """Different pairs are held out as if each occurred once; the others' copies stay in train."""
    pairs = [(f"e{i % 60}", f"d{i % 60 % 45}") for i in range(200)]
    for side, name in enumerate(("t.en", "t.de")):
        write(tmp_path / name, "".join(f"{pair[side]}\n" for pair in pairs))
    train, dev = (rows(load_corpus("t.en+t.de", tmp_path), split) for split in ("train", "dev"))
    assert not {*train} & {*dev}
    assert sorted(train + dev) == sorted(pairs)
    assert len({*dev}) == 3
    for side, name in enumerate(("u.en", "u.de")):
        write(tmp_path / name, "".join(f"{pair[side]}\n" for pair in dict.fromkeys(pairs)))
    once = load_corpus("u.en+u.de", tmp_path)
    assert rows(once, "dev") == list(dict.fromkeys(dev))


def test_copies_of_one_pair(tmp_path):
    write(tmp_path / "t.en", "a\n" * 60)
    write(tmp_path / "t.de", "b\n" * 60)
    with pytest.raises(DataError, match="number of different pairs: 1; at least 2 are needed"):
        load_corpus("t.en+t.de", tmp_path)


@pytest.mark.parametrize(("english", "german", "longer"), [(30, 28, "t.en"), (28, 30, "t.de")])
def test_files_of_unequal_length(tmp_path, english, german, longer):
    write(tmp_path / "t.en", "".join(f"a{i}\n" for i in range(english)))
    write(tmp_path / "t.de", "b\n" * german)
    corpus = load_corpus("t.en+t.de", tmp_path)
    with pytest.raises(DataError, match=rf"{longer}, line 29: this line has no counterpart: .* has only 28 lines"):
        rows(corpus, "train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a\nb\xff\n" * 30, "a.txt, line 2: byte 0xff at offset 3 is not UTF-8"),
        (b"a\nb\n\0\n", "a.txt, line 3: contains a NUL"),
        (b"", "number of sentences: 0; at least 51 in a document"),
        (b"a\n" * 50, "number of sentences: 50; at least 51 in a document, or two documents, are needed"),
        (b"PK\x03\x04", "is a ZIP file"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        load_corpus(str(write(tmp_path / "a.txt", text)))


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.txt: cannot be read: No such file"):
        load_corpus("none.txt", tmp_path)


def test_an_unknown_name():
    with pytest.raises(UsageError, match="unknown corpus 'wikitext-13'"):
        load_corpus("wikitext-13")


def test_corpora_can_be_sent_to_other_processes(tmp_path):
    corpus = load_corpus(str(documents(tmp_path / "many.txt", [2] * 30)))
    assert rows(pickle.loads(pickle.dumps(corpus)), "dev") == rows(corpus, "dev")


def test_no_file_is_held_in_memory(tmp_path):
    path = write(tmp_path / "large.txt", ("word " * 40 + "\n") * 12_000)  # 2.4 MB, one document
    tracemalloc.start()
    count = sum(1 for _ in load_corpus(str(path)).splits["train"]())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 11_400 <= count <= 11_400 + 40  # sentences, and ("",) after each held-out passage
    assert peak < 1_000_000
