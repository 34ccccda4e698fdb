"""Files of studies and suites: models, tasks, trainings and analyses, as a validated value.

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

A suite is a study of many tasks:

title = "Syntax"
limit = 1000

[[tasks]]
group = "syntax"
tasks = ["ud", "ud-relations"]
"""

from __future__ import annotations

import logging
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from probekit.adaptation.options import Regime, check_names
from probekit.addresses import refuse_addresses
from probekit.analysis import Reads, analyses
from probekit.errors import DataError, UsageError, did_you_mean
from probekit.functions import takes_commas
from probekit.recipe import check_arguments
from probekit.studies.catalogue import Kind, shipped
from probekit.studies.schema import LAYERED, OF_MODELS, OF_TASKS, Section, Study, Tasks
from probekit.toml import parse_toml, read_named, what_is_wrong

log = logging.getLogger(__name__)
PROSE = ("title", "about")
"""The keys of a study or a suite that readers see, and nothing opens."""


def read_study(
    where: str | Path,
    kind: Kind = "study",
    *,
    models: Mapping[str, str] | None = None,
    changes: Sequence[str] = (),
    allow_remote: bool = False,
) -> Study:
    """Read and check a study or a suite from a TOML file, or a shipped one by its name.

    Parameters
    ----------
    kind : {"study", "suite"}
        A suite has sections ``[[tasks]]``; its models may be given here alone.
    models : Mapping[str, str], optional
        Models that replace those of the file with the same names; with a new name, they replace all of them.
    changes : Sequence[str], default ()
        Values to replace, in TOML syntax: "train.0.seeds=[0,1,2]".
    allow_remote : bool, default False
        Whether the file may name addresses.

    Raises
    ------
    UsageError
        For an unknown name, and if a suite has no model.
    DataError
        If the file is invalid; the message gives the file and the key.
    """
    raw, path = read_named(where, shipped(kind), kind)
    refuse_addresses({key: value for key, value in raw.items() if key not in PROSE}, path, allowed=allow_remote)
    for change in changes:
        changed(raw, change, kind)
    if models:
        raw["models"] = _with_models(raw.get("models"), models, kind)
    try:
        study = _with_included(Study.model_validate({"name": path.stem} | raw), path)
    except ValidationError as error:
        raise DataError(what_is_wrong(error, Study), file=path) from error
    for mistake in _mistakes(study, kind):
        raise DataError(mistake, file=path)
    return study


def _mistakes(study: Study, kind: Kind) -> Iterator[str]:
    """What is wrong in a file whose keys and values are known, each as a sentence; UsageError if it needs a model."""
    if kind == "suite" and not study.of_tasks:
        yield "has no tasks; add a section [[tasks]]."
    if kind == "suite" and all(section.analysis == "shift" for section in study.of_tasks):
        yield 'has only sections of the analysis shift; add one of another, such as "probe".'
    if study.of_tasks and not study.models:
        raise UsageError(f"the {kind} {study.name} needs a model: --model minilm, or --model NAME=FOLDER.")
    yield from _in_pretraining(study)
    yield from _in_training(study)
    yield from _in_options(study)
    yield from _in_tasks(study)
    if not (study.models or study.pretrain):
        yield "lacks models; add some, or a section [[pretrain]]."
    if not any((study.pretrain, study.train, study.layered, study.of_tasks, study.domains)):
        yield "has no analysis; add a section such as [[probe]]."


def _with_included(study: Study, path: Path) -> Study:
    """The study with the tasks of the suites that it includes; a task that two of them have is taken from the first."""
    suites = shipped("suite") if study.include else {}
    sections: list[Tasks] = []
    for name in study.include:
        if name not in suites:
            raise DataError(f"include: there is no suite {name!r}; {did_you_mean(name, suites)}", file=path)
        other = Study.model_validate(parse_toml(suites[name], Path(name)))
        for section in other.tasks:
            met = {(task, one.analysis) for one in sections for task in one.tasks}
            left = [task for task in section.tasks if (task, section.analysis) not in met]
            limits = {
                "limit": _least(section.limit or other.limit, study.limit),
                "limit_dev": _least(section.limit_dev or other.limit_dev, study.limit_dev),
            }
            sections += [section.model_copy(update={"tasks": left, **limits})] if left else []
    return study.model_copy(update={"tasks": [*sections, *study.tasks], "include": []})


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit), default=None)


