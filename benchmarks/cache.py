"""How fast activations are cached and read, beside other ways of doing it, in one run on the same sentences.

    python benchmarks/cache.py                  everything, about twenty minutes on two cores
    python benchmarks/cache.py --quick          a minute or two: a look at whether everything runs, not a measurement
    python benchmarks/cache.py --only pooled    this way, and raw beside it

Each way runs in a process of its own, so that its threads and its peak memory are its own; the ways take turns, and a
ratio compares two that ran in the same round. A rate counts the pieces that were asked for, padding left out: from
text to vectors for the ways that run the model. CPU seconds are the process's own, user and system, over all threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import h5py
import numpy as np
from measures import OTHERS, here
from ways import WAYS, Job

SHARED = Path(__file__).parents[1] / "../shared/data"


def real_texts(n: int) -> list[Any]:
    """Distinct texts, a quarter each of SST-2, UD-EWT, SICK (pairs) and MRPC (pairs) while they last, mixed."""
    from probekit.tasks import load_task

    parts = []
    for name, folder in [("sst2", "sst2"), ("ud", "ud_english_ewt"), ("sick-r", "sick"), ("mrpc", "mrpc")]:
        split = load_task(name, data_dir=SHARED / folder).split("train")
        parts.append(dict.fromkeys(e.text if e.pair is None else (e.text, e.pair) for e in split))
    taken = [t for part in parts for t in list(part)[: n // 4]]
    taken += [t for part in parts[:2] for t in list(part)[n // 4 :]][: n - len(taken)]
    order = np.random.default_rng(0).permutation(len(taken))
    return [taken[i] for i in order]


def lines_of(path: Path) -> list[Any]:
    """Distinct texts of a file, one a line, pairs with a tab between."""
    lines = dict.fromkeys(path.read_text().splitlines())
    return [tuple(line.split("\t")) if "\t" in line else line for line in lines if line]


def apart(job: Job) -> dict[str, Any]:
    """What :func:`here` measures, in a process of its own."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(job.threads)}
    command = [sys.executable, __file__, "--job", json.dumps(asdict(job))]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{job.way} failed with status {done.returncode}.")
    return json.loads(done.stdout.splitlines()[-1])


@dataclass
class Results:
    """Rounds of each way, the other measurements by name, and files' sizes against the arrays in them."""

    ways: dict[str, list[dict[str, Any]]]
    other: dict[str, Any]
    sizes: dict[str, float]

    def seconds(self, way: str, of: str) -> list[float]:
        """Seconds of each round, of its quickest run: "wall", "cpu" (user + system) or "system"."""
        pick = {"wall": lambda t: t[0], "cpu": lambda t: t[1] + t[2], "system": lambda t: t[2]}[of]
        return [min(map(pick, r["times"])) for r in self.ways.get(way, [])]

    def speed(self, way: str, than: str, of: str) -> float | None:
        """How many times as fast ``way`` is as ``than``: the median over the rounds that both ran in."""
        both = list(zip(self.seconds(way, of), self.seconds(than, of), strict=False))
        return median(b / a for a, b in both) if both else None


def table(rows: list[list[str]]) -> str:
    width = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, width, strict=True)) + " |" for r in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in width) + "|", *lines[1:]])


def show_ways(found: Results) -> None:
    rows = [
        ["way", "pieces/CPU-s", "pieces/s", "÷ raw, CPU", "÷ raw, wall", "of it system", "MB above the model", "MB"]
    ]
    for name in found.ways:
        way, rounds = WAYS[name], found.ways[name]
        cpu, wall = (median(found.seconds(name, of)) for of in ("cpu", "wall"))
        base = "raw-bf16" if way.dtype == "bfloat16" else "raw"
        ratios = [found.speed(name, base, of) or 0.0 for of in ("cpu", "wall")]
        pieces = rounds[0]["pieces"]
        rows.append([
            way.title, f"{pieces / cpu:,.0f}", f"{pieces / wall:,.0f}", *(f"{x:.3f}" for x in ratios),
            f"{median(found.seconds(name, 'system')) / cpu:.1%}",
            f"{max(r['peak'] - r['loaded'] for r in rounds):,.0f}", f"{max(r['peak'] for r in rounds):,.0f}",
        ])  # fmt: skip
    if len(rows) > 1:
        print("\n" + table(rows))


