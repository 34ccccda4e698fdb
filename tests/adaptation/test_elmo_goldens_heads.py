"""AllenNLP's task models on ELMo, recorded: outputs, loss, and the norm of every gradient, ELMo's own among them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import originals
import pytest
import torch
from originals import renamed, scalar_mix

from probekit.adaptation.heads import bcn, bilstm
from probekit.adaptation.heads.head import IGNORED, States
from probekit.metrics import metric
from probekit.models.elmo.characters import character_ids
from probekit.models.elmo.files import convert_elmo
from probekit.models.scalar_mix import ScalarMix
from probekit.models.transformers.stock import load_model

SHARED = Path(__file__).parents[2] / "../shared/goldens"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not SHARED.is_dir(), reason=f"the recorded outputs are not at {SHARED}"),
]

ELMO = (
    (r"_token_embedder\._char_embedding_weights", "embeddings.characters.weight"),
    (r"_token_embedder\.char_conv_(\d)\.", r"embeddings.filters.\1."),
    (r"_token_embedder\._highways\._layers\.(\d)\.", r"embeddings.highways.\1.linear."),
    (r"_token_embedder\._projection\.", "embeddings.projection."),
    (r"_elmo_lstm\.(forward|backward)_layer_(\d)\.input_linearity\.weight", r"layers.\2.\1_lstm.input.weight"),
    (r"_elmo_lstm\.(forward|backward)_layer_(\d)\.state_linearity\.weight", r"layers.\2.\1_lstm.recurrent.weight"),
    (r"_elmo_lstm\.(forward|backward)_layer_(\d)\.state_linearity\.bias", r"layers.\2.\1_lstm.input.bias"),
    (r"_elmo_lstm\.(forward|backward)_layer_(\d)\.state_projection\.", r"layers.\2.\1_lstm.projection."),
)
"""Names of ELMo's parameters in AllenNLP, and ours: the same numbers, in another order here and there."""


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    folder = convert_elmo(
        SHARED / "elmo/options.json", SHARED / "elmo/lm_weights.hdf5", tmp_path_factory.mktemp("elmo") / "elmo"
    )
    return lambda *, trained: load_model(folder).requires_grad_(requires_grad=trained)


def recorded(name):
    with np.load(SHARED / f"task_models/{name}.npz") as file:
        found = {key: torch.from_numpy(file[key]) for key in file if file[key].dtype.kind != "U"}
        weights = {key.removeprefix("w/"): value for key, value in found.items() if key.startswith("w/")}
        texts = {key: [str(x) for x in file[key]] for key in file if file[key].dtype.kind == "U"}
    return found, weights, texts


def mix_of(weights, prefix):
    mix = ScalarMix(3)
    mix.load_state_dict(scalar_mix(weights, prefix))
    return mix


def norms_of(embedding, head, prefixes, mixes, net, names):
    """Norms of our gradients by AllenNLP's names."""
    ours = {old: head.get_parameter(new) for new, old in renamed({n: n for n in names}, prefixes).items()}
    found = {}
    for name in names:
        if name.endswith("token_embedder_tokens.weight"):
            grad = embedding.grad
        elif name in ours:
            grad = ours[name].grad
        elif match := re.match(r"(.*scalar_mix_\d\.)(gamma|scalar_parameters\.(\d))$", name):
            mix = mixes[match[1]]
            grad = mix.gamma.grad if match[2] == "gamma" else mix.scalar_parameters.grad[int(match[3])]
        else:
            for theirs, own in ELMO:
                name_here, done = re.subn(rf".*_elmo_lstm\.{theirs}", own, name)
                if done:
                    grad = net.get_parameter(name_here).grad
        found[name] = float(grad.double().norm())
    return found


def check_norms(found, golden):
    """Each within 1e-4 of its own size; what is 0 but for rounding, within 1e-6."""
    np.testing.assert_allclose(list(found.values()), golden["grad_norms"], rtol=1e-4, atol=1e-6)
    total = float(np.linalg.norm(list(found.values())))
    assert total == pytest.approx(golden["grad_total_norm"].item(), rel=1e-5)


