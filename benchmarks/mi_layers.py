"""How long calibrated mutual information takes for all layers of a model, shuffled labels included.

    python benchmarks/mi_layers.py           half a minute
    python benchmarks/mi_layers.py --quick   seconds: does it run? Not a measurement

Layers are random numbers with signal in one direction, labels are binary, hashed on 20 grids; the rows are those of
``probekit.mi``. Beside it, on the same layers: the product that covariances take (at most 4 rows a column, BLAS, one
thread) and one sum over the vectors, which nothing can do without; and shuffled labels counted by NumPy's bincount, a
few of them scaled up, for the buckets of one layer. The shortest of the repeats counts.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import numpy as np
from cache import Goal, table

GRIDS, BUCKETS = 20, 25


@dataclass(frozen=True)
class Case:
    """Layers of n rows and d columns of float32; wanted: at most so many seconds."""

    n: int
    draws: int
    layers: int = 13
    d: int = 768
    most: float | None = None


CASES = [Case(10_000, 100, most=1), Case(1_043, 1_000, most=1), Case(10_000, 1_000)]
QUICK = [Case(200, 20, 2, 30)]


def best(what: Callable[[], object], repeats: int) -> float:
    """Seconds of the quickest call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        what()
        times.append(time.perf_counter() - start)
    return min(times)


def counted(case: Case, y: np.ndarray, rng: np.random.Generator) -> float:
    """Seconds that all shuffled labels of all layers would take, counted one by one."""
    buckets = rng.integers(0, BUCKETS, (GRIDS, case.n))

    def one() -> None:
        order = rng.permutation(y)
        for own in buckets:
            p = np.bincount(2 * own + order, minlength=2 * BUCKETS) / case.n
            (p[p > 0] * np.log2(p[p > 0])).sum()

    return best(one, 5) * case.draws * case.layers


def measure(case: Case, threads: int, repeats: int) -> list[float]:
    from probekit.information.curves import layer_information
    from probekit.information.options import InformationOptions

    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, case.n)
    layers = {}
    for layer in range(case.layers):
        layers[str(layer)] = rng.standard_normal((case.n, case.d), dtype=np.float32)
        layers[str(layer)][:, layer % case.d] += y
    about = {"task": "random", "split": "train", "model": "random", "representation": "mean"}

    def run(count: int) -> None:
        layer_information(layers, y, about=about, options=InformationOptions(draws=case.draws, threads=count))

    small = {name: x[:50] for name, x in layers.items()}
    layer_information(
        small, y[:50], about=about, options=InformationOptions(draws=2)
    )  # compiled, or read from its cache
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = [best(lambda: run(1), repeats), best(lambda: run(threads), repeats)]
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    x = layers["0"]
    part = x[: 4 * case.d]
    floor = case.layers * (best(lambda: part.T @ part, 3) + best(x.sum, 3))
    return [*seconds, floor, counted(case, y, rng), case.layers * x.nbytes / 2**20, memory]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--threads", type=int, default=2, help="layers at a time, beside one")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    head = ["layers × rows × columns, draws", "1 thread, s", f"{args.threads} threads", "floor", "bincount"]
    rows = [[*head, "x, MB", "beside it"]]
    goals = []
    for case in QUICK if args.quick else CASES:
        one, many, floor, twin, size, memory = measure(case, args.threads, 1 if args.quick else 4)
        name = f"{case.layers} × {case.n:,} × {case.d}, {case.draws:,}"
        rows.append(
            [name, f"{one:.2f}", f"{many:.2f}", f"{floor:.2f}", f"{twin:.1f}", f"{size:,.0f}", f"{memory:,.0f}"]
        )
        if case.most:
            goals.append(Goal(f"{name}: seconds", many, most=case.most))
    print(table(rows))
    if goals:
        print("\n" + table([["what", "goal", "measured", "", ""], *(goal.row for goal in goals)]))
    if args.quick:
        print("\nToo small for numbers that mean anything.")
    elif load > 0.5:
        print(f"\nThe machine was busy when this began (load {load:.1f}); the shortest times may still be too long.")


if __name__ == "__main__":
    main()
