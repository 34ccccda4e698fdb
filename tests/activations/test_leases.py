"""Claims, stale leases, late commits: each as it happens between two workers, in one process."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from toys import toy_task

from probekit.activations import cache_activations, verify
from probekit.activations.writing import job as job_module
from probekit.activations.writing import leases as leases_module
from probekit.activations.writing.leases import Leases, linked
from probekit.errors import CacheError, CacheMismatch, UsageError
from probekit.models import load_encoder

pytestmark = pytest.mark.usefixtures("no_certificates")


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return load_encoder(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def ready(encoder, tmp_path_factory) -> Path:
    """Shards of 20 examples, three of them, that nobody disturbed."""
    return cache_activations(encoder, toy_task(), out=tmp_path_factory.mktemp("ready") / "many", shard_size=20).path


def foreign(folder: Path, beat: int = 0, machine: str = "elsewhere") -> Path:
    """The lease of a worker that this process knows nothing else of, and what it had begun."""
    lease = folder / ".lease-00000"
    lease.write_text(json.dumps({"lease": "f" * 16, "shard": 0, "machine": machine, "beat": f"{beat:012d}"}) + "\n")
    (folder / f".shard-00000.h5.{'f' * 16}.partial").write_bytes(b"\x89HDF\r\n\x1a\nbegun")
    return lease


def test_one_worker_at_a_time(tmp_path):
    a, b = Leases(tmp_path, 1e-9), Leases(tmp_path, 1e-9)
    with a.claim(0) as mine:
        assert mine
        assert a.holds(0)
        for _ in range(3):  # it lives on this machine: whatever the patience
            with b.claim(0) as also:
                assert not also
        with b.claim(1) as another:
            assert another
    with b.claim(0) as mine:
        assert mine
    assert not list(tmp_path.iterdir())


def test_a_holder_counts(tmp_path):
    with Leases(tmp_path, 0.06).claim(3) as mine:
        assert mine
        lease, until = tmp_path / ".lease-00003", time.monotonic() + 10
        first = lease.read_bytes()
        while lease.read_bytes() == first and time.monotonic() < until:
            time.sleep(0.01)
        assert lease.read_bytes() != first
        assert len(lease.read_bytes()) == len(first)


def test_the_lease_of_a_dead_host_is_taken_when_it_has_not_changed(tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(leases_module, "monotonic", lambda: now)
    foreign(tmp_path)
    waiting = Leases(tmp_path, 60)
    for beat in range(3):  # it counts: whatever the time
        foreign(tmp_path, beat)
        now += 50
        with waiting.claim(0) as mine:
            assert not mine
    now += 59
    with waiting.claim(0) as mine:
        assert not mine
    now += 2
    with Leases(tmp_path, 60).claim(0) as mine:  # who has not watched it waits
        assert not mine
    assert (tmp_path / f".shard-00000.h5.{'f' * 16}.partial").exists()
    with waiting.claim(0) as mine:
        assert mine
        assert [p.name for p in tmp_path.iterdir()] == [".lease-00000"]


def test_the_lease_of_a_dead_process_here_is_taken_at_once(tmp_path):
    foreign(tmp_path, machine=leases_module.machine())
    with Leases(tmp_path, 300).claim(0) as mine:
        assert mine


def test_a_lease_that_lives_after_all_goes_back(tmp_path):
    lease = foreign(tmp_path, 7)
    text = lease.read_bytes()
    assert not Leases(tmp_path, 60)._take_away(0, b"what it was before")
    assert lease.read_bytes() == text


def test_a_holder_cannot_revive_a_lease_that_was_taken(tmp_path):
    slow, quick = Leases(tmp_path, 0.06), Leases(tmp_path, 0.06)
    with slow.claim(0) as mine:
        assert mine
        (tmp_path / ".lease-00000").unlink()  # as a thief does
        with quick.claim(0) as also:
            assert also
            time.sleep(0.05)  # the first counts on, in a file that has no name
            assert not slow.holds(0)
            assert quick.holds(0)
    assert not list(tmp_path.iterdir())


def test_names_by_hard_links(tmp_path, monkeypatch):
    own, other, name = tmp_path / "own", tmp_path / "other", tmp_path / "name"
    own.write_text("1")
    other.write_text("2")
    assert linked(own, name)
    assert linked(own, name)  # the answer was lost
    assert not linked(other, name)
    assert name.read_text() == "1"

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(CacheError, match=r"has no hard links \(SMB has none\)"):
        linked(own, tmp_path / "new")


def test_a_late_commit_is_refused(encoder, ready, tmp_path, monkeypatch, caplog):
    """Another worker finishes shard 1 while this one is at it: the first file stays, this one's is dropped."""
    out, write = tmp_path / "out", job_module._write
    inodes = []

    def slow(request, fd, **how):
        write(request, fd, **how)
        if request.want["shard"]["number"] == 1:
            shutil.copy(ready / "shard-00001.h5", out)
            inodes.append((out / "shard-00001.h5").stat().st_ino)

    monkeypatch.setattr(job_module, "_write", slow)
    cache_activations(encoder, toy_task(), out=out, shard_size=20).close()
    assert "finished by another worker first" in caplog.text
    assert [(out / "shard-00001.h5").stat().st_ino] == inodes
    assert verify(out).ok
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in ready.iterdir())


