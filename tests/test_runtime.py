"""Cores, and worker processes that end with whom they work for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from probekit.files import is_running, lock
from probekit.runtime import Inherited, cores, local_executor


def test_cores():
    assert 1 <= cores() <= (os.cpu_count() or 1)
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from probekit.runtime import cores; "
    told = subprocess.run([sys.executable, "-c", code + "print(cores())"], capture_output=True, text=True, check=True)
    assert told.stdout == "1\n"


def told(*names: str) -> tuple[int, list[str | None]]:
    """The process that this runs in, and what its environment says."""
    time.sleep(0.3)  # so that each worker gets one
    return os.getpid(), [os.environ.get(name) for name in names]


def test_workers_share_threads_and_gpus(monkeypatch):
    names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "MINE")
    with local_executor(3, threads=2, gpus=["3", "GPU-5"], environment={"MINE": "x"}) as pool:
        found = dict(future.result() for future in [pool.submit(told, *names) for _ in range(12)])
    assert len(found) == 3
    assert os.getpid() not in found
    assert sorted(gpu for _, _, gpu, _ in found.values()) == ["3", "3", "GPU-5"]
    assert {(omp, numba, mine) for omp, numba, _, mine in found.values()} == {("2", "2", "x")}
    assert not any(map(is_running, found))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with local_executor(1) as pool:
        assert pool.submit(told, "OMP_NUM_THREADS").result()[1] == ["7"]  # one alone is as this process


def test_a_worker_that_dies_is_told_and_what_it_raises_comes_back():
    with local_executor(2) as pool:
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()
        with pytest.raises(BrokenProcessPool):
            pool.submit(os._exit, 3).result()


def test_workers_end_where_the_block_fails():
    def fail() -> None:
        with local_executor(1) as pool:
            pids.append(pool.submit(os.getpid).result())
            pool.submit(time.sleep, 60)
            raise KeyboardInterrupt

    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not is_running(pids[0])


HOLDS = """
import os, sys, time
from pathlib import Path
from probekit.files import lock
from probekit.runtime import Inherited, local_executor

given = []
def begin(inherited):
    os.write(inherited.fd, b"begun ")
with lock(Path(sys.argv[1]), RuntimeError()) as fd, local_executor(2, begin=begin, given=(Inherited(fd),)) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 60)
    time.sleep(60)
"""


def test_workers_end_with_a_parent_that_is_killed_and_hold_its_lock_until_then(tmp_path):
    """A script without ``if __name__``; what it holds is free when its last worker is gone."""
    script, path = tmp_path / "script.py", tmp_path / "x.lock"
    script.write_text(HOLDS)
    with subprocess.Popen([sys.executable, str(script), str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        assert is_running(worker)
        with pytest.raises(BlockingIOError), lock(path, BlockingIOError()):
            raise AssertionError
        process.send_signal(signal.SIGKILL)
    with lock(path, BlockingIOError(), wait=lambda: None):
        pass
    until = time.monotonic() + 10
    while is_running(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(worker)
    assert path.read_text().startswith("begun ")


def test_what_is_inherited_is_the_same_open_file(tmp_path):
    path = tmp_path / "x"
    with lock(path, BlockingIOError()) as fd, local_executor(1, begin=_note, given=(Inherited(fd),)) as pool:
        assert pool.submit(_noted).result()
    assert path.read_text() == "here"


def _note(inherited: Inherited) -> None:
    os.write(inherited.fd, b"here")
    os.environ["NOTED"] = "yes"


def _noted() -> bool:
    return os.environ.get("NOTED") == "yes"
