"""Diagnostic classifiers on each layer, with their controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Corrected, Reads
from probekit.constraint import WRITTEN
from probekit.grid import Column, Grid
from probekit.probes.protocol.options import ProbeOptions
from probekit.public import public
from probekit.rows.schema import layer_labels
from probekit.rows.tidy import best_rows
from probekit.runtime import Progress, no_progress
from probekit.view import EACH, Cells, Options, View, by_layer, interval, lines_of

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result
    from probekit.tasks import Task


@public(vectors=VectorOptions, options=ProbeOptions, faster="controls=0")
def probe(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    metrics: tuple[str, ...] | str | None = None,
    task: str | Task | None = None,
    data_dir: str | Path | None = None,
    keep: Annotated[Path | None, WRITTEN] = None,
    vectors: VectorOptions,
    options: ProbeOptions,
    progress: Progress = no_progress,
) -> Result:
    """Fit a diagnostic classifier on each layer of TRAIN.h5 and evaluate it on DEV.h5, with controls.

    Features are standardised on train, the penalty is chosen by cross-validation within train, the classifier (ridge
    regression for numeric labels) is refitted on all of train and evaluated once on dev, with a bootstrap interval.
    Controls: shuffled labels, and for word-level tasks random labels by word type. Baselines: bag and tf-idf of word
    pieces, and the length of the text. All go through the same procedure. Further pairs of caches (for example, of the
    same model with random weights) add to the same rows. On the command line, two quoted patterns stand for all pairs
    that they match, in the order of their steps.

    Parameters
    ----------
    train : path or ActivationCache
        The cache to fit on.
    dev : path or ActivationCache
        The cache to evaluate on, of the same task and model.
    *more : path or ActivationCache
        Further pairs.
    metrics : tuple of str, optional
        Metrics, separated by commas, the main one first; by default those of the task.
    task : str or Task, optional
        For caches of the sentences of several tasks (``task="A+B"``): the task to take labels from.
    data_dir : path, optional
        Folder of the task's files.
    keep : path, optional
        A folder for the probes: ``probekit apply`` scores texts with them. Also measures calibration, as
        ``calibrate`` does. One pair of caches only.
        Kept probes of the same model and task are replaced there, unless a layer would be lost.
    vectors : VectorOptions
        ``pooling`` and ``layers``; each may be given as a keyword.
    options : ProbeOptions
        ``estimator``, ``penalties``, ``controls``, ``folds``, ``seed`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        A row for each layer and metric, and for each control; the predictions of each probe for each example.

    Raises
    ------
    CacheMismatch
        If the two caches of a pair do not match.
    NonFiniteError
        If a layer contains NaN; the message names the layer.
    UsageError
        For an odd number of caches, an unknown layer, pooling or metric.

    Examples
    --------
    >>> result = probekit.probe("cola.train.h5", "cola.dev.h5")  # doctest: +SKIP
    >>> probekit.plots.layer_curve(result)  # doctest: +SKIP

    On the command line::

        probekit probe cola.train.h5 cola.dev.h5 --out cola.parquet
        probekit probe cola.train.h5 cola.dev.h5 random.train.h5 random.dev.h5 --out cola.parquet
        probekit probe sst2.train.h5 sst2.dev.h5 --pooling first --penalties 0.001,0.01,0.1,1,10
        probekit probe pos.train.h5 pos.dev.h5 --estimator mlp --controls 1
        probekit probe sst2.train.h5 sst2.dev.h5 --layers 4 --keep kept/sst2
        probekit probe chunks.train.h5 chunks.test.h5 --span mean
        probekit probe ud.train.h5 ud.dev.h5 --task ud-relations --data-dir UD_English-EWT
        probekit probe 'data_cache/cola.train.*step-*' 'data_cache/cola.dev.*step-*' --out trajectory.parquet
    """
    from probekit.analyses.probe.measure import measure
    from probekit.analyses.train_dev import Pairs

    return measure(Pairs((train, dev, *more)), metrics, task, data_dir, keep, vectors, options, progress)


def _lined(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each layer, and for each prediction without one: by its estimator, or by what it reads."""
    rows = by_layer(rows[rows["draw"].isna()])
    constant = rows["representation"].isin(("none", "word-type"))
    name = rows["estimator"].where(constant, rows["representation"])
    return rows.assign(line=rows["line"].where(rows["line"] != "", name))


def _metrics(rows: pd.DataFrame) -> list[str]:
    """The metrics that have columns: those of constant predictions."""
    constant = rows["estimator"].isin(("majority", "mean")) & (rows["metric"] != "v-information")
    return list(rows.loc[constant, "metric"].unique())


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    """Each metric: the first with its interval, permuted labels and controls; control tasks of spans with accuracy."""
    from probekit.metrics import metric

    first, *_ = names = _metrics(rows)
    controls = {"shuffled": first, "control-task": "token-accuracy" if metric(first).spans else first}
    for name in names:
        yield Cells(name, name, best=True)
        if name == first:
            yield Cells(interval(options), name, "interval", align="center", dim=True)
            yield Cells("permuted", name, "null_mean", dim=True)
            yield Cells("p adjusted", name, "p_adjusted", "p", dim=True)
        yield from (Cells(control, name, target=control, dim=True) for control in controls if controls[control] == name)
    unsettled = set(rows.loc[~rows["converged"].astype(bool), "line"])

    def penalty(row: Mapping[str, Any]) -> str:
        marks = " (edge)" * int(row["penalty_at_edge"]) + " not converged" * (row["line"] in unsettled)
        return "" if row["penalty"] != row["penalty"] else f"{row['penalty']:g}{marks}"

    yield Cells("penalty", first, "penalty", penalty, label=True)


def _title(rows: pd.DataFrame, options: Options) -> str:
    return f": {rows['n'].iloc[-1]:,} evaluated, {rows['n_train'].iloc[-1]:,.0f} fitted"


def _notes(rows: pd.DataFrame, options: Options) -> Iterator[str]:
    """The best layer's interval over all layers, why others have none, and what was left out."""
    name = _metrics(rows)[0]
    of_layers = rows[(rows["site"] != "") & (rows["target"] == "gold") & (rows["metric"] == name)]
    best = of_layers[of_layers["line"].isin(Cells(name, name).best_of(rows))]
    if best["joint_low"].notna().any():
        layer, low, high = layer_labels(best).iloc[0], best["joint_low"].iloc[0], best["joint_high"].iloc[0]
        yield f"best layer {layer}: {name} {low:.3f} – {high:.3f}, an interval that holds for all layers at once."
    for text in dict.fromkeys(of_layers["why"].dropna() if "why" in rows else ()):
        if text:
            yield f"some layers have no interval: {text}."
    head = rows.iloc[-1]
    if left_out := [f"{head[c]:,} in {c[9:]}" for c in ("left_out_train", "left_out_dev") if head[c]]:
        yield f"unlabelled, left out: {', '.join(left_out)}"


VIEW = View(_cells, _title, _notes, lined=_lined)


def _by_label(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each label at the layer that is best in the first metric: a line for each label and its support."""
    its = rows[(rows["site"] != "") & (rows["target"] == "gold")]
    whole, own = its[its["label"].isna()], its[its["label"].notna()]
    curve, first = [*EACH, "representation", "estimator"], _metrics(rows[rows["label"].isna()])[0]
    best = best_rows(whole[whole["metric"] == first], tuple(curve))[[*curve, "site", "layer"]]
    found = own.merge(best, on=[*curve, "site", "layer"], how="inner")
    return found.assign(line=lines_of(found["label"], found["support"].astype("Int64").map("{:,}".format)))


def _cells_of_labels(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    for i, name in enumerate(dict.fromkeys(rows["metric"])):
        yield Cells(name.removeprefix("by-label(").removesuffix(")"), name)
        if not i:
            yield Cells(interval(options), name, "interval", align="center", dim=True)
            yield Cells("permuted", name, "null_mean", dim=True)
            yield Cells("p adjusted", name, "p_adjusted", "p", dim=True)


def _title_of_labels(rows: pd.DataFrame, options: Options) -> str:
    return f", layer {layer_labels(rows).iloc[0]}: each label alone"


def _notes_of_labels(rows: pd.DataFrame, options: Options) -> Iterator[str]:
    if rows["p_adjusted"].notna().any():
        yield f"p is corrected over the layers and the {rows['label'].nunique()} labels together."
    if rows["ci_low"].notna().any():
        yield "Intervals hold for one label at one layer: the best of many labels, or layers, is likely too high."


LABELS = View(
    _cells_of_labels, _title_of_labels, _notes_of_labels,
    keys=(Column("label", "left", key=True), Column("examples")), lined=_by_label,
)  # fmt: skip


def tables(rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid, list[str]]]:
    """The table by layer, and that of each label alone where rows have it."""
    if "label" not in rows or rows["label"].isna().all():
        yield from VIEW(rows, options)
        return
    yield from VIEW(rows[rows["label"].isna()], options)
    yield from LABELS(rows, options)


ANALYSIS = Analysis(
    name="probe",
    help="Fit a diagnostic classifier on each layer.",
    title="Diagnostic classifiers",
    reads=Reads.PAIRS,
    corrected=Corrected.CURVES,
    judge="probekit.analyses.probe.sentences:sentences",
    view="probekit.analyses.probe:tables",
    layered=True,
    best="Best layer of each curve. It was selected on the examples on which it is reported; its interval holds "
    "for all layers at once, if the rows have such intervals.",
    place=10,
    in_suites=10.0,
    board="probekit.analyses.scoreboard.lines:lines_of_predictions",
)
