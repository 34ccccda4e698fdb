"""The TOML file of a hyper-parameter search: what is trained on what, and which options may take which values.

task = "mrpc"                # and model, data_dir, …: the keys of Space; the command line may give them, too
model = "bert-base-uncased"
regime = "fine-tune"
trials = 20

[space]                      # any option of training or of the head
learning_rate = { low = 1e-5, high = 1e-4, log = true }
batch_size = [16, 32]
schedule = "linear"          # the same in all trials
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from probekit.adaptation.options import Hyperparameters, Regime, check_names
from probekit.errors import DataError, UsageError
from probekit.toml import read_named, what_is_wrong

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

__all__ = ["Range", "Space", "check_type", "read_space", "shipped_spaces"]

_TYPES = {
    name: hint.__name__ if isinstance(hint, type) else str(hint)
    for name, hint in get_type_hints(Hyperparameters).items()
}
_NOT_SEARCHED = {
    "regime": 'is set for the whole search: write "regime = …" above [space].',
    "seed": 'is set for the whole search: write "seed = …" above [space].',
    "save_at": "is for a run of its own; train one with the best options and --save-at.",
}


class Range(BaseModel):
    """All numbers from ``low`` to ``high``; of a whole-numbered option the whole ones."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    low: float
    high: float
    log: bool = False


class Space(BaseModel):
    """A search: what stays the same in all trials, and the space of the options.

    Attributes
    ----------
    task, model, regime, data_dir, limit, validation, data_seed, revision, max_length : str, int, float or None
        As of ``probekit train``.
    train, dev, test : str
        Names of the splits; without a test split ("") the best is evaluated on dev only.
    trials : int, default Field(default=20, ge=1)
        How many settings are tried.
    seeds : int, default Field(default=5, ge=1)
        How often the best is trained again.
    seed : int, default Field(default=0, ge=0)
        Of the search, of each trial, and the first of the best one's.
    prune : bool, default True
        Stop a trial whose dev metric is below the median of the others after as many epochs.
    space : dict[str, Any]
        By option a list of choices, a Range, or one value.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    task: str
    model: str
    regime: str = "fine-tune"
    data_dir: str | None = None
    train: str = "train"
    dev: str = "dev"
    test: str = "test"
    limit: int | None = Field(default=None, ge=1)
    validation: float | None = Field(default=None, gt=0, lt=1)
    data_seed: int = Field(default=0, ge=0)
    revision: str | None = None
    max_length: int | None = None
    trials: int = Field(default=20, ge=1)
    seeds: int = Field(default=5, ge=1)
    seed: int = Field(default=0, ge=0)
    prune: bool = True
    space: dict[str, Any]

    @property
    def fixed(self) -> dict[str, Any]:
        """The options that are the same in all trials."""
        return {k: v for k, v in self.space.items() if not isinstance(v, (list, dict))}

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The options that are searched, as Optuna draws them."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        made: dict[str, BaseDistribution] = {}
        for name, value in self.space.items():
            if isinstance(value, list):
                made[name] = CategoricalDistribution(value)
            elif isinstance(value, dict):
                r = Range.model_validate(value)
                whole = _TYPES[name].startswith("int")
                made[name] = (
                    IntDistribution(int(r.low), int(r.high), log=r.log)
                    if whole
                    else FloatDistribution(r.low, r.high, log=r.log)
                )
        return made

    def combinations(self) -> list[dict[str, Any]] | None:
        """All settings there are, where each option is a list and they are no more than the trials; None otherwise."""
        searched = {k: v for k, v in self.space.items() if isinstance(v, (list, dict))}
        count = 1
        for value in searched.values():
            count *= len(value) if isinstance(value, list) else self.trials + 1
        if count > self.trials:
            return None
        return [dict(zip(searched, values, strict=True)) for values in product(*searched.values())]


def shipped_spaces() -> dict[str, str]:
    """The TOML texts of the spaces that come with probekit, by name ("paper/fine-tune" …)."""
    root = files("probekit.adaptation.search") / "spaces"
    found = ((folder.name, file) for folder in root.iterdir() if folder.is_dir() for file in folder.iterdir())
    texts = {f"{name}/{f.name.removesuffix('.toml')}": f.read_text("utf-8") for name, f in found if ".toml" in f.name}
    return dict(sorted(texts.items()))


def read_space(where: str | Path, given: Mapping[str, Any] | None = None) -> Space:
    """The checked search of a TOML file, or of a space that comes with probekit by its name.

    Parameters
    ----------
    given : Mapping[str, Any], optional
        Keys that replace those of the file; None values are left out.

    Raises
    ------
    UsageError
        For a name that there is not.
    DataError
        Naming the file and the key that is wrong.
    """
    raw, path = read_named(where, shipped_spaces(), "space")
    raw |= {k: v for k, v in (given or {}).items() if v is not None}
    try:
        space = Space.model_validate(raw)
        regime = Regime(space.regime)
        if not space.space:
            raise UsageError("[space] is empty; name an option, such as learning_rate = [2e-5, 5e-5].")
        for name, value in space.space.items():
            _check(regime, name, value)
    except ValidationError as error:
        raise DataError(_told(error), file=path) from error
    except UsageError as error:
        raise DataError(str(error), file=path) from error
    except ValueError:
        raise DataError(f"regime is {space.regime!r}; it is one of {', '.join(Regime)}.", file=path) from None
    return space


def _check(regime: Regime, name: str, value: Any) -> None:
    """Raise UsageError where an option cannot take what the space gives it."""
    if name in _NOT_SEARCHED:
        raise UsageError(f"{name} {_NOT_SEARCHED[name]}")
    check_names([name])
    if isinstance(value, dict):
        try:
            bounds = Range.model_validate(value)
        except ValidationError as error:
            raise UsageError(f"{name}: {what_is_wrong(error, Range)}") from error
        kind = _TYPES[name].split(" ")[0]
        if kind not in ("int", "float"):
            raise UsageError(f"{name} is no number and has no range; give a list of choices.")
        if bounds.low >= bounds.high or (bounds.log and bounds.low <= 0):
            raise UsageError(
                f"{name} ranges from {bounds.low:g} to {bounds.high:g}; low must be below high"
                f"{', and above 0 where log = true' if bounds.log else ''}."
            )
        values = [int(v) if kind == "int" and v.is_integer() else v for v in (bounds.low, bounds.high)]
    elif isinstance(value, list):
        if not value or len(set(map(repr, value))) < len(value):
            raise UsageError(f"{name} is {value}; give a list of different choices.")
        values = value
    else:
        values = [value]
    for one in values:
        check_type(name, one)
        Hyperparameters(regime=regime, **dict[str, Any]({name: one}))


def check_type(name: str, value: Any) -> None:
    """Raise UsageError where an option of training or of the head takes no such value."""
    kind = _TYPES[name].split(" ")[0]
    wanted, types = {
        "int": ("a whole number", (int,)),
        "float": ("a number", (int, float)),
        "bool": ("true or false", (bool,)),
    }.get(kind, ("a text in quotation marks", (str,)))
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
        raise UsageError(f"{name} takes {wanted}, not {value!r}.")


def _told(error: ValidationError) -> str:
    """The first thing that is wrong, in a sentence."""
    key, kind = str(error.errors()[0]["loc"][0]), error.errors()[0]["type"]
    if kind == "extra_forbidden" and key in _TYPES:
        return f"{key} is an option of training; move it below [space]."
    told = what_is_wrong(error, Space)
    return f"{told[:-1]}, or give --{key}." if kind == "missing" and key in ("task", "model") else told
