"""Minimal pairs: whether a language model, or a probe of its layers, prefers the acceptable sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from probekit.analysis import Analysis, Corrected
from probekit.constraint import Checked, Count, Draws, MinLen, Most, Positive, Seed, Share
from probekit.errors import UsageError
from probekit.grid import Column, Grid
from probekit.models.options import ScorerOptions
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.statistics.options import ResamplesOrNone
from probekit.view import EACH, Cells, Options, View, interval, lines_of

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result

LEVELS = ("field", "phenomenon", "paradigm")
"""Groups of pairs, the largest first."""
MOST = 20
"""Paradigms that the table lists; all are in the rows."""
OFS = 8
"""Groups of pairs that have a column in a table by layer."""


class Per(StrEnum):
    """What the score of a sentence is divided by the number of."""

    PIECES = "pieces"  # those that are predicted
    WORDS = "words"  # what white space separates
    CHARACTERS = "characters"
    BYTES = "bytes"  # of UTF-8


@dataclass(frozen=True, slots=True)
class PairOptions(Checked):
    """How minimal pairs are scored."""

    scores: tuple[str, ...] | None = option(
        None,
        "How a sentence is scored, separated by commas. Causal models: log-probability (the sum over its pieces), "
        "mean-log-probability. Masked models: pll (each piece masked in turn), pll-word (with the rest of its word). "
        "Default: both of the model's kind.",
    )
    per: tuple[Per, ...] = option(
        (),
        "Divide each score by the number of pieces, words, characters or bytes of the sentence; several are separated "
        "by commas, and each gets rows of its own.",
    )
    prefix: str = option(
        "",
        "A text that is read before each sentence, with a space after it, and not scored. {NAME} in it stands for a "
        "column of the pairs: '{context}'.",
    )
    by_layer: bool = option(False, "Also let the model's final norm and head read each layer (the logit lens).")
    no_start: bool = option(
        False,
        "For causal models: do not put the piece for the beginning of a text before the sentence. The first piece of "
        "the sentence then has no score.",
    )
    by: tuple[str, ...] = option(
        (), "Columns of the pairs, separated by commas; each of their values gets an accuracy: distance,attractors."
    )
    limit: Count | None = option(None, "Pairs of each paradigm, drawn at random (default: all).")
    controls: Draws = option(
        1, "For caches: number of control probes, fitted to pairs whose two sentences are exchanged at random."
    )
    penalties: Annotated[tuple[Positive, ...], MinLen(1)] = option(
        (1e-4, 1e-3, 1e-2, 1e-1, 1.0), "For caches: L2 penalties to choose from, per pair that the probe is fitted to."
    )
    resamples: Annotated[ResamplesOrNone, Most(10_000)] = option(
        200,
        "For caches: how often the sentences of whole phenomena (or paradigms, or pairs) are exchanged and the probes "
        "fitted again, for p and the width of intervals; 0 for neither.",
    )
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of the draws.")

    def together(self) -> None:
        if self.per and "mean-log-probability" in (self.scores or ()):
            raise UsageError("mean-log-probability is log-probability per pieces already; leave out one of the two.")


@public(loading=ScorerOptions, options=PairOptions)
def pairs(
    source: str | Path | ActivationCache,
    task: str,
    /,
    *,
    data_dir: str | Path | None = None,
    pooling: str | None = None,
    layers: tuple[int | str, ...] | None = None,
    model_name: str | None = None,
    loading: ScorerOptions,
    options: PairOptions,
    progress: Progress = no_progress,
) -> Result:
    """Count the minimal pairs in which a model prefers the acceptable sentence.

    A minimal pair is two sentences that differ in one property; one of them is acceptable. If SOURCE is a language
    model, it scores both sentences, and the one with the higher score is preferred. A score is the sum or the mean of
    the log-probabilities of the pieces, or for masked models the pseudo-log-likelihood (Salazar et al. 2020), also with
    the correction for words of several pieces (Kauf & Ivanova 2023). Scores may be divided by the length of the
    sentence (``per``), and given a text before it (``prefix``). With ``by_layer`` the head reads each layer, too.

    If SOURCE is a cache of the sentences, which needs no head, a linear probe on each layer says which one is
    preferred; it is fitted to the pairs of other phenomena (with fewer than three, of other paradigms; with fewer than
    three of these, of other tenths).

    Parameters
    ----------
    source : str, path or ActivationCache
        A language model with its head (hub id or folder), or a cache of the pairs' sentences (.h5).
    task : str
        blimp, multiblimp, marvin-linzen or agreement[:TREEBANK]; a part, such as blimp:island_effects; or your own
        FILE.tsv (.csv, .jsonl) with the columns good and bad, and if you like paradigm, phenomenon and others for
        ``by``.
    data_dir : path, optional
        Folder with the files of the pairs, or the treebank.
    pooling : str, optional
        For caches: how the pieces of a sentence become one vector (default: the first in the cache).
    layers : tuple, optional
        For caches: layers to probe, separated by commas: 0,4-6 (default: all).
    model_name : str, optional
        For models: name in tables (default: that of the run that trained the checkpoint, the hub id, or the folder's
        name).
    loading : ScorerOptions
        For models: ``device``, ``dtype``, ``random_weights`` (a control), ``revision``, ``batch_tokens``; each may be
        given as a keyword.
    options : PairOptions
        ``scores``, ``by_layer``, ``by`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows with the metric "accuracy" for each score and layer (no layer: the model). ``level`` and ``of`` say of
        which pairs: "all", a field, a phenomenon, a paradigm, or a column of ``by`` with one of its values. That of
        "all", fields and phenomena is the mean over their paradigms. Intervals are over items (Wilson, MOVER), for
        these paradigms, and copies of a pair count as one. Those of probes, which depend on each other, are widened as
        far as their accuracy varies if the sentences of whole phenomena (or paradigms; single pairs, if a probe is
        fitted without a tenth of them) are exchanged and all probes fitted again. ``p`` (two-sided, gold rows of "all")
        is the share of these exchanges in which it is as far from .5, ``p_adjusted`` over all layers, and ``exchanged``
        how many phenomena (paradigms, pairs) were exchanged; with fewer than 6, p cannot be small. Equal scores count
        half; ``ties`` says how many there are. The predictions are 1 where the good sentence has the higher score, and
        0 where the scores are equal.

    Raises
    ------
    UsageError
        If the model has no head, a score, paradigm or column is unknown, or ``model_name`` is given with a cache.
    DataError
        If the pairs cannot be read, or a cache lacks one of the sentences of all pairs.

    Examples
    --------
    >>> result = probekit.pairs("gpt2", "blimp", data_dir="blimp/data", by_layer=True)  # doctest: +SKIP

    On the command line::

        probekit pairs gpt2 blimp --data-dir blimp/data --by-layer --out pairs.parquet
        probekit pairs bert-base-uncased agreement --data-dir UD_English-EWT --by distance,attractors
        probekit pairs gpt2 mine.tsv --per words,bytes
        probekit pairs gpt2 mine.tsv --prefix "{context}"
        probekit cache-activations --model minilm --task blimp --data-dir blimp/data --split test --out blimp.h5
        probekit pairs blimp.h5 blimp --data-dir blimp/data
    """
    from probekit.analyses.pairs.measure import measure

    return measure(source, task, data_dir, (pooling, layers), model_name, loading, options, progress)


def _groups(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for all pairs, and for each of their groups."""
    line = lines_of(rows["level"], rows["of"])
    paradigms = rows["level"] == "paradigm"
    return rows.assign(line=line.mask(paradigms, "") if line[paradigms].nunique() > MOST else line)


def _scores(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    """The accuracy by each score."""
    names = list(rows["estimator"].unique())
    yield Cells("n", "accuracy", "n", ",.0f", where={"estimator": names[0]})
    for name in names:
        yield Cells(name, "accuracy", where={"estimator": name})
        yield Cells(interval(options), "accuracy", "interval", where={"estimator": name}, dim=True, align="center")


def _of_layer(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    """All pairs, the control, and each field or phenomenon."""
    every = {"level": "all"}
    yield Cells("all", "accuracy", where=every)
    yield Cells(interval(options), "accuracy", "interval", where=every, dim=True, align="center")
    yield Cells("exchanged", "accuracy", where=every, target="shuffled", over="mean", dim=True)
    level = next(level for level in LEVELS if (rows["level"] == level).any())
    for of in rows.loc[rows["level"] == level, "of"].unique()[:OFS]:
        yield Cells(of, "accuracy", where={"level": level, "of": of})


BY_GROUP = View(
    _scores, title=lambda rows, options: "", keys=(Column("pairs", key=True), Column("of", key=True)), lined=_groups
)
BY_LAYER = View(
    _of_layer, title=lambda rows, options: f", {rows['estimator'].iloc[0]}", each=(*EACH, "estimator", "representation")
)


def view(rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid, list[str]]]:
    """A table of the model's own scores, and one by layer for each score."""
    for part, of in ((rows["layer"].isna(), BY_GROUP), (rows["layer"].notna(), BY_LAYER)):
        if part.any():
            yield from of(rows[part], options)


ANALYSIS = Analysis(
    name="pairs",
    help="Count the minimal pairs that a model or its layers get right.",
    title="Minimal pairs",
    corrected=Corrected.TASK,
    judge="probekit.analyses.pairs.sentences:sentences",
    view="probekit.analyses.pairs:view",
    layered=True,
    curves="probekit.plots.pairs:as_pairs",
    controls={"shuffled": "exchanged pairs"},
    place=14,
    in_suites=60.0,
    board="probekit.analyses.scoreboard.lines:lines_of_pairs",
    of_one_label=(
        "pair whether the good sentence is preferred",
        "A guess is right on half of the pairs: the intervals of the rows say whether a layer is above it.",
    ),
)
