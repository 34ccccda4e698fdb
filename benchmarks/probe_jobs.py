"""What a process of ``probes.py`` measures: a side's seconds and memory on one piece of work, and how right it is."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from measures import memory
from probe_optimum import agreement
from probe_work import Found, Job, features, label_sets, numbers, repeated, start_memory, timed


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
    np.savez(job.out, w=fit.weights[:2], b=intercepts[:2], Cs=job.more["Cs"])
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
    np.savez(job.out, w=w, b=b, Cs=Cs)
    return {"fits": fits, "peak": memory("VmHWM") - loaded}


def folds_of(n: int, folds: int) -> np.ndarray:
    return np.random.default_rng(3).permutation(n) % folds


def our_folds(job: Job) -> Found:
    """Folds × Cs × targets with log loss of what is held out, and the best C fitted again on all rows.

    Of two classes also accuracy; of more the log loss alone, as probes are fitted where nothing else is asked.
    """
    from probekit.probes.protocol.selection import Estimator, Problem, select

    codes, folds = label_sets(job, job.more["targets"]), job.more["folds"]
    loaded, classes = start_memory(), int(codes.max()) + 1
    x = features(job)
    fold = folds_of(len(x), folds)
    rows, Cs = np.arange(len(x)), tuple(job.more["Cs"])
    problem = Problem(x, rows, codes, classes, fold, Estimator.LOGISTIC, Cs, shuffled=np.arange(len(codes)) > 0)
    seen: list[np.ndarray] = []

    def both(y: np.ndarray, predicted: np.ndarray, loss: np.ndarray | None) -> np.ndarray:
        assert loss is not None
        first = int((fold == 0).sum())
        seen[:] = [loss[0, :, :first].mean(1, dtype=np.float64), (predicted == y[:, None]).mean(2)]
        return loss.mean(2)

    chosen, found = repeated(job, lambda _: select(problem, both if classes == 2 else None), loaded)
    losses = seen[0].tolist() if seen else []
    return {**found, "losses": losses, "chosen": chosen.setting[:2].tolist(),
            "unconverged": int((~chosen.converged).sum())}  # fmt: skip


def their_folds(job: Job) -> Found:
    """The default loop on the first fold; log loss and accuracy of what it holds out."""
    codes, Cs = label_sets(job, job.more["targets"]), job.more["Cs"]
    loaded = start_memory()
    x = features(job, "float64")
    held = folds_of(len(x), job.more["folds"]) == 0
    fits = held_out_fits(x, codes, held, Cs, {"tol": 1e-4})
    return {"fits": fits, "losses": [f["loss"] for f in fits if f["target"] == 0], "peak": memory("VmHWM") - loaded}


def held_out_fits(x: np.ndarray, codes: np.ndarray, held: np.ndarray, Cs: list[float], more: Any) -> list[Found]:
    """scikit-learn's fits of all targets and Cs on the rows that are not held out, and their loss on those that are."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, log_loss

    train, test = x[~held], x[held]

    def fit(y: np.ndarray, C: float) -> float:
        model = LogisticRegression(C=C, **more).fit(train, y[~held])
        p = model.predict_proba(test)
        accuracy_score(y[held], model.classes_[p.argmax(1)])
        known = np.isin(y[held], model.classes_)
        return float(log_loss(y[held][known], p[known], labels=model.classes_))

    fits = []
    for t, y in enumerate(codes):
        for C in Cs:
            loss, seconds = timed(partial(fit, y, C))
            fits.append({"target": t, "C": C, "times": seconds, "loss": loss})
    return fits


def words(job: Job) -> tuple[Any, ...]:
    """Labels of train and dev, the question, and how it is probed: a draw of each control."""
    from probekit.probes.protocol.labels import Labels, Question
    from probekit.probes.protocol.options import ProbeOptions

    y, types, sentences = (np.load(Path(job.data) / f"{name}.npy") for name in ("y", "types", "sentences"))
    parts = [
        Labels(y[at], groups=sentences[at], types=types[at], sentences=sentences[at])
        for at in (slice(job.more["train"]), slice(job.more["train"], None))
    ]
    question = Question("sequence-labelling", ("accuracy", "macro-f1"), tuple(map(str, range(int(y.max()) + 1))))
    return *parts, question, ProbeOptions(penalties=tuple(job.more["Cs"]), controls=1, threads=1)


def our_words(job: Job) -> Found:
    """Rows of one layer, end to end: the choice of C on folds, the fits, metrics and intervals on dev."""
    from probekit.probes.protocol.diagnostic import layer_rows

    train, dev, question, options = words(job)
    loaded = start_memory()
    x = features(job)
    parts = [{"0": x[: len(train.y)]}, {"0": x[len(train.y) :]}]
    rows, found = repeated(job, lambda _: layer_rows(parts[0], train, parts[1], dev, question, options=options), loaded)
    own = rows[(rows["estimator"] == "logistic") & (rows["layer"] == 0) & (rows["metric"] == "log-loss")]
    return {**found, "unconverged": int((~own["converged"].astype(bool)).sum()),
            "losses": own.set_index("target")["held_out"].to_dict()}  # fmt: skip


def their_words(job: Job) -> Found:
    """The loop over the same label sets on the first of the same folds."""
    from probekit.probes.protocol.label_sets import label_sets as sets_of

    train, dev, question, options = words(job)
    sets = sets_of(train, dev, question, options)
    loaded = start_memory()
    x = features(job, "float64")[: len(train.y)]
    return {"fits": held_out_fits(x, sets.y, sets.fold == 0, job.more["Cs"], job.more["loop"]),
            "peak": memory("VmHWM") - loaded}  # fmt: skip


def our_ridge(job: Job) -> Found:
    from probekit.probes.solvers.ridge import fit_ridge

    y = numbers(job, job.more["targets"])
    loaded = start_memory()
    x, device = features(job), job.more.get("device", "cpu")
    fit, found = repeated(
        job, lambda _: fit_ridge(x, y, job.more["alphas"], standardise=False, leave_one_out=True, device=device), loaded
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
    found = {name: flop / least(run, times) for name, (flop, run) in work.items()}
    return {"rates": found, "eigh": least(lambda: torch.linalg.eigh(scatter), job.repeats)}


def least(work: Callable[[], Any], times: int) -> float:
    """The fewest CPU seconds of some runs of it, each of as many calls as take a hundredth of a second."""
    start = time.process_time()
    work()
    calls = 1 + int(0.01 / max(time.process_time() - start, 1e-6))
    seconds = []
    for _ in range(times):
        start = time.process_time()
        for _ in range(calls):
            work()
        seconds.append((time.process_time() - start) / calls)
    return min(seconds)


def cuda(job: Job) -> Found:
    import torch

    return {"name": torch.cuda.get_device_name() if torch.cuda.is_available() else ""}


JOBS: dict[str, Callable[[Job], Found]] = {
    f.__name__: f
    for f in (
        *(our_fits, their_fits, agreement, our_folds, their_folds, our_ridge, their_ridge),
        *(our_bootstrap, their_bootstrap, our_online, their_online, our_words, their_words, rates, cuda),
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
