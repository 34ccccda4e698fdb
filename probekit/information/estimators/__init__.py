"""Estimators of mutual information, and one call for all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.information.estimate import Information
from probekit.information.options import InformationEstimator
from probekit.information.response import Response, of_size, response, symbols, vectors
from probekit.runtime import blas_thread

__all__ = ["mutual_information"]

E = InformationEstimator
PUBLISHED = (E.EDGE_431, E.EDGE_431_FIRST, E.EDGE_420, E.EDGE_441)
PLACES: dict[InformationEstimator, tuple[str, str, dict[str, Any]]] = {
    E.EDGE: ("hashing.calibrated", "calibrated", {}),
    **{name: ("estimators", "published", {"estimator": name}) for name in PUBLISHED},
    E.KNN: ("estimators.nearest_neighbour", "nearest_neighbour", {}),
    E.KNN_RAW: ("estimators.nearest_neighbour", "nearest_neighbour", {"components": None}),
    E.LOGISTIC: ("estimators.bounds", "logistic_bound", {}),
    E.MLP: ("estimators.bounds", "mlp_bound", {}),
    E.RIDGE: ("estimators.bounds", "ridge_bound", {}),
    E.PLUG_IN: ("hashing.calibrated", "plug_in", {}),
    E.BINNING: ("estimators.binning", "binning", {}),
    E.KERNEL_UPPER: ("estimators.kernel_density", "kernel_density", {"bound": "upper"}),
    E.KERNEL_LOWER: ("estimators.kernel_density", "kernel_density", {"bound": "lower"}),
}
"""Module within this room, function, and settings of each estimator."""
ONE_BUCKET = "the second pass left one bucket in most members: the value is the floor, whatever the truth"


def mutual_information(
    x: Any,
    y: Any,
    estimator: InformationEstimator | str = InformationEstimator.EDGE,
    *,
    discrete: bool | None = None,
    groups: Any = None,
    **options: Any,
) -> Information:
    """Measure a lower bound on the mutual information between vectors and labels, in bits.

    Estimators look at vectors in some ways, and what they do not see is not counted: ``value`` estimates what was
    found, ``ci_low`` bounds the information from below, and ``ci_high`` is all that labels hold.
    It takes arrays, and gives one estimate. :func:`probekit.mi` takes caches, and gives rows of all their layers.

    Parameters
    ----------
    x : array_like
        (n, d) vectors; or (n,) integers, booleans or strings, each value of which is a bucket of its own.
    y : array_like
        (n,) integers, booleans or strings are classes; (n,) or (n, m) floats are numbers, unless all are whole.
    estimator : InformationEstimator or str
        "edge" is the calibrated default; "edge-4.3.1" … are the author's numbers.
    discrete : bool, optional
        True takes y for classes and False for numbers, whatever its type.
    groups : array_like, optional
        (n,), what each example is of (sentence, document, shared text), any values: examples of one group are folded,
        shuffled and counted as a whole. Equal vectors are one group in any case, unless they are symbols.
    **options
        Of the estimator. All take ``shuffles``, how often labels are shuffled for p, and ``seed``.

    Returns
    -------
    Information
        The estimate, what noise alone gives, and whether the two can be told apart.

    Raises
    ------
    UsageError
        For shapes and types that do not go, fewer than 20 examples, and labels that are all alike.
    NonFiniteError
        For NaN and infinity.

    See Also
    --------
    probekit.mi : Layer by layer, of caches, with controls.
    probekit.edge : The numbers of the published scripts alone.

    Notes
    -----
    Groups are taken for independent of each other: near copies that no group holds together make value and p too good.
    Labels of groups of about one size are exchanged as wholes; with fewer than 20 groups nothing is said. "edge" does
    not depend on the order of examples or columns, on the sign of the vectors or of numbers, on what classes are
    called, nor on where columns lie. "knn", "logistic" and "mlp" do not depend on the sign of the vectors and on what
    classes are called. "edge" does depend on ``seed``, which deals the folds: of weak signal p may differ much between
    seeds, so fix one beforehand. The interval that its views have an upper end of, too, is ``shown_high``.
    Products of matrices are made on one thread, so that numbers do not depend on how many there are.

    References
    ----------
    Noshad, Zeng & Hero (2019), "Scalable Mutual Information Estimation Using Dependence Graphs", ICASSP; the bias
    that is taken off is that of Vinh, Epps & Bailey (2010), "Information Theoretic Measures for Clusterings
    Comparison", section 4.

    Examples
    --------
    Of two classes that a symbol tells without error there is one bit to know, less what chance would show:

    >>> import numpy as np
    >>> y = np.arange(400) % 2
    >>> one = mutual_information(y, y, shuffles=19)
    >>> f"{one.value:.2f} of {one.entropy:.2f} bits, p = {one.p:.2f}"
    '1.00 of 1.00 bits, p = 0.05'
    """
    estimator = InformationEstimator.named(estimator)
    for name, least in (("shuffles", 0), ("seed", 0), ("grids", 1)):
        if name in options and not (isinstance(options[name], int | np.integer) and options[name] >= least):
            raise UsageError(f"{name} is a whole number from {least} on, not {options[name]!r}.")
    labels = response(y, discrete=discrete)
    values = symbols(x, len(labels))
    if values is not None:
        if estimator not in (InformationEstimator.EDGE, InformationEstimator.PLUG_IN):
            raise UsageError(f"values that are no vectors are for {InformationEstimator.PLUG_IN}, not {estimator}.")
        return _find(InformationEstimator.PLUG_IN)(values, labels, groups=groups, **options)
    if estimator == InformationEstimator.PLUG_IN:
        raise UsageError("the plug-in estimate is of values (n,): integers, booleans or strings; these are vectors.")
    found = vectors(x, len(labels))
    with blas_thread():
        return _find(estimator)(found if estimator in PUBLISHED else of_size(found), labels, groups=groups, **options)


def _find(estimator: InformationEstimator) -> Callable[..., Information]:
    """The function of an estimator; only its own module is imported."""
    module, name, settings = PLACES[estimator]
    function: Callable[..., Information] = getattr(import_module(f"probekit.information.{module}"), name)
    return partial(function, **settings)


def published(
    x: np.ndarray,
    y: Response,
    *,
    estimator: InformationEstimator,
    groups: Any = None,
    shuffles: int = 0,
    seed: int = 0,
    **settings: Any,
) -> Information:
    """The number of :func:`probekit.information.edge.edge` beside the others.

    There is no null in it, so ``groups`` and ``shuffles`` have no effect, and nothing is drawn from ``seed``.

    Parameters
    ----------
    **settings
        Of :func:`edge`; classes are taken as the numbers 0, 1, …
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