def _in_tasks(study: Study) -> Iterator[str]:
    """Tasks that are analysed twice in the same way, and what shift cannot compare."""
    blocks, shifts = study.of_tasks, [block.group for block in study.of_tasks if block.analysis == "shift"]
    for place, block in _placed(study, "tasks", *OF_TASKS):
        if block.analysis == "shift" and len(block.tasks) < 2:
            yield f"{place}.tasks: shift needs two tasks or more."
        if block.analysis == "shift" and shifts.count(block.group) > 1:
            yield f"{place}.group is {block.group!r}, as in another section of shift; give each its own group."
        for task in block.tasks:
            if sum(task in other.tasks and other.analysis == block.analysis for other in blocks) > 1:
                yield f"{task} is in two sections of the analysis {block.analysis}; leave one out."


def _in_pretraining(study: Study) -> Iterator[str]:
    """Unknown encoders, a name that two models have, and wrong options of encoders."""
    for name, given in study.encoders.items():
        try:
            check_arguments("new_encoder", given)
        except UsageError as error:
            yield f"encoders.{name}: {error}"
        if "config" not in given:
            yield f"encoders.{name}: needs config."
        if extra := [key for key in ("out", "seed") if key in given]:
            yield f"encoders.{name}: {extra[0]} is not allowed, because the study sets it."
    names = Counter([*study.models, *(name for block in study.pretrain for name in block.on)])
    if twice := [name for name, count in names.items() if count > 1]:
        yield f"two models or encoders are called {twice[0]!r}; give each its own name."
    for place, block in _placed(study, "pretrain"):
        if not study.encoders:
            yield f"{place} needs an encoder to begin with; add [encoders.NAME]."
        if block.encoder not in study.encoders and (block.encoder or len(study.encoders) > 1):
            which = did_you_mean(block.encoder, study.encoders) if block.encoder else ", ".join(study.encoders)
            yield f"{place}: unknown encoder {block.encoder!r}; {which}"


def _in_training(study: Study) -> Iterator[str]:
    """Names of models and runs that the study does not have, and wrong options of training."""
    known = [*study.models, *(name for block in study.pretrain for name in block.on)]
    names = [block.name for block in study.train]
    for section in ("train", *LAYERED, *OF_MODELS):
        for block in getattr(study, section):
            if strange := [name for name in block.models if name not in known]:
                yield f"{section}: unknown model {strange[0]!r}; the models are {', '.join(known)}."
    for place, block in _placed(study, *LAYERED, *OF_MODELS, "train"):
        key, asked = ("teacher", [block.teacher]) if place.startswith("train") else ("variants", block.variants)
        if strange := [name for name in asked if name and name not in names]:
            which = did_you_mean(strange[0], names)
            yield f"{place}.{key}: no section [[train]] is called {strange[0]!r}; {which}"
    for place, block in _placed(study, "train"):
        if block.teacher and (block.regimes != [Regime.FINE_TUNE] or block.teacher == block.name):
            yield f'{place}.teacher needs regimes = ["fine-tune"] and the name of another section [[train]].'
        for regime in block.regimes:
            options = arguments_of("train", block.of_regime(regime))
            try:
                check_names(set(options) - {"layers", "max_length"})
                check_arguments("train", {**options, **({"teacher": "run"} if block.teacher else {}), "regime": regime})
            except UsageError as error:
                yield f"{place}: {error}"


