"""How long the similarity of all pairs of layers of two models takes, beside published formulas in loops over pairs.

    python benchmarks/similarity.py                          thirteen layers, 10,000 examples: an hour
    python benchmarks/similarity.py --small                  a minute: does it run? Not a measurement
    python benchmarks/similarity.py --rsatoolbox PYTHON      also rsatoolbox 0.3.2, installed for that Python

Layers are float32, with 64 shared directions that drift from layer to layer. probekit computes debiased CKA with 1,000
permutations of all pairs, and every measure once. The loops are NumPy in the words of the papers, as published code has
them: one pair at a time, and the whole measure again for each permutation. They take a few pairs and permutations and
are multiplied, as is rsatoolbox. Seconds are of the processor (user and system, all threads) unless "wall" is said;
the memory is what the process grew beside the layers (Linux).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cache import Goal, table
from measures import cpu_seconds, memory
from scipy import linalg, stats

from probekit.similarity.layer_pairs import layer_pairs
from probekit.similarity.options import Similarity, SimilarityOptions

PERMUTATIONS = 1000
Layers = list[np.ndarray]


@dataclass(frozen=True)
class Size:
    layers: int
    examples: int
    columns: int
    neighbours: int = 10


def layers(size: Size, seed: int) -> Layers:
    rng = np.random.default_rng(seed)
    shared, out = rng.standard_normal((size.examples, 64), dtype=np.float32), []
    spectrum = np.arange(1, size.columns + 1, dtype=np.float32) ** -0.3
    for _ in range(size.layers):
        shared = shared + 0.3 * rng.standard_normal(shared.shape, dtype=np.float32)
        x = shared @ rng.standard_normal((64, size.columns), dtype=np.float32) * spectrum
        out.append(x + 0.5 * rng.standard_normal(x.shape, dtype=np.float32) + 1)
    return out


# published formulas, one pair at a time


def centred(x: np.ndarray) -> np.ndarray:
    return x - x.mean(0)


def hsic(k: np.ndarray, l: np.ndarray) -> float:  # noqa: E741
    """Song et al. 2012, equation 5, of kernels with zeros on the diagonal."""
    n = len(k)
    rows = k.sum(0) @ l.sum(0)
    return float((k * l).sum() + k.sum() * l.sum() / ((n - 1) * (n - 2)) - 2 * rows / (n - 2)) / (n * (n - 3))


def without_diagonal(k: np.ndarray) -> np.ndarray:
    np.fill_diagonal(k, 0)
    return k


def debiased_cka(x: np.ndarray, y: np.ndarray, kernel: Callable[[np.ndarray], np.ndarray] | None = None) -> float:
    k, l = (without_diagonal(z @ z.T if kernel is None else kernel(z)) for z in (x, y))  # noqa: E741
    return hsic(k, l) / np.sqrt(hsic(k, k) * hsic(l, l))


def biased_cka(x: np.ndarray, y: np.ndarray) -> float:
    x, y = centred(x), centred(y)
    return float(np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)))


def squared_distances(x: np.ndarray) -> np.ndarray:
    square = (x**2).sum(1)
    return np.asarray(np.maximum(square[:, None] + square - 2 * x @ x.T, 0))


def gaussian(x: np.ndarray) -> np.ndarray:
    d = squared_distances(x)
    return np.asarray(np.exp(-d / (2 * np.median(d[np.triu_indices(len(d), 1)]))))


def rsa(x: np.ndarray, y: np.ndarray, compare: Callable[[np.ndarray, np.ndarray], float]) -> float:
    upper = np.triu_indices(len(x), 1)
    return compare(squared_distances(x)[upper], squared_distances(y)[upper])


def correlations(x: np.ndarray, y: np.ndarray, variance: float = 1.0) -> np.ndarray:
    bases = []
    for z in (centred(x), centred(y)):
        u, s, _ = np.linalg.svd(z, full_matrices=False)
        share = np.cumsum(s**2) / (s**2).sum()
        bases.append(u[:, : np.searchsorted(share, variance) + 1])
    return np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)


def pwcca(x: np.ndarray, y: np.ndarray) -> float:
    u, v = (np.linalg.svd(centred(z), full_matrices=False)[0] for z in (x, y))
    left, rho, _ = np.linalg.svd(u.T @ v)
    weight = np.abs((u @ left).T @ centred(x)).sum(1)
    return float(weight @ rho / weight.sum())


def procrustes(x: np.ndarray, y: np.ndarray) -> float:
    x, y = (z / np.linalg.norm(z) for z in (centred(x), centred(y)))
    return float(np.linalg.svd(x.T @ y, compute_uv=False).sum())


def neighbours(x: np.ndarray, y: np.ndarray, k: int, *, jaccard: bool = False) -> float:
    sets = []
    for z in (centred(x), centred(y)):
        unit = z / np.linalg.norm(z, axis=1, keepdims=True)
        near = unit @ unit.T
        np.fill_diagonal(near, -np.inf)
        sets.append(np.argsort(-near, axis=1)[:, :k])
    both = [(set(p), set(q)) for p, q in zip(*sets, strict=True)]
    return float(np.mean([len(p & q) / (len(p | q) if jaccard else k) for p, q in both]))


def ranks_of_neighbours(x: np.ndarray, y: np.ndarray, k: int) -> float:
    lists = []
    for z in (centred(x), centred(y)):
        unit = z / np.linalg.norm(z, axis=1, keepdims=True)
        near = unit @ unit.T
        np.fill_diagonal(near, -np.inf)
        lists.append(np.argsort(-near, axis=1)[:, :k])
    found = []
    for p, q in zip(*lists, strict=True):
        _, r, s = np.intersect1d(p, q, return_indices=True)
        most = np.sum(1 / np.arange(1, len(r) + 1))
        found.append(np.sum(2 / ((1 + abs(r - s)) * (r + s + 2))) / max(most, 1))
    return float(np.mean(found))


def ridge(x: np.ndarray, y: np.ndarray) -> float:
    x, y = centred(x), centred(y)
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    best = -np.inf
    for penalty in (s**2).mean() * np.array([1e-3, 1e-1, 10]):
        shrunk = s**2 / (s**2 + penalty)
        error = (y - (u * shrunk) @ (u.T @ y)) / (1 - (u**2 * shrunk).sum(1) - 1 / len(x))[:, None]
        best = max(best, 1 - float((error**2).sum() / (y**2).sum()))
    return best


def loops(k: int) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
    return {
        "cka": debiased_cka,
        "cka-biased": biased_cka,
        "cka-rbf": lambda x, y: debiased_cka(x, y, gaussian),
        "cca": lambda x, y: float(correlations(x, y).mean()),
        "cca-r2": lambda x, y: float((correlations(x, y) ** 2).mean()),
        "eigenspace-overlap": lambda x, y: float(
            (correlations(x, y) ** 2).sum() / max(np.linalg.matrix_rank(centred(z)) for z in (x, y))
        ),
        "svcca": lambda x, y: float(correlations(x, y, 0.99).mean()),
        "pwcca": pwcca,
        "procrustes": procrustes,
        "procrustes-angle": lambda x, y: float(np.arccos(min(1, procrustes(x, y)))),
        "rsa-pearson": lambda x, y: rsa(x, y, lambda p, q: float(np.corrcoef(p, q)[0, 1])),
        "rsa-spearman": lambda x, y: rsa(x, y, lambda p, q: float(stats.spearmanr(p, q)[0])),
        "rsa-cosine": lambda x, y: rsa(x, y, lambda p, q: float(p @ q / linalg.norm(p) / linalg.norm(q))),
        "mutual-knn": lambda x, y: neighbours(x, y, k),
        "knn-jaccard": lambda x, y: neighbours(x, y, k, jaccard=True),
        "knn-rank": lambda x, y: ranks_of_neighbours(x, y, k),
        "linear-predictivity": ridge,
        "linear-predictivity-reverse": lambda x, y: ridge(y, x),
    }


def timed(what: Callable[[], object]) -> tuple[float, float, object]:
    """Seconds of the processor, of the wall, and what came."""
    began, start = sum(cpu_seconds()), time.perf_counter()
    out = what()
    return sum(cpu_seconds()) - began, time.perf_counter() - start, out


RSATOOLBOX = """
import sys, time
import numpy as np
from rsatoolbox.data import Dataset
from rsatoolbox.rdm import calc_rdm, compare
x, y = (np.load(path) for path in sys.argv[1:3])
start = sum(__import__("os").times()[:2])
rdms = [calc_rdm(Dataset(z), method="euclidean") for z in (x, y)]
made = sum(__import__("os").times()[:2])
for method in ("corr", "spearman", "cosine"):
    value = compare(*rdms, method=method)[0, 0]
    now = sum(__import__("os").times()[:2])
    print(method, value, (made - start) / 2, now - made)
    made, start = now, start + now - made
