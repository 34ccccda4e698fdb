"""Checkpoints of a run, cached all at once: ``--model RUN/step-*``, expanded by the shell or not."""

import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from probekit import ActivationCache
from probekit.cli import main
from probekit.cli.patterns import expand, natural
from probekit.errors import UsageError

STEPS = (0, 20, 100)
CARD = {"format": "probekit-run/1", "run": "run", "model": "tiny", "total_steps": 100, "task": "grammar:acceptability"}


@pytest.fixture(scope="module")
def run(tiny_bert, tmp_path_factory):
    """RUN/step-0, the pretrained weights themselves, and two further on: a weight of block 2 moves with the step."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    for step in STEPS:
        own = shutil.copytree(tiny_bert, folder / f"step-{step}")
        (own / "probekit.json").write_text(json.dumps(CARD | {"step": step, "epoch": step / 50}))
        weights = load_file(own / "model.safetensors")
        weights["encoder.layer.1.output.dense.bias"][::2] += step / 20
        save_file(weights, own / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def cache(*words, split="dev"):
    asked = ("--task", "grammar:acceptability", "--split", split, "--limit", "60", "--device", "cpu")
    return main(["cache-activations", *map(str, words), *asked])


def files(capsys):
    """What each line of the output names and says."""
    return [line.split(": ", 1) for line in capsys.readouterr().out.splitlines()]


def test_all_steps_in_their_order_with_one_line_each(run, capsys):
    assert cache("--model", *sorted(run.glob("step-*"))) == 0  # as the shell expands it: step-0 step-100 step-20
    said = files(capsys)
    assert [path.split(".")[2] for path, _ in said] == [f"tiny-run-step-{step}" for step in STEPS]
    assert all(text.startswith("60 examples, 4 layers of width 32; ") for _, text in said)
    assert cache("--model", run / "step-*") == 0  # quoted
    again = files(capsys)
    assert [path for path, _ in again] == [path for path, _ in said]
    assert all(text.endswith("already cached") for _, text in again)


def test_pretrained_and_every_step_share_one_numbering_of_layers(run, tiny_bert, capsys):
    assert cache("--model", tiny_bert, run / "step-*", "--out", "caches/") == 0
    held = {}
    for path, _ in files(capsys):
        with ActivationCache(path) as one:
            held[one.spec.get("step")] = {layer: one.layer(layer) for layer in one.layers}
    assert set(held) == {None, *STEPS}
    assert {tuple(layers) for layers in held.values()} == {("0", "1", "2", "3")}
    for layer, vectors in held[None].items():
        np.testing.assert_array_equal(held[0][layer], vectors)
        moved = not np.array_equal(held[100][layer], vectors)
        assert moved == (layer in "23")  # what block 2 gives is layer 2


def test_several_models_do_not_fit_in_one_file(run, capsys):
    assert cache("--model", run / "step-*", "--out", "all.h5") == 2
    said = capsys.readouterr().err
    assert "all.h5 is one file, but there are 3 models to cache" in said
    assert "step-100); give a folder (all.h5/)" in said
    assert cache("--model", run / "step-2*", "--out", "one.h5") == 0
    assert "60 examples" in capsys.readouterr().out
    assert cache("--model", run / "stop-*") == 2
    assert "no file matches" in capsys.readouterr().err


def test_a_pattern_of_rows_leaves_out_the_predictions_beside_them(tmp_path):
    for name in ("a.parquet", "a.examples.parquet", "b.parquet"):
        (tmp_path / name).write_text("")
    assert [path[-9:] for path in expand(tmp_path / "*.parquet")] == ["a.parquet", "b.parquet"]
    assert expand(tmp_path / "*.examples.parquet") == [str(tmp_path / "a.examples.parquet")]


@pytest.mark.slow
def test_rows_of_every_step_from_two_patterns(run, capsys):
    for split in ("train", "dev"):
        assert cache("--model", run / "step-*", split=split) == 0
    pairs = ["data_cache/*.train.*step-*", "data_cache/*.dev.*step-*"]
    quick = ["--controls", "0", "--resamples", "0", "--out", "rows.csv"]
    assert main(["probe", *pairs, *quick]) == 0
    from probekit import read_rows

    rows = read_rows("rows.csv")
    assert rows.drop_duplicates(["checkpoint", "step"])[["checkpoint", "step"]].to_numpy().tolist() == [
        ["run", step] for step in STEPS
    ]
    loss = rows[(rows["metric"] == "log-loss") & (rows["target"] == "gold")].groupby("layer")["value"].nunique()
    assert loss[[0, 1, 2, 3]].tolist() == [1, 1, 3, 3]
    assert "tiny, run, step 100, mean" in capsys.readouterr().out
    assert main(["probe", pairs[0], "data_cache/*.dev.*step-0.*", *quick]) == 2
    assert "matches 3 caches, but" in capsys.readouterr().err
    assert main(["mi", *expand(pairs[1]), "--layers", "2", "--draws", "19", "--out", "mi.csv"]) == 0
    assert read_rows("mi.csv")["step"].drop_duplicates().tolist() == list(STEPS)
    assert capsys.readouterr().out.count("grammar:acceptability dev, tiny, run, step ") == len(STEPS)


def test_numbers_in_names_count_as_numbers(tmp_path):
    names = ["run", "step-0", "step-9", "step-10", "step-10-b", "step-100", "2", "10"]
    assert sorted(sorted(names), key=natural) == ["2", "10", *names[:6]]
    (tmp_path / "a[1]").mkdir()
    assert expand("a[1]") == ["a[1]"]  # there, whatever it looks like
    with pytest.raises(UsageError, match="no file matches"):
        expand("b*")
