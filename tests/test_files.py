"""Files appear whole, locks die with their holders, digests stay what they were, and strangers' files stay."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from probekit import files
from probekit.errors import CacheBusy, DataError, UsageError
from probekit.files import (
    MARK,
    FileKind,
    beside,
    digest,
    digest_of_content,
    held,
    in_words,
    is_running,
    is_sealed,
    lock,
    new_folder,
    open_to_write,
    read_lines,
    remove,
    remove_unfinished,
    seal,
    stream_lines,
    whole,
    writer_of,
)

ANY = FileKind("a file", lambda _: True)
THREAD = 140012345678912
"""As Linux numbers threads."""


def write(path: Path, content: str | bytes) -> Path:
    return files.write(path, content, ANY)


@contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that runs ``code`` and has said "ready"; killed at the end, if not before."""
    begin = (
        "import os, subprocess, sys, time\nfrom pathlib import Path\nfrom probekit.files import FileKind, lock, whole\n"
    )
    words = [sys.executable, "-c", begin + code, *map(str, arguments)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


# appearing whole ------------------------------------------------------------------------------------------------------


def test_a_file_is_old_until_it_is_new(tmp_path):
    path = write(tmp_path / "a" / "b" / "x.txt", "é old")
    with whole(path, ANY) as new:
        new.write_text("n")
        assert path.read_text() == "é old"
        assert new.parent == path.parent
        assert new.name.startswith(".")
        new.write_text("new")
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == ["x.txt"]
    assert write(path, b"\x00\r\n").read_bytes() == b"\x00\r\n"


@pytest.mark.parametrize("kind", ["file", "folder", "nothing"])
def test_what_fails_leaves_what_was_there(tmp_path, kind):
    path = write(tmp_path / "x", "old")

    def fail() -> None:
        with whole(path, ANY) as new:
            if kind == "folder":
                new.mkdir()
                (new / "y").write_text("half")
            elif kind == "file":
                new.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_kill_in_the_middle_of_a_write_leaves_the_old_file(tmp_path):
    path = write(tmp_path / "x.txt", "old")
    code = """
with whole(sys.argv[1], FileKind("a file", lambda _: True)) as new, new.open("w") as stream:
    stream.write("half")
    stream.flush()
    print("ready", flush=True)
    time.sleep(60)
"""
    with child(code, path) as process:
        left, note = sorted(p for p in tmp_path.iterdir() if p != path)
        assert left.read_text() == "half"
        assert writer_of(left.name) == ("x.txt", process.pid)
        assert files.draft_of(note) == left
        assert files.is_draft(left)
        assert is_running(process.pid)
    assert not is_running(process.pid)
    assert path.read_text() == "old"
    theirs = [tmp_path / f".x.txt.{process.pid}-{THREAD}9", tmp_path / f".x.txt.draft.{process.pid}-{THREAD}8"]
    for one in theirs:  # named like a draft, and like a note
        one.write_text("years of work")
    (tmp_path / f".x.txt.draft.{process.pid}-{THREAD}7").write_bytes(files._note("")[:5])  # killed while it wrote it
    theirs += [tmp_path / f".x.txt.draft.{process.pid}-{THREAD}5", tmp_path / f".x.txt.{process.pid}-{THREAD}5"]
    theirs[-2].touch(), theirs[-1].write_text("years of work")  # an empty note proves nothing
    assert write(path, "new").read_text() == "new"
    assert sorted(tmp_path.iterdir()) == sorted([path, *theirs])


def test_files_are_as_open_as_others(tmp_path):
    (tmp_path / "plain").write_text("")
    assert write(tmp_path / "x", "").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_threads_do_not_write_into_each_others_files(tmp_path):
    path, all_there = tmp_path / "x", threading.Barrier(8)

    def make(k: int) -> None:
        with whole(path, ANY) as new:
            new.write_text(str(k) * 1000)
            all_there.wait()

    threads = [threading.Thread(target=make, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(text := path.read_text()) == 1000
    assert len(set(text)) == 1
    assert os.listdir(tmp_path) == ["x"]


@given(st.text("abc.-[] 0123456789", min_size=1, max_size=20).filter(lambda name: name.strip(".")))
def test_names_beside_are_read_back(name):
    with tempfile.TemporaryDirectory() as folder, beside(Path(folder) / name) as new:
        assert writer_of(new.name) == (name, os.getpid())
        assert files.is_draft(new)


def test_people_names_are_not_taken_for_ours(tmp_path):
    """A folder for models sweeps up what was killed, and nothing that only looks a little like it."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    theirs = [".model.backup", ".model.2019", ".model.2024-card", f".model2.{ended.pid}-{THREAD}", ".model"]
    at_work = f".model.{os.getpid()}-{THREAD}"
    looks_like_ours = f".model.{ended.pid}-{THREAD}1"  # but for the note beside it
    for name in (*theirs, at_work, looks_like_ours, f".model.{ended.pid}-{THREAD}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("")
    notes = {f".model.draft.{ended.pid}-{THREAD}": f".model.{ended.pid}-{THREAD}"}
    notes |= {f".model.draft.{os.getpid()}-{THREAD}": at_work, f".model.draft.{ended.pid}-{THREAD}2": "../other"}
    for note, name in notes.items():
        (tmp_path / note).write_bytes(files._note(name))
    (tmp_path / f".model.draft.{ended.pid}-{THREAD}1").touch()  # an empty file proves nothing
    theirs += [f".model.draft.{ended.pid}-{THREAD}1"]
    theirs += [looks_like_ours, *[*notes][1:]]
    with new_folder(tmp_path / "model") as new:
        (new / "config.json").write_text("{}")
        assert not (tmp_path / "model").exists()
    assert sorted(os.listdir(tmp_path)) == sorted([*theirs, at_work, "model"])
    assert [writer_of(name) for name in (".model.backup", "x.1-140012345678912", "model")] == [None] * 3
    with pytest.raises(UsageError, match="exists"), new_folder(tmp_path / "model"):
        raise AssertionError
    assert os.listdir(tmp_path / "model") == ["config.json"]


def test_a_name_alone_is_no_proof_in_a_locked_folder_either(tmp_path):
    """Files named as drafts of killed processes, of which no note says that they are."""
    (tmp_path / f".config.json.99999-{THREAD}").write_text("years of work")
    remove_unfinished(tmp_path, lambda name: True, held=True)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["years of work"]


def test_remove_does_not_follow_links(tmp_path):
    write(tmp_path / "folder" / "x", "kept")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for name in ("link", "link", "nothing"):
        remove(tmp_path / name)
    assert (tmp_path / "folder" / "x").exists()
    remove(tmp_path / "folder")
    assert not os.listdir(tmp_path)


def test_what_is_not_ours_is_not_replaced(tmp_path):
    kind = FileKind("a card", lambda path: path.read_text(encoding="utf-8").startswith("ours"))
    kind.check(tmp_path / "x")
    kind.check(write(tmp_path / "x", "ours 1"))
    kind.check(write(tmp_path / "x", ""))
    for content in ("theirs", b"\xff\xfe"):  # the second cannot be read as text
        with pytest.raises(UsageError, match="x exists and is not a card, so probekit does not"):
            kind.check(write(tmp_path / "x", content))
        with pytest.raises(UsageError, match="exists"):
            files.write(tmp_path / "x", "ours", kind)
    assert (tmp_path / "x").read_bytes() == b"\xff\xfe"
    write(tmp_path / "target", "ours")
    for name, target in (("loose", "nowhere"), ("link", "target")):
        (tmp_path / name).symlink_to(tmp_path / target)
        with pytest.raises(UsageError, match="is a link"):
            files.write(tmp_path / name, "ours 2", kind)
    assert (tmp_path / "target").read_text() == "ours"
    with pytest.raises(UsageError, match="is a folder, not a card; choose"):
        FileKind("a card", kind.ours, "choose").check(tmp_path)


def test_what_comes_while_we_write_is_not_replaced(tmp_path):
    kind = FileKind("a card", lambda path: path.read_text(encoding="utf-8").startswith("ours"))

    def fail() -> None:
        with whole(tmp_path / "x", kind) as new:
            new.write_text("ours")
            (tmp_path / "x").write_text("theirs")

    with pytest.raises(UsageError, match="exists"):
        fail()
    assert (tmp_path / "x").read_text() == "theirs"


@given(st.binary(max_size=60), st.binary(max_size=60), st.data())
def test_a_seal_is_broken_by_any_edit(head, rest, data):
    sealed = seal(head + MARK.encode() + b"....." + rest)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(sealed)
        assert is_sealed(path)
        at = data.draw(st.integers(0, len(sealed) - 1).filter(lambda i: not len(head) + 55 <= i < len(head) + 59))
        path.write_bytes(sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :])
        assert not is_sealed(path)
    assert seal(head) == head


def test_nothing_is_written_through_a_link_or_into_a_pipe(tmp_path):
    target = write(tmp_path / "target", "theirs")
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "pipe")
    for name, told in (("link", "is a link"), ("pipe", "is not a regular file")):
        with pytest.raises(UsageError, match=told):
            open_to_write(tmp_path / name)
        with pytest.raises(UsageError, match=told), lock(tmp_path / name, CacheBusy()):
            raise AssertionError
    with pytest.raises(UsageError, match="is needed as a lock file"), lock(target, CacheBusy()):
        raise AssertionError
    assert target.read_text() == "theirs"


# who holds a file -----------------------------------------------------------------------------------------------------

HOLD = """
with lock(Path(sys.argv[1]), RuntimeError(), ours=lambda _: True) as fd:
    os.write(fd, b"held ")
    if sys.argv[2:]:
        code = "import time; time.sleep(60)"
        heir = subprocess.Popen([sys.executable, "-c", code], pass_fds=(fd,), stdout=subprocess.DEVNULL)
        print("ready", flush=True)
        print(heir.pid, flush=True)
    else:
        print("ready", flush=True)
    time.sleep(60)
"""


def test_the_lock_of_a_dead_process_is_free_at_once(tmp_path):
    path, busy = tmp_path / "x.lock", CacheBusy("somebody is at work")
    path.write_text("kept ")
    with child(HOLD, path):
        with pytest.raises(CacheBusy, match="somebody is at work"), lock(path, busy, ours=lambda _: True):
            raise AssertionError
        with held(path) as taken:
            assert taken
    with held(path) as taken:
        assert not taken
    with lock(path, busy, ours=lambda _: True) as fd:
        os.write(fd, b"again")
    assert path.read_text() == "kept held again"  # a lock empties no file


def test_a_child_that_inherits_the_lock_holds_it(tmp_path):
    path = tmp_path / "x.lock"
    with child(HOLD, path, "with an heir") as process:
        assert process.stdout is not None
        heir = int(process.stdout.readline())
    with held(path) as taken:
        assert taken
    os.kill(heir, signal.SIGKILL)
    waited: list[int] = []
    with lock(path, CacheBusy(), wait=lambda: waited.append(1), ours=lambda _: True):
        pass
    assert len(waited) <= 1  # the heir may have died before


def test_who_waits_gets_the_lock_of_the_file_that_is_there(tmp_path):
    """Its holder removes it at the end, as a finished cache removes its journal: then another file has the name."""
    path, got, told = tmp_path / "x", [], threading.Event()

    def wait() -> None:
        with lock(path, CacheBusy(), wait=told.set) as fd:
            got.append(os.path.samestat(os.fstat(fd), path.stat()))

    with lock(path, CacheBusy()):
        thread = threading.Thread(target=wait)
        thread.start()
        assert told.wait(10)
        path.unlink()
    thread.join(10)
    assert got == [True]


def test_two_may_look_and_a_look_makes_nothing(tmp_path):
    with held(tmp_path / "x") as one:
        assert not one
    assert not os.listdir(tmp_path)
    (tmp_path / "x").touch()
    with held(tmp_path / "x") as one, held(tmp_path / "x") as two:
        assert not one
        assert not two
        with pytest.raises(CacheBusy), lock(tmp_path / "x", CacheBusy()):
            raise AssertionError
    (tmp_path / "link").symlink_to("x")
    with lock(tmp_path / "x", CacheBusy()), held(tmp_path / "link") as taken:
        assert not taken  # links are no locks


def test_processes():
    assert is_running(os.getpid())
    assert is_running(1)  # of somebody else
    assert not is_running(1 << 80)


# digests --------------------------------------------------------------------------------------------------------------


def test_digests_are_what_stored_caches_and_cards_hold(tmp_path):
    """Numbers that files of earlier versions hold."""
    one, two = write(tmp_path / "config.json", '{"a": 1}'), write(tmp_path / "below" / "b.txt", b"x" * 5_000_000)
    assert digest([one, two]) == "713cc4eedf6a69818904081fd1c49b29"  # of a model, by config.json and weights
    assert digest([two, one], tmp_path) == "04bac4e483545de8605d50c9b4d923c4"  # of a corpus
    assert digest([]) == xxhash.xxh3_128_hexdigest(b"")
    assert digest_of_content(two) == xxhash.xxh3_128_hexdigest(b"x" * 5_000_000)


def test_digest_tells_names_and_borders_apart(tmp_path):
    a, b, c, d = (write(tmp_path / name, text) for name, text in zip("abcd", ("xy", "z", "x", "yz"), strict=True))
    found = [digest(files) for files in ([a, b], [b, a], [c, d], [a])]
    assert len(set(found)) == 4


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e6, "2.5 MB"), (7e9, "7.0 GB"), (3e15, "3000.0 TB")],
)
def test_bytes_in_words(size, words):
    assert in_words(size) == words


def test_digests_do_not_go_stale(tmp_path, monkeypatch):
    """Files are read once, until anything tells that they changed."""
    monkeypatch.setattr(files, "SETTLED", 0.0)
    one, read, feed = tmp_path / "one", [], files._feed
    monkeypatch.setattr(files, "_feed", lambda update, file: (read.append(file), feed(update, file)))
    one.write_text("aaaa")
    os.utime(one, ns=(10**9, 10**9))
    first = files.digest([one])
    assert files.digest([one]) == first
    assert read == [one]
    one.write_text("bbbb")  # of the same size
    os.utime(one, ns=(2 * 10**9, 2 * 10**9))
    second = files.digest([one])
    (tmp_path / "other").write_text("cccc")
    os.utime(tmp_path / "other", ns=(2 * 10**9, 2 * 10**9))
    (tmp_path / "other").replace(one)  # of the same size and time
    assert len({first, second, files.digest([one])}) == 3
    monkeypatch.setattr(files, "SETTLED", 1e12)
    read.clear()
    assert files.digest([one]) == files.digest([one])
    assert len(read) == 2  # what has just changed may change again within the same tick


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_streamed_lines_are_those_of_read_lines(tmp_path, mark):
    path = tmp_path / "a.txt"
    for body in (b"", b"\n", b"a", b"a\n", b"a\r\nb\rc\n\n", "é\u2028x\nb\x85".encode()):
        path.write_bytes(mark + body)
        assert list(stream_lines(path)) == read_lines(path)
        packed = tmp_path / "a.txt.gz"
        packed.write_bytes(gzip.compress(mark + body))
        assert list(stream_lines(packed)) == read_lines(path)


@pytest.mark.parametrize("body", [b"a\nb\xff\n", b"\xef\xbb\xbf\xff", b"a\n\0", b"PK\x03\x04", None])
def test_streamed_lines_have_the_errors_of_read_lines(tmp_path, body):
    path = tmp_path / "a.txt"
    if body is not None:
        path.write_bytes(body)
    messages = []
    for read in (read_lines, lambda path: list(stream_lines(path))):
        with pytest.raises(DataError) as error:
            read(path)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_a_packed_file_that_is_cut_short(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"line\n" * 10_000)[:40])
    with pytest.raises(DataError, match="cannot be read: Compressed file ended"):
        list(stream_lines(path))


def test_a_note_is_never_seen_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "write_bytes", lambda *_: pytest.fail("opened, and then written"))
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY, 0o666))
    except (OSError, AttributeError):
        pytest.skip("there are no files without a name here")
    files._write_at_once(tmp_path / "note", b"whole")
    assert (tmp_path / "note").read_text() == "whole"
    assert os.listdir(tmp_path) == ["note"]
