"""Baselines: bags and tf-idf of pieces, lengths, word types and class frequencies, without a model; cosines of pairs.

A layer is informative only if its probe beats these. They use gold labels only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import sparse

from probekit.errors import UsageError
from probekit.probes.protocol.experiment import Experiment, Fits
from probekit.probes.protocol.options import LOG_LOSS
from probekit.probes.solvers.ridge import ALPHAS
from probekit.probes.solvers.sparse import SPARSE_CS, sparse_path, sparse_ridge
from probekit.statistics.options import BAG, TFIDF

GOLD = {"layer": None, "target": "gold", "draw": None}


@dataclass(frozen=True, slots=True)
class Baselines:
    """Inputs that need no model, for train and dev.

    Attributes
    ----------
    bag : tuple[sparse.csr_matrix, sparse.csr_matrix], optional
        float32 csr (n, v), the pieces that occur.
    length : tuple[np.ndarray, np.ndarray], optional
        float32 (n, k).
    cosine : sequence of tuple of str and two functions
        Of pairs: the name of each layer, and what returns the cosine of the two vectors, float32 (n, 1).
    tfidf : tuple[sparse.csr_matrix, sparse.csr_matrix], optional
        float32 csr (n, v), tf-idf of the pieces and of pairs of neighbouring ones.
    """

    bag: tuple[sparse.csr_matrix, sparse.csr_matrix] | None = None
    length: tuple[np.ndarray, np.ndarray] | None = None
    cosine: Sequence[tuple[str, Callable[[], np.ndarray], Callable[[], np.ndarray]]] = ()
    tfidf: tuple[sparse.csr_matrix, sparse.csr_matrix] | None = None


def baseline_fits(experiment: Experiment, given: Baselines) -> Iterator[Callable[[], Fits]]:
    """Functions that fit the available baselines."""
    for name, both in ((BAG, given.bag), (TFIDF, given.tfidf)):
        if both is not None:
            yield partial(_sparse_fit, experiment, name, *both)
    if given.length is not None:
        about = {"layer": None, "representation": "length"}
        yield partial(experiment.fit, *given.length, experiment.plain, 1, about)
    if given.cosine:
        yield partial(_cosine_fit, experiment, given.cosine)
    if experiment.sets.train.types is not None and experiment.sets.classes:
        yield partial(_type_fit, experiment)


def constant_fit(train: np.ndarray | float, gold: np.ndarray) -> Fits:
    """The most frequent class in train, with the class frequencies as probabilities; for numbers, the mean.

    train : the number of examples of each class, (K,), or the mean of numbers
    gold : of dev, (n,)
    """
    about = {**GOLD, "representation": "none"}
    if not isinstance(train, np.ndarray):
        return Fits([{**about, "estimator": "mean"}], np.full((1, len(gold)), train), None)
    n, guess = train.sum(), np.full((1, len(gold)), train.argmax())
    loss, shares = -np.log(np.maximum(train, 0.5) / n)[gold], np.tile(train / n, (len(gold), 1))
    return Fits([{**about, "estimator": "majority"}], guess, loss[None], shares)


def _sparse_fit(experiment: Experiment, name: str, x: sparse.csr_matrix, x_dev: sparse.csr_matrix) -> Fits:
    """Bag or tf-idf of word pieces with scikit-learn's sparse solver; the folds choose the penalty, as for layers."""
    sets, options = experiment.sets, experiment.options
    x, x_dev = x[sets.rows], x_dev[sets.rows_dev]
    y, y_dev = sets.y[0], sets.y_dev[0]
    about = {**GOLD, "representation": name}
    if not sets.classes:
        alphas = ALPHAS[::-1]
        errors = np.concatenate(
            [(sparse_ridge(x[use], y[use], alphas).predict(x[held]) - y[held]) ** 2 for use, held in _parts(sets.fold)],
            1,
        ).mean(1)
        best = int(errors.argmin())
        fit = {**about, "estimator": "ridge", "penalty": alphas[best], "converged": True, "held_out": errors[best]}
        return Fits([fit], sparse_ridge(x, y, [alphas[best]]).predict(x_dev), None)
    losses, predicted, gold, known, converged = [], [], [], [], np.ones(len(SPARSE_CS), dtype=bool)
    for use, held in _parts(sets.fold):
        path = sparse_path(x[use], y[use], sets.classes, SPARSE_CS, balanced=options.balanced)
        log_p = path.log_proba(x[held]).clip(-50)
        losses.append(-np.take_along_axis(log_p, y[None, held, None], 2)[..., 0])
        predicted.append(log_p.argmax(2))
        gold.append(y[held])
        known.append(np.isin(y[held], y[use]))  # a class that only one fold has does not inform the penalty
        converged &= path.converged
    loss, counts = np.concatenate(losses, 1), np.concatenate(known)
    score = loss[:, counts].mean(1) if counts.any() else loss.mean(1)
    if options.choose_by != LOG_LOSS:
        score = experiment.criterion(np.concatenate(gold)[None], np.concatenate(predicted, 1)[None], loss[None])[0]
    best = int(score.argmin())
    last = sparse_path(x, y, sets.classes, [SPARSE_CS[best]], balanced=options.balanced)
    log_p = last.log_proba(x_dev)[0].clip(-50)
    columns = {
        **{**about, "estimator": "logistic", "penalty": SPARSE_CS[best]},
        **{"converged": bool(converged[best] and last.converged[0]), "held_out": score[best]},
    }
    return Fits([columns], log_p.argmax(1)[None], -log_p[np.arange(len(y_dev)), y_dev][None], np.exp(log_p))


