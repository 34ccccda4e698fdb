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
    """Analyse each layer of a model on your tasks: cache, probe with controls, measure information, plot, report.

    The command caches train and dev with the model and with the same architecture at random weights, probes each layer
    on gold and shuffled labels, estimates its mutual information with the labels, and states the findings in words. All
    files are in one folder; open report.html first. Finished steps are reused: run the same command again to resume
    after an interruption. Exit status 1 if a step fails.

    Examples:

        probekit run bert-base-uncased rte --quick

        probekit run sentence-transformers/all-MiniLM-L6-v2 rte cola --data-dir glue

        probekit run ./bert-of-mine mytask.toml --out bert-of-mine --limit 2000

        probekit run gpt2 cola --pooling last,mean --dry-run

        probekit run mistralai/Mistral-7B-v0.1 rte --dtype bf16 --layers 0,8-24 --pooling last --batch-tokens 4096

    Parameters
    ----------
    model
        A Hub id, a local folder with config.json and safetensors, or minilm for the model that the extra demo installs.
    task
        Name of a task (see *probekit tasks*), or a TOML file.
    tasks
        Further tasks.
    out
        Folder for all files; by default probekit-run/MODEL-TASK.
    dry_run
        Print the commands without running them.
    """
    from probekit.cli.steps import StepPrinter, show_end
    from probekit.studies.first_look import page_of, plan_run, result_of
    from probekit.studies.pools import here_pool
    from probekit.studies.run import run_study

    planned = plan_run(model, (task, *tasks), out, options)
    if dry_run:
        for step in planned.steps:
            say(step.recipe(planned.folder))
        return 0
    with StepPrinter(planned) as printer:
        done = run_study(planned, here_pool(), begin=printer.begin, tell=printer.end)
    show_end(done)
    if any(outcome.state in ("done", "reused") and outcome.step.function == "probe" for outcome in done.outcomes):
        say("")
        for sentence in result_of(done).verdict:
            say(sentence)
    if page := page_of(done):
        say(f"\n{page}")
    return 1 if done.failed else 0
