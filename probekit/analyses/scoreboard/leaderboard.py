"""Published leaderboards, and how well the ranks of models agree with them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.scoreboard import line_name
from probekit.analyses.scoreboard.line import MODEL
from probekit.errors import DataError, UsageError
from probekit.files import read_lines
from probekit.notes import logger
from probekit.statistics.correlation import relation

if TYPE_CHECKING:
    import pandas as pd

log = logger(__name__)
FEWEST = 3


def leaderboard(path: str | Path) -> dict[str, dict[str, float]]:
    """Scores by task ("" for a board without tasks) and model, from a CSV file with the columns model and score.

    Raises
    ------
    DataError
        If a column is missing, a score is no number, or a model is listed twice; the message gives the line.
    """
    path = Path(path)
    lines = csv.DictReader(StringIO("\n".join(read_lines(path))))
    if missing := [name for name in ("model", "score") if name not in (lines.fieldnames or ())]:
        have = ", ".join(lines.fieldnames or ()) or "none"
        raise DataError(f"lacks the column {missing[0]}; its columns are {have}.", file=path, line=1)
    found: dict[str, dict[str, float]] = {}
    for row in lines:
        task, model, text = str(row.get("task") or ""), str(row["model"]), str(row["score"])
        try:
            score = float(text)
        except ValueError:
            score = float("nan")
        if not isfinite(score):
            raise DataError(f"the score of {model} is {text!r}; expected a number.", file=path, line=lines.line_num)
        if model in found.setdefault(task, {}):
            raise DataError(f"{model} is listed twice{f' for {task}' * bool(task)}.", file=path, line=lines.line_num)
        found[task][model] = score
    return found


def check_models(rows: pd.DataFrame, board: Mapping[str, Mapping[str, float]]) -> None:
    """UsageError if a model that the board knows is among the rows several times."""
    trained, known = _trained(rows), {model for scores in board.values() for model in scores}
    for model, part in trained[trained["model"].isin(list(known))].groupby("model", sort=False):
        several = part[MODEL].drop_duplicates()
        if len(several) > 1:
            differ = [name for name in MODEL if several[name].nunique(dropna=False) > 1]
            found = "; ".join(", ".join(f"{name} {row[name]}" for name in differ) for _, row in several.iterrows())
            raise UsageError(
                f"the leaderboard has one score of {model}, and the scoreboard {len(several)} models of this name "
                f"({found}). Give the rows of one of them, or name them: --model NAME=FOLDER, as on the leaderboard."
            )


def _trained(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[~rows["checkpoint"].str.startswith("random-")]


def agreement(
    chosen: pd.DataFrame, board: Mapping[str, Mapping[str, float]], *, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Spearman's correlations of the models' scores with those of a leaderboard, over the models that both have.

    With fewer than three such models there is none, and a warning says which names both have.

    Parameters
    ----------
    chosen : pd.DataFrame
        Rows of a scoreboard, one for each task and model; a task's scores are compared with the board's for it, and the
        means over the tasks that all models have with the board's scores without a task.
    board : mapping
        As from :func:`leaderboard`.
    seed : int
        For permutations and resamples.

    See Also
    --------
    check_models : A model must be one row of each task.
    """
    trained = _trained(chosen)
    table = trained.pivot_table("value", "model", ["analysis", "task"], sort=False)
    names: dict[Any, set[Any]] = {
        of: {line_name(*map(str, of)), *part["line"]} for of, part in trained.groupby(["analysis", "task"], sort=False)
    }
    known = {model for scores in board.values() for model in scores}
    both = [model for model in table.index if model in known]
    if len(both) < FEWEST:
        log.warning(
            "the leaderboard and the scoreboard have %d models in common (%s), and a rank correlation needs %d. The "
            "board has %s; the scoreboard %s. Models need the same names: --model NAME=FOLDER.",
            len(both), ", ".join(both) or "none", FEWEST, ", ".join(sorted(known)[:10]), ", ".join(table.index),
        )  # fmt: skip
        return
    for task, scores in board.items():
        models = [model for model in both if model in scores]
        some = [of for of in table if not task or any(_is_of(task, name) for name in names[of])]
        part = table.loc[models, some].dropna(axis=1)
        if len(models) < FEWEST or part.empty:
            log.warning("the leaderboard's %s is not on the scoreboard for %d models.", task or "mean", FEWEST)
            continue
        one = relation(part.mean(axis=1).to_numpy(), np.array([scores[model] for model in models]), seed=seed)[
            "spearman"
        ]
        yield {
            "task": task, "model": "", "group": "", "metric": "rank-correlation", "value": one.value,
            "ci_low": one.low, "ci_high": one.high, "p": one.p, "n": one.n, "tasks": part.shape[1],
        }  # fmt: skip


def _is_of(task: str, line: str) -> bool:
    """Whether a line belongs to a task of the board: "ud" has "ud:en_ewt", "blimp" has "blimp, pairs"."""
    return line == task or line.startswith((f"{task}:", f"{task}, "))