def _in_options(study: Study) -> Iterator[str]:
    """Wrong options of the functions of sections, and of their caches."""
    for place, block in _placed(study, *LAYERED):
        if block.together and analyses()[block.function].reads is Reads.CACHE:
            yield f"{place}.together has no effect, because {block.function} reads one cache; leave it out."
    for place, block in _placed(study, *SECTIONS):
        try:
            if function := getattr(block, "function", ""):
                check_arguments(function, arguments_of(function, block.options))
        except UsageError as error:
            yield f"{place}.options: {error}"
    try:
        check_arguments("cache_activations", arguments_of("cache_activations", study.caches))
    except UsageError as error:
        yield f"caches: {error}"


def _placed(study: Study, *sections: str) -> Iterator[tuple[str, Any]]:
    """Each of these sections with its place in the file: "train.0"."""
    for section in sections:
        for i, block in enumerate(getattr(study, section)):
            yield f"{section}.{i}", block


def arguments_of(function: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Turn TOML options into arguments of a public function: underscores for hyphens, lists for commas."""
    arguments = {key.replace("-", "_"): value for key, value in options.items()}
    return {
        key: value.split(",") if isinstance(value, str) and takes_commas(function, key) else value
        for key, value in arguments.items()
    }


def _with_models(known: Any, models: Mapping[str, str], kind: str) -> dict[str, str]:
    """The models of a file with some of them replaced, or others in place of all of them, which is reported."""
    known = dict(known) if isinstance(known, Mapping) else {}
    if set(models) <= set(known):
        return known | dict(models)
    if known:
        log.warning(
            "the %s has the model%s %s, which %s replaced by %s. To keep a name, write --model %s=MODEL.",
            *(kind, "s" if len(known) > 1 else "", ", ".join(known), "are" if len(known) > 1 else "is"),
            *(", ".join(models), next(iter(known))),
        )
    return dict(models)


SECTIONS = {
    name: {*model.model_fields, *(field.alias or "" for field in model.model_fields.values())}
    for name, field in Study.model_fields.items()
    for model in get_args(field.annotation)
    if isinstance(model, type) and issubclass(model, Section)
}
"""The keys of each kind of section."""


def changed(raw: dict[str, Any], change: str, file: str = "study") -> None:
    """Replace one value of a file of the kind ``file``: "key.0.key=value"; UsageError if there is no such place."""
    place, equals, text = (part.strip() for part in change.partition("="))
    keys, value = place.split("."), text
    with suppress(tomllib.TOMLDecodeError):
        value = tomllib.loads(f"value = {text}")["value"]
    what = _wrong_place(raw, *keys, text=text) if equals else "write key=value, such as train.0.limit=500."
    at: Any = raw
    try:
        for key in keys[:-1]:  # a number indexes a list
            at = at[int(key)] if key.isdigit() else at.setdefault(key, {})
        if not what:
            at[int(keys[-1]) if isinstance(at, list) else keys[-1]] = value
    except (AttributeError, LookupError, TypeError, ValueError):
        what = what or f"probekit {file} show prints the file of a {file} that comes with probekit."
    if what:
        raise UsageError(f"--set {change!r} does not match a value of the {file}; {what}")


def _wrong_place(raw: Mapping[str, Any], name: str, *rest: str, text: str) -> str:
    """Why the keys NAME.NUMBER.KEY lead to no section with this key, and what to write; "" otherwise."""
    found = raw.get(name, [])
    if name not in SECTIONS or not rest or not isinstance(found, list):
        return ""
    numbered = rest[0].isdecimal()
    inside = rest[1:] if numbered else rest
    others = [other for other, keys in SECTIONS.items() if inside and inside[0] in keys]
    if others and name not in others:
        other = next((other for other in others if other in raw), others[0])
        return f"[[{name}]] has no key {inside[0]}, but [[{other}]] has: write {other}.0.{'.'.join(inside)}={text}."
    if not found:
        return f"it has no section [[{name}]]."
    if not numbered:
        return f"{name} is a list of sections; write {name}.0.{'.'.join(inside)}={text}."
    if int(rest[0]) >= len(found):
        return f"it has {len(found)} section{'s' * (len(found) > 1)} [[{name}]], numbered from 0."
    return ""
