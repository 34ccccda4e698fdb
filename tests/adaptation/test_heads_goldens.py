"""The numbers of the original implementations, recorded: outputs, loss, and the norm of every gradient."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import originals
import pytest
import torch
from originals import renamed

from probekit.adaptation.heads import bcn, bilstm, max_mlp, pair
from probekit.adaptation.heads.crf import CRF, allowed_transitions
from probekit.adaptation.heads.head import IGNORED, States

SHARED = Path(__file__).parents[2] / "../shared/goldens/task_models"
EMBEDDING = "_text_field_embedder.token_embedder_tokens.weight"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not SHARED.is_dir(), reason=f"the recorded outputs are not at {SHARED}"),
]


def recorded(name):
    with np.load(SHARED / f"{name}.npz") as file:
        return {key: torch.from_numpy(file[key]) for key in file if file[key].dtype.kind != "U"}, (
            [str(n) for n in file["grad_names"]] if "grad_names" in file else []
        )


def weights(golden, prefix="w/"):
    return {key.removeprefix(prefix): value for key, value in golden.items() if key.startswith(prefix)}


def states(embedding, ids, second=None):
    return States(embedding[ids], ids > 0, torch.zeros_like(ids, dtype=torch.bool), second=second)


def check(head, embedding, batch, golden, names, prefixes):
    """Tolerances: independent code agreed to 3e-6 on logits (of up to 9) and 6e-7 on gradient norms (README there)."""
    assert set(renamed(weights(golden), prefixes)) == set(head.state_dict())  # one to one
    logits = head(batch)
    loss = head.loss(logits, golden["label"], batch)
    loss.backward()
    np.testing.assert_allclose(logits.detach(), golden["logits"], rtol=0, atol=3e-6)
    np.testing.assert_allclose(loss.detach(), golden["loss"], rtol=1e-6)
    ours = {old: dict(head.named_parameters())[new] for new, old in renamed({n: n for n in names}, prefixes).items()}
    norms = np.array([(embedding if n == EMBEDDING else ours[n]).grad.double().norm().item() for n in names])
    np.testing.assert_allclose(norms, golden["grad_norms"], rtol=2e-6, atol=1e-6)
    assert np.linalg.norm(norms) == pytest.approx(golden["grad_total_norm"].item(), rel=1e-6)


def test_esim():
    golden, names = recorded("esim")
    head = pair.ESIM(12, 3, hidden_size=(8, 8, 6, 10)).eval()
    head.load_state_dict(renamed(weights(golden), originals.ESIM))
    embedding = golden[f"w/{EMBEDDING}"].requires_grad_()
    batch = states(embedding, golden["premise_ids"], states(embedding, golden["hypothesis_ids"]))
    check(head, embedding, batch, golden, names, originals.ESIM)
    for name, sentence in (("premise", batch), ("hypothesis", batch.second)):
        encoded = bilstm.run(head.encoder, sentence.hidden, sentence.mask)
        np.testing.assert_allclose(encoded.detach(), golden[f"encoded_{name}"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("output", ["maxout", "feed-forward"])
def test_bcn(output):
    golden, names = recorded(f"bcn_{output.replace('-', '')}")
    head = bcn.BCN(12, 5, hidden_size=(8, 6, 7, 9), output=output).eval()
    head.load_state_dict(renamed(weights(golden), originals.BCN))
    embedding = golden[f"w/{EMBEDDING}"].requires_grad_()
    check(head, embedding, states(embedding, golden["ids"]), golden, names, originals.BCN)


GROUPS = [f"{scheme}_se{ends}" for scheme in ("none", "BIO", "BIOUL") for ends in (1, 0)]


@pytest.mark.parametrize("group", GROUPS)
def test_crf(group):
    golden, _ = recorded("crf")
    meta = json.loads((SHARED / "crf_meta.json").read_text())[f"{group}/"]
    golden = weights(golden, f"{group}/")
    scheme, labels = meta["constraint_type"], meta["labels"]
    allowed = None if scheme == "none" else allowed_transitions(scheme, labels)
    crf = CRF(len(labels), allowed=allowed, include_start_end_transitions=bool(meta["start_end"]))
    crf.load_state_dict({n: w for n, w in weights(golden).items() if n != "_constraint_mask"})
    logits, tags, mask = golden["logits"].requires_grad_(), golden["tags"], golden["mask"] > 0
    likelihood = crf.log_likelihood(logits, tags, mask).sum()
    likelihood.backward()
    paths, best = crf.viterbi(logits, mask)
    found = {
        "log_partition": crf.log_partition(logits, mask).detach(),
        "score": crf.log_partition(logits, mask, tags).detach(),
        "log_likelihood_sum": likelihood.detach(),
        "dlogits": logits.grad,
        "dtransitions": crf.transitions.grad,
        "viterbi_scores": best,
    }
    if meta["start_end"]:
        found |= {"dstart": crf.start_transitions.grad, "dend": crf.end_transitions.grad}
    for name, value in found.items():  # independent code agreed to 2e-6
        np.testing.assert_allclose(value, golden[name], rtol=2e-7, atol=3e-6, err_msg=name)
    np.testing.assert_array_equal(paths, golden["viterbi_paths"].where(golden["viterbi_paths"] >= 0, IGNORED))
    if allowed is not None:
        np.testing.assert_array_equal(allowed, golden["w/_constraint_mask"] > 0)


@pytest.mark.parametrize("scheme", ["BIO", "BIOUL", "IOB1", "BMES"])
def test_allowed_transitions(scheme):
    meta = json.loads((SHARED / "allowed_transitions.json").read_text())[scheme]
    assert allowed_transitions(scheme, meta["labels"]).nonzero().tolist() == meta["allowed"]


@pytest.mark.parametrize("ends", [0, 1])
def test_crf_tagger_from_its_logits(ends):
    """What follows the logits; their loss is the sum over sentences, ours the mean."""
    golden, names = recorded(f"crf_tagger_elmo_se{ends}")
    meta = json.loads((SHARED / "crf_tagger_meta.json").read_text())
    head = bilstm.BiLSTMCRF(
        42, 9, label_names=meta["labels"], hidden_size=9, include_start_end_transitions=bool(ends)
    ).eval()
    head.load_state_dict(renamed(weights(golden), originals.BILSTM))  # strict: every weight has its place
    mask = golden["mask"] > 0
    words = torch.arange(mask.shape[1]).where(mask, -1)
    batch = States(torch.zeros(*mask.shape, 42), mask, torch.zeros_like(mask), words)
    logits, labels = golden["logits"].requires_grad_(), golden["tags"].where(mask, IGNORED)
    loss = head.loss(logits, labels, batch) * len(mask)
    loss.backward()
    assert loss.item() == pytest.approx(golden["loss"].item(), abs=5e-6)
    viterbi = golden["viterbi"]
    np.testing.assert_array_equal(head.predict(logits, batch), viterbi.where(mask, IGNORED))
    norms = dict(zip(names, golden["grad_norms"].tolist(), strict=True))
    for name in [n for n in names if n.startswith("crf.")]:
        ours = head.get_parameter(name).grad.norm().item()
        assert ours == pytest.approx(norms[name], rel=2e-6), name
    projection = logits.grad.sum((0, 1))  # the gradient of the projection's bias
    assert projection.norm().item() == pytest.approx(norms["tag_projection_layer._module.bias"], rel=2e-6)


@pytest.mark.parametrize("name", ["single_max_mlp", "pair_noattn", "pair_attn"])
def test_classifiers_of_jiant(name):
    golden = recorded("jiant_heads")[0]
    mine = {key.removeprefix(f"{name}/"): value for key, value in golden.items() if key.startswith(f"{name}/")}
    if name == "pair_attn":
        head, prefixes = max_mlp.AttentionMaxMLP(10, 3, hidden_size=(4, 7)), originals.ATTENTION_MAX_MLP
    else:
        head, prefixes = max_mlp.MaxMLP(10, 3, hidden_size=(6, 7), apart=name.startswith("pair")), originals.MAX_MLP
    head.eval().load_state_dict(renamed(weights(mine), prefixes))
    both = []
    for i in "12":
        mask = golden[f"m{i}"] > 0
        both.append(States(golden[f"s{i}"], mask, torch.zeros_like(mask)))
    batch = both[0] if name.startswith("single") else replace(both[0], second=both[1])
    logits = head(batch)
    loss = head.loss(logits, golden["label"], batch)
    loss.backward()
    np.testing.assert_allclose(logits.detach(), mine["logits"], rtol=0, atol=2e-6)
    np.testing.assert_allclose(loss.detach(), mine["loss"], rtol=1e-6)
    norm = torch.stack([p.grad.double().norm() for p in head.parameters()]).norm().item()
    assert norm == pytest.approx(mine["grad_total"].item(), rel=1e-5)  # float32; 1.02e-6 on one processor
