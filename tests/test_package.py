"""The wheel holds the whole package: code, templates, studies, search spaces, published tables."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

import probekit

ROOT = Path(probekit.__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> ZipFile:
    builders = pytest.importorskip("hatchling.builders.wheel", reason="hatchling builds the wheel")
    [path] = builders.WheelBuilder(str(ROOT)).build(
        directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"]
    )
    return ZipFile(path)


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    files = {p.relative_to(ROOT).as_posix(): p for p in (ROOT / "probekit").rglob("*") if p.is_file()}
    files = {name: p for name, p in files.items() if "__pycache__" not in name}
    assert {Path(name).suffix for name in files} >= {".py", ".toml", ".csv", ".html", ".css", ".js", ".typed"}
    packed = {name for name in wheel.namelist() if name.startswith("probekit/")}
    assert packed == set(files)
    assert [name for name, p in files.items() if wheel.read(name) != p.read_bytes()] == []


def test_nothing_else_is_in_the_wheel(wheel):
    others = {name.split("/")[0] for name in wheel.namelist()} - {"probekit"}
    assert len(others) == 1
    assert others.pop().endswith(".dist-info")
