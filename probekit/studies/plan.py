"""The steps of a study."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from probekit.errors import UsageError
from probekit.files import slug
from probekit.functions import outputs
from probekit.studies.schema import Figure, Study, Table
from probekit.studies.sections.layers import layer_steps
from probekit.studies.sections.models import compare_steps, model_steps
from probekit.studies.sections.names import Plan
from probekit.studies.sections.outputs import domain_steps, figure_step, report_step, summary_step, table_step
from probekit.studies.sections.tasks import task_steps
from probekit.studies.sections.training import evaluation_steps, guidelines_steps, pretraining_steps, training_steps
from probekit.studies.sources import Sources
from probekit.studies.steps import Inside, Step


def study_steps(study: Study, data_dir: str | Path | None = None) -> list[Step]:
    """The steps of a study, each after the steps it needs.

    Parameters
    ----------
    study : Study
        The study.
    data_dir : path, optional
        Folder with one subfolder per task (default: the hub).

    Returns
    -------
    list of Step
        A task or model that cannot be read affects only its steps, which hold the error.

    Raises
    ------
    UsageError
        If two steps would have the same name, or a section refers to something that the study does not contain.
    """
    plan = Plan(study, Sources(None if data_dir is None else Path(data_dir), study.data, study.models))
    measured = unique(
        [
            *(step for block in study.pretrain for step in pretraining_steps(plan, block)),
            *(step for block in study.train for step in training_steps(plan, block)),
            *(step for evaluated in study.evaluate for step in evaluation_steps(plan, evaluated)),
            *(step for block in study.layered for step in layer_steps(plan, block)),
            *(step for block in study.of_models for step in model_steps(plan, block)),
            *(step for block in study.domains for step in domain_steps(plan, block)),
            *task_steps(plan),
            *guidelines_steps(plan),
        ]
    )
    sound = [step for step in measured if not step.error]
    drawn = {figure.name or figure.kind for figure in study.figure}
    shown = [kind for kind in ("scoreboard", "shift") if any(step.function == kind for step in sound)]
    made = [*measured, *(step for block in study.compare for step in compare_steps(plan, block))]
    made += [table_step(table, measured) for table in study.table]
    if "scoreboard" in shown and all((table.name or table.kind) != "scoreboard" for table in study.table):
        made.append(table_step(Table(kind="scoreboard"), sound))
    figures = [figure_step(figure, made) for figure in study.figure]
    figures += [figure_step(Figure(kind=kind, rows=kind), sound) for kind in shown if kind not in drawn]
    made = unique([*made, *figures, *(summary_step(summary, measured) for summary in study.summary)])
    return [*made, report_step(study, made)]


def check_steps(study: Study, steps: Iterable[Step]) -> None:
    """Raise UsageError, with the name of the step, for invalid arguments of its function. Nothing is run."""
    for step in steps:
        if step.function:
            try:
                _check_places(step)
                step.recipe(Path("study")).check()
            except UsageError as error:
                raise UsageError(f"{study.name}: step {step.name}: {error}") from error


def _check_places(step: Step) -> None:
    """Raise UsageError if a step would write outside the study's folder."""
    for key in outputs(step.function):
        value = step.arguments.get(key)
        for place in value if isinstance(value, list | tuple) else [value]:
            leaf = place.leaf if isinstance(place, Inside) else "" if place is None else None
            if leaf is None or Path(leaf).is_absolute() or ".." in Path(leaf).parts:
                shown = leaf if leaf is not None else place
                raise UsageError(
                    f"{key} is {str(shown)!r}; a study writes only to its folder, so give a relative path below it."
                )


def unique(steps: Iterable[Step]) -> list[Step]:
    """Remove duplicate steps, because several analyses share a cache; compared by the names of files."""
    kept: dict[str, Step] = {}
    for step in steps:
        if (other := kept.setdefault(slug(step.name), step)) != step:
            both = repr(step.name) if other.name == step.name else f"{other.name!r} and {step.name!r}"
            raise UsageError(
                f"the study has two different steps called {both}; give sections, models or tasks different names."
            )
    return list(kept.values())
