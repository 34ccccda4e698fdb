"""One name for one model: models of one name that have other weights are told apart by what differs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from probekit.notes import logger
from probekit.recipe import Read

if TYPE_CHECKING:
    import pandas as pd

log = logger(__name__)
T = TypeVar("T")

IDENTITY = ("weights_digest", "tokenizer_digest", "part")
"""The keys of a spec in which one model does not differ from itself."""
STATE = ("model", "checkpoint", "step", "random_weights")
"""The columns of rows that name a model and its state."""


@dataclass(frozen=True, slots=True)
class _Model:
    """A model that was read.

    Attributes
    ----------
    state : tuple of str
        The values of ``STATE``; "" for none. ``checkpoint`` is that of a run.
    in_rows : tuple of str
        The same as its rows have them: it may have been told apart when they were made.
    identity : tuple of str
        The values of ``IDENTITY``.
    place : str
        The folder or name by which it was found; "" if that is not known.
    revision : str
        On the hub.
    """

    state: tuple[str, ...]
    in_rows: tuple[str, ...]
    identity: tuple[str, ...]
    place: str
    revision: str

    @property
    def column(self) -> str:
        """The column that names it: a run is named by its checkpoint."""
        return "checkpoint" if self.state[1] else "model"

    @property
    def name(self) -> str:
        return self.state[STATE.index(self.column)]


def name_in_rows(model: str) -> str:
    """The name of a model in rows, from the one in its spec: of a folder, the last part."""
    return PurePath(model).name if PurePath(model).is_absolute() else model


def told_apart(reads: Iterable[Read]) -> list[dict[str, str]]:
    """For each input the columns of rows in which its model gets a name of its own.

    Parameters
    ----------
    reads : iterable of Read
        Caches and models, as cards hold them.

    Returns
    -------
    list of dict
        {"model": name}, for a run {"checkpoint": name}; {} unless another model with other weights has its name.

    Examples
    --------
    >>> def cache(digest, folder):
    ...     spec = {"model": "lora", "weights_digest": digest}
    ...     return Read("dev.h5", "cache", "", {"spec": spec, "recipe": {"arguments": {"model": folder}}})
    >>> told_apart([cache("1f", "x/lora"), cache("2e", "y/lora"), cache("1f", "x/lora")])
    [{'model': 'lora (x)'}, {'model': 'lora (y)'}, {'model': 'lora (x)'}]
    """
    models = [_model(read) for read in reads]
    alike: dict[tuple[str, ...], dict[tuple[str, ...], _Model]] = {}
    for one in filter(None, models):
        alike.setdefault(one.state, {}).setdefault(one.identity, one)
    names: dict[tuple[Any, ...], dict[str, str]] = {}
    for state, several in alike.items():
        if len(several) > 1:
            of = [f"{one.name} ({label})" if label else one.name
                  for one, label in zip(several.values(), _labels([*several.values()]), strict=True)]  # fmt: skip
            log.warning(
                "%d models are called %s; in the rows they are %s. --model-name gives a cache another name.",
                len(of), next(iter(several.values())).name, " and ".join(of),
            )  # fmt: skip
            names |= {(state, one.identity): {one.column: name} for one, name in zip(several.values(), of, strict=True)}
    return [{} if one is None else names.get((one.state, one.identity), {}) for one in models]


def rows_apart(tables: Sequence[tuple[pd.DataFrame, Sequence[Read]]], more: Sequence[Read] = ()) -> list[pd.DataFrame]:
    """Rows of several files, in which models of one name are told apart; more : further inputs that have names."""
    every = [read for _, reads in tables for read in reads]
    renamed, found = iter(told_apart([*every, *more])), []
    for rows, reads in tables:
        new = [(_model(read), columns) for read, columns in zip(reads, renamed, strict=False)]
        own: dict[tuple[str, ...], dict[tuple[str, ...], dict[str, str]]] = {}
        for one, columns in new:
            if one is not None and columns:
                own.setdefault(one.in_rows, {})[one.identity] = columns
        for in_rows, columns_of in own.items():
            if len(columns_of) == 1:
                rows = _renamed(rows, in_rows, *columns_of.values())
            else:
                log.warning("rows that were made together do not say which of them are which model; make them again.")
        found.append(rows)
    return found


def results_apart(results: Sequence[T], more: Sequence[Read] = ()) -> list[T]:
    """Results in whose rows and predictions models of one name are told apart; more : as in :func:`rows_apart`."""
    given: Sequence[Any] = results
    flat = [(table, one.reads) for one in given for table in (one.rows, *(p.fits for p in one.predictions))]
    tables = iter(rows_apart(flat, more))
    found = []
    for one in given:
        rows, fits = next(tables), [next(tables) for _ in one.predictions]
        if rows is not one.rows or any(new is not p.fits for new, p in zip(fits, one.predictions, strict=True)):
            of = tuple(replace(p, fits=new) for p, new in zip(one.predictions, fits, strict=True))
            one = replace(one, rows=rows, predictions=of)
        found.append(one)
    return found


def _model(read: Read) -> _Model | None:
    """The model of an input; None if it is of none, or of one whose weights are not known."""
    spec = read.about if read.kind == "model" else read.about.get("spec")
    if not isinstance(spec, Mapping) or not spec.get("weights_digest"):
        return None
    about = {**spec, "model": name_in_rows(str(spec.get("model", "")))}
    named = named if isinstance(named := spec.get("named"), Mapping) else {}
    recipe = read.about.get("recipe")
    arguments = recipe.get("arguments") if isinstance(recipe, Mapping) else None
    place = read.path if read.kind == "model" else arguments.get("model") if isinstance(arguments, Mapping) else ""
    state, identity = (tuple(_text(about.get(key)) for key in keys) for keys in (STATE, IDENTITY))
    in_rows = tuple(_text(named.get(key, about.get(key))) for key in STATE)
    return _Model(state, in_rows, identity, _text(place), _text(spec.get("revision")))


def _labels(models: Sequence[_Model]) -> list[str]:
    """What tells models apart: a folder in their paths, a revision, a part, or else their digests."""
    weights, tokenizers, parts = zip(*(one.identity for one in models), strict=True)
    ways: list[Sequence[str]] = [[one.revision for one in models], parts]
    folders = [[part for part in re.split(r"[/\\+]", one.place) if part][::-1] for one in models]
    for depth in range(min(map(len, folders))):
        at = [parts_of[depth] for parts_of in folders]
        ways += [at] if all(re.search(r"\w", folder) for folder in at) else []
    digests = [("weights", weights), ("tokenizer", tokenizers)]
    ways += [[f"{what} {digest[:8]}" for digest in values] for what, values in digests]
    if (one := next((way for way in ways if len(set(way)) == len(models)), None)) is not None:
        return list(one)
    return [" ".join((w[:8], t[:8], part)).rstrip() for w, t, part in zip(weights, tokenizers, parts, strict=True)]


def _renamed(rows: pd.DataFrame, state: Sequence[str], columns: Mapping[str, str]) -> pd.DataFrame:
    """The rows with another name of the model in one state, also where it is the second of a pair."""
    for end in ("", "_b"):
        if f"model{end}" not in rows:
            continue
        same = rows[f"model{end}"] == state[0]
        for column, value in zip(STATE[1:], state[1:], strict=True):
            if f"{column}{end}" in rows and (column != "checkpoint" or value):
                same &= rows[f"{column}{end}"].map(_text) == value
        for column, name in columns.items():
            if same.any():
                rows = rows.assign(**{f"{column}{end}": rows[f"{column}{end}"].mask(same, name)})
    return rows


def _text(value: Any) -> str:
    return "" if str(value) in ("None", "<NA>", "nan") else str(value)
