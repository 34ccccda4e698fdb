"""Rows (one measured number each), their file and evidence card, and the result that holds them.

::

    result = probekit.read("cola.parquet")
    result.rows[result.rows["metric"] == "matthews"]
"""

from probekit.rows.card import card_path, find_card, read_card
from probekit.rows.files import as_rows, check_out, read_rows, write_rows
from probekit.rows.result import Result, joined, read
from probekit.rows.schema import COLUMNS, called, fit_labels, layer_labels, layer_order, make_fits, make_rows

__all__ = [
    "COLUMNS",
    "Result",
    "as_rows",
    "called",
    "card_path",
    "check_out",
    "find_card",
    "fit_labels",
    "joined",
    "layer_labels",
    "layer_order",
    "make_fits",
    "make_rows",
    "read",
    "read_card",
    "read_rows",
    "write_rows",
]
