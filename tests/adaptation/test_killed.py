"""``probekit train``, killed by SIGKILL after its first checkpoint and started again, leaves the bytes of one run."""

import json
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from lessons import praise

EPOCHS = 16
PLAIN = {"--epochs": str(EPOCHS), "--batch-size": "8", "--learning-rate": "1e-3", "--device": "cpu", "--test": "test"}
WAYS = {
    "full": {},
    "lora": {"--method": "lora", "--rank": "2"},
    **{name: {"--method": name} for name in ("dora", "ia3", "prefix", "prompt", "bitfit", "adapter", "norms", "last")},
    "mix": {"--keep-layers": "1", "--reinit-top": "1", "--mix": None},
    "pseudo-labels": {"--unlabelled": "{texts}", "--pseudo-labels": "{teacher}", "--confidence": "0"},
    "l2-sp": {"--penalty": "l2-sp", "--penalty-strength": ".1"},
    "ewc": {
        "--model": "{old}", "--penalty": "ewc", "--penalty-strength": "10", "--fisher-task": "{animals}",
        "--fisher-examples": "10",
    },
    "mixout": {"--mixout": ".5"},
    "order": {"--order": "head=2,blocks:top-down,all"},
    "teacher": {"--teacher": "{teacher}", "--match-hidden": ".5"},
    "lm-loss": {"--lm-loss": ".5"},
    "unlabelled": {"--unlabelled": "{texts}", "--consistency": "word-deletion", "--confidence": "0"},
    "accumulation": {
        "--unlabelled": "{texts}", "--lm-loss": ".5", "--consistency": "dropout", "--accumulation": "2",
        "--batch-size": "4",
    },
    "slice-heads": {"--slices": "{slices}", "--slice-heads": ".5"},
    "also": {"--also": "{animals}", "--sampling": "uniform"},
}  # fmt: skip


def command(places, out, more):
    """The words of a training; more : options that replace those of all ways, with places in braces."""
    options = {"--task": "{praise}", "--model": "{model}", **PLAIN, **more, "--out": str(out)}
    words = [word.format(**places) for pair in options.items() for word in pair if word is not None]
    return [sys.executable, "-m", "probekit", "train", *words]


def started(words):
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(words):
    one = started(words)
    _, said = one.communicate(timeout=300)
    assert one.returncode == 0, said


def killed(words, out):
    """Start a training, and kill it when its first checkpoint for resuming is whole."""
    one = started(words)
    end = time.monotonic() + 120
    while not any(out.glob(".resume/checkpoint-*/digests.json")):
        assert one.poll() is None, one.communicate()[1]
        assert time.monotonic() < end, "there is no checkpoint after two minutes"
        time.sleep(0.002)
    one.send_signal(signal.SIGKILL)
    one.communicate()
    assert one.returncode == -signal.SIGKILL
    assert not json.loads((out / "probekit.json").read_text())["complete"]


def write_task(folder, name, examples, labels):
    """A task in files, so that a command can name it; examples : by split, text and label."""
    for split, lines in examples.items():
        text = "".join(f"{text}\t{label}\n" for text, label in lines)
        (folder / f"{name}-{split}.tsv").write_text(f"text\tlabel\n{text}")
    splits = "".join(f'{split} = "{name}-{split}.tsv"\n' for split in examples)
    (folder / f"{name}.toml").write_text(f'name = "{name}"\nlabels = {json.dumps(labels)}\n[splits]\n{splits}')
    return folder / f"{name}.toml"


@pytest.fixture(scope="module")
def places(tiny_bert, tmp_path_factory):
    """What the commands name: a model, two tasks, a run on each, and texts."""
    folder = tmp_path_factory.mktemp("killed")
    task, names = praise(40, 21), ("bad", "good")
    own = {s: [(e.text, names[int(e.label)]) for e in task.split(s)] for s in ("train", "dev", "test")}
    animals = [(f"the {w} was {n}", w) for n in ("here", "there", "now", "then", "old") for w in ("cat", "dog", "cow")]
    other = {"train": animals[:9], "dev": animals[9:12], "test": animals[12:]}
    (folder / "texts.txt").write_text("".join(f"the cat saw {word}\n" for word, _ in animals))
    (folder / "slices.toml").write_text("[long]\nwords_at_least = 4\n")
    found = {
        "slices": str(folder / "slices.toml"), "model": str(tiny_bert), "texts": str(folder / "texts.txt"),
        "praise": str(write_task(folder, "praise", own, names)),
        "animals": str(write_task(folder, "animals", other, ("cat", "dog", "cow"))),
        "old": str(folder / "old"), "teacher": str(folder / "teacher"),
    }  # fmt: skip
    finished(command(found, folder / "old", {"--task": "{animals}", "--epochs": "1"}))
    finished(command(found, folder / "teacher", {"--epochs": "2"}))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_training_goes_on_to_the_same_bytes(way, places, tmp_path):
    whole, part = tmp_path / "whole/run", tmp_path / "part/run"
    finished(command(places, whole, WAYS[way]))
    killed(command(places, part, WAYS[way]), part)
    finished(command(places, part, WAYS[way]))
    names = {file.name for file in whole.iterdir()}
    assert names == {file.name for file in part.iterdir()}
    same = [name for name in names if name.endswith((".safetensors", ".examples.parquet"))]
    assert len(same) >= (6 if way == "also" else 4)  # the model, the head, and predictions of dev and test
    for name in same:
        assert (whole / name).read_bytes() == (part / name).read_bytes(), name
    pd.testing.assert_frame_equal(*(pd.read_parquet(run / "rows.parquet") for run in (whole, part)), check_exact=True)
