"""``probekit run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from probekit.cli.show import say
from probekit.studies.options import RunOptions

__all__ = ["run"]


def run(
    model: str,
    task: str,
    /,
    *tasks: str,
    out: Path | None = None,
    dry_run: bool = False,
    options: Annotated[RunOptions, Parameter(name="*")] = RunOptions(),
) -> int:
    """Find out what each layer of a model knows of some tasks: caches, probes with controls, a figure, a page.

    Train and dev are cached, of the model and of the same one with random weights; each layer is probed, beside
    shuffled labels, its mutual information with the labels is measured, and what the numbers show is said in words. All
    of it is in one folder, with one page, report.html. What is there already is not made again: the same command goes
    on after an interruption. Exit status 1 where a step fails.

    Examples:

        probekit run bert-base-uncased rte --quick

        probekit run sentence-transformers/all-MiniLM-L6-v2 rte cola --data-dir glue

        probekit run ./bert-of-mine mytask.toml --out bert-of-mine --limit 2000

        probekit run gpt2 cola --pooling last --dry-run

    Parameters
    ----------
    model
        Hub id, a local folder with config.json and safetensors, or minilm, the model of the extra demo.
    task
        Name of a task (see *probekit tasks*), or a TOML file.
    tasks
        Further ones.
    out
        The folder; probekit-run/MODEL-TASK without it.
    dry_run
        Print the commands that this stands for; do nothing.
    """
    from probekit.cli.study import Teller, show_end
    from probekit.studies.first_look import page_of, plan_run, result_of
    from probekit.studies.pools import here_pool
    from probekit.studies.run import run_study

    planned = plan_run(model, (task, *tasks), out, options)
    if dry_run:
        for step in planned.steps:
            say(step.recipe(planned.folder))
        return 0
    with Teller(len(planned.steps)) as teller:
        done = run_study(planned, here_pool(), begin=teller.begin, tell=teller.tell)
    show_end(done)
    if any(one.state in ("done", "reused") and one.step.function == "probe" for one in done.outcomes):
        say("")
        for sentence in result_of(done).verdict:
            say(sentence)
    if page := page_of(done):
        say(f"\n{page}")
    return 1 if done.failed else 0
