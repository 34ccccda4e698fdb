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
    """Collect results in one HTML page: figures, tables, controls, warnings, and the commands that reproduce them.

    The page opens in any browser, offline. It contains a summary (best layers, peak of the information, training by
    regime, near and far domains), warnings, a section for each kind of result, and the evidence card of each file.
    Click a heading to sort a table. The page can be printed, and reads well on a phone.

    For a study's folder, the study's own tables and figures come first, followed by its failed steps; files that
    earlier versions of the study left are not shown. Each study or folder of rows gets its own part of the page. A
    folder of folders stands for all of them.

    Examples:

        probekit report cola.parquet sst2.parquet -o report.html

        probekit report probes.parquet mi.parquet runs/*/rows.parquet -o results.html --title "MiniLM, first results"

        probekit report studies/figure1-small -o figure1.html

        probekit report studies -o all.html --title "MiniLM and the paper"

        probekit report domains.parquet --figure map.svg --text findings.md -o domains.html

    Parameters
    ----------
    first
        Rows of any command (.parquet, .csv), or a folder: a study, a run, or rows.
    sources
        Further rows or folders.
    out
        The page to write, .html.
    """
    from probekit.report import report as write_report

    began = monotonic()
    page = write_report(first, *sources, out=out, options=options)
    say(f"{page}  ({page.stat().st_size / 1024:,.0f} KiB, {monotonic() - began:.1f} s)")
