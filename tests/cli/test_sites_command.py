"""``probekit sites``: what it prints, and its exit status."""

import json

import tiny

from probekit.models.sites import proof as room
from probekit.sites import Site


def test_a_table_of_all_sites(call, tiny_model):
    done = call("sites", tiny_model("gpt_neox"))
    assert done.status == 0
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in done.out.splitlines() if line.strip()}
    assert lines["attn_out"].startswith("0–2 32")
    assert lines["mlp_act"].startswith("0–2 64")
    assert lines["mlp_act"].endswith("W_down mlp_act = mlp_out")
    assert lines["resid_mid"].startswith("0–2 none: no module reads or returns")
    assert "resid_post.0 is layer 1" in " ".join(done.out.split())


def test_neighbouring_blocks_with_one_outcome_are_one_line(call, tmp_path):
    done = call("sites", tiny.tiny_model("qwen2_moe", tmp_path), "--json")
    report = json.loads(done.out)
    assert done.status == 0
    assert report["passed"] is True
    assert report["blocks"] == 3
    routers = [line for line in report["sites"] if line["site"] == "router_logits"]
    assert [line["blocks"] for line in routers] == [[0], [1], [2]]  # block 1 is no mixture of experts
    assert [line["lacking"] for line in routers] == [False, True, False]
    streams = [line for line in report["sites"] if line["site"] in ("resid_pre", "resid_post")]
    assert [line["blocks"] for line in streams if line["site"] == "resid_pre"] == [[0, 1, 2]]
    assert sorted(b for line in streams if line["site"] == "resid_post" for b in line["blocks"]) == [0, 1, 2]


def test_a_site_whose_identity_fails(call, tiny_model, monkeypatch):
    own = room.find_sites

    def swapped(model, recording):
        found = own(model, recording)
        found.taps[Site("mlp_out", 2)] = found.taps[Site("attn_out", 2)]
        return found

    monkeypatch.setattr(room, "find_sites", swapped)
    done = call("sites", tiny_model("gpt2"))
    assert done.status == 1
    said = " ".join(done.out.split())
    assert "refused: mlp_out = mlp_out_post is wrong by" in said
    assert "refused: W_down mlp_act = mlp_out is wrong by" in said


def test_models_without_such_sites(call, tmp_path):
    assert call("sites", tmp_path / "nothing").status == 2
