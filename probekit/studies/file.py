"""Study files: models, tasks, trainings and analyses, as a validated value.

title = "Pretrained and fine-tuned layers of CoLA"
models = { bert = "bert-base-uncased" }

[[train]]
tasks = ["cola"]
regimes = ["fine-tune"]

[[probe]]
tasks = ["cola"]
of = ["pretrained", "fine-tuned", "random"]

[[figure]]
kind = "layers"
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from probekit.activations.pooling import Pooling
from probekit.adaptation.options import Regime, check_names
from probekit.errors import DataError, UsageError
from probekit.functions import takes_commas
from probekit.recipe import check_arguments
from probekit.studies.catalogue import shipped_studies
from probekit.toml import read_named, what_is_wrong

__all__ = [
    "Compare",
    "Domains",
    "Figure",
    "Information",
    "Probe",
    "Similarity",
    "Study",
    "Table",
    "Train",
    "arguments_of",
    "read_study",
]

log = logging.getLogger(__name__)

Options = dict[str, Any]
Of = Literal["pretrained", "fine-tuned", "checkpoints", "random"]
RowsOf = Literal["probe", "mi", "compare", "similarity", "movement", "train", "domains", "table"]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Seeds = Annotated[list[Seed], Field(min_length=1)]
SET = ("out", "rows", "pooling", "published", "task", "data_dir", "split", "limit", "data_seed")
"""Options that the study sets itself."""


def _not_set(options: Options) -> Options:
    for name in options:
        if name.replace("-", "_") in SET:
            raise ValueError(f"{name} is not allowed in options, because the study sets it")
    return options


Given = Annotated[Options, AfterValidator(_not_set)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Train(_Section):
    """Training runs: one per model, task, regime and seed.

    Attributes
    ----------
    name : str, default ''
        Name of a variant, such as "joint", for the names of runs and for tables.
    models : list[str], default []
        Some of the study's models (default: all).
    limit, validation, data_seed : int, float or None, int
        As in ``probekit train``: train on this many examples, choose by a share of train, draw with this seed.
    transfer : bool, default False
        Also evaluate each run on the dev splits of the other tasks, which must have the same labels.
    options : Options, default {}
        Options of ``probekit train`` for both regimes; ``fine-tune`` and ``feature-extraction`` are for one of them.
    """

    tasks: list[str] = Field(min_length=1)
    name: str = ""
    models: list[str] = []
    regimes: list[Regime] = Field([Regime.FEATURE_EXTRACTION, Regime.FINE_TUNE], min_length=1)
    seeds: Seeds = [0]
    train: str = "train"
    dev: str = "dev"
    test: str | None = None
    limit: Count | None = None
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    data_seed: Seed = 0
    transfer: bool = False
    options: Options = {}
    fine_tune: Options = Field({}, alias="fine-tune")
    feature_extraction: Options = Field({}, alias="feature-extraction")

    def of_regime(self, regime: Regime) -> Options:
        """The options of one regime."""
        return self.options | (self.fine_tune if regime is Regime.FINE_TUNE else self.feature_extraction)


class _Layers(_Section):
    """An analysis of each layer of pretrained models, of the fine-tuning runs of the task, or of random weights.

    name : distinguishes sections that would otherwise be the same; part of file names
    of : "checkpoints" are those that save_at in the options of [[train]] lists
    poolings : over the pieces of a text (default: mean); for word tags "first" or "mean" over the pieces of each word
        (default: first)
    limit : train on only this many examples, drawn at random with data_seed; seeds : for random weights
    """

    tasks: list[str] = Field(min_length=1)
    name: str = ""
    of: list[Of] = Field(["pretrained"], min_length=1)
    poolings: list[Pooling] = []
    limit: Count | None = None
    data_seed: Seed = 0
    seeds: Seeds = [0]
    options: Given = {}


class Probe(_Layers):
    """Diagnostic classifiers on each layer, with options of ``probekit probe``.

    limit_dev : number of examples to evaluate on, drawn at random with data_seed
    """

    train: str = "train"
    dev: str = "dev"
    limit_dev: Count | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        return self.train, self.dev


class Information(_Layers):
    """Mutual information between each layer and the labels of one split, with options of ``probekit mi``."""

    split: str = "train"

    @property
    def splits(self) -> tuple[str, ...]:
        return (self.split,)


class Compare(_Section):
    """Paired differences between the probes of two kinds of weights, first minus second, by ``probekit compare``.

    tasks : default: all tasks that a section [[probe]] analyses with both
    """

    of: tuple[Of, Of] = ("fine-tuned", "pretrained")
    tasks: list[str] = []
    name: str = ""
    options: Given = {}


class Similarity(_Section):
    """Similarity or movement of layers, the first kind of weights with each of the others, on the caches of [[probe]].

    tasks : default: all tasks that a section [[probe]] analyses with all of these weights
    """

    of: list[Of] = Field(["pretrained", "fine-tuned"], min_length=1)
    tasks: list[str] = []
    name: str = ""
    options: Given = {}


class Domains(_Section):
    """Divergences between the domains of a task and named corpora, with options of ``probekit domains``."""

    task: str
    split: str | None = None
    corpora: dict[str, str] = {}
    options: Given = {}


class Table(_Section):
    """A table of all rows from ``probekit table KIND``; ``published`` is the name of published numbers to add."""

    kind: Literal["regimes", "domains", "glue"]
    name: str = ""
    published: str | None = None
    options: Given = {}


class Figure(_Section):
    """A figure from ``probekit plot KIND``, of the rows of the sections named in ``rows``, one name or several."""

    kind: str
    name: str = ""
    rows: RowsOf | Annotated[list[RowsOf], Field(min_length=1)] = "probe"
    options: Given = {}


class Study(_Section):
    """A study.

    Attributes
    ----------
    models : dict[str, str], default Field(min_length=1)
        Hub ids or folders, by their name in tables.
    data : dict[str, str], default {}
        Folders of task files below the data folder, if they differ from the name of the task.
    """

    name: str = ""
    title: str
    about: str = ""
    models: dict[str, str] = Field(min_length=1)
    data: dict[str, str] = {}
    train: list[Train] = []
    probe: list[Probe] = []
    mi: list[Information] = []
    compare: list[Compare] = []
    similarity: list[Similarity] = []
    movement: list[Similarity] = []
    domains: list[Domains] = []
    table: list[Table] = []
    figure: list[Figure] = []


def read_study(where: str | Path, *, models: Mapping[str, str] | None = None, changes: Sequence[str] = ()) -> Study:
    """Read and check a study from a TOML file, or a shipped study by its name.

    Parameters
    ----------
    models : Mapping[str, str], optional
        Models that replace those of the file with the same names; with a new name, they replace all of them.
    changes : Sequence[str], default ()
        Values to replace, in TOML syntax: "train.0.seeds=[0,1,2]".

    Raises
    ------
    UsageError
        For an unknown name.
    DataError
        If the file is invalid; the message gives the file and the key.
    """
    raw, path = read_named(where, shipped_studies(), "study")
    for change in changes:
        _change(raw, change)
    if models:
        raw["models"] = _with_models(raw.get("models"), models)
    try:
        study = Study.model_validate({"name": path.stem} | raw)
    except ValidationError as error:
        raise DataError(what_is_wrong(error, Study), file=path) from error
    _check_training(study, path)
    _check_options(study, path)
    if not (study.train or study.probe or study.mi or study.domains):
        raise DataError("has no analysis; add a section such as [[probe]].", file=path)
    return study


def _check_training(study: Study, path: Path) -> None:
    """Raise DataError for unknown models and for invalid training options."""
    for i, block in enumerate(study.train):
        if strange := [name for name in block.models if name not in study.models]:
            raise DataError(
                f"train: unknown model {strange[0]!r}; the models are {', '.join(study.models)}.", file=path
            )
        for regime in block.regimes:
            options = arguments_of("train", block.of_regime(regime))
            try:
                check_names(set(options) - {"layers"})
                check_arguments("train", {**options, "regime": regime})
            except UsageError as error:
                raise DataError(f"train.{i}: {error}", file=path) from error


FUNCTION = {
    "probe": "probe",
    "mi": "mi",
    "compare": "compare",
    "similarity": "similarity",
    "movement": "movement",
    "domains": "domains",
    "table": "table",
    "figure": "plot",
}
"""By section, the public function whose options it takes."""


def _check_options(study: Study, path: Path) -> None:
    """Raise DataError for invalid options of a section's function."""
    for section, function in FUNCTION.items():
        for i, block in enumerate(getattr(study, section)):
            try:
                check_arguments(function, arguments_of(function, block.options))
            except UsageError as error:
                raise DataError(f"{section}.{i}.options: {error}", file=path) from error


