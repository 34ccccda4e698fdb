"""The TOML file of a hyper-parameter search: task, model, and the values that each option may take.

task = "mrpc"                # the keys of Space: model, data_dir and others; the command line may give them, too
model = "bert-base-uncased"
regime = "fine-tune"
trials = 20

[space]                      # options of training or of the head
learning_rate = { low = 1e-5, high = 1e-4, log = true }
batch_size = [16, 32]
schedule = "linear"          # the same in all trials
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from probekit.adaptation.options import Hyperparameters, Regime
from probekit.constraint import LARGEST
from probekit.errors import DataError, UsageError, close_names
from probekit.toml import line_of, parse_toml, read_named, what_is_wrong

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def _kind(hint: Any) -> type:
    """The type of an option, None left out; the one of words is text."""
    if get_origin(hint) is Literal:
        return str
    return next((kind for kind in get_args(hint) if kind is not type(None)), hint)


OPTIONS: dict[str, type] = {name: _kind(hint) for name, hint in get_type_hints(Hyperparameters).items()}
"""The type of each option of training and of its head."""
HERE = files("probekit.adaptation.search")
EXAMPLES = parse_toml((HERE / "examples.toml").read_text("utf-8"), Path("examples.toml"))
OFTEN = ("learning_rate", "batch_size", "epochs", "dropout", "weight_decay", "schedule")


def described(name: str) -> str:
    """The values of an option, in words."""
    kind = OPTIONS[name]
    if issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}"
    words = {int: "a whole number", float: "a number", bool: "true or false"}
    return words.get(kind, "a text in quotation marks")


def example_line(name: str, *, as_range: bool = False) -> str:
    """A line of [space] that is right for an option: choices, or a range."""
    kind = OPTIONS[name]
    if as_range:
        example = EXAMPLES["ranges"].get(name, "{ low = 1, high = 4 }" if kind is int else "{ low = 0.1, high = 0.5 }")
    elif issubclass(kind, StrEnum):
        example = "[" + ", ".join(f'"{member}"' for member in list(kind)[:2]) + "]"
    else:
        by_kind = {int: "[1, 2]", float: "[0.1, 0.5]", bool: "[true, false]"}
        example = EXAMPLES["choices"].get(name) or by_kind[kind]
    return f"{name} = {example}"


def no_such_option(name: str) -> str:
    """An error for an unknown option: the one that was probably meant, its kind, and a line that is right."""
    near = EXAMPLES["elsewhere"].get(name.lower()) or next(iter(close_names(name, OPTIONS)), None)
    if near is None:
        often = f"Options that are often searched: {', '.join(OFTEN)}"
        return f"training has no option {name!r}. {often}; probekit train --help shows all."
    return (
        f"training has no option {name!r}; did you mean {near}? List the values to try, each "
        f"{described(near)}, for example {example_line(near)}."
    )


_NOT_SEARCHED = {
    "regime": 'is set for the whole search: write "regime = …" above [space].',
    "seed": 'is set for the whole search: write "seed = …" above [space].',
    "save_at": "belongs to a single run; train one with the best options and --save-at.",
}


class Range(BaseModel):
    """All numbers from ``low`` to ``high``; whole numbers for an option that takes these."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    low: float = Field(allow_inf_nan=False)
    high: float = Field(allow_inf_nan=False)
    log: bool = False


