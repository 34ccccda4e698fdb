"""Kill commands inside their writes to disk, run the same command again, and count how it ends.

    python benchmarks/kills.py --kills 300
    python benchmarks/kills.py --kills 60 --only study --only shards
    python benchmarks/kills.py --kills 20 --processes       each command in processes of its own, as from a shell

A process is killed (SIGKILL) before, amid or after a call that changes what is on disk: write (of half of its bytes),
fsync, rename, truncate, open, unlink, mkdir …; of Python, SQLite, HDF5, Arrow, safetensors and torch alike, which a
small library counts that is loaded before the C library (it needs a C compiler). What is on disk changes at such calls
alone, so kills at other moments, between two statements of SQL for example, find what one of these finds. Calls are
taken evenly from the first to the last; every third command is killed once more as it goes on. Processes that work
together, such as a study and its workers, or several on one folder of shards, count together, and the one dies that
makes the call. Each must end as the one that was left alone: ``best.toml``, trials, rows, predictions, figures, pages,
caches and weights to the bit, no file more and none fewer, the files of others that lie beside untouched. Before it
goes on, what the killed one left must be listed by ``probekit results``, so that nothing stays for ever without a
name.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from killed_commands import COMMANDS, Killed, bystanders, commands, inputs

HERE = Path(__file__).parent
SHIM, STATE = "PROBEKIT_KILLS", "PROBEKIT_KILLS_STATE"
PAGE_TIMES = re.compile(rb"xxh3 [0-9a-f]{32}|\d{4}-\d\d-\d\dT[\d:]+\+00:00|<dd>(\w+ \d+\.\d+(, )?)+")
"""The same in a page."""
MOMENTS = ("before", "inside", "after")
LONGEST, IDLE = 120, 1800
"""Seconds of work, and of waiting on a machine however busy, after which a command hangs."""
HANG = (-signal.SIGPROF, -signal.SIGALRM)
"""How such a command ends."""
TIMES = {"seconds", "created", "cost", "left"}
"""What JSON says of time, and marks of files that say it."""
BAD = ("lost", "wrong", "foreign", "unnamed", "traceback", "hang")


def load_shim() -> None:
    """Begin anew with the library loaded that counts calls, and a file in which all processes count together."""
    if SHIM not in os.environ:
        compiler = shutil.which("cc") or sys.exit("kills.py: needs a C compiler, cc.")
        library = Path(tempfile.mkdtemp()) / "kills.so"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "kills.c", "-ldl"], check=True)
        state = library.with_suffix(".state")
        state.write_bytes(bytes(1 << 13))
        more = {SHIM: str(library), STATE: str(state), "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1",
                "NUMBA_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "SOURCE_DATE_EPOCH": "0",
                "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | more)


def begin_child(work: Callable[[], int], told: Path) -> int:
    """Fork a child that does ``work`` and writes to a file what it says; its id."""
    child = os.fork()
    if not child:
        out = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        for late in HANG:
            signal.signal(-late, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, LONGEST), signal.alarm(IDLE)
        try:
            status = work()
        except BaseException:
            import traceback

            traceback.print_exc()
            status = 1
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)
    return child


def end_of(child: int) -> int:
    """How a child ends: its exit status, or minus the number of the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_child(work: Callable[[], int], told: Path) -> int:
    """How a forked child ends that does ``work``."""
    return end_of(begin_child(work, told))


@contextmanager
def forked_workers(workers: int, *, begin: Callable[..., None] | None = None, given: Any = (), **_: Any) -> Iterator:
    """As :func:`probekit.runtime.local_executor`, whose workers import nothing again: they are forked."""
    from multiprocessing import get_context

    from loky.process_executor import ProcessPoolExecutor

    fork = get_context("fork")
    with ProcessPoolExecutor(
        workers, context=fork, initializer=_begin_worker, initargs=(begin, given), timeout=None
    ) as pool:
        yield pool


def _begin_worker(begin: Callable[..., None] | None, given: Any) -> None:
    from probekit.runtime import end_with_parent

    end_with_parent()
    if begin is not None:
        begin(*given)


