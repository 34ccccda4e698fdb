"""How fast probes are fitted, beside scikit-learn, on the same work in one run; how right they are and what they hold.

    python benchmarks/probes.py                         all lines, most of the time scikit-learn's
    python benchmarks/probes.py --quick                 half a minute: does it run? Not a measurement
    python benchmarks/probes.py --lines 1,5             these lines of the list below
    python benchmarks/probes.py --cache sst2.train.h5   line 3, too: a layer of real activations (may be repeated)
    python benchmarks/probes.py --full                  all of scikit-learn's fits: hours

 1  8 C × (gold + 10 shufflings), ill-conditioned features        2  the same with 100 shufflings
 3  8 C × (gold + 10 shufflings) on a layer of a cache            4  5 folds × 8 C × 11, held-out metrics
 5  ridge, 8 alphas × 11 targets, leave-one-out                   6  bootstrap of 88 problems, two metrics
 7  online code: 10 prefixes × 8 C × 11                           8  6 and 50 classes, few rows: fits; 5 folds
 9  lines 1 and 5 on the GPU                                     10  tags of words, end to end: folds, controls, rows

Each side runs in a process of its own on one thread, with the same standardised features. Ours has them as a memory
map of float32, read within its time. scikit-learn's loops are sampled (gold and some shufflings, all C) and scaled up
by their number, unless --full. Seconds are the shortest of the repeats; peak memory counts from before the features
are read, so that it holds them. Logits, predictions and nats are compared with the optimum by Newton in float64.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cache import Goal, table
from probe_jobs import here
from probe_work import Found, Job, from_cache, synthetic, tagged

CS = [float(c) for c in np.logspace(-4, 3, 8)]
OWN_CS = [1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1, 1.0]  # those that probekit tries, of several classes
SOME_CS = OWN_CS[1::3]  # the same for scikit-learn until it has converged, which takes it long
ALPHAS = [float(a) for a in np.logspace(-2, 5, 8)]
LIMITS = {"nats": 1e-4, "rms": 1e-4, "differ": 2e-4}  # at C <= 1
CONSTANT = 128  # MB of peak memory that do not grow with the rows: pairs of L-BFGS, d × d matrices, libraries' buffers
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
LOOPS = {
    "default": {"dtype": "float64", "warm": False, "tol": 1e-4, "max_iter": 100},
    "float32 path": {"dtype": "float32", "warm": True, "tol": 1e-4, "max_iter": 100},
    "converged": {"dtype": "float64", "warm": False, "tol": 1e-6, "max_iter": 10_000},
}
"""scikit-learn as it comes; in float32, each C begun at the one before; and until its gradient is nothing."""


@dataclass(frozen=True)
class Loop:
    """Which of LOOPS, over how many label sets (gold, shufflings) and which C; the ratio wanted."""

    name: str
    sets: int
    goal: float | None = None
    Cs: tuple[float, ...] = tuple(CS)


@dataclass(frozen=True)
class Sizes:
    n: int = 67_349
    d: int = 768
    controls: tuple[int, int] = (10, 100)
    few: tuple[int, int] = (5_452, 384)
    classes: tuple[int, ...] = (6, 50)
    words: tuple[int, int] = (12_000, 3_000)  # train and dev, as wide as few
    folds: int = 5
    evaluated: int = 872
    resamples: int = 1000


QUICK = Sizes(
    n=1500,
    d=24,
    controls=(2, 4),
    few=(600, 16),
    classes=(6, 10),
    words=(900, 300),
    folds=3,
    evaluated=100,
    resamples=50,
)


@dataclass(frozen=True)
class Compared:
    """One piece of work, ours beside theirs: seconds (wall, CPU), peak MB, and the floor in CPU seconds."""

    line: int
    work: str
    peer: str
    ours: list[float]
    theirs: list[float]
    peak: float
    their_peak: float = 0.0
    floor: float = 0.0
    remark: str = ""


@dataclass
class Bench:
    """What was measured; a job that was is not again. ``answers``: files of models by features and name."""

    sizes: Sizes
    folder: Path
    measure: Callable[[Job], Found]
    full: bool
    repeats: int
    jobs: dict[str, Found] = field(default_factory=dict)
    answers: dict[str, dict[str, str]] = field(default_factory=dict)
    compared: list[Compared] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self, what: str, data: Path | str = "", **more: Any) -> Found:
        out = str(self.folder / f"{len(self.jobs)}.npz")
        job = Job(what, str(data), out, self.repeats, more)
        key = json.dumps(asdict(replace(job, out="")))
        if key not in self.jobs:
            told = [f"{k}={v}" for k, v in more.items() if isinstance(v, str | int | float)]
            print(" ".join([what, Path(data).name, *told]), file=sys.stderr, flush=True)
            self.jobs[key] = {"out": out, **self.measure(job)}
        return self.jobs[key]

    def data(self, n: int, d: int, classes: int) -> Path:
        """Synthetic features, made once."""
        folder = self.folder / f"{n}x{d}, {classes} classes"
        if not folder.exists():
            synthetic(folder, n, d, classes)
        return folder

    @property
    def large(self) -> Path:
        return self.data(self.sizes.n, self.sizes.d, 2)

    def floor(self, d: int, gram: float, columns: float, decompositions: int = 1) -> float:
        """CPU seconds of the float32 products that nothing spares, at the best rate measured here.

        gram : rows whose Gram matrix is summed, d(d + 1) FLOP each; columns : products of a row and a weight vector
            (2d FLOP), two of which are an evaluation of loss and slope
        """
        found = self.run("rates", d=d)
        return (gram * d * (d + 1) + 2 * d * columns) / max(found["rates"].values()) + decompositions * found["eigh"]

    def add(
        self, line: int, work: str, ours: Found, peer: str, theirs: list[float], goal: float | None, **more: Any
    ) -> None:
        seconds = [min(t[i] for t in ours["times"]) for i in (0, 1)]
        self.compared.append(Compared(line, work, peer, seconds, theirs, ours["peak"], **more))
        if goal is not None:
            for clock, mine, other in zip(("wall", "CPU"), seconds, theirs, strict=True):
                self.goals.append(Goal(f"{line}: {peer} / ours, {clock}", other / mine, goal, remark=work))
        if ours.get("unconverged"):
            self.notes.append(f"{line}: {ours['unconverged']} of our fits did not converge ({work}).")

    def hold(self, line: int, work: str, ours: Found, data: Path) -> None:
        """Peak memory against the layer's, once for a piece of work."""
        if any(goal.remark.startswith(work + ";") for goal in self.goals):
            return
        layer = (data / "x.npy").stat().st_size / 2**20
        remark = f"{work}; 1.5 × {layer:.0f} MB + {CONSTANT} MB; {ours['peak'] / layer:.2f} layers"
        self.goals.append(Goal(f"{line}: peak MB", ours["peak"], most=1.5 * layer + CONSTANT, remark=remark))