@pytest.mark.parametrize("trained", [False, True])
def test_bcn_on_two_mixes(trained, elmo):
    golden, weights, texts = recorded(f"bcn_elmo_ft{int(trained)}")
    tokens = json.loads((SHARED / "task_models/bcn_elmo_tokens.json").read_text())
    net = elmo(trained=trained)
    head = bcn.BCN(44, 5, hidden_size=(8, 6, 7, 9), extra=32).eval()
    head.load_state_dict(renamed(weights, originals.BCN))
    mixes = {f"_elmo.scalar_mix_{i}.": mix_of(weights, f"_elmo.scalar_mix_{i}.") for i in range(2)}
    embedding = weights["_text_field_embedder.token_embedder_tokens.weight"].requires_grad_()
    assert all(
        (golden["char_ids"][i, : len(t)] == torch.from_numpy(character_ids(t))).all() for i, t in enumerate(tokens)
    )
    out = net(input_ids=golden["char_ids"].long(), output_hidden_states=True)
    mask, hidden = golden["mask"] > 0, torch.stack(out.hidden_states)
    first, second = (mix(hidden, mask) for mix in mixes.values())
    batch = States(torch.cat([embedding[golden["ids"]], first], -1), mask, torch.zeros_like(mask))
    logits = head(batch, extra=second)
    loss = head.loss(logits, golden["label"], batch)
    loss.backward()
    np.testing.assert_allclose(logits.detach(), golden["logits"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(loss.detach(), golden["loss"], rtol=0, atol=1e-5)
    check_norms(norms_of(embedding, head, originals.BCN, mixes, net, texts["grad_names"]), golden)
    assert all((p.grad is not None) == trained for p in net.parameters())


@pytest.mark.parametrize("ends", [0, 1])
def test_the_tagger_from_its_words(ends, elmo):
    golden, weights, texts = recorded(f"crf_tagger_elmo_se{ends}")
    meta = json.loads((SHARED / "task_models/crf_tagger_meta.json").read_text())
    net, labels, mask = elmo(trained=False), meta["labels"], golden["mask"] > 0
    head = bilstm.BiLSTMCRF(42, 9, label_names=labels, hidden_size=9, include_start_end_transitions=bool(ends)).eval()
    head.load_state_dict(renamed(weights, originals.BILSTM))
    prefix = "text_field_embedder.token_embedder_elmo._elmo.scalar_mix_0."
    mix = mix_of(weights, prefix)
    embedding = weights["text_field_embedder.token_embedder_tokens.weight"].requires_grad_()
    words = [word for sentence in meta["tokens"] for word in sentence]
    ids = torch.zeros(mask.shape, dtype=torch.int64)
    ids[mask] = torch.arange(len(words))
    characters = torch.from_numpy(character_ids(words))  # our own, which are numbered here
    assert torch.equal(characters.long(), golden["char_ids"][mask].long())
    out = net(input_ids=ids, attention_mask=mask, characters=characters, output_hidden_states=True)
    hidden = torch.cat([mix(torch.stack(out.hidden_states), mask), embedding[golden["ids"]]], -1)
    places = torch.arange(mask.shape[1]).where(mask, -1)
    batch = States(hidden, mask, torch.zeros_like(mask), places)
    logits, tags = head(batch), golden["tags"].where(mask, IGNORED)
    loss = head.loss(logits, tags, batch) * len(mask)  # theirs is the sum over sentences
    loss.backward()
    np.testing.assert_allclose(logits[mask].detach(), golden["logits"][mask], rtol=0, atol=3e-6)
    assert loss.item() == pytest.approx(golden["loss"].item(), abs=1e-5)
    paths = head.predict(logits, batch)
    np.testing.assert_array_equal(paths, golden["viterbi"].where(mask, IGNORED))
    check_norms(norms_of(embedding, head, originals.BILSTM, {prefix: mix}, net, texts["grad_names"]), golden)
    said = [[labels[t] for t in row[row != IGNORED]] for row in paths]
    theirs = dict(zip(texts["metrics_names"], golden["metrics"].tolist(), strict=True))
    assert metric("span-f1").function(meta["gold"], said) == pytest.approx(theirs["f1-measure-overall"], abs=1e-9)
    assert metric("token-accuracy").function(meta["gold"], said) == pytest.approx(theirs["accuracy"], abs=1e-9)
