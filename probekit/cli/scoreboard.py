"""``probekit scoreboard``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import ScoreboardOptions
from probekit.cli.show import saved, say
from probekit.cli.terminal import show_table, tables_as
from probekit.grid import Format

if TYPE_CHECKING:
    from probekit.rows import Result

__all__ = ["scoreboard", "show_board"]


def scoreboard(
    first: str,
    /,
    *rows: str,
    groups: tuple[str, ...] = (),
    against: str | None = None,
    options: Annotated[ScoreboardOptions, Parameter(name="*")] = ScoreboardOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Put tasks on one scale between control and ceiling, choose a layer of each model, and rank the models.

    A score of 1 is the best possible value of the metric, 0 is the control. The control of probe and edges is the mean
    of probes of shuffled labels, or the majority class if that is better; of trees (structural) the linear chain, in
    which each word hangs on the one before, or shuffled trees if these are better; of minimal pairs (pairs) a guess,
    .5. Each model has one layer on each task: that with the lowest loss on held-out parts of train, so that dev says
    without bias how good it is. Minimal pairs have the model's own head; rows without such a loss, such as pairs of
    caches, the best layer on dev (†). Models are ranked by the test of probekit compare; a task counts once.

    Examples:

        probekit scoreboard cola.parquet ud.parquet --groups ud:en_ewt=syntax --out board.parquet

        probekit scoreboard 'rows/*.parquet' --against leaderboard.csv

        probekit plot scoreboard board.parquet

    Parameters
    ----------
    first
        Rows that probekit probe, edges, structural or pairs wrote (.parquet).
    rows
        Further rows, of other tasks or models; patterns such as 'rows/*.parquet' are possible.
    groups
        The group of a task, TASK=GROUP, which gets a mean of its own; may be repeated.
    against
        A published leaderboard to correlate ranks with (three or more models): a CSV file with the columns model and
        score, and if you like task.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit
    from probekit.cli.patterns import expand

    paths = [path for pattern in (first, *rows) for path in expand(pattern)]
    result = probekit.scoreboard(*paths, groups=groups, against=against, options=options, out=out)
    with tables_as(format_):
        show_board(result)
        saved(result)


def show_board(result: Result) -> None:
    """Print the tables of a scoreboard, and what came out."""
    from probekit.grid import Grid
    from probekit.tables.scoreboard import board_table

    for part in board_table(result.rows):
        if isinstance(part, Grid):
            show_table(part)
        else:
            say(part)
