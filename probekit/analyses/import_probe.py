"""Kept probes from the coefficients of scikit-learn, evaluated on the cache whose vectors they read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zipfile import is_zipfile

import numpy as np

from probekit.constraint import WRITTEN, Checked, File, Seed, Share
from probekit.errors import DataError, UsageError, reading
from probekit.files import digest_of_content, in_words
from probekit.public import public
from probekit.recipe import Read, option
from probekit.runtime import Progress, no_progress
from probekit.statistics.options import ResamplesOrNone

if TYPE_CHECKING:
    from probekit.activations import ActivationCache
    from probekit.probes.kept import Weights
    from probekit.rows import Result

ESTIMATOR = "scikit-learn"
LARGEST = 1 << 30
"""The most bytes of the arrays of a file."""
NEEDED, MORE = ("coef_", "intercept_"), ("classes_", "mean_", "scale_")


@dataclass(frozen=True, slots=True)
class ImportOptions(Checked):
    """Which vectors the coefficients read, and how they are evaluated."""

    layer: int | str = option(-1, "The layer, or site, whose vectors they read; -1 is the last layer.")
    pooling: str | None = option(None, "The pooling of these vectors (default: the cache's first).")
    resamples: ResamplesOrNone = option(1000, "As for probe: bootstrap resamples and permutations; 0 for neither.")
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of the resamples.")


@public(options=ImportOptions)
def import_probe(
    coefficients: File,
    cache: str | Path | ActivationCache,
    /,
    *,
    keep: Annotated[Path | None, WRITTEN] = None,
    options: ImportOptions,
    progress: Progress = no_progress,
) -> Result:
    """Make a kept probe of the coefficients of a linear model of scikit-learn, and evaluate it on a cache.

    The file is an .npz with the model's ``coef_`` and ``intercept_``, and ``classes_`` for classes. ``mean_`` and
    ``scale_`` of a StandardScaler before the model become part of the probe. The cache says which model, layer and
    pooling make the vectors; if it is labelled, the card gets metrics with intervals, reliability and thresholds on it.
    So give a cache of examples that the model was not fitted on.

    Parameters
    ----------
    coefficients : path
        The .npz file; nothing in it is unpickled.
    cache : path or ActivationCache
        A cache of texts or words with the vectors that the coefficients read.
    keep : path, optional
        A folder for the probe: ``probekit apply`` scores texts with it. Kept probes of the same model and data are
        replaced there, unless a layer would be lost.
    options : ImportOptions
        ``layer``, ``pooling`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        The rows of :func:`probekit.apply` on the cache; ``probe()`` gives the probe.

    Raises
    ------
    UsageError
        If the coefficients do not fit the vectors or the classes of the cache.
    DataError
        If the file lacks an array, or holds pickled objects, NaN or infinity.

    Notes
    -----
    Two classes have one row of coefficients, more classes one each, whose probabilities are the softmax: so does
    LogisticRegression. Of one-against-rest models and linear SVMs, the predicted classes are the same, the
    probabilities are not. Leave ``mean_`` out if the scaler was made with ``with_mean=False``.

    Examples
    --------
    >>> model = LogisticRegression().fit(cache.layer(4), cache.labels)  # doctest: +SKIP
    >>> about = {name: getattr(model, name) for name in ("coef_", "intercept_", "classes_")}  # doctest: +SKIP
    >>> np.savez("sst2.npz", **about)  # doctest: +SKIP
    >>> probekit.import_probe("sst2.npz", "sst2.dev.h5", layer=4, keep="kept/mine")  # doctest: +SKIP

    On the command line::

        probekit import-probe sst2.npz sst2.dev.h5 --layer 4 --keep kept/mine
    """
    from probekit.activations import ActivationCache
    from probekit.analyses.cards import check_keep
    from probekit.monitors.probe import save_probes

    check_keep(keep, 1)
    path = Path(coefficients)
    weights, classes = read_coefficients(path)
    with ExitStack() as stack:
        opened = cache if isinstance(cache, ActivationCache) else stack.enter_context(ActivationCache(cache))
        result = _evaluated(weights, classes, opened, path, options, progress)
    if keep is not None:
        save_probes(result.probes, keep)
    return result


def read_coefficients(path: Path) -> tuple[Weights, np.ndarray | None]:
    """The probe of a file of scikit-learn's coefficients, and its classes, if they are in it.

    Raises
    ------
    DataError
        If an array is missing, no array of finite numbers, or of a shape that does not fit the others.
    """
    from probekit.activations.foreign.npz import npz
    from probekit.probes.kept import linear

    if not path.is_file() or not is_zipfile(path):
        why = "is no .npz file (numpy.savez writes one)" if path.is_file() else "there is no such file"
        raise DataError(f"{why}; expected the arrays coef_ and intercept_.", file=path)
    shapes = npz(path).shapes  # refuses pickles, and arrays that are not as large as they say
    if missing := [name for name in NEEDED if name not in shapes]:
        raise DataError(f"lacks {' and '.join(missing)}; write coef_ and intercept_ with numpy.savez.", file=path)
    if (size := 16 * sum(prod(shapes[name]) for name in (*NEEDED, *MORE) if name in shapes)) > LARGEST:
        raise DataError(f"its arrays take {in_words(size)} or so; a probe has at most {in_words(LARGEST)}.", file=path)
    with reading(path, "npz"), np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in (*NEEDED, *MORE) if name in file}
    classes = arrays.pop("classes_", None)
    for name, array in arrays.items():
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise DataError(f"{name} must hold finite numbers, not {array.dtype}, NaN or infinity.", file=path)
    weight = np.atleast_2d(arrays["coef_"]).astype(np.float64)
    (k, d), bias = weight.shape[-2:], np.atleast_1d(arrays["intercept_"])
    mean, scale = arrays.get("mean_", np.zeros(d)), arrays.get("scale_", np.ones(d))
    shown = {"coef_": weight, "intercept_": bias, "mean_": mean, "scale_": scale}
    if weight.ndim != 2 or bias.shape not in ((k,), (1,)) or {mean.shape, scale.shape} != {(d,)} or not k * d:
        said = ", ".join(f"{name} {shown[name].shape}" for name in arrays)
        raise DataError(f"the shapes do not fit each other: {said}.", file=path)
    if (scale == 0).any():
        raise DataError("scale_ is 0 somewhere; StandardScaler writes 1 for features that are constant.", file=path)
    if classes is not None and (classes.ndim != 1 or classes.dtype.kind not in "biuU"):
        raise DataError(f"classes_ must be texts or whole numbers (K,), not {classes.dtype}.", file=path)
    return linear(mean, weight / scale, np.broadcast_to(bias, k)), classes


def class_names(classes: np.ndarray | None, names: Sequence[str], outputs: int) -> list[str]:
    """The names of the classes in the order of the coefficients.

    Parameters
    ----------
    classes : np.ndarray, optional
        Texts, or whole numbers: the labels of the cache as ``cache.labels`` gives them, or its names.
    names : sequence of str
        The names of the classes of the cache; none if it has no labels.
    outputs : int
        The rows of coefficients.

    Raises
    ------
    UsageError
        If classes and coefficients do not fit, or numbers could be meant in two ways.
    """
    found = list(names)
    if classes is not None:
        found = [str(one) for one in classes.tolist()]
        if classes.dtype.kind in "iu" and names and classes.min() >= 0 and classes.max() < len(names):
            by_number = [names[i] for i in classes.tolist()]
            if set(found) <= set(names) and by_number != found:
                raise UsageError(
                    f"classes_ are the numbers {', '.join(found)}, and the cache calls its classes {', '.join(names)}, "
                    "so they could be meant in two ways; write classes_ as texts."
                )
            found = by_number
        if names and (unknown := [one for one in found if one not in names]):
            raise UsageError(f"classes_ has {', '.join(unknown):.80}; the cache has {', '.join(names):.80}.")
    if not (outputs == len(found) > 1 or (outputs == 1 and len(found) == 2)) or len(set(found)) < len(found):
        raise UsageError(
            f"there are {outputs} rows of coefficients for {len(found)} classes ({', '.join(found):.80}); two classes "
            "have one row, more a row each. Give classes_ in the file."
        )
    return found


def _evaluated(
    weights: Weights, classes: np.ndarray | None, cache: ActivationCache, path: Path, options: ImportOptions,
    progress: Progress,
) -> Result:  # fmt: skip
    """The rows of apply, and the probe with its card."""
    from probekit.analyses.apply import SCORES, ApplyOptions
    from probekit.analyses.apply.measure import measure
    from probekit.analyses.cards import Fitted, probes_of, rows_read, shared_card
    from probekit.analyses.options import VectorOptions
    from probekit.analyses.vectors import layer_vectors
    from probekit.monitors import Probe
    from probekit.monitors.probe import LABELS, NUMBERS

    (layer,) = cache.layer_names((options.layer,))
    vectors = VectorOptions(layers=(layer,), pooling=options.pooling)
    of = layer_vectors(cache, vectors)
    x = of.layers[layer]()
    spec, read = cache.spec, rows_read(of, vectors)
    if read["spans"] or spec["kind"] not in (*NUMBERS, *LABELS, "classification", "sequence-labelling"):
        raise UsageError(f"coefficients are read for texts and words with labels, not for {spec['kind']}.")
    if x.shape[1] != weights.width:
        raise UsageError(
            f"coef_ reads vectors of {weights.width} dimensions; those of layer {layer} of {cache.path} have "
            f"{x.shape[1]}. Name another --layer, or another cache."
        )
    if spec["kind"] in (*NUMBERS, *LABELS):
        names = list(spec["label_names"]) or [spec["task"]]
        if weights.outputs != len(names):
            raise UsageError(f"there are {weights.outputs} rows of coefficients for {len(names)} labels or numbers.")
    else:
        names = class_names(classes, spec["label_names"], weights.outputs)
    origin = {"task": spec["task"], "file": path.name, "digest": digest_of_content(path)}
    shared = shared_card((cache, cache), read, options, classes=names) | {"train": origin}
    about = {"layer": layer, **shared, "estimator": ESTIMATOR, "penalty": None, "n_train": None, "metrics": []}
    probe = Probe(weights, about)
    how = ApplyOptions(resamples=options.resamples, level=options.level, seed=options.seed)
    result = measure(probe, (cache, None, None), None, None, how, progress)
    if result.predictions:
        fitted = Fitted(layer, weights, weights.logits(x, np.flatnonzero(of.labels.known)))
        rows = result.rows[~result.rows["metric"].isin(SCORES)]
        (probe,) = probes_of([fitted], shared, rows, result.predictions[0], options)
    return replace(result, probes=(probe,), reads=(Read(str(path), "data", str(origin["digest"])), *result.reads))
