"""The benchmarks run; what they measure is no matter of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
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
    assert float(row.split("|")[7]) < 1e-5  # the same vectors, up to the order of sums; on some processors to the bit


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


def toy_treebank(folder: Path) -> Path:
    """Random sentences whose words hang on the word before."""
    for split, sentences in {"train": 60, "dev": 20}.items():
        lines = []
        for i in range(sentences):
            for n in range(1, 4 + i % 3):
                rest = f"X\t_\t_\t{n - 1}\t{'root' if n == 1 else 'dep'}\t_\t_"
                lines.append(f"{n}\t{WORDS[(i * 7 + n * n) % len(WORDS)]}\t_\t{rest}")
            lines.append("")
        (folder / f"xx_toy-ud-{split}.conllu").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.slow
def test_structural_benchmark_runs(tmp_path: Path) -> None:
    import probekit

    model, bank = tiny_model("bert", tmp_path / "model"), toy_treebank(tmp_path)
    caches = [
        probekit.cache_activations(model, "ud-relations", split, data_dir=bank, out=tmp_path / f"{split}.h5").path
        for split in ("train", "dev")
    ]
    options = ["--layer", "1", "--ranks", "4", "--epochs", "2", "--json", tmp_path / "out.json"]
    done = subprocess.run(
        [sys.executable, CACHE.with_name("structural.py"), *caches, *options],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    assert set(out) == {"4, probekit", "4, authors"}
    assert out["4, authors"]["epochs"] == 2
    assert all(0 < one["uuas"] <= 1 and one["cpu"] > 0 and one["sentences"] == 60 for one in out.values())
    assert "times the CPU time" in done.stdout


def test_structural_benchmark_has_the_loss_of_our_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from probekit.probes.trees.fit import Trees, _batches, loss_and_gradient
    from probekit.probes.trees.gold import chain

    monkeypatch.syspath_prepend(str(CACHE.parent))
    structural: Any = import_module("structural")
    torch.manual_seed(0)
    length, projection = [2, 5, 3], torch.randn(6, 4, requires_grad=True)
    x, gold = [torch.randn(n, 6) for n in length], [chain(n) for n in length]
    data = [(one, torch.from_numpy(its).float()) for one, its in zip(x, gold, strict=True)]
    (batch,) = structural.batches(data, np.arange(3))
    theirs = structural.mean_loss(*batch, projection)
    theirs.backward()
    ours, gradient = 0.0, torch.zeros(6, 4)
    for part in _batches(Trees(np.array(length), gold), 100):
        loss, its = loss_and_gradient(torch.cat(x), projection.detach(), part, "distance")
        ours, gradient = ours + float(loss) / 3, gradient + its / 3
    assert float(theirs.detach()) == pytest.approx(ours, rel=1e-5)
    torch.testing.assert_close(gradient, projection.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # 30 s
def test_suite_benchmark_runs(tmp_path: Path) -> None:
    options = ["--tasks", "grammar:sentiment,grammar:acceptability", "--limit", "60", "--controls", "1"]
    options += ["--model", tiny_model("bert", tmp_path / "model"), "--json", tmp_path / "out.json"]
    done = subprocess.run(
        [sys.executable, CACHE.with_name("suite.py"), *options],
        capture_output=True, text=True, check=False, env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    assert list(out["loop"]["accuracy"]) == ["grammar:sentiment", "grammar:acceptability"]
    assert list(out["suite"]["accuracy"]) == ["grammar:sentiment"]  # the other one is measured by Matthews' correlation
    assert out["gap"] < 0.2


@pytest.mark.slow  # 30 s
def test_shards_benchmark_runs() -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def run(*words: str) -> dict[str, Any]:
        command = [sys.executable, CACHE.with_name("shards.py"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    told = run("kills", "--count", "3")
    assert told["kills"] == 3
    assert told["wrong"] == told["left behind"] == told["failed"] == 0
    assert run("memory", "300", "--shard-size", "100")["300"]["pieces"] == 2700


def test_gpu_benchmark_survives_a_part_that_fails() -> None:
    gpu = _gpu()
    found = gpu.apart("no such part", 100, dry=True)
    assert "KeyError: 'no such part'" in found["error"]
    assert "failed: KeyError" in gpu.table({"machine": {"card": "none"}, "parts": {"layers": found}})


@pytest.mark.slow  # a minute
def test_gpu_benchmark_runs_dry(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, CACHE.with_name("gpu.py"), "--dry-run", "--json", tmp_path / "out.json"],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())["parts"]
    assert [*out] == [*_gpu().PARTS]
    assert not [part["error"] for part in out.values() if "error" in part]
    differences = [of["largest difference"] for of in out["layers"].values() if isinstance(of, dict)]
    assert len(differences) == 4
    assert max(differences) < 2e-2
    assert out["device-map"]["largest difference"] < 2e-2
    assert all(out["training"][f"{way}, {side}"]["steps"] == 2
               for way in ("full", "lora", "adapter") for side in ("bare Trainer", "probekit"))  # fmt: skip
    assert all(out["cache-8b"][what]["pieces/s"] > 0 for what in ("pooled", "tokens", "stock forward"))


def _gpu() -> Any:
    sys.path.insert(0, str(CACHE.parent))
    return import_module("gpu")


@pytest.mark.slow  # a minute
@pytest.mark.parametrize("words", [("kills.py", "--kills", "2"), ("damages.py", "--damages", "2")])
def test_attacks_run(words: tuple[str, ...]) -> None:
    only = "export" if words[0] == "kills.py" else "counts"
    command = [sys.executable, CACHE.with_name(words[0]), *words[1:], "--only", only]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"\n{only}: " in f"\n{done.stdout}"
