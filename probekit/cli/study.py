"""``probekit study``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from probekit.cli.shipped import add_shipped
from probekit.studies.options import StudyOptions, WorkerOptions

__all__ = ["app"]

app = App("study", help="Produce all tables and figures of a paper from one file.")


@app.command(name="run")
def run_command(
    study: str,
    /,
    *,
    out: Path | None = None,
    plan: bool = False,
    commands: bool = False,
    options: Annotated[StudyOptions, Parameter(name="*")] = StudyOptions(),
    workers: Annotated[WorkerOptions, Parameter(name="*")] = WorkerOptions(),
) -> int:
    """Run the steps of a study: caches, training, analyses, tables, figures, the report.

    Each step is a call of a public function; --plan lists them. Steps already done with the same data, weights and
    options are reused: run the same command again to resume after an interruption. If a step fails, only the steps that
    depend on it are skipped, and the exit status is 1.

    Examples:

        probekit study run figure1-small --data-dir data --plan

        probekit study run figure1-small --data-dir data --model all-MiniLM-L6-v2=minilm --set probe.0.limit=1000

        probekit study run mine.toml --jobs 2

        probekit study run table2-full --backend dask --scheduler tcp://head:8786

    Parameters
    ----------
    study
        A study file (.toml), or the name of a study that comes with probekit (probekit study list).
    out
        Folder of the study; by default studies/STUDY.
    plan
        List the steps with an estimate of their time, without running them.
    commands
        With --plan: print the command of each step.
    """
    from probekit.cli.steps import run_planned, show_plan
    from probekit.studies.run import plan_study

    planned = plan_study(study, out, options)
    if plan:
        return show_plan(planned, workers.jobs, commands=commands)
    return 1 if run_planned(planned, workers).failed else 0


@add_shipped(app, "study", "studies", example="figure1-small")
def shipped() -> Mapping[str, str]:
    """The studies that come with probekit, by name."""
    from probekit.studies.catalogue import shipped_studies

    return shipped_studies()
