"""Report: rows in, one self-contained HTML page out.

The package takes calls like the function that it holds: ``probekit.report("cola.parquet", out="report.html")``.
"""

from probekit.functions import callable_package
from probekit.report.build import report
from probekit.report.options import ReportOptions

__all__ = ["ReportOptions", "report"]

callable_package(__name__)
