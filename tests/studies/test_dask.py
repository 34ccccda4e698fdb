"""Steps on the workers of a Dask cluster, here of two processes on this machine."""

import pytest

from probekit.cli import main
from probekit.errors import ProbekitError
from probekit.studies.runner import dask_pool, run_steps
from probekit.studies.steps import OUT, Step

distributed = pytest.importorskip("distributed")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_steps_run_on_a_cluster(tmp_path, tiny_bert):
    words = ("cache-activations", "--model", str(tiny_bert), "--task", "grammar:sentiment", "--limit", "8")
    todo = [
        Step(split, (*words, "--split", split, "--out", f"{OUT}/{split}.h5"), (), (f"{split}.h5",))
        for split in ("train", "dev")
    ]
    todo.append(Step("probe", ("probe", f"{OUT}/train.h5", f"{OUT}/nowhere.h5"), ("train", "dev"), ("rows.parquet",)))
    todo.append(Step("inspect", ("inspect", f"{OUT}/train.h5"), ("train",), ("train.h5",)))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None, worker_dashboard_address=None
    ) as cluster:
        ended = {o.step.name: o for o in run_steps(todo, tmp_path, main, dask_pool(cluster.scheduler_address))}
    assert {name: o.state for name, o in ended.items()} == {
        "train": "done", "dev": "done", "probe": "failed", "inspect": "done"
    }  # fmt: skip
    assert "nowhere.h5" in ended["probe"].message


def test_no_scheduler_answers():
    with pytest.raises(ProbekitError, match="no Dask scheduler answers at tcp://127.0.0.1:9"):
        dask_pool("tcp://127.0.0.1:9", seconds=0.5)