def show_floor(found: Results) -> None:
    floor = found.other["floor"]
    print(f"\nThe floor: {floor['flops'] / 1e9:,.0f} GFLOP for {floor['pieces']:,} pieces, in the model's products:")
    for name, way in [("torch", "sorted"), ("oneDNN", "raw"), ("oneDNN bf16", "raw-bf16")]:
        if name in floor["rates"]:
            most = floor["pieces"] * floor["rates"][name] / floor["flops"]
            cpu = found.seconds(way, "cpu")
            reached = f"; {way} reaches {floor['pieces'] / median(cpu) / most:.2f} of it" if cpu else ""
            rate = f"{floor['rates'][name] / 1e9:,.0f} GFLOP a CPU second"
            print(f"  {name}: {rate}, at most {most:,.0f} pieces/CPU-s{reached}")
    kept = floor["disk"] / (floor["layers"] * floor["width"] * 2)
    print(
        f"  memcpy {floor['memcpy'] / 1e9:.1f} GB/s, writing {floor['disk'] / 1e9:.2f} GB/s: "
        f"at most {kept:,.0f} pieces/s kept as float16 tokens"
    )


@dataclass(frozen=True)
class Goal:
    """Something measured, against what is wanted of it: at least ``least``, or at most ``most``."""

    what: str
    measured: float | None
    least: float | None = None
    most: float | None = None
    remark: str = ""

    @property
    def row(self) -> list[str]:
        x = self.measured or 0.0
        met = x >= self.least if self.least is not None else x <= (self.most or 0.0)
        goal = f"≥ {self.least:.2f}" if self.least is not None else f"≤ {self.most:g}"
        shown = f"{x:.2g}" if x < 1e-3 else f"{x:.3f}" if x < 10 else f"{x:,.0f}"
        return [self.what, goal, shown, "met" if met else "MISSED", self.remark]


SPEEDS = [
    ("mean + first + max / raw", "pooled", "raw", 0.95),
    ("mean + first + max / raw, bf16", "pooled-bf16", "raw-bf16", 0.95),
    ("tokens float16 / raw", "tokens", "raw", 0.90),
    ("tokens float16 / raw, bf16", "tokens-bf16", "raw-bf16", 0.85),
    ("mean + first + max / stock sorted by length", "pooled", "sorted", 2.0),
    ("mean + first + max / pipeline", "pooled", "pipeline", 4.5),
]
SIZES = [("pooled", "pooled", 1.01), ("tokens", "tokens", 1.01), ("compressed", "tokens, bf16 + zstd", 0.70)]


def goals(found: Results) -> list[Goal]:
    rows = [
        Goal(f"{what}, {'CPU s' if of == 'cpu' else of}", found.speed(way, base, of), least)
        for of in ("cpu", "wall")
        for what, way, base, least in SPEEDS
    ]
    if error := found.other.get("error"):
        remark = f"the worst layer; the worst single vector {error['vector']:.1e}"
        rows.append(Goal("relative error to the stock forward", error["layer"], most=2e-6, remark=remark))
    if read := found.other.get("reading"):
        copied = f"{read['bytes'] / 1e6:.0f} MB, memcpy {read['bytes'] / read['memcpy'] / 1e9:.1f} GB/s"
        rows += [
            Goal("read a layer: held map / memcpy", read["memcpy"] / read["map"], 0.90, remark=copied),
            Goal("read a layer: h5py read_direct / memcpy", read["memcpy"] / read["h5py"], 0.80),
            Goal("256 random rows of a layer, ms", read["rows"] * 1e3, most=0.1),
        ]
    rows += [Goal(f"file size / its arrays, {what}", found.sizes.get(name), most=most) for name, what, most in SIZES]
    if above := found.other.get("memory"):
        remark = "MB by rows: " + ", ".join(f"{n}: {mb:,.0f}" for n, mb in above.items())
        rows.append(Goal("peak MB above the loaded model", max(above.values()), most=200, remark=remark))
    return [row for row in rows if row.measured is not None]


