"""``probekit domains``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from probekit.cli.show import saved, say
from probekit.cli.terminal import tables_as
from probekit.domains.options import CountOptions, DivergenceOptions
from probekit.tables.grid import Format

__all__ = ["domains"]


def domains(
    *sources: str,
    task: str | None = None,
    data_dir: Path | None = None,
    split: tuple[str, ...] | None = None,
    texts: Annotated[CountOptions, Parameter(name="*")] = CountOptions(),
    options: Annotated[DivergenceOptions, Parameter(name="*")] = DivergenceOptions(),
    counts: Path | None = None,
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Measure how far the texts of domains are from each other, how sure that is, and which terms make it.

    The Jensen-Shannon divergence of term distributions, in bits: 0 for equal, 1 for nothing in common. Two samples of
    one population are not at 0; how much sampling alone gives is shown beside (null), and is taken off the values of
    the Jensen-Shannon family, as far as both have terms in common. Intervals draw documents again. Terms outside the
    vocabulary are left out, and their share is told.

    Examples:

        probekit domains fiction=novels/ wiki=wiki.txt.gz --out domains.parquet

        probekit domains --task mnli --data-dir data/mnli wiki=wiki.txt --explain fiction,wiki

        probekit domains news=news.jsonl --field body --document line --counts news.parquet

        probekit domains news.parquet more-news.parquet wiki.parquet --measure js-distance,kl

        probekit plot domains domains.parquet --out domains.pdf

    Parameters
    ----------
    sources
        NAME=PATH …: a file, a folder with all below it, or a pattern: text, .jsonl, .gz of either. NAME=hub:REPO@SPLIT
        or NAME=hub:REPO:CONFIG@SPLIT is a data set of the hub; COUNTS.parquet what --counts wrote.
    task
        Each domain of a task: the genres of mnli.
    data_dir
        Folder of the task's files.
    split
        Of the task, with commas; all without it.
    counts
        Write the counts of all terms (.parquet), to be read again, alone or with others.
    format_
        How tables are printed: text, markdown, latex or csv. Other than text, all else goes to standard error.
    out
        Write the rows: .parquet or .csv, an evidence card (.json) beside it.
    """
    import probekit
    from probekit.cli.domain_tables import show_domains, show_pairs, show_terms
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.domains(
            *sources, task=task, data_dir=data_dir, split=split, counts=counts, texts=texts, options=options, out=out,
            progress=progress,
        )  # fmt: skip
    if counts is not None:
        say(counts)
    rows = result.rows
    pairs = rows[rows["metric"].isin(options.measure)]
    with tables_as(format_):
        show_domains(rows)
        for name in dict.fromkeys(pairs["metric"]):
            show_pairs(pairs[pairs["metric"] == name])
        for a, b in options.pairs:
            of_pair = (rows["domain_a"] == a) & (rows["domain_b"] == b)
            show_terms(rows[(rows["metric"] == "js-contribution") & of_pair])
        saved(result)
