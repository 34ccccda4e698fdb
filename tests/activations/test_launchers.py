"""Several processes on one folder of shards, however they are started, leave what one process leaves."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from toys import toy_task

from probekit.activations import ActivationCache, cache_activations, verify
from probekit.errors import CacheError, UsageError
from probekit.models import load_encoder
from probekit.runtime import own_device


def same(one: ActivationCache, other: ActivationCache) -> bool:
    vectors = all(np.array_equal(one.layer(k), other.layer(k)) for k in one.layers)
    return vectors and np.array_equal(one.ids, other.ids) and np.array_equal(one.labels, other.labels)


@pytest.mark.slow
def test_torchrun(tiny_bert, tmp_path):
    words = ["cache-activations", "--model", str(tiny_bert), "--task", "grammar:sentiment", "--split", "dev"]
    words += ["--shard-size", "50", "--out", str(tmp_path / "many")]
    begin = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "probekit"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([*begin, *words], capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("examples, ") == 1  # one of the processes says what was made
    alone = cache_activations(tiny_bert, "grammar:sentiment", "dev", out=tmp_path / "one.h5")
    assert same(alone, ActivationCache(tmp_path / "many"))
    assert verify(tmp_path / "many").ok


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_dask(tiny_bert, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, worker_dashboard_address=None
    ) as cluster:
        options = {"backend": "dask", "scheduler": cluster.scheduler_address}
        many = cache_activations(tiny_bert, toy_task(90), out=tmp_path / "many", shard_size=20, **options)
    assert same(cache_activations(tiny_bert, toy_task(90), out=tmp_path / "one.h5"), many)


@pytest.mark.slow
def test_workers(tiny_bert, tmp_path):
    many = cache_activations(tiny_bert, toy_task(90), out=tmp_path / "many", shard_size=20, workers=2)
    assert same(cache_activations(tiny_bert, toy_task(90), out=tmp_path / "one.h5"), many)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / ".lease-00000").mkdir()  # every worker stumbles
    with pytest.raises(CacheError, match="workers died while writing"):
        cache_activations(tiny_bert, toy_task(90), out=tmp_path / "bad", shard_size=20, workers=2)


def test_each_process_of_torchrun_takes_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert own_device("cuda") == "cuda"
    monkeypatch.setenv("LOCAL_RANK", "6")
    assert [own_device(d) for d in ("cuda", "cuda:1", "cpu")] == ["cuda:2", "cuda:1", "cpu"]


def test_options_that_do_not_fit(tiny_bert, tmp_path):
    loaded = load_encoder(tiny_bert, device="cpu")
    with pytest.raises(UsageError, match="give its name or folder, not a loaded encoder"):
        cache_activations(loaded, toy_task(), out=tmp_path / "a", shard_size=20, workers=2)
    with pytest.raises(UsageError, match="--backend dask shares shards"):
        cache_activations(tiny_bert, toy_task(), backend="dask", scheduler="tcp://127.0.0.1:9")
    with pytest.raises(UsageError, match="must be given together"):
        cache_activations(tiny_bert, toy_task(), backend="dask", shard_size=20)
    with pytest.raises(UsageError, match="--stateful carries the state"):
        cache_activations(tiny_bert, toy_task(), stateful=True, shard_size=20)
