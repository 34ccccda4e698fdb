"""Responses of language models for a person to read: prompts drawn at random, with the references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from probekit.report.tables import Table, table
from probekit.rows.examples import EXAMPLES, examples_of
from probekit.statistics.predictions import Predictions
from probekit.tasks.load import shown_task

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 1000
"""Characters of a text that are shown."""


def responses(files: Iterable[str], count: int, seed: int) -> Iterator[Table]:
    """A table with prompts, references and responses, from the examples beside files of rows; none without responses.

    Parameters
    ----------
    count : int
        Prompts drawn from each split, the same ones for all runs that were evaluated on it.
    seed : int
        The seed of the draw.
    """
    import pandas as pd

    found = [_drawn(one, count, seed) for file in files for one in _read(Path(file)) if one.prompts is not None]
    if not count or not found:
        return
    rows = pd.concat(found, ignore_index=True).sort_values(["task", "split", "example"], kind="stable")
    same = {name: str(rows[name].iloc[0]) for name in ("task", "split", "run") if rows[name].nunique() == 1}
    caption = f"Responses to prompts drawn at random, at most {count} of each split (seed {seed})."
    yield replace(table(rows.drop(columns=list(same)), caption, whole=True), same=same)


def _read(rows: Path) -> Iterator[Predictions]:
    """The predictions beside a file of rows, which of a run, or of its seeds, are in its folder."""
    files = examples_of(rows)
    if rows.name == "rows.parquet":
        files = sorted({*files, *rows.parent.glob(f"*{EXAMPLES}"), *rows.parent.glob(f"seed-*/*{EXAMPLES}")})
    return map(Predictions.read, files)


def _drawn(found: Predictions, count: int, seed: int) -> pd.DataFrame:
    """The responses of each fit to some examples."""
    import pandas as pd

    n = len(found.ids)
    chosen = np.sort(np.random.default_rng(seed).choice(n, size=min(count, n), replace=False))
    gold = np.broadcast_to(found.gold, found.predicted.shape)
    assert found.prompts is not None
    return pd.DataFrame(
        {
            "task": shown_task(found.task),
            "split": found.split,
            "run": run,
            "example": found.ids[i],
            "prompt": _short(found.prompts[i]),
            "reference": _short(gold[f, i]),
            "response": _short(found.predicted[f, i]),
        }
        for f, run in enumerate(found.fits["checkpoint"])
        for i in chosen
    )


def _short(text: object) -> str:
    whole = str(text)
    return whole if len(whole) <= LONGEST else f"{whole[:LONGEST]} …"
