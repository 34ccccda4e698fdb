"""Tables in a paper's form: rows in, Markdown, LaTeX or CSV out."""

from probekit.tables.cells import published
from probekit.tables.options import TABLES, TableOptions
from probekit.tables.table import Table, table

__all__ = ["TABLES", "Table", "TableOptions", "published", "table"]
