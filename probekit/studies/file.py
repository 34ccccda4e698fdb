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

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from probekit.activations.pooling import Pooling
from probekit.adaptation.options import Regime, check_names
from probekit.errors import DataError, UsageError
from probekit.functions import takes_commas
from probekit.recipe import check_arguments
from probekit.studies.catalogue import shipped_studies
from probekit.toml import read_named, what_is_wrong

__all__ = ["Domains", "Figure", "Information", "Probe", "Study", "Table", "Train", "arguments_of", "read_study"]

Options = dict[str, Any]
Of = Literal["pretrained", "fine-tuned", "random"]
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


class Domains(_Section):
    """Divergences between the domains of a task and named corpora, with options of ``probekit domains``."""

    task: str
    split: str | None = None
    corpora: dict[str, str] = {}
    options: Given = {}


class Table(_Section):
    """A table of all rows from ``probekit table KIND``; ``published`` is the name of published numbers to add."""

    kind: Literal["regimes", "domains"]
    name: str = ""
    published: str | None = None
    options: Given = {}


class Figure(_Section):
    """A figure from ``probekit plot KIND``, of the rows of the sections named in ``rows``."""

    kind: str
    name: str = ""
    rows: Literal["probe", "mi", "train", "domains", "table"] = "probe"
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
    domains: list[Domains] = []
    table: list[Table] = []
    figure: list[Figure] = []


def read_study(where: str | Path, *, models: Mapping[str, str] | None = None, changes: Sequence[str] = ()) -> Study:
    """Read and check a study from a TOML file, or a shipped study by its name.

    Parameters
    ----------
    models : Mapping[str, str], optional
        Models that replace those of the file.
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
        raw["models"] = dict(models)
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


FUNCTION = {"probe": "probe", "mi": "mi", "domains": "domains", "table": "table", "figure": "plot"}
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


def _change(raw: Any, change: str) -> None:
    """Replace one value: "key.0.key=value"."""
    place, equals, text = change.partition("=")
    *way, last = place.strip().split(".")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    try:
        for key in way:  # a number indexes a list
            raw = raw[int(key)] if key.isdigit() else raw.setdefault(key, {})
        raw[int(last) if isinstance(raw, list) else last] = value
    except (AttributeError, LookupError, TypeError, ValueError):
        equals = ""
    if not equals:
        raise UsageError(
            f"--set {change!r} does not match a value of the study; write key=value, such as train.0.seeds=[0,1,2]."
        )
