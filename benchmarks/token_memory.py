"""Whether training on a token cache that does not fit into memory takes as much memory as on a small one.

    python benchmarks/token_memory.py            a cache of 1.5 GB in 700 MB, a few minutes
    python benchmarks/token_memory.py --quick    a look at whether everything runs, not a measurement

MiniLM's layers of long tagged texts, made of built-in sentences, are cached, and a CRF on their mix is trained by
`probekit.adaptation.train.train_on_caches`, as many steps on a tenth of the texts as on all of them: in a memory
control group of its own, whose limit counts the file cache, too (this needs root and Linux), and without a limit.
Before each run the caches are dropped from the system's file cache, so that it is this run that pays for it. The
control, which must be killed, reads the whole cache into memory under the same limit.

Anonymous memory (RssAnon) is what the process itself holds, without the files that it maps, looked at every 10 ms. By
itself glibc keeps some of what was freed, the more the longer it runs, up to a bound; where the table says so it was
told to give large blocks back at once (MALLOC_MMAP_THRESHOLD_).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from cache import Goal, show_goals, table
from feature_extraction import SPANS, chunks

from probekit import ActivationCache, cache_activations
from probekit.adaptation.train import train_on_caches
from probekit.tasks import Example, Split, Task, TaskKind

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


def long_texts(rows: int, sentences: int = 8) -> Task:
    """Tagged texts of built-in sentences, drawn at random, all different."""
    source, rng = chunks(), np.random.default_rng(0)

    def drawn(split: str, i: int) -> Example:
        parts = [source.split(split)[int(j)] for j in rng.integers(0, len(source.split(split)), sentences)]
        words = tuple(word for part in parts for word in part.words or ())
        tags = tuple(tag for part in parts for tag in part.label)  # type: ignore[union-attr]
        return Example(id=f"{split}-{i}", text=" ".join(words), words=words, label=tags)

    splits = {name: Split(name, [drawn(name, i) for i in range(n)]) for name, n in (("train", rows), ("dev", 64))}
    return Task("long-chunks", TaskKind.SEQUENCE_LABELLING, splits, label_names=SPANS, metrics=("span-f1",))


@contextmanager
def limited(mb: int | None) -> Iterator[Path | None]:
    """A memory control group of at most so many MB; none for None."""
    if mb is None:
        yield None
        return
    root, name = (V1, "memory.limit_in_bytes") if V1.is_dir() else (V2, "memory.max")
    group = root / f"probekit-{os.getpid()}"
    try:
        group.mkdir()
        (group / name).write_text(str(mb << 20))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        raise SystemExit(f"skipped: no memory control group can be made here ({error}).") from None
    try:
        yield group
    finally:
        for _ in range(50):  # until the last process is reaped
            with suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def run(what: Sequence[str], files: Sequence[Path], work: Path, mb: int | None, *, give_back: bool) -> dict[str, Any]:
    """Run ``what`` in a process of its own, under the limit: status, peak of its anonymous memory, what it prints."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    with limited(mb) as group, tempfile.TemporaryDirectory(dir=work) as out:
        own = [sys.executable, __file__, "--run", *map(str, files), "--work", out, *what]
        joined = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"] if group else []
        environment = os.environ | ({"MALLOC_MMAP_THRESHOLD_": str(1 << 20)} if give_back else {})
        with subprocess.Popen([*joined, *own], env=environment, stdout=subprocess.PIPE, text=True) as child:
            peak = 0
            while child.poll() is None:
                with suppress(OSError):
                    lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
                    peak = max([peak, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))])
                time.sleep(0.01)
            printed = child.stdout.read() if child.stdout else ""
        found = {"status": child.returncode, "anonymous": peak / 1024}
        return found | (json.loads(printed.splitlines()[-1]) if child.returncode == 0 else {})


def train(caches: list[Path], out: Path, window: int, epochs: int) -> dict[str, float]:
    """Train; seconds of it, and GB that were read from the disk."""
    done = train_on_caches(
        caches[0], caches[1], out / "run", head="crf", epochs=epochs, batch_size=32, window=window << 20, device="cpu"
    )
    lines = Path("/proc/self/io").read_text().splitlines()
    read = next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))
    return {"seconds": done.card["seconds"], "read": read / 1e9, "steps": done.card["total_steps"]}


def load(caches: list[Path]) -> dict[str, float]:
    """The control: hold all layers."""
    with ActivationCache(caches[0]) as cache:
        held = [np.array(cache.tokens(layer).values) for layer in cache.layers]
    return {"held": sum(x.nbytes for x in held) / 1e9}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", help="folder of a model; MiniLM of the extra demo by default")
    parser.add_argument("--rows", type=int, default=2200)
    parser.add_argument("--limit", type=int, default=700, help="MB")
    parser.add_argument("--epochs", type=int, default=2, help="over all texts; ten times as many over a tenth")
    parser.add_argument("--window", type=int, default=64, help="MB that are shuffled as one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="160 rows: does it run?")
    parser.add_argument("--work", type=Path, help="folder on the disk in question; a temporary one by default")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        caches = [Path(x) for x in args.run]
        print(json.dumps(train(caches, args.work, args.window, args.epochs) if args.epochs else load(caches)))
        return
    if args.model is None:
        from probekit.models.find import minilm_folder

        args.model = str(minilm_folder())
    rows = 160 if args.quick else args.rows
    os.environ |= {"OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory(prefix="probekit-benchmark-", dir=args.work) as folder:
        work, task = Path(folder), long_texts(rows)
        for name, split, n in (("small", "train", rows // 10), ("large", "train", None), ("dev", "dev", None)):
            print(f"caching: {name}", file=sys.stderr, flush=True)
            out = work / f"{name}.h5"
            cache_activations(args.model, task, split, limit=n, pooling=[], tokens=True, out=out).close()
        small, large, dev = (work / f"{name}.h5" for name in ("small", "large", "dev"))
        runs = {}
        for name, epochs, file, mb, give_back in (
            ("a tenth, limited", 10 * args.epochs, small, args.limit, True),
            ("all, limited", args.epochs, large, args.limit, True),
            ("a tenth, no limit", 10 * args.epochs, small, None, False),
            ("all, no limit", args.epochs, large, None, False),
            ("control: all held, limited", 0, large, args.limit, True),
        ):
            print(name, file=sys.stderr, flush=True)
            what = ["--epochs", str(epochs), "--window", str(args.window)]
            one = run(what, [file, dev], work, mb, give_back=give_back)
            runs[name] = one | {"size": file.stat().st_size / 1e9, "limit": mb, "back": give_back}
    columns = {"read": ".2f", "seconds": ".1f", "steps": ".0f"}
    shown = [
        ["run", "cache, GB", "limit, MB", "frees at once", "status", "peak anonymous MB", "GB from disk", "s", "steps"]
    ]
    for name, one in runs.items():
        shown.append([
            name, f"{one['size']:.2f}", str(one["limit"] or "none"),
            "yes" if one["back"] else "no", str(one["status"]), f"{one['anonymous']:.0f}",
            *(f"{one[k]:{form}}" if k in one else "" for k, form in columns.items()),
        ])  # fmt: skip
    print("\n" + table(shown))
    more = runs["all, limited"]["anonymous"] - runs["a tenth, limited"]["anonymous"]
    show_goals([
        Goal("status of training under the limit", runs["all, limited"]["status"], most=0),
        Goal("peak anonymous MB, all - a tenth, limited", more, most=16),
        Goal("status of the control: killed", runs["control: all held, limited"]["status"], most=-9),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
