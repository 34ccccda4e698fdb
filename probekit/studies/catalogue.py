"""The studies and suites that come with probekit."""

from __future__ import annotations

from importlib.resources import files


def shipped_studies() -> dict[str, str]:
    """The TOML texts of the studies by name ("table6-small" …)."""
    return _shipped("probekit.studies")


def shipped_suites() -> dict[str, str]:
    """The TOML texts of the suites by name ("syntax" …)."""
    return _shipped("probekit.studies.suites")


def _shipped(package: str) -> dict[str, str]:
    folder = files(package) / "shipped"
    found = {f.name.removesuffix(".toml"): f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".toml")}
    return dict(sorted(found.items()))
