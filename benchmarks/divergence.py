"""How long the Jensen-Shannon divergences of all pairs of domains take, and in how much memory.

    python benchmarks/divergence.py           four minutes
    python benchmarks/divergence.py --quick   seconds: does it run? Not a measurement

Distributions are random: gamma numbers ("dense"), or shares of a sample of tokens from Zipf's law with a log-normal
factor, most terms of which a domain lacks ("sampled"). Beside all pairs by ``probekit.domains``: scipy's jensenshannon
in a double loop; NumPy, a domain against 16 others at a time, with entropies taken once; and as the floor NumPy's log2
of as many numbers, in the processor's cache. These three take some of the pairs and are scaled up. The shortest of the
repeats counts; the memory is what probekit's process grew beside the distributions (Linux).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import numpy as np
from cache import Goal, table
from measures import memory
from scipy.spatial.distance import jensenshannon

from probekit.domains.divergence import divergences

TOGETHER = 16  # domains that NumPy does at a time


@dataclass(frozen=True)
class Case:
    """So many domains and terms; tokens of each, 0 for gamma numbers; goals: whether they are held to."""

    domains: int
    terms: int
    tokens: int = 0
    goals: bool = False

    def __str__(self) -> str:
        kind = f"sampled, {self.tokens:,} tokens" if self.tokens else "dense"
        return f"{self.domains:,} × {self.terms:,}, {kind}"


CASES = [Case(20, 10_000), Case(200, 10_000), Case(1_000, 50_000, 200_000), Case(1_000, 50_000, goals=True)]
QUICK = [Case(5, 600), Case(20, 600, 2_000)]


def best(what: Callable[[], object], repeats: int) -> float:
    """Seconds of the quickest call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        what()
        times.append(time.perf_counter() - start)
    return min(times)


def grown(what: Callable[[], object]) -> float:
    """MB that this process had more at most while ``what`` ran than before."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = memory("VmRSS")
    what()
    return memory("VmHWM") - before


def distributions(case: Case) -> np.ndarray:
    """Row by row, so that making them takes no more memory than they do."""
    rng = np.random.default_rng(0)
    p = np.empty((case.domains, case.terms))
    for row in p:
        if case.tokens:
            shares = np.exp(rng.normal(0, 1, case.terms)) / np.arange(1, case.terms + 1)
            row[:] = rng.multinomial(case.tokens, shares / shares.sum())
        else:
            row[:] = rng.gamma(0.3, size=case.terms)
        row /= row.sum()
    return p


def xlogx(x: np.ndarray) -> np.ndarray:
    """Σ x log2 x of each row, without a warning for 0."""
    logs = np.log2(x, out=np.zeros_like(x), where=x > 0)
    return np.einsum("ij,ij->i", x, logs)


def numpy_pairs(p: np.ndarray, own: np.ndarray, i: int) -> np.ndarray:
    """Divergences of domain i from TOGETHER others."""
    others = slice(i + 1, i + 1 + TOGETHER)
    return 1 - (xlogx(p[i] + p[others]) - own[i] - own[others]) / 2


def measure(case: Case, threads: int, repeats: int) -> dict[str, float]:
    p = distributions(case)
    divergences(p[:3, :50] / p[:3, :50].sum(1, keepdims=True))  # compiled, or read from its cache
    found = divergences(p, threads=threads)["js-divergence"]
    beside = grown(lambda: divergences(p, threads=threads))
    seconds = best(lambda: divergences(p, threads=threads), repeats)
    one = best(lambda: divergences(p, threads=1), 1)
    pairs = case.domains * (case.domains - 1) / 2
    some = [
        (i, (7 * i + 1) % case.domains)
        for i in range(0, case.domains, max(1, case.domains // 100))
        if (7 * i + 1) % case.domains != i
    ]
    theirs = np.empty(len(some))

    def loop() -> None:
        for k, (i, j) in enumerate(some):
            theirs[k] = jensenshannon(p[i], p[j], 2) ** 2

    scipy = best(loop, 2) / len(some) * pairs
    own = np.array([xlogx(row[None])[0] for row in p])
    starts = range(0, case.domains - TOGETHER, max(1, case.domains // 12)) or range(1)
    done = sum(len(own[i + 1 : i + 1 + TOGETHER]) for i in starts)
    vectors = best(lambda: [numpy_pairs(p, own, i) for i in starts], 2) / done * pairs
    block = np.random.default_rng(1).random(2048)
    out = np.empty_like(block)
    floor = best(lambda: [np.log2(block, out=out) for _ in range(200)], 5) / 200 / block.size * pairs * case.terms
    error = max(abs(found[i, j] - d) for (i, j), d in zip(some, theirs, strict=True))
    return {
        "seconds": seconds, "one": one, "scipy": scipy, "numpy": vectors, "floor": floor, "error": error,
        "memory": beside, "input": p.nbytes / 2**20, "zeros": float((p == 0).mean()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="beside one")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    head = ["domains × terms", "of it 0", f"{args.threads} threads, s", "1 thread", "scipy", "NumPy", "log2 alone"]
    rows = [[*head, "error", "p, MB", "beside it"]]
    goals = []
    for case in QUICK if args.quick else CASES:
        m = measure(case, args.threads, 2)
        times = [f"{m[name]:.3g}" for name in ("seconds", "one", "scipy", "numpy", "floor")]
        rows.append(
            [str(case), f"{m['zeros']:.0%}", *times, f"{m['error']:.0e}", f"{m['input']:,.0f}", f"{m['memory']:,.0f}"]
        )
        if case.goals:
            goals += [
                Goal(f"{case}: times as fast as scipy", m["scipy"] / m["seconds"], least=50),
                Goal(f"{case}: times as fast as NumPy", m["numpy"] / m["seconds"], least=5),
                Goal(f"{case}: MB beside the distributions", m["memory"], most=m["input"]),
                Goal(f"{case}: difference from scipy", m["error"], most=1e-12),
            ]
    print(table(rows))
    if goals:
        print("\n" + table([["what", "goal", "measured", "", ""], *(goal.row for goal in goals)]))
    if args.quick:
        print("\nToo small for numbers that mean anything.")
    elif load > 0.5:
        print(f"\nThe machine was busy when this began (load {load:.1f}); the shortest times may still be too long.")


if __name__ == "__main__":
    main()
