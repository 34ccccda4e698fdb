"""A cache that is killed at any moment and made again equals one that was left alone, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from probekit.activations.hdf5 import BEGUN_FILE
from probekit.errors import UsageError

HERE = Path(__file__).parent


def killing(model: Path, folder: Path, *arguments: str) -> dict[str, int]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / "killing.py"), str(model), str(folder), *arguments],
        capture_output=True, text=True, timeout=900, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_system_calls(tiny_bert: Path, tmp_path: Path, stride: int) -> None:
    report = killing(tiny_bert, tmp_path, "every", str(stride))
    assert report["blocks"] >= 4
    assert report["kills"] >= 15
    assert report["finished"] == report["trials"]
    assert report["wrong"] == report["taken for whole"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kills", [8, 30])
def test_killed_at_random_moments(tiny_bert: Path, tmp_path: Path, kills: int) -> None:
    report = killing(tiny_bert, tmp_path, "random", str(kills))
    assert report["kills"] >= kills
    assert report["finished"] == report["trials"]
    assert report["wrong"] == report["taken for whole"] == 0


def test_what_a_kill_left_before_the_file_said_its_name_is_begun_again(tmp_path: Path) -> None:
    new = tmp_path / "a.h5.partial.new"
    with h5py.File(new, "w", libver="earliest"):
        pass
    whole = new.read_bytes()
    for torn in (whole[:96], whole):
        new.write_bytes(torn)
        BEGUN_FILE.check(new)
    for foreign in (b"notes", b"\x89HDF"):
        new.write_bytes(foreign)
        with pytest.raises(UsageError, match="exists and is not the beginning of an activation cache"):
            BEGUN_FILE.check(new)
    with h5py.File(new, "w") as f:
        f["mine"] = 1
    with pytest.raises(UsageError, match="exists"):
        BEGUN_FILE.check(new)
