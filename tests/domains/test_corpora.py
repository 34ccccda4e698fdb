"""Reading text: files, folders, gzip, JSON lines, data sets; and what is said of those that cannot be read."""

import gzip
import json
import os
import threading

import pytest

from probekit.domains import corpora
from probekit.domains.corpora import corpus_digest, read_files, read_hub, read_texts
from probekit.errors import DataError, UsageError


def text(corpus):
    return b"".join(chunk.data for chunk in corpus.chunks).decode()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Pieces so small that each file takes several."""
    monkeypatch.setattr(corpora, "CHUNK", 16)


def test_a_pattern_stands_for_its_files(tmp_path):
    for name in ("wiki/b.raw", "wiki/a.raw", "wiki/a.tokens", "more/c.raw"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n", encoding="utf-8")
    assert text(read_files(f"{tmp_path}/wiki/*.raw")) == "wiki/a.raw\nwiki/b.raw\n"
    assert [chunk.source for chunk in read_files(f"{tmp_path}/*/*.raw").chunks] == [
        "more/c.raw",
        "wiki/a.raw",
        "wiki/b.raw",
    ]
    with pytest.raises(DataError, match="no such file or folder"):
        read_files(f"{tmp_path}/wiki/*.txt")
    (tmp_path / "wiki/[x].raw").write_text("as it is\n", encoding="utf-8")
    assert text(read_files(tmp_path / "wiki/[x].raw")) == "as it is\n"


def test_a_folder_is_read_in_the_order_of_paths_without_what_is_hidden(tmp_path):
    (tmp_path / "b/c").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    lines = "".join(f"line {i}\n" for i in range(20))
    (tmp_path / "a.txt").write_text(lines, encoding="utf-8")
    (tmp_path / "b/c/d.txt.gz").write_bytes(gzip.compress("zipped é\n".encode() * 30))
    (tmp_path / "b/e.jsonl").write_text('{"text": "one\\ntwo"}\n\n{"text": "thr\\u0000ee"}\n', encoding="utf-8")
    (tmp_path / "z.txt").write_bytes("\ufefflast word".encode())
    (tmp_path / ".hidden").write_text("hidden", encoding="utf-8")
    (tmp_path / ".git/x").write_text("hidden", encoding="utf-8")
    corpus = read_files(tmp_path)
    chunks = list(corpus.chunks)
    assert list(dict.fromkeys(c.source for c in chunks)) == ["a.txt", "b/c/d.txt.gz", "b/e.jsonl", "z.txt"]
    parts = {
        s: b"".join(c.data for c in chunks if c.source == s).decode() for s in dict.fromkeys(c.source for c in chunks)
    }
    assert parts["a.txt"] == lines
    assert parts["b/c/d.txt.gz"] == "zipped é\n" * 30
    assert parts["b/e.jsonl"] == "one\ntwo\0thr ee\0"
    assert parts["z.txt"] == "last word"
    assert [c.marked for c in chunks if c.source == "b/e.jsonl"] == [True]
    assert len(chunks) > 20
    assert all(chunk.data[-1:] in b"\n \0" for chunk in chunks[:-1])
    read = [c.read for c in chunks]
    assert read == sorted(read)
    assert read[-1] == corpus.size == sum(p.stat().st_size for p in tmp_path.rglob("[a-z]*.*") if p.is_file())


def test_a_line_longer_than_a_piece(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("word " * 50 + "x" * 100 + " end", encoding="utf-8")
    assert text(read_files(tmp_path / "a")) == "word " * 50 + "x" * 100 + " end"
    monkeypatch.setattr(corpora, "LONGEST", 64)
    with pytest.raises(DataError, match="a: no white space in 0 MB from byte 250 on. Is it text"):
        text(read_files(tmp_path / "a"))


BAD = {
    "undecodable bytes": (
        "a.txt",
        b"good words, " * 9 + b"caf\xe9 noir",
        "a.txt: byte 0xe9 at offset 111 is not UTF-8",
    ),
    "after a mark": ("a.txt", b"\xef\xbb\xbfab \xff", "a.txt: byte 0xff at offset 6 is not UTF-8"),
    "cut short": ("a.txt", b"caf\xc3", "a.txt: byte 0xc3 at offset 3"),
    "UTF-16": ("a.txt", "good".encode("utf-16-le"), "a.txt: contains a NUL at offset 1. Is the file UTF-16"),
    "gzip by another name": ("a.txt", gzip.compress(b"x"), "byte 0x8b at offset 1 is.*rename it to end in .gz"),
    "undecodable, packed": ("a.gz", gzip.compress(b"good words, " * 9 + b"\xff"), "a.gz: byte 0xff at offset 108"),
    "not gzip": ("a.txt.gz", b"plain text", "a.txt.gz: is not gzip, though its name ends in .gz"),
    "half a gzip": ("a.gz", gzip.compress(bytes(range(32, 127)) * 9)[:-20], "a.gz: the gzip data are cut short"),
    "not JSON": ("a.jsonl", b'{"text": "a"}\n{"text"}\n', "a.jsonl, line 2: is not JSON"),
    "no object": ("a.jsonl", b'"a"\n', "a.jsonl, line 1: expected a JSON object, found a str"),
    "no field": (
        "a.jsonl",
        b'{"body": "a", "id": 1}\n',
        "line 1: there is no field 'text'; the fields are 'body', 'id'",
    ),
    "no text": ("a.jsonl", b'{"text": 3}\n', "line 1: the field 'text' must hold a text, not 3"),
    "half a pair": ("a.jsonl", b'{"text": "\\ud800"}\n', "a.jsonl, line 1: contains half of a surrogate pair"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_is_named(tmp_path, case):
    name, data, message = BAD[case]
    (tmp_path / name).write_bytes(data)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(DataError, match=message):
            text(read_files(path))


@pytest.mark.parametrize("name", ["pipe", "pipe.gz", "pipe.jsonl"])
def test_a_pipe_is_read_as_the_file_is(tmp_path, name):
    """As of ``<(zcat x)``; documents are dealt the same whatever the pipe is called."""
    lines = b'{"text": "some words"}\n' * 20
    data = gzip.compress(lines) if name.endswith("gz") else lines
    pipe = tmp_path / name
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    chunks = list(read_files(pipe).chunks)
    writer.join()
    expected = b"some words\0" * 20 if name == "pipe.jsonl" else lines
    assert b"".join(chunk.data for chunk in chunks) == expected
    assert {chunk.source for chunk in chunks} == {"pipe"}
    assert [c.read for c in chunks] == sorted(c.read for c in chunks)


def test_links_and_what_is_no_file(tmp_path, monkeypatch):
    (tmp_path / "words").write_text("some words", encoding="utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "good").symlink_to(tmp_path / "words")
    assert text(read_files(folder)) == text(read_files(folder / "good")) == "some words"
    (folder / "gone").symlink_to(tmp_path / "nothing")
    for path in (folder, folder / "gone"):
        with pytest.raises(DataError, match="folder/gone: is a broken link"):
            read_files(path)
    (folder / "gone").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(DataError, match="pipe: is not a regular file; remove it from the folder"):
        read_files(folder)
    (folder / "pipe").unlink()

    def closed(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(DataError, match="folder: cannot be read: Permission denied"):
        read_files(folder)


def test_what_is_not_there(tmp_path):
    with pytest.raises(DataError, match="nowhere: there is no such file or folder"):
        read_files(tmp_path / "nowhere")
    (tmp_path / ".only").write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match="contains no visible file"):
        read_files(tmp_path)
    with pytest.raises(UsageError, match="texts, document 2: expected a string, got 3"):
        text(read_texts(["a", 3]))


def test_a_data_set_is_streamed(tmp_path):
    """From a local folder, which the library reads as it reads a repository of the hub."""
    folder = tmp_path / "set"
    folder.mkdir()
    rows = [{"body": f"document {i}", "id": i} for i in range(5)]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    corpus = read_hub(str(folder), "train", field="body")
    assert text(corpus) == "".join(f"document {i}\0" for i in range(5))
    with pytest.raises(DataError, match="set, train, line 1: there is no field 'text'; the fields are 'body', 'id'"):
        text(read_hub(str(folder), "train"))
    with pytest.raises(DataError, match="the test split could not be loaded from the Hugging Face hub"):
        read_hub(str(folder), "test")


def test_a_corpus_is_known_by_what_it_holds(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("one two")
    known, about = corpus_digest(folder)
    assert about == {}
    assert corpus_digest(f"hub:{folder}@train") == (known, {})  # a local folder of data files
    (folder / "a.txt").write_text("one twp")
    assert corpus_digest(folder)[0] != known
    os.mkfifo(tmp_path / "pipe")
    assert corpus_digest(tmp_path / "pipe") == (str(tmp_path / "pipe"), {"digested": "by name"})
    with pytest.raises(DataError, match="there is no such file"):
        corpus_digest(tmp_path / "none")


def test_a_corpus_of_the_hub_is_known_by_its_revision_or_else_by_name(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    place = "hub:some/texts:plain@train"
    assert corpus_digest(place) == (place, {"digested": "by name"})
    refs = tmp_path / "datasets--some--texts/refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("c0ffee")
    known, about = corpus_digest(place)
    assert about == {"revision": "c0ffee"}
    assert known != corpus_digest("hub:some/texts:plain@test")[0]
    (refs / "main").write_text("decade")
    assert corpus_digest(place)[0] != known
    with pytest.raises(UsageError, match="lacks a split"):
        corpus_digest("hub:some/texts")
