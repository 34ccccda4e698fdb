"""Tables in a paper's form: rows in, Markdown, LaTeX or CSV out."""

from probekit.tables.options import TableOptions
from probekit.tables.papers import published
from probekit.tables.table import TABLES, Table, table

__all__ = ["TABLES", "Table", "TableOptions", "published", "table"]
