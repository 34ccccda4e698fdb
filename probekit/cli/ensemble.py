"""``probekit ensemble``: several runs as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from probekit.analyses.options import EnsembleOptions
from probekit.cli.show import saved, say

__all__ = ["ensemble"]


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
