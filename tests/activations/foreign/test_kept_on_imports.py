"""Kept probes score what a server's connector has written: through import, and directly as arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from others import Stock, write_vllm

import probekit
from probekit.errors import CacheMismatch
from probekit.models import load_encoder


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def kept(model, tmp_path_factory):
    """A probe of whole texts, of the model itself, and the states of other texts as a server would write them."""
    folder, encoder = tmp_path_factory.mktemp("kept"), load_encoder(model, device="cpu")
    task = probekit.load_task("grammar:sentiment")
    made = [
        probekit.cache_activations(encoder, task, s, limit=60, layers="2", out=folder / f"{s}.h5") for s in task.splits
        if s in ("train", "dev")
    ]  # fmt: skip
    probekit.probe(*made, controls=0, resamples=0, groups="none", keep=folder / "kept")
    texts = [e.text for e in task.split("dev").examples[100:112]]
    tokens = encoder.tokenize(texts)
    ids = np.split(tokens.token_ids.astype(np.int64), np.cumsum(tokens.length)[:-1])
    stock = Stock("gpt2", model)
    with torch.no_grad():
        states = [stock.model(torch.from_numpy(x)[None], output_hidden_states=True).hidden_states for x in ids]
    server = write_vllm(folder / "requests", ids, [[s[k][0] for s in states] for k in (1, 2)])
    return folder, encoder, texts, server, [s[2][0].numpy() for s in states]


def test_files_of_a_server(kept, model):
    """Their scores are those of reading the texts; labels beside them are measured."""
    folder, encoder, texts, server, states = kept
    probe = probekit.load_probe(folder / "kept")
    right = probe.score(texts, model=encoder)["score"].to_numpy()
    (folder / "labels.csv").write_text("label\n" + "".join(("negative\n", "positive\n")[i % 2] for i in range(12)))
    how = {"model": model, "layers": ("1", "2"), "labels": str(folder / "labels.csv"), "task": "served", "split": "dev"}
    cache = probekit.import_activations(server, out=folder / "served.h5", **how)
    found = probekit.apply(folder / "kept", cache, resamples=0)
    rows = found.rows[found.rows["metric"] == "probe-score"]
    np.testing.assert_allclose(rows["value"], right, rtol=1e-4, atol=1e-4)  # of sums in another order
    assert rows["example"].tolist() == cache.ids.tolist()
    assert found.rows["metric"].iloc[0] == "accuracy"
    direct = np.stack([x.mean(0) for x in states])  # the vectors themselves
    np.testing.assert_allclose(probe.decision_function(direct), right, rtol=1e-4, atol=1e-4)


def test_another_precision_is_refused(kept, model):
    """A server in bfloat16 computes other vectors than those of the probe."""
    folder = kept[0]
    stock = Stock("gpt2", model, lengths=(6,) * 4, seed=3)
    low = write_vllm(folder / "low", stock.ids, [[x.bfloat16() for x in stock["2"]]])
    how = {"model": model, "layers": ("2",), "certify": 0}
    cache = probekit.import_activations(low, out=folder / "low.h5", **how)
    with pytest.raises(CacheMismatch, match="bfloat16"):
        probekit.apply(folder / "kept", cache)
    assert len(probekit.apply(folder / "kept", cache, anyway=True).rows) == 4
