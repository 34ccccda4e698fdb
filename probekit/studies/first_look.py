"""A first look at a model: what its layers know of some tasks, as a small study that is made in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from probekit.activations.pooling import Pooling
from probekit.analyses.probe import by_split
from probekit.errors import ProbekitError, UsageError
from probekit.files import slug
from probekit.models.identity import model_name
from probekit.public import public
from probekit.rows import Result, make_rows, read
from probekit.runtime import Progress, no_progress
from probekit.studies.file import Figure, Information, Probe, Study
from probekit.studies.options import RunOptions
from probekit.studies.plan import check_steps, study_steps
from probekit.studies.pools import here_pool
from probekit.studies.run import PlannedStudy, StudyRun, run_study
from probekit.studies.runner import Outcome
from probekit.studies.sections.outputs import report_step
from probekit.studies.steps import Inside, Step

__all__ = ["page_of", "plan_run", "result_of", "run"]

FOLDER = "probekit-run"
QUICK = {"controls": 0, "held-out": 0.2}
ABOUT = "Diagnostic classifiers and mutual information of each layer, also of the same model with random weights."
ABOUT_QUICK = (
    "A quick look: the penalty is chosen on one held-out fifth of train, no probe is trained on shuffled labels, and "
    "random weights and mutual information are left out. Without --quick they are there."
)


@public(options=RunOptions)
def run(
    model: str | Path,
    task: str | Path,
    /,
    *tasks: str | Path,
    out: str | Path | None = None,
    options: RunOptions,
    progress: Progress = no_progress,
) -> Result:
    """Find out what each layer of a model knows of some tasks: caches, probes with controls, a figure, a page.

    The activations of train and dev are cached, of the model and of the same architecture with random weights. Each
    layer is probed, with shuffled labels beside gold ones, its mutual information with the labels is measured, and the
    layer curves are drawn and summed up. All of it is in one folder, with one page, ``report.html``. What is there
    already, made from the same data, weights and options, is not made again.

    Parameters
    ----------
    model : path
        Hub id, or a local folder with config.json and safetensors.
    task, *tasks : str
        Names of tasks, or TOML files.
    out : path, optional
        The folder; ``probekit-run/MODEL-TASK`` without it.
    options : RunOptions
        ``data_dir``, ``limit``, ``pooling``, ``device``, ``quick``; they may be given one by one.
    progress : callable
        Told how many steps have ended.

    Returns
    -------
    Result
        The rows of probes and of mutual information, the predictions for each example, and the ``verdict``.

    Raises
    ------
    UsageError
        Before anything is done for a model, a task or an option that cannot be used; and where a step fails.

    Examples
    --------
    >>> result = probekit.run("bert-base-uncased", "rte", data_dir="glue", quick=True)  # doctest: +SKIP
    >>> print(*result.verdict, sep="\\n")  # doctest: +SKIP
    """
    planned, ended = plan_run(model, (task, *tasks), out, options), 0

    def tell(_: Outcome) -> None:
        nonlocal ended
        ended += 1
        progress("steps", ended, len(planned.steps))

    done = run_study(planned, here_pool(), tell=tell)
    if done.failed:
        first = done.failed[0]
        log = planned.folder / "logs" / f"{slug(first.step.name)}.log"
        raise UsageError(f"{first.step.name} failed: {first.message.rstrip('.')}. See {log}.")
    return result_of(done)


def plan_run(
    model: str | Path, tasks: Sequence[str | Path], out: str | Path | None = None, options: RunOptions | None = None
) -> PlannedStudy:
    """What :func:`run` does, step by step; nothing is done yet.

    Raises
    ------
    UsageError
        For a model, a task or an option that cannot be used.
    """
    options, names = options or RunOptions(), list(dict.fromkeys(map(str, tasks)))
    study = _study(str(model), names, options)
    folder = Path(out) if out else Path(FOLDER) / "-".join(slug(Path(w).stem) for w in (*study.models, *names))
    steps = [_on(step, options.device) for step in study_steps(study, options.data_dir)]
    if wrong := next((step.error for step in steps if step.error), ""):
        raise UsageError(wrong)
    steps = list(_together(steps[:-1]))
    probes = [step for step in steps if step.function == "probe"]
    steps.append(_summary(probes, "quick" if options.quick else ""))
    page, leaf = report_step(study.title, steps), "quick.html" if options.quick else "report.html"
    steps.append(replace(page, arguments={**page.arguments, "out": Inside(leaf)}, leaves=(leaf,)))
    check_steps(study, steps)
    return PlannedStudy(study, folder, tuple(steps))


def _study(model: str, tasks: list[str], options: RunOptions) -> Study:
    """The study that a run stands for."""
    of = ["pretrained"] if options.quick else ["pretrained", "random"]
    name, poolings = "quick" if options.quick else "", [Pooling(options.pooling)] if options.pooling else []
    common = {"tasks": tasks, "of": of, "name": name, "poolings": poolings, "limit": options.limit}
    called = model_name(model)
    title = f"{called}: {', '.join(Path(task).stem for task in tasks)}" + " (quick look)" * options.quick
    return Study(
        name="run",
        title=title,
        about=ABOUT_QUICK if options.quick else ABOUT,
        models={called: model},
        probe=[Probe.model_validate({**common, "options": QUICK if options.quick else {}})],
        mi=[] if options.quick else [Information.model_validate(common)],
        figure=[Figure(kind="layers", name=name or "layers")],
    )


def _on(step: Step, device: str) -> Step:
    """A step on the device that was asked for."""
    caches = step.function == "cache_activations"
    return replace(step, arguments={**step.arguments, "device": device}) if caches else step


def _together(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps, with one analysis of trained and random weights where there was one of each: one verdict has both."""
    before: dict[tuple[str, Any], Step] = {}
    gone: dict[str, Step] = {}
    random = {f"{step.name.replace('.random.', '.pretrained.')}" for step in steps if ".random." in step.name}
    for step in steps:
        if step.function in ("probe", "mi") and step.name in random:
            before[step.function, step.name] = step
        elif first := before.get((step.function, step.name.replace(".random.", ".pretrained."))):
            own = {"more": [step.arguments["train"], step.arguments["dev"]]} if step.function == "probe" else {}
            own = own or {"caches": [*first.arguments["caches"], *step.arguments["caches"]]}
            gone[step.name] = step
            yield replace(first, arguments={**first.arguments, **own}, needs=(*first.needs, *step.needs))
        else:
            lost = [Inside(one.leaves[0]) for name, one in gone.items() if name in step.needs]
            rows = {"rows": [one for one in step.arguments["rows"] if one not in lost]} if lost else {}
            needs = tuple(name for name in step.needs if name not in gone)
            yield replace(step, arguments={**step.arguments, **rows}, needs=needs)


