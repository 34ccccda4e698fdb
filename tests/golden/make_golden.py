"""Made activations-1.h5. Not run by the tests: a golden file is never made again."""

import os
import sys
import tempfile
from pathlib import Path

os.environ["SOURCE_DATE_EPOCH"] = "0"
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import tiny

from probekit import cache_activations
from probekit.tasks import Example, Split, Task
from probekit.tasks.task import TaskKind

TEXTS = ("the cat sleeps", "a dog runs in the garden", "", "the cat sleeps", "the small bird sees", "not very good")
with tempfile.TemporaryDirectory() as folder:
    model = tiny.tiny_model(
        "bert",
        Path(folder) / "golden-bert",
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
    )
    examples = tuple(Example(f"golden-{i}", t, i % 2, domain="ab"[i // 3]) for i, t in enumerate(TEXTS))
    task = Task("golden", TaskKind.CLASSIFICATION, {"train": Split("train", examples)}, ("no", "yes"), ("accuracy",))
    cache_activations(model, task, pooling="mean,first", tokens=True, device="cpu", out=HERE / "activations-1.h5")
