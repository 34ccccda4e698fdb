"""The benchmarks run; what they measure is no matter of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import WORDS, tiny_model

CACHE = Path(__file__).parents[1] / "benchmarks" / "cache.py"
PROBES = CACHE.with_name("probes.py")


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


@pytest.mark.slow  # 20 s
def test_probes_benchmark_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, PROBES, "--quick", "--work", tmp_path, "--json", tmp_path / "out.json"],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    assert {c["line"] for c in out["compared"]} >= {1, 2, 4, 5, 6, 7, 8}
    assert all(0 < s < 60 for c in out["compared"] for s in (*c["ours"], *c["theirs"]))
    binary = [a for a in out["agreement"] if a["classes"] == 2]
    assert {a["answer"] for a in binary} == {
        "ours, 3 label sets", "ours, 5 label sets", "default", "float32 path", "converged"
    }  # fmt: skip
    assert all(a["nats"] > -1e-6 for a in out["agreement"])  # nothing is below the optimum
    assert all(a["nats"] < 1e-4 for a in binary if a["answer"].startswith("ours") and a["C"] <= 1)
    assert max(a["nats"] for a in binary if a["answer"] == "default") > 1e-3  # a control that the measure sees
    assert "3: skipped" in done.stdout


def test_probes_benchmark_knows_its_lines(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, PROBES, "--lines", "12"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "there is no line 12" in done.stderr


@pytest.mark.slow  # half a minute each
@pytest.mark.parametrize("name", ["edge", "mi_layers", "mi_accuracy"])
def test_information_benchmarks_run(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, CACHE.with_name(f"{name}.py"), "--quick"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "|" in done.stdout


@pytest.mark.slow  # half a minute each
@pytest.mark.parametrize("name", ["feature_extraction", "fine_tuning"])
def test_training_benchmarks_run(name: str, tmp_path: Path) -> None:
    options = ["--quick", "--grammar", "--threads", "1", "--work", tmp_path, "--json", tmp_path / "out.json"]
    options += ["--ways"] if name == "fine_tuning" else []
    done = subprocess.run(
        [sys.executable, CACHE.with_name(f"{name}.py"), *options, "--model", tiny_model("bert", tmp_path / "model")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    if name == "feature_extraction":
        assert set(out) == {"linear, pooled", "linear, tokens", "crf"}
        for sides in out.values():
            curves = [sides[side][0]["losses"] for side in ("cache", "encoder", "prepacked")]
            assert len(set(curves[0])) > 1  # it learns
            assert curves[1] == pytest.approx(curves[0], abs=1e-4)
            assert curves[2] == pytest.approx(curves[0], abs=1e-4)
    else:
        assert set(out) == {"full", "gradient checkpointing", "lora", "adapter"}
        assert all(one["wall"] > 0 for sides in out.values() for rounds in sides.values() for one in rounds)


@pytest.mark.slow  # 40 s
def test_elmo_benchmark_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, CACHE.with_name("elmo.py"), "--quick", "--work", tmp_path, "--json", tmp_path / "out.json"],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    assert len({rounds[0]["words"] for rounds in out.values()}) == 1
    row = next(line for line in done.stdout.splitlines() if line.startswith("| ours"))
    assert 0 < float(row.split("|")[7]) < 1e-5  # other sums, the same vectors


@pytest.mark.slow  # 20 s
def test_similarity_benchmark_runs() -> None:
    done = subprocess.run(
        [sys.executable, CACHE.with_name("similarity.py"), "--small"],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "cka, 1,000 permutations" in done.stdout
    assert "Too small for numbers" in done.stdout


@pytest.mark.slow  # 40 s
def test_language_model_benchmark_runs(tmp_path: Path) -> None:
    import probekit

    def run(*words: object) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, CACHE.with_name("language_models.py"), *map(str, words), "--json", tmp_path / "out.json"],
            capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return dict(json.loads((tmp_path / "out.json").read_text()))

    sides = run("--small", "--threads", 1)
    losses = {name: one["losses"] for name, one in sides.items()}
    assert losses["probekit, float32"] == pytest.approx(losses["transformers, float32"], abs=1e-4)
    assert losses["probekit, bfloat16"] == pytest.approx(losses["transformers, float32"], abs=2e-2)
    (tmp_path / "toy.txt").write_text("".join(f"the {a} {b} {c}.\n" for a in WORDS for b in WORDS for c in WORDS[:4]))
    (tmp_path / "tiny.json").write_text('{"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2}')
    probekit.pretrain(
        tmp_path / "toy.txt", tmp_path / "run", config=str(tmp_path / "tiny.json"), tokenizer="train:300", context=32,
        epochs=0.1,
    )  # fmt: skip
    table = run("--run", tmp_path / "run")
    assert len(table) == 3
    for one in table.values():
        assert 1 < one["perplexity"] < 300
        assert 0 < one["bits-per-byte"] < 8
    assert table["Kneser-Ney 5-gram"] != table["Kneser-Ney 3-gram"]
