"""A finished run as a result: its folder, its card, its rows and its predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probekit.adaptation.runs.folder import ROWS, read_card
from probekit.recipe import Recipe
from probekit.rows import Result, read_rows
from probekit.rows.examples import EXAMPLES
from probekit.statistics.predictions import Predictions

__all__ = ["Run", "open_run"]


@dataclass(frozen=True, eq=False, repr=False)
class Run(Result):
    """A finished run: the metrics during training as rows, and the predictions of its weights for dev and test.

    Attributes
    ----------
    path : Path
        Folder of the run.
    card : mapping
        The content of its ``probekit.json``.
    """

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics and loss of the kept weights on dev."""
        return dict(self.card["metrics"])

    @property
    def test(self) -> dict[str, float] | None:
        """Metrics and loss on the test split, if there is one."""
        return self.card["test"]


def open_run(folder: str | Path, card: Mapping[str, Any] | None = None) -> Run:
    """The finished run in ``folder``; raises ModelError if there is none, DataError if its rows are missing."""
    folder = Path(folder)
    card = read_card(folder) if card is None else card
    recipe = Recipe.from_json(card["recipe"]) if card.get("recipe") else None
    predictions = tuple(Predictions.read(file) for file in sorted(folder.glob(f"*{EXAMPLES}")))
    seconds = {"train": card["seconds"]}
    return Run(read_rows(folder / ROWS), predictions, recipe, seconds=seconds, card=card, path=folder)
