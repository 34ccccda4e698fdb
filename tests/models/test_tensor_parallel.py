"""Two processes that share a model (gloo, on the CPU) read what one reads, and none waits for ever."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from builders import word_task
from processes import in_two_processes

import probekit
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.transformers.encoder import all_layers
from probekit.models.transformers.packed import groups_of
from probekit.models.transformers.ranks import _described, _restored
from probekit.models.transformers.stock import check_plan

FAMILIES = ("llama", "gpt_neox", "olmo2", "mixtral")
SPLIT = {
    "llama": ["mlp_act", "value", "z"], "gpt_neox": ["mlp_act", "value", "z"], "olmo2": ["mlp_act"],
    "mixtral": ["value", "z"],
}  # fmt: skip
BATCH = Batch(np.arange(3, 12), np.zeros(9, np.uint8), np.array([9]))
HERE = Path(__file__).parent
PATH = {"PYTHONPATH": os.pathsep.join([*sys.path, str(HERE), str(HERE.parent)])}


@pytest.fixture(scope="module")
def shared(tiny_model, tmp_path_factory):
    """The folder, and what process 0 and process 1 found."""
    out = tmp_path_factory.mktemp("shared")
    folders = [str(tiny_model(family)) for family in FAMILIES]
    ended = in_two_processes((HERE / "sharing_a_model.py").read_text(), str(out), *folders, **PATH)
    assert [status for status, _ in ended] == [0, 0], ended
    return out, *(json.loads((out / f"found{rank}.json").read_text()) for rank in (0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_site_is_that_of_one_process(family, shared, tiny_model):
    """In float32, sums in another order differ by up to 1.1e-6 of a vector, as measured with seven families."""
    out, found, _ = shared
    of = found[family]
    with np.load(out / f"{family}.npz") as file:
        sites = {name: file[name] for name in file.files}
    names = sorted({name.partition(".")[0] if not name.isdigit() else "resid_post" for name in sites})
    one = load_encoder(tiny_model(family), device="cpu", onednn=False, sites=names)
    assert [*sites] == [*map(str, one.sites)]
    for (name, rows), right in zip(sites.items(), all_layers(one, BATCH), strict=True):
        error = torch.linalg.vector_norm(torch.from_numpy(rows) - right, dim=-1)
        assert (error <= 1e-5 * torch.linalg.vector_norm(right, dim=-1)).all(), name
    assert {"z", "value", "attn_out", "resid_pre", "final_norm"} <= {*names}
    assert of["passed"] is (of["refused"] == {})
    assert of["slices"] == SPLIT[family]
    assert [*of["refused"]] == (["attn_probs"] if "z" in of["slices"] else [])
    assert of["path"] == one.spec["path"]
    whole = sum(p.numel() for p in one.model.parameters())
    assert of["weights"] < 0.65 * whole  # GPT-NeoX's plan leaves the embeddings whole


@pytest.mark.slow
def test_a_slice_is_not_handed_out(shared):
    """Neither one that was taken for the whole, nor slices in another order."""
    for kind, why in (("a slice", "wrong by inf"), ("another order", "W_O z = attn_out is wrong by")):
        refused = shared[1]["planted"][kind]
        assert {"z", "value", "mlp_act"} <= {*refused}
        assert why in refused["z"]


@pytest.mark.slow
def test_process_0_writes_the_cache(shared, tiny_model):
    out, first, second = shared
    told, heard = first["caches"], second["caches"]
    assert {name for name, error in told.items() if error} == {"other", "stumbled"}
    assert "holds other activations" in told["other"]
    assert heard["stumbled"] == "ModelError: process 0 of the model has ended: the sink is full"
    assert {name for name, error in heard.items() if error} == {"other", "stumbled"}
    model, task = tiny_model("llama"), word_task(sizes={"train": 90})
    for name, how, sites in (("one.h5", {"tokens": True}, None), ("shards", {}, "z,mlp_act,resid_post")):
        encoder = load_encoder(model, device="cpu", onednn=False, sites=sites)
        right = probekit.cache_activations(encoder, task, out=out / f"alone-{name}.h5", **how)
        found = probekit.ActivationCache(out / name)
        assert found.spec["tp_size"] == 2
        assert probekit.verify(out / name).ok
        assert [*found.layers] == [*right.layers]
        for layer in right.layers:
            np.testing.assert_allclose(found.layer(layer), right.layer(layer), atol=1e-5, rtol=1e-5)
    early, whole = (probekit.ActivationCache(out / name).layer("1") for name in ("early.h5", "one.h5"))
    np.testing.assert_array_equal(early, whole)  # both processes stop after it
    assert [p.name for p in (out / "shards").iterdir() if p.suffix != ".h5"] == ["manifest.json"]


ENDS = """
import sys
import probekit
from probekit.activations.writing import job
from builders import word_task
load = job.load

def loaded(loading):
    encoder = load(loading)
    if not encoder.ranks.rank:
        return encoder
    raise SystemExit(3)  # while process 0 begins to send it work

