"""One call for all estimators of mutual information."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.information.estimate import Information
from probekit.information.target import Target, symbols, target, vectors
from probekit.runtime import blas_thread

__all__ = ["Estimator", "mutual_information"]


ONE_BUCKET = "the second pass left one bucket in most members: the value is the floor, whatever the truth"


class Estimator(StrEnum):
    """Estimators of mutual information.

    edge : calibrated hashing, the default; of symbols it is plug-in
    edge-4.3.1, edge-4.2.0, edge-4.4.1 : the numbers of the published scripts (Noshad, Zeng & Hero 2018);
        edge-4.3.1-first-pass : before the second pass sets other widths
    knn, knn-raw : nearest neighbours (Ross 2014; numbers: Kraskov et al. 2004), among four principal components or
        all columns
    logistic, mlp : lower bounds by classifiers; ridge : a lower bound about numbers
    plug-in : of symbols, less what shuffled labels give
    binning, kernel-upper, kernel-lower : for the record (Saxe et al. 2018; Kolchinsky & Tracey 2017)
    """

    EDGE = "edge"
    EDGE_431 = "edge-4.3.1"
    EDGE_431_FIRST = "edge-4.3.1-first-pass"
    EDGE_420 = "edge-4.2.0"
    EDGE_441 = "edge-4.4.1"
    KNN = "knn"
    KNN_RAW = "knn-raw"
    LOGISTIC = "logistic"
    MLP = "mlp"
    RIDGE = "ridge"
    PLUG_IN = "plug-in"
    BINNING = "binning"
    KERNEL_UPPER = "kernel-upper"
    KERNEL_LOWER = "kernel-lower"


def mutual_information(
    x: Any, y: Any, estimator: Estimator | str = Estimator.EDGE, *, discrete: bool | None = None, **options: Any
) -> Information:
    """Mutual information between vectors and labels, in bits.

        probekit.mutual_information(cache.layer(6), cache.labels)

    x : (n, d) vectors; or (n,) integers, booleans or strings, each value of which is a bucket of its own
    y : (n,) integers, booleans or strings are classes; (n,) or (n, m) floats are numbers, unless all are whole
    estimator : "edge" is the calibrated default; "edge-4.3.1" … are the author's numbers; see :class:`Estimator`
    discrete : True takes y for classes and False for numbers, whatever its type
    options : of the estimator; all take ``shuffles``, how often labels are shuffled for p, and ``seed``

    Examples are taken for independent of each other: copies, and near ones, make value and p too good. "edge" does not
    depend on the order of examples or columns, nor on where columns lie or how they are scaled, as long as deviations
    are not 1e10 below the median. It does depend on ``seed``, which deals the folds: of weak signal p may differ much
    between seeds, so fix one beforehand. Its interval is for what its views show, which may be less than all there is.
    Products of matrices are made on one thread, so that numbers do not depend on how many there are.
    Returns an :class:`Information`. Raises UsageError for shapes and types that do not go, fewer than 20 examples,
    labels that are all alike, and NonFiniteError for NaN and infinity.
    """
    if estimator not in list(Estimator):
        raise UsageError(f"estimator is {', '.join(Estimator)}, not {estimator!r}.")
    for name, least in (("shuffles", 0), ("seed", 0), ("grids", 1)):
        if name in options and not (isinstance(options[name], int | np.integer) and options[name] >= least):
            raise UsageError(f"{name} is a whole number from {least} on, not {options[name]!r}.")
    labels = target(y, discrete=discrete)
    values = symbols(x, len(labels))
    if values is not None:
        if estimator not in (Estimator.EDGE, Estimator.PLUG_IN):
            raise UsageError(f"values that are no vectors are for {Estimator.PLUG_IN}, not {estimator}.")
        return _find(Estimator.PLUG_IN)(values, labels, **options)
    if estimator == Estimator.PLUG_IN:
        raise UsageError("the plug-in estimate is of values (n,): integers, booleans or strings; these are vectors.")
    with blas_thread():
        return _find(Estimator(estimator))(vectors(x, len(labels)), labels, **options)


def _find(estimator: Estimator) -> Callable[..., Information]:
    """The function of an estimator; only its own module is imported."""
    match estimator:
        case Estimator.EDGE:
            from probekit.information.calibrated import calibrated

            return calibrated
        case Estimator.PLUG_IN:
            from probekit.information.calibrated import plug_in

            return plug_in
        case Estimator.KNN | Estimator.KNN_RAW:
            from probekit.information.nearest_neighbour import nearest_neighbour

            return nearest_neighbour if estimator is Estimator.KNN else partial(nearest_neighbour, components=None)
        case Estimator.LOGISTIC:
            from probekit.information.bounds import logistic_bound

            return logistic_bound
        case Estimator.MLP:
            from probekit.information.bounds import mlp_bound

            return mlp_bound
        case Estimator.RIDGE:
            from probekit.information.bounds import ridge_bound

            return ridge_bound
        case Estimator.BINNING:
            from probekit.information.binning import binning

            return binning
        case Estimator.KERNEL_UPPER | Estimator.KERNEL_LOWER:
            from probekit.information.kernel_density import kernel_density

            return partial(kernel_density, bound=estimator.removeprefix("kernel-"))
        case _:
            return partial(published, estimator=estimator)


def published(
    x: np.ndarray, y: Target, *, estimator: Estimator, shuffles: int = 0, seed: int = 0, **settings: Any
) -> Information:
    """The number of :func:`probekit.information.edge.edge` beside the others.

    There is no null in it, so ``shuffles`` has no effect, and nothing is drawn from ``seed``.
    settings : of :func:`edge`; classes are taken as the numbers 0, 1, …
    """
    from probekit.information.edge import EdgeSettings, edge_details

    version, first = estimator.removeprefix("edge-").removesuffix("-first-pass"), estimator.endswith("-first-pass")
    labels: Any = y.numbers if y.codes is None else y.codes[:, None].astype(np.float64)
    if first:
        settings["normalize_epsilon"] = False
    threads = settings.pop("threads", None)
    last = edge_details(x, labels, EdgeSettings(version=version, **settings), threads=threads).passes[-1]
    return Information(
        value=min(max(last.value, 0.0), y.entropy, np.log2(len(y))),
        raw=last.value,
        entropy=y.entropy,
        n=len(y),
        estimator=str(estimator),
        buckets=float(last.buckets_x.mean()),
        warning=ONE_BUCKET if np.median(last.buckets_x) == 1 else "",
        view="first pass" if first else "both passes",
    )