def total(fits: Sequence[dict[str, Any]], targets: int) -> list[float]:
    """Wall and CPU seconds of all fits of gold and ``targets`` - 1 shufflings, from those of gold and some."""
    gold, others = ([f["times"] for f in fits if (f["target"] > 0) == other] for other in (False, True))
    kinds = max(1, len({f["target"] for f in fits}) - 1)
    return [sum(t[i] for t in gold) + sum(t[i] for t in others) / kinds * (targets - 1) for i in (0, 1)]


def fits(bench: Bench, line: int, data: Path, targets: int, loops: Sequence[Loop], name: str) -> None:
    """Our fits beside loops of scikit-learn; one over gold alone is held against ours over gold alone."""
    n, d = np.load(data / "x.npy", mmap_mode="r").shape
    classes = int(np.load(data / "y.npy", mmap_mode="r").max()) + 1
    files = bench.answers.setdefault(str(data), {})
    for loop in loops:
        some = targets if bench.full else min(loop.sets, targets)
        of, Cs = 1 if some == 1 else targets, CS if bench.full else list(loop.Cs)
        ours = bench.run("our_fits", data, targets=of, Cs=Cs)
        peer = bench.run("their_fits", data, targets=some, Cs=Cs, **LOOPS[loop.name])
        files[loop.name] = peer["out"]
        floor = bench.floor(d, n, 4 * n * of * len(Cs) * (1 if classes == 2 else classes))
        work = f"{name}, {len(Cs)} C × {of}"
        remark = f"{len(peer['fits'])} of {of * len(Cs)} fits measured" if some < of else ""
        bench.add(line, work, ours, loop.name, total(peer["fits"], of), loop.goal, their_peak=peer["peak"],
                  floor=floor, remark=remark)  # fmt: skip
        if of == targets:
            files[f"ours, {of} label sets"] = ours["out"]
            bench.hold(line, work, ours, data)


