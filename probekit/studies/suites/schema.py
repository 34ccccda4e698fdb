"""The sections of a suite file, as validated values, and how it is read.

title = "Syntax"
limit = 1000

[[tasks]]
group = "syntax"
tasks = ["ud", "ud-relations"]

[[tasks]]
group = "trees"
tasks = ["ud-relations"]
analysis = "structural"
options = { ranks = [32] }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from probekit.addresses import refuse_addresses
from probekit.analysis import analyses
from probekit.errors import DataError, UsageError, did_you_mean
from probekit.recipe import check_arguments
from probekit.studies.catalogue import shipped_suites
from probekit.studies.file import PROSE, arguments_of, changed
from probekit.studies.schema import Count, Options, Section, Seed, not_set
from probekit.toml import parse_toml, read_named, what_is_wrong

if TYPE_CHECKING:
    Analysis = str
else:
    Analysis = Literal[*(name for name, one in analyses().items() if one.in_suites)]
"""The analyses: public functions, of each task by itself, but for "shift", which is of the tasks of a section."""
Weights = Literal["pretrained", "random"]
OWN = (
    *("out", "rows", "pooling", "layers", "task", "data_dir", "split", "limit", "random_weights", "any_split"),
    *("device", "model", "train", "dev", "tasks"),
)
Given = Annotated[Options, AfterValidator(lambda options: not_set(options, OWN))]


class Tasks(Section):
    """Tasks that are analysed in the same way.

    Attributes
    ----------
    tasks : list[str]
        Names of tasks, or paths of task files.
    group : str
        What they are about: surface, syntax, semantics, discourse, world …
    analysis : str, default "probe"
        The public function, of those that can stand in a suite (``Analysis.in_suites``). "shift" fits
        probes on each task of the section and evaluates them on all.
    train, dev : str, default "train" and "dev"
        Splits; a task without dev is evaluated on test.
    limit, limit_dev : int or None
        Examples of train and dev of each task, drawn at random (default: those of the suite; without ``limit_dev`` in
        either, ``limit``). Of minimal pairs, pairs of each paradigm.
    options : Options, default {}
        Options of the function.
    """

    tasks: list[str] = Field(min_length=1)
    group: str = Field(min_length=1)
    analysis: Analysis = "probe"
    train: str = "train"
    dev: str = "dev"
    limit: Count | None = None
    limit_dev: Count | None = None
    options: Given = Field({})


class Suite(Section):
    """A suite.

    Attributes
    ----------
    models : dict[str, str], default {}
        Hub ids or folders, by their name in tables.
    data : dict[str, str], default {}
        Folders of task files below the data folder, if they differ from the name of the task.
    of : list of {"pretrained", "random"}
        The weights that are analysed; "random" is the control of the same architecture, with ``random_seed``.
    limit, limit_dev : int or None
        Examples of train and dev of each task, drawn at random with ``data_seed`` (default: all, of dev as many as of
        train).
    against : str, optional
        A CSV file of a published leaderboard; see :func:`probekit.scoreboard`.
    include : list[str], default []
        Names of shipped suites whose tasks come first, with their own limits where these are lower.
    """

    name: str = ""
    title: str
    about: str = ""
    models: dict[str, str] = Field({})
    data: dict[str, str] = Field({})
    of: list[Weights] = Field(["pretrained", "random"], min_length=1)
    random_seed: Seed = 0
    limit: Count | None = None
    limit_dev: Count | None = None
    data_seed: Seed = 0
    against: str | None = None
    include: list[str] = Field([])
    tasks: list[Tasks] = Field([])


def read_suite(
    where: str | Path,
    *,
    models: Mapping[str, str] | None = None,
    changes: Sequence[str] = (),
    allow_remote: bool = False,
) -> Suite:
    """Read and check a suite from a TOML file, or a shipped one by its name.

    Parameters
    ----------
    where : str or path
        The file, or the name.
    models : Mapping[str, str], optional
        Models in place of those of the file, by their names in tables.
    changes : Sequence[str], default ()
        Values to replace, in TOML syntax: "tasks.0.limit=500".
    allow_remote : bool, default False
        Whether the file may name addresses.

    Raises
    ------
    UsageError
        For an unknown name, or if there is no model.
    DataError
        If the file is invalid; the message gives the file and the key.
    """
    raw, path = read_named(where, shipped_suites(), "suite")
    refuse_addresses({key: value for key, value in raw.items() if key not in PROSE}, path, allowed=allow_remote)
    for change in changes:
        changed(raw, change, "suite")
    if models:
        raw["models"] = dict(models)
    try:
        suite = Suite.model_validate({"name": path.stem} | raw)
    except ValidationError as error:
        raise DataError(what_is_wrong(error, Suite), file=path) from error
    suite = _with_included(suite, path)
    if all(section.analysis == "shift" for section in suite.tasks):
        raise DataError('has only sections of the analysis shift; add one of another, such as "probe".', file=path)
    if not suite.models:
        raise UsageError(f"the suite {suite.name} needs a model: --model minilm, or --model NAME=FOLDER.")
    for i, section in enumerate(suite.tasks):
        try:
            check_arguments(section.analysis, arguments_of(section.analysis, section.options))
        except UsageError as error:
            raise DataError(f"tasks.{i}.options: {error}", file=path) from error
        if section.analysis == "shift" and len(section.tasks) < 2:
            raise DataError(f"tasks.{i}.tasks: shift needs two tasks or more.", file=path)
        if (
            section.analysis == "shift"
            and [one.group for one in suite.tasks if one.analysis == "shift"].count(section.group) > 1
        ):
            raise DataError(f"tasks.{i}.group: another section of shift is called {section.group}, too.", file=path)
        for task in section.tasks:
            if sum(task in other.tasks and other.analysis == section.analysis for other in suite.tasks) > 1:
                message = f"{task} is in two sections of the analysis {section.analysis}; leave one out."
                raise DataError(message, file=path)
    return suite


def _with_included(suite: Suite, path: Path) -> Suite:
    """The suite with the sections of those that it includes; a task that two of them have is taken from the first."""
    sections: list[Tasks] = []
    for name in suite.include:
        shipped = shipped_suites()
        if name not in shipped:
            raise DataError(f"include: there is no suite {name!r}; {did_you_mean(name, shipped)}", file=path)
        other = Suite.model_validate(parse_toml(shipped[name], Path(name)))
        for section in other.tasks:
            met = {(task, one.analysis) for one in sections for task in one.tasks}
            left = [task for task in section.tasks if (task, section.analysis) not in met]
            limits = {
                "limit": _least(section.limit or other.limit, suite.limit),
                "limit_dev": _least(section.limit_dev or other.limit_dev, suite.limit_dev),
            }
            sections += [section.model_copy(update={"tasks": left, **limits})] if left else []
    if not (sections or suite.tasks):
        raise DataError("has no tasks; add a section [[tasks]].", file=path)
    return suite.model_copy(update={"tasks": [*sections, *suite.tasks], "include": []})


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit), default=None)
