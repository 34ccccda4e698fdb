"""Which classes are taken for which: counts of gold and predicted classes, from predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import OUTSIDE, metric, span_part
from probekit.statistics.bootstrap import estimates
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def confusion_counts(found: Predictions) -> pd.DataFrame:
    """How often the examples of each class are predicted as each class, for each fit of gold labels.

    Parameters
    ----------
    found : Predictions
        Predictions of classes or tags. Tags of entities count by type: B-PER and I-PER are both PER.

    Returns
    -------
    DataFrame
        For each fit a row for each pair of classes: the columns of the fit, ``metric`` and ``value`` of its main
        metric, ``n``, and ``gold``, ``predicted`` and ``count``. Classes have the order of the task, types of entities
        that of their names, before words outside entities; a class that is neither gold nor predicted is left out.

    Raises
    ------
    UsageError
        If the predictions are numbers, or of several labels of a text.
    """
    import pandas as pd

    found = found.take(found.is_gold)
    one = found.gold if found.gold.ndim == 1 else found.gold[0]
    if one.dtype.kind == "f" or not found.label_names or found.of_label is not None:
        what = "several labels of a text" if found.of_label is not None else "no classes with names"
        raise UsageError(
            f"{found.task} {found.split} has {what}; a confusion matrix needs one class, or tag, for each example."
        )
    names, code = _classes(found)
    cells, k = code[one] * len(names) + code[found.predicted], len(names)
    counts = np.stack([np.bincount(fit, minlength=k * k).reshape(k, k) for fit in cells])
    occurs = np.flatnonzero((counts.sum(1) + counts.sum(2)).any(0))
    counts = counts[:, occurs][:, :, occurs]
    main = found.metrics[0]
    value = estimates(**found.sample(), metric=main, score=metric(main).function)
    fits = found.fits.assign(metric=main, value=value, n=len(found.ids))
    pairs = [(names[gold], names[said]) for gold in occurs for said in occurs]
    of_pairs = pd.DataFrame(pairs * len(fits), columns=["gold", "predicted"]).assign(count=counts.reshape(-1))
    return pd.concat([fits.loc[fits.index.repeat(len(pairs))].reset_index(drop=True), of_pairs], axis=1)


def _classes(found: Predictions) -> tuple[list[str], np.ndarray]:
    """The names of classes, or of types of entities, and the place of each code among them."""
    if not any(metric(name).spans for name in found.metrics):
        return list(found.label_names), np.arange(len(found.label_names))
    parts = [span_part(name) for name in found.label_names]
    kinds = [OUTSIDE[0] if part == OUTSIDE else part[1] for part in parts]
    outside = [OUTSIDE[0]] * (OUTSIDE in parts)
    names = [*sorted(kind for kind, part in dict(zip(kinds, parts, strict=True)).items() if part != OUTSIDE), *outside]
    return names, np.array([names.index(kind) for kind in kinds])