def _cosine_fit(
    experiment: Experiment, layers: Sequence[tuple[str, Callable[[], np.ndarray], Callable[[], np.ndarray]]]
) -> Fits:
    """The cosine alone: one number, of which train decides the threshold, and by its folds the layer."""
    about = {"layer": None, "representation": "cosine"}
    found = [
        experiment.fit(train(), dev(), experiment.plain, 1, about | {"cosine_layer": name})
        for name, train, dev in layers
    ]
    return min(found, key=lambda fits: fits.columns[0]["held_out"])


def _parts(fold: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows to fit on and the held-out rows of each fold, bool (m,) each."""
    for f in range(int(fold.max()) + 1):
        yield fold != f, fold == f


def _type_fit(experiment: Experiment) -> Fits:
    """The most frequent label of each word type."""
    sets = experiment.sets
    majority = type_majority(sets.train.types, sets.y[0], sets.classes)  # type: ignore[arg-type]
    log_p, gold = majority.log_proba(sets.dev.types).clip(-50), sets.y_dev[0]  # type: ignore[arg-type]
    fit = {**GOLD, "representation": "word-type", "estimator": "type-majority"}
    return Fits([fit], log_p.argmax(1)[None], -log_p[np.arange(len(gold)), gold][None], np.exp(log_p))


@dataclass(frozen=True, slots=True)
class TypeMajority:
    """Label counts of each word type in train.

    Attributes
    ----------
    types : np.ndarray
        int64 (m,), sorted.
    counts : np.ndarray
        float64 (m, K).
    prior : np.ndarray
        float64 (K,), label frequencies in train.
    """

    types: np.ndarray
    counts: np.ndarray
    prior: np.ndarray

    def log_proba(self, types: np.ndarray) -> np.ndarray:
        """ln of (count + prior) / (total + 1), float32 (n, K): the prior counts as one occurrence.

        The most probable label is the most frequent one of the type; ties go to the label that is more frequent in
        train, and a type that train lacks gets the prior. A label that train lacks has probability 0 (-inf).
        """
        at = np.minimum(np.searchsorted(self.types, types), len(self.types) - 1)
        counts = np.where((self.types[at] == types)[:, None], self.counts[at], 0) + self.prior
        with np.errstate(divide="ignore"):
            return np.log(counts / counts.sum(1, keepdims=True)).astype(np.float32)


def type_majority(types: np.ndarray, codes: np.ndarray, classes: int) -> TypeMajority:
    """The most frequent label of each word type in train: the usual baseline of taggers.

    Parameters
    ----------
    types : np.ndarray
        Int (w,), from :func:`word_types`.
    codes : np.ndarray
        Int (w,), -1 for words to leave out.
    """
    if not (codes >= 0).any():
        raise UsageError("no word of train has a label.")
    known = codes >= 0
    numbers, at = np.unique(types[known], return_inverse=True)
    counts = np.bincount(at * classes + codes[known], minlength=len(numbers) * classes).reshape(-1, classes)
    return TypeMajority(numbers, counts.astype(np.float64), counts.sum(0) / counts.sum())
