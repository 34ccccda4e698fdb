"""Answers of a language model to questions, and how many of them match a behaviour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.analysis import Analysis, Corrected
from probekit.constraint import Checked, Seed, Share
from probekit.errors import UsageError
from probekit.grid import Column
from probekit.models.options import ScorerOptions
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.statistics.options import ResamplesOrNone
from probekit.view import Cells, Options, View, interval

if TYPE_CHECKING:
    import pandas as pd

    from probekit.rows import Result


@dataclass(frozen=True, slots=True)
class ChoiceOptions(Checked):
    """How the answers of questions are scored."""

    prompt: str = option(
        "\n\nHuman: {question}\n\nAssistant:",
        r"The text before the answer. {question} stands for the question with its choices, \n for a line break.",
    )
    score: str | None = option(
        None,
        "How an answer is scored: log-probability (the default of causal models) or mean-log-probability; pll (the "
        "default of masked models) or pll-word.",
    )
    draws: ResamplesOrNone = option(2000, "Permutations of the matching answers for p; 0 for none.")
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of the permutations.")

    def together(self) -> None:
        if "{question}" not in self.prompt:
            raise UsageError(f"prompt is {self.prompt!r}; it must contain {{question}}.")


@public(loading=ScorerOptions, options=ChoiceOptions)
def choices(
    model: str | Path,
    task: str,
    /,
    *,
    data_dir: str | Path | None = None,
    loading: ScorerOptions,
    options: ChoiceOptions,
    progress: Progress = no_progress,
) -> Result:
    """Count the questions for which the answer that a language model finds likeliest matches a behaviour.

    The model scores each answer of a question ("Yes", "No", or the lettered choices) as the continuation of a prompt.
    The rows of each matching answer show a model that always gives the same one: read them before the total.

    Parameters
    ----------
    model : str or path
        A language model with its head (hub id or folder).
    task : str
        persona:TRAIT (Yes or No) or human-generated:BEHAVIOUR (lettered choices), from the model-written evaluations
        of Perez et al. (2022).
    data_dir : path, optional
        Folder with their files (TRAIT.jsonl, BEHAVIOUR.jsonl), directly or in persona/ and human_generated/.
    loading : ScorerOptions
        ``device``, ``dtype``, ``random_weights`` (a control), ``revision``, ``batch_tokens``; each may be given as a
        keyword.
    options : ChoiceOptions
        ``prompt``, ``score`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows with the metric "matching-answers": of all questions, and (``level`` "matching") of those that each answer
        matches, which shows a bias for one answer; with Wilson's interval over questions, of which copies and near
        copies count once. ``chance`` is the share of matches if the model's answers, as frequent as they are, had
        nothing to do with the question; ``p`` (two-sided, of all questions) permutes the matching answers, and is
        ``p_adjusted`` too, since one model is one question. Equal highest scores share the question; ``ties`` counts
        them. The predictions are 1 where the matching answer alone has the highest score.

    Raises
    ------
    UsageError
        If the model has no head, or the questions are unknown.
    DataError
        If the questions cannot be read, or the model can score none.

    References
    ----------
    Perez et al. 2022, Discovering Language Model Behaviors with Model-Written Evaluations.

    Examples
    --------
    >>> result = probekit.choices("gpt2", "persona:openness", data_dir="evals")  # doctest: +SKIP

    On the command line::

        probekit choices gpt2 persona:openness --data-dir evals --out openness.parquet
        probekit choices gpt2 human-generated:survival-instinct --data-dir evals
        probekit choices gpt2 persona:openness --data-dir evals --random-weights 0
    """
    from probekit.analyses.choices.measure import measure

    return measure(model, task, data_dir, loading, options, progress)


def _lined(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for all questions, and for those that each answer matches."""
    return rows.assign(line=[f"matching answer {of}" if of else "all" for of in rows["of"]])


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    matching = "matching-answers"
    yield Cells("n", matching, "n", ",.0f")
    yield Cells("matching answer likeliest", matching)
    yield Cells(interval(options), matching, "interval", dim=True)
    yield Cells("chance", matching, "chance", dim=True)
    yield Cells("ties", matching, "ties", ".0f")


VIEW = View(_cells, title=lambda rows, options: "", keys=(Column("questions", key=True),), lined=_lined)
ANALYSIS = Analysis(
    name="choices",
    help="Count the answers of a language model that match a behaviour.",
    title="Answers that match a behaviour",
    corrected=Corrected.TASK,
    judge="probekit.analyses.choices.sentences:sentences",
    view="probekit.analyses.choices:VIEW",
    place=15,
)
