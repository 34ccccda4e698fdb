"""``probekit domains``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from probekit.cli.show import saved, say
from probekit.cli.terminal import tables_as
from probekit.domains.options import CountOptions, DivergenceOptions
from probekit.grid import Format

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
    """Measure the divergence between domains of text, with intervals, and list the terms that contribute most.

    The default is the Jensen-Shannon divergence of the term distributions, in bits: 0 if they are equal, 1 if they have
    no terms in common. Two samples of one population do not reach 0: the column null shows how much sampling noise
    contributes, and the measures of the Jensen-Shannon family subtract it, as far as both domains share terms.
    Intervals resample documents. Terms outside the vocabulary are excluded, and their share is reported.

    Examples:

        probekit domains fiction=novels/ wiki=wiki.txt.gz --out domains.parquet

        probekit domains --task mnli --data-dir data/mnli wiki=wiki.txt --explain fiction,wiki

        probekit domains news=news.jsonl --field body --document line --counts news.parquet

        probekit domains news.parquet more-news.parquet wiki.parquet --measure js-distance,kl

        probekit plot domains domains.parquet --out domains.pdf

    Parameters
    ----------
    sources
        NAME=PATH …, where PATH is a file, a folder (with its subfolders) or a pattern of text or .jsonl files, also as
        .gz; NAME=hub:REPO@SPLIT or NAME=hub:REPO:CONFIG@SPLIT for a data set on the Hub; COUNTS.parquet for counts
        that --counts wrote.
    task
        Compare the domains of a task, for example the genres of mnli.
    data_dir
        Folder with the task's files.
    split
        Splits of the task, separated by commas; all by default.
    counts
        Also write the counts of all terms (.parquet), which can be given as a source later.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    from probekit.analyses.domains import domains as measured
    from probekit.cli.domain_tables import show_domains, show_pairs, show_terms
    from probekit.cli.progress import bar

    with bar() as progress:
        result = measured(
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
