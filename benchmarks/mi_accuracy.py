"""How right each estimator of mutual information is, on samples whose mutual information is known (``mi_cases``).

    python benchmarks/mi_accuracy.py                           every case at 1,000 examples, the product's estimators
    python benchmarks/mi_accuracy.py --quick                   a minute: a look at whether everything runs
    python benchmarks/mi_accuracy.py --cases independent --n 50 200 1000 --repetitions 1000 --draws 199
    python benchmarks/mi_accuracy.py --estimators edge knn "hash, PCA 4" --cases "2 classes" xor --jobs 2 --out table

Bits throughout. ``bias`` and ``sd`` are of the reported value over repetitions; ``p ≤ .05`` is how often a test at 5 %
speaks: power, or where the truth is 0, false positives. ``covers`` is how often the 95 % interval holds the truth,
``own`` how often it holds the estimator's own mean, ``width`` is its mean width. ``open`` is the share of estimates
that are undetermined, which count in neither bias nor coverage. The same samples go to every estimator; pairs of
symbols go to "plug-in" alone, which is what the default makes of them. Estimators named "hash, …" are no part of the
product: they are designs that its default was chosen over.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from mi_cases import CASES
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

from probekit.errors import UsageError
from probekit.information.estimate import Information, p_value
from probekit.information.estimators import mutual_information
from probekit.information.hashing.null import measure
from probekit.information.options import InformationEstimator

QUICK = (
    "independent isotropic 10, 2 classes",
    "isotropic 10, 2 classes, 0.15",
    "score isotropic 10, 0.5",
    "xor 10, 1.0",
)
GRIDS = 20
Estimate = Callable[..., Information]


@dataclass(frozen=True, slots=True)
class Row:
    """What an estimator makes of a case, over ``runs`` samples of ``n`` examples; seconds of CPU are a median."""

    case: str
    n: int
    estimator: str
    truth: float
    error: float
    runs: int
    mean: float
    bias: float
    sd: float
    significant: float
    covers: float
    own: float
    width: float
    undetermined: float
    raw: float
    seconds: float


def adjusted_hash(
    x: np.ndarray, y: np.ndarray, *, project: Callable[..., np.ndarray], draws: int, seed: int
) -> Information:
    """The plain design: project, cut into buckets on shifted grids, average the plug-in, take off what noise gives."""
    rng = np.random.default_rng(seed)
    z = project(np.asarray(x, dtype=np.float64), rng)
    buckets = np.stack([_codes(np.floor(z + rng.random(z.shape[1]))) for _ in range(GRIDS)])
    found = measure(buckets, _labels(y), draws=draws, seed=seed)
    null = (found.null - found.null_mean) * found.scale
    spread = 1.96 * np.sqrt(found.scale**2 * found.terms.var() / len(x) + null.var())
    bound = min(found.entropy, np.log2(len(x)))
    low, value, high = (min(max(found.stretched + s, 0.0), bound) for s in (-spread, 0.0, spread))
    return Information(
        value, found.raw, found.entropy, len(x), "", null, found.null_mean, p_value(found.stretched, null), low, high
    )


def _codes(cells: np.ndarray) -> np.ndarray:
    return np.unique(cells, axis=0, return_inverse=True)[1].ravel().astype(np.int32)


def _labels(y: np.ndarray) -> np.ndarray:
    """Classes as they are; numbers in bins of equal mass; several columns of numbers in a grid of those."""
    if y.ndim == 1 and y.dtype.kind != "f":
        return _codes(y[:, None])
    y = y.reshape(len(y), -1)
    bins = max(2, round(2.5 * len(y) ** 0.25 / y.shape[1]))
    return _codes(np.floor(bins * (rankdata(y, axis=0) - 0.5) / len(y)))


def by_components(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The first four principal components of standardised columns, in deviations of their own."""
    x = x - x.mean(0)
    x /= np.where(x.std(0) > 0, x.std(0), 1)
    gram = x.T @ x if len(x) >= x.shape[1] else x @ x.T
    power, axes = np.linalg.eigh(gram)
    z = x @ axes[:, -4:] if len(x) >= x.shape[1] else axes[:, -4:] * np.sqrt(np.maximum(power[-4:], 0))
    return z / np.where(z.std(0) > 0, z.std(0), 1)


