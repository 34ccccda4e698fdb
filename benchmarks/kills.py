"""Kill a search and trainings inside their writes to disk, run the same command again, and count how it ends.

    python benchmarks/kills.py --kills 300

A child is killed (SIGKILL) before, amid or after a call that changes what is on disk: write (of half of its bytes),
fsync, rename, truncate, open, unlink, mkdir …; of Python, SQLite, HDF5, Arrow, safetensors and torch alike, which a
small library counts that is loaded before the C library (it needs a C compiler). What is on disk changes at such calls
alone, so kills at other moments, between two statements of SQL for example, find what one of these finds. Calls are
taken evenly from the first to the last; every third command is killed once more as it goes on. Each must end as the one
that was left alone: ``best.toml``, trials, rows, predictions and weights to the bit, no file more and none fewer.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHIM = "PROBEKIT_KILLS"
MOMENTS = ("before", "inside", "after")
LONGEST = 120
"""Seconds after which a command hangs."""
TIMES = {"seconds", "created"}
NOUNS = ["cat", "dog", "bird", "child", "teacher", "house", "garden"]


def load_shim() -> None:
    """Begin anew with the library loaded that counts calls."""
    if SHIM not in os.environ:
        compiler = shutil.which("cc") or sys.exit("kills.py: needs a C compiler, cc.")
        library = Path(tempfile.mkdtemp()) / "kills.so"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "kills.c", "-ldl"], check=True)
        more = {SHIM: str(library), "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
                "SOURCE_DATE_EPOCH": "0", "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | more)
    shutil.rmtree(Path(os.environ.pop(SHIM)).parent)


def lessons(folder: Path) -> None:
    """A task and a model that train in a second."""
    sys.path.append(str(HERE.parent / "tests"))
    from tiny import tiny_model

    tiny_model("minilm", folder / "model")
    lines = [f"the {n} was {w} {e}\t{w}" for n in NOUNS for w in ("great", "terrible") for e in ["!", "?", "."]]
    for name, part in {"train": lines[:30], "dev": lines[30:36], "test": lines[36:]}.items():
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(part) + "\n")
    splits = "\n".join(f'{name} = "{name}.tsv"' for name in ("train", "dev", "test"))
    (folder / "task.toml").write_text(f'name = "toy"\n[splits]\n{splits}\n')
    (folder / "space.toml").write_text(
        f'task = "{folder}/task.toml"\nmodel = "{folder}/model"\ntrials = 3\nseeds = 1\n[space]\nepochs = [1, 2]\n'
        "learning_rate = { low = 1e-4, high = 1e-2, log = true }\nbatch_size = 10\n"
    )


def commands(folder: Path) -> dict[str, list[str]]:
    """By name a command, which writes in folder/out alone."""
    out = folder / "out"
    train = ["train", "--task", f"{folder}/task.toml", "--model", f"{folder}/model", "--test", "test", "--epochs", "2",
             "--batch-size", "10", "--learning-rate", "1e-3", "--out", f"{out}/run", "--device", "cpu"]  # fmt: skip
    return {
        "search": ["search", f"{folder}/space.toml", "--out", f"{out}/found", "--device", "cpu"],
        "fine-tuning": [*train, "--regime", "fine-tune", "--save-at", "epochs"],
        "feature extraction": [*train, "--regime", "feature-extraction", "--caches", f"{out}/caches"],
    }


def in_child(work: Callable[[], int], told: Path) -> int:
    """How a forked child ends: its exit status, minus the number of the signal, or "hang" as -SIGALRM."""
    child = os.fork()
    if not child:
        out = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LONGEST)
        try:
            status = work()
        except BaseException:
            import traceback

            traceback.print_exc()
            status = 1
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def plain(value: Any) -> Any:
    """A value of JSON without times."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in TIMES}
    return [plain(one) for one in value] if isinstance(value, list) else value


