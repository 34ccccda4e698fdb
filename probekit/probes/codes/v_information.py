"""V-information: how much knowing the vectors helps a family of predictors to guess the labels (Xu et al. 2020).

I_V(X → Y) = H_V(Y | ∅) - H_V(Y | X): the log loss of the best predictor of the family V that sees nothing, minus that
of the best one that sees X, both fitted on train and measured on held-out examples. With V linear, computation
counts: information that a linear probe cannot use is not there. It may be negative, where the fit is worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.rows import make_rows
from probekit.statistics.bootstrap import bounds

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["pointwise", "prior_loss", "v_information_rows"]


def prior_loss(y_train: np.ndarray, y_dev: np.ndarray) -> np.ndarray:
    """Log loss in nats of a predictor that sees nothing, float64 (n,): -ln of each label's frequency in train.

    Parameters
    ----------
    y_train, y_dev : np.ndarray
        Class indices. A class that train lacks counts as half an example.
    """
    counts = np.bincount(y_train, minlength=int(y_dev.max()) + 1)
    frequency = np.maximum(counts, 0.5)
    return -np.log(frequency / frequency.sum())[y_dev]


def pointwise(log_loss: np.ndarray, y_train: np.ndarray, y_dev: np.ndarray) -> np.ndarray:
    """Pointwise V-information of each example in bits, float64 (F, n) (Ethayarajh, Choi & Swayamdipta 2022).

    High where the vectors make the label easy to guess; negative where they mislead, as a wrong label's do. The mean
    over examples is the V-information.

    Parameters
    ----------
    log_loss : np.ndarray
        (F, n), nats, of F fits on dev. y_train (n_train,) or (F, n_train), y_dev (n,) or (F, n) : class indices, one
        row a fit where the fits were asked for different labels.

    Raises
    ------
    UsageError
        For shapes that do not fit, unlabelled examples and losses that are not finite.
    """
    log_loss, train, dev = (np.asarray(a) for a in (log_loss, y_train, y_dev))
    fits = len(np.atleast_1d(log_loss))
    train, dev = (np.atleast_2d(y) for y in (train, dev))
    if (
        log_loss.ndim != 2
        or not log_loss.size
        or dev.shape not in (log_loss.shape, (1, log_loss.shape[-1]))
        or len(train) not in (1, fits)
    ):
        raise UsageError(
            f"losses {log_loss.shape} do not go with labels {train.shape} of train and {dev.shape} of dev; "
            "(F, n), (n_train,) and (n,) are wanted."
        )
    if train.dtype.kind not in "iu" or dev.dtype.kind not in "iu" or min(train.min(), dev.min()) < 0:
        raise UsageError("V-information is defined here for classes, all labelled: whole numbers from 0.")
    if not np.isfinite(log_loss).all():
        raise UsageError("a loss is not finite: a probe must leave some probability for every class.")
    pairs = max(len(train), len(dev))
    prior = [prior_loss(train[i % len(train)], dev[i % len(dev)]) for i in range(pairs)]
    return (np.stack(prior) - log_loss) / np.log(2)


def v_information_rows(
    log_loss: np.ndarray,
    y_train: np.ndarray,
    y_dev: np.ndarray,
    *,
    about: Sequence[Mapping[str, Any]],
    groups: np.ndarray | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Three rows a fit, in bits an example: "v-information", "v-entropy" (of nothing) and "conditional-v-entropy".

    Parameters
    ----------
    log_loss, y_train, y_dev : np.ndarray
        As :func:`pointwise` takes them.
    about : Sequence[Mapping[str, Any]]
        The columns of each of the F fits: task, split, model, layer, representation, estimator, target …
    groups : np.ndarray, optional
        (n,), examples that are drawn together.
    resamples, level, seed : int or float
        Of the bootstrap over dev examples, which leaves the fits as they are; 0 for no interval.
    """
    log_loss = np.asarray(log_loss, dtype=np.float64)
    gain = pointwise(log_loss, y_train, y_dev)
    if len(about) != len(gain):
        raise UsageError(f"about describes {len(about)} fits; there are losses of {len(gain)}.")
    given = log_loss / np.log(2)
    records: list[dict[str, Any]] = []
    for metric, bits in (("v-information", gain), ("v-entropy", gain + given), ("conditional-v-entropy", given)):
        how: dict[str, Any] = {"groups": groups, "resamples": resamples, "level": level, "seed": seed}
        ends = bounds(y_dev, bits, "log-loss", log_loss=bits, **how).ci
        records += [
            {"checkpoint": "", "target": "gold", **own, "metric": metric, "value": values.mean(), "ci_low": low}
            | {"ci_high": high, "seed": seed, "n": len(values), "unit": "bits"}
            for own, values, (low, high) in zip(about, bits, ends, strict=True)
        ]
    return make_rows(records)
