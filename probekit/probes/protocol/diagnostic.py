"""Diagnostic classifiers, layer by layer, with controls and baselines.

The procedure, separately for each layer (Conneau et al. 2018; Peters, Ruder & Smith 2019, section 3): features are
standardised on train; the penalty is chosen by cross-validation within train; the model is fitted again on all of
train and evaluated once. Uninformative labels (shuffled; random by word type, Hewitt & Liang 2019) and inputs without a
model go through the same procedure. The evaluated examples never influence a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.notes import logger
from probekit.probes.kept import Weights
from probekit.probes.protocol.baselines import Baselines, baseline_fits, constant_fit
from probekit.probes.protocol.experiment import Experiment, Fits, Vectors
from probekit.probes.protocol.label_sets import label_sets
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import LOG_LOSS, ProbeOptions
from probekit.probes.protocol.rows import probe_rows
from probekit.rows import layer_labels
from probekit.runtime import Progress, no_progress
from probekit.statistics.predictions import Predictions
from probekit.threads import working_threads

if TYPE_CHECKING:
    import pandas as pd

log = logger(__name__, by_input=True)

EVERY = 0.5
"""Seconds after which progress is told again, by the thread that called: a notebook shows nothing of others."""


def layer_rows(
    train_layers: Mapping[str, Vectors],
    train_labels: np.ndarray | Labels,
    dev_layers: Mapping[str, Vectors],
    dev_labels: np.ndarray | Labels,
    question: Question,
    *,
    baselines: Baselines = Baselines(),
    options: ProbeOptions = ProbeOptions(),
    progress: Progress = no_progress,
) -> pd.DataFrame:
    """Rows with each metric of each fit; arguments as for :func:`evaluate_layers`."""
    found = evaluate_layers(
        train_layers, train_labels, dev_layers, dev_labels, question,
        baselines=baselines, options=options, progress=progress,
    )  # fmt: skip
    seen = dev_labels.seen[dev_labels.known] if isinstance(dev_labels, Labels) and dev_labels.seen is not None else None
    return probe_rows(found, seen=seen, resamples=options.resamples, level=options.level, seed=options.seed)


def evaluate_layers(
    train_layers: Mapping[str, Vectors],
    train_labels: np.ndarray | Labels,
    dev_layers: Mapping[str, Vectors],
    dev_labels: np.ndarray | Labels,
    question: Question,
    *,
    baselines: Baselines = Baselines(),
    options: ProbeOptions = ProbeOptions(),
    progress: Progress = no_progress,
    keep: Callable[[str, Weights, np.ndarray], Any] = lambda *layer: None,
) -> Predictions:
    """Fit a probe on each layer, for gold labels and controls, and return its predictions for each dev example.

    Parameters
    ----------
    train_layers, dev_layers : mapping of str to array
        By layer name, float (n, d) arrays or memory maps, or functions that return one. They are read in blocks and
        need not fit into memory.
    train_labels, dev_labels : ndarray or Labels
        (n,). Unlabelled rows are left out and counted.
    question : Question
        The kind of labels, metrics, class names, and columns that describe the vectors.
    baselines : Baselines
        Inputs that need no model.
    options : ProbeOptions
        How the probes are fitted.
    progress : callable
        Called before the first fit and every half second, with the number of folds fitted over all layers.
    keep : callable
        Called with each layer, the weights of its probe of gold labels, and its logits of the labelled rows of dev.

    Returns
    -------
    Predictions
        The columns of ``fits`` are those of rows, and: penalty (the chosen setting), held_out (its mean loss on the
        folds, or the metric that chose it, with the sign for which small is good), penalty_at_edge (first or last of
        the grid and clearly better than its neighbour: widen the grid), converged (all fits involved), decrement
        (Newton decrement), digest (of the coefficients), n_train, left_out_train and left_out_dev (unlabelled rows),
        seen_in_train (dev rows that, or whose group, train contains too); with ``calibrate`` also temperature, and
        calibration-error-15 and brier, both plain and ", scaled" by the temperature.

    Raises
    ------
    NonFiniteError
        If a layer contains NaN or infinity; the message names the layer.
    UsageError
        For shapes, layers or labels that do not match.
    """
    if list(train_layers) != list(dev_layers):
        raise UsageError(f"train has the layers {', '.join(train_layers)}; dev has {', '.join(dev_layers)}.")
    has_sentences = [
        isinstance(y, Labels) and (y.groups is not None or y.sentences is not None) for y in (train_labels, dev_labels)
    ]
    if not all(has_sentences) and any(name.startswith("span-") for name in question.metrics):
        raise UsageError("span metrics need the sentence of each word: give Labels with sentences, for train and dev.")
    fitted: list[None] = []  # one for each fold of each piece of work, and for its last fit
    sets = label_sets(train_labels, dev_labels, question, options)
    experiment = Experiment(question, sets, options, lambda: fitted.append(None), keep)
    work: list[Callable[[], Fits]] = list(baseline_fits(experiment, baselines))  # the longest first
    work += [partial(experiment.layer, name, train_layers[name], dev_layers[name]) for name in train_layers]
    y = sets.train.y
    found = [constant_fit(np.bincount(y, minlength=sets.classes) if sets.classes else float(y.mean()), sets.dev.y)]
    parts = int(sets.fold.max()) + 2
    progress("probe", 0, parts * len(work))
    with working_threads(options.threads) as pool:
        for done, future in enumerate([pool.submit(piece) for piece in work]):
            while not wait([future], timeout=EVERY).done:
                progress("probe", min(max(len(fitted), parts * done), parts * len(work) - 1), parts * len(work))
            found.append(future.result())
        progress("probe", parts * len(work), parts * len(work))
    prior = sets.prior_loss if sets.classes and not options.balanced else None
    evaluated = gathered(found, question, {"seed": options.seed, **sets.sizes}, sets.dev, sets.y_dev, prior)
    _complain(evaluated, options, leaking=not question.classify or bool(np.isin(sets.dev.y, sets.train.y).all()))
    return evaluated


def gathered(
    found: Sequence[Fits],
    question: Question,
    sizes: Mapping[str, Any],
    dev: Labels,
    y_dev: np.ndarray,
    prior_loss: np.ndarray | None,
) -> Predictions:
    """One table of all fits, in their order.

    Parameters
    ----------
    sizes : mapping
        Columns of all rows: seed, n, n_train …
    dev : Labels
        The labelled rows of dev, n of them.
    y_dev, prior_loss : np.ndarray
        (T, n), their labels in each label set, gold first, and the log losses of the class frequencies in train.
    """
    import pandas as pd

    common = {**question.about, **sizes, "penalty": np.nan, "held_out": np.nan, "decrement": np.nan, "digest": ""}
    common |= {"penalty_at_edge": False, "converged": True}
    fits = pd.DataFrame([{**common, **fit} for one in found for fit in one.columns])
    which = np.concatenate([np.arange(len(one.columns)) for one in found])
    losses = [one.loss for one in found if one.loss is not None]
    shares = [one.probabilities.astype(np.float32) for one in found if one.probabilities is not None]
    measured = (LOG_LOSS,) if losses and LOG_LOSS not in question.metrics else ()
    return Predictions(
        fits,
        np.arange(len(dev.y)).astype(str) if dev.ids is None else dev.ids,
        y_dev[which],
        np.concatenate([one.predicted for one in found]),
        (*question.metrics, *measured),
        dev.groups,
        np.concatenate(losses).astype(np.float32) if losses else None,
        question.label_names,
        None if prior_loss is None else prior_loss[which],
        dev.sentences,
        np.stack(shares) if shares else None,
    )


def _complain(found: Predictions, options: ProbeOptions, *, leaking: bool) -> None:
    """Warn, once for all layers, of a narrow grid, fits that did not converge and, if asked, leaking folds."""
    names = layer_labels(found.fits)
    fits = found.fits.assign(name=("layer " + names).where(names != "", found.fits["representation"]))
    gold = fits[fits["target"] == "gold"]
    if edges := [f"{fit.name} ({fit.penalty:g})" for fit in gold[gold["penalty_at_edge"]].itertuples(index=False)]:
        log.info("the best penalty is at the edge of the grid in %s; widen the grid (penalties).", ", ".join(edges))
    if short := sorted(set(fits.loc[~fits["converged"].astype(bool), "name"])):
        log.warning("probes did not converge in %d iterations: %s.", options.max_iter, ", ".join(short))
    if leaking and found.log_loss is not None and options.choose_by == LOG_LOSS:
        loss = found.log_loss[gold.index].mean(1)
        prior = found.log_loss[fits.index[fits["estimator"] == "majority"]].mean()
        far = gold[(loss > 2 * gold["held_out"]) & (loss > prior)]
        if len(far):
            log.warning(
                "the log loss on dev is more than twice the cross-validated loss on train, and worse than that of the "
                "class frequencies, in %s. Are examples of train related to each other? See hold_out_domains.",
                ", ".join(far["name"]),
            )
