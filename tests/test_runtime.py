"""Cores, and worker processes that end with whom they work for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from probekit.activations.options import CacheOptions, CertifyOptions
from probekit.adaptation.options import TrainOptions
from probekit.errors import UsageError
from probekit.files import is_running, lock
from probekit.functions import typed
from probekit.runtime import Dtype, Inherited, cores, local_executor


def test_cores():
    assert 1 <= cores() <= (os.cpu_count() or 1)
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from probekit.runtime import cores; "
    told = subprocess.run([sys.executable, "-c", code + "print(cores())"], capture_output=True, text=True, check=True)
    assert told.stdout == "1\n"


def told(*names: str) -> tuple[int, list[str | None]]:
    """The process that this runs in, and what its environment says."""
    time.sleep(0.3)  # so that each worker gets one
    return os.getpid(), [os.environ.get(name) for name in names]


@pytest.mark.slow
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


def grow(megabytes: int) -> int:
    """The process that this runs in; it keeps so much memory."""
    _kept.append(b"x" * (megabytes << 20))
    time.sleep(1.1)  # the next call looks at the memory again
    return os.getpid()


_kept: list[bytes] = []


def test_a_worker_that_has_grown_goes_on():
    pytest.importorskip("psutil", reason="without it, nothing looks at the memory of workers")
    with local_executor(1) as pool:
        assert len({pool.submit(grow, size).result() for size in (1, 400, 1, 1)}) == 1


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
    with lock(path, BlockingIOError(), wait=lambda: None, ours=lambda _: True):
        pass
    assert not _alive_after_a_second({worker})
    assert path.read_text().startswith("begun ")


BUSY = """
import os, sys, time
from pathlib import Path
from probekit.runtime import end_with_parent, local_executor
import re

class Slow:
    def __reduce__(self):  # as a module that takes long to import
        return time.sleep, (60,)

def stuck():
    Path(sys.argv[1], str(os.getpid())).touch()
    re.fullmatch("(a|a)*b", "a" * 60)  # in C, and nothing else of Python runs meanwhile

if sys.argv[2] == "stuck":
    with local_executor(2) as pool:
        for _ in range(2):
            pool.submit(stuck)
        time.sleep(60)
elif sys.argv[2] == "starting":
    with local_executor(1, begin=print, given=(Slow(),)) as pool:
        pool.submit(stuck)
        time.sleep(60)
else:
    import subprocess
    code = "import os, re, sys; from pathlib import Path; from probekit.runtime import end_with_parent\\n"
    code += "end_with_parent(); Path(sys.argv[1], str(os.getpid())).touch(); re.fullmatch('(a|a)*b', 'a' * 60)"
    subprocess.run([sys.executable, "-c", code, sys.argv[1]])
"""


def _children(parent: int) -> set[int]:
    told = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=False)
    return {int(pid) for pid in told.stdout.split() if is_running(int(pid))}


@pytest.mark.parametrize("how", ["stuck", "starting", "subprocess"])
def test_children_of_a_killed_parent_are_gone_within_a_second(how, tmp_path):
    """Also those in a call into C that lets nothing of Python run, and those that only just begin."""
    (tmp_path / "begun").mkdir()
    (tmp_path / "script.py").write_text(BUSY)
    with subprocess.Popen([sys.executable, str(tmp_path / "script.py"), str(tmp_path / "begun"), how]) as process:
        until, wanted = time.monotonic() + 60, 2 if how == "stuck" else 1
        while len(list((tmp_path / "begun").iterdir())) < wanted and time.monotonic() < until:
            time.sleep(0.05)
            if how == "starting" and _children(process.pid):
                time.sleep(1.5)  # it reads its arguments
                break
        children = _children(process.pid)
        assert children
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not _alive_after_a_second(children)


def _alive_after_a_second(pids: set[int]) -> set[int]:
    """Those of the processes that run for another second, which is not waited for when none does."""
    until = time.monotonic() + 1
    while (alive := {pid for pid in pids if _lives(pid)}) and time.monotonic() < until:
        time.sleep(0.02)
    return alive


def _lives(pid: int) -> bool:
    """Whether a process runs: one that nobody waits for has ended, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


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


@pytest.mark.parametrize(
    ("short", "dtype"), [("bf16", "bfloat16"), ("FP16", "float16"), ("fp32", "float32"), ("torch.bfloat16", "bfloat16")]
)
def test_a_dtype_has_short_names_in_every_option(short, dtype):
    assert Dtype(short) == typed("train", "dtype", short) == dtype
    assert CertifyOptions(dtype=short).dtype == dtype
    options = CacheOptions(dtype=short, store=short)
    assert (options.dtype, options.store) == (dtype, dtype)
    assert TrainOptions(regime="fine-tune", dtype=short).dtype == dtype
    assert list(Dtype) == ["float32", "float16", "bfloat16"]


def test_an_unknown_dtype_is_refused():
    with pytest.raises(UsageError, match="store is 'bf8'; expected one of float32, float16, bfloat16"):
        CacheOptions(store="bf8")