def line_1(bench: Bench) -> None:
    converged = Loop("converged", 1, Cs=tuple(C for C in CS if C <= 0.1))  # the larger C take it minutes each
    loops = [Loop("default", 2, 200.0), Loop("float32 path", 2, 30.0), converged]
    fits(bench, 1, bench.large, 1 + bench.sizes.controls[0], loops, f"N={bench.sizes.n:,}, d={bench.sizes.d}")


def line_2(bench: Bench) -> None:
    loops = [Loop("default", 2, 400.0), Loop("float32 path", 2, 60.0)]
    fits(bench, 2, bench.large, 1 + bench.sizes.controls[1], loops, f"N={bench.sizes.n:,}, d={bench.sizes.d}")


def line_3(bench: Bench, caches: Sequence[Path], layer: str | None) -> None:
    if not caches:
        bench.notes.append("3: skipped, no cache of real activations was given (--cache TRAIN.h5).")
    for path in caches:
        folder = bench.folder / path.name
        name = f"{path.name} layer {from_cache(folder, path, layer, bench.sizes.n)}"
        n, d = np.load(folder / "x.npy", mmap_mode="r").shape
        loops = [Loop("default", 2, 150.0 if n > 50_000 else None), Loop("float32 path", 2)]
        fits(bench, 3, folder, 1 + bench.sizes.controls[0], loops, f"{name}, N={n:,}, d={d}")


def line_4(bench: Bench) -> None:
    n, folds, targets = bench.sizes.n, bench.sizes.folds, 1 + bench.sizes.controls[0]
    more: dict[str, Any] = {"Cs": CS, "folds": folds}
    ours = bench.run("our_folds", bench.large, targets=targets, **more)
    some = targets if bench.full else 2
    peer = bench.run("their_folds", bench.large, targets=some, **more)
    theirs = [folds * t for t in total(peer["fits"], targets)]
    columns = targets * len(CS) * n * (4 * (folds - 1) + 1) + 4 * n * targets
    work = f"{folds} folds × {len(CS)} C × {targets}, log loss and accuracy"
    off = max(abs(a - b) for a, b, C in zip(ours["losses"], peer["losses"], CS, strict=True) if C <= 1)
    remark = f"{len(peer['fits'])} of {folds * targets * len(CS)} fits measured; held-out losses within {off:.0e} nats"
    bench.add(4, work, ours, "default", theirs, 250.0, their_peak=peer["peak"], remark=remark,
              floor=bench.floor(bench.sizes.d, n, columns, folds + 1))  # fmt: skip
    bench.hold(4, work, ours, bench.large)


def line_5(bench: Bench) -> None:
    n, d, targets = bench.sizes.n, bench.sizes.d, 1 + bench.sizes.controls[0]
    ours = bench.run("our_ridge", bench.large, targets=targets, alphas=ALPHAS)
    peer = bench.run("their_ridge", bench.large, alphas=ALPHAS)
    work = f"ridge, {len(ALPHAS)} alphas × {targets}, leave-one-out"
    off = abs(ours["leave_one_out"] / peer["leave_one_out"] - 1)
    # targets by rows, rows turned, leverages of each alpha, predictions of each model
    floor = bench.floor(d, n, n * (targets + d + len(ALPHAS) + targets * len(ALPHAS)))
    bench.add(5, work, ours, "RidgeCV, one target", peer["times"][0], 15.0, their_peak=peer["peak"], floor=floor,
              remark=f"leave-one-out errors within {off:.0e} of its")  # fmt: skip
    bench.hold(5, work, ours, bench.large)


