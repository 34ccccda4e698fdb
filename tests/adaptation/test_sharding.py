"""Weights spread over two processes (gloo, on the CPU): methods, families, resuming, and what is refused."""

import pytest
from lessons import SHORT, praise, same_weights
from test_processes import SHARDED, close_runs, in_two_processes, whole

from probekit.adaptation.options import TrainOptions
from probekit.adaptation.train import train
from probekit.adaptation.training import objective
from probekit.errors import UsageError

STOP = """
import os
from probekit.adaptation.training import trainer
end = trainer.Checkpointing.on_step_end
def stop(self, args, state, control, **more):
    end(self, args, state, control, **more)
    if state.global_step == 4:  # in the second epoch of three updates
        os._exit(0)
trainer.Checkpointing.on_step_end = stop
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "how"),
    [
        ("bert", {"method": "lora", "accumulation": 2}), ("bert", {"method": "bitfit"}), ("albert", {}), ("gpt2", {}),
        ("llama", {"optimizer": "adamw"}),
    ],
    ids=str,
)  # fmt: skip
def test_methods_and_families(family, how, tiny_model, tmp_path):
    model = tiny_model(family)
    one = whole(model, tmp_path / "one", **how)
    in_two_processes(model, {tmp_path / "two": SHARDED | how})
    close_runs(one.path, tmp_path / "two", names=("",))


@pytest.mark.slow
def test_an_interrupted_run_resumes_to_the_same_bytes(tiny_bert, tmp_path):
    how = SHARDED | {"optimizer": "adamw", "weight_decay": 0.1, "epochs": 2}
    in_two_processes(tiny_bert, {tmp_path / "straight": how})
    in_two_processes(tiny_bert, {tmp_path / "resumed": how}, STOP)
    assert not (tmp_path / "resumed" / "model.safetensors").exists()
    assert (tmp_path / "resumed" / ".resume" / "checkpoint-3" / "optimizer.pt").is_file()
    in_two_processes(tiny_bert, {tmp_path / "resumed": how})
    assert same_weights(tmp_path / "straight", tmp_path / "resumed")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "start several with torchrun"),
        ({"compile": True}, "--compile needs whole weights"),
        ({"mixout": 0.5}, "--mixout needs whole weights"),
        ({"mix": True}, "--mix needs whole weights"),
        ({"penalty": "l2-sp", "penalty_strength": 0.1}, r"added to the loss \(l2-sp\)"),
        ({"unfreezing": "gradual"}, "--shard trains all layers"),
        ({"gradient_checkpointing": True}, "--gradient-checkpointing with --shard"),
    ],
    ids=str,
)
def test_what_does_not_go_with_it(options, message, tiny_bert, tmp_path, monkeypatch):
    if options:
        monkeypatch.setattr(objective, "processes", lambda: (0, 2))
    with pytest.raises(UsageError, match=message):
        train(praise(17), tiny_bert, tmp_path / "run", shard=True, **SHORT | options)


def test_a_frozen_encoder_is_not_sharded():
    with pytest.raises(UsageError, match="shard are for fine-tuning"):
        TrainOptions(regime="feature-extraction", shard=True)
