"""What ``benchmarks/kills.py`` kills: small tasks, models and runs, and commands that read them."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["COMMANDS", "Killed", "bystanders", "commands", "inputs"]

NOUNS = ["cat", "dog", "bird", "child", "teacher", "house", "garden"]
STUDY = """title = "Toys"
models = {{ tiny = "{folder}/model" }}
[[train]]
tasks = ["{folder}/task.toml"]
regimes = ["fine-tune"]
options = {{ epochs = 1, batch_size = 10 }}
[[probe]]
tasks = ["{folder}/varied.toml"]
of = ["pretrained"]
options = {{ controls = 1, resamples = 100, folds = 2, layers = [1], penalties = [1.0] }}
[[table]]
kind = "regimes"
"""


@dataclass(frozen=True)
class Killed:
    """Command lines that run at the same time, and write in folder/out alone."""

    at_once: tuple[list[str], ...]
    needs: tuple[list[str], ...] = ()
    """Commands that make what they read, once, before."""


def inputs(folder: Path) -> None:
    """Tasks, models and a text from which a command has something in a second."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from tiny import WORDS, tiny_model

    tiny_model("minilm", folder / "model")
    lines = [f"the {n} was {w} {e}\t{w}" for n in NOUNS for w in ("great", "terrible") for e in ["!", "?", "."]]
    _task(folder, "toy", "task", lines, (30, 36, 42))
    (folder / "space.toml").write_text(
        f'task = "{folder}/task.toml"\nmodel = "{folder}/model"\ntrials = 3\nseeds = 1\n[space]\nepochs = [1, 2]\n'
        "learning_rate = { low = 1e-4, high = 1e-2, log = true }\nbatch_size = 10\n"
    )
    rng, words = random.Random(0), [word for word in WORDS if word.isalpha()]
    texts = [" ".join(rng.sample(words, 9)) for _ in range(80)]
    _task(folder, "varied", "varied", [f"{text}\t{'ab'['cat' in text]}" for text in texts], (48, 72, 80))
    (folder / "study.toml").write_text(STUDY.format(folder=folder))
    (folder / "gpt.json").write_text('{"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2}')
    (folder / "book.txt").write_text(
        "".join(f"the {a} was {b} and {c}.\n" for a in NOUNS for b in NOUNS for c in NOUNS)
    )


def _task(folder: Path, name: str, file: str, lines: list[str], ends: tuple[int, int, int]) -> None:
    first = 0
    for split, end in zip(("train", "dev", "test"), ends, strict=True):
        (folder / f"{file}.{split}.tsv").write_text("text\tlabel\n" + "\n".join(lines[first:end]) + "\n")
        first = end
    splits = "\n".join(f'{split} = "{file}.{split}.tsv"' for split in ("train", "dev", "test"))
    (folder / f"{file}.toml").write_text(f'name = "{name}"\n[splits]\n{splits}\n')


def bystanders(out: Path) -> None:
    """Files of somebody else, with names like ours, where commands write: none of them may change or vanish."""
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    for name in (".run.99999-123456789012", ".soup.99999-123456789012", ".exported.99999-123456789012"):
        (out / name).mkdir()
        (out / name / "thesis.tex").write_text("years of work")
    (out / ".train.h5.99999-123456789012").write_text("mine, too")


def commands(folder: Path) -> dict[str, Killed]:
    """By name the commands; each may use what its ``needs`` make in folder/given."""
    out, given, here = folder / "out", folder / "given", ["--device", "cpu"]
    task, varied, model = f"{folder}/task.toml", f"{folder}/varied.toml", f"{folder}/model"
    train = ["train", "--task", task, "--model", model, "--batch-size", "10", "--learning-rate", "1e-3", *here]
    tune = [*train, "--regime", "fine-tune"]
    cache = ["cache-activations", "--model", model, "--task", varied, "--tokens", *here]
    shards = [*cache, "--shard-size", "12", "--out"]
    one, many = [*cache, "--out", f"{given}/c.h5"], [*shards, f"{given}/shards"]
    seeds = [*tune, "--epochs", "1", "--seeds", "2", "--out", f"{given}/seeds"]
    return {
        "search": Killed((["search", f"{folder}/space.toml", "--out", f"{out}/found", *here],)),
        "fine-tuning": Killed(
            ([*tune, "--epochs", "2", "--test", "test", "--save-at", "epochs", "--out", f"{out}/run"],)
        ),
        "feature extraction": Killed(
            ([*train, "--epochs", "2", "--test", "test", "--regime", "feature-extraction",
              "--caches", f"{out}/caches", "--out", f"{out}/run"],)
        ),
        "study": Killed((["study", "run", f"{folder}/study.toml", "--out", f"{out}/study"],)),
        "run": Killed((["run", model, varied, "--out", f"{out}/run", "--layers", "1,2", "--quick", *here],)),
        "shards": Killed(([*shards, f"{out}/shards"], [*shards, f"{out}/shards"])),
        "workers": Killed(([*shards, f"{out}/shards", "--workers", "2"],)),
        "cache": Killed(([*cache, "--out", f"{out}/train.h5"],)),
        "average": Killed((["average", f"{given}/seeds", "--out", f"{out}/soup", *here],), (seeds,)),
        "export": Killed((["export", f"{given}/c.h5", "--to", "safetensors", "--out", f"{out}/exported"],), (one,)),
        "copy-cache": Killed((["copy-cache", f"{given}/shards", f"{out}/copied"],), (many,)),
        "new-encoder": Killed(
            (["new-encoder", "--config", f"{folder}/gpt.json", "--tokenizer", model, "--out", f"{out}/encoder"],)
        ),
        "pretrain": Killed(
            (["pretrain", "--text", f"{folder}/book.txt", "--config", f"{folder}/gpt.json", "--tokenizer", "train:300",
              "--context", "32", "--evaluate-every", "2", "--save-at", "2,4", "--out", f"{out}/run", *here],)
        ),
    }  # fmt: skip


COMMANDS = tuple(commands(Path()))
