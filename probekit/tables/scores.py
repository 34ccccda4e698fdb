"""Rank correlations between scores of encoders and their results on target tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probekit.display import shown_score
from probekit.grid import Column, Grid
from probekit.tables.cells import interval
from probekit.tables.glue import LEVEL, NAMES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["score_table"]


def score_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """A line for each score: the mean of its correlations with the target tasks, and each of them.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``analyses.score_correlations``.
    beside : str, optional
        Not used: no published numbers belong to this table.

    Returns
    -------
    list of Grid or str
        The table, and what it can show.
    """
    tasks = [task for task in NAMES if task in set(found["task"])]
    lines = []
    for (score, score_task), part in found.groupby(["score", "score_task"], sort=False):
        at = {row["task"]: row for row in part.to_dict("records")}
        cells = [
            f"{at[task]['value']:+.2f}" + "†" * (at[task]["p_adjusted"] <= LEVEL) if task in at else ""
            for task in tasks
        ]
        mean = at.get("glue")
        shown = ["", "", ""] if mean is None else [
            interval(mean["value"], mean["ci_low"], mean["ci_high"], "{:+.2f}"), _p(mean["p_adjusted"]),
            f"{mean['tasks']:.0f}",
        ]  # fmt: skip
        lines.append([shown_score(str(score), str(score_task)), *shown, *cells])
    keys = [Column("score", align="left", key=True), *map(Column, ("mean over targets", "p adjusted", "targets"))]
    means = found[found["task"] == "glue"]
    caution = (means if len(means) else found).sort_values("n")["caution"].iloc[0]
    counts = " to ".join(map(str, sorted({int(found["n"].min()), int(found["n"].max())})))
    text = (
        "Spearman's rank correlation between the score of an encoder and its result on the target task, over "
        f"{counts} encoders (of several seeds the mean). Encoders that are pretrained on the labels of a target are "
        "left out for it, and so are targets on which all encoders have the same score. Mean: over the targets, for "
        f"{_listed(means['models'])}; in brackets its 95 % interval from resampled encoders, and p from permuted "
        f"encoders, corrected over the scores (Holm). †: p of at most {LEVEL:g}, corrected over all scores and "
        "targets. Probes and target models are evaluated on the same dev examples, which adds to their correlation. "
        f"The encoders of a study are related, so p-values describe these encoders. {caution}\n"
    )
    return [Grid([*keys, *(Column(NAMES[task]) for task in tasks)], lines), text]


def _listed(models: pd.Series) -> str:
    """The encoders of the means, if they are the same for all scores."""
    return str(models.iloc[0]) if models.nunique() == 1 else "encoders without these"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.0005 else f"{value:.3f}"
