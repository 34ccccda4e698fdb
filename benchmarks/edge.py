"""How fast EDGE 4.3.1 is beside its author's algorithm in plain Python, on the same binary labels in one run.

    python benchmarks/edge.py             two minutes
    python benchmarks/edge.py --large     ten million rows, too: 4 GB
    python benchmarks/edge.py --quick     seconds: does it run? Not a measurement
    python benchmarks/edge.py --cases 1,4 these of the list below

The twin is tests/naive.py: a row at a time, dictionaries, scikit-learn's neighbours; it gives the same numbers. Ours
and the twin run one after the other in a process of each case's own, both passes, on one thread; ours on more then.
Times are the shortest of the repeats, in milliseconds; CPU time is beside them, as the machine may be busy. The floor
is one product of x with as many columns as it is projected on (BLAS) and one sum over x, on one thread. A row costs
more the more columns it is projected on, which are log2(rows / 10) or all. Memory is the most that is held beside x.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cache import Goal, table

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the slow twins
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Case:
    """n rows of d columns; wanted: at least ``ratio`` of the twin's time to ours, at most ``floors`` of the floor.

    twin : rows that the twin is given; its time is scaled up by n / twin, and 0 leaves it out
    """

    n: int
    d: int
    dtype: str = "float64"
    ratio: float | None = None
    floors: float | None = None
    twin: int | None = None

    @property
    def name(self) -> str:
        return f"{self.n:,} × {self.d}" + (" float32" if self.dtype == "float32" else "")


CASES = [
    Case(1_000, 768, ratio=250),
    Case(10_000, 384, ratio=450),
    Case(10_000, 768, "float32", ratio=450),
    Case(100_000, 768, ratio=280),
    Case(100_000, 768, "float32", floors=1.5),
    Case(10_000, 16),
    Case(100_000, 16, twin=10_000),
    Case(1_000_000, 16, ratio=600, twin=100_000),
]
LARGE = Case(10_000_000, 16, twin=0)
QUICK = [Case(200, 30), Case(400, 16, "float32", twin=200), Case(1000, 16, twin=0)]


def data(case: Case) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(case.n + case.d)
    x = np.empty((case.n, case.d), dtype=case.dtype)
    rng.standard_normal(dtype=x.dtype, out=x)
    y = rng.integers(0, 2, case.n)
    x[:, 0] += 2 * y
    return x, y


def best(what: Callable[[], Any], seconds: float) -> np.ndarray:
    """Milliseconds of the quickest call, of as many as fill these seconds: wall and CPU."""
    times: list[list[float]] = []
    clocks = (time.perf_counter, time.process_time)
    while not times or sum(wall for wall, _ in times) < seconds:
        start = [clock() for clock in clocks]
        what()
        times.append([clock() - s for clock, s in zip(clocks, start, strict=True)])
    return 1e3 * np.min(times, axis=0)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def here(case: Case, threads: int, seconds: float) -> dict[str, Any]:
    """All that is measured of a case, in this process."""
    import naive

    from probekit.information.edge import edge

    small, labels = data(Case(64, case.d, case.dtype))
    naive.edge(small, labels)
    edge(small, labels)  # compiled, or read from its cache
    x, y = data(case)
    before = peak()
    value = edge(x, y, threads=1)
    found: dict[str, Any] = {"value": value, "memory": peak() - before, "size": x.nbytes / 2**20}
    found["ours"] = [best(lambda t=t: edge(x, y, threads=t), seconds).tolist() for t in (1, threads)]
    columns = np.ones((case.d, min(case.d, int(np.log2(case.n / 10)))), dtype=x.dtype)
    found["columns"] = columns.shape[1]
    found["floor"] = (best(lambda: x @ columns, seconds / 2) + best(x.sum, seconds / 2)).tolist()
    rows = case.n if case.twin is None else case.twin
    if rows:
        of = slice(rows)
        twin: list[float] = []
        took = best(lambda: twin.append(naive.edge(x[of], y[of])[-1][0]), seconds)
        found |= {
            "twin": (took * case.n / rows).tolist(),
            "off": abs(twin[0] - (value if rows == case.n else edge(x[of], y[of]))),
        }
    return found


def apart(case: Case, threads: int, seconds: float) -> dict[str, Any]:
    """What :func:`here` measures, in a process of its own."""
    print(case.name, file=sys.stderr, flush=True)
    command = [sys.executable, __file__, "--job", json.dumps([asdict(case), threads, seconds])]
    done = subprocess.run(command, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case.name} failed with status {done.returncode}.")
    return json.loads(done.stdout)


def per_cell(case: Case, found: dict[str, Any]) -> float:
    """CPU nanoseconds for a row and a column that it is projected on."""
    return 1e6 * found["ours"][0][1] / case.n / found["columns"]


def show(found: list[tuple[Case, dict[str, Any]]], threads: int) -> None:
    several = f"{threads} threads"
    head = [
        "rows × columns",
        "twin, ms",
        "CPU",
        "ours, 1 thread",
        "CPU",
        several,
        "ratio",
        several,
        "CPU",
        "floor, CPU",
    ]
    rows = [[*head, "ours / floor", "ns a row and column", "x, MB", "beside it", "bits", "off by"]]
    goals: list[Goal] = []
    for case, f in found:
        (wall, cpu), (many, _), twin = *f["ours"], f.get("twin", [np.nan, np.nan])
        floors, ratios = cpu / f["floor"][1], [twin[0] / wall, twin[0] / many, twin[1] / cpu]
        cells = [
            case.name, *(f"{t:,.0f}" for t in twin), f"{wall:,.2f}", f"{cpu:,.2f}", f"{many:,.2f}",
            *(f"{r:,.0f}" for r in ratios), f"{f['floor'][1]:,.2f}", f"{floors:.2f}", f"{per_cell(case, f):.1f}",
            f"{f['size']:,.0f}", f"{f['memory']:,.0f}", f"{f['value']:.4f}", f"{f.get('off', np.nan):.0e}",
        ]  # fmt: skip
        rows.append(["–" if cell == "nan" else cell for cell in cells])
        if case.ratio:
            goals.append(Goal(f"{case.name}: twin / ours, {several}", ratios[1], least=case.ratio))
        if case.floors:
            goals.append(Goal(f"{case.name}: ours / floor, CPU", floors, most=case.floors))
    narrow = [(case, per_cell(case, f)) for case, f in found if case.d == 16]
    if len(narrow) > 2:
        (first, least), (last, most) = narrow[0], narrow[-1]
        what = f"a row and column, {last.n:,} / {first.n:,} rows"
        goals.append(Goal(what, most / least, most=2, remark="1 is linear; caches are left on the way"))
    print("\n" + table(rows))
    for case, f in found:
        if case.twin and "twin" in f:
            print(f"  {case.name}: the twin measured on {case.twin:,} rows, times {case.n / case.twin:g}.")
    if goals:
        print("\n" + table([["what", "goal", "measured", "", ""], *(goal.row for goal in goals)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--large", action="store_true", help="ten million rows, too")
    parser.add_argument("--cases", help="these only, numbered from 1, with commas between")
    parser.add_argument("--threads", type=int, default=2, help="of ours, beside one")
    parser.add_argument("--seconds", type=float, default=3, help="to repeat each of our measurements for")
    parser.add_argument("--json", type=Path, help="all measurements go here too")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        case, threads, seconds = json.loads(args.job)
        print(json.dumps(here(Case(**case), threads, seconds)))
        return
    load = os.getloadavg()[0]
    cases = QUICK if args.quick else [*CASES, LARGE] if args.large else CASES
    if args.cases:
        cases = [cases[int(number) - 1] for number in args.cases.split(",")]
    found = [(case, apart(case, args.threads, 0 if args.quick else args.seconds)) for case in cases]
    show(found, args.threads)
    if args.quick:
        print("\nToo small for numbers that mean anything.")
    elif load > 0.5:
        print(f"\nThe machine was busy when this began (load {load:.1f}); the shortest times may still be too long.")
    if args.json:
        args.json.write_text(json.dumps([{**asdict(case), **f} for case, f in found], indent=1))


if __name__ == "__main__":
    main()
