"""A finished run as a result: its folder, its card, its rows and its predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from probekit.adaptation.runs.folder import ROWS, publish, read_card, write_card
from probekit.display import facts_html, shown_model
from probekit.errors import NonFiniteError
from probekit.models.identity import RUN_FORMAT
from probekit.recipe import Read, Recipe
from probekit.rows import Result, read_rows, write_rows
from probekit.rows.card import environment, make_card
from probekit.rows.examples import EXAMPLES
from probekit.runtime import processes
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Run(Result):
    """A finished run: the metrics during training as rows, and the predictions of its weights for dev and test.

    Attributes
    ----------
    path : Path
        Folder of the run.
    card : mapping
        The content of its ``probekit.json``.
    runs : tuple of Run, default ()
        For several seeds (``seeds=5``) the run of each; ``metrics`` and ``test`` are then means.
    """

    runs: tuple[Run, ...] = ()

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics and loss of the kept weights on dev."""
        return dict(self.card["metrics"])

    @property
    def test(self) -> dict[str, float] | None:
        """Metrics and loss on the test split, if there is one."""
        return self.card["test"]

    def __repr__(self) -> str:
        return f"<Run {self._summary}; dev {_numbers(self.metrics)}>"

    def _repr_html_(self) -> str:
        card = self.card
        facts = {
            "examples": " + ".join(
                f"{n:,} {split}" for n, split in zip(card.get("examples") or (), card.get("splits") or (), strict=False)
            ),
            "regime": card["regime"],
            "head": (card.get("head") or {}).get("head", ""),
            "variant": card.get("variant", ""),
            "seeds": ", ".join(f"{name} {seed}" for name, seed in (card.get("seeds") or {}).items()),
            "kept weights": self._step,
            "dev": _numbers(self.metrics),
            "test": _numbers(self.test or {}),
            "truncated": _truncated(card),
            "training time": f"{card['seconds']:,.0f} s" if card.get("seconds") else "",
            "folder": self.path,
            "command": card.get("command", ""),
        }
        return facts_html(f"Run {self._summary}", facts)

    @property
    def _summary(self) -> str:
        card = self.card
        return f"{card['run']}: {card['regime']} of {shown_model(str(card['model']))} on {card['task']}"

    @property
    def _step(self) -> str:
        if self.runs:
            return f"of {len(self.runs)} runs"
        total = self.card.get("total_steps")
        return f"step {self.card['step']:,}" + (f" of {total:,}" if total else "")


def new_card(out: Path, name: str | None, seed: int, recipe: Recipe | None, **more: Any) -> dict[str, Any]:
    """The card of a run that begins; ``more`` are further entries, or others than these."""
    called = name or out.resolve().name
    return {
        "format": RUN_FORMAT, "run": called, "variant": "", "model": called, "step": 0, "complete": False,
        "prefix": "", "layers": [], "seeds": {"seed": seed},
        "recipe": None if recipe is None else recipe.to_json(),
        "command": "train_on_caches" if recipe is None else str(recipe),
        **environment(), "threads": torch.get_num_threads(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"), **more,
    }  # fmt: skip


def finish_run(
    out: Path, card: Mapping[str, Any], rows: pd.DataFrame, recipe: Recipe | None, reads: Sequence[Read], seconds: float
) -> None:
    """Write the rows of a training, and publish it with its card."""
    if not processes()[0]:
        made = {} if recipe is None else make_card(recipe, reads, {"train": seconds}) | {"threads": card["threads"]}
        write_rows(rows, out / ROWS, made)
    publish(out, {"test": None, **card, "complete": True, "seconds": round(seconds, 1)})


@contextmanager
def noting_failure(out: Path, card: Mapping[str, Any]) -> Iterator[None]:
    """Say in the card that the training failed, which marks it as replaceable by other options."""
    try:
        yield
    except NonFiniteError as error:
        write_card(out, {**card, "failed": str(error)})
        raise


def _numbers(metrics: Mapping[str, Any]) -> str:
    """Metrics in words: "accuracy 0.777, f1 0.843"."""
    return ", ".join(f"{name} {value:.3f}" for name, value in metrics.items() if value is not None)


def _truncated(card: Mapping[str, Any]) -> str:
    counts = card.get("truncated") or ()
    return " + ".join(f"{n:,}" for n in counts) if any(counts) else ""


def open_run(folder: str | Path, card: Mapping[str, Any] | None = None) -> Run:
    """The finished run in ``folder``; raises ModelError if there is none, DataError if its rows are missing."""
    folder = Path(folder)
    card = read_card(folder) if card is None else card
    recipe = Recipe.from_json(card["recipe"]) if card.get("recipe") else None
    predictions = tuple(Predictions.read(file) for file in sorted(folder.glob(f"*{EXAMPLES}")))
    seconds = {"train": card["seconds"]}
    return Run(read_rows(folder / ROWS), predictions, recipe, seconds=seconds, card=card, path=folder)