def _summary(probes: Sequence[Step], name: str) -> Step:
    """Layer curves in a few numbers."""
    first, *more = [Inside(step.leaves[0]) for step in probes]
    leaf = f"rows/{slug(f'summary {name}'.strip())}.parquet"
    told = {"first": first, "more": more, "out": Inside(leaf)}
    return Step(f"summary {name}".strip(), "summary", told, tuple(step.name for step in probes), (leaf,))


def result_of(done: StudyRun) -> Result:
    """The rows of all probes and of mutual information, as one result.

    Raises
    ------
    ProbekitError
        Where no step left any.
    """
    ended = [one.step for one in done.outcomes if one.state in ("done", "reused")]
    found = [read(done.folder / step.leaves[0]) for step in ended if step.function in ("probe", "mi")]
    if not found:
        raise ProbekitError(f"nothing was measured; the logs in {done.folder / 'logs'} say why.")
    rows = make_rows(pd.concat([one.rows for one in found], ignore_index=True))
    said = by_split(one for result in found for one in result.predictions)
    reads = tuple(one for result in found for one in result.reads)
    return Result(rows, tuple(said), found[0].recipe, reads)


def page_of(done: StudyRun) -> Path | None:
    """The page, where it was made."""
    made = [one.step for one in done.outcomes if one.state in ("done", "reused") and one.step.function == "report"]
    return done.folder / made[0].leaves[0] if made else None
