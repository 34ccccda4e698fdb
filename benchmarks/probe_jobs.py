"""What a process of ``probes.py`` measures: a side's seconds and memory on one piece of work, and how right it is."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from measures import best, cpu_seconds, memory

ENOUGH = 10.0  # seconds after which nothing is repeated
EXACT = 1e-9  # the Newton decrement of an optimum: logits within 1e-6
Found = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What is measured, ``what`` by name, on the features and labels in the folder ``data``; models go to ``out``."""

    what: str
    data: str = ""
    out: str = ""
    repeats: int = 3
    more: dict[str, Any] = field(default_factory=dict)


def synthetic(folder: Path, n: int, d: int, classes: int) -> None:
    """Ill-conditioned features and labels that a linear probe finds in part.

    Two classes: about .8 of the labels can be told from the features. More: a mean for each class, as many rows of
    each as TREC's coarse (6) classes have, or a tail as long as that of its fine ones (50).
    """
    rng = np.random.default_rng(0)
    strength = np.logspace(0, -2.5 if classes == 2 else -1.5, d)
    z = rng.standard_normal((n, d), dtype=np.float32)
    if classes == 2:
        w = rng.standard_normal(d) * np.sqrt(strength)  # the weak directions tell something, too
        logits = (z @ (w / np.linalg.norm(w)).astype(np.float32)) * 2.1
        y = (rng.random(n) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    else:
        share = np.array([1250, 1223, 1162, 896, 835, 86.0]) if classes == 6 else np.geomspace(962, 4, classes)
        count = np.maximum(2, n * share / share.sum()).astype(int)
        count[0] += n - count.sum()
        y = rng.permutation(np.repeat(np.arange(classes), count))
        z += 8 * (rng.standard_normal((classes, d)) / np.sqrt(d)).astype(np.float32)[y]
    mixing = rng.standard_normal((d, d)).astype(np.float32) * strength.astype(np.float32)[:, None]
    save(folder, z @ mixing, y)


def from_cache(folder: Path, path: Path, layer: str | None, most: int) -> str:
    """The pooled vectors and labels of a layer, the middle one by default: nine rows in ten, as when C is chosen."""
    from probekit import ActivationCache

    with ActivationCache(path) as cache:
        layer = layer or str(cache.layers[len(cache.layers) // 2])
        labels = np.asarray(cache.labels)
        rows = np.flatnonzero(labels >= 0)
        rows = rows[np.random.default_rng(0).permutation(len(rows)) % 10 > 0][:most]
        y = np.unique(labels[rows], return_inverse=True)[1]
        save(folder, np.array(cache.layer(layer)[rows], dtype=np.float32), y)
    return layer


def save(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Standardised float32 features and class indices; features that hardly vary are zero."""
    mean, sd = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    scale = np.divide(1, sd, out=np.zeros_like(sd), where=sd > 1e-5 * np.abs(mean))
    folder.mkdir(exist_ok=True)
    np.save(folder / "x.npy", ((x - mean.astype(np.float32)) * scale.astype(np.float32)))
    np.save(folder / "y.npy", y.astype(np.int64))


def features(job: Job, dtype: str | None = None) -> np.ndarray:
    """A memory map of float32; an array where a dtype is named."""
    x = np.load(Path(job.data) / "x.npy", mmap_mode="r")
    return x if dtype is None else np.array(x, dtype=dtype)


def label_sets(job: Job, targets: int) -> np.ndarray:
    """Gold and its shufflings, int64 (targets, n)."""
    y, rng = np.load(Path(job.data) / "y.npy"), np.random.default_rng(1)
    return np.stack([y, *(rng.permutation(y) for _ in range(targets - 1))])


def numbers(job: Job, targets: int) -> np.ndarray:
    """Values that the features tell in part, and shufflings of them, float64 (targets, n)."""
    x, rng = features(job), np.random.default_rng(2)
    y = (x @ rng.standard_normal(x.shape[1]).astype(np.float32)).astype(np.float64)
    y += y.std() * rng.standard_normal(len(y))
    return np.stack([y, *(rng.permutation(y) for _ in range(targets - 1))])


def start_memory() -> float:
    """MB in use; the peak counts from here."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def timed(work: Callable[[], Any]) -> tuple[Any, list[float]]:
    """What it returns; wall and CPU seconds."""
    wall, cpu = time.perf_counter(), sum(cpu_seconds())
    result = work()
    return result, [time.perf_counter() - wall, sum(cpu_seconds()) - cpu]


def repeated(job: Job, work: Callable[[int], Any], loaded: float) -> tuple[Any, Found]:
    """Seconds of each of some runs of ``work(turn)``, and the peak MB above what was loaded."""
    times: list[list[float]] = []
    while len(times) < job.repeats and sum(t[0] for t in times) < ENOUGH:
        result, seconds = timed(partial(work, len(times)))
        times.append(seconds)
    return result, {"times": times, "peak": memory("VmHWM") - loaded}


def our_fits(job: Job) -> Found:
    """All targets × Cs at once; the models of the first two targets are kept."""
    from probekit.probes.solvers.logistic import fit_logistic

    codes, device = label_sets(job, job.more["targets"]), job.more.get("device", "cpu")
    loaded, classes = start_memory(), int(codes.max()) + 1
    x = features(job)
    fit, found = repeated(
        job, lambda _: fit_logistic(x, codes, classes, job.more["Cs"], standardise=False, device=device), loaded
    )
    intercepts = fit.intercepts - np.einsum("tckd,d->tck", fit.weights, fit.centre)
    np.savez(job.out, w=fit.weights[:2], b=intercepts[:2])
    return {**found, "iterations": [int(i) for i in fit.iterations.max(0)], "unconverged": int((~fit.converged).sum())}


def their_fits(job: Job) -> Found:
    """scikit-learn's LogisticRegression in a loop over label sets and Cs; seconds of each fit."""
    from sklearn.linear_model import LogisticRegression

    more, Cs = job.more, job.more["Cs"]
    codes = label_sets(job, more["targets"])
    loaded = start_memory()
    x, fits = features(job, more["dtype"]), []
    k = 1 if codes.max() == 1 else int(codes.max()) + 1
    w, b = np.zeros((len(codes), len(Cs), k, x.shape[1])), np.zeros((len(codes), len(Cs), k))
    for t, y in enumerate(codes):
        model = LogisticRegression(warm_start=more["warm"], tol=more["tol"], max_iter=more["max_iter"])
        for c, C in enumerate(Cs):
            model.set_params(C=C)
            _, seconds = timed(partial(model.fit, x, y))
            w[t, c], b[t, c] = model.coef_, model.intercept_
            fits.append({"target": t, "C": C, "times": seconds, "iterations": int(model.n_iter_.max())})
    np.savez(job.out, w=w, b=b)
    return {"fits": fits, "peak": memory("VmHWM") - loaded}


def agreement(job: Job) -> Found:
    """How far answers (files of models, by name) are from the float64 optimum of each target and C.

    Nats by which the objective Σ loss + |w|²/2C is above its minimum, over all rows; root mean square of the logits'
    difference, and of the logits; share of rows whose prediction differs; accuracy on the rows fitted. Of gold for all
    C, of a shuffling for C <= 1.
    """
    x = features(job, "float64")
    x = np.concatenate([x, np.ones((len(x), 1))], 1)
    answers = {name: dict(np.load(path)) for name, path in job.more["answers"].items()}
    models = {name: np.concatenate([a["w"], a["b"][..., None]], -1) for name, a in answers.items()}
    gram, out = x.T @ x, []
    [known, *_] = [m for name, m in models.items() if name.startswith("ours")]
    codes = label_sets(job, len(known))
    for t, y in enumerate(codes):
        for c, C in ((c, C) for c, C in enumerate(job.more["Cs"]) if t == 0 or C <= 1):
            mine = {name: m[t, c] for name, m in models.items() if t < len(m) and c < m.shape[1]}
            right = optimum(x, gram, y, C, known[t, c])
            z0, best_f = x @ right.w.T, right.objective
            for name, w in mine.items():
                z = x @ w.T
                off = z - z0
                if z.shape[1] > 1:  # what all classes have in common says nothing
                    off -= off.mean(1, keepdims=True)
                said = [(v[:, 0] > 0) if v.shape[1] == 1 else v.argmax(1) for v in (z, z0)]
                out.append({
                    "answer": name, "classes": int(y.max()) + 1, "target": t, "C": C, "decrement": right.decrement,
                    "nats": objective(z, y, w, C) - best_f,
                    "rms": float(np.sqrt((off**2).mean())), "size": float(np.sqrt((z0**2).mean())),
                    "differ": float((said[0] != said[1]).mean()), "accuracy": float((said[0] == y).mean()),
                })  # fmt: skip
    return {"answers": out}


def objective(z: np.ndarray, y: np.ndarray, w: np.ndarray, C: float) -> float:
    from scipy.special import logsumexp

    right = z[:, 0] * (2 * y - 1) if z.shape[1] == 1 else z[np.arange(len(y)), y] - logsumexp(z, 1)
    loss = np.logaddexp(0, -right) if z.shape[1] == 1 else -right
    return float(loss.sum() + (w[:, :-1] ** 2).sum() / (2 * C))


@dataclass(frozen=True)
class Optimum:
    w: np.ndarray
    objective: float
    decrement: float


def optimum(x: np.ndarray, gram: np.ndarray, y: np.ndarray, C: float, w: np.ndarray) -> Optimum:
    """Newton's method in float64, begun at ``w`` (1 or classes, d + 1), its equations solved by conjugate gradients.

    It ends where gᵀM⁻¹g is nothing, M being the Hessian with one curvature a class instead of one a row.
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.special import expit, softmax

    k, ridge = len(w), np.full(x.shape[1], 1 / C)
    ridge[-1] = 0
    hot = y[:, None] if k == 1 else np.eye(k)[y]
    z = x @ w.T
    now, decrement = objective(z, y, w, C), np.inf
    for _ in range(30):
        p = expit(z) if k == 1 else softmax(z, 1)
        factors = [cho_factor(m * gram + np.diag(ridge + 1e-9)) for m in (p * (1 - p)).mean(0) + 1e-12]
        g = (p - hot).T @ x + ridge * w

        def curved(v: np.ndarray, p: np.ndarray = p) -> np.ndarray:
            q = p * (x @ v.T)
            q -= p * (q if k == 1 else q.sum(1, keepdims=True))
            return q.T @ x + ridge * v

        def solved(v: np.ndarray, factors: Any = factors) -> np.ndarray:
            return np.stack([cho_solve(f, row) for f, row in zip(factors, v, strict=True)])

        decrement = float((g * solved(g)).sum())
        if decrement <= EXACT:
            break
        step = conjugate_gradients(curved, solved, g)
        for _ in range(20):
            new_z = x @ (w - step).T
            if (new := objective(new_z, y, w - step, C)) <= now + 1e-9 * abs(now):
                break
            step /= 2
        w, z, now = w - step, new_z, new
    return Optimum(w, now, decrement)


def conjugate_gradients(curved: Callable, solved: Callable, g: np.ndarray) -> np.ndarray:
    """Of H s = g, until the residual has a thousandth of what it had, measured by the preconditioner."""
    s, r = np.zeros_like(g), g.copy()
    q = solved(r)
    along, size = q.copy(), (r * q).sum()
    first = size
    for _ in range(500):
        h = curved(along)
        length = size / (along * h).sum()
        s, r = s + length * along, r - length * h
        q = solved(r)
        size, before = (r * q).sum(), size
        if size <= 1e-6 * first:
            break
        along = q + size / before * along
    return s


def folds_of(n: int, folds: int) -> np.ndarray:
    return np.random.default_rng(3).permutation(n) % folds


def our_folds(job: Job) -> Found:
    """Folds × Cs × targets with log loss and accuracy of what is held out, and the best C fitted again on all rows."""
    from probekit.probes.protocol.selection import Estimator, Problem, select

    codes, folds = label_sets(job, job.more["targets"]), job.more["folds"]
    loaded = start_memory()
    x = features(job)
    fold = folds_of(len(x), folds)
    rows, Cs = np.arange(len(x)), tuple(job.more["Cs"])
    problem = Problem(x, rows, codes, 2, fold, Estimator.LOGISTIC, Cs)
    seen: list[np.ndarray] = []

    def both(y: np.ndarray, predicted: np.ndarray, loss: np.ndarray | None) -> np.ndarray:
        assert loss is not None
        first = int((fold == 0).sum())
        seen[:] = [loss[0, :, :first].mean(1, dtype=np.float64), (predicted == y[:, None]).mean(2)]
        return loss.mean(2)

    chosen, found = repeated(job, lambda _: select(problem, both), loaded)
    return {**found, "losses": seen[0].tolist(), "unconverged": int((~chosen.converged).sum())}


def their_folds(job: Job) -> Found:
    """The default loop on the first fold; log loss and accuracy of what it holds out."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, log_loss

    codes, Cs = label_sets(job, job.more["targets"]), job.more["Cs"]
    loaded = start_memory()
    x = features(job, "float64")
    held = folds_of(len(x), job.more["folds"]) == 0
    (train, test), fits, losses = (x[~held], x[held]), [], []

    def fit(y: np.ndarray, C: float) -> float:
        p = LogisticRegression(C=C).fit(train, y[~held]).predict_proba(test)
        accuracy_score(y[held], p.argmax(1))
        return float(log_loss(y[held], p))

    for t, y in enumerate(codes):
        for C in Cs:
            loss, seconds = timed(partial(fit, y, C))
            fits.append({"target": t, "C": C, "times": seconds})
            losses += [loss] if t == 0 else []
    return {"fits": fits, "losses": losses, "peak": memory("VmHWM") - loaded}


def our_ridge(job: Job) -> Found:
    from probekit.probes.solvers.ridge import fit_ridge

    y = numbers(job, job.more["targets"])
    loaded = start_memory()
    x, device = features(job), job.more.get("device", "cpu")
    fit, found = repeated(
        job,
        lambda _: fit_ridge(x, y, job.more["alphas"], standardise=False, leave_one_out=True, device=device),
        loaded,
    )
    return {**found, "leave_one_out": float(fit.leave_one_out[0].min())}


def their_ridge(job: Job) -> Found:
    from sklearn.linear_model import RidgeCV

    [y] = numbers(job, 1)
    loaded = start_memory()
    x = features(job, "float64")
    model, seconds = timed(lambda: RidgeCV(alphas=job.more["alphas"]).fit(x, y))
    return {"times": [seconds], "leave_one_out": -float(model.best_score_), "peak": memory("VmHWM") - loaded}


def answers(job: Job) -> tuple[np.ndarray, np.ndarray]:
    """Gold and predicted labels of problems, (problems, n): right about four times in five."""
    n, rng = job.more["n"], np.random.default_rng(4)
    gold = rng.integers(2, size=(job.more["problems"], n))
    return gold, gold ^ (rng.random(gold.shape) < 0.2)


def our_bootstrap(job: Job) -> Found:
    """Each run draws anew: its seed is its own."""
    from probekit.statistics.bootstrap import replicates

    gold, predicted = answers(job)
    loaded = start_memory()

    def both(turn: int) -> list[np.ndarray]:
        more = {"resamples": job.more["resamples"], "seed": turn}
        return [replicates(gold, predicted, metric, **more) for metric in ("accuracy", "matthews")]

    both(job.repeats)
    replicated, found = repeated(job, both, loaded)
    first = [r[0, : job.more["sample"]].tolist() for r in replicated]
    return {**found, "replicates": first, "seed": len(found["times"]) - 1}


def their_bootstrap(job: Job) -> Found:
    """scikit-learn's metrics on the rows that each resample drew, ours, so that the values can be compared."""
    from sklearn.metrics import accuracy_score, matthews_corrcoef

    from probekit.statistics.bootstrap import draws

    gold, predicted = answers(job)
    drawn = next(iter(draws(job.more["n"], job.more["resamples"], job.more["seed"])))[: job.more["sample"]]
    values = np.empty((2, len(drawn)))

    def loop() -> None:
        for i, count in enumerate(drawn):
            rows = np.repeat(np.arange(job.more["n"]), count.astype(int))
            values[:, i] = [f(gold[0, rows], predicted[0, rows]) for f in (accuracy_score, matthews_corrcoef)]

    _, seconds = timed(loop)
    return {"times": [seconds], "replicates": values.tolist()}


def prefixes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The order in which online_code(seed=0) sends rows, and where its portions end."""
    from probekit.probes.codes.online import FRACTIONS

    order = np.argsort(np.random.default_rng(0).permutation(n), kind="stable")
    return order, np.unique(np.round(np.asarray(FRACTIONS) * n)).astype(int)


def our_online(job: Job) -> Found:
    try:
        from probekit.probes.codes.online import online_code
    except ImportError as missing:
        return {"skipped": f"online codes are not there: {missing}"}
    codes = label_sets(job, job.more["targets"])
    loaded = start_memory()
    x = features(job)
    code, found = repeated(job, lambda _: online_code(x, codes.T, Cs=job.more["Cs"]), loaded)
    return {**found, "bits": code.portions[0].sum(1).tolist(), "portions": len(code.ends) - 1,
            "unconverged": int((~code.converged).sum())}  # fmt: skip


def their_online(job: Job) -> Found:
    """The default loop: each portion predicted by a fit of its own on what is before it; prefixes of one class none."""
    from sklearn.linear_model import LogisticRegression

    codes, Cs = label_sets(job, job.more["targets"]), job.more["Cs"]
    loaded = start_memory()
    x = features(job, "float64")
    order, ends = prefixes(len(x))
    x, codes = x[order], codes[:, order]
    fits, bits = [], np.full(len(Cs), float(ends[0]))
    for t, y in enumerate(codes):
        for c, C in enumerate(Cs):
            for sent, end in pairwise(ends):
                if y[:sent].min() == y[:sent].max():
                    p, seconds = np.full((end - sent, 2), 0.5), [0.0, 0.0]
                else:
                    p, seconds = timed(
                        lambda y=y, C=C, a=sent, b=end: LogisticRegression(C=C).fit(x[:a], y[:a]).predict_proba(x[a:b])
                    )
                fits.append({"target": t, "C": C, "times": seconds})
                if t == 0:
                    gold = p[np.arange(end - sent), y[sent:end]]
                    bits[c] -= np.log2((sent * gold + 0.5) / (sent + 1)).sum()
    return {"fits": fits, "bits": bits.tolist(), "peak": memory("VmHWM") - loaded}


def rates(job: Job) -> Found:
    """FLOP a CPU second in float32: oneDNN's products of weights and rows, numpy's; and seconds of a decomposition."""
    import torch

    from probekit.probes.solvers.design import product

    d, rng = job.more["d"], np.random.default_rng(0)
    rows, weights = (rng.standard_normal((m, d), dtype=np.float32) for m in (1024, 256))
    tall = rng.standard_normal((4096, d), dtype=np.float32)
    square = rng.standard_normal((1024, 1024), dtype=np.float32)
    a, b = torch.from_numpy(weights), torch.from_numpy(rows)
    scatter = torch.from_numpy((tall.T @ tall).astype(np.float64))
    times = 5 * job.repeats
    work: dict[str, tuple[float, Callable[[], Any]]] = {
        "torch.linear": (2.0 * len(rows) * len(weights) * d, lambda: product(a, b)),
        "numpy sgemm": (2.0 * 1024**3, lambda: square @ square),
        "numpy sgemm XᵀX": (1.0 * len(tall) * d * (d + 1), lambda: tall.T @ tall),
    }
    found = {name: flop / best(run, times) for name, (flop, run) in work.items()}
    return {"rates": found, "eigh": best(lambda: torch.linalg.eigh(scatter), job.repeats)}


def cuda(job: Job) -> Found:
    import torch

    return {"name": torch.cuda.get_device_name() if torch.cuda.is_available() else ""}


JOBS: dict[str, Callable[[Job], Found]] = {
    f.__name__: f
    for f in (
        *(our_fits, their_fits, agreement, our_folds, their_folds, our_ridge, their_ridge),
        *(our_bootstrap, their_bootstrap, our_online, their_online, rates, cuda),
    )
}


def here(job: Job) -> Found:
    """What the job measures, on one thread."""
    import torch
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    import probekit.probes.protocol.diagnostic  # so that the peak memory is not that of imports  # noqa: F401

    torch.set_num_threads(1)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        return JOBS[job.what](job)


if __name__ == "__main__":
    print(json.dumps(here(Job(**json.loads(sys.argv[1])))))
