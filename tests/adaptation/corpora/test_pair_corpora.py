"""Translations and replies in their published layouts."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise

import numpy as np
import pytest

from probekit.adaptation.pretraining.corpora.corpus import load_corpus
from probekit.adaptation.pretraining.corpora.kinds import CorpusKind
from probekit.adaptation.pretraining.corpora.replies import is_good_comment
from probekit.errors import DataError


def rows(corpus, split="train"):
    return list(corpus.splits[split]())


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (folder / name.replace("__", ".")).write_text("".join(f"{line}\n" for line in lines))
    return folder


def numbered(word, n=3):
    return [f"{word} {i}" for i in range(n)]


LAYOUTS = {
    "wmt14-en-de": [
        ["train.en", "train.de", "newstest2013.en", "newstest2013.de", "newstest2014.en", "newstest2014.de"],
        ["train.en", "train.de", "valid.en", "valid.de", "test.en", "test.de"],
    ],
    "wmt17-en-ru": [
        ["train.en", "train.ru", "newstest2016.en", "newstest2016.ru", "newstest2017.en", "newstest2017.ru"]
    ],
    "multi30k-en-de": [
        ["train.en", "train.de", "val.en", "val.de", "test_2016_flickr.en", "test_2016_flickr.de"],
        ["train.en", "train.de", "val.en", "val.de", "test2016.en", "test2016.de"],
    ],
    "multi30k-en-fr": [["train.en", "train.fr", "val.en", "val.fr", "test2016.en", "test2016.fr"]],
    "opennmt-en-de": [["src-train.txt", "tgt-train.txt", "src-val.txt", "tgt-val.txt", "src-test.txt", "tgt-test.txt"]],
}


@pytest.mark.parametrize(("name", "files"), [(name, files) for name, layouts in LAYOUTS.items() for files in layouts])
def test_parallel_layouts(tmp_path, name, files):
    for file in files:
        (tmp_path / file).write_text("".join(f"{file} {i}\n" for i in range(3)))
    corpus = load_corpus(name, tmp_path)
    assert corpus.kind is CorpusKind.PAIRS
    assert [path.name for path in corpus.files] == files
    for split, (source, target) in zip(("train", "dev", "test"), zip(*[iter(files)] * 2, strict=True), strict=True):
        assert rows(corpus, split) == [(f"{source} {i}", f"{target} {i}") for i in range(3)]


def test_the_published_parts_of_wmt14(tmp_path):
    write(tmp_path / "training", **{f"europarl-v7__de-en__{lang}": numbered(f"ep {lang}") for lang in ("en", "de")})
    write(tmp_path, **{f"commoncrawl__de-en__{lang}": numbered(f"cc {lang}") for lang in ("en", "de")})
    write(
        tmp_path / "training", **{f"news-commentary-v9__de-en__{lang}": numbered(f"nc {lang}") for lang in ("en", "de")}
    )
    write(tmp_path / "dev", **{f"newstest2013__{lang}": numbered(lang) for lang in ("en", "de")})
    for role, lang in (("src", "en"), ("ref", "de")):
        text = f'<doc>\n<seg id="1">{lang} &amp; 1</seg>\n</doc>\n<seg id="2"> {lang} 2 </seg>\n'
        (tmp_path / "test-full").mkdir(exist_ok=True)
        (tmp_path / f"test-full/newstest2014-deen-{role}.{lang}.sgm").write_text(text)
    corpus = load_corpus("wmt14-en-de", tmp_path)
    assert [row[0] for row in rows(corpus)] == [f"{part} en {i}" for part in ("ep", "cc", "nc") for i in range(3)]
    assert rows(corpus, "dev")[0] == ("en 0", "de 0")
    assert rows(corpus, "test") == [("en & 1", "de & 1"), ("en 2", "de 2")]


WMT_PARTS = {
    "wmt14-en-de": ("de", ["europarl-v7.de-en", "commoncrawl.de-en", "news-commentary-v9.de-en"]),
    "wmt17-en-ru": ("ru", ["commoncrawl.ru-en", "news-commentary-v12.ru-en", "corpus.en_ru.1m"]),
}


@pytest.mark.parametrize("place", [".", "training", "wmt/training", "each", "each/training"])
@pytest.mark.parametrize("name", WMT_PARTS)
def test_all_parts_of_wmt_are_read_wherever_they_lie(tmp_path, name, place, caplog):
    other, parts = WMT_PARTS[name]
    for part in parts:
        folders = {"each": part, "each/training": f"{part}/training", "wmt/training": f"{name}/training"}
        folder = tmp_path / folders.get(place, place)
        write(folder, **{f"{part}.en": numbered(part, 9), f"{part}.{other}": numbered(f"{part} {other}", 9)})
    assert len(load_corpus(name, tmp_path).files) == 2 * 3
    year = 2013 if other == "de" else 2016
    dev, test = caplog.messages  # and nothing about parts of train
    assert f"newstest{year}.en (dev) is not in {tmp_path}; one training pair in 20 is held out for it." in dev
    assert f"newstest{year + 1}.en (test) is not in {tmp_path}." in test
    write(tmp_path / place, **{f"newstest{year}__{language}": numbered(language) for language in ("en", other)})
    assert rows(load_corpus(name, tmp_path), "dev")[0] == ("en 0", f"{other} 0")
    (folder / f"{part}.en").unlink()
    (folder / f"{part}.{other}").unlink()
    assert len(load_corpus(name, tmp_path).files) == 2 * 2 + 2
    assert f"2 of 3 parts are in {tmp_path}; {part}.en is not" in caplog.text


def test_wmt_in_the_layout_of_jiant(tmp_path):
    write(tmp_path / "wmt17_en_ru", train__txt=["a\tб", "\tв", "c\tг"], val__txt=["d\tд"], test__txt=["e\tе"])
    corpus = load_corpus("wmt17-en-ru", tmp_path)
    assert rows(corpus) == [("a", "б"), ("c", "г")]
    assert (rows(corpus, "dev"), rows(corpus, "test")) == ([("d", "д")], [("e", "е")])
    write(tmp_path / "wmt17_en_ru", train__txt=["a\tб", "no tab"])
    with pytest.raises(DataError, match=r"train\.txt, line 2: found 1 columns, expected 2 between tabs"):
        rows(corpus)


def test_packed_files(tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"train.{language}.gz").write_bytes(gzip.compress(f"{language} 1\n{language} 2\n".encode()))
    corpus = load_corpus("multi30k-en-de", tmp_path)
    assert sorted(rows(corpus) + rows(corpus, "dev")) == [("en 1", "de 1"), ("en 2", "de 2")]


NTREX = [("newstest2019-src.eng.txt", "newstest2019-ref.fra.txt"), ("newstest2019.en", "newstest2019.fr")]


@pytest.mark.parametrize("names", NTREX)
def test_ntrex_has_no_splits_of_its_own(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("".join(f"{name} {i}\r\n" for i in range(200)))
    corpus = load_corpus("ntrex-en-fr", tmp_path)
    assert [len(rows(corpus, split)) for split in ("train", "dev")] == [190, 10]
    assert len({*rows(corpus), *rows(corpus, "dev")}) == 200


def test_parallel_files_that_do_not_fit(tmp_path):
    write(tmp_path, train__en=numbered("a", 4), train__de=numbered("b", 3))
    with pytest.raises(DataError, match=r"train\.en, line 4: this line has no counterpart: .*train\.de has only 3"):
        rows(load_corpus("multi30k-en-de", tmp_path))
    (tmp_path / "train.de").unlink()
    with pytest.raises(DataError, match=r"train\.en: has no counterpart; expected train\*\.de of Multi30k"):
        load_corpus("multi30k-en-de", tmp_path)
    write(tmp_path, train_a__de=[], train_b__de=[])
    with pytest.raises(DataError, match=r"several files could be this part of Multi30k .*: train_a\.de, train_b\.de"):
        load_corpus("multi30k-en-de", tmp_path)


def test_corpora_without_a_hub_copy():
    for name in ("ntrex-en-de", "multi30k-en-fr", "opennmt-en-de", "reddit", "twitter"):
        with pytest.raises(DataError, match="not on the Hugging Face hub; give the folder"):
            load_corpus(name)


GOOD, OTHER = "I like this one a lot.", "So do I my dear friend."


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("word " * 49 + "word", True),  # 249 characters
        ("word " * 50, False),
        ("word " * 50 + "word", False),
        ("read this http a b c d e", False),
        ("/r/pics has it already", False),
        ("see /r/pics for more of it", True),
        ("@someone look here", False),
        ("[removed] by someone", False),
        ("[deleted]", False),
        ("1 2 3 4 5 6 ok", False),
        ("aaaaaaa123", True),  # exactly 70 % letters
        ("aaaaaa1234", False),
        ("", False),
    ],
)
def test_the_filters_of_reddit(text, good):
    assert is_good_comment(text) is good


def test_reddit_in_the_layout_of_jiant(tmp_path):
    pairs = [f"{GOOD}\t{OTHER}", f"{GOOD}\t[removed]", "short", f"{GOOD}\t", f"{OTHER}\t{GOOD}\t7"]
    lines = [f"1\t2\t{pair}" for pair in pairs]
    for name in ("train", "val", "test"):
        write(tmp_path / "Reddit_3.4G", **{f"{name}__csv": lines})
    corpus = load_corpus("reddit", tmp_path)
    for split in ("train", "dev", "test"):
        assert rows(corpus, split) == [(GOOD, OTHER), (OTHER, GOOD)]


def test_reddit_in_json_lines(tmp_path):
    records = [{"comment": GOOD, "reply": OTHER}, {"context": OTHER, "response": GOOD}, {"comment": GOOD, "reply": ""}]
    lines = [json.dumps(record).replace('."', f' {"a" * i}"') for i in range(20) for record in records]
    write(tmp_path, train__jsonl=lines)
    corpus = load_corpus("reddit", tmp_path)
    assert [len(rows(corpus, split)) for split in ("train", "dev")] == [38, 2]
    write(tmp_path, train__jsonl=[json.dumps(records[0])] * 5 + ['{"body": "x"}'])
    with pytest.raises(DataError, match=r"train\.jsonl, line 6: expected texts under 'comment' and 'reply' or"):
        rows(load_corpus("reddit", tmp_path))


@pytest.mark.parametrize("nested", [False, True])
def test_dailydialog(tmp_path, nested):
    for name in ("train", "validation", "test"):
        place = tmp_path / name if nested else tmp_path
        text = f"{name} a ? __eou__ b . __eou__ c __eou__\n\nalone __eou__\nd __eou__ e\n"
        write(place, **{f"dialogues_{name}__txt": text.rstrip("\n").split("\n")})
    corpus = load_corpus("dailydialog", tmp_path)
    for split, name in (("train", "train"), ("dev", "validation"), ("test", "test")):
        assert rows(corpus, split) == [(f"{name} a ?", "b ."), ("b .", "c"), ("d", "e")]


def test_dailydialog_without_validation(tmp_path):
    write(tmp_path, dialogues_train__txt=[f"a{i} __eou__ b{i} __eou__ c{i} __eou__" for i in range(40)])
    corpus = load_corpus("dailydialog", tmp_path)
    train, dev = rows(corpus), rows(corpus, "dev")
    assert (len(train), len(dev)) == (76, 4)
    assert not {a[1:] for a, _ in train} & {a[1:] for a, _ in dev}


def test_twitter(tmp_path):
    conversations = [[f"{c} tweet {t}" for t in range(1 + c % 3)] for c in range(60)]
    text = "\n\n\n\n".join("\n".join(conversation) for conversation in conversations)
    text = text.replace("\n7 tweet 1\n", "\n7 tweet 1\n\n\n\n")  # longer gaps, as some are
    (tmp_path / "TwitterConvCorpus.txt").write_text(f"\n\n{text}\n\n\n\n\n\n")
    corpus = load_corpus("twitter", tmp_path)
    train, dev = rows(corpus), rows(corpus, "dev")
    assert len(train) + len(dev) == 60
    assert not {a.split()[0] for a, _ in train} & {a.split()[0] for a, _ in dev}
    assert all(int(b[-1]) == int(a[-1]) + 1 for a, b in train + dev)


@pytest.mark.parametrize("layout", ["twitter", "dailydialog"])
def test_no_pair_of_dev_is_in_train(tmp_path, layout):
    """Each of 60 threads has three branches: two end differently, one continues from its middle."""
    threads = [[f"{c} {what}" for what in ("begin", "answer", "thanks")] for c in range(60)]
    branches = [b for a, r, t in threads for b in ([a, r, t], [a, r, f"{a} other"], [f"{a} late", r, t])]
    order = np.random.default_rng(0).permutation(len(branches))
    mixed = [branches[i] for i in order]
    text = "\n\n".join(map("\n".join, mixed)) if layout == "twitter" else "\n".join(map(" __eou__ ".join, mixed))
    (tmp_path / "branches.txt").write_text(text + "\n")
    corpus = load_corpus(f"{layout}:branches.txt", tmp_path)
    train, dev = rows(corpus), rows(corpus, "dev")
    assert not set(train) & set(dev)
    assert (len(train), len(dev)) == (57 * 6, 3 * 6)
    assert {a.split()[0] for a, _ in dev}.isdisjoint(a.split()[0] for a, _ in train)
    assert sorted(train + dev) == sorted((a, b) for branch in branches for a, b in pairwise(branch))


def test_a_file_of_one_thread_cannot_be_divided(tmp_path):
    write(tmp_path, lines__txt=["a", "b", "", "a", "c", "", "a", "d"])
    with pytest.raises(DataError, match="number of conversations that share no pair of utterances: 1; at least 2"):
        load_corpus("twitter:lines.txt", tmp_path)


def test_conversations_of_your_own(tmp_path):
    write(tmp_path, chat__txt=[f"a{i} __eou__ b{i}" for i in range(40)], lines__txt=["a", "b", "", "c", "d", "e"])
    chat = load_corpus("dailydialog:chat.txt", tmp_path)
    assert (len(rows(chat)), len(rows(chat, "dev")), chat.name) == (38, 2, "dailydialog:chat.txt")
    assert all(a[1:] == b[1:] for a, b in rows(chat))
    lines = load_corpus("twitter:lines.txt", tmp_path)
    assert sorted(rows(lines) + rows(lines, "dev")) == [("a", "b"), ("c", "d"), ("d", "e")]
    with pytest.raises(DataError, match=r"none\.txt: cannot be read: No such file"):
        load_corpus("twitter:none.txt", tmp_path)
