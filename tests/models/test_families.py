"""A sample of the families of models that ``benchmarks/families.py`` goes through, and the table that it left."""

import csv
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import families
import tiny_models

QUICK = ["jamba", "longformer", "opt"]  # blocks of two kinds; texts filled up to a window; a head that skips its base
LATER = ["mamba", "mamba2", "bamba", "rwkv", "lfm2", "recurrent_gemma", "qwen3_next", "nemotron_h", "xlm"]
LATER += ["flaubert", "xlnet", "esm", "nystromformer", "openai-gpt", "colpali", "clip", "blip-2"]


@pytest.mark.parametrize("kind", [*QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in LATER)])
def test_layers_and_scores(kind, tmp_path):
    case = families.Case(tmp_path, tiny_models.save_tiny(kind, tmp_path))
    assert case.layers()["status"] == "right"
    if case.head:
        assert case.scores() == "right"


def test_the_table_has_no_wrong_model():
    with (ROOT / "docs" / "tables" / "which-models.csv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    found = Counter(row["Layers"] for row in rows)
    assert found.keys() <= {"right", "refused", "unknown"}
    assert len({row["Family"] for row in rows if row["Layers"] == "right"}) >= 150
    assert not any("WRONG" in cell or "TRACEBACK" in cell for row in rows for cell in row.values())
