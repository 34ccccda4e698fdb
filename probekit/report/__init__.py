"""Report: rows in, one self-contained HTML page out."""

from probekit.report.build import build_report

__all__ = ["build_report"]
