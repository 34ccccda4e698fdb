"""``probekit table``: rows to tables in a paper's form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["table_command"]


def table_command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="regimes or domains.")],
    rows: Annotated[
        list[str], typer.Argument(metavar="ROWS…", help="Rows (.parquet, .csv), or quoted patterns of them.")
    ],
    published: Annotated[
        str | None, typer.Option("--published", help="Numbers to stand beside: peters-2019/2 or peters-2019/6.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the table: .md.")] = None,
    rows_out: Annotated[
        Path | None, typer.Option("--rows", help="Write the rows that it shows: .parquet or .csv.")
    ] = None,
) -> None:
    """Show rows as a table in a paper's form (Markdown), with published numbers beside.

    regimes: feature extraction and fine-tuning by task, and their difference, with the paired intervals of probekit
    guidelines where its rows are given, too.

    domains: the same by domain of a task, the divergence of each domain from corpora, whether they go together
    (Pearson, Spearman, Kendall, with permutation p-values and intervals), and what transfers from domain to domain.

    Examples:

        probekit table regimes 'runs/*/rows.parquet' guidelines.parquet --published peters-2019/2

        probekit table domains 'runs/mnli-*/rows.parquet' domains.parquet transfer.parquet --out table6.md
    """
    from probekit.cli.patterns import expand
    from probekit.errors import UsageError
    from probekit.files import write
    from probekit.rows import check_out, evidence, read_rows, write_rows
    from probekit.tables.paper import TABLES

    if kind not in TABLES:
        raise UsageError(f"there is no table {kind!r}; there are {', '.join(TABLES)}.")
    check_out(rows_out)
    if out is not None and out.suffix != ".md":
        raise UsageError(f"a table is written as .md, not {out.name!r}.")
    paths = [path for word in rows for path in expand(word)]
    text, found = TABLES[kind](read_rows(*paths), published)
    typer.echo(text)
    if out is not None:
        typer.echo(write(out, text))
    if rows_out is not None:
        card = evidence(arguments={"kind": kind, "rows": paths, "published": published})
        typer.echo(write_rows(found, rows_out, card))
