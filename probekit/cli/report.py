"""``probekit report``."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Annotated

from cyclopts import Parameter

from probekit.cli.show import say
from probekit.report.options import ReportOptions

__all__ = ["report"]


def report(
    first: str,
    /,
    *sources: str,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("report.html"),
    options: Annotated[ReportOptions, Parameter(name="*")] = ReportOptions(),
) -> None:
    """One HTML page of results: figures, tables, controls, warnings, and the commands that make each number again.

    The page needs nothing but a browser, no network either. A study's folder brings its own tables and figures, which
    come first, and what failed of it; what earlier runs left there is not shown. Several studies, or folders of rows,
    have a part of the page each; a folder of folders stands for all of them. The page holds a summary (best
    layers, where information peaks, training by regime, near and far domains), what is to be read with care, a section
    for each kind of rows, and the evidence card of each file. Tables sort by a click on a heading. It can be printed
    and read on a phone.

    Examples:

        probekit report cola.parquet sst2.parquet -o report.html

        probekit report probes.parquet mi.parquet runs/*/rows.parquet -o results.html --title "MiniLM, first results"

        probekit report studies/figure1-small -o figure1.html

        probekit report studies -o all.html --title "MiniLM and the paper"

        probekit report domains.parquet --figure map.svg --text findings.md -o domains.html

    Parameters
    ----------
    first
        Rows of any command (.parquet, .csv), or folders of studies, runs or rows.
    sources
        Further ones.
    out
        The page, .html.
    """
    from probekit.report import report as write_report

    began = monotonic()
    page = write_report(first, *sources, out=out, options=options)
    say(f"{page}  ({page.stat().st_size / 1024:,.0f} KiB, {monotonic() - began:.1f} s)")
