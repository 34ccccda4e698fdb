"""``probekit table``: rows to tables in a paper's form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from probekit.cli.made import show_tables
from probekit.cli.show import say, warn
from probekit.cli.terminal import show_paragraph, show_table, tables_as
from probekit.errors import UsageError
from probekit.grid import Format
from probekit.rows.examples import EXAMPLES
from probekit.rows.files import SUFFIXES
from probekit.tables.options import TableOptions


def table(
    kind: str,
    /,
    *rows: str,
    options: Annotated[TableOptions, Parameter(name="*")] = TableOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
    rows_out: Annotated[Path | None, Parameter(name=["--rows-out", "--rows"])] = None,
) -> None:
    """Show rows as a table in the layout of a paper, next to published numbers.

    Without a kind, the rows of analyses are shown as the commands that made them printed them.

    regimes: feature extraction and fine-tuning by task, and their difference, with the paired intervals of probekit
    guidelines where its rows are given, too.

    domains: the same by domain of a task, the divergence of each domain from corpora, their correlation (Pearson,
    Spearman, Kendall, with permutation p-values and intervals), and transfer from domain to domain.

    glue: the nine GLUE tasks of each encoder on dev and their mean, as Bowman et al. (2018) average them. With the rows
    of their pretraining, also the line Single-Task.

    task-correlations: Pearson correlations between these tasks over encoders, with permutation p-values and intervals.

    score-correlations: rank correlations of these results with scores of the same encoders, from probekit probe,
    transferability, mi and similarity: does a cheap score foretell the result?

    mixtures: results of mixtures of tasks in pretraining, by sampling and loss scaling.

    diagnostic: results on a diagnostic set by category, from probekit evaluate RUN --task ax-b --by-domain.

    expected: the expected dev metric of the best of n trials of a search (Dodge et al. 2019).

    adaptation: metric, difference from the reference and cost of each setting, from probekit guidelines.

    Examples:

        probekit table sst2.parquet --format latex

        probekit table regimes 'runs/*/rows.parquet' guidelines.parquet --published peters-2019/2

        probekit table domains 'runs/mnli-*/rows.parquet' domains.parquet transfer.parquet --out table6.md

        probekit table glue 'runs/*/rows.parquet' --published bowman-2018/1

        probekit table glue 'runs/*/rows.parquet' --models random --models MNLI --variants ''

        probekit table regimes table2.parquet --format latex > table2.tex

    Parameters
    ----------
    kind
        regimes, domains, glue, task-correlations, score-correlations, mixtures, diagnostic, expected or adaptation.
    rows
        Rows (.parquet, .csv), or quoted patterns that match several files; also the rows of a table (--rows-out).
    format_
        How the table is printed: text (fitted to the terminal), markdown, latex (booktabs) or csv.
    out
        Write the table: .md, .tex or .csv.
    rows_out
        Write the rows that it shows: .parquet or .csv, with an evidence card (.json) beside it.
    """
    import probekit
    from probekit.cli.patterns import expand

    if Path(kind).suffix in SUFFIXES:
        if out is not None or rows_out is not None:
            raise UsageError(
                f"--out and --rows-out write the table of a kind, such as regimes, which stands before {kind}."
            )
        paths = [path for word in (kind, *rows) for path in expand(word)]
        found = [path for path in paths if not str(path).endswith(EXAMPLES)]  # a pattern matches predictions, too
        if not found:
            raise UsageError(f"{kind} holds the predictions for each example; give the rows beside it.")
        with tables_as(format_):
            for path in found:
                show_tables(probekit.read(path))
        return
    paths = [path for word in rows for path in expand(word)]
    made = probekit.table(kind, *paths, out=out, rows_out=rows_out, options=options)
    if format_ is Format.TEXT:
        for part in made.parts:
            show_paragraph(part) if isinstance(part, str) else show_table(part)
    else:
        say(made.rendered(format_))
    for written in filter(None, (out, rows_out)):
        (say if format_ is Format.TEXT else warn)(written)
