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
    """A finished run: the metrics along training as rows, and what its weights predict of dev and test.

    Attributes
    ----------
    path : Path
        Its folder.
    card : mapping
        What stands in its ``probekit.json``.
    """

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics and loss on dev of the weights that were kept."""
        return dict(self.card["metrics"])

    @property
    def test(self) -> dict[str, float] | None:
        """The same on the test split, where that was asked for."""
        return self.card["test"]


def open_run(folder: str | Path, card: Mapping[str, Any] | None = None) -> Run:
    """The finished run in ``folder``; raises ModelError where there is none, DataError where its rows are lost."""
    folder = Path(folder)
    card = read_card(folder) if card is None else card
    recipe = Recipe.from_json(card["recipe"]) if card.get("recipe") else None
    said = tuple(Predictions.read(file) for file in sorted(folder.glob(f"*{EXAMPLES}")))
    return Run(read_rows(folder / ROWS), said, recipe, seconds={"train": card["seconds"]}, card=card, path=folder)
