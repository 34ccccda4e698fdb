"""Every format that was ever written is read, and read as it was."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from probekit.activations import ActivationCache, verify

GOLDEN = Path(__file__).parents[1] / "golden" / "activations-1.h5"


def test_format_1():
    assert verify(GOLDEN).ok
    with ActivationCache(GOLDEN) as cache:
        assert cache.spec_id == "7ac30f2b795429775ed6349aca0f49f9"
        assert (cache.layers, cache.poolings, len(cache)) == (("0", "1", "2"), ("mean", "first"), 6)
        assert list(cache.ids) == [f"golden-{i}" for i in range(6)]
        assert list(cache.domains) == list("aaabbb")
        assert cache.spec["label_names"] == ["no", "yes"]
        np.testing.assert_array_equal(cache.labels, [0, 1, 0, 1, 0, 1])
        mean = cache.layer(2)
        np.testing.assert_array_equal(
            mean[0, :3], np.float32([0.04724855720996857, 0.9577272534370422, 0.4645287096500397])
        )
        np.testing.assert_array_equal(mean[3], mean[0])
        assert not mean[2].any()
        assert (cache.origin, cache.recipe) == ({}, None)  # which it does not tell
        assert "golden-bert" in cache._repr_html_()
        np.testing.assert_array_equal(cache.tokens(1)[1][2, :3], np.float32([-0.6532728, -2.2286603, 0.49948317]))
        assert [len(x) for x in cache.tokens(1)] == list(cache.index("length")) == [5, 8, 2, 5, 6, 5]


def test_format_1_with_h5py_alone():
    with h5py.File(GOLDEN) as f:
        assert f.attrs["format"] == "probekit-activations/1"
        assert f["/tokens/2"].shape == (26, 8)
        assert f["/index/token_ids"] == f["/pieces/token_ids"]
        assert f["/blocks"].dtype.names == ("dataset", "start", "stop", "xxh3")
