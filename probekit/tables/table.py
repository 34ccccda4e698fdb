"""Tables in a paper's form, by kind."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from probekit.constraint import File, Out, Written
from probekit.errors import UsageError, did_you_mean
from probekit.files import MARK, FileKind, digest_of_content, is_sealed, write
from probekit.grid import SUFFIXES, WRITERS, Format, Grid, markdown
from probekit.plugins import load
from probekit.public import public
from probekit.recipe import Read, Recipe, current
from probekit.rows import as_rows, write_rows
from probekit.rows.card import make_card
from probekit.rows.selection import select
from probekit.tables.options import TABLES, Kind, TableKind, TableOptions

if TYPE_CHECKING:
    import pandas as pd

TABLE_FILE = FileKind("a table as probekit wrote it", is_sealed)
REMARKS = {Format.MARKDOWN: f"<!-- {MARK} -->", Format.LATEX: f"% {MARK}", Format.CSV: f"# {MARK}"}
"""The last line of a file, which says that probekit wrote it."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table in a paper's form.

    Attributes
    ----------
    parts : sequence of Grid or str
        Tables of text cells, and the paragraphs that belong to them.
    rows : DataFrame
        The rows that it shows, one number each.
    """

    parts: Sequence[Grid | str]
    rows: pd.DataFrame

    @property
    def text(self) -> str:
        """The table in Markdown."""
        return self.to_markdown()

    def __str__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text

    def to_markdown(self) -> str:
        """The table and its notes in Markdown."""
        grids = (
            p
            if isinstance(p, str)
            else f"**{p.title}**\n\n" * bool(p.title) + markdown([c.name for c in p.columns], p.rows)
            for p in self.parts
        )
        return "\n".join(grids)

    def to_latex(self) -> str:
        """The table as LaTeX for the package booktabs; its notes are comments."""
        return self._rendered(Format.LATEX, "% ")

    def to_csv(self) -> str:
        """The cells as CSV, several tables one after another; notes are lines that begin with #."""
        return self._rendered(Format.CSV, "# ")

    def _rendered(self, form: Format, comment: str) -> str:
        writer = WRITERS[form]
        return "\n".join(textwrap.indent(p, comment) if isinstance(p, str) else writer(p) for p in self.parts)

    def rendered(self, form: Format) -> str:
        """The table in a format; as text it is Markdown, which reads as such."""
        writers = {Format.LATEX: self.to_latex, Format.CSV: self.to_csv}
        return writers.get(form, self.to_markdown)()


@public(options=TableOptions)
def table(
    kind: Kind,
    /,
    *rows: Any,
    out: Out | None = None,
    rows_out: Annotated[File, Written(rows=True)] | None = None,
    options: TableOptions,
) -> Table:
    """Show rows as a table in the layout of a paper, next to published numbers.

    Parameters
    ----------
    kind : str
        "regimes": feature extraction and fine-tuning by task, and their difference (with paired intervals if ``rows``
        includes those of :func:`probekit.guidelines`). "domains": the same by domain of a task, the divergence of each
        domain from corpora, their correlation, and transfer from domain to domain. "glue": the GLUE tasks of each
        encoder and their mean. "task-correlations": correlations between the tasks over these encoders.
        "score-correlations": rank correlations between these results and scores of the encoders, such as those of
        probes, LogME, mutual information or similarity. "mixtures": results of mixtures in pretraining, by sampling and
        loss scaling. "diagnostic": results on a diagnostic set by category. "expected": the expected dev metric of the
        best of n trials of a search. "adaptation": metric, difference from the reference and cost of each setting.
        "scoreboard": tasks by model, with the chosen layer, means by group, and ranks.
    *rows : DataFrame, Result or path
        Rows of trainings, evaluations, guidelines and domains; or only the rows that ``rows_out`` saved.
    out : path, optional
        File for the table: .md, .tex (booktabs) or .csv.
    rows_out : path, optional
        File for the rows that the table shows: .parquet or .csv, with an evidence card.
    options : TableOptions
        ``published``: "peters-2019/2" to "peters-2019/6", or "bowman-2018/1" to "bowman-2018/6". ``models``,
        ``variants``: only the rows of these models, and of these variants of training runs.

    Returns
    -------
    Table
        ``print`` shows it as Markdown; ``to_markdown()``, ``to_latex()`` and ``to_csv()`` return its source, ``rows``
        its numbers.

    Raises
    ------
    UsageError
        For an unknown kind, another suffix, and rows that this kind cannot show.

    Examples
    --------
    >>> table = probekit.table("regimes", "runs/a/rows.parquet", "runs/b/rows.parquet")  # doctest: +SKIP
    >>> print(table.to_latex())  # doctest: +SKIP
    """
    if kind not in TABLES:
        layers = " For layers, give --format to probe, compare or summary." if kind == "layers" else ""
        raise UsageError(f"there is no table {kind!r}; {did_you_mean(kind, TABLES)}{layers}")
    chosen = TABLES[kind]
    if options.published is not None and not options.published.startswith(chosen.beside):
        expected = " or ".join(f"{one}N" if one.endswith("/") else one for one in chosen.beside)
        raise UsageError(
            f"the table {kind} does not show {options.published}; its published numbers are {expected or 'none'}."
        )
    if not rows:
        raise UsageError("no rows were given; name at least one file of rows.")
    if out is not None and Path(out).suffix not in SUFFIXES:
        raise UsageError(f"a table is written as {', '.join(SUFFIXES)}, not {Path(out).name!r}.")
    if out is not None:
        TABLE_FILE.check(Path(out))
    began = monotonic()
    found = select(as_rows(list(rows)), options.models, options.variants)
    if not _is_of_table(chosen, found):
        found = load(chosen.study)(found)
    made = Table(load(chosen.draw)(found, options.published), found)
    if out is not None:
        form = SUFFIXES[Path(out).suffix]
        write(Path(out), f"{made.rendered(form).rstrip()}\n\n{REMARKS[form]}\n", TABLE_FILE)
    if rows_out is not None:
        recipe = current() or Recipe.of("table", {"kind": kind, "rows": rows, **asdict(options)})
        write_rows(found, rows_out, make_card(recipe, _reads(rows), {"table": monotonic() - began}))
    return made


def _is_of_table(kind: TableKind, rows: pd.DataFrame) -> bool:
    """Whether the rows are those that a table of this kind shows, which ``rows_out`` writes."""
    plain = "train" not in kind.shown or ("seeds" in rows and rows["seeds"].notna().all())
    return bool(len(rows) and rows["analysis"].isin(kind.shown).all() and plain)


def _reads(rows: tuple[Any, ...]) -> list[Read]:
    """The files that were read."""
    paths = [given if isinstance(given, str | Path) else getattr(given, "path", None) for given in rows]
    return [Read(str(path), "rows", digest_of_content(Path(path))) for path in paths if path is not None]
