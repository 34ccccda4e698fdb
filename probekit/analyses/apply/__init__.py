"""A kept probe on other data: scores, and on labelled data its metrics beside those of its card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from probekit.analysis import Analysis
from probekit.constraint import Checked, Count, Seed, Share
from probekit.grid import Column
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.statistics.options import ResamplesOrNone
from probekit.view import Cells, Options, View, interval

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.models.encoder import Encoder
    from probekit.monitors import Probe
    from probekit.rows import Result
    from probekit.statistics.predictions import Predictions
    from probekit.tasks import Task


@dataclass(frozen=True, slots=True)
class ApplyOptions(Checked):
    """How texts are read and scored."""

    layer: int | str | None = option(None, "The probe's layer, if the folder keeps several (default: the best on dev).")
    by: Literal["text", "piece"] = option("text", "text, or piece: a score of each word piece of texts.")
    anyway: bool = option(
        False, "Apply the probe to another model, tokenizer, precision or pooling than its own; what differs is said."
    )
    rate: Share | None = option(
        None, "Say which scores are above the card's threshold for this rate of false positives: 0.01, 0.05 or 0.1."
    )
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    batch_tokens: Count | None = option(None, "Word pieces in a batch (default: as for cache-activations).")
    resamples: ResamplesOrNone = option(1000, "As for probe: bootstrap resamples and permutations; 0 for neither.")
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of the resamples.")


@public(options=ApplyOptions)
def apply(
    probe: str | Path | Probe,
    data: str | Path | Task | ActivationCache,
    /,
    *,
    split: str | None = None,
    data_dir: str | Path | None = None,
    model: str | Path | Encoder | None = None,
    beside: str | Path | Result | Predictions | None = None,
    options: ApplyOptions,
    progress: Progress = no_progress,
) -> Result:
    """Score texts with a kept probe; on labelled data also measure how good it is.

    The model runs only up to the probe's layer. An example of a cache gets the very score that ``probekit probe``
    computed; of a text, the same on the same machine and version (of attention probes and monitors, to 1e-5). Another
    model, tokenizer, precision or pooling than the one the probe was fitted on is refused.

    Parameters
    ----------
    probe : path or Probe
        A folder that ``probekit probe --keep`` wrote.
    data : path, str, Task or ActivationCache
        A file of texts (.txt, a text a line; .jsonl with the field text), a cache, a task file or the name of a task.
    split : str, optional
        The split of a task (default: dev, or its only one).
    data_dir : path, optional
        Folder with the task's files.
    model : str, path or Encoder, optional
        The model that reads texts (default: the name in the probe's card).
    beside : path, Result or Predictions, optional
        The result of :func:`probekit.probe` when the probe was kept, its file, or its .examples.parquet: on the dev
        split of then, each metric is also compared with that of then, example by example (:func:`probekit.compare`).
    options : ApplyOptions
        ``layer``, ``by``, ``anyway`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        A row for each text, word or piece: ``example`` is its id; ``value`` the score, a logit for two classes
        (``probe-score``), else the probability of the predicted class, or the number; ``predicted`` and ``probability``
        the class and its probability; if texts are cut, ``truncated`` says which; with ``rate`` also ``above``,
        whether the score is above the card's ``threshold``
        for this rate, whose interval is ``rate_low`` to ``rate_high``; ``seen_in_train`` says how many of the examples
        of dev behind it share a text or a group with train.

        On labelled data also a row for each metric of the card and of the task, with its interval, and the value on the
        dev split that the probe was kept with (``kept``, ``kept_low``, ``kept_high``); with ``rate``
        "false-positives-at-threshold" and "recall-at-threshold", the shares of negatives (class 0) and of positives
        (class 1) above the card's threshold; with ``beside`` rows "difference(METRIC)", now minus then, with interval
        and p; and the predictions.

    Raises
    ------
    UsageError
        If the data are of another model, tokenizer, precision, pooling or kind than the probe's, or ``beside`` is of
        other examples.
    DataError
        If the folder holds no kept probe, or the texts cannot be read.

    Examples
    --------
    >>> result = probekit.apply("kept/sst2", "reviews.txt", layer=4)  # doctest: +SKIP
    >>> result.rows[["example", "value", "predicted"]]  # doctest: +SKIP

    On the command line::

        probekit apply kept/sst2 reviews.txt --out scores.csv
        probekit apply kept/sst2 reviews.toml --split test --layer 4 --out test.parquet
        probekit apply kept/sst2 sst2.dev.h5
        probekit apply kept/sst2 sst2.dev.int8.h5 --anyway --beside sst2.parquet
        probekit apply kept/sst2 reviews.txt --rate 0.05 --out scores.csv
        probekit apply kept/sst2 reviews.txt --by piece --model ./my-bert --out pieces.csv
    """
    from probekit.analyses.apply.measure import measure

    return measure(probe, (data, split, data_dir), model, beside, options, progress)


SCORES = ("probe-score", "probability")
"""Metrics of the rows of single texts, words and pieces."""


def tables(rows: pd.DataFrame, options: Options) -> Any:
    """The metrics beside those of the card, and how many texts are predicted as each class."""
    of_one = rows["metric"].isin(SCORES)
    if (~of_one).any():
        yield from METRICS(rows[~of_one].assign(target="gold"), options)
    if of_one.any():
        yield from COUNTS(rows[of_one], options)


def _by_metric(rows: pd.DataFrame) -> pd.DataFrame:
    """Lines for the metrics, with the difference from then, and for those of each label."""
    parts = rows["metric"].str.extract(
        r"^(?:(difference|by-label)\()?([^()]+)\)?$"
    )  # no others, such as above-permuted
    shown = rows[parts[1].notna()].assign(line=parts[1])
    if "label" in shown:
        shown["line"] = shown["line"].where(shown["label"].isna(), shown["label"] + ": " + shown["line"])
    return shown.assign(metric=parts[0].where(parts[0] == "difference", ""))


def _metric_cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    yield Cells("here", "")
    yield Cells(interval(options), "", "interval", align="center", dim=True)
    yield Cells("permuted", "", "null_mean", dim=True)
    yield Cells("p", "", "p", "p", dim=True)
    yield Cells("when kept", "", "kept")
    if (rows["metric"] == "difference").any():
        yield Cells("difference", "difference")
        yield Cells(interval(options), "difference", "interval", align="center", dim=True)
        yield Cells("p", "difference", "p", "p", dim=True)


def _by_class(rows: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    by = next((name for name in ("predicted", "label") if name in rows and rows[name].notna().any()), None)
    named = "all" if by is None else rows[by]
    named = pd.Series(named, index=rows.index).where(rows["value"].notna(), "blank")
    parts = rows.groupby(named, sort=True)
    return pd.concat([
        part.iloc[:1].assign(line=str(name), value=part["value"].mean(), count=len(part), share=len(part) / len(rows))
        for name, part in parts
    ])  # fmt: skip


def _count_cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    metric = rows["metric"].iloc[0]
    yield Cells("scored", metric, "count", ",.0f")
    yield Cells("share", metric, "share", ".3f", dim=True)
    yield Cells("mean score" if metric == "probe-score" else "mean probability", metric)


METRICS = View(_metric_cells, keys=(Column("metric", "left", key=True),), lined=_by_metric)
COUNTS = View(
    _count_cells, lambda rows, options: ": scores", keys=(Column("predicted", "left", key=True),), lined=_by_class
)
ANALYSIS = Analysis(
    name="apply",
    help="Score texts with a kept probe.",
    title="A kept probe on other data",
    judge="probekit.analyses.apply.sentences:sentences",
    view="probekit.analyses.apply:tables",
    place=11,
)
