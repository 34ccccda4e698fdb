"""Tables by kind: what stands behind ``probekit table``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from probekit.errors import UsageError, did_you_mean
from probekit.files import MARK, FileKind, digest_of_content, is_sealed, write
from probekit.public import public
from probekit.recipe import Read, Recipe, current
from probekit.rows import as_rows, write_rows
from probekit.rows.card import make_card
from probekit.tables.domains import domain_table
from probekit.tables.options import Kind, TableOptions
from probekit.tables.regimes import regime_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TABLES", "Table", "table"]

STUDIES = {
    "regimes": "probekit.analyses.regimes:regime_study",
    "domains": "probekit.analyses.transfer:domain_study",
}
"""What works out the rows that each kind shows. This room only renders: names are looked up on use, as by Result."""
TABLES: dict[str, Callable[[pd.DataFrame, str | None], str]] = {"regimes": regime_table, "domains": domain_table}
"""What renders them."""
TABLE_FILE = FileKind("a table as probekit wrote it", is_sealed)


@dataclass(frozen=True, eq=False)
class Table:
    """A table in a paper's form: ``text`` in Markdown, and the ``rows`` that it shows."""

    text: str
    rows: pd.DataFrame

    def __str__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text


@public(options=TableOptions)
def table(
    kind: Kind, /, *rows: Any, out: str | Path | None = None, rows_out: str | Path | None = None, options: TableOptions
) -> Table:
    """Show rows as a table in a paper's form, with published numbers beside.

    Parameters
    ----------
    kind : str
        "regimes": feature extraction and fine-tuning by task, and their difference, with the paired intervals of
        :func:`probekit.guidelines` where its rows are given, too. "domains": the same by domain of a task, the
        divergence of each domain from corpora, whether they go together, and what transfers from domain to domain.
    *rows : DataFrame, Result or path
        Of trainings and evaluations, of guidelines, of domains.
    out : path, optional
        Where the table is written: .md.
    rows_out : path, optional
        Where the rows that it shows are written: .parquet or .csv, with an evidence card.
    options : TableOptions
        ``published``: "peters-2019/2" to "peters-2019/6".

    Returns
    -------
    Table
        Its text, and its rows.

    Raises
    ------
    UsageError
        For an unknown kind, another suffix, and where the rows hold nothing of it.

    Examples
    --------
    >>> probekit.table("regimes", "runs/a/rows.parquet", "runs/b/rows.parquet")  # doctest: +SKIP
    """
    if kind not in TABLES:
        raise UsageError(f"there is no table {kind!r}; {did_you_mean(kind, TABLES)}")
    if not rows:
        raise UsageError("no rows were given to make a table of.")
    if out is not None and Path(out).suffix != ".md":
        raise UsageError(f"a table is written as .md, not {Path(out).name!r}.")
    if out is not None:
        TABLE_FILE.check(Path(out))
    began = monotonic()
    module, _, name = STUDIES[kind].partition(":")
    found = getattr(import_module(module), name)(as_rows(list(rows)))
    made = Table(TABLES[kind](found, options.published), found)
    if out is not None:
        write(Path(out), f"{made.text.rstrip()}\n\n<!-- {MARK} -->\n", TABLE_FILE)
    if rows_out is not None:
        recipe = current() or Recipe.of("table", {"kind": kind, "rows": rows, "published": options.published})
        write_rows(found, rows_out, make_card(recipe, _reads(rows), {"table": monotonic() - began}))
    return made


def _reads(rows: tuple[Any, ...]) -> list[Read]:
    """The files that were read."""
    paths = [given if isinstance(given, str | Path) else getattr(given, "path", None) for given in rows]
    return [Read(str(path), "rows", digest_of_content(Path(path))) for path in paths if path is not None]
