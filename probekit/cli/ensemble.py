"""``probekit ensemble`` and ``probekit average``: several runs as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from probekit.adaptation.options import AverageOptions
from probekit.analyses.options import EnsembleOptions
from probekit.cli.show import saved, say

__all__ = ["average", "ensemble"]


def ensemble(
    run: Path,
    /,
    *runs: Path,
    options: Annotated[EnsembleOptions, Parameter(name="*")] = EnsembleOptions(),
    out: Path | None = None,
) -> None:
    """Average the predictions of several runs: probabilities of classes, or predicted numbers.

    It reads the predictions that the runs have stored. The ensemble is compared with the mean of its runs on the same
    examples; the interval covers the choice of examples, not that of the runs.

    Examples:

        probekit ensemble runs/rte-a runs/rte-b runs/rte-c

        probekit train --task rte --model MODEL --seeds 5 --out runs/rte

        probekit ensemble runs/rte --out ensemble.parquet

    Parameters
    ----------
    run
        A finished run, or a folder of several seeds.
    runs
        Further runs on the same task.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) and the predictions next to them.
    """
    import probekit

    result = probekit.ensemble(run, *runs, options=options, out=out)
    rows = result.rows
    say(f"runs: {', '.join(dict.fromkeys(rows.loc[rows['estimator'] == 'member', 'checkpoint']))}")
    pairs = rows.loc[rows["estimator"] == "ensemble", ["task", "metric"]].drop_duplicates()
    for task, name in pairs.itertuples(index=False):
        own = rows[rows["task"] == task]
        one = own[(own["metric"] == name) & (own["estimator"] == "ensemble")].iloc[0]
        gain = own[own["metric"] == f"difference({name})"].iloc[0]
        members = own[(own["metric"] == name) & (own["estimator"] == "member")]["value"]
        say(
            f"{one['task']} {one['split']} {name}: ensemble of {one['members']} runs {one['value']:.4f} "
            f"[{one['ci_low']:.4f}, {one['ci_high']:.4f}]; a single run {members.mean():.4f} ({members.min():.4f} to "
            f"{members.max():.4f}); difference {gain['value']:+.4f} [{gain['ci_low']:+.4f}, {gain['ci_high']:+.4f}]"
        )
    saved(result)


def average(
    run: Path,
    /,
    *runs: Path,
    out: Path,
    options: Annotated[AverageOptions, Parameter(name="*")] = AverageOptions(),
) -> None:
    """Average the weights of fine-tuned runs or checkpoints into one run, and evaluate it on dev.

    Runs of several seeds or settings give a model soup (Wortsman et al. 2022), checkpoints of one run stochastic weight
    averaging (Izmailov et al. 2018). --out becomes a run that every command reads as a model.

    Examples:

        probekit average runs/rte/step-200 runs/rte/step-300 runs/rte/step-400 --out runs/rte-swa

        probekit average runs/rte-seeds --greedy --out runs/rte-soup

    Parameters
    ----------
    run
        A fine-tuned run, one of its checkpoints, or a folder of several seeds.
    runs
        Further ones, of the same model, task and head.
    out
        Folder of the new run.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        made = probekit.average(run, *runs, out=out, options=options, progress=progress)
    say(made.path)
    rows, card = made.rows, made.card
    say(
        f"mean of the weights of {len(card['kept'])} of {len(card['identity']['averaged'])} runs: "
        f"{', '.join(card['kept'])}"
    )
    for row in rows[rows["kept"].astype(bool) & rows["ci_low"].notna()].to_dict("records"):
        same = (rows["metric"] == row["metric"]) & (rows["task"] == row["task"]) & (rows["split"] == row["split"])
        own = rows[same & (rows["estimator"] == "member")]["value"].astype(float)
        of_runs = f"; its runs {own.min():.4f} to {own.max():.4f}" if len(own) else ""
        task = f"{row['task']} " if card.get("also") else ""
        ends = f"[{row['ci_low']:.4f}, {row['ci_high']:.4f}]"
        say(f"{task}{row['split']} {row['metric']}: {row['value']:.4f} {ends}{of_runs}")
