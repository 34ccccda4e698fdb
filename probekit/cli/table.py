"""``probekit table``: rows to tables in a paper's form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from probekit.cli.show import say
from probekit.tables.options import TableOptions

__all__ = ["table"]


def table(
    kind: str,
    first: str,
    /,
    *rows: str,
    options: Annotated[TableOptions, Parameter(name="*")] = TableOptions(),
    out: Path | None = None,
    rows_out: Annotated[Path | None, Parameter(name=["--rows-out", "--rows"])] = None,
) -> None:
    """Show rows as a table in a paper's form (Markdown), with published numbers beside.

    regimes: feature extraction and fine-tuning by task, and their difference, with the paired intervals of probekit
    guidelines where its rows are given, too.

    domains: the same by domain of a task, the divergence of each domain from corpora, whether they go together
    (Pearson, Spearman, Kendall, with permutation p-values and intervals), and what transfers from domain to domain.

    Examples:

        probekit table regimes 'runs/*/rows.parquet' guidelines.parquet --published peters-2019/2

        probekit table domains 'runs/mnli-*/rows.parquet' domains.parquet transfer.parquet --out table6.md

    Parameters
    ----------
    kind
        regimes or domains.
    first
        Rows (.parquet, .csv), or a quoted pattern of them.
    rows
        Further ones.
    out
        Write the table: .md.
    rows_out
        Write the rows that it shows: .parquet or .csv, an evidence card beside.
    """
    import probekit
    from probekit.cli.patterns import expand

    paths = [path for word in (first, *rows) for path in expand(word)]
    made = probekit.table(kind, *paths, out=out, rows_out=rows_out, options=options)
    say(made.text)
    for path in (out, rows_out):
        if path is not None:
            say(path)
