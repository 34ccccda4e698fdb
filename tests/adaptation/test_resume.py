"""A run that was interrupted ends with the bytes of one that was not, wherever it was stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from lessons import Stop, count, praise, same_weights, stopping, tags

import probekit.adaptation.runs.run as runs
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.train import train
from probekit.errors import ModelError

STEPS = 5  # an epoch: 40 examples, eight a batch
PLAIN = {"epochs": 3, "batch_size": 8, "learning_rate": 1e-3, "device": "cpu", "save_at": "0,2,5,10"}
WAYS = {
    "plain": (praise, PLAIN),
    "last": (praise, PLAIN | {"keep": "last", "save_at": ""}),
    "patience": (praise, PLAIN | {"epochs": 8, "patience": 1, "learning_rate": 1e-5, "save_at": "epochs"}),
    "bert": (count, PLAIN | {"optimizer": "bert-adamw", "schedule": "bert", "dropout": 0.3}),
    "ulmfit": (
        tags,
        PLAIN
        | {"epochs": 6, "schedule": "slanted-triangular", "unfreezing": "gradual", "layer_factor": 0.5, "head": "crf"},
    ),
    "odd": (praise, PLAIN | {"batch_size": 3, "accumulation": 2, "epochs": 2, "save_at": ""}),
    "features": (
        tags,
        PLAIN | {"regime": "feature-extraction", "head": "bilstm-crf", "hidden_size": 6, "dropout": 0.3},
    ),
    "plateau": (
        praise,
        PLAIN
        | {"regime": "feature-extraction", "head": "max-mlp", "hidden_size": 6, "optimizer": "amsgrad"}
        | {"schedule": "plateau", "plateau_patience": 0, "evaluate_every": 3, "save_at": "4,6", "epochs": 8}
        | {"patience": 9},
    ),
    "linear": (count, PLAIN | {"regime": "feature-extraction", "head": "linear", "patience": 1, "keep": "last"}),
}


def settings(way, folder):
    make, options = WAYS[way]
    caches = {"caches": folder / "caches"} if "regime" in options else {}
    return make(), options | caches


def rows_of(run):
    return run.rows.drop(columns=["checkpoint"])


def same(a, b):
    """Weights of the run and of each checkpoint, rows, and what the cards say of the outcome."""
    pd.testing.assert_frame_equal(rows_of(a), rows_of(b), check_exact=True)
    for key in ("metrics", "test", "step", "total_steps"):
        assert a.card[key] == b.card[key], key
    names = {path.name for path in a.path.glob("step-*")}
    assert names == {path.name for path in b.path.glob("step-*")}
    for name in ("", *names):
        assert same_weights(a.path / name, b.path / name), name
        one, two = (json.loads((run.path / name / "probekit.json").read_text()) for run in (a, b))
        assert one["metrics"] == two["metrics"], name
    assert sorted(p.name for p in b.path.iterdir()) == sorted(p.name for p in a.path.iterdir())


@pytest.fixture(scope="module")
def whole(tiny_bert, tmp_path_factory):
    """The run of each way, uninterrupted, and where its caches are."""
    made = {}

    def make(way):
        if way not in made:
            folder = tmp_path_factory.mktemp(way)
            task, options = settings(way, folder)
            made[way] = train(task, tiny_bert, folder / "run", test="test", **options), folder
        return made[way]

    return make


QUICK = {("plain", "in the middle"), ("patience", "after an epoch")}


@pytest.mark.parametrize(
    ("way", "where"),
    [
        pytest.param(way, where, marks=[] if (way, where) in QUICK else [pytest.mark.slow])
        for way in WAYS
        for where in ("in the middle", "after an epoch")
    ],
)
def test_an_interrupted_run_ends_as_an_uninterrupted_one(way, where, whole, tiny_bert, tmp_path):
    right, folder = whole(way)
    task, options = settings(way, folder)
    epoch = {"odd": 7, "plateau": 3}.get(way, STEPS)
    out = tmp_path / "run"
    seen = []

    def watcher(done, metrics):
        seen.append(done)
        if where == "after an epoch" and seen == [1]:
            raise Stop

    progress = stopping(epoch + 2 if where == "in the middle" else None)
    with pytest.raises(Stop):
        train(task, tiny_bert, out, test="test", progress=progress, watcher=watcher, **options)
    assert not json.loads((out / "probekit.json").read_text())["complete"]
    done = train(task, tiny_bert, out, test="test", watcher=watcher, **options)
    same(right, done)
    assert seen[1:] == list(range(2 if where == "in the middle" else 1, seen[-1] + 1))  # no epoch is told twice


@pytest.mark.slow
def test_what_is_interrupted_after_the_last_step_is_only_finished(whole, tiny_bert, tmp_path, monkeypatch):
    for way in ("patience", "plain", "plateau"):
        right, folder = whole(way)
        task, options = settings(way, folder)
        with monkeypatch.context() as patch:
            patch.setattr(runs, "publish", lambda *_: (_ for _ in ()).throw(Stop))
            with pytest.raises(Stop):
                train(task, tiny_bert, tmp_path / way, test="test", **options)
        done = train(task, tiny_bert, tmp_path / way, test="test", progress=stopping(STEPS + 1), **options)
        same(right, done)  # nothing was trained again, or the progress had stopped it


KILLED = """
import os, signal, sys
sys.path[:0] = {paths!r}
from test_resume import settings
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.train import train
from probekit.errors import ModelError
from pathlib import Path