class Space(BaseModel):
    """A search: the settings that all trials share, and the space of the options.

    Attributes
    ----------
    task, model, regime, data_dir, limit, validation, data_seed, revision, max_length : str, int, float or None
        See ``probekit train``.
    train, dev, test : str
        Names of the splits; without a test split ("") the best is evaluated on dev only.
    trials : int, default Field(default=20, ge=1)
        How many trials there are.
    seeds : int, default Field(default=5, ge=1)
        How often the best is trained again.
    seed : int, default Field(default=0, ge=0)
        Seed of the search and of each trial; the first seed of the best setting.
    sampler : str, default "tpe"
        How settings are drawn: "tpe" (Optuna's tree-structured Parzen estimator) or "random" (independently).
    prune : bool, default True
        Stop a trial whose dev metric is below the median of the others after the same number of epochs.
    space : dict[str, Any]
        For each option a list of choices, a Range, or one value.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    task: str
    model: str
    regime: str = "fine-tune"
    data_dir: str | None = None
    train: str = "train"
    dev: str = "dev"
    test: str = "test"
    limit: int | None = Field(default=None, ge=1, le=LARGEST)
    validation: float | None = Field(default=None, gt=0, lt=1)
    data_seed: int = Field(default=0, ge=0, le=LARGEST)
    revision: str | None = None
    max_length: int | None = Field(default=None, ge=1, le=LARGEST)
    trials: int = Field(default=20, ge=1, le=100_000)
    seeds: int = Field(default=5, ge=1, le=10_000)
    seed: int = Field(default=0, ge=0, lt=1 << 32)
    sampler: Literal["tpe", "random"] = "tpe"
    prune: bool = True
    space: dict[str, Any]

    @property
    def drawn(self) -> str:
        """How the settings are drawn: "grid" if each combination is tried once, otherwise the sampler."""
        return self.sampler if self.combinations() is None else "grid"

    @property
    def fixed(self) -> dict[str, Any]:
        """The options that are the same in all trials."""
        return {k: v for k, v in self.space.items() if not isinstance(v, (list, dict))}

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The options that are searched, as Optuna's distributions."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        distributions: dict[str, BaseDistribution] = {}
        for name, value in self.space.items():
            if isinstance(value, list):
                distributions[name] = CategoricalDistribution(value)
            elif isinstance(value, dict):
                r = Range.model_validate(value)
                distributions[name] = (
                    IntDistribution(int(r.low), int(r.high), log=r.log)
                    if OPTIONS[name] is int
                    else FloatDistribution(r.low, r.high, log=r.log)
                )
        return distributions

    def combinations(self) -> list[dict[str, Any]] | None:
        """All settings, where each option is a list and there are at most as many as trials; None otherwise."""
        searched = {k: v for k, v in self.space.items() if isinstance(v, (list, dict))}
        count = 1
        for value in searched.values():
            count *= len(value) if isinstance(value, list) else self.trials + 1
        if count > self.trials:
            return None
        return [dict(zip(searched, values, strict=True)) for values in product(*searched.values())]


def shipped_spaces() -> dict[str, str]:
    """The TOML texts of the spaces that come with probekit, by name, such as "paper/fine-tune"."""
    found = (
        (folder.name, file) for folder in (HERE / "spaces").iterdir() if folder.is_dir() for file in folder.iterdir()
    )
    texts = {f"{name}/{f.name.removesuffix('.toml')}": f.read_text("utf-8") for name, f in found if ".toml" in f.name}
    return dict(sorted(texts.items()))


def read_space(where: str | Path, given: Mapping[str, Any] | None = None) -> Space:
    """Read and check the search in a TOML file, or a space that comes with probekit, by its name.

    Parameters
    ----------
    given : Mapping[str, Any], optional
        Keys that replace those of the file; None values are left out.

    Raises
    ------
    UsageError
        For an unknown name.
    DataError
        For a file with a fault; the message names the file and the key.
    """
    raw, path = read_named(where, shipped_spaces(), "search space")
    raw |= {k: v for k, v in (given or {}).items() if v is not None}
    try:
        space = Space.model_validate(raw)
        regime = Regime(space.regime)
        if not space.space:
            raise UsageError(f"[space] is empty; name an option, such as {example_line('learning_rate')}.")
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        others = {name: value[0] if isinstance(value, list) and value else value for name, value in space.space.items()
                  if name in OPTIONS and not isinstance(value, dict)}  # fmt: skip
        for name, value in space.space.items():
            try:
                _check(regime, name, value, others)
            except UsageError as error:
                raise DataError(str(error), file=path, line=line_of(text, name)) from error
    except DataError:
        raise
    except ValidationError as error:
        raise DataError(_first_fault(error), file=path) from error
    except UsageError as error:
        raise DataError(str(error), file=path) from error
    except ValueError:
        raise DataError(f"regime is {space.regime!r}; it is one of {', '.join(Regime)}.", file=path) from None
    return space


def _check(regime: Regime, name: str, value: Any, others: Mapping[str, Any]) -> None:
    """Raise UsageError where an option cannot take what the space gives it, alone or with the others' first choices."""
    if name in _NOT_SEARCHED:
        raise UsageError(f"{name} {_NOT_SEARCHED[name]}")
    if name not in OPTIONS:
        raise UsageError(no_such_option(name))
    if isinstance(value, dict):
        values = _bounds(name, value)
    elif isinstance(value, list):
        if not value or len(set(map(repr, value))) < len(value):
            raise UsageError(f"{name} is {value}; give a list of different choices, such as {example_line(name)}.")
        values = value
    else:
        values = [value]
    for choice in values:
        _check_type(name, choice)
        try:
            Hyperparameters(regime=regime, **dict[str, Any]({name: choice}))
        except UsageError:
            if not others.keys() - {name}:
                raise
            Hyperparameters(regime=regime, **{**others, name: choice})


def _bounds(name: str, value: dict[str, Any]) -> list[Any]:
    """The ends of a range; UsageError where the option cannot have this range."""
    kind = OPTIONS[name]
    if kind not in (int, float):
        raise UsageError(f"{name} takes {described(name)}, so it has no range; list choices: {example_line(name)}.")
    try:
        bounds = Range.model_validate(value)
    except ValidationError as error:
        fault = what_is_wrong(error, Range).rstrip(".")
        raise UsageError(
            f"{name}: {fault}. A range is written like this: {example_line(name, as_range=True)}."
        ) from error
    if bounds.low >= bounds.high or (bounds.log and bounds.low <= 0):
        raise UsageError(
            f"{name} ranges from {bounds.low:g} to {bounds.high:g}; low must be below high"
            f"{', and above 0 where log = true' if bounds.log else ''}."
        )
    return [int(v) if kind is int and v.is_integer() else v for v in (bounds.low, bounds.high)]


def _check_type(name: str, value: Any) -> None:
    """Raise UsageError where an option of training or of the head does not take a value of this type."""
    kind = OPTIONS[name]
    types = {int: (int,), float: (int, float), bool: (bool,)}.get(kind, (str,))
    if not isinstance(value, types) or (isinstance(value, bool) and kind is not bool):
        raise UsageError(f"{name} takes {described(name)}, not {value!r}; for example {example_line(name)}.")


def _first_fault(error: ValidationError) -> str:
    """The first fault of a file, in a sentence."""
    key, kind = str(error.errors()[0]["loc"][0]), error.errors()[0]["type"]
    if kind == "extra_forbidden" and key in OPTIONS:
        return f"{key} is an option of training; move it below [space]."
    fault = what_is_wrong(error, Space)
    return f"{fault[:-1]}, or give --{key}." if kind == "missing" and key in ("task", "model") else fault