def line_6(bench: Bench) -> None:
    problems, resamples = len(CS) * (1 + bench.sizes.controls[0]), bench.sizes.resamples
    sample = resamples if bench.full else max(10, resamples // 2)
    more: dict[str, Any] = {"n": bench.sizes.evaluated, "problems": problems, "resamples": resamples, "sample": sample}
    ours = bench.run("our_bootstrap", **more)
    peer = bench.run("their_bootstrap", **more, seed=ours["seed"])
    theirs = [t * problems * resamples / sample for t in peer["times"][0]]
    off = np.abs(np.subtract(ours["replicates"], peer["replicates"])).max()
    work = f"bootstrap, {resamples:,} × {problems} problems, accuracy and Matthews, n={bench.sizes.evaluated}"
    bench.add(6, work, ours, "metrics in a loop", theirs, 2000.0,
              remark=f"{sample} resamples of one problem measured; values within {off:.0e}")  # fmt: skip


def line_7(bench: Bench) -> None:
    n, d, targets = bench.sizes.n, bench.sizes.d, 1 + bench.sizes.controls[0]
    ours = bench.run("our_online", bench.large, targets=targets, Cs=CS)
    if "skipped" in ours:
        bench.notes.append(f"7: skipped, {ours['skipped']}")
        return
    peer = bench.run("their_online", bench.large, targets=targets if bench.full else 2, Cs=CS)
    fitted = n  # the prefixes together: 1/1000 + … + 1/2
    columns = targets * len(CS) * (4 * fitted + n)
    off = max(abs(a - b) for a, b, C in zip(ours["bits"], peer["bits"], CS, strict=True) if C <= 1) / n
    work = f"online code, {ours['portions']} prefixes × {len(CS)} C × {targets}"
    bench.add(7, work, ours, "default", total(peer["fits"], targets), 80.0, their_peak=peer["peak"],
              floor=bench.floor(d, n / 2, columns, ours["portions"]),
              remark=f"{len(peer['fits'])} of {ours['portions'] * len(CS) * targets} fits measured; "
              f"bits an example within {off:.0e} (prefixes standardised apart by us)")  # fmt: skip
    bench.hold(7, work, ours, bench.large)


def line_8(bench: Bench) -> None:
    (n, d), targets, folds = bench.sizes.few, 1 + bench.sizes.controls[0], bench.sizes.folds
    for classes in bench.sizes.classes:
        data, name = bench.data(n, d, classes), f"N={n:,}, d={d}, {classes} classes"
        goal = 8.0 if classes > 20 else 20.0
        loops = [Loop("default", 2, Cs=tuple(OWN_CS)), Loop("converged", 2, goal, Cs=tuple(SOME_CS))]
        fits(bench, 8, data, targets, loops, name)
        more: dict[str, Any] = {"Cs": OWN_CS, "folds": folds}
        ours = bench.run("our_folds", data, targets=targets, **more)
        some = targets if bench.full else 2
        peer = bench.run("their_folds", data, targets=some, **more)
        theirs = [folds * t for t in total(peer["fits"], targets)]
        columns = classes * targets * len(OWN_CS) * n * (4 * (folds - 1) + 1)
        best = OWN_CS[int(np.argmin(peer["losses"]))]
        work = f"{name}, {folds} folds × {len(OWN_CS)} C × {targets}"
        bench.add(8, work, ours, "default", theirs, goal, their_peak=peer["peak"],
                  floor=bench.floor(d, n, columns, folds + 1),
                  remark=f"{len(peer['fits'])} of {folds * targets * len(OWN_CS)} fits measured; C of gold here "
                  f"{ours['chosen'][0]:g}, there on the first fold {best:g}")  # fmt: skip
        bench.hold(8, work, ours, data)


def line_9(bench: Bench) -> None:
    card = bench.run("cuda")["name"]
    if not card:
        bench.notes.append("9: no CUDA device here.")
        return
    targets = 1 + bench.sizes.controls[0]
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        (f"{len(CS)} C × {targets}", "our_fits", {"Cs": CS}),
        (f"ridge, {len(ALPHAS)} alphas × {targets}", "our_ridge", {"alphas": ALPHAS}),
    ]
    for work, what, more in kinds:
        cpu = bench.run(what, bench.large, targets=targets, **more)
        gpu = bench.run(what, bench.large, targets=targets, **more, device="cuda")
        theirs = [min(t[i] for t in cpu["times"]) for i in (0, 1)]
        bench.add(9, f"{work} on {card}", gpu, "ours on one CPU core", theirs, None)
        if what == "our_fits":
            bench.answers.setdefault(str(bench.large), {})["ours, cuda"] = gpu["out"]


