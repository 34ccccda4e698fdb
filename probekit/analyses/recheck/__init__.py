"""Whether a kept probe still holds: on another model, precision, attention code, template, prefix or task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from probekit.analysis import Analysis
from probekit.constraint import Checked, Count, Positive, Seed, Share
from probekit.grid import Column
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import DtypeName, Progress, no_progress
from probekit.statistics.options import Resamples
from probekit.view import Cells, Options, View, interval

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.models.encoder import Encoder
    from probekit.monitors import Probe
    from probekit.rows import Result
    from probekit.tasks import Task


@dataclass(frozen=True, slots=True)
class RecheckOptions(Checked):
    """What is new in how texts are read, and how large a change matters."""

    layer: int | str | None = option(None, "The probe's layer, if the folder keeps several (default: the best on dev).")
    dtype: DtypeName | None = option(None, "Another precision: float32, float16 or bfloat16.")
    attention: Literal["eager", "sdpa"] | None = option(None, "Another attention code: eager or sdpa.")
    quantise: Literal["8bit", "4bit"] | None = option(None, "Round the model's weights with bitsandbytes.")
    template: str | None = option(
        None, "Jinja file of another chat template; a plain text is then a message of the user.", metavar="FILE"
    )
    prefix: str = option("", "A text that is read before each text.")
    margin: Positive = option(
        0.02, "How much the main metric, and with two classes AUROC, may lose and still be the same."
    )
    rate: Share = option(0.05, "The rate of false positives whose threshold on the card is checked.")
    rate_margin: Positive = option(0.5, "How far that rate may move, as a share of it: .5 of 5 % is from 2.5 to 7.5 %.")
    recall_margin: Positive = option(0.05, "How much recall at the threshold may lose.")
    certify: bool = option(
        False,
        "Also measure how the model's own forward pass depends on padding and attention code, which loads it twice.",
    )
    limit: Count | None = option(None, "Use only N examples of the task, drawn at random.", metavar="N")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    batch_tokens: Count | None = option(None, "Word pieces in a batch (default: a fast number).")
    resamples: Resamples = option(2000, "Resamples of the examples for the intervals.")
    level: Share = option(0.95, "Coverage of the intervals; each of their sides is a test.")
    seed: Seed = option(0, "Seed of the resamples.")


@public(options=RecheckOptions)
def recheck(
    probe: str | Path | Probe,
    data: str | Path | Task | ActivationCache | None = None,
    /,
    *,
    before: str | Path | ActivationCache | None = None,
    model: str | Path | Encoder | None = None,
    split: str | None = None,
    data_dir: str | Path | None = None,
    options: RecheckOptions,
    progress: Progress = no_progress,
) -> Result:
    """Check whether a kept probe still holds on another model, precision, attention code, template, prefix or task.

    The same labelled examples are read the old way and the new way, and the differences are paired. The answer is one
    of: pass; threshold stale (the ranking holds, the threshold does not; a new one is given); degraded; inconclusive.
    If nothing changes but the data, or the probe's own model cannot be had, the new values are compared with those of
    the probe's card. On the command line, the exit status is 1 unless it is a pass.

    Parameters
    ----------
    probe : path or Probe
        A folder that ``probekit probe --keep`` wrote.
    data : path, str, Task or ActivationCache, optional
        Labelled examples: a task file, the name of a task, or a cache of them that was read the new way. By default
        the task on which the probe was evaluated.
    before : path, str or ActivationCache, optional
        A cache of the same examples that was read the old way, or the folder of the probe's own model.
    model : str, path or Encoder, optional
        The new model (default: the probe's own).
    split : str, optional
        The split of the task (default: that on which the probe was evaluated, or dev).
    data_dir : path, optional
        Folder with the task's files.
    options : RecheckOptions
        ``dtype``, ``attention``, ``template``, ``prefix``, ``margin`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows of differences with ``before``, ``after``, ``margin`` and ``finding`` ("holds", "moved", "open"): the main
        metric, and of two classes "auroc", the rate of false positives and the recall at the card's threshold, and the
        recall at the threshold of the same rate. Then what happened to the scores: "score-shift", "score-scale",
        "score-correlation", "changed-decisions", "temperature"; "kept-threshold" is a new threshold; and
        "extraction-error" is how much the vectors depend on the batch. All rows have the ``answer``, and ``more``,
        about how many further examples it needs.

    Raises
    ------
    UsageError
        If options exclude each other, or the data have no labels, or others than the probe.
    ModelError
        If the new model cannot be loaded.
    DataError
        If the folder holds no kept probe.

    References
    ----------
    Schuirmann 1987, A comparison of the two one-sided tests procedure; Berger 1982, Multiparameter hypothesis testing
    (intersection-union tests); Zou & Donner 2008 (differences from two intervals).

    Examples
    --------
    >>> probekit.recheck("kept/sst2", data_dir="glue", dtype="bfloat16").verdict  # doctest: +SKIP

    On the command line::

        probekit recheck kept/sst2 --data-dir glue --dtype bfloat16
        probekit recheck kept/sst2 --data-dir glue --model ./my-bert-v2 --out recheck.parquet
        probekit recheck kept/sst2 new.dev.h5 --before old.dev.h5 --json
        probekit recheck kept/sst2 reviews.toml --split test
    """
    from probekit.analyses.recheck.measure import measure

    return measure(probe, (data, split, data_dir), (before, model), options, progress)


TEXTS = ("check", "finding", "changed", "unpaired", "why", "mix", "untested")


def with_texts(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows whose empty texts are "": a file has no others than missing ones."""
    return rows.assign(**{name: rows[name].astype("object").fillna("") for name in TEXTS if name in rows})


def _by_metric(rows: pd.DataFrame) -> pd.DataFrame:
    rows = with_texts(rows)
    names = rows["metric"].where(rows["check"] == "", rows["metric"] + ", " + rows["check"])
    return rows.assign(line=names, metric="")


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    yield Cells("before", "", "before")
    yield Cells("now", "", "after")
    yield Cells("value", "")
    yield Cells(interval(options), "", "interval", align="center", dim=True)
    yield Cells("margin", "", "margin", ".4g", dim=True)
    yield Cells("finding", "", "finding", _finding)


def _finding(row: Any) -> str:
    """What its interval shows; of a difference that need not hold only whether it has moved."""
    return str(row["finding"]) if row["finding"] == "moved" or str(row["needed"]) == "True" else ""


VIEW = View(
    _cells,
    title=lambda rows, options: f": {rows['answer'].iloc[0]}, {rows['n'].max():,} examples",
    keys=(Column("difference or number", "left", key=True),),
    lined=_by_metric,
)
ANALYSIS = Analysis(
    name="recheck",
    help="Check whether a kept probe still holds on another model, precision, prefix or task.",
    title="A kept probe, rechecked",
    judge="probekit.analyses.recheck.sentences:sentences",
    view="probekit.analyses.recheck:VIEW",
    place=12,
)
