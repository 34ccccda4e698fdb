"""What cards of kept probes say of their data: groups, texts that dev shares with train, and stored precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tiny

import probekit
from tests.monitors.test_import_probe import task


@pytest.mark.parametrize("store", ["float16", "bfloat16"])
def test_the_card_says_groups_shared_texts_and_precision(store, tmp_path):
    encoder = probekit.load_encoder(tiny.tiny_model("bert", tmp_path / "tiny"), device="cpu")
    caches = [
        probekit.cache_activations(encoder, task("two"), split, store=store, layers="1", out=tmp_path / f"{split}.h5")
        for split in ("train", "dev")
    ]
    result = probekit.probe(*caches, controls=0, resamples=100, penalties=(1.0,), folds=2)
    probe, row = (
        result.probe(),
        result.rows[(result.rows["layer"] == 1) & (result.rows["metric"] == "log-loss")].iloc[0],
    )
    card = probe.card
    assert card["vectors"]["store"] == store
    for part, cache in (("train", caches[0]), ("dev", caches[1])):
        assert card[part]["grouped"] == (cache.groups is not None)
        assert card[part]["groups"] == (None if cache.groups is None else len(np.unique(cache.groups)))
        assert card[part]["data_digest"] == cache.spec["data_digest"]
    assert card["dev"]["seen_in_train"] == row["seen_in_train"] > 0
    loss = {one["metric"]: one for one in card["metrics"]}["log-loss"]
    assert loss["value_unseen"] == row["value_unseen"] != row["value"]
    renamed = replace(probe, card={**card, "classes": ["low", "high"]})
    assert probekit.load_probe(renamed.save(tmp_path / "renamed")).classes == ("low", "high")
