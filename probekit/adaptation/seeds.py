"""``probekit train --seeds N``: the runs of several seeds in one folder.

OUT/
  seed-0/ …        a run for each seed, as from ``probekit train``
  rows.parquet     their metrics, with means, standard deviations, and the share of failed runs
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from probekit.adaptation.options import TrainOptions
from probekit.adaptation.runs.folder import ROWS, locked_run
from probekit.adaptation.runs.run import Run
from probekit.adaptation.runs.seeds import FAILED, over_seeds
from probekit.errors import NonFiniteError, UsageError
from probekit.models.identity import CARD
from probekit.recipe import Recipe
from probekit.rows import check_out, write_rows
from probekit.rows.card import make_card
from probekit.runtime import Progress, processes

__all__ = ["train_seeds"]


def train_seeds(
    one: Callable[[int, Path], Run], out: Path, options: TrainOptions, recipe: Recipe, progress: Progress
) -> Run:
    """Train with each seed, and write the rows of all; a run whose loss diverges counts as failed.

    Parameters
    ----------
    one : callable
        Trains with a seed in a folder.

    Returns
    -------
    Run
        Its ``runs`` are those of the seeds; its metrics are means.

    Raises
    ------
    UsageError
        If the folder holds a single run.
    NonFiniteError
        If the loss of every run is not finite.
    """
    runs: list[Run] = []
    diverged: dict[int, str] = {}
    seeds = range(options.seed, options.seed + options.seeds)
    if (out / CARD).is_file():
        raise UsageError(f"{out} holds a single run; give another --out for the runs of {options.seeds} seeds.")
    with locked_run(out):
        check_out(out / ROWS)
        for done, seed in enumerate(seeds):
            progress("seeds", done, len(seeds))
            try:
                runs.append(one(seed, out / f"seed-{seed}"))
            except NonFiniteError as error:
                diverged[seed] = str(error)
        if not runs:
            raise NonFiniteError(f"no run of {len(seeds)} has a finite loss. {diverged[options.seed]}")
        card = dict(runs[0].card)
        rows = pd.concat([run.rows for run in runs], ignore_index=True)
        rows = over_seeds(rows, card["target"]["metrics"], analysis="seeds", diverged=tuple(diverged))
        seconds = {"train": sum(run.card["seconds"] for run in runs)}
        if not processes()[0]:
            write_rows(rows, out / ROWS, make_card(recipe, runs[0].reads, seconds) | {"threads": card["threads"]})
    card = (
        card | _shared(rows, card["task"], card["splits"], out) | {"seconds": seconds["train"], "command": str(recipe)}
    )
    card |= {"seeds": {"seed": ", ".join(map(str, seeds))}, "diverged": diverged}
    predictions = tuple(table for run in runs for table in run.predictions)
    return Run(rows, predictions, recipe, runs[0].reads, seconds, card, out, tuple(runs))


def _shared(rows: pd.DataFrame, task: str, splits: Sequence[str], out: Path) -> dict[str, Any]:
    """Entries of the card that are not those of a single run: its name and the mean metrics of dev and test."""
    means = rows[rows["seed"].isna() & rows["runs"].notna() & (rows["metric"] != FAILED) & (rows["task"] == task)]
    found = {
        str(split): dict(zip(part["metric"], part["value"].astype(float), strict=True))
        for split, part in means.groupby("split", sort=False)
    }
    dev, *test = (found.get(name) for name in splits[1:])
    return {"run": out.resolve().name, "metrics": dev, "test": test[0] if test else None, "step": None}