def by_chance(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The random projection of EDGE 4.3.1, in its own bandwidths."""
    n, d = x.shape
    r = min(d, int(np.log2(n / 10)))
    sd = x.std(0)
    z = x @ (rng.standard_normal((d, r)) / np.where(sd < 1e-4, 1, sd)[:, None] / np.sqrt(d))
    k = int(0.43 * n ** (2 / 3 + 0.17 * r / (r + 1)) * np.exp(-1 / max(1e4, r**4)))
    some = z[rng.integers(0, n, 500)]
    reach = [
        np.partition(np.abs(a[:, None] - b), k - 1, axis=1)[:, :k].max(1).mean()
        for a, b in zip(some.T, z.T, strict=True)
    ]
    return z / (0.9 * 3 * r * np.array(reach))


BEATEN: dict[str, Estimate] = {
    "hash, random projection": partial(adjusted_hash, project=by_chance),
    "hash, PCA 4": partial(adjusted_hash, project=by_components),
}


def estimate_of(name: str) -> Estimate:
    return BEATEN[name] if name in BEATEN else partial(mutual_information, estimator=name)


def there(names: Sequence[str]) -> list[str]:
    """The estimators that exist; the others are told of."""
    known = []
    for name in names:
        try:
            probe = np.random.default_rng(0).standard_normal((40, 2))
            estimate_of(name)(probe, np.arange(40) % 2, draws=1, seed=0)
        except UsageError as error:
            if "not there yet" in str(error):
                print(f"skipped: {error}", file=sys.stderr)
                continue
        known.append(name)
    return known


def runs(
    case: str, n: int, estimators: Sequence[str], repetitions: int, draws: int, seconds: float
) -> tuple[list[Row], list[str]]:
    """Rows of a case, and what was refused. After three samples, ``seconds`` of an estimator are enough."""
    made = CASES[case](case)
    found: dict[str, list[Information]] = {name: [] for name in estimators}
    times: dict[str, list[float]] = {name: [] for name in estimators}
    refused: dict[str, str] = {}
    for repetition in range(repetitions):
        x, y = made.make(np.random.default_rng([zlib.crc32(case.encode()), n, repetition]), n)
        for name in estimators:
            if (
                (name == InformationEstimator.PLUG_IN) != (x.ndim == 1)
                or name in refused
                or (repetition >= 3 and sum(times[name][1:]) > seconds)
            ):
                continue
            start = time.process_time()
            try:
                found[name].append(estimate_of(name)(x, y, draws=draws, seed=repetition))
            except UsageError as error:
                refused[name] = str(error)
            times[name].append(time.process_time() - start)
    rows = [
        summary(case, n, name, made.truth, made.error, found[name], times[name])
        for name in estimators if found[name] and name not in refused
    ]  # fmt: skip
    return rows, [f"{case}, n = {n}: {name} is left out: {why}" for name, why in refused.items()]


def summary(
    case: str, n: int, estimator: str, truth: float, error: float, found: list[Information], times: list[float]
) -> Row:
    value, low, high, p, raw = (
        np.array([getattr(f, key) for f in found], dtype=float) for key in ("value", "ci_low", "ci_high", "p", "raw")
    )
    said = np.isfinite(value)
    value, low, high = value[said], low[said], high[said]
    mean, bounded = _mean(value), np.isfinite(low)
    slack = 3 * error + 1e-9
    return Row(
        case=case,
        n=n,
        estimator=estimator,
        truth=truth,
        error=error,
        runs=len(found),
        mean=mean,
        bias=mean - truth,
        sd=float(value.std(ddof=1)) if len(value) > 1 else np.nan,
        significant=_mean((p <= 0.05)[np.isfinite(p)]),
        covers=_mean(((low - slack <= truth) & (truth <= high + slack))[bounded]),
        own=_mean(((low - 1e-9 <= mean) & (mean <= high + 1e-9))[bounded]),
        width=_mean((high - low)[bounded]),
        undetermined=1 - float(said.mean()),
        raw=_mean(raw),
        seconds=float(np.median(times)),
    )


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else np.nan


SHOWN = {
    "estimator": "24s", "truth": "7.3f", "runs": "5d", "mean": "7.3f", "bias": "+7.3f", "sd": "6.3f",
    "significant": "6.3f", "covers": "6.2f", "own": "6.2f", "width": "6.3f", "undetermined": "6.2f", "seconds": "8.4f",
}  # fmt: skip
HEADS = {"significant": "p ≤ .05", "undetermined": "open"}


def shown(row: Row) -> list[str]:
    cells = []
    for name, style in SHOWN.items():
        value = getattr(row, name)
        cells.append("–" if isinstance(value, float) and np.isnan(value) else format(value, style).strip())
    return cells


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Lines of Markdown, one table for each number of examples."""
    heads = ["case", *(HEADS.get(name, name) for name in SHOWN)]
    for n in sorted({row.n for row in rows}):
        yield f"\n**{n} examples**\n"
        lines = [heads, *([row.case, *shown(row)] for row in rows if row.n == n)]
        wide = [max(len(line[at]) for line in lines) for at in range(len(heads))]
        for at, line in enumerate(lines):
            left = [
                cell.ljust(w) if k < 2 else cell.rjust(w) for k, (cell, w) in enumerate(zip(line, wide, strict=True))
            ]
            yield "| " + " | ".join(left) + " |"
            if at == 0:
                yield "|" + "|".join("-" * (w + 1) + ("-" if k < 2 else ":") for k, w in enumerate(wide)) + "|"


def verdict(rows: Sequence[Row]) -> Iterator[str]:
    """For each estimator its worst and its usual; what is out of bounds by more than chance is named."""
    for name in dict.fromkeys(row.estimator for row in rows):
        own = [row for row in rows if row.estimator == name]
        real = [row for row in own if row.truth > 0 and np.isfinite(row.bias)]
        free = [row for row in own if row.truth == 0 and np.isfinite(row.significant)]
        if real:
            off = np.median([abs(row.bias) / row.truth for row in real])
            power = _mean(np.array([row.significant for row in real if np.isfinite(row.significant)]))
            yield f"{name}: |bias| / truth, median {off:.2f}; power, mean {power:.2f}"
        if free:
            worst = max(free, key=lambda row: row.significant)
            total = sum(row.significant * row.runs for row in free) / sum(row.runs for row in free)
            most = f"at most {worst.significant:.3f} ({worst.case}, n = {worst.n})"
            yield f"{name}: false positives {total:.3f} in all, {most}"
        for row in free:
            if row.significant > 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / row.runs):
                yield f"  too many false positives: {row.case}, n = {row.n}: {row.significant:.3f} of {row.runs}"
        for row in own:
            if row.runs > 2 and row.bias > 2.6 * row.sd / np.sqrt(row.runs) + 3 * row.error + 0.02:
                yield f"  above the truth: {row.case}, n = {row.n}: {row.mean:.3f} for {row.truth:.3f}"


