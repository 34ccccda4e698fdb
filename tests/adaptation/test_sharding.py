"""Two processes (gloo, on the CPU) that each hold half of the weights train like one that holds them all."""

import json

import pytest
from lessons import SHORT, praise, same_weights
from test_processes import OPTIONS, close_runs, in_two_processes

from probekit.adaptation.options import TrainOptions
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.train import train
from probekit.adaptation.training import sharding
from probekit.errors import UsageError

HOW = OPTIONS | {"save_at": "", "shard": True, "keep": "last"}

HELD = """
import json, os
from torch.distributed.tensor import DTensor
from probekit.adaptation.training.trainer import _ShardedTrainer as T
save = T._save_optimizer_and_scheduler
def local(t):
    return (t.to_local() if isinstance(t, DTensor) else t).nbytes
def held(self, folder):
    save(self, folder)
    weights = [*self.model.parameters()]
    moments = [m for s in self.optimizer.state.values() for m in s.values()]
    found = [[sum(map(local, x)), sum(t.nbytes for t in x)] for x in (weights, moments)]
    json.dump(found, open(os.environ["HELD"] + os.environ["RANK"], "w"))
T._save_optimizer_and_scheduler = held
"""

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


def whole(model, out, **how):
    """The run of one process with the same batches in each update."""
    how = HOW | {"shard": False} | how
    return train(praise(17), model, out, test="test", **how | {"accumulation": 2 * how.get("accumulation", 1)})


def test_each_process_holds_half_and_the_run_is_a_whole_one(tiny_bert, tmp_path):
    """17 examples are 5 batches of 4, 21 dev examples 6: the last rounds are not full."""
    one = whole(tiny_bert, tmp_path / "one")
    in_two_processes(tiny_bert, tmp_path / "two", HOW, HELD, HELD=str(tmp_path / "held"))
    close_runs(one.path, tmp_path / "two", names=("",))
    for rank in "01":
        for here, all_processes in json.loads((tmp_path / f"held{rank}").read_text()):
            assert 0.4 * all_processes < here < 0.6 * all_processes
    assert load_learner(tmp_path / "two")[1]["complete"]


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
    in_two_processes(model, tmp_path / "two", HOW | how)
    close_runs(one.path, tmp_path / "two", names=("",))


@pytest.mark.slow
def test_an_interrupted_run_resumes_to_the_same_bytes(tiny_bert, tmp_path):
    how = HOW | {"optimizer": "adamw", "weight_decay": 0.1, "epochs": 2}
    in_two_processes(tiny_bert, tmp_path / "straight", how)
    in_two_processes(tiny_bert, tmp_path / "resumed", how, STOP)
    assert not (tmp_path / "resumed" / "model.safetensors").exists()
    assert (tmp_path / "resumed" / ".resume" / "checkpoint-3" / "optimizer.pt").is_file()
    in_two_processes(tiny_bert, tmp_path / "resumed", how)
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
        monkeypatch.setattr(sharding, "processes", lambda: (0, 2))
    with pytest.raises(UsageError, match=message):
        train(praise(17), tiny_bert, tmp_path / "run", shard=True, **SHORT | options)


def test_a_frozen_encoder_is_not_sharded():
    with pytest.raises(UsageError, match="shard are for fine-tuning"):
        TrainOptions(regime="feature-extraction", shard=True)