def progress(stage, done, total, /, **rates):
    if stage == "training" and done == {step}:
        os.kill(os.getpid(), signal.SIGKILL)

task, options = settings({way!r}, Path({folder!r}))
train(task, {model!r}, {out!r}, test="test", progress=progress, **options)
"""


def in_another_process(code):
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True
    )


PATHS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "step"), [("plain", 7), ("features", 12)])
def test_killed(way, step, whole, tiny_bert, tmp_path):
    right, folder = whole(way)
    out = tmp_path / "run"
    code = KILLED.format(paths=PATHS, step=step, way=way, folder=str(folder), model=str(tiny_bert), out=str(out))
    assert in_another_process(code).returncode == -signal.SIGKILL
    assert not json.loads((out / "probekit.json").read_text())["complete"]
    task, options = settings(way, folder)
    same(right, train(task, tiny_bert, out, test="test", **options))


@pytest.fixture(scope="module")
def interrupted(tiny_bert, tmp_path_factory):
    """A plain run that was ended in its third epoch, so that two checkpoints are there."""
    out = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.raises(Stop):
        train(praise(), tiny_bert, out, test="test", progress=stopping(2 * STEPS + 2), **PLAIN)
    assert {p.name for p in (out / ".resume").glob("checkpoint-*")} == {"checkpoint-5", "checkpoint-10"}
    return out


def flip(path, share=0.5):
    data = bytearray(path.read_bytes())
    data[int(share * (len(data) - 1))] ^= 4
    path.write_bytes(data)


QUICKLY = ("checkpoint-10/model.safetensors", "checkpoint-10/optimizer.pt", "kept/head.safetensors")
FILES = (
    *(f"checkpoint-10/{x}" for x in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth")),
    *(f"checkpoint-10/{x}" for x in ("trainer_state.json", "digests.json")),
    *("kept/head.safetensors", "kept/model.safetensors", "kept/probekit.json"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "share"),
    [
        pytest.param(file, share, marks=[] if (file in QUICKLY and share == 0.5) else [pytest.mark.slow])
        for file in FILES
        for share in (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1)
    ],
)
def test_a_flipped_byte_ends_in_the_same_run_or_in_a_sentence(file, share, whole, interrupted, tiny_bert, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(interrupted, out)
    flip(out / ".resume" / file, share)
    try:
        done = train(praise(), tiny_bert, out, test="test", **PLAIN)
    except ModelError:
        assert file == "kept/probekit.json"  # what is best is known by it alone
    else:
        same(whole("plain")[0], done)


@pytest.mark.slow
def test_both_checkpoints_damaged_begins_anew(whole, interrupted, tiny_bert, tmp_path, caplog):
    out = tmp_path / "run"
    shutil.copytree(interrupted, out)
    for name in ("checkpoint-5", "checkpoint-10"):
        flip(out / f".resume/{name}/optimizer.pt")
    same(whole("plain")[0], train(praise(), tiny_bert, out, test="test", **PLAIN))
    told = [message for message in caplog.messages if "checkpoint" in message]
    assert len(told) == 2
    assert "the content of optimizer.pt does not match its digest" in told[0]


def test_damaged_weights_of_a_finished_run_are_told(whole, tiny_bert, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole("plain")[0].path, out)
    flip(out / "head.safetensors", 0.9)
    with pytest.raises(ModelError, match=r"head.safetensors is damaged: its content does not match"):
        load_learner(out)
