"""Estimators of mutual information, and one call for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Annotated, Any

import numpy as np

from probekit.constraint import Count, Draws, Ge, Most, NotNegative, Positive, Seed, Threads, check
from probekit.errors import UsageError, did_you_mean
from probekit.former import renamed
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
"""Module below ``probekit.information``, function, and settings of each estimator."""
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
    """Measure a lower bound on the mutual information of two arrays, vectors and labels, in bits.

    An estimator detects only some of the information: ``value`` estimates the detected part, ``ci_low`` bounds the
    information from below, and ``ci_high`` is the maximum for these labels.

    This function takes arrays and returns one estimate. :func:`probekit.mi` takes caches and returns rows for layers.

    Parameters
    ----------
    x : array_like
        (n, d) vectors; or (n,) integers, booleans or strings, each distinct value of which is a bucket.
    y : array_like
        (n,) integers, booleans or strings are classes; (n,) or (n, m) floats are numbers, unless all are whole.
    estimator : InformationEstimator or str
        "edge" is the calibrated default; "edge-4.3.1" … give the author's numbers.
    discrete : bool, optional
        True treats y as classes and False as numbers, regardless of its type.
    groups : array_like, optional
        (n,), the group of each example (sentence, document, shared text), any values: examples of one group are folded,
        shuffled and counted as a whole. Equal vectors always form a group, unless they are symbols.
    **options
        Options of the estimator. All take ``draws`` (shuffles of the labels for p) and ``seed``.

    Returns
    -------
    Information
        The estimate, the noise level, and whether the two are distinguishable.

    Raises
    ------
    UsageError
        For invalid shapes and types, fewer than 20 examples, and constant labels.
    NonFiniteError
        For NaN and infinity.

    See Also
    --------
    probekit.mi : Estimates for each layer of caches, with controls.
    probekit.edge : The numbers of the published scripts.

    Notes
    -----
    Groups are treated as independent: near copies in different groups make value and p too optimistic. The labels of
    groups of similar size are exchanged as a whole; fewer than 20 groups give no result. "edge" does not depend on the
    order of examples or columns, on the sign of the vectors or numbers, on the names of classes, or on the location of
    columns. "knn", "logistic" and "mlp" do not depend on the sign of the vectors or the names of classes. "edge"
    depends on ``seed``, which draws the folds: for weak signals, p may differ much between seeds, so choose a seed in
    advance. ``shown_high`` is the upper end of the interval for the detected information.

    Matrix products use one thread, so that the numbers do not depend on the number of threads.

    References
    ----------
    Noshad, Zeng & Hero (2019), "Scalable Mutual Information Estimation Using Dependence Graphs", ICASSP; the bias
    that is subtracted is that of Vinh, Epps & Bailey (2010), "Information Theoretic Measures for Clusterings
    Comparison", section 4.

    Examples
    --------
    A symbol that determines one of two classes carries one bit, minus the estimate for shuffled labels:

    >>> import numpy as np
    >>> y = np.arange(400) % 2
    >>> one = mutual_information(y, y, draws=19)
    >>> f"{one.value:.2f} of {one.entropy:.2f} bits, p = {one.p:.2f}"
    '1.00 of 1.00 bits, p = 0.05'
    """
    estimator = InformationEstimator.named(check("estimator", str, estimator))
    discrete = check("discrete", bool | None, discrete)
    labels = response(y, discrete=discrete)
    values = symbols(x, len(labels))
    if values is not None:
        if estimator not in (InformationEstimator.EDGE, InformationEstimator.PLUG_IN):
            raise UsageError(f"x holds single values, which need {InformationEstimator.PLUG_IN}, not {estimator}.")
        estimator = InformationEstimator.PLUG_IN
        return _find(estimator)(values, labels, groups=groups, **_checked(estimator, options))
    if estimator == InformationEstimator.PLUG_IN:
        raise UsageError("the plug-in estimate needs values (n,): integers, booleans or strings; x holds vectors.")
    found, options = vectors(x, len(labels)), _checked(estimator, options)
    with blas_thread():
        return _find(estimator)(found if estimator in PUBLISHED else of_size(found), labels, groups=groups, **options)


OPTIONS: dict[str, Any] = {
    "draws": Draws, "seed": Seed, "grids": Annotated[int, Ge(1), Most(10_000)], "folds": Annotated[int, Ge(2)],
    "neighbours": Count, "components": Count | None, "bins": Annotated[int, Ge(2), Most(1_000_000)],
    "label_bins": Annotated[int, Ge(2), Most(1_000_000)], "noise": Positive, "span": tuple[float, float] | None,
    "Cs": tuple[Positive, ...], "alphas": tuple[Positive, ...], "weight_decays": tuple[NotNegative, ...],
    "threads": Threads | None,
}  # fmt: skip
"""The options of estimators; those of the author's scripts are checked with them."""


def _checked(estimator: InformationEstimator, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an estimator, each checked; raises UsageError for those that it does not have."""
    parameters = signature(_find(estimator)).parameters.values()
    known = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - PLACES[estimator][2].keys() - {"groups"}
    if estimator in PUBLISHED:
        from probekit.information.edge import EdgeSettings

        known |= {f.name for f in fields(EdgeSettings)} - {"version"} | {"threads"}
    for name in options:
        if name not in known:
            said = f"{estimator} has no option {name!r}; {did_you_mean(name, known)}"
            raise UsageError(renamed("mutual_information", name) or said)
    return {name: check(name, OPTIONS.get(name, Any), value) for name, value in options.items()}


def _find(estimator: InformationEstimator) -> Callable[..., Information]:
    """The function of an estimator; imports only its module."""
    module, name, settings = PLACES[estimator]
    function: Callable[..., Information] = getattr(import_module(f"probekit.information.{module}"), name)
    return partial(function, **settings)


def published(
    x: np.ndarray,
    y: Response,
    *,
    estimator: InformationEstimator,
    groups: Any = None,
    draws: int = 0,
    seed: int = 0,
    **settings: Any,
) -> Information:
    """The number of :func:`probekit.information.edge.edge` in the common format.

    It has no null distribution, so ``groups``, ``draws`` and ``seed`` have no effect.

    Parameters
    ----------
    **settings
        Settings of :func:`edge`; classes are treated as the numbers 0, 1, …
    """
    from probekit.information.edge import EdgeSettings, edge_details

    version: Any = estimator.removeprefix("edge-").removesuffix("-first-pass")
    first = estimator.endswith("-first-pass")
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