def write_csv(rows: Sequence[Row], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(Row)])
        writer.writerows(map(astuple, rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=[""], help="those whose names hold one of these")
    parser.add_argument("--estimators", nargs="*", default=[*BEATEN, *InformationEstimator])
    parser.add_argument("--n", nargs="*", type=int, default=[1000])
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--draws", type=int, default=199)
    parser.add_argument("--seconds", type=float, default=20.0, help="for an estimator on a case, after three samples")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="writes OUT.csv and OUT.md")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    cases = [name for name in CASES if any(part in name for part in args.cases)]
    if args.quick:
        cases, args.n, args.repetitions, args.draws, args.seconds = list(QUICK), [200], 3, 19, 2.0
    estimators = there(args.estimators)
    rows: list[Row] = []
    with ProcessPoolExecutor(args.jobs, get_context("spawn"), threadpool_limits, (1,)) as pool:
        work = [
            pool.submit(runs, case, n, estimators, args.repetitions, args.draws, args.seconds)
            for case in cases for n in args.n
        ]  # fmt: skip
        for job in work:
            new, refused = job.result()
            rows += new
            for line in (*refused, *("  ".join([row.case, str(row.n), *shown(row)]) for row in new)):
                print(line, file=sys.stderr)
            if args.out:  # a run that is stopped leaves what it has
                write_csv(rows, args.out.with_suffix(".csv"))
    text = [*table(rows), "", *verdict(rows)]
    print("\n".join(text))
    if args.out:
        args.out.with_suffix(".md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
