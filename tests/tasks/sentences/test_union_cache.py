"""One cache serves several sentence tasks of a treebank."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import probekit
from probekit.tasks import load_task
from tests.tasks.sentences.treebanks import treebank


def test_a_cache_of_several_tasks_has_the_labels_of_each(tiny_bert: Path, tmp_path: Path) -> None:
    data = treebank(tmp_path / "data" / "UD_Toy").parent
    names = ("treebank:past-present", "treebank:subj-number:xx_toy", "treebank:bigram-shift")
    caches = {
        split: probekit.cache_activations(
            tiny_bert, "+".join(names), split, data_dir=data, out=tmp_path / f"{split}.h5", layers=(0,)
        ).path
        for split in ("train", "dev")
    }
    total = 0
    for name in names:
        task = load_task(name, data)
        with probekit.ActivationCache(caches["dev"]) as cache:
            view = cache.for_task(task, "dev")
            assert view.layer(0).shape == (len(task.split("dev")), 32)
            np.testing.assert_array_equal(view.labels, task.labels("dev"))
            assert list(view.ids) == [e.id for e in task.split("dev")]
        total += len(task.split("dev"))
    with probekit.ActivationCache(caches["dev"]) as cache:
        assert len(cache.ids) < total  # tense and number share sentences
    result = probekit.probe(caches["train"], caches["dev"], task=names[1], data_dir=data, controls=0, resamples=0)
    (row,) = result.rows.query("metric == 'accuracy' and layer == 0").to_dict("records")
    assert row["task"] == "treebank:subj-number:xx_toy"
    assert row["n"] == len(load_task(names[1], data).split("dev"))
