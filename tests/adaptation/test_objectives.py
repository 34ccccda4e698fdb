"""Objectives: several heads can train one encoder; options are resolved in one place."""

import pytest
import torch
from lessons import SHORT, praise, tags

import probekit
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.bilstm import TagSoftmax
from probekit.adaptation.heads.linear import Linear
from probekit.adaptation.heads.spec import HEADS, HeadSpec
from probekit.adaptation.options import PLAIN, REGIME_DEFAULTS, Hyperparameters, Regime, TrainOptions
from probekit.adaptation.training.fine_tuning import prepare_fine_tuning
from probekit.adaptation.training.learners import FineTuning
from probekit.cli import main
from probekit.errors import UsageError
from probekit.rows import read, read_card


def test_two_heads_share_an_encoder(tiny_bert):
    """A batch says whose it is; the loss of one objective moves the encoder and its own head, not the other's."""
    training = prepare_fine_tuning(
        tiny_bert, praise(), praise().split("train"), praise().split("dev"),
        TrainOptions(pooling="mean"),
    )  # fmt: skip
    encoder = training.learner.encoder
    learner = FineTuning(encoder, Linear(32, 2), tags=TagSoftmax(32, 3))
    assert {name.partition(".")[0] for name in learner.state_dict()} == {"head", "encoder", "tags"}
    assert {key.partition(".")[0] for key, _ in learner.groups()[-1][1]} == {"head", "tags"}
    words = prepare_fine_tuning(tiny_bert, tags(), tags().split("train"), tags().split("dev"), TrainOptions())
    batches = [t.objectives[0].train.__getitems__([0, 1, 2]) for t in (training, words)]
    for name, other, batch in (("head", "tags", batches[0]), ("tags", "head", batches[1])):
        learner.zero_grad()
        learner(**batch, module=name)["loss"].backward()
        moved = {key.partition(".")[0] for key, p in learner.named_parameters() if p.grad is not None}
        assert {name, "encoder"} <= moved
        assert other not in moved
    learner.eval()
    with torch.no_grad():
        assert learner(**batches[1], module="tags")["predictions"].shape == batches[1]["labels"].shape


@pytest.mark.parametrize("head", ["auto", *HEADS])
def test_the_defaults_of_a_regime_are_in_one_table(head):
    for regime, wanted in REGIME_DEFAULTS.items():
        found = Hyperparameters(regime=regime, head=head)
        plain = regime is Regime.FEATURE_EXTRACTION and head in PLAIN
        wanted = wanted | ({"learning_rate": 1e-2} if plain else {})
        assert {name: getattr(found, name) for name in wanted} == wanted
        assert Hyperparameters(regime=regime, head=head, learning_rate=0.5).learning_rate == 0.5


def test_a_head_is_built_again_from_the_card():
    spec = TaskSpec.of_task(praise(), "train")
    head = HeadSpec(head="linear", width=8, pairs_apart=False, pooling="mean", dropout=0.5)
    again = HeadSpec.of_card({"head": head.on_card()})
    assert again == head
    assert isinstance(again.build(spec), Linear)
    with pytest.raises(UsageError, match="the head 'crf' is for sequence-labelling"):
        HeadSpec(head="crf", width=8, pairs_apart=False).build(spec)


@pytest.mark.slow
def test_a_script_and_a_command_line_leave_the_same_card(tiny_bert, tmp_path):
    words = ["--task", "grammar:sentiment", "--model", tiny_bert, "--limit", 24, "--batch-size", 8, "--epochs", 1]
    words += ["--device", "cpu", "--run-name", "x", "--variant", "short"]
    assert main(["train", *map(str, words), "--out", str(tmp_path / "line")]) == 0
    run = probekit.train(
        "grammar:sentiment", tiny_bert, tmp_path / "script", limit=24, run_name="x", variant="short",
        **SHORT | {"epochs": 1},
    )  # fmt: skip
    one, two = (read_card(tmp_path / name / "rows.parquet") for name in ("line", "script"))
    for card in (one, two):
        assert card["recipe"].pop("leaves")["out"].startswith(str(tmp_path))
        del card["created"], card["seconds"], card["words"]
    assert one == two
    assert one["recipe"]["arguments"]["learning_rate"] == 5e-5  # what it came to
    assert {r["kind"] for r in one["reads"]} == {"data", "model"}
    assert set(run.rows["variant"]) == {"short"}
    own = run.rows[run.rows["estimator"] == ""]  # the others are of the constant answer
    assert set(own["regime"] + " " + own["head"]) == {"fine-tune linear"}
    again = read(tmp_path / "line" / "rows.parquet").recipe.run(out=str(tmp_path / "again"))
    assert again.rows.equals(run.rows)
    (number,) = run.rows[run.rows["headline"]].to_dict("records")
    assert (number["split"], number["metric"], number["value"]) == ("dev", "accuracy", run.metrics["accuracy"])
    (said,) = run.predictions
    assert (said.task, said.split, len(said.ids)) == ("grammar:sentiment", "dev", run.card["examples"][1])


@pytest.mark.slow
def test_a_run_is_evaluated_from_a_script(tiny_bert, tmp_path):
    run = probekit.train(praise(), tiny_bert, tmp_path / "run", test="test", **SHORT)
    found = probekit.evaluate(run, task=(praise(),), split="test", device="cpu", out=tmp_path / "rows.parquet")
    assert found.rows["metric"].tolist() == ["accuracy", "matthews", "log-loss"] * 2
    assert found.rows["estimator"].tolist() == [""] * 3 + ["majority"] * 3
    assert found.rows["headline"].tolist() == [True] + [False] * 5
    assert found.rows["value"].iloc[0] == run.test["accuracy"]
    assert set(found.rows["analysis"]) == {"evaluate"}
    assert read(tmp_path / "rows.parquet").predictions[0].predicted.shape == (1, 13)
    with pytest.raises(UsageError, match="both say what to evaluate on"):
        probekit.evaluate(run, task=("cola",), cache="x.h5")