def test_who_has_lost_its_lease_goes_on(encoder, tmp_path, monkeypatch, caplog):
    """A thief removes what a worker has begun, which then cannot end it; that is no error of the job."""
    out, write, thefts = tmp_path / "out", job_module._write, []

    def robbed(request, fd, **how):
        if not thefts:
            thefts.append(request.path)
            (out / ".lease-00000").unlink()
            foreign(out, machine=leases_module.machine())
            raise FileNotFoundError(errno.ENOENT, "No such file", str(request.path))
        write(request, fd, **how)

    monkeypatch.setattr(job_module, "_write", robbed)
    cache_activations(encoder, toy_task(), out=out, shard_size=20).close()
    assert "another worker has taken this shard over" in caplog.text
    assert verify(out).ok


def test_a_full_disk_ends_one_worker_and_leaves_the_shard_to_others(encoder, tmp_path, monkeypatch):
    out, write = tmp_path / "out", os.pwrite

    def full(fd, data, at):
        if len(data) > 1000 and len(list(out.glob("shard-*"))) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(CacheError, match="the disk is full. What is finished is kept"):
        cache_activations(encoder, toy_task(), out=out, shard_size=20)
    assert [p.name for p in out.iterdir()] == ["shard-00000.h5"]
    monkeypatch.setattr(os, "pwrite", write)
    cache_activations(encoder, toy_task(), out=out, shard_size=20).close()
    assert verify(out).ok


def test_shards_of_another_job_are_refused(encoder, ready, tmp_path):
    out = Path(shutil.copytree(ready, tmp_path / "out"))
    with pytest.raises(CacheMismatch, match=r"holds other activations: pooling is"):
        cache_activations(encoder, toy_task(), out=out, shard_size=20, pooling="first")
    (out / "manifest.json").unlink()
    with pytest.raises(CacheMismatch, match=r"shard-00000.h5 is a shard of another job: pooling is \['mean'\]"):
        cache_activations(encoder, toy_task(), out=out, shard_size=20, pooling="first")
    with pytest.raises(CacheMismatch, match="another job: the data have changed"):
        cache_activations(encoder, toy_task(59), out=out, shard_size=20)
    again = cache_activations(encoder, toy_task(59), out=out, shard_size=20, overwrite=True)
    assert len(again) == 59
    assert verify(out).ok
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"holds other files \(thesis.tex …\)"):
        cache_activations(encoder, toy_task(), out=tmp_path / "papers", shard_size=20)
    with pytest.raises(UsageError, match=r"thesis.tex is a file, and a cache in shards needs a folder"):
        cache_activations(encoder, toy_task(), out=tmp_path / "papers" / "thesis.tex", shard_size=20)


def test_who_replaces_shards_removes_none_that_another_has_replaced(encoder, ready, tmp_path, monkeypatch):
    """Two processes with --overwrite: the other makes each shard just before this one would remove the old one."""
    out, claim, kept = Path(shutil.copytree(ready, tmp_path / "out")), Leases.claim, {}
    new = cache_activations(encoder, toy_task(), out=tmp_path / "new", shard_size=20, pooling="first").path

    def late(self: Leases, k: int):
        if k not in kept:
            shutil.copy(new / f"shard-{k:05d}.h5", out / ".new")
            kept[k] = (out / ".new").replace(out / f"shard-{k:05d}.h5").stat().st_ino
        return claim(self, k)

    monkeypatch.setattr(Leases, "claim", late)
    cache_activations(encoder, toy_task(), out=out, shard_size=20, pooling="first", overwrite=True).close()
    assert verify(out).ok
    assert kept == {k: (out / f"shard-{k:05d}.h5").stat().st_ino for k in range(3)}


