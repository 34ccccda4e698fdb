"""Sentences on guidelines: of each task, and of each model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.analyses.finished_runs import REGIMES
from probekit.analyses.guidelines import CANNOT_TELL, EITHER
from probekit.analyses.guidelines.several_settings import sentences as of_settings
from probekit.display import shown_model
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    rows = rows[rows["prefer"].notna()]  # of several settings, the row of the reference
    sizes = "examples" in rows and rows["examples"].nunique() > 1
    several = rows["model"].nunique() > 1
    for row in rows.to_dict("records"):
        name = f"{shown_model(row['model'])}: " if several else ""
        name += f"{int(row['examples']):,} training examples: " if sizes else ""
        yield f"{name}{row['prefer']}. {str(row['why']).rstrip('.')}"


def overview(rows: pd.DataFrame) -> list[str]:
    """Summarise the rows of :func:`guidelines` in one sentence per model and kind of task.

    A sentence recommends a regime only if all tasks of that kind prefer it. For several settings: one for each task,
    model and number of training examples, and for several sizes from which one on a setting is not worse.
    """
    if "reference" in rows:
        return of_settings(rows)
    sentences = []
    for model, part in rows.groupby("model", sort=False):
        kinds = [("any task", part), *part.groupby("kind", sort=False)]
        sentences += [f"{model}, {kind}: {_together(of)}." for kind, of in (kinds if len(kinds) > 2 else kinds[1:])]
    return sentences


def _together(rows: pd.DataFrame) -> str:
    """The preference of rows: the common one, or the tasks that prefer each."""
    tasks: dict[str, list[str]] = {}
    for row in rows.to_dict("records"):
        few = " (one seed)" if str(row["confidence"]).endswith("(one seed)") else ""
        tasks.setdefault(row["prefer"], []).append(f"{row['task']}{few}")
    titles = {CANNOT_TELL: CANNOT_TELL, EITHER: EITHER} | {str(regime): name for regime, name in REGIMES.items()}
    if len(tasks) > 1:
        return ", ".join(f"{titles[w]} for {len(t)} of {len(rows)} ({', '.join(t)})" for w, t in sorted(tasks.items()))
    ((choice, names),) = tasks.items()
    singles = sum(name.endswith("(one seed)") for name in names)
    on = f"all {len(names)} tasks" if len(names) > 1 else f"the only task, {names[0]}"
    on += f"; one seed of a regime in {singles} of them" if singles and len(names) > 1 else ""
    return f"{titles[choice]} ({on})" if choice in (CANNOT_TELL, EITHER) else f"use {titles[choice]} ({on})"