def line_10(bench: Bench) -> None:
    (train, dev), d, folds = bench.sizes.words, bench.sizes.few[1], 5
    folder = bench.folder / f"{train + dev} words"
    if not folder.exists():
        tagged(folder, train + dev, d)
    for loop, Cs in (("default", OWN_CS), ("converged", OWN_CS if bench.full else SOME_CS)):
        ours = bench.run("our_words", folder, train=train, Cs=Cs)
        how = {name: LOOPS[loop][name] for name in ("tol", "max_iter")}
        peer = bench.run("their_words", folder, train=train, Cs=Cs, loop=how)
        seconds = [folds * sum(fit["times"][i] for fit in peer["fits"]) for i in (0, 1)]
        off = abs(min(f["loss"] for f in peer["fits"] if f["target"] == 0) - ours["losses"]["gold"])
        work = f"17 tags of {train:,} words, d={d}, end to end: {folds} folds × {len(Cs)} C × 3, and dev"
        columns = 17 * 3 * len(Cs) * train * (4 * (folds - 1) + 1)
        bench.add(10, work, ours, loop, seconds, 20.0, their_peak=peer["peak"], floor=bench.floor(d, train, columns, 6),
                  remark=f"the fits of its first fold are measured ({len(peer['fits'])}), no other work; least held-"
                  f"out loss of gold there within {off:.1e} of ours on all folds")  # fmt: skip
        bench.hold(10, work, ours, folder)


def agree(bench: Bench) -> list[list[str]]:
    """Of all features: how far answers are from the optimum, the worst of what is compared; goals for ours."""
    rows = [["features", "answer"]]
    rows[0] += [f"{what}, C {which} 1" for what in ("nats", "RMS", "differ") for which in "≤>"] + [
        "gold's accuracy, C=1"
    ]
    for data, files in bench.answers.items():
        grids = [set(np.load(path)["Cs"].tolist()) for path in files.values()]
        found = bench.run("agreement", data, answers=files, Cs=sorted(set.intersection(*grids)))["answers"]
        for answer in files:
            mine = [a for a in found if a["answer"] == answer]

            def worst(what: str, which: str = "≤", mine: list[dict[str, Any]] = mine) -> float:
                return max((a[what] for a in mine if (a["C"] > 1) == (which == ">")), default=np.nan)

            accuracy = [a["accuracy"] for a in mine if a["target"] == 0 and a["C"] == 1]
            shown = [f"{worst(what, which):.1e}" for what in LIMITS for which in "≤>"]
            rows.append([Path(data).name, answer, *shown, f"{(accuracy or [np.nan])[0]:.4f}"])
            rows[-1] = ["–" if cell == "nan" else cell for cell in rows[-1]]
            if answer.startswith("ours"):
                remark = f"{Path(data).name}; the logits' own RMS is up to {worst('size'):.1f}"
                bench.goals += [
                    Goal(f"{what}, C ≤ 1: {answer}", worst(what), most=most, remark=remark)
                    for what, most in LIMITS.items()
                ]
        if (left := max(a["decrement"] for a in found)) > 1e-8:
            bench.notes.append(f"{Path(data).name}: the optimum itself is open by a decrement of {left:.0e}.")
    return rows


