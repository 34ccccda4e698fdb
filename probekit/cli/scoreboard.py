"""``probekit scoreboard``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import ScoreboardOptions
from probekit.cli.show import saved, say
from probekit.cli.terminal import show_table, tables_as
from probekit.tables.grid import Format

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

    0 is the control (shuffled labels, or the majority class if that is better), 1 the best possible value. The layer
    is the one with the lowest loss on held-out parts of train, so that dev says without bias how good it is.

    Examples:

        probekit scoreboard cola.parquet ud.parquet --groups ud:en_ewt=syntax --out board.parquet

        probekit scoreboard 'rows/*.parquet' --against leaderboard.csv

        probekit plot scoreboard board.parquet

    Parameters
    ----------
    first
        Rows that probekit probe, edges, structural or pairs wrote.
    rows
        Further rows.
    groups
        The group of a task, TASK=GROUP; may be repeated.
    against
        A published leaderboard to correlate ranks with: a CSV file with the columns model and score, optionally task.
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
    from probekit.tables.grid import Grid
    from probekit.tables.scoreboard import board_table

    for part in board_table(result.rows):
        if isinstance(part, Grid):
            show_table(part)
        else:
            say(part)
