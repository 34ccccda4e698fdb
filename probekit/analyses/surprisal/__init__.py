"""Surprisal: how unlikely a language model finds each word of a text, in rows that join with reading times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from probekit.analysis import Analysis
from probekit.constraint import Checked, Count
from probekit.errors import UsageError
from probekit.grid import Column
from probekit.models.options import ScorerOptions
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.view import Cells, Options, View

if TYPE_CHECKING:
    import pandas as pd

    from probekit.rows import Result
    from probekit.tasks import Task


class Unit(StrEnum):
    """The unit of surprisal."""

    BITS = "bits"
    NATS = "nats"

    @property
    def metric(self) -> str:
        """The metric of its rows."""
        return "surprisal" if self is Unit.BITS else "surprisal-nats"


class Context(StrEnum):
    """What a model reads before a text."""

    TEXT = "text"  # each text by itself
    DOCUMENT = "document"  # the texts before it in its document


@dataclass(frozen=True, slots=True)
class SurprisalOptions(Checked):
    """How texts are read, and what is measured."""

    unit: Unit = option(Unit.BITS, "bits or nats.")
    pieces: bool = option(False, "Also a row for each piece.")
    context: Context = option(
        Context.TEXT,
        "What stands before a text. text: nothing; document: the texts before it in its document (the field document "
        "of .jsonl, the groups of a task), with a space between them.",
    )
    prefix: str = option("", "A text that is read before each text or document, with a space after it, and not scored.")
    no_start: bool = option(
        False,
        "For causal models: do not put the piece for the beginning of a text before it. The first piece then has no "
        "surprisal.",
    )
    space_after: bool = option(
        False,
        "For causal models: count the space after a word with it, not the space before (Oh & Schuler 2024; Pimentel & "
        "Meister 2024).",
    )
    score: Literal["pll-word", "pll"] = option(
        "pll-word",
        "For masked models: pll (each piece masked in turn) or pll-word (with the pieces of its word that follow).",
    )
    window: Count | None = option(
        None,
        "Pieces of a text that the model reads at once (default: as many as it can); longer texts are read in parts.",
    )
    stride: Count | None = option(None, "Pieces by which the window moves on in a longer text (default: half of it).")

    def together(self) -> None:
        if self.space_after and self.pieces:
            raise UsageError("space_after is about words, of which a space is a part; leave out pieces.")


@public(loading=ScorerOptions, options=SurprisalOptions)
def surprisal(
    model: str | Path,
    task: str | Path | Task,
    /,
    *,
    split: str | None = None,
    data_dir: str | Path | None = None,
    model_name: str | None = None,
    loading: ScorerOptions,
    options: SurprisalOptions,
    progress: Progress = no_progress,
) -> Result:
    """Measure the surprisal of each word of texts: minus the logarithm of its probability in its context.

    Words are what white space separates. The surprisal of a word is the sum over its pieces, and the space before a
    word belongs to it. A causal model predicts each piece from those before it. A masked model predicts each piece
    from all others (Salazar et al. 2020); by default the pieces of its word that follow are masked too (Kauf & Ivanova
    2023). Texts that are longer than the model reads are read in windows that overlap.

    Parameters
    ----------
    model : str or path
        A language model with its head (hub id or folder).
    task : str, path or Task
        A file of texts (.txt, a text a line; .jsonl with the field text, and if you like id and document), a task file,
        or the name of a task whose examples are single texts.
    split : str, optional
        The split of the task (default: its only one; for a file of texts "train").
    data_dir : path, optional
        Folder with the task's files.
    model_name : str, optional
        Name in tables (default: that of the run that trained the checkpoint, the hub id, or the folder's name).
    loading : ScorerOptions
        ``device``, ``dtype``, ``random_weights`` (a control), ``revision``, ``batch_tokens``; each may be given as a
        keyword.
    options : SurprisalOptions
        ``unit``, ``pieces``, ``context``, ``prefix`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        A row for each word (``level`` "word"), and with ``pieces`` for each piece (``level`` "piece"), in the order of
        the texts. ``example`` is the id of the text, ``word_index`` the number of the word in it, from 0, ``text`` the
        word or piece, ``char_start`` and ``char_end`` its characters, ``pieces`` how many pieces it has, and ``value``
        its surprisal: NaN where the model predicts nothing, as for the first word with ``no_start``.

    Raises
    ------
    UsageError
        If the model has no head, the examples are pairs, or the window does not fit the model.
    DataError
        If the texts cannot be read, or have no words.

    References
    ----------
    Levy 2008, Expectation-based syntactic comprehension; Oh & Schuler 2024, Leading Whitespaces of Language Models'
    Subword Vocabulary Pose a Confound for Calculating Word Probabilities; Pimentel & Meister 2024, How to Compute the
    Probability of a Word.

    Examples
    --------
    >>> result = probekit.surprisal("gpt2", "stories.jsonl", context="document")  # doctest: +SKIP
    >>> times.merge(result.rows, on=["example", "word_index"])  # doctest: +SKIP

    On the command line::

        probekit surprisal gpt2 stories.jsonl --out surprisal.csv
        probekit surprisal gpt2 stories.toml --context document --space-after --out surprisal.parquet
        probekit surprisal bert-base-uncased sentences.txt --score pll --unit nats --pieces
        probekit surprisal gpt2 sst2 --split dev --data-dir SST-2 --prefix "He said:"
    """
    from probekit.analyses.surprisal.measure import measure

    return measure(model, (task, split, data_dir), model_name, loading, options, progress)


def _lined(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for words and one for pieces of each model: the mean, and how many it is of."""
    by = ["task", "split", "model", "checkpoint", "step", "estimator", "metric", "level"]
    found = []
    for _, part in rows.groupby(by, sort=False, dropna=False):
        known = part["value"].dropna()
        numbers = {"value": known.mean(), "sd": known.std(), "count": len(known), "none": len(part) - len(known)}
        several = part.loc[part["pieces"] > 1, "value"]
        found.append(part.iloc[:1].assign(line=part["level"], **numbers, several=several.mean()))
    import pandas as pd

    return pd.concat(found)


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    metric = rows["metric"].iloc[0]
    yield Cells("n", metric, "count", ",.0f")
    yield Cells(f"mean {'bits' if metric == 'surprisal' else 'nats'}", metric)
    yield Cells("sd", metric, "sd", dim=True)
    yield Cells("of several pieces", metric, "several", dim=True)
    yield Cells("not predicted", metric, "none", ",.0f", dim=True)


VIEW = View(
    _cells,
    title=lambda rows, options: f", {rows['estimator'].iloc[0]}",
    each=("task", "split", "model", "checkpoint", "step", "estimator", "metric"),
    keys=(Column("surprisal of", key=True),),
    lined=_lined,
)
ANALYSIS = Analysis(
    name="surprisal",
    help="Measure the surprisal of each word of texts for a language model.",
    title="Surprisal",
    judge="probekit.analyses.surprisal.sentences:sentences",
    view="probekit.analyses.surprisal:VIEW",
    place=16,
)
