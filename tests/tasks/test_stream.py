"""Tasks that are read in parts give the examples that they give when they are read whole."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest

from probekit.errors import DataError, UsageError
from probekit.tasks import load_task
from probekit.tasks.files import records, stream
from probekit.tasks.files.stream import StreamedSplit, is_stream, stream_task

TOML = 'labels = ["no", "yes"]\ndomain = "site"\n{more}\n[splits]\ntrain = "{file}"\ndev = "missing.jsonl"\n'


@pytest.fixture
def lines(tmp_path) -> Path:
    """2,500 examples, with blank lines, a byte-order mark, and labels that are missing."""
    rows = [
        {"text": f"text {i} é", "label": (None, "no", "yes", "NaN")[i % 4], "site": f"s{i % 4}", "key": f"k{i}"}
        for i in range(2500)
    ]
    text = "\n".join(json.dumps(row, ensure_ascii=False) + "\n" * (i % 7 == 0) for i, row in enumerate(rows))
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    return tmp_path


def toml(folder: Path, file: str = "a.jsonl", more: str = "") -> Path:
    path = folder / "task.toml"
    path.write_text(TOML.format(file=file, more=more))
    return path


def whole(folder: Path, more: str = ""):
    path = folder / "whole.toml"
    path.write_text(TOML.format(file="a.jsonl", more=more).replace('dev = "missing.jsonl"\n', ""))
    return load_task(str(path)).split("train")


@pytest.mark.parametrize("file", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("more", [pytest.param("", marks=pytest.mark.slow), 'id = "key"'])
def test_parts_are_those_of_the_whole(lines, file, more, monkeypatch):
    part = stream_task(toml(lines, file, more)).split("train")
    examples = whole(lines, more).examples
    assert isinstance(part, StreamedSplit)
    assert len(part) == 2500
    assert part.count == 2500
    for first in (2000, 0, 990, 2400):  # in any order
        assert part[first : first + 300] == examples[first : first + 300]
    assert part[1234] == examples[1234]
    assert tuple(part) == examples
    assert part.sample(40, 3)[:] == whole(lines, more).sample(40, 3).examples
    monkeypatch.setattr(stream, "NEXT", 300)
    assert part.sample(40, 3)[5:30] == whole(lines, more).sample(40, 3).examples[5:30]
    assert pickle.loads(pickle.dumps(part))[5:9] == examples[5:9]


def test_what_is_read_decides_the_digest(lines):
    digest = stream_task(toml(lines)).split("train").digest()
    assert stream_task(toml(lines)).split("train").digest() == digest
    assert stream_task(toml(lines, more='id = "key"')).split("train").digest() != digest
    assert stream_task(toml(lines)).split("train").sample(9).digest() != digest
    data = (lines / "a.jsonl").read_bytes()
    (lines / "a.jsonl").write_bytes(data.replace(b"text 2400", b"text 2499"))
    assert stream_task(toml(lines)).split("train").digest() != digest


def test_texts(tmp_path):
    (tmp_path / "wiki.txt").write_text("a cat\n\n  the dog \r\nthe end")
    task = stream_task(tmp_path / "wiki.txt", split="dev")
    assert [(e.id, e.text, e.label) for e in task.split("dev")] == [
        ("dev-0", "a cat", None),
        ("dev-1", "  the dog ", None),
        ("dev-2", "the end", None),
    ]
    assert (task.name, task.label_names) == ("wiki", ())
    assert [is_stream(x) for x in ("a.TXT", "a.jsonl.gz", "a.csv", "a.toml", "cola")] == [True, True] + [False] * 3


def broken():
    """Rows of which the second cannot be read."""
    yield {}
    raise ConnectionError


def test_a_data_set_of_the_hub(lines, monkeypatch):
    """A folder in its layout: its length is known only at the end."""
    folder = lines / "hub"
    folder.mkdir()
    (folder / "train.jsonl").write_bytes((lines / "a.jsonl").read_bytes().removeprefix(b"\xef\xbb\xbf"))
    path = lines / "hub.toml"
    path.write_text(f'hub = "{folder}"\nlabels = ["no", "yes"]\ndomain = "site"\n')
    part, examples = stream_task(path).split("train"), whole(lines).examples
    assert part.count is None
    with pytest.raises(UsageError, match="is known only when all have been read"):
        len(part)
    assert part[10:20] == examples[10:20]
    assert part[20:30] == examples[20:30]
    assert part[5:8] == examples[5:8]
    assert part[2490:2600] == examples[2490:]
    assert part[2500:2600] == part[9000:9100] == ()
    part[10:20]
    part.records._rows = broken()
    with pytest.raises(ConnectionError):
        part[20:30]  # after an error, no wrong rows
    assert part[20:30] == examples[20:30]
    with pytest.raises(UsageError, match="is known only"):
        part.sample(10)


def test_mistakes(lines, monkeypatch):
    monkeypatch.setattr(records, "STEP", 10)
    (lines / "bad.jsonl").write_text('{"text": "a"}\n' * 30 + "\n{text: 3}\n" + '{"words": "a"}\n')
    part = stream_task(lines / "bad.jsonl").split("train")
    assert len(part[:30]) == 30
    with pytest.raises(DataError, match=r"bad.jsonl.*32.*is not JSON"):
        part[25:31]
    with pytest.raises(DataError, match=r"has no 'text' \(text\); it has 'words'"):
        part[31:]
    (lines / "raw.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(DataError, match=r"raw.txt.*2.*0xff of the line is not UTF-8"):
        list(stream_task(lines / "raw.txt").split("train"))
    with pytest.raises(DataError, match="cannot be read: No such file"):
        stream_task(toml(lines), split="dev")
    (lines / "x.toml").write_text('[splits]\ntrain = "a.jsonl"\n')
    with pytest.raises(DataError, match="labels of data that are read in parts must be known before"):
        stream_task(lines / "x.toml")
    (lines / "x.toml").write_text('labels = ["a"]\n[splits]\ntrain = "a.csv"\n')
    with pytest.raises(DataError, match="only JSON lines"):
        stream_task(lines / "x.toml")
    with pytest.raises(UsageError, match="has no split 'test'; it has train"):
        stream_task(lines / "x.toml", split="test")
    (lines / "x.toml").write_text('labels = ["no"]\n[splits]\ntrain = "a.jsonl"\n')
    with pytest.raises(DataError, match=r"label.*yes"):
        stream_task(lines / "x.toml").split("train")[:50]


def test_ids_that_occur_twice(lines, monkeypatch):
    """Within a part they are told with both lines; across parts when all examples are held."""
    rows = [json.dumps({"text": f"t {i}", "label": "no", "site": "s", "key": f"k{i % 30}"}) for i in range(40)]
    (lines / "a.jsonl").write_text("\n".join(rows))
    part = stream_task(toml(lines, more='id = "key"')).split("train")
    with pytest.raises(DataError, match="the id 'k0' is already that of line 1"):
        part[:]
    monkeypatch.setattr(stream, "NEXT", 20)
    with pytest.raises(DataError, match=r"a.jsonl.*the id 'k0' occurs 2 times"):
        part.whole()


def test_a_file_that_changes_during_a_job_is_told(lines):
    part = stream_task(toml(lines)).split("train")
    assert len(part[0:5]) == 5
    with (lines / "a.jsonl").open("ab") as file:
        file.write(b'{"text": "more", "label": "no", "site": "s0"}\n')
    with pytest.raises(DataError, match="has changed since its records were counted. Run the command again"):
        part[2000:2005]
