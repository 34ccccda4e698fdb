"""How often what probekit says is wrong: false positives and coverage, measured from features to what is printed.

    python benchmarks/calibration.py                      every case at its small size: minutes
    python benchmarks/calibration.py "intervals*" -n 500  some cases, so many runs each
    python benchmarks/calibration.py --nightly            every case at its full size
    python benchmarks/calibration.py --write              … and write each line of docs/tables/calibration.csv at once

A case simulates one experiment from its seed and says whether the claim came out false (``false positives``) or the
interval held the truth (``coverage``); None is a refusal, with a reason given to the user, and is counted apart. The
cases are in ``benchmarks/rates``, a file a subject. Results of one case, number of runs and state of the code are kept
in ``--results``, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import hashlib
import importlib
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

HERE = Path(__file__).parent
TABLE = HERE.parent / "docs" / "tables" / "calibration.csv"
SUBJECTS = TABLE.with_name("calibration-subjects.csv")
TITLES = ("case", "promised", "before", "now", "runs", "refused")
BEFORE: dict[str, str] = json.loads((HERE / "before.json").read_text())
"""What version 0.1 covered of the same draws, of intervals and differences: percentiles of the bootstrap."""
Outcome = bool | None


@dataclass(frozen=True, slots=True)
class Case:
    """One claim in one setting.

    Attributes
    ----------
    name : str
        "subject/setting".
    kind : str
        "false positives" (at most 5 % is right) or "coverage" (93 to 97 % is right; more where a table is degenerate).
    before : str
        What the version before measured, and with how many runs; "" where nobody did.
    runs, nightly : int
        Runs of the small and of the full size.
    nominal : float
        What the claim promises: .05, .95.
    """

    name: str
    kind: Literal["false positives", "coverage"]
    run: Callable[[np.random.Generator], Outcome]
    before: str = ""
    runs: int = 200
    nightly: int = 1000
    nominal: float = 0.05

    def ok(self, rate: float, error: float) -> bool:
        """Whether a rate bears the claim: it is not worse by two standard errors (for coverage: and by 2 points)."""
        if np.isnan(rate):
            return True
        if self.kind == "false positives":
            return rate <= self.nominal + 2 * error
        return rate >= self.nominal - max(0.02, 2 * error)


CASES: dict[str, Case] = {}


def case(name: str, kind: Literal["false positives", "coverage"], **more: Any) -> Callable[..., Any]:
    """Register a function of a generator as a case; ``before``, ``runs``, ``nightly``, ``nominal`` as of `Case`."""
    more["before"] = more.get("before") or BEFORE.get(name, "")
    more.setdefault("nominal", 0.05 if kind == "false positives" else 0.95)

    def register(run: Callable[[np.random.Generator], Outcome]) -> Callable[[np.random.Generator], Outcome]:
        if name in CASES:
            raise ValueError(f"two cases are called {name!r}")
        CASES[name] = Case(name, kind, run, **more)
        return run

    return register


def load() -> dict[str, int]:
    """Import every file of cases; how many each one registers."""
    found = {}
    sys.path[:0] = [str(HERE), str(HERE / "rates")]
    for path in sorted((HERE / "rates").glob("*.py")):
        before = len(CASES)
        importlib.import_module(path.stem)
        found[path.stem] = len(CASES) - before
    return found


def code() -> str:
    """A digest of what rates depend on: the package and the cases."""
    paths = [*sorted((HERE.parent / "probekit").rglob("*.py")), *sorted((HERE / "rates").glob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def _some(name: str, start: int, stop: int) -> list[Outcome]:
    from threadpoolctl import threadpool_limits

    if name not in CASES:
        load()
    with threadpool_limits(1):
        return [CASES[name].run(np.random.default_rng([zlib.crc32(name.encode()), i])) for i in range(start, stop)]


def measure(one: Case, runs: int, jobs: int) -> dict[str, Any]:
    """The rate of one case over so many runs, its Monte Carlo standard error, and the seconds it took."""
    from loky import get_reusable_executor

    began, step = time.perf_counter(), max(1, runs // (8 * jobs))
    pool = get_reusable_executor(max_workers=jobs)
    parts = pool.map(_some, *zip(*((one.name, a, min(a + step, runs)) for a in range(0, runs, step)), strict=True))
    found = [outcome for part in parts for outcome in part]
    return {**summed_up(one, found), "seconds": time.perf_counter() - began}


def summed_up(one: Case, found: Sequence[Outcome]) -> dict[str, Any]:
    """Rate and error of what the runs of a case said."""
    said = [outcome for outcome in found if outcome is not None]
    rate, error = float("nan"), float("nan")
    if said:
        rate = float(np.mean(said))
        # where nothing, or everything, came out by luck: at least half of the error of what is promised
        spread = max(rate * (1 - rate), one.nominal * (1 - one.nominal) / 4)
        error = float(np.sqrt(spread / len(said)))
    return {
        **{"rate": rate, "error": error, "runs": len(found)},
        **{"refused": len(found) - len(said), "ok": one.ok(rate, error)},
    }


def line(name: str, found: Mapping[str, Any]) -> list[str]:
    """The result of one case as cells below `TITLES`."""
    one = CASES[name]
    promised = f"≤ {100 * one.nominal:.3g}%" if one.kind == "false positives" else f"covers {100 * one.nominal:g}%"
    now = "refused" if np.isnan(found["rate"]) else f"{found['rate']:.1%} ± {found['error']:.1%}"
    mark = "" if found["ok"] else " **outside**"
    return [name, promised, one.before or "–", f"{now}{mark}", str(found["runs"]), str(found["refused"])]


def table(lines: Iterable[Sequence[str]]) -> str:
    """Lines as Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (TITLES, ["---"] * len(TITLES), *lines))


