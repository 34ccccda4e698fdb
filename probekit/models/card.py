"""The name and the format of the card that training writes to each model folder."""

from __future__ import annotations

CARD, RUN_FORMAT = "probekit.json", "probekit-run/1"
"""The file that training writes to each model folder, and its format."""
