"""What the score of a kept probe goes with: length, position, frequency and label, and pieces of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from probekit.analysis import Analysis, Corrected
from probekit.constraint import Checked, Count, Most, OrZero, Seed, Share
from probekit.grid import Column
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.statistics.options import ResamplesOrNone
from probekit.view import Cells, Options, View, interval, lines_of

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.models.encoder import Encoder
    from probekit.monitors import Probe
    from probekit.rows import Result
    from probekit.tasks import Task


@dataclass(frozen=True, slots=True)
class ExplainOptions(Checked):
    """Which scores are explained, and how effects are tested."""

    layer: int | str | None = option(None, "The probe's layer, if the folder keeps several (default: the best on dev).")
    by: Literal["text", "piece"] = option("text", "text, or piece: the scores of single word pieces.")
    top: Count = option(10, "Texts or pieces that are listed at each end.")
    lens: bool = option(
        False, "Also list the pieces of the vocabulary that the model's head reads in the direction (decoders)."
    )
    draws: Annotated[int, OrZero(19, "none (p <= .05 needs 19)"), Most(100_000)] = option(
        999, "Random signs of texts, or groups; p is at least 1 / (1 + draws)."
    )
    anyway: bool = option(
        False, "Take another model, tokenizer, precision or pooling than the probe's own; what differs is said."
    )
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    batch_tokens: Count | None = option(None, "Word pieces in a batch (default: as for cache-activations).")
    resamples: ResamplesOrNone = option(1000, "Bootstrap resamples of texts, or groups, for intervals; 0 for none.")
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of signs, resamples and random directions.")


@public(options=ExplainOptions, faster="draws=0")
def explain(
    probe: str | Path | Probe,
    data: str | Path | Task | ActivationCache,
    /,
    *,
    split: str | None = None,
    data_dir: str | Path | None = None,
    model: str | Path | Encoder | None = None,
    options: ExplainOptions,
    progress: Progress = no_progress,
) -> Result:
    """Say what the score of a kept probe goes with: associations in these texts, not causes.

    Lists the texts (or word pieces) with the highest and lowest scores, and says which share of the variance of the
    scores each of length, position, frequency and gold label carries beyond the others, in one linear regression.

    Parameters
    ----------
    probe : path or Probe
        A folder that ``probekit probe --keep`` wrote: a probe of texts, of two classes or a number.
    data : path, str, Task or ActivationCache
        A file of texts, a cache, a task file or the name of a task, as for :func:`probekit.apply`.
    split : str, optional
        The split of a task (default: dev, or its only one).
    data_dir : path, optional
        Folder with the task's files.
    model : str, path or Encoder, optional
        The model that reads texts (default: the name in the probe's card).
    options : ExplainOptions
        ``by``, ``top``, ``lens`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows, which ``metric`` tells apart:

        - "probe-score" of the ``top`` texts or pieces at each ``end``: ``place``, ``example``, ``text``, ``piece``;
        - "semi-partial-r2" of each ``predictor``, what it carries ``beyond`` the others, with interval, p, and
          ``p_adjusted`` over the predictors; ``slope`` is the change of the score for one more of it. Where there are
          labels, a second regression has the label in it (``with_label``);
        - "r2" of all predictors together;
        - with ``lens`` "lens-product" of the pieces of the vocabulary with the largest and smallest product with the
          direction; at place 1 with p, and ``random_end``, what the best of 99 random directions reaches.

    Raises
    ------
    UsageError
        If the probe has no single score of a text, the cache says nothing of pieces, there are too few texts, or with
        ``lens`` if the model has no head that reads the direction.
    CacheMismatch
        If the cache holds other vectors than the probe's.

    Examples
    --------
    >>> result = probekit.explain("kept/sst2", "sst2", layer=4)  # doctest: +SKIP
    >>> result.verdict  # doctest: +SKIP

    On the command line::

        probekit explain kept/sst2 sst2.dev.h5
        probekit explain kept/sst2 reviews.txt --by piece --model ./my-bert --out pieces.parquet
        probekit explain kept/sst2 sst2 --lens --model ./my-llama
    """
    from probekit.analyses.explain.measure import measure

    return measure(probe, (data, split, data_dir), model, options, progress)


def _of_predictors(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each predictor."""
    shown = rows[rows["metric"].isin(("semi-partial-r2", "r2"))]
    return shown.assign(line=shown["predictor"], metric="share", with_label=shown["with_label"].astype(bool))


def _shares(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    titles = {False: "share of variance", True: "with the label"}
    for with_label in dict.fromkeys(rows["with_label"]):
        where = {"with_label": with_label}
        yield Cells(titles[with_label], "share", where=where)
        yield Cells(interval(options), "share", "interval", where=where, dim=True, align="center")
        yield Cells("p adjusted", "share", "p_adjusted", "p", where=where)


def _of_ends(metric: str) -> Any:
    def lined(rows: pd.DataFrame) -> pd.DataFrame:
        """A line for each end and place."""
        shown = rows[rows["metric"] == metric]
        return shown.assign(line=lines_of(shown["end"], shown["place"].astype("Int64").map(str)))

    return lined


def _text(row: Any) -> str:
    text = row.get("text")
    shown = row["example"] if text is None or text != text else text
    return f"{str(shown)[:77]}…" if len(str(shown)) > 78 else str(shown)


def _ends(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    yield Cells("score", "probe-score", form="+.3f")
    if "piece" in rows and rows["piece"].notna().any():
        yield Cells("piece", "probe-score", form=lambda row: str(row["piece"]), align="left")
    yield Cells("text", "probe-score", form=_text, align="left")


def _products(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    yield Cells("piece", "lens-product", form=lambda row: str(row["piece"]), align="left")
    yield Cells("product", "lens-product", form="+.3f")
    yield Cells("best of random", "lens-product", "random_end", "+.3f", dim=True)
    yield Cells("p adjusted", "lens-product", "p_adjusted", "p")


PLACES = (Column("end", "left", key=True), Column("place", key=True))
SHARES = View(
    _shares,
    lambda rows, options: f": what the score goes with; {rows['n'].iloc[0]:,} {rows['by'].iloc[0]}s",
    lambda rows, options: iter(("A share is what the predictor carries beyond all others: an association.",)),
    keys=(Column("predictor", "left", key=True),),
    lined=_of_predictors,
)
ENDS = View(_ends, lambda rows, options: ": scores", keys=PLACES, lined=_of_ends("probe-score"))
PRODUCTS = View(
    _products, lambda rows, options: ": the direction in the vocabulary", keys=PLACES, lined=_of_ends("lens-product")
)


def tables(rows: pd.DataFrame, options: Options) -> Iterator[Any]:
    """Shares of the variance, the ends of the scores, and the lens."""
    for view in (SHARES, ENDS, PRODUCTS):
        yield from view(rows, options)


ANALYSIS = Analysis(
    name="explain",
    help="Say what the score of a kept probe goes with.",
    title="What a score goes with",
    corrected=Corrected.CURVE,
    judge="probekit.analyses.explain.sentences:sentences",
    view="probekit.analyses.explain:tables",
    place=12,
)
