"""One name for one model: two folders of one name are two models in rows, tables, sentences and figures."""

import shutil

import pandas as pd
import pytest
import torch
from transformers import AutoModel

import probekit
from probekit.errors import UsageError
from probekit.recipe import Read
from probekit.rows.model_names import rows_apart, told_apart
from probekit.studies.options import StudyOptions
from probekit.studies.planned import plan_study

QUICK = {"resamples": 0, "controls": 0}
BOTH = ["checkpoint (a)", "checkpoint (b)"]


@pytest.fixture(scope="module")
def caches(tiny_bert, tmp_path_factory):
    """Of the folders a/checkpoint, and b/checkpoint with other weights."""
    there, found = tmp_path_factory.mktemp("runs"), {}
    for run in "ab":
        model = there / run / "checkpoint"
        shutil.copytree(tiny_bert, model)
        if run == "b":
            net = AutoModel.from_pretrained(model)
            with torch.no_grad():
                net.encoder.layer[0].output.dense.bias.add_(1.0)
            net.save_pretrained(model)
        for split in ("train", "dev"):
            out = there / f"{run}.{split}.h5"
            probekit.cache_activations(
                model, "grammar:sentiment", split, limit=24, layers=(3,), out=out, device="cpu"
            ).close()
            found[run, split] = out
    return found


@pytest.fixture(scope="module")
def files(caches, tmp_path_factory):
    """The rows of each model, made alone."""
    there = tmp_path_factory.mktemp("rows")
    for run in "ab":
        probekit.probe(caches[run, "train"], caches[run, "dev"], out=there / f"{run}.parquet", **QUICK)
    return {run: there / f"{run}.parquet" for run in "ab"}


def test_models_of_one_name_in_one_call_are_two_models(caches):
    result = probekit.probe(*(caches[run, split] for run in "ab" for split in ("train", "dev")), **QUICK)
    assert list(result.rows["model"].unique()) == BOTH
    assert list(result.predictions[0].fits["model"].unique()) == BOTH
    assert all(name in result.to_markdown() for name in BOTH)
    assert any("2 models are called checkpoint" in note for note in result.notes)
    pair = probekit.similarity(caches["a", "dev"], caches["b", "dev"], draws=0, resamples=0)
    assert (pair.rows[["model", "model_b"]] == BOTH).all(axis=None)
    assert all(name in pair.verdict[0] for name in BOTH)
    moved = probekit.movement(caches["a", "dev"], caches["b", "dev"], resamples=0)
    assert set(moved.rows["model"]) == {BOTH[1]}
    assert set(moved.rows["against"]) == {f"{BOTH[0]}, mean"}


def test_models_of_one_name_in_several_files_are_two_models(files, caches):
    assert set(probekit.read_rows(files["a"]).model) == {"checkpoint"}
    figure = probekit.plot("layers", files["a"], files["b"])
    assert [text.get_text() for text in figure.legends[0].get_texts()][:2] == BOTH
    board = probekit.scoreboard(files["a"], files["b"], resamples=100)
    assert all(name in board.to_markdown() for name in BOTH)
    compared = probekit.compare(files["a"], files["b"], resamples=100)
    assert (compared.rows[["model", "against"]].iloc[0] == BOTH).all()
    page = probekit.report(files["a"], files["b"], out=files["a"].with_name("report.html"))
    assert all(name in page.read_text(encoding="utf-8") for name in BOTH)
    scene = probekit.explore(caches["a", "dev"], caches["b", "dev"], rows=str(files["a"])).scene
    assert [side.name for side in scene.sides] == BOTH
    assert [side.prediction is None for side in scene.sides] == [False, True]


def test_rows_that_were_told_apart_meet_those_that_were_made_alone(files, caches, tmp_path):
    together = tmp_path / "both.parquet"
    probekit.probe(*(caches[r, s] for r in "ba" for s in ("train", "dev")), out=together, **QUICK)
    assert list(probekit.read_rows(files["a"], together).model.unique()) == BOTH


def _cache(name, weights, model="", **spec):
    about = {"spec": {"model": name, "weights_digest": weights, "tokenizer_digest": "t", **spec}}
    return Read(
        "x.h5", "cache", "", about | {"recipe": {"function": "cache_activations", "arguments": {"model": model}}}
    )


SCORED = Read("a/m", "model", "", {"model": "m", "weights_digest": "1"})


@pytest.mark.parametrize(
    ("reads", "names"),
    [
        ([_cache("m", "1", "x/m"), _cache("m", "1", "y/m")], [None, None]),
        ([_cache("m", "1", "p/m", revision="v1"), _cache("m", "2", "p/m", revision="v2")], ["m (v1)", "m (v2)"]),
        ([_cache("t5", "1", "t5"), _cache("t5", "1", "t5", part="decoder")], ["t5", "t5 (decoder)"]),
        ([_cache("m", "1" * 32), _cache("m", "2" * 32)], ["m (weights 11111111)", "m (weights 22222222)"]),
        ([_cache("m", "1", "x/m+p/lora"), _cache("m", "2", "x/m+q/lora")], ["m (p)", "m (q)"]),
        ([_cache("m", None), _cache("m", "2")], [None, None]),
        ([SCORED, _cache("m", "2", "b/m")], ["m (a)", "m (b)"]),
    ],
)  # fmt: skip
def test_what_differs_tells_models_apart(reads, names):
    assert [columns.get("model") for columns in told_apart(reads)] == names


def test_a_run_is_told_apart_by_its_checkpoint():
    runs = [_cache("bert", digest, f"{at}/mrpc/step-5", checkpoint="mrpc", step=5) for digest, at in ("1x", "2y")]
    assert told_apart(runs) == [{"checkpoint": "mrpc (x)"}, {"checkpoint": "mrpc (y)"}]


def test_rows_that_mixed_two_models_are_said_to_be_mixed(caplog):
    rows = pd.DataFrame({"model": ["m", "m"]})
    reads = [_cache("m", "1", "x/m"), _cache("m", "2", "y/m")]
    assert rows_apart([(rows, reads)])[0] is rows
    assert "do not say which of them are which model" in caplog.text


def test_a_suite_of_two_models_of_one_name_asks_for_names(tiny_bert, tmp_path):
    for run in "ab":
        shutil.copytree(tiny_bert, tmp_path / run / "checkpoint")
    models = tuple(str(tmp_path / run / "checkpoint") for run in "ab")
    with pytest.raises(UsageError, match=r"are both called checkpoint; name them: --model NAME="):
        plan_study("syntax", options=StudyOptions(model=models), kind="suite")