@pytest.mark.parametrize(
    ("replaces", "message"), [(True, "is a shard of another job: pooling is"), (False, "was removed while this cache")]
)
def test_shards_that_another_job_replaces_meanwhile_go_into_no_manifest(
    encoder, tmp_path, monkeypatch, replaces, message
):
    out, write = tmp_path / "out", job_module._write
    other = cache_activations(encoder, toy_task(), out=tmp_path / "other", shard_size=20, pooling="first").path

    def replacing(request, *args, **more):
        if request.path.name.startswith(".shard-00002"):
            (out / "shard-00000.h5").unlink()
            if replaces:
                shutil.copy(other / "shard-00000.h5", out / "shard-00000.h5")
        write(request, *args, **more)

    monkeypatch.setattr(job_module, "_write", replacing)
    with pytest.raises(CacheError, match=f"shard-00000.h5 {message}"):
        cache_activations(encoder, toy_task(), out=out, shard_size=20)
    assert not (out / "manifest.json").exists()


@pytest.mark.parametrize("finished", [False, True])
def test_only_files_of_workers_are_tidied_up(encoder, ready, tmp_path, finished):
    """By the next run, also if a worker was killed after it had written the manifest."""
    out = Path(shutil.copytree(ready, tmp_path / "out"))
    if not finished:
        (out / "manifest.json").unlink()
    foreign(out)
    others = [out / name for name in (".lease-notes", ".own-work", ".taken.lease-00000", ".lease-00001/mine")]
    others[-1].parent.mkdir()
    for other in others:
        other.write_text("mine")
    cache_activations(encoder, toy_task(), out=out, shard_size=20).close()
    assert all(other.read_text() == "mine" for other in others)
    assert not (out / ".lease-00000").exists()
    assert not list(out.glob(".shard-*"))


@pytest.mark.parametrize("kind", ["dangling link", "link", "folder", "notes"])
def test_what_only_has_the_name_of_a_lease(tmp_path, kind):
    """It is an error, not a wait without end, and not removed: a name is not proof."""
    lease = tmp_path / ".lease-00000"
    if kind == "folder":
        lease.mkdir()
    elif kind == "notes":
        lease.write_text("mine")
    else:
        lease.symlink_to(tmp_path / ("nowhere" if kind == "dangling link" else "other"))
        (tmp_path / "other").write_text('{"lease": "f"}')
    begun = tmp_path / f".shard-00000.h5.{'f' * 16}.partial"
    begun.write_text("mine")
    before = sorted(p.name for p in tmp_path.iterdir())
    for patience in (1e-9, 60):
        with (
            pytest.raises(CacheError, match="lease-00000 is not a lease of probekit"),
            Leases(tmp_path, patience).claim(0),
        ):
            pass
    leases_module.tidy(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert leases_module.unfinished(tmp_path, 0, "f" * 16) == []


def test_what_was_begun_is_a_workers_if_its_journal_or_lease_says_so(tmp_path):
    """HDF5, zeros and empty files of others have no more than the name."""
    starts = {"a": b"\x89HDF\r\n\x1a\n mine", "b": bytes(8) + b"my notes", "c": b""}
    for letter, start in starts.items():
        (tmp_path / f".shard-00000.h5.{letter * 16}").write_bytes(start)
    leases_module.tidy(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    (tmp_path / f".shard-00000.h5.{'a' * 16}.journal").write_text('{"structure": "x"}')
    (tmp_path / ".lease-00000").write_text('{"lease": "%s"}' % ("b" * 16))
    (tmp_path / f".own-00000.{'c' * 16}").touch()
    leases_module.tidy(tmp_path)
    assert not list(tmp_path.iterdir())


def test_who_comes_when_another_worker_tidies_up(tmp_path, monkeypatch):
    """Its files may vanish at any step; it then has nothing to do."""
    count, late = leases_module._count, Leases(tmp_path, 60)

    def tidied(fd: int, *what: object) -> None:
        count(fd, *what)
        next(tmp_path.glob(".own-*")).unlink()

    with monkeypatch.context() as patch:
        patch.setattr(leases_module, "_count", tidied)
        with late.claim(0) as mine:
            assert not mine
    foreign(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda path: path.unlink() or path.read_text())
        assert late._take_away(0, None)
    assert not list(tmp_path.glob(".[olt]*"))


def test_shards_from_another_environment_are_refused(encoder, ready, tmp_path, monkeypatch):
    out = Path(shutil.copytree(ready, tmp_path / "out"))
    (out / "manifest.json").unlink()
    (out / "shard-00002.h5").unlink()
    monkeypatch.setitem(encoder.versions, "torch", "1.0")
    with pytest.raises(CacheMismatch, match=r"shard-00000.h5 was computed in another environment: torch is"):
        cache_activations(encoder, toy_task(), out=out, shard_size=20)
