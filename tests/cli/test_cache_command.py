"""probekit cache-activations, inspect, verify, as a user types them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from probekit.cli import main

ROWS = [
    "id\ttext\tlabel",
    *(f"r{i}\t{'the cat sees a dog ' * (1 + i % 3)}{i % 10}\t{'yes' if i % 2 else 'no'}" for i in range(30)),
]
TASK = """
name = "mine"
id = "id"
[splits]
train = "train.tsv"
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "train.tsv").write_text("\n".join(ROWS) + "\n")
    (tmp_path / "mine.toml").write_text(TASK)
    return tmp_path / "mine.toml"


def run(*words):
    return main([str(w) for w in words])


def test_from_a_file_of_ones_own_to_a_cache(mine, tiny_bert, tmp_path, capsys):
    out = tmp_path / "c.h5"
    words = (
        "cache-activations",
        "--model",
        tiny_bert,
        "--task",
        mine,
        "--out",
        out,
        "--pooling",
        "mean,max",
        "--device",
        "cpu",
    )
    assert run(*words) == 0
    said = capsys.readouterr().out
    assert "30 examples" in said
    assert "repeated texts, each run once" not in said
    with h5py.File(out) as f:
        assert f["/pooled/max/2"].shape == (30, 32)
        assert list(f["/label_names"].asstr()[:]) == ["no", "yes"]
        np.testing.assert_array_equal(f["/labels"][:], np.arange(30) % 2)
    assert run(*words) == 0
    assert "already cached" in capsys.readouterr().out
    assert run("inspect", out) == 0
    said = capsys.readouterr().out
    assert "no: 15, yes: 15" in said
    assert "mean, max" in said
    assert run("inspect", out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["task"] == "mine"
    assert run("verify", out) == 0
    assert "intact" in capsys.readouterr().out


def test_a_damaged_cache_fails_verify_with_status_1(mine, tiny_bert, tmp_path, capsys):
    out = tmp_path / "c.h5"
    assert run("cache-activations", "--model", tiny_bert, "--task", mine, "--out", out, "--device", "cpu") == 0
    with h5py.File(out) as f:
        at = f["/pooled/mean/1"].id.get_offset()
    with out.open("r+b") as f:
        f.seek(at + 40)
        f.write(b"\x00\x01\x02")
    capsys.readouterr()
    assert run("verify", out) == 1
    assert "/pooled/mean/1, rows 0 to 29: the bytes were changed after they were written" in capsys.readouterr().err
    out.write_bytes(out.read_bytes()[:-100])
    assert run("verify", out) == 1
    assert "truncated" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "nonsense"], "nonsense"),
        (["--task", "grammar:acceptability", "--split", "test"], "no split 'test'; it has train, dev"),
        (
            ["--task", "grammar:acceptability", "--pooling", "sum"],
            "expected one or more of mean, mean-all, first, last, max",
        ),
        (["--task", "grammar:acceptability", "--token-level", "word-mean"], "add --tokens"),
        (["--task", "grammar:acceptability", "--max-length", "2"], "reads 3 to 40 pieces"),
        (
            ["--task", "grammar:acceptability", "--dtype", "int8"],
            "dtype is 'int8'; expected one of float32, float16, bfloat16",
        ),
        (["--task", "grammar:acceptability", "--device", "tpu"], "unknown device 'tpu'"),
        (["--task", "grammar:acceptability", "--max-length", "9999"], "reads 3 to 40 pieces"),
        (["--task", "grammar:acceptability", "--model", "/nowhere/at/all"], "there is no folder /nowhere/at/all"),
        (["--task", "grammar:acceptability", "--limit", "many"], "--limit is 'many'; it must be a whole number"),
        (["--task", "grammar:acceptability", "--colour", "red"], "there is no option --colour"),
        ([], "--task is missing"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(tiny_bert, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    given = {"--model": tiny_bert, "--device": "cpu"} | dict(zip(words[::2], words[1::2], strict=True))
    assert run("cache-activations", *(word for pair in given.items() for word in pair)) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_debug_shows_the_traceback(tiny_bert):
    with pytest.raises(Exception, match="no split"):
        run(
            "--debug",
            "cache-activations",
            "--model",
            tiny_bert,
            "--task",
            "grammar:sentiment",
            "--split",
            "x",
            "--device",
            "cpu",
        )


def test_inspect_and_verify_of_what_is_no_cache(tmp_path, capsys):
    (tmp_path / "x.h5").write_text("no")
    assert run("inspect", tmp_path / "x.h5") == 2
    assert run("inspect", tmp_path / "y.h5") == 2
    assert run("verify", tmp_path / "y.h5") == 2
    assert run("verify", tmp_path / "x.h5") == 1
    assert capsys.readouterr().err.count("\n") == 4


@pytest.mark.slow
def test_killed_workers_and_parents(tiny_bert, tmp_path):
    """Two workers of the real command; the parent is killed at random moments, then the command is given again."""
    texts = [f"x{i}\t{'the small cat and the old dog see a red bird in the garden ' * 2}{i}\tno" for i in range(4000)]
    (tmp_path / "train.tsv").write_text("\n".join([ROWS[0], *texts, "z\tone\tyes"]) + "\n")
    (tmp_path / "mine.toml").write_text(TASK)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0", "HF_HUB_OFFLINE": "1"}
    rng = np.random.default_rng(0)

    def command(out, *more):
        words = [
            "cache-activations",
            "--model",
            tiny_bert,
            "--task",
            tmp_path / "mine.toml",
            "--device",
            "cpu",
            "--out",
            out,
            *more,
        ]
        return subprocess.Popen(
            [sys.executable, "-m", "probekit", *map(str, words)], env=environment, stdout=subprocess.DEVNULL
        )

    began = time.monotonic()
    assert command(tmp_path / "alone.h5").wait() == 0
    alone = time.monotonic() - began
    began, kills = time.monotonic(), 0
    while not (tmp_path / "c.h5").exists():
        process = command(tmp_path / "c.h5", "--workers", 2)
        time.sleep(rng.uniform(0.3, 1.0) * (alone + 2 * kills + 4))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 1
    assert (tmp_path / "c.h5").read_bytes() == (tmp_path / "alone.h5").read_bytes()
    assert not list(tmp_path.glob("c.h5.*"))
    shutil.rmtree(tmp_path)


def test_ctrl_c_says_how_to_go_on(monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("probekit.activations.inspection.verify", interrupted)
    assert run("verify", "x.h5") == 130
    assert "interrupted; run the same command again to resume" in capsys.readouterr().err