job.load, sys.argv[3:] = loaded, []
from probekit.activations.writing import loading
loading.load = loaded
try:
    task = word_task(sizes={"train": 90})
    probekit.cache_activations(sys.argv[1], task, out=sys.argv[2], device="cpu", tp_plan="auto")
except Exception as error:
    print(f"{type(error).__name__}: {error}")
    raise SystemExit(2)
"""


@pytest.mark.slow
def test_a_process_that_ends_ends_the_others(tiny_model, tmp_path):
    out = tmp_path / "cache.h5"
    (status, said), (other, _) = in_two_processes(ENDS, str(tiny_model("llama")), str(out), **PATH)
    assert (status, other) == (2, 3)
    assert "ModelError: another process that holds a part of the model has ended" in said
    assert not out.exists()


WRITES = """
import sys
import probekit
from builders import word_task
out, *folders = sys.argv[1:]
for k, folder in enumerate(folders):
    task = word_task(sizes={"train": 9})
    how = {"device": "cpu", "tp_plan": "auto", "tokens": True, "generate": "max_new_tokens=7,together=4"}
    probekit.cache_activations(folder, task, out=f"{out}/{k}.h5", **how)
"""


@pytest.mark.slow
def test_two_processes_write_what_one_writes(tmp_path):
    """With full attention, sliding windows of 4 pieces, and experts; some texts end before others."""
    folders = []
    for family in ("llama", "gemma2", "mixtral"):
        folders.append(tiny.tiny_language_model(family, tmp_path / family, causal=True, seed=2))
        ends = probekit.cache_activations(
            folders[-1], task := word_task(sizes={"train": 9}), out=tmp_path / f"first-{family}.h5", device="cpu",
            generate="max_new_tokens=7,together=4",
        ).generated_pieces[0][2:3]  # fmt: skip
        path = folders[-1] / "generation_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": ends.tolist()}))
    ended = in_two_processes(WRITES, str(tmp_path), *map(str, folders), **PATH)
    assert [status for status, _ in ended] == [0, 0], ended
    for k, folder in enumerate(folders):
        right = probekit.cache_activations(
            folder,
            task,
            out=tmp_path / f"alone-{k}.h5",
            tokens=True,
            device="cpu",
            generate="max_new_tokens=7,together=4",
        )
        found = probekit.ActivationCache(tmp_path / f"{k}.h5")
        assert [*found.generated] == [*right.generated]
        assert len({len(pieces) for pieces in found.generated_pieces}) > 1
        for layer in right.layers:
            np.testing.assert_allclose(
                np.concatenate([*found.tokens(layer)]), np.concatenate([*right.tokens(layer)]), atol=1e-5, rtol=1e-5
            )


def test_refusals(tiny_model, tmp_path):
    """Without torchrun, without a plan, with heads that do not divide, with options that do not fit."""
    from transformers import AutoConfig

    llama, bert = tiny_model("llama"), tiny_model("bert")
    with pytest.raises(UsageError, match="there is one process; start several: torchrun"):
        load_encoder(llama, device="cpu", tp_plan="auto")
    with pytest.raises(UsageError, match="expected auto, the plan of transformers"):
        load_encoder(llama, device="cpu", tp_plan="rows")
    with pytest.raises(UsageError, match="'bert', for which transformers has no plan of tensor parallelism"):
        check_plan(bert, AutoConfig.from_pretrained(bert), 2)
    for size, heads in ((4, "2 heads of keys and values, which 4"), (3, "4 attention heads, which 3")):
        with pytest.raises(UsageError, match=heads):
            check_plan(llama, AutoConfig.from_pretrained(llama), size)
    check_plan(llama, AutoConfig.from_pretrained(llama), 2)
    for options, why in (
        ({"random_weights": 0}, "does not go with --random-weights"), ({"workers": 2}, "all processes are one worker"),
        ({"stateful": True}, "does not go with --stateful"), ({"tp_plan": "x"}, "expected auto"),
        ({"device_map": "auto"}, "does not go with --device-map"), ({}, "there is one process; start several"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            probekit.cache_activations(llama, word_task(), out=tmp_path / "a.h5", **{"tp_plan": "auto", **options})
    with pytest.raises(UsageError, match="pass tp_plan to load_encoder"):
        probekit.cache_activations(load_encoder(llama, device="cpu"), word_task(), tp_plan="auto")
    assert not [*tmp_path.iterdir()]


def test_arguments_of_a_pass_are_sent_whole():
    given = {
        "input_ids": torch.arange(6).view(1, 6), "mask": torch.tensor([True, False]), "use_cache": False,
        "probekit_groups": groups_of(np.array([1, 2, 3])), "token_type_ids": None,
    }  # fmt: skip
    found = _restored(*_described(given), torch.device("cpu"))
    assert [*found] == [*given]
    for name, value in given.items():
        assert torch.equal(found[name], value) if isinstance(value, torch.Tensor) else found[name] == value