def show_goals(rows: list[Goal]) -> None:
    if rows:
        print("\n" + table([["work", "goal", "measured", "", ""], *(goal.row for goal in rows)]))


def array_bytes(path: Path) -> int:
    """Bytes of all arrays in a cache, unpacked."""
    from probekit.activations.hdf5 import datasets

    with h5py.File(path) as f:  # by place, since an array may stand under two names
        return sum({h5py.h5o.get_info(ds.id).addr: ds.nbytes for _, ds in datasets(f)}.values())


def run_all(job: Job, texts: list[Any], rows: int, rounds: int, wanted: list[str], measure: Any) -> Results:
    work = Path(job.work)

    def told(title: str, **changes: Any) -> dict[str, Any]:
        print(title, file=sys.stderr, flush=True)
        return measure(replace(job, **changes))

    (work / "texts.json").write_text(json.dumps(texts[:rows]))
    found = Results({}, {}, {})
    for turn in range(rounds):
        for name in (name for name in WAYS if name in wanted):
            way = WAYS[name]
            if not (turn and way.slow):
                repeats = 1 if way.slow else job.repeats
                one = told(f"round {turn + 1}: {name}", way=name, dtype=way.dtype, repeats=repeats)
                found.ways.setdefault(name, []).append(one)
    for path in work.glob("*.h5"):
        found.sizes[path.stem] = path.stat().st_size / array_bytes(path)
    for name in (name for name in OTHERS if name in wanted):
        if name != "reading" or (work / "tokens.h5").exists():
            found.other[name] = told(name, way=name, dtype="bfloat16" if name.endswith("bf16") else "float32")
    if "memory" in wanted:
        (work / "texts.json").write_text(json.dumps(texts))
        above = found.other["memory"] = {}
        for n in sorted({min(n, len(texts)) for n in (rows // 4, rows, 4 * rows)}):
            one = told(f"memory: {n} rows", way="pooled", limit=n, repeats=1)
            above[str(n)] = one["peak"] - one["loaded"]
    return found


def main() -> None:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", help="folder of a model; MiniLM of the extra demo by default")
    parser.add_argument("--texts", type=Path, help="one text a line, pairs with a tab; the shared data by default")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3, help="turns of the quick ways; the slow ones run once")
    parser.add_argument("--threads", type=int, default=threads, help="all of the processor's by default")
    parser.add_argument("--only", action="append", choices=[*WAYS, *OTHERS, "memory"], help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="48 rows, all in one process: does it run?")
    parser.add_argument("--work", type=Path, help="folder on the disk in question; a temporary one by default")
    parser.add_argument("--json", type=Path, help="all measurements go here too")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(here(Job(**json.loads(args.job)))))
        return
    if args.texts is None and not SHARED.is_dir():
        raise SystemExit(f"skipped: the shared data sets are not at {SHARED}; give --texts FILE.")
    if args.model is None:
        from probekit.models.find import minilm_folder

        args.model = minilm_folder()
    rows, rounds = (48, 1) if args.quick else (args.rows, args.rounds)
    texts = lines_of(args.texts) if args.texts else real_texts(4 * rows)
    wanted = args.only or [*WAYS, *OTHERS, "memory"]
    for base in ("raw", "raw-bf16"):
        if any(WAYS[name].dtype == WAYS[base].dtype for name in wanted if name in WAYS):
            wanted.append(base)
    with tempfile.TemporaryDirectory(prefix="probekit-benchmark-", dir=args.work) as work:
        job = Job("", str(args.model), work, args.threads, repeats=1 if args.quick else 2)
        found = run_all(job, texts, rows, rounds, wanted, here if args.quick else apart)
    print(f"{min(rows, len(texts)):,} texts, {args.threads} threads, {rounds} rounds.")
    if args.quick:
        print("Too few for numbers that mean anything; the peak memory is of all ways together.")
    if not find_spec("neurox"):
        print("NeuroX is not installed; 'stock forward, batch 32' is what it does, without its text files.")
    show_ways(found)
    if "floor" in found.other:
        show_floor(found)
    show_goals(goals(found))
    if args.json:
        args.json.write_text(json.dumps(asdict(found), indent=1))


if __name__ == "__main__":
    main()
