"""A line of a scoreboard: a task on all models, its name, and the layer of each model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from probekit.analyses.scoreboard import line_name
from probekit.errors import UsageError
from probekit.rows import layer_labels, make_rows
from probekit.rows.schema import called
from probekit.statistics.predictions import Predictions

MODEL = ["model", "checkpoint", "step", "trained_on", "regime", "head", "variant"]
"""The columns that say which model a row is about."""
Model = tuple[Any, ...]
"""Their values."""


@dataclass(frozen=True, slots=True)
class Line:
    """A task on all models.

    Attributes
    ----------
    rows : pd.DataFrame
        A row for each layer of each model.
    resampled : np.ndarray, optional
        (models, resamples), the normalised scores of the chosen rows, in their order, on resampled examples, which are
        the same in all tasks that share them; None if there are no predictions.
    best : Predictions, optional
        Those of the chosen rows, in their order; None if the models' examples differ. Groups are those of
        :func:`probekit.statistics.shared_units.shared_units`.
    units : int
        The number of examples or groups that are resampled.
    """

    rows: pd.DataFrame
    resampled: np.ndarray | None = None
    best: Predictions | None = None
    units: int = 0

    @property
    def name(self) -> str:
        """Its name in the scoreboard."""
        return str(self.rows["line"].iloc[0])

    @property
    def of(self) -> tuple[str, str]:
        """The analysis and the task; several lines of these are one task."""
        return str(self.rows["analysis"].iloc[0]), str(self.rows["task"].iloc[0])

    @property
    def chosen(self) -> pd.DataFrame:
        """A row for each model: that of its chosen layer."""
        return self.rows[self.rows["chosen"]]


@dataclass(frozen=True, slots=True)
class Table:
    """Predictions, and the units of their examples among those of all tasks, uint64 (n,)."""

    own: Predictions
    shared: np.ndarray

    def take(self, fits: np.ndarray) -> Predictions:
        """Some fits, with shared units as groups."""
        own = self.own.take(fits)
        return replace(own, groups=self.shared, sentences=own.groups if own.sentences is None else own.sentences)

    @property
    def units(self) -> int:
        return len(np.unique(self.shared))


def models_of(lines: Sequence[Line]) -> dict[Model, dict[str, Any]]:
    """The models of all lines, with the columns that describe each."""
    rows = pd.concat([line.chosen for line in lines], ignore_index=True)
    return {_key(row): {name: row[name] for name in MODEL} for _, row in rows.iterrows()}


def counted(line: Line, model: Model) -> int | None:
    """The position of a model's row among the chosen ones of a line, if it has a score that counts."""
    places = enumerate(row for _, row in line.chosen.iterrows())
    return next((i for i, row in places if _key(row) == model and row["counted"] and np.isfinite(row["value"])), None)


def _key(row: pd.Series) -> Model:
    return tuple(None if pd.isna(row[name]) else row[name] for name in MODEL)


def keys_of(rows: pd.DataFrame, names: Sequence[str]) -> list[tuple[str, ...]]:
    """The values of some columns of each row, as text."""
    return [tuple(map(str, row)) for row in rows[list(names)].itertuples(index=False)]


def named(
    analysis: str, task: str, parts: Sequence[pd.DataFrame], kinds: Sequence[str] = ("estimator", "representation")
) -> Iterator[tuple[str, list[pd.DataFrame]]]:
    """The rows of each line, with its name: the task, the analysis, and what tells several lines of a task apart."""
    every = pd.concat([part[list(kinds)] for part in parts], ignore_index=True).drop_duplicates()
    differ = [kind for kind in kinds if every[kind].nunique(dropna=False) > 1]
    for values in every[differ].drop_duplicates().itertuples(index=False) if differ else [()]:
        rows = [part[np.all([part[k] == v for k, v in zip(differ, values, strict=True)], axis=0)] if differ else part
                for part in parts]  # fmt: skip
        words = [f"{kind} {value:g}" if isinstance(value, float | int) else str(value)
                 for kind, value in zip(differ, values, strict=True)]  # fmt: skip
        yield ", ".join([line_name(analysis, task), *words]), rows


def choose(rows: pd.DataFrame) -> pd.DataFrame:
    """Say in ``chosen`` which layer each model has: that of the lowest loss on held-out train, or the best on dev."""
    if (twice := rows.duplicated([*MODEL, "site", "layer", "estimator", "representation"])).any():
        row = rows[twice].iloc[0]
        raise UsageError(
            f"{row['task']} has two values for layer {layer_labels(rows[twice]).iloc[0]} of {called(row)}; do two "
            "models have the same name? Name them: --model NAME=MODEL, or --model-name."
        )
    chosen, by = pd.Series(index=rows.index, data=False), pd.Series("", index=rows.index)
    held_out = rows["held_out"] if "held_out" in rows else pd.Series(np.nan, index=rows.index)
    for _, part in rows.groupby(MODEL, sort=False, dropna=False):
        model = part[part["site"] == ""]  # scored as a whole, beside its layers
        among = model if len(model) else part
        losses = held_out[among.index].astype(float)
        if len(among) == 1:
            at, how = among.index[0], "only"
        elif losses.notna().all():
            at, how = losses.idxmin(), "held-out"
        else:
            at, how = among["value"].fillna(-np.inf).idxmax(), "dev"
        chosen[at] = True
        by[part.index] = how
    return make_rows(rows.assign(chosen=chosen, chosen_by=by))
