"""Study files: which models, tasks, trainings and analyses belong together, as a checked value.

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
"""Options that the study gives a command itself."""


def _not_set(options: Options) -> Options:
    for name in options:
        if name.replace("-", "_") in SET:
            raise ValueError(f"{name} is not an option here, the study gives it itself")
    return options


Given = Annotated[Options, AfterValidator(_not_set)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Train(_Section):
    """Training runs: one for each model, task, regime and seed.

    Attributes
    ----------
    name : str, default ''
        Of a variant, such as "joint"; it stands in the runs' names and in tables.
    models : list[str], default []
        Some of the study's, all for none.
    limit, validation, data_seed : int, float or None, int
        As of ``probekit train``: learn from so many examples, choose by a share of train, drawn with this seed.
    transfer : bool, default False
        Evaluate each run on the dev splits of the other tasks, too (their labels are the same).
    options : Options, default {}
        Of both regimes, as ``probekit train`` takes them; ``fine-tune`` and ``feature-extraction`` of one.
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
    """What is asked of each layer: of pretrained models, of the fine-tuning runs of the task, of random ones.

    name : of one of several sections that would give the same; it stands in their files' names
    poolings : of the pieces of a text, without any the mean; of word tags "first" or "mean" of the pieces of each
        word, without any the first
    limit : learn from so many examples only, drawn at random with data_seed; seeds : of random weights
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
    """Diagnostic classifiers on each layer; options as ``probekit probe`` takes them."""

    train: str = "train"
    dev: str = "dev"

    @property
    def splits(self) -> tuple[str, ...]:
        return self.train, self.dev


class Information(_Layers):
    """Mutual information between each layer and the labels of one split; options as ``probekit mi`` takes them."""

    split: str = "train"

    @property
    def splits(self) -> tuple[str, ...]:
        return (self.split,)


class Domains(_Section):
    """Divergences between the domains of a task and corpora, by name; options as ``probekit domains`` takes them."""

    task: str
    split: str | None = None
    corpora: dict[str, str] = {}
    options: Given = {}


class Table(_Section):
    """A table: what ``probekit table KIND`` makes of all rows; ``published`` names numbers to stand beside ours."""

    kind: Literal["regimes", "domains"]
    name: str = ""
    published: str | None = None
    options: Given = {}


class Figure(_Section):
    """A figure: what ``probekit plot KIND`` draws of the rows of ``rows``."""

    kind: str
    name: str = ""
    rows: Literal["probe", "mi", "train", "domains", "table"] = "probe"
    options: Given = {}


class Study(_Section):
    """A study.

    Attributes
    ----------
    models : dict[str, str], default Field(min_length=1)
        By the name that tables give them, hub ids or folders.
    data : dict[str, str], default {}
        Folders of tasks' files below the data folder, where they cannot be told from the task's name.
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
    """The checked study of a TOML file, or of one that comes with probekit by its name.

    Parameters
    ----------
    models : Mapping[str, str], optional
        Instead of the file's.
    changes : Sequence[str], default ()
        "train.0.seeds=[0,1,2]" replaces a value, written as in TOML.

    Raises
    ------
    UsageError
        For a name that there is not.
    DataError
        Naming the file and the key that is wrong.
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
        raise DataError("asks for nothing; add a section such as [[probe]].", file=path)
    return study


def _check_training(study: Study, path: Path) -> None:
    """Raise DataError for a model that there is not, and for what training does not take."""
    for i, block in enumerate(study.train):
        if strange := [name for name in block.models if name not in study.models]:
            raise DataError(f"train: there is no model {strange[0]!r}; there are {', '.join(study.models)}.", file=path)
        for regime in block.regimes:
            options = arguments_of("train", block.of_regime(regime))
            try:
                check_names(set(options) - {"layers"})
                check_arguments("train", {**options, "regime": regime})
            except UsageError as error:
                raise DataError(f"train.{i}: {error}", file=path) from error


FUNCTION = {"probe": "probe", "mi": "mi", "domains": "domains", "table": "table", "figure": "plot"}
"""By section the public function whose options it takes."""


def _check_options(study: Study, path: Path) -> None:
    """Raise DataError for options that the function of a section does not take."""
    for section, function in FUNCTION.items():
        for i, block in enumerate(getattr(study, section)):
            try:
                check_arguments(function, arguments_of(function, block.options))
            except UsageError as error:
                raise DataError(f"{section}.{i}.options: {error}", file=path) from error


def arguments_of(function: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a TOML file as arguments of a public function: with underscores, and commas where it takes many."""
    told = {key.replace("-", "_"): value for key, value in options.items()}
    return {
        key: value.split(",") if isinstance(value, str) and takes_commas(function, key) else value
        for key, value in told.items()
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
        for key in way:  # a number is of a list, and no name
            raw = raw[int(key)] if key.isdigit() else raw.setdefault(key, {})
        raw[int(last) if isinstance(raw, list) else last] = value
    except (AttributeError, LookupError, TypeError, ValueError):
        equals = ""
    if not equals:
        raise UsageError(f"--set {change!r} replaces nothing; write key=value, such as train.0.seeds=[0,1,2].")
