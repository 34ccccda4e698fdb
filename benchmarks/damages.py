"""Damage files that commands read back, one at a time, run the commands, and count how they end.

    python benchmarks/damages.py --damages 600
    python benchmarks/damages.py --damages 60 --only study --only run

Every kind of file that probekit wrote and reads again: caches, shards and their manifest, journals, leases, rows,
cards, examples, counts, runs and what trainings, searches, studies, suites and passes over texts go
on from. A bit is flipped, bytes are lost, doubled, swapped or zeroed, the file is cut, empty, a link, a folder, or
another of the files. The commands must end as with the whole file, to the bit (the file itself whole again, or as it
was damaged), or in a sentence; never with other numbers, a traceback, a hang, or a change of files of others.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from killed_commands import commands, inputs
from kills import HANG, Attack, Killed, load_shim, prepare

sys.path.append(str(Path(__file__).parents[1] / "tests"))
WAYS = ("flip", "flip", "byte", "zeros", "drop", "copy", "cut", "token", "hostile", "number",
        "swap", "empty", "other", "link", "folder", "more")  # fmt: skip
BAD = ("WRONG", "TRACEBACK", "HANG", "FOREIGN")
ROOM = 2 << 30
"""Bytes that a command may allocate."""


@dataclass(frozen=True)
class Read:
    """Commands that make files, patterns of those that are damaged, and the commands that read them."""

    makes: tuple[list[str], ...]
    files: tuple[str, ...]
    reads: tuple[list[str], ...]
    killed: float = 0.0
    """At which share of its calls the last of ``makes`` is killed."""


def subjects(folder: Path) -> dict[str, Read]:
    """By name what is damaged."""
    out, all_ = folder / "out", commands(folder)
    words = {name: one.at_once[0] for name, one in all_.items()}
    task, varied, model, here = f"{folder}/task.toml", f"{folder}/varied.toml", f"{folder}/model", ["--device", "cpu"]
    cache = ["cache-activations", "--model", model, "--task", varied, "--tokens", *here]
    caches = tuple([*cache, "--split", split, "--out", f"{out}/{split}.h5"] for split in ("train", "dev"))
    few = ["--controls", "1", "--resamples", "100", "--layers", "1,2", "--folds", "2", "--penalties", "1"]
    probe = ["probe", f"{out}/train.h5", f"{out}/dev.h5", *few, "--out", f"{out}/p.parquet"]
    csv = [*probe[:-1], f"{out}/q.csv"]
    mi = ["--layers", "1", "--draws", "1", "--controls", "0", "--out", f"{out}/mi.parquet"]
    seeds = [*all_["average"].needs[0][:-1], f"{out}/seeds"]
    tune, shards = words["fine-tuning"], [*words["shards"], "--patience", "3"]
    evaluate = ["evaluate", f"{out}/run", "--task", task, "--split", "test", "--out", f"{out}/e.parquet", *here]
    stream = ["stream", "--model", model, "--task", varied, "--analysis", "mass-mean,cka", "--resamples", "0",
              "--controls", "0", "--chunk", "8", "--save-every", "1", "--state", f"{out}/s.npz",
              "--out", f"{out}/s.parquet", *here]  # fmt: skip
    merge = [*stream]
    merge[merge.index("--state")] = "--merge"
    (folder / "suite.toml").write_text(
        f'title = "Suite"\nlimit = 40\n[[tasks]]\ngroup = "toys"\ntasks = ["{varied}"]\n'
        "options = { controls = 1, resamples = 100, folds = 2, penalties = [1.0] }\n"
    )
    suite = ["suite", "run", f"{folder}/suite.toml", "--model", model, "--out", f"{out}/suite"]
    domains = ["domains", f"a={folder}/book.txt", f"b={folder}/varied.train.tsv", "--document", "line", "--draws", "19",
               "--resamples", "100"]  # fmt: skip
    return {
        "cache": Read(caches, ("train.h5", "dev.h5"), (probe, ["mi", f"{out}/train.h5", *mi])),
        "unfinished cache": Read(caches[:1], ("train.h5.*",), caches[:1], killed=0.6),
        "shards": Read((shards,), ("shards/*",), (["mi", f"{out}/shards", *mi], ["verify", f"{out}/shards"])),
        "unfinished shards": Read((shards,), ("shards/*", "shards/.*"), (shards,), killed=0.6),
        "rows": Read((*caches, probe, csv), ("p.*", "q.*"),
                     (["summary", f"{out}/p.parquet"], ["plot", "layers", f"{out}/p.parquet", "--out", f"{out}/f.svg"],
                      ["report", f"{out}/q.csv", "-o", f"{out}/r.html"])),
        "cards": Read((*caches, ["mi", f"{out}/train.h5", *mi]), ("mi.parquet.json",),
                      (["reproduce", f"{out}/mi.parquet.json"],)),
        "copies": Read((shards,), ("shards/*",), (["copy-cache", f"{out}/shards", f"{out}/copied"],
                                                   ["mi", f"{out}/copied", *mi])),
        "run": Read((tune,), ("run/*",), (evaluate,)),
        "run, again": Read((tune,), ("run/*",), (tune,)),
        "unfinished run": Read((tune,), ("run/*", "run/.*", "run/*/*", "run/.*/*"), (tune,), killed=0.5),
        "seeds": Read((seeds,), ("seeds/*", "seeds/*/*", "seeds/*/*/*"),
                      (["average", f"{out}/seeds", "--out", f"{out}/soup", *here],)),
        "unfinished pretraining": Read((words["pretrain"],), ("run/*", "run/.*", "run/*/*", "run/.*/*"),
                                       (words["pretrain"],), killed=0.6),
        "search": Read((words["search"],), ("found/*", "found/*/*", "found/.*"), (words["search"],),
                       killed=0.7),
        "stream": Read((stream,), ("s.npz",), (stream,), killed=0.6),
        "parts": Read((part_of(stream, out),), ("s.npz",), (merge,)),
        "study": Read((words["study"],), ("study/*/*", "study/*"), (words["study"],)),
        "unfinished study": Read((words["study"],), ("study/*/*", "study/*"), (words["study"],), killed=0.6),
        "run of layers": Read((words["run"],), ("run/*/*", "run/*"), (words["run"],)),
        "suite": Read((suite,), ("suite/*/*", "suite/*"), (suite,)),
        "counts": Read(([*domains, "--counts", f"{out}/c.parquet"],), ("c.parquet",),
                       (["domains", f"{out}/c.parquet", "--draws", "19", "--resamples", "100",
                         "--out", f"{out}/d.parquet"],)),
    }  # fmt: skip


def part_of(stream: list[str], out: Path) -> list[str]:
    """A pass over a part, the only one, which leaves its state."""
    words = [*stream, "--part", "1/1"]
    del words[words.index("--out") : words.index("--out") + 2]
    return words


def damage(path: Path, others: list[Path], rng: random.Random) -> str:
    """Damage a file in some way; which."""
    from damage import damaged

    way, data = rng.choice(WAYS), path.read_bytes()
    match way:
        case "swap":
            size = rng.randint(1, max(1, len(data) // 3))
            a, b = (rng.randint(0, max(0, len(data) - size)) for _ in range(2))
            new = bytearray(data)
            new[a : a + size], new[b : b + size] = data[b : b + size], data[a : a + size]
            path.write_bytes(new)
        case "empty":
            path.write_bytes(b"")
        case "more":
            path.write_bytes(data + rng.randbytes(rng.randint(1, 99)))
        case "other":
            path.write_bytes(rng.choice(others).read_bytes())
        case "link":
            path.unlink()
            path.symlink_to(rng.choice((path.parent / "nothing", *others)))
        case "folder":
            path.unlink()
            path.mkdir()
        case _:
            path.write_bytes(damaged(data, [(way, rng.random(), rng.getrandbits(32))]))
    changed = path.is_symlink() or path.is_dir() or path.read_bytes() != data
    return way if changed else f"{way}, nothing"


class Damages(Attack):
    """Files of one kind, valid; damaged and read again and again."""

    def __init__(self, name: str, read: Read, folder: Path) -> None:
        super().__init__(name, Killed(()), folder, processes=False)
        self.read, self.valid = read, folder / "valid"

    def make(self) -> None:
        self.clear()
        self.theirs = self.left()
        *whole, last = self.read.makes
        for words in whole:
            self.must(words)
        if self.read.killed:
            shutil.copytree(self.out, self.valid, symlinks=True)
            self.killed = Killed((last,))
            assert not any(self.run()), self.said()
            calls = self.shim.kills_calls()
            self.restore()
            self.run(int(self.read.killed * calls))
            assert self.shim.kills_killed()
            self.arm(off=True)
            shutil.rmtree(self.valid)
        else:
            self.must(last)
        shutil.copytree(self.out, self.valid, symlinks=True)

    def must(self, words: list[str]) -> None:
        self.killed = Killed((words,))
        ended = self.run()
        self.arm(off=True)
        assert not any(ended), f"{words}: {self.said()}"
        self.learn()

    def restore(self) -> None:
        self.arm(off=True)
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.valid, self.out, symlinks=True)

    def command(self, words: list[str]) -> int:
        used = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) << 10
        resource.setrlimit(resource.RLIMIT_DATA, (used + ROOM, -1))
        return super().command(words)

    def read_all(self) -> tuple[int, str]:
        """The worst status of the commands that read, and all that they said."""
        status, said = 0, []
        for words in self.read.reads:
            self.killed = Killed((words,))
            status = max(status, *self.run(), key=abs)
            said.append(self.said())
        self.arm(off=True)
        return status, "\n".join(said)

    def attack(self, damages: int, seed: int) -> Counter[str]:
        rng, ended = random.Random(f"{self.name} {seed}"), Counter[str]()
        self.make()
        status, said = self.read_all()
        assert not status, said
        self.learn()
        want = self.left()
        files = sorted({f for one in self.read.files for f in self.valid.glob(one) if f.is_file()})
        files = [f for f in files if str(f.relative_to(self.valid)) not in self.theirs and f.name != ".lock"]
        print(f"{self.name}: {len(files)} files", flush=True)
        for k in range(damages):
            self.restore()
            name = files[k % len(files)].relative_to(self.valid)
            if (way := damage(self.out / name, files, rng)).endswith("nothing"):
                continue
            before = state(self.out / name)
            status, said = self.read_all()
            end = self.judge_damage(status, said, want, name, as_damaged=state(self.out / name) == before)
            ended[end.partition(":")[0]] += 1
            if end.startswith(BAD) or os.environ.get("VERBOSE"):
                print(f"  {end}: {way} of {name}: {status} {said.strip()[-900:]}", flush=True)
        shutil.rmtree(self.valid)
        return ended

    def judge_damage(self, status: int, said: str, want: dict[str, str], name: Path, *, as_damaged: bool) -> str:
        logs = "".join(log.read_text(errors="replace") for log in self.out.rglob("*.log") if log.is_file())
        if status in HANG:
            return "HANG"
        if status not in (0, 1, 2) or "Traceback" in said + logs:
            return f"TRACEBACK: {logs[-600:] if 'Traceback' in logs else ''}"
        now = self.left()
        if not self.theirs.items() <= now.items():
            return "FOREIGN"
        if status:
            return "told" if said.strip() else "TRACEBACK: it fails without a word"
        differ = {one for one in now.keys() | want.keys() if now.get(one) != want.get(one)}
        differ -= {str(name)} if as_damaged else set()  # nothing read it, or what it says is as before
        if name.name == "c.parquet" and "d.parquet" not in differ:  # as before; the card has the digest of their file
            differ -= {"d.parquet.json"}
        if re.search(r"\.draft\.|\.lease-", name.name):  # which proved whose the hidden files beside it are
            differ -= {one for one in differ if one not in want and Path(one).name.startswith(".")}
        if differ == {"r.html"} and (name.suffix == ".json" or "No evidence card" in (self.out / "r.html").read_text()):
            return "told"  # the page says that its rows were changed, or shows the card's own words
        return f"WRONG: {sorted(differ)}" if differ else "equal to the bit"


def state(path: Path) -> str | bytes:
    """What lies at a path."""
    return str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else f"{path.exists()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--damages", type=int, default=600)
    parser.add_argument("--only", action="append")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    load_shim()
    began, total = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        inputs(folder)
        prepare()
        found = subjects(folder)
        names = options.only or list(found)
        for name in names:
            ended = Damages(name, found[name], folder).attack(-(-options.damages // len(names)), options.seed)
            print(f"{name}: " + ", ".join(f"{count:,} {end}" for end, count in ended.items()), flush=True)
            total += ended
    for end, count in sorted(total.items()):
        print(f"{count:6,}  {end}")
    print(f"{sum(total.values()):6,}  damages in {time.monotonic() - began:.0f} s")
    sys.exit(any(total[end] for end in BAD))


if __name__ == "__main__":
    main()
