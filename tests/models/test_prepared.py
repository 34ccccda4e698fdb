"""Models that transformers does not run on a text as they are saved, or whose last hidden state has another width."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_layers import TEXTS, batches
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from probekit.errors import ModelError
from probekit.models import load_encoder
from probekit.models.scoring import load_scorer
from probekit.models.transformers.encoder import all_layers
from probekit.models.transformers.writing import load_writer

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import tiny_models

TEXT = "the cat sees a small bird"


def saved(kind, folder, monkeypatch, **config):
    monkeypatch.setitem(tiny_models.OVERRIDES, kind, config)
    tiny_models.save_tiny(kind, folder)
    return folder


@pytest.mark.parametrize("norm", [False, True])  # OPT-350m has none
@torch.no_grad()
def test_a_last_hidden_state_of_the_width_of_the_embeddings(norm, tmp_path, monkeypatch):
    folder = saved("opt", tmp_path, monkeypatch, word_embed_proj_dim=16, do_layer_norm_before=norm)
    encoder, own, ends = load_encoder(folder, device="cpu"), AutoModelForCausalLM.from_pretrained(folder).eval(), []
    assert encoder.width == 32
    assert encoder.final_norm == norm
    assert encoder.spec["left_out"] == ["project_out"]
    decoder = own.model.decoder
    (decoder.final_layer_norm if norm else decoder.layers[-1]).register_forward_hook(lambda *x: ends.append(x[-1]))
    for batch in batches(encoder.tokenize(TEXTS)):
        ids = torch.tensor(batch.token_ids[None].astype(np.int64))
        ours, states = all_layers(encoder, batch), own(input_ids=ids, output_hidden_states=True).hidden_states
        torch.testing.assert_close(ours[:-1][: len(states) - 1], torch.cat(states[:-1]), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours[-1], ends[-1][0], rtol=1e-5, atol=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer.bos_token_id, *tokenizer(TEXT)["input_ids"]]
    right = own(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    score = load_scorer(folder, device="cpu").score([TEXT], ["log-probability"], layers=True)["log-probability"]
    assert score.shape == (1, encoder.depth + 1)
    assert score[0, -1] == pytest.approx(sum(float(right[t, ids[t + 1]]) for t in range(len(ids) - 1)), rel=1e-5)
    writer = load_writer(str(folder), folder, encoder)
    with writer.ready():
        [found] = writer.write([np.array(ids)], 1, lambda rows, logits: logits.argmax(-1).numpy())
    assert found.tolist() == [int(right[-1].argmax())]


@torch.no_grad()
def test_a_model_with_an_adapter_for_each_language_reads_english_or_what_its_configuration_says(
    tmp_path, monkeypatch, caplog
):
    folder = saved("xmod", tmp_path, monkeypatch, languages=["de_DE", "en_XX"])
    encoder, own = load_encoder(folder, device="cpu"), AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert (
        'texts are read as en_XX, since its config.json names no language. For another, add "default_la' in caplog.text
    )
    assert encoder.spec["language"] == "en_XX"
    batch = batches(encoder.tokenize(TEXTS))[1]
    ids = torch.tensor(batch.token_ids[None].astype(np.int64))
    found = {}
    for language in ("en_XX", "de_DE"):
        own.set_default_language(language)
        states = torch.cat(own(input_ids=ids, output_hidden_states=True).hidden_states)
        torch.testing.assert_close(all_layers(encoder, batch), states, rtol=1e-5, atol=1e-5)
        found[language] = load_scorer(folder, device="cpu").score([TEXT])["pll"]
        config = json.loads((folder / "config.json").read_text()) | {"default_language": "de_DE"}
        (folder / "config.json").write_text(json.dumps(config))
        encoder = load_encoder(folder, device="cpu")
    assert found["en_XX"] != found["de_DE"]


def test_blocks_that_are_not_called_as_modules_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="the code of SqueezeBertModel runs its blocks without calling them"):
        load_encoder(saved("squeezebert", tmp_path, monkeypatch), device="cpu")


@pytest.mark.parametrize("kind", ["zamba", "zamba2"])
def test_hybrids_that_share_their_blocks_of_attention_are_read(kind, tmp_path):
    tiny_models.save_tiny(kind, tmp_path)
    encoder = load_encoder(tmp_path, device="cpu")
    assert [*map(str, encoder.sites)] == ["0", "1", "2", "3", "4", "final_norm"]
