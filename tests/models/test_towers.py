"""Checkpoints that also see images or hear: saved whole, their text part is read as the model's own language model."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from test_layers import batches

import probekit
from probekit.errors import ModelError, UsageError
from probekit.models import load_encoder
from probekit.models.scoring import load_scorer
from probekit.models.transformers.encoder import all_layers

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import tiny_models

TEXTS = ["the cat sleeps.", "a small old dog sees the bird in the garden!", "dog"]
LATER = ["llava", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "paligemma", "idefics3", "llava_onevision", "mistral3"]
KINDS = ["gemma3", "mllama", *(pytest.param(kind, marks=pytest.mark.slow) for kind in LATER)]


@pytest.fixture(scope="module")
def tower(tmp_path_factory):
    made = {}

    def get(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("towers") / kind
            tiny_models.save_tiny(kind, made[kind])
        return made[kind]

    return get


def whole(folder, **how):
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    return getattr(transformers, name).from_pretrained(folder, **how).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_those_of_the_whole_model_given_texts(kind, tower):
    encoder, model = load_encoder(tower(kind), onednn=False), whole(tower(kind)).double()
    encoder.model.double()
    assert any(name.startswith(("vision", "visual")) for name in encoder.spec["left_out"])
    assert not any("vision" in name or "visual" in name for name, _ in encoder.model.named_parameters())
    for batch in batches(encoder.tokenize(TEXTS)):
        ids = torch.tensor(batch.token_ids[None].astype(np.int64))
        with torch.inference_mode():
            states = model(input_ids=ids, output_hidden_states=True).hidden_states
        ours = all_layers(encoder, batch)
        assert len(states) == encoder.depth + 1 == len(ours) - encoder.final_norm
        for layer, right in enumerate(states[:-1]):
            torch.testing.assert_close(ours[layer], right[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(ours[-1], states[-1][0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_scored_by_the_whole_model(kind, tower):
    scorer, model = load_scorer(tower(kind)), whole(tower(kind))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tower(kind))
    for text in TEXTS:
        ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text)["input_ids"]]])
        with torch.inference_mode():
            log_p = model(input_ids=ids).logits[0].log_softmax(-1)
        right = float(log_p[:-1].gather(1, ids[0, 1:, None]).sum())
        assert scorer.score([text])["log-probability"][0, 0] == pytest.approx(right, rel=1e-5)


@pytest.mark.parametrize("kind", ["gemma3", pytest.param("mllama", marks=pytest.mark.slow)])
def test_training_leaves_a_model_of_texts(kind, tower, tmp_path):
    (tmp_path / "texts.tsv").write_text("text\tlabel\nthe cat sleeps\tno\nthe dog runs\tyes\n")
    (tmp_path / "task.toml").write_text('[splits]\ntrain = "texts.tsv"\ndev = "texts.tsv"\n')
    run = probekit.train(tmp_path / "task.toml", tower(kind), tmp_path / "run", epochs=1, learning_rate=0.01)
    before, after = load_encoder(tower(kind)), load_encoder(run.path)
    assert after.spec["model_type"] == before.spec["model_type"] != kind
    assert "left_out" not in after.spec
    batch = batches(after.tokenize(TEXTS))[0]
    one, two = all_layers(before, batch), all_layers(after, batch)
    assert one.shape == two.shape
    assert not torch.allclose(one, two, atol=1e-3)


def test_what_is_left_out_is_said_and_random_weights_are_drawn(tower):
    encoder = load_encoder(tower("gemma3"), random_weights=1)
    assert encoder.spec["left_out"] == ["vision_tower", "multi_modal_projector"]
    assert encoder.spec["compared_with_whole"] is True
    assert not torch.equal(*(x.model.embed_tokens.weight for x in (encoder, load_encoder(tower("gemma3")))))


@pytest.mark.parametrize("error", [ValueError("You have to specify pixel_values"), torch.OutOfMemoryError()])
def test_a_comparison_that_cannot_be_made_is_recorded(error, tower, monkeypatch):
    def forward(*_, **__):
        raise error

    monkeypatch.setattr(transformers.Gemma3Model, "forward", forward)
    if isinstance(error, ValueError):
        assert load_encoder(tower("gemma3")).spec["compared_with_whole"] is False
    else:
        with pytest.raises(torch.OutOfMemoryError):
            load_encoder(tower("gemma3"))


def test_a_model_without_text_is_refused(tmp_path):
    tiny_models.save_tiny("siglip_vision_model", tmp_path)
    with pytest.raises(ModelError, match="reads no word pieces"):
        load_encoder(tmp_path)


def test_its_pretraining_is_not_continued(tower, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sleeps.\n" * 40)
    with pytest.raises(UsageError, match="reads images or sounds beside texts"):
        probekit.pretrain(tmp_path / "text.txt", tmp_path / "out", model=tower("gemma3"), context=8)
