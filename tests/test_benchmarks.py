"""The benchmarks run; what they measure is no matter of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import WORDS, tiny_model

CACHE = Path(__file__).parents[1] / "benchmarks" / "cache.py"


@pytest.mark.slow  # 20 s
def test_cache_benchmark_runs(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(
        "\n".join([*(f"the {w} cat {v}" for w in WORDS for v in WORDS[:3]), "the cat sleeps\tthe dog runs"])
    )
    options = ["--quick", "--threads", "1", "--texts", tmp_path / "texts.txt", "--work", tmp_path]
    options += ["--model", tiny_model("bert", tmp_path / "model"), "--json", tmp_path / "out.json"]
    done = subprocess.run(
        [sys.executable, CACHE, *options],
        capture_output=True, text=True, check=False, env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    assert out["ways"]["raw"][0]["pieces"] == out["ways"]["pipeline"][0]["pieces"] > 48
    assert out["other"]["error"]["layer"] < 2e-6
    assert out["other"]["reading"]["same"]
    assert "≥ 0.95" in done.stdout


def test_cache_benchmark_says_what_it_skips(tmp_path: Path) -> None:
    for name in ("cache.py", "measures.py", "ways.py"):
        (tmp_path / "a" / "benchmarks").mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / "benchmarks" / name).write_text((CACHE.parent / name).read_text())
    done = subprocess.run(
        [sys.executable, tmp_path / "a" / "benchmarks" / "cache.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "skipped: the shared data sets are not at" in done.stderr