def subjects(lines: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """For each subject and promise: the cases with results, their mean and worst rate, how many are outside."""
    groups: dict[tuple[str, str], list[Sequence[str]]] = {}
    for cells in lines:
        if cells[3] != "refused":
            groups.setdefault((cells[0].split("/")[0], cells[1]), []).append(cells)
    for (subject, promised), group in sorted(groups.items()):
        rates = [float(cells[3].split("%")[0]) for cells in group]
        worst = group[int((np.argmax if "≤" in promised else np.argmin)(rates))]
        told = f"{worst[3]}: {worst[0].split('/', 1)[1]}"
        outside = sum("outside" in cells[3] for cells in group)
        yield [subject, promised, str(len(group)), f"{np.mean(rates):.1f}%", told, str(outside)]


def write(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Put results into the tables that docs/calibration.md shows; other cases stay as they were measured."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        kept = {cells[0]: cells for cells in csv.reader(file)}
    kept |= {name: line(name, found) for name, found in results.items()}
    lines = [[*kept[name][:2], one.before or "–", *kept[name][3:]] for name, one in CASES.items() if name in kept]
    save(TABLE, TITLES, lines)
    save(SUBJECTS, ("subject", "promised", "cases", "mean", "worst case", "outside"), subjects(lines))


def save(path: Path, titles: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Write a table of the pages."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([titles, *lines])


def main() -> int:
    """Measure what is asked for, print the table; 1 where a rate is outside what is promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=["*"], help="names, with * (all for none)")
    parser.add_argument("-n", "--runs", type=int, help="runs of each case, for its own small number")
    parser.add_argument("--nightly", action="store_true", help="the full number of runs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--results", type=Path, default=HERE / "calibration.json", help="where results are kept")
    parser.add_argument("--write", action="store_true", help="write their lines of docs/tables/calibration.csv")
    given = parser.parse_args()
    load()
    kept = json.loads(given.results.read_text()) if given.results.is_file() else {}
    names = [name for name in CASES if any(fnmatch.fnmatch(name, f"{pattern}*") for pattern in given.cases)]
    if not names:
        parser.error(f"no case is called that; there are {', '.join(CASES)}")
    results, now = {}, code()
    for name in names:
        one = CASES[name]
        runs = given.runs or (one.nightly if given.nightly else one.runs)
        if name not in kept or (kept[name]["runs"], kept[name].get("code")) != (runs, now):
            kept[name] = measure(one, runs, given.jobs) | {"code": now}
            given.results.write_text(json.dumps(kept, indent=1))
        results[name] = kept[name]
        if given.write:
            write({name: kept[name]})
        print(*line(name, kept[name]), f"{kept[name]['seconds']:.0f} s", sep=" | ", flush=True)
    print(f"\n{table(line(name, found) for name, found in results.items())}")
    return int(any(not found["ok"] for found in results.values()))


if __name__ == "__main__":  # as a module of its own name, so that the cases and the processes register with this one
    sys.path.insert(0, str(HERE))
    sys.exit(importlib.import_module("calibration").main())
