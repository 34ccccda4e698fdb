"""WikiText and One Billion Word in their published layouts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from probekit.adaptation.pretraining.corpora.corpus import load_corpus
from probekit.adaptation.pretraining.corpora.kinds import CorpusKind
from probekit.adaptation.pretraining.corpora.language_modelling import articles, split_sentences
from probekit.errors import DataError, UsageError

WIKI = """ 
 = Crab = 
 
 The crab is blue . It eats <unk> 
 = = Food = = 
 
 Key : W = Wins . 
 = Wins ; L = 
 It said " no . " Then it left . 
 
 
 = Ox ( animal ) = 
 
 An ox is big . 
"""


def rows(corpus, split="train"):
    return list(corpus.splits[split]())


@pytest.fixture
def wiki(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"wiki.{split}.tokens").write_text(WIKI)
    return tmp_path


@pytest.mark.parametrize("name", ["wikitext-103", "wikitext-2"])
def test_wikitext(wiki, name):
    corpus = load_corpus(name, wiki)
    assert corpus.kind is CorpusKind.SENTENCES
    assert [path.name for path in corpus.files] == ["wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"]
    expected = ["The crab is blue .", "It eats <unk>", "Key : W = Wins .", 'It said " no . "', "Then it left .", ""]
    for split in ("train", "dev", "test"):
        assert [text for (text,) in rows(corpus, split)] == [*expected, "An ox is big ."]


def test_articles_that_are_not_read_to_the_end(wiki):
    lines = (wiki / "wiki.train.tokens").read_text().split("\n")
    assert [next(article) for article in articles(lines)] == ["The crab is blue .", "An ox is big ."]


def test_wikitext_in_a_subfolder_and_of_the_right_size(tmp_path):
    for size, word in (("103", "large"), ("2", "small")):
        folder = tmp_path / f"wikitext-{size}"
        folder.mkdir()
        (folder / "wiki.train.tokens").write_text(f"\n = A = \n\n {word} . \n")
        (folder / "wiki.valid.tokens").write_text(f"\n = B = \n\n {word} . \n")
    assert rows(load_corpus("wikitext-2", tmp_path)) == [("small .",)]
    assert rows(load_corpus("wikitext-103", tmp_path)) == [("large .",)]


def test_wikitext_without_a_validation_file(tmp_path):
    text = "".join(f" \n = {i} = \n \n The text {i} is short . It ends . \n" for i in range(100))
    (tmp_path / "wiki.train.tokens").write_text(text)
    corpus = load_corpus("wikitext-2", tmp_path)
    train, dev = rows(corpus), rows(corpus, "dev")
    assert (sum(row != ("",) for row in train), sum(row != ("",) for row in dev)) == (190, 10)
    assert not set(train) & {row for row in dev if row[0].startswith("The")}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("A b . C d .", 2),
        ("A b . c d .", 1),
        ("St. Paul saw Mr. X . He ran", 2),
        ('He said : " Go . Now ! " She went .', 3),
        ("( It was so . ) They left ? ! Yes .", 3),
        ("No end", 1),
        ("", 0),
    ],
)
def test_sentences_of_a_paragraph(text, count):
    found = split_sentences(text)
    assert len(found) == count
    assert " ".join(found) == text


def test_no_wikitext(tmp_path):
    with pytest.raises(DataError, match=r"no file of WikiText-2; expected wiki\.train\*\.tokens, .* \(from https"):
        load_corpus("wikitext-2", tmp_path)
    with pytest.raises(DataError, match="does not exist. Give the folder with the files of WikiText-103"):
        load_corpus("wikitext-103", tmp_path / "none")


def shards(folder, heldout=(0, 1)):
    train, dev = folder / "training-monolingual.tokenized.shuffled", folder / "heldout-monolingual.tokenized.shuffled"
    for place in (train, dev):
        place.mkdir(parents=True)
    for i in (1, 2):
        (train / f"news.en-{i:05}-of-00100").write_text("".join(f"Train {i} {j} .\n" for j in range(50)))
    for i in heldout:
        (dev / f"news.en.heldout-{i:05}-of-00050").write_text(f"Held out {i} .\n")


def test_billion_word(tmp_path):
    shards(tmp_path / "1-billion-word-language-modeling-benchmark-r13output")
    corpus = load_corpus("billion-word", tmp_path)
    train = rows(corpus)
    assert train[:3] == [("Train 1 0 .",), ("",), ("Train 1 1 .",)]
    assert len(train) == 199
    assert (rows(corpus, "dev"), rows(corpus, "test")) == ([("Held out 1 .",)], [("Held out 0 .",)])
    assert len(corpus.files) == 4


def test_billion_word_without_the_second_held_out_shard(tmp_path):
    shards(tmp_path, heldout=(0,))
    corpus = load_corpus("billion-word", tmp_path)
    parts = [[row for row in rows(corpus, split) if row[0]] for split in ("train", "dev", "test")]
    assert [len(part) for part in parts] == [95, 5, 1]
    assert not any(a == b == ("",) for a, b in pairwise(rows(corpus)))


def test_skip_thought_stays_within_documents(wiki):
    for name in ("skip-thought:wikitext-2", "next-sentence:wikitext-2"):
        corpus = load_corpus(name, wiki)
        assert (corpus.kind, corpus.name) == (CorpusKind.PAIRS, name)
        assert rows(corpus, "dev")[-1] == ('It said " no . "', "Then it left .")
        assert len(rows(corpus)) == 4
    assert rows(load_corpus("skip-thought", wiki)) == rows(load_corpus("skip-thought:wikitext-103", wiki))


def test_skip_thought_of_a_text_file(tmp_path):
    documents = ["\n".join(f"{d} {s}" for s in range(3)) for d in range(40)]
    (tmp_path / "books.txt").write_text("\n\n".join(documents))
    corpus = load_corpus("skip-thought:books.txt", tmp_path)
    pairs = rows(corpus) + rows(corpus, "dev")
    assert len(pairs) == 80
    for first, second in pairs:
        assert first.split()[0] == second.split()[0]


def test_skip_thought_needs_documents(tmp_path):
    shards(tmp_path)
    with pytest.raises(UsageError, match="no two sentences of billion-word are neighbours in a document"):
        load_corpus("skip-thought:billion-word", tmp_path)
    (tmp_path / "a.en").write_text("a\nb\n")
    (tmp_path / "a.de").write_text("a\nb\n")
    with pytest.raises(UsageError, match=r"needs sentences in document order, and a\.en\+a\.de has pairs"):
        load_corpus("skip-thought:a.en+a.de", tmp_path)
