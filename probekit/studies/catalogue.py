"""The studies that come with probekit."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["shipped_studies"]


def shipped_studies() -> dict[str, str]:
    """The TOML texts of the studies by name ("table6-small" …)."""
    folder = files("probekit.studies") / "shipped"
    found = {f.name.removesuffix(".toml"): f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".toml")}
    return dict(sorted(found.items()))
