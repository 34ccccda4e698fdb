"""The studies and suites that come with probekit."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

Kind = Literal["study", "suite"]
FOLDERS = {"study": "studies", "suite": "suites"}
"""Where each kind writes, if nothing else is said."""


def shipped(kind: Kind) -> dict[str, str]:
    """The TOML texts of the studies ("table6-small" …) or suites ("syntax" …), by name."""
    folder = files("probekit.studies") / "shipped"
    folder = folder / "suites" if kind == "suite" else folder
    found = {f.name.removesuffix(".toml"): f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".toml")}
    return dict(sorted(found.items()))
