"""Two processes (gloo, on the CPU), each with all weights or with half, write the run of one with twice the batches."""

import json
from pathlib import Path

import numpy as np
import pytest
from lessons import praise, weights
from processes import in_two_processes as run
from tiny import WORDS

from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.train import train

OPTIONS = {
    "epochs": 2, "batch_size": 4, "learning_rate": 1e-3, "device": "cpu", "dropout": 0.0, "encoder_dropout": 0.0,
    "optimizer": "bert-adamw", "save_at": "epochs",
}  # fmt: skip

SHARDED = OPTIONS | {"save_at": "", "shard": True, "keep": "last"}

SCRIPT = """
import sys
sys.path[:0] = {paths!r}
from lessons import praise
from probekit.adaptation.train import train
for out, options in {runs!r}.items():
    train(praise(17), {model!r}, out, test="test", **options)
"""
PATHS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]


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


def in_two_processes(model, runs, before="", **environment):
    """Train in two processes.

    runs : the options of each run by its folder, one after the other; before : lines that run first in each process.
    """
    runs = {str(out): options for out, options in runs.items()}
    code = before + SCRIPT.format(paths=PATHS, model=str(model), runs=runs)
    ended = run(code, **environment)
    assert [status for status, _ in ended] == [0, 0], "\n".join(said for _, said in ended)


def close_runs(one, two, atol=2e-6, names=("", "step-0", "step-3", "step-6")):
    """Weights of both runs and of their checkpoints, and the metrics."""
    for name in names:
        a, b = weights(one / name), weights(two / name)
        assert a.keys() == b.keys()
        for key, weight in a.items():
            np.testing.assert_allclose(b[key], weight, atol=atol, rtol=1e-4, err_msg=f"{name} {key}")
    cards = [json.loads((run / "probekit.json").read_text()) for run in (one, two)]
    assert cards[1]["step"] == cards[0]["step"]
    assert cards[1]["metrics"] == pytest.approx(cards[0]["metrics"], rel=1e-4)
    assert cards[1]["test"] == pytest.approx(cards[0]["test"], rel=1e-4)


def whole(model, out, **how):
    """The run of one process with the same batches in each update."""
    how = SHARDED | {"shard": False} | how
    return train(praise(17), model, out, test="test", **how | {"accumulation": 2 * how.get("accumulation", 1)})


@pytest.fixture(scope="module")
def two(tiny_bert, tmp_path_factory):
    """The runs ``plain`` and ``sharded`` of two processes, and what each process held: ``held0``, ``held1``."""
    folder = tmp_path_factory.mktemp("two")
    runs = {folder / "plain": OPTIONS, folder / "sharded": SHARDED}
    in_two_processes(tiny_bert, runs, HELD, HELD=str(folder / "held"))
    return folder


@pytest.mark.slow
def test_two_processes_are_one_with_twice_the_accumulation(two, tiny_bert, tmp_path):
    """17 examples are 5 batches of 4, the last one short: in the last round, one process has no batch."""
    one = train(praise(17), tiny_bert, tmp_path / "one", test="test", accumulation=2, **OPTIONS)
    close_runs(one.path, two / "plain")


@pytest.mark.slow
def test_each_process_holds_half_and_the_run_is_a_whole_one(two, tiny_bert, tmp_path):
    """17 examples are 5 batches of 4, 21 dev examples 6: the last rounds are not full."""
    one = whole(tiny_bert, tmp_path / "one")
    close_runs(one.path, two / "sharded", names=("",))
    for rank in "01":
        for here, all_processes in json.loads((two / f"held{rank}").read_text()):
            assert 0.4 * all_processes < here < 0.6 * all_processes
    assert load_learner(two / "sharded")[1]["complete"]


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"lm_loss": 0.5}, {"consistency": "word-deletion", "confidence": 0.0}], ids=str)
def test_each_process_draws_its_own_texts(more, tiny_bert, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"the cat saw {w}\n" for w in WORDS if w.isalpha()))
    options = OPTIONS | more | {"unlabelled": str(tmp_path / "texts.txt")}
    one = train(praise(17), tiny_bert, tmp_path / "one", test="test", accumulation=2, **options)
    in_two_processes(tiny_bert, {tmp_path / "two": options})
    close_runs(one.path, tmp_path / "two")
