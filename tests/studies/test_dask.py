"""Steps on the workers of a Dask cluster, here of two processes on this machine."""

import pytest

from probekit.errors import ProbekitError
from probekit.studies.pools import dask_pool
from probekit.studies.runner import run_steps
from probekit.studies.steps import Inside, Step

distributed = pytest.importorskip("distributed")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_steps_run_on_a_cluster(tmp_path, tiny_bert):
    told = {"model": str(tiny_bert), "task": "grammar:sentiment", "limit": 8}
    todo = [
        Step(split, "cache_activations", {**told, "split": split, "out": Inside(f"{split}.h5")}, (), (f"{split}.h5",))
        for split in ("train", "dev")
    ]
    caches = {"train": Inside("train.h5"), "dev": Inside("nowhere.h5"), "out": Inside("rows.parquet")}
    todo.append(Step("probe", "probe", caches, ("train", "dev"), ("rows.parquet",)))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None, worker_dashboard_address=None
    ) as cluster:
        ended = {o.step.name: o for o in run_steps(todo, tmp_path, dask_pool(cluster.scheduler_address))}
    assert {name: o.state for name, o in ended.items()} == {"train": "done", "dev": "done", "probe": "failed"}
    assert "nowhere.h5" in ended["probe"].message


def test_no_scheduler_answers():
    with pytest.raises(ProbekitError, match="no Dask scheduler answers at tcp://127.0.0.1:9"):
        dask_pool("tcp://127.0.0.1:9", seconds=0.5)
