"""Paired differences: between layers, between models, and against controls, corrected over the layers of a curve.

All fits were evaluated on the same examples and meet the same resamples, so what examples share (being easy, being
hard) cancels. What is tested is whether *these fitted probes* differ on examples like these; that training them again,
or shuffling again, would give other probes is not in the p-value: give several seeds or shuffles for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import derive
from probekit.metrics import metric as metric_called
from probekit.rows import layer_labels, layer_order, make_rows
from probekit.statistics._sums import Units
from probekit.statistics.bootstrap import BLOCK, estimates, intervals, pseudo_values, replicates
from probekit.statistics.options import CompareOptions, Correction, Tails
from probekit.statistics.predictions import Predictions, join

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Family", "adjust", "compare_predictions", "curves", "holm", "main_metric", "paired"]

CURVE = (
    *("task", "split", "trained_on", "model", "checkpoint", "step", "regime", "head", "variant", "position"),
    *("representation", "estimator", "seed", "source"),
)
SAME = ("task", "split", "representation", "estimator", "target")
"""What two models have in common whose layers are compared."""


@dataclass(frozen=True, slots=True)
class Family:
    """Differences that are corrected together. Arrays (K,), intervals (K, 2).

    Attributes
    ----------
    value : np.ndarray
        Estimates.
    ci : np.ndarray
        Intervals of each one alone.
    joint : np.ndarray
        All at once (max-t), or NaN; p, p_adjusted.
    """

    value: np.ndarray
    ci: np.ndarray
    joint: np.ndarray
    p: np.ndarray
    p_adjusted: np.ndarray


@dataclass(frozen=True, slots=True)
class Contrast:
    """Fits of one curve and what each is held against: one family.

    Attributes
    ----------
    against : str
        What that is called.
    pairs : list[tuple[int, list[int]]]
        Positions of a fit and of those whose mean it is held against.
    shown : int
        How many of the pairs, from the first on, are reported; the others are corrected for.
    """

    against: str
    pairs: list[tuple[int, list[int]]]
    shown: int


def compare_predictions(
    evaluated: Predictions, other: Predictions | None = None, options: CompareOptions = CompareOptions()
) -> pd.DataFrame:
    """Rows of differences: each layer of each curve minus what it is held against, on the same examples.

    Parameters
    ----------
    evaluated : Predictions
        Of layers, or of whole models.
    other : Predictions, optional
        A second table, of the same examples. Without ``against``, the curves of ``evaluated`` minus those of ``other``
        (pretrained against fine-tuned), layer by layer; of whole models, as training runs leave them, the first minus
        the mean of the others; with "random", where the random model is.
    options : CompareOptions
        ``against``: "layer-0" (any "layer-NAME"), the same curve's layer of that name; "best", its best layer;
        "shuffled" or "control-task", the mean over the draws of that control on the same layer; "random", the same
        layer of the model with random weights. "layer-0" where neither this nor ``other`` is given.

    Returns
    -------
    DataFrame
        Rows, layers in their order: metric "difference(NAME)", value, ci_low and ci_high (of this one alone), p, and
        own columns against, p_adjusted, correction, joint_low and joint_high (all layers at once with the probability
        ``level``; max-t only).

    Raises
    ------
    UsageError
        Where there is nothing to hold against, or the tables hold other examples.

    Notes
    -----
    The null of a control: the fitted probe is right about its own labels as often as the control about its own. The
    two answer other questions; they are paired by example, because both see the same vectors. Matthews' coefficient
    suits best: whatever its class frequencies, a probe that knows nothing has 0.

    p-values: each example (group) has its share in a difference, the jackknife's pseudo-value; of accuracy and log-loss
    that is its own difference. Their signs are flipped, an example's in all layers at once, and Student's t, corrected
    for skewness, is computed again. Exact where differences are symmetric, as those of two accuracies are at the null.
    Centring the bootstrap instead found something in noise in up to 7 % of the cases where 5 % were wanted.
    ``p_adjusted`` is over the layers of a curve: step-down max-T (Westfall & Young 1993, algorithm 2.8) or Holm (1979).
    Against "best" all pairs of layers are one family, since the best was found by looking.
    """
    both = evaluated if other is None else join(evaluated, other)
    metric = options.metric or main_metric(both)
    against = options.against or ("layer-0" if other is None else "other")
    found = list(_contrasts(both, against, metric))
    if not found:
        raise UsageError(f"there is nothing to hold against {against!r}: {_there(both)}.")
    how: dict[str, Any] = {
        name: getattr(options, name) for name in ("correction", "tails", "resamples", "level", "seed")
    }
    records: list[dict[str, Any]] = []
    for contrast in found:
        family = paired(both, contrast.pairs, metric, **how)
        for k, (fit, _) in enumerate(contrast.pairs[: contrast.shown]):
            of: dict[Any, Any] = both.fits.iloc[fit].drop(labels="source", errors="ignore").to_dict()
            records.append(
                {
                    **of,
                    **{"analysis": "compare", "metric": derive("difference", metric), "value": family.value[k]},
                    **{"ci_low": family.ci[k, 0], "ci_high": family.ci[k, 1], "p": family.p[k], "n": len(both.ids)},
                    **{"against": contrast.against, "p_adjusted": family.p_adjusted[k]},
                    **{"correction": str(options.correction)},
                    **{"joint_low": family.joint[k, 0], "joint_high": family.joint[k, 1]},
                }
            )
    return make_rows(records)


def paired(
    evaluated: Predictions,
    pairs: list[tuple[int, list[int]]],
    metric: str,
    *,
    correction: Correction = Correction.MAX_T,
    tails: Tails = Tails.TWO_SIDED,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Family:
    """Each fit minus the mean of some others, K of them as one family; see :func:`compare_predictions`."""
    correction, tails = Correction(correction), Tails(tails)
    used = sorted({f for one, others in pairs for f in (one, *others)})
    part, place = evaluated.take(used), {f: i for i, f in enumerate(used)}
    at = [(place[one], [place[f] for f in others]) for one, others in pairs]

    def minus(of: np.ndarray) -> np.ndarray:
        return np.stack([of[one] - of[others].mean(0) for one, others in at])

    units = Units.of_groups(part.groups, len(part.ids))
    value = minus(estimates(metric=metric, **part.sample()))
    again = minus(replicates(metric=metric, resamples=resamples, seed=seed, **part.sample()))
    difference = minus(pseudo_values(metric=metric, **part.sample()))
    t, null = _statistic(difference), np.concatenate(list(_flipped(difference, resamples, seed)), axis=1)
    t = np.where(np.isnan(value), np.nan, t)
    sign = 0 if tails is Tails.TWO_SIDED else metric_called(metric).sign
    size, null = (np.abs(x) if sign == 0 else sign * x for x in (t, null))
    p = _share(null, size[:, None])
    step_down = correction is Correction.MAX_T
    p_adjusted = adjust(size, null) if step_down else holm(p)
    reach = np.quantile(np.abs(null).max(0), level) if step_down else np.nan
    error = again.std(1, ddof=1)
    joint = np.stack([value - error * _unbent(side * reach, difference) for side in (1, -1)], axis=1)
    return Family(value, intervals(again, level=level, units=units.count), joint, p, p_adjusted)


def _statistic(difference: np.ndarray, signs: np.ndarray | None = None) -> np.ndarray:
    """Student's t of the units' differences (K, units), their skewness taken out, (K,); with signs (R, units): (K, R).

    Signs that are drawn are symmetric, the differences need not be: one fit that is seldom right minus the mean of
    several is skew, and t alone finds too much on one side. Hall's cubic mends that (Hall 1992, T₁); being computed of
    the flipped differences in the same way, it leaves the test exact where they are symmetric.
    """
    m = difference.shape[1]
    flip = np.ones((1, m)) if signs is None else 2.0 * signs - 1
    scale = np.sqrt((difference**2).mean(1, keepdims=True))
    scaled = np.divide(difference, scale, out=np.zeros_like(difference), where=scale > 1e-9)
    mean, third = (scaled @ flip.T) / m, (scaled**3 @ flip.T) / m
    spread = np.sqrt(np.maximum(1 - mean**2, 1e-9))
    t, c = np.sqrt(m) * mean / spread, (third - 3 * mean + 2 * mean**3) / spread**3 / np.sqrt(m)
    bent = np.where(scale > 1e-9, t + c * t**2 / 3 + c**2 * t**3 / 27 + c / 6, 0.0)
    return bent[:, 0] if signs is None else bent


def _unbent(t: float, difference: np.ndarray) -> np.ndarray:
    """Student's t of which Hall's cubic makes ``t``, for the skewness of the differences (K, units); (K,)."""
    centred = difference - difference.mean(1, keepdims=True)
    spread = centred.std(1)
    skew = np.divide((centred**3).mean(1), spread**3, out=np.zeros_like(spread), where=spread > 1e-9)
    c = np.where(np.abs(skew) < 1e-6, 1e-6, skew) / np.sqrt(difference.shape[1])
    return 3 / c * (np.cbrt(1 + c * (t - c / 6)) - 1)


def _flipped(difference: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """The statistic with each unit's sign drawn, the same in all K differences: (K, resamples of this block)."""
    rng, units = np.random.default_rng([seed, 1]), difference.shape[1]
    step = max(1, BLOCK // units)
    for at in range(0, resamples, step):
        yield _statistic(difference, rng.integers(2, size=(min(step, resamples - at), units), dtype=np.int8))


def _share(null: np.ndarray, t: np.ndarray) -> np.ndarray:
    """p-values: how often chance does as well, the data themselves being counted as one draw of chance."""
    return np.where(np.isnan(t[:, 0]), np.nan, (1 + (null >= t - 1e-9).sum(1)) / (1 + null.shape[1]))


def adjust(t: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Step-down max-T p-values (K,), from statistics t (K,) and their null draws (K, R); large t speaks against it.

    The largest t is held against the largest of all, the next one against the largest of the rest, and so on; no
    p-value is below that of a larger t (Westfall & Young 1993, algorithm 2.8). NaN stays NaN.
    """
    order = np.argsort(-np.where(np.isnan(t), -np.inf, t), kind="stable")
    largest = np.maximum.accumulate(null[order][::-1], axis=0)[::-1]
    p = np.maximum.accumulate(_share(largest, t[order][:, None]))
    out = np.empty_like(p)
    out[order] = p
    return np.where(np.isnan(t), np.nan, out)


def holm(p: np.ndarray) -> np.ndarray:
    """p-values (K,) corrected for there being K (Holm 1979); NaN, where nothing was tested, is not counted."""
    order = np.argsort(p, kind="stable")
    left = np.isfinite(p).sum() - np.arange(len(p))
    steps = np.maximum.accumulate(np.minimum(1, p[order] * left))
    out = np.empty_like(p)
    out[order] = steps
    return out


def main_metric(evaluated: Predictions) -> str:
    """The table's first metric."""
    return evaluated.metrics[0]


def curves(evaluated: Predictions, *, targets: bool = False) -> list[np.ndarray]:
    """Positions of the fits of each curve, layers in order (``final_norm`` last): same model, data and way of reading.

    Parameters
    ----------
    targets : bool, default False
        Curves of controls, too, one a draw; otherwise of "gold" only.
    """
    fits = evaluated.fits
    keep = (fits["site"] != "").to_numpy(dtype=bool, copy=True)
    if not targets:
        keep &= (fits["target"] == "gold").to_numpy(dtype=bool)
    by = [name for name in (*CURVE, "target", "draw") if name in fits]
    stream = fits[keep]["site"].replace("final_norm", "resid_post")  # other sites are curves of their own
    part = fits[keep].assign(_at=np.flatnonzero(keep), _order=layer_order(fits[keep]), _stream=stream)
    whole = part.groupby([*by, "_stream"], sort=False, dropna=False)
    groups = [group.sort_values("_order", kind="stable") for _, group in whole]
    for group in groups:
        if (twice := group.duplicated(["site", "layer"])).any():
            name = layer_labels(group[twice]).iloc[0]
            raise UsageError(
                f"layer {name} of {group['model'].iloc[0]} was fitted more than once with the same description "
                f"({', '.join(by)}); take the fits of one penalty."
            )
    return [group["_at"].to_numpy() for group in groups]


def _contrasts(e: Predictions, against: str, metric: str) -> Iterator[Contrast]:
    """What each curve is held against."""
    names = layer_labels(e.fits).to_numpy()
    every = curves(e, targets=True)
    for curve in curves(e):
        pairs: list[tuple[int, list[int]]]
        if against == "best":
            yield from _against_best(e, curve, metric, names)
            continue
        if against.startswith("layer-"):
            reference = [f for f in curve if names[f] == against.removeprefix("layer-")]
            pairs = [(int(f), reference) for f in curve if reference and f not in reference]
            name = against.replace("-", " ", 1)
        else:
            theirs = [c for c in every if _held_against(e.fits, curve, c, against)]
            others = {int(f): [int(g) for c in theirs for g in c if names[g] == names[f]] for f in curve}
            pairs = [(f, held) for f, held in others.items() if held]
            name = _called(e.fits, theirs, against)
        if pairs:
            yield Contrast(name, pairs, len(pairs))
    if against == "other" and not every:  # whole models, as training runs leave them, have no layers
        first, second = (np.flatnonzero(e.fits["source"] == i) for i in (0, 1))
        if all(e.fits[name].nunique() == 1 for name in ("task", "split", "target")):
            yield Contrast(_called(e.fits, [second], against), [(int(f), list(second)) for f in first], len(first))


def _against_best(e: Predictions, curve: np.ndarray, metric: str, names: np.ndarray) -> Iterator[Contrast]:
    """Each layer against the best one; all pairs of layers are one family."""
    value = estimates(metric=metric, **e.take(curve).sample())
    if np.isnan(value).all() or len(curve) < 2:
        return
    best = curve[metric_called(metric).best(value)]
    rest = [int(f) for f in curve if f != best]
    pairs = [(f, [int(best)]) for f in rest] + [(f, [g]) for i, f in enumerate(rest) for g in rest[:i]]
    yield Contrast(f"layer {names[best]} (best)", pairs, len(rest))


def _held_against(fits: pd.DataFrame, curve: np.ndarray, other: np.ndarray, against: str) -> bool:
    """Whether one curve is what another is held against."""
    one, two = (dict(fits.iloc[at[0]].astype(object).fillna("")) for at in (curve, other))
    if against == "other":
        return bool(one["source"] == 0 and two["source"] == 1) and all(one[name] == two[name] for name in SAME)
    if against == "random":
        random = [row.get("random_weights", "") != "" for row in (one, two)]
        return random == [False, True] and all(one[name] == two[name] for name in SAME)
    of_one_curve = all(one[name] == two[name] for name in CURVE if name in fits)
    return of_one_curve and two["target"] == against and two["draw"] != ""


def _called(fits: pd.DataFrame, theirs: list[np.ndarray], against: str) -> str:
    if against not in ("random", "other") or not theirs:
        return against
    row = fits.iloc[theirs[0][0]].astype(object).fillna("").to_dict()
    run = row["checkpoint"] if row.get("random_weights", "") == "" else "random weights"
    return " ".join(filter(None, (row["model"], run)))


def _there(e: Predictions) -> str:
    pairs = zip(e.fits["model"], e.fits["checkpoint"], strict=True)
    models = sorted({" ".join(filter(None, map(str, pair))) for pair in pairs})
    layers = ", ".join(name for name in layer_labels(e.fits).unique() if name)
    return (
        f"the tables hold {f'the layers {layers}' if layers else 'no layers'}, "
        f"the targets {', '.join(e.fits['target'].unique())} "
        f"and the models {', '.join(models)}"
    )
