"""A first look at the layers of a model on some tasks: a small study that is created in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probekit.activations.writing.job import RANDOM
from probekit.constraint import MadeOut
from probekit.errors import ProbekitError, UsageError
from probekit.files import slug
from probekit.models.identity import model_name
from probekit.public import public
from probekit.rows import Result, joined, read
from probekit.runtime import Progress, no_progress
from probekit.studies.options import RunOptions
from probekit.studies.plan import check_steps, study_steps
from probekit.studies.planned import PlannedStudy, StudyRun, run_study
from probekit.studies.pools import here_pool
from probekit.studies.schema import Study
from probekit.tasks.load import is_task

FOLDER = "probekit-run"
QUICK = {"controls": 0, "held-out": 0.2}
ABOUT = "Diagnostic classifiers and mutual information of each layer, also of the same model with random weights."
ABOUT_QUICK = (
    "Quick look: the penalty is chosen on one held-out fifth of train, no probe is trained on shuffled labels, and "
    "bag and tf-idf of word pieces, random weights and mutual information are left out. Without --quick they are "
    "included."
)


@public(options=RunOptions, faster="quick=True")
def run(
    model: str | Path,
    task: str | Path,
    /,
    *tasks: str | Path,
    out: MadeOut | None = None,
    options: RunOptions,
    progress: Progress = no_progress,
) -> Result:
    """Analyse each layer of a model on your tasks: cache, probe with controls, measure information, plot, report.

    Train and dev are cached with the model and with the same architecture at random weights. Each layer is probed on
    gold and shuffled labels, its mutual information with the labels is estimated, and the findings are stated in words.
    All files are in one folder; open report.html first. Finished steps from the same data, weights and options are
    reused: run the same command again to resume after an interruption. On the command line, the exit status is 1 if a
    step fails.

    Parameters
    ----------
    model : path
        A Hub id, a local folder with config.json and safetensors, or minilm for the model that the extra demo installs.
    task : str
        Name of a task (see ``probekit tasks``), or a TOML file.
    *tasks : str
        Further tasks.
    out : path, optional
        Folder for all files; by default probekit-run/MODEL-TASK.
    options : RunOptions
        ``data_dir``, ``limit``, ``pooling``, ``layers``, ``dtype``, ``device`` …; each may be given as a keyword.
    progress : callable
        Receives the number of steps that have ended.

    Returns
    -------
    Result
        The rows of probes and mutual information, the predictions for each example, and the ``verdict``.

    Raises
    ------
    UsageError
        For an unusable model, task or option, before anything is run; and if a step fails.

    Examples
    --------
    >>> result = probekit.run("bert-base-uncased", "rte", data_dir="glue", quick=True)  # doctest: +SKIP
    >>> print(*result.verdict, sep="\\n")  # doctest: +SKIP

    On the command line::

        probekit run bert-base-uncased rte --quick
        probekit run sentence-transformers/all-MiniLM-L6-v2 rte cola --data-dir glue
        probekit run ./bert-of-mine mytask.toml --out bert-of-mine --limit 2000
        probekit run gpt2 cola --pooling last,mean --dry-run
        probekit run mistralai/Mistral-7B-v0.1 rte --dtype bf16 --layers 0,8-24 --pooling last --batch-tokens 4096
    """
    planned = plan_run(model, (task, *tasks), out, options)
    done = run_study(planned, here_pool(), progress=progress)
    if done.failed:
        first = done.failed[0]
        log = planned.folder / "logs" / f"{slug(first.step.name)}.log"
        raise UsageError(f"{first.step.name} failed: {first.message.rstrip('.')}. See {log}.")
    return result_of(done)


def plan_run(
    model: str | Path, tasks: Sequence[str | Path], out: str | Path | None = None, options: RunOptions | None = None
) -> PlannedStudy:
    """The steps of :func:`run`, before anything is run.

    Raises
    ------
    UsageError
        For an unusable model, task or option.
    """
    options, names = options or RunOptions(), list(dict.fromkeys(map(str, tasks)))
    if is_task(str(model)) and not Path(model).is_dir():
        raise UsageError(f"{model} is a task, and the model comes first: probekit run {names[0]} {model}.")
    if str(model).startswith(RANDOM):
        raise UsageError(
            f"run includes random weights already: probekit run {str(model).removeprefix(RANDOM)} {names[0]}. For "
            f"them only, use probekit cache-activations --model {model}, then probekit probe."
        )
    study = _study(str(model), names, options)
    folder = Path(out) if out else Path(FOLDER) / "-".join(slug(Path(w).stem) for w in (*study.models, *names))
    steps = study_steps(study, options.data_dir)
    if wrong := next((step.error for step in steps if step.error), ""):
        raise UsageError(wrong)
    check_steps(study, steps)
    return PlannedStudy(study, folder, tuple(steps), allow_remote=True)  # the user named all of it


def _study(model: str, tasks: list[str], options: RunOptions) -> Study:
    """The study of a run: one of one model."""
    quick, called = options.quick, model_name(model)
    of, name = (["pretrained"], "quick") if quick else (["pretrained", "random"], "")
    common = {"tasks": tasks, "of": of, "name": name, "poolings": options.pooling or (), "limit": options.limit}
    fitted = {"limit_dev": options.limit, "options": QUICK if quick else {}}
    return Study.model_validate(
        {
            "name": "run",
            "title": f"{called}: {', '.join(Path(task).stem for task in tasks)}" + " (quick look)" * quick,
            "about": ABOUT_QUICK if quick else ABOUT,
            "page": "quick.html" if quick else "report.html",
            "models": {called: model},
            "caches": options.of_caches,
            "probe": [{**common, **fitted, "together": True}],
            "mi": [] if quick else [{**common, "together": True}],
            "figure": [{"kind": "layers", "name": name or "layers"}],
            "summary": [{"name": name}],
        }
    )


def result_of(done: StudyRun) -> Result:
    """The rows of all probes and of mutual information, in one result.

    Raises
    ------
    ProbekitError
        If no step produced any.
    """
    ended = [one.step for one in done.outcomes if one.state in ("done", "reused")]
    found = [read(done.folder / step.leaves[0]) for step in ended if step.function in ("probe", "mi")]
    if not found:
        raise ProbekitError(f"nothing was measured; see the logs in {done.folder / 'logs'}.")
    return joined(found)


def page_of(done: StudyRun) -> Path | None:
    """The path of the report; None if it was not written."""
    reports = [one.step for one in done.outcomes if one.state in ("done", "reused") and one.step.function == "report"]
    return done.folder / reports[0].leaves[0] if reports else None