def arguments_of(function: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Turn TOML options into arguments of a public function: underscores for hyphens, lists for commas."""
    arguments = {key.replace("-", "_"): value for key, value in options.items()}
    return {
        key: value.split(",") if isinstance(value, str) and takes_commas(function, key) else value
        for key, value in arguments.items()
    }


def _with_models(known: Any, models: Mapping[str, str]) -> dict[str, str]:
    """The models of a study with some of them replaced, or others in place of all of them, which is reported."""
    known = dict(known) if isinstance(known, Mapping) else {}
    if set(models) <= set(known):
        return known | dict(models)
    if known:
        log.warning(
            "the study has the model%s %s, which %s replaced by %s. To keep a name, write --model %s=MODEL.",
            *("s" if len(known) > 1 else "", ", ".join(known), "are" if len(known) > 1 else "is"),
            *(", ".join(models), next(iter(known))),
        )
    return dict(models)


SECTIONS = {
    name: {*model.model_fields, *(field.alias or "" for field in model.model_fields.values())}
    for name, field in Study.model_fields.items()
    for model in get_args(field.annotation)
    if isinstance(model, type) and issubclass(model, _Section)
}
"""The keys of each kind of section."""


def _change(raw: dict[str, Any], change: str) -> None:
    """Replace one value: "key.0.key=value"."""
    place, equals, text = (part.strip() for part in change.partition("="))
    keys, value = place.split("."), text
    with suppress(tomllib.TOMLDecodeError):
        value = tomllib.loads(f"value = {text}")["value"]
    what = _wrong_place(raw, *keys, text=text) if equals else "write key=value, such as train.0.seeds=[0,1,2]."
    at: Any = raw
    try:
        for key in keys[:-1]:  # a number indexes a list
            at = at[int(key)] if key.isdigit() else at.setdefault(key, {})
        if not what:
            at[int(keys[-1]) if isinstance(at, list) else keys[-1]] = value
    except (AttributeError, LookupError, TypeError, ValueError):
        what = what or "probekit study show prints the file of a study that comes with probekit."
    if what:
        raise UsageError(f"--set {change!r} does not match a value of the study; {what}")


def _wrong_place(raw: Mapping[str, Any], name: str, *rest: str, text: str) -> str:
    """Why the keys NAME.NUMBER.KEY lead to no section with this key, and what to write; "" otherwise."""
    found = raw.get(name, [])
    if name not in SECTIONS or not rest or not isinstance(found, list):
        return ""
    numbered = rest[0].isdecimal()
    inside = rest[1:] if numbered else rest
    others = [other for other, keys in SECTIONS.items() if inside and inside[0] in keys]
    if others and name not in others:
        have = f"[[{']] and [['.join(others)}]] {'have' if len(others) > 1 else 'has'}"
        other = next((other for other in others if other in raw), others[0])
        return f"[[{name}]] has no key {inside[0]}, but {have}: write {other}.0.{'.'.join(inside)}={text}."
    if not found:
        return f"it has no section [[{name}]]."
    if not numbered:
        return f"{name} is a list of sections; write {name}.0.{'.'.join(inside)}={text}."
    if int(rest[0]) >= len(found):
        return f"it has {len(found)} section{'s' * (len(found) > 1)} [[{name}]], numbered from 0."
    return ""