"""


def rsatoolbox(python: str, x: np.ndarray, y: np.ndarray) -> dict[str, tuple[float, float, float]]:
    """For each comparison: the value, seconds of a distance matrix, and seconds of comparing two."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{name}.npy") for name in "xy"]
        for path, z in zip(paths, (x, y), strict=True):
            np.save(path, z.astype(np.float64))
        done = subprocess.run([python, "-c", RSATOOLBOX, *paths], capture_output=True, text=True, check=True)
    found = [line.split() for line in done.stdout.splitlines()]
    return {name: (float(value), float(each), float(pair)) for name, value, each, pair in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tiny sizes: does it run?")
    for name, default in (("layers", 13), ("examples", 10_000), ("columns", 768)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rsatoolbox", metavar="PYTHON", help="the Python where rsatoolbox is installed")
    args = parser.parse_args()
    size = Size(3, 300, 24) if args.small else Size(args.layers, args.examples, args.columns)
    pairs, load = size.layers**2, os.getloadavg()[0]
    a, b = layers(size, 0), layers(size, 1)
    sources = [lambda x=x: x for x in a], [lambda x=x: x for x in b]

    def ours(**options: object) -> Callable[[], dict[str, object]]:
        chosen = SimilarityOptions(resamples=0, threads=args.threads, neighbours=size.neighbours, **options)  # type: ignore[arg-type]
        return lambda: layer_pairs(*sources, options=chosen)

    layer_pairs([lambda: a[0][:50]], [lambda: b[0][:50]], options=SimilarityOptions(measures=tuple(Similarity)))
    memory_before = memory("VmRSS")
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")
    cpu, wall, found = timed(ours(draws=PERMUTATIONS))
    grown = memory("VmHWM") - memory_before
    rows = [["measure", "probekit, s", "wall, s", "loops, s", "times", "value", "difference"]]
    x, y = (z.astype(np.float64) for z in (a[0], b[-1]))
    theirs, _, value = timed(lambda: debiased_cka(x, y))
    loop = theirs * pairs * (1 + PERMUTATIONS)
    mine = found["cka"].value[0, -1]  # type: ignore[index]
    draws = found["cka"].draws  # type: ignore[index]
    total = [cpu, loop]

    def row(name: str, cpu: float, wall: float, loop: float, mine: float, value: float) -> list[str]:
        return [
            name, f"{cpu:,.1f}", f"{wall:,.1f}", f"{loop:,.0f}", f"{loop / cpu:,.0f}", f"{mine:.4f}",
            f"{abs(mine - value):.0e}",
        ]  # fmt: skip

    print(f"cka, {PERMUTATIONS:,} permutations: {cpu:,.1f} s, loops {loop:,.0f} s", flush=True)
    rows.append(row(f"cka, {PERMUTATIONS:,} permutations", cpu, wall, loop, mine, float(value)))  # type: ignore[arg-type]
    once = [0.0, 0.0]
    for name, formula in loops(size.neighbours).items():
        cpu, wall, got = timed(ours(measures=(name,), draws=0))
        theirs, _, value = timed(lambda f=formula: f(x, y))
        once = [once[0] + cpu, once[1] + theirs * pairs]
        rows.append(row(name, cpu, wall, theirs * pairs, got[name].value[0, -1], float(value)))  # type: ignore[index, arg-type]
        print(" | ".join(rows[-1]), flush=True)
    total = [total[0] + once[0], total[1] + once[1]]
    rows.append(["in total", f"{total[0]:,.1f}", "", f"{total[1]:,.0f}", f"{total[1] / total[0]:,.0f}", "", ""])
    print("\n" + table(rows))
    print(f"\nprobekit drew {draws:,} permutations; loops: one pair, multiplied by {pairs} and by the permutations.")
    goals = [
        Goal("times as fast as the loops in total", total[1] / total[0], least=20),
        Goal("MB beside the layers", grown, most=sum(z.nbytes for z in (*a, *b)) / 2**20 + 1500),
    ]
    if args.rsatoolbox:
        rows = [["rsatoolbox, all pairs once", "s", "probekit, s", "times", "difference"]]
        for name, (value, each, pair) in rsatoolbox(args.rsatoolbox, x, y).items():
            measure = {"corr": "rsa-pearson", "spearman": "rsa-spearman", "cosine": "rsa-cosine"}[name]
            cpu, _, got = timed(ours(measures=(measure,), draws=0))
            seconds = each * 2 * size.layers + pair * pairs
            difference = abs(got[measure].value[0, -1] - value)  # type: ignore[index]
            rows.append([measure, f"{seconds:,.0f}", f"{cpu:,.1f}", f"{seconds / cpu:,.0f}", f"{difference:.0e}"])
        print("\n" + table(rows))
    print("\n" + table([["what", "goal", "measured", "", ""], *(goal.row for goal in goals)]))
    if args.small:
        print("\nToo small for numbers that mean anything.")
    elif load > 0.5:
        print(
            f"\nThe machine was busy when this began (load {load:.1f}); seconds of the processor vary with that, too."
        )


if __name__ == "__main__":
    main()