def plain(value: Any) -> Any:
    """A value of JSON without times."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in TIMES and not k.endswith(".parquet.json")}
    if isinstance(value, list):  # a warning may name what a killed run left
        return [plain(one) for one in value if not (isinstance(one, str) and "is not used to resume" in one)]
    return value


def contents(out: Path) -> dict[str, str]:
    """By name a digest of what each file says, without the times that it names."""
    import pandas as pd
    import pyarrow.parquet as pq

    found = {}
    for file in sorted(path for path in out.rglob("*") if not path.is_dir()):
        link = file.is_symlink()
        data, kind = (str(file.readlink()).encode(), "") if link else (file.read_bytes(), file.suffix)
        if kind == ".json":
            with suppress(ValueError):  # half of it, in what a killed process left
                data = json.dumps(plain(json.loads(data))).encode()
        elif kind == ".parquet":
            with suppress(Exception):  # a damaged one
                table = pd.read_parquet(file).drop(columns="seconds", errors="ignore")
                schema = pq.read_schema(file).metadata or {}
                keys = sorted(k.decode() for k in schema if k != b"pandas")
                data = (table.to_json(double_precision=15, orient="split") + str(keys)).encode()
        elif kind == ".html":
            data = PAGE_TIMES.sub(b"", data)
        elif kind in (".db", ".log"):
            data = b""  # .db: said by trials.parquet
        found[str(file.relative_to(out))] = hashlib.sha256(data).hexdigest()
    return found


def without_name(out: Path, known: set[str]) -> list[str]:
    """Files that are not ``known``, and that ``probekit results`` does not tell to be of something unfinished."""
    from probekit.provenance.inventory import results

    items = [item for item in results(out) if item.kind not in ("unknown", "link")]
    listed = {path for item in items for path in (item.path, *item.paths)}
    files = (path for path in out.rglob("*") if not path.is_dir() and str(path.relative_to(out)) not in known)
    files = (path for path in files if path.name != ".lock")  # which stays, empty
    return [str(path.relative_to(out)) for path in files if not listed & {path, *path.parents}]


class Attack:
    """One command, or several at once: left alone, killed, and going on."""

    def __init__(self, name: str, killed: Killed, folder: Path, *, processes: bool) -> None:
        self.name, self.killed, self.folder, self.processes = name, killed, folder, processes
        self.out, self.told, self.shim = folder / "out", folder / "told", ctypes.CDLL(None)
        self.theirs: dict[str, str] = {}

    def arm(self, call: int = 0, moment: str = "before", *, off: bool = False) -> None:
        self.shim.kills_arm(b"" if off else f"{self.out}/".encode(), call, MOMENTS.index(moment))

    def run(self, call: int = 0, moment: str = "before") -> list[int]:
        """How the commands end, killed at this call."""
        self.arm(call, moment)
        children = [begin_child(lambda w=words: self.command(w), self.told.with_suffix(f".{k}"))
                    for k, words in enumerate(self.killed.at_once)]  # fmt: skip
        return [end_of(child) for child in children]

    def command(self, words: list[str]) -> int:
        if self.processes:
            os.execv(sys.executable, [sys.executable, "-m", "probekit", *words])
        from probekit.cli import main

        status = main(words)
        (self.folder / "imported").write_text("\n".join(sys.modules))
        return status

    def learn(self) -> None:
        """Import here what a command imported, once instead of in each child."""
        imported = self.folder / "imported"
        for name in sorted(set(imported.read_text().split()) - set(sys.modules)) if imported.exists() else ():
            with suppress(Exception):
                import_module(name)
        gc.collect(), gc.freeze()

    def said(self) -> str:
        return "".join(self.told.with_suffix(f".{k}").read_text(errors="replace")
                       for k in range(len(self.killed.at_once)))  # fmt: skip

    def left(self) -> dict[str, str]:
        return self.asked(lambda: contents(self.out))

    def asked(self, question: Callable[[], Any]) -> Any:
        """What a child answers, in which files may be opened that no one here may keep open."""
        answer = self.folder / "answer"
        self.arm(off=True)
        if in_child(lambda: answer.write_text(json.dumps(question())) and 0, self.told):
            return {"unreadable": self.told.read_text()}
        return json.loads(answer.read_text())

    def clear(self) -> None:
        self.arm(off=True)
        shutil.rmtree(self.out, ignore_errors=True)
        bystanders(self.out)

    def alone(self) -> tuple[dict[str, str], int]:
        """What the commands leave that nobody kills, and the number of their calls."""
        self.clear()
        self.theirs = self.left()
        ended = self.run()
        calls = self.shim.kills_calls()
        assert not any(ended), self.said()
        self.learn()
        return self.left() | self.theirs, calls

    def attack(self, kills: int, seed: int) -> Counter[str]:
        """Counts of how the commands ended that were killed."""
        rng, ended = random.Random(seed), Counter[str]()
        for words in self.killed.needs:
            self.arm(off=True)
            assert not in_child(lambda w=words: self.command(w), self.told), self.told.read_text()
            self.learn()
        want, calls = self.alone()
        again, _ = self.alone()
        assert again == want, f"two runs that were left alone differ: {sorted(set(again.items()) ^ set(want.items()))}"
        print(f"{self.name}: {calls:,} calls, {len(want)} files", flush=True)
        for k in range(kills):
            self.clear()
            moments = [(1 + k * calls // kills, MOMENTS[k % 3])]
            if k % 3 == 0:
                moments.append((rng.randint(1, calls), rng.choice(MOMENTS)))
            for call, moment in moments:
                self.run(call, moment)
                ended["kills"] += self.shim.kills_killed()
            unnamed = self.asked(lambda: without_name(self.out, set(want)))
            status = max(self.run(), key=abs)
            end, said = self.judge(status, want, unnamed)
            ended[end] += 1
            if end in BAD:
                print(f"  {end}: {moments}: {said.strip()[-1500:]}", flush=True)
        self.arm(off=True)
        shutil.rmtree(self.folder / "given", ignore_errors=True)
        return ended

    def judge(self, status: int, want: dict[str, str], unnamed: list[str]) -> tuple[str, str]:
        """In a word how a command ended that goes on after a kill, and what it said."""
        said = self.said()
        if status in HANG:
            return "hang", said
        if status not in (0, 1, 2) or "Traceback" in said:
            return "traceback", said
        now = self.left()
        if not self.theirs.items() <= now.items():
            return "foreign", str(sorted(self.theirs.items() - now.items()))
        if status and not (now == want and "exists; choose another" in said):  # it was finished before
            return "lost", said
        if now != want:
            return "wrong", str(sorted(set(now.items()) ^ set(want.items())))
        return ("unnamed", str(unnamed)) if unnamed else ("as if it had been left alone", said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--only", choices=COMMANDS, action="append")
    parser.add_argument("--processes", action="store_true", help="processes that begin from nothing, and real workers")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    load_shim()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        inputs(folder)
        prepare()
        total, names = Counter[str](), options.only or COMMANDS
        for name in names:
            attack = Attack(name, commands(folder)[name], folder, processes=options.processes)
            ended = attack.attack(-(-options.kills // len(names)), options.seed)
            print(f"{name}: " + ", ".join(f"{count:,} {end}" for end, count in ended.items()), flush=True)
            total += ended
    for end in ("kills", "as if it had been left alone", *BAD):
        print(f"{total[end]:6,}  {end}")
    print(f"in {time.monotonic() - began:.0f} s")
    shutil.rmtree(Path(os.environ[SHIM]).parent)
    sys.exit(any(total[end] for end in BAD))


def prepare() -> None:
    """Import here what each child would import again, and let workers be forked."""
    import torch

    import probekit.activations.writing.workers as shard_workers
    import probekit.adaptation.search.search
    import probekit.adaptation.train
    import probekit.analyses.probe.measure
    import probekit.plots
    import probekit.report.build  # noqa: F401
    import probekit.studies.pools as pools

    torch.set_num_threads(1)
    pools.local_executor = shard_workers.local_executor = forked_workers
    for name in ("prepare", "shards"):  # one text is certified, not eight: half of the time of a small cache
        writing = import_module(f"probekit.activations.writing.{name}")
        writing.quick_certificate = partial(writing.quick_certificate, most=1)


if __name__ == "__main__":
    main()