def contents(out: Path) -> dict[str, str]:
    """By name a digest of what each file says, without the times that it names."""
    import pandas as pd
    import pyarrow.parquet as pq

    found = {}
    for file in sorted(path for path in out.rglob("*") if not path.is_dir()):
        data = file.read_bytes()
        if file.suffix == ".json":
            data = json.dumps(plain(json.loads(data))).encode()
        elif file.suffix == ".parquet":
            table = pd.read_parquet(file).drop(columns="seconds", errors="ignore")
            schema = pq.read_schema(file).metadata or {}
            keys = sorted(k.decode() for k in schema if k != b"pandas")
            data = (table.to_json(double_precision=15, orient="split") + str(keys)).encode()
        elif file.suffix == ".db":
            data = b""  # said by trials.parquet
        found[str(file.relative_to(out))] = hashlib.sha256(data).hexdigest()
    return found


def run(name: str, kills: int, folder: Path, seed: int) -> Counter[str]:
    """Counts of how commands ended that were killed."""
    from probekit.cli import main

    out, told, counted, words = folder / "out", folder / "told", folder / "calls", commands(folder)[name]
    shim, rng, ended = ctypes.CDLL(None), random.Random(seed), Counter[str]()

    def work(call: int = 0, moment: str = "before") -> int:
        shim.kills_arm(f"{out}/".encode(), call, MOMENTS.index(moment))
        status = main(words)
        counted.write_text(str(shim.kills_calls()))
        return status

    def left() -> dict[str, str]:
        looked = folder / "contents"
        if in_child(lambda: looked.write_text(json.dumps(contents(out))) and 0, told):
            return {"unreadable": told.read_text()}
        return json.loads(looked.read_text())

    def clear() -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    clear()
    assert in_child(work, told) == 0, told.read_text()
    want, calls = left(), int(counted.read_text())
    clear()
    assert in_child(work, told) == 0, told.read_text()
    assert left() == want, "two runs that were left alone differ"
    print(f"{name}: {calls:,} calls, {len(want)} files", flush=True)
    for k in range(kills):
        call, moment = 1 + k * calls // kills, MOMENTS[k % 3]
        clear()
        ended["kills"] += in_child(lambda c=call, m=moment: work(c, m), told) == -signal.SIGKILL
        if k % 3 == 0:
            call, moment = rng.randint(1, calls), rng.choice(MOMENTS)
            ended["kills"] += in_child(lambda c=call, m=moment: work(c, m), told) == -signal.SIGKILL
        status = in_child(work, told)
        said = told.read_text(errors="replace")
        if status == -signal.SIGALRM:
            end = "hang"
        elif status not in (0, 2) or "Traceback" in said:
            end = "traceback"
        elif status:
            end = "lost"
        else:
            now = left()
            end = "wrong" if now != want else "as if it had been left alone"
            if now != want:
                said = str(sorted(set(now.items()) ^ set(want.items())))
        ended[end] += 1
        if end in ("hang", "traceback", "lost", "wrong"):
            print(f"  {end}: {moment} call {call}: {said.strip()[-1500:]}", flush=True)
    return ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--only", choices=["search", "fine-tuning", "feature extraction"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    load_shim()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        lessons(folder)
        import torch

        import probekit.adaptation.search.search
        import probekit.adaptation.train  # noqa: F401

        torch.set_num_threads(1)
        total = Counter[str]()
        names = [options.only] if options.only else list(commands(folder))
        for name in names:
            ended = run(name, -(-options.kills // len(names)), folder, options.seed)
            print(f"{name}: " + ", ".join(f"{count:,} {end}" for end, count in ended.items()), flush=True)
            total += ended
    for end in ("kills", "as if it had been left alone", "lost", "wrong", "traceback", "hang"):
        print(f"{total[end]:6,}  {end}")
    print(f"in {time.monotonic() - began:.0f} s")
    sys.exit(any(total[end] for end in ("lost", "wrong", "traceback", "hang")))


if __name__ == "__main__":
    main()
