"""Domains: how far apart their texts are, and which terms contribute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from probekit.analysis import Analysis, Corrected
from probekit.constraint import WRITTEN
from probekit.domains.options import CountOptions, DivergenceOptions
from probekit.public import public
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    from probekit.rows import Result


@public(texts=CountOptions, options=DivergenceOptions)
def domains(
    *sources: str,
    task: str | None = None,
    data_dir: str | Path | None = None,
    split: tuple[str, ...] | None = None,
    counts: Annotated[Path | None, WRITTEN] = None,
    texts: CountOptions,
    options: DivergenceOptions,
    progress: Progress = no_progress,
) -> Result:
    """Measure the divergence between domains of text, with intervals, and list the terms that contribute most.

    The default is the Jensen-Shannon divergence of the term distributions, in bits: 0 if they are equal, 1 if they have
    no terms in common. Two samples of one population do not reach 0: the column null shows how much sampling noise
    contributes, and the measures of the Jensen-Shannon family subtract it, as far as both domains share terms.
    Intervals resample documents. Terms outside the vocabulary are excluded, and their share is reported.

    Parameters
    ----------
    *sources : str
        NAME=PATH …, where PATH is a file, a folder (with its subfolders) or a pattern of text or .jsonl files, also as
        .gz; NAME=hub:REPO@SPLIT or NAME=hub:REPO:CONFIG@SPLIT for a data set on the Hub; COUNTS.parquet for counts
        that ``counts`` wrote.
    task : str, optional
        Compare the domains of a task, for example the genres of mnli.
    data_dir : path, optional
        Folder with the task's files.
    split : tuple of str, optional
        Splits of the task, separated by commas; all by default.
    counts : path, optional
        Also write the counts of all terms (.parquet), which can be given as a source later.
    texts : CountOptions
        ``tokenizer``, ``cased``, ``document``, ``field`` and ``blocks``; each may be given as a keyword.
    options : DivergenceOptions
        ``measure``, ``vocabulary``, ``resamples``, ``draws``, ``seed``, ``explain``, ``sizes`` …; likewise.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        A row for each measure and pair of domains, and for the two halves of each domain; see
        :func:`probekit.domains.rows.domain_rows`. Rows of ``explain`` and ``sizes`` follow.

    Raises
    ------
    UsageError
        If two domains have the same name, a text is given twice, or an option contradicts a file of counts.
    DataError
        If a text cannot be read, or a domain is empty or has only one document.

    References
    ----------
    Lin (1991), "Divergence measures based on the Shannon entropy", equation 4.1; Ruder & Plank (2017), "Learning to
    select data for transfer learning with Bayesian Optimization", section 3.2; Peters, Ruder & Smith (2019), Table 6.

    Examples
    --------
    >>> result = probekit.domains("fiction=novels/", "wiki=wiki.txt.gz", explain="fiction,wiki")  # doctest: +SKIP
    >>> result.plot()  # doctest: +SKIP

    On the command line::

        probekit domains fiction=novels/ wiki=wiki.txt.gz --out domains.parquet
        probekit domains --task mnli --data-dir data/mnli wiki=wiki.txt --explain fiction,wiki
        probekit domains news=news.jsonl --field body --document line --counts news.parquet
        probekit domains news.parquet more-news.parquet wiki.parquet --measure js-distance,kl
        probekit plot domains domains.parquet --out domains.pdf
    """
    from probekit.analyses.domains.measure import measure

    return measure(sources, (task, data_dir, split), counts, texts, options, progress)


ANALYSIS = Analysis(
    name="domains",
    help="Measure the divergence between domains of text.",
    title="Domains",
    corrected=Corrected.CURVE,
    judge="probekit.analyses.domains.sentences:sentences",
    view="probekit.analyses.domains.tables:tables",
    place=90,
)