def show(bench: Bench, agreement: list[list[str]]) -> None:
    head = ["", "work", "against", "ours, s", "CPU", "theirs, s", "CPU", "ratio", "CPU", "floor, CPU s", "MB", "theirs"]
    rows = [head]
    for c in bench.compared:
        ratios = [f"{b / a:,.1f}" for a, b in zip(c.ours, c.theirs, strict=True)]
        rows.append([
            str(c.line), c.work, c.peer, *(f"{s:.3g}" for s in c.ours), *(f"{s:,.1f}" for s in c.theirs), *ratios,
            f"{c.floor:.2f}" if c.floor else "", f"{c.peak:,.0f}", f"{c.their_peak:,.0f}" if c.their_peak else "",
        ])  # fmt: skip
    if len(rows) > 1:
        print("\n" + table(rows))
        for remark in dict.fromkeys(f"{c.line}, {c.peer}: {c.remark}." for c in bench.compared if c.remark):
            print("  " + remark)
    for found in (found for found in bench.jobs.values() if "rates" in found):
        said = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in found["rates"].items())
        print(f"  GFLOP/s in float32: {said}; decomposition {found['eigh']:.2f} s")
    if len(agreement) > 1:
        print(
            "\nAbove the float64 optimum on the rows fitted, the worst of gold and (C ≤ 1) a shuffling; and accuracy:"
        )
        print(table(agreement))
    if bench.goals:
        print("\n" + table([["what", "goal", "measured", "", ""], *(goal.row for goal in bench.goals)]))
    print("\n" + "\n".join(bench.notes))


def apart(job: Job) -> Found:
    """What the job measures, in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("probe_jobs.py")), json.dumps(asdict(job))]
    done = subprocess.run(command, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{job.what} failed with status {done.returncode}.")
    return json.loads(done.stdout.splitlines()[-1])


def busy(bench: Bench, load: float) -> None:
    """Say so where something else ran beside: load before the start, or work that waited for the processor."""
    if load > 0.5:
        bench.notes.append(
            f"The machine was busy when this began (load {load:.1f}): wall seconds are not to be quoted."
        )
    waited = max((c.ours[0] / max(c.ours[1], 1e-3) for c in bench.compared if "ours on" not in c.peer), default=1.0)
    if waited > 1.1:
        bench.notes.append(f"Our work waited for the processor: wall seconds up to {waited:.2f} × CPU seconds.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", default="1,2,3,4,5,6,7,8,9,10", help="numbers with commas between")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, all in one process: does it run?")
    parser.add_argument("--full", action="store_true", help="all of scikit-learn's fits are measured, none scaled up")
    parser.add_argument("--cache", type=Path, action="append", default=[], help="a cache of train, for line 3")
    parser.add_argument("--layer", help="of the cache; the middle one by default")
    parser.add_argument("--repeats", type=int, default=3, help="of our side, at most, within ten seconds")
    parser.add_argument("--work", type=Path, help="folder for a gigabyte of features; a temporary one by default")
    parser.add_argument("--json", type=Path, help="all measurements go here too")
    args = parser.parse_args()
    lines: dict[int, Callable[[Bench], None]] = {
        **{1: line_1, 2: line_2, 3: partial(line_3, caches=args.cache, layer=args.layer)},
        **{4: line_4, 5: line_5, 6: line_6, 7: line_7, 8: line_8, 9: line_9, 10: line_10},
    }
    wanted = [int(number) for number in args.lines.split(",")]
    if unknown := [number for number in wanted if number not in lines]:
        raise SystemExit(f"there is no line {unknown[0]}; the lines are 1 to {len(lines)}.")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="probekit-benchmark-", dir=args.work) as work:
        measure = here if args.quick else apart
        repeats = 1 if args.quick else args.repeats
        bench = Bench(QUICK if args.quick else Sizes(), Path(work), measure, args.full, repeats)
        for number in wanted:
            lines[number](bench)
        agreement = agree(bench)
    if args.quick:
        bench.notes.append("Too small for numbers that mean anything; peak memory is that of one process for all.")
    else:
        busy(bench, load)
    show(bench, agreement)
    if args.json:
        kept = ("compared", "goals", "notes")
        out = {name: [asdict(v) if name != "notes" else v for v in getattr(bench, name)] for name in kept}
        every = [a for found in bench.jobs.values() for a in found.get("answers", ())]
        args.json.write_text(json.dumps({**out, "agreement": every, "jobs": bench.jobs}, indent=1))


if __name__ == "__main__":
    main()
