"""Fine-tuning, through the front door: what is learned, what stays frozen, and what each family leaves."""

import logging
import re

import numpy as np
import pytest
import torch
from lessons import SHORT, count, pairs, praise, tags, weights
from safetensors.torch import load_file
from tiny import DECODERS, FAMILIES

from probekit.activations import ActivationCache, cache_activations
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.train import train
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.transformers.encoder import all_layers
from probekit.sites import FINAL_NORM
from probekit.tasks.task import TaskKind

STEEP = {"epochs": 8, "batch_size": 8, "learning_rate": 2e-3, "device": "cpu", "warmup": 0.1}


@pytest.mark.parametrize(
    ("task", "options", "metric", "least"),
    [
        # chance: 0.5; no correlation; below 0.4, and 0.67 where no word is an animal
        (praise(120, 80), {}, "accuracy", 0.8),
        pytest.param(count(120, 80), {"pooling": "mean"}, "pearson", 0.6, marks=pytest.mark.slow),
        pytest.param(tags(120, 60), {"head": "crf"}, "span-f1", 0.6, marks=pytest.mark.slow),
        pytest.param(tags(120, 60), {"head": "softmax"}, "token-accuracy", 0.85, marks=pytest.mark.slow),
    ],
    ids=["praise", "count", "tags-crf", "tags-softmax"],
)
def test_it_learns(task, options, metric, least, tiny_model, tmp_path):
    run = train(task, tiny_model("minilm"), tmp_path / "run", **STEEP | options)
    assert run.metrics[metric] > least
    losses = run.rows[(run.rows["split"] == "train")]["value"]
    assert losses.iloc[-1] < 0.5 * losses.iloc[0]


@pytest.mark.slow
def test_shuffled_labels_are_not_learned(tiny_model, tmp_path):
    from dataclasses import replace

    from probekit.tasks.task import Split, Task

    task, rng = praise(160, 80), np.random.default_rng(5)
    train_split = Split("train", tuple(replace(e, label=int(rng.integers(2))) for e in task.split("train")))
    control = Task(task.name, task.kind, {**task.splits, "train": train_split}, task.label_names, task.metrics)
    run = train(control, tiny_model("minilm"), tmp_path / "run", keep="last", **STEEP | {"epochs": 3})
    assert run.metrics["accuracy"] < 0.75


@pytest.mark.slow
def test_a_frozen_encoder_stays_bit_for_bit(tiny_bert, tmp_path):
    run = train(praise(), tiny_bert, tmp_path / "run", unfreezing="top", **SHORT)
    before, after = load_file(tiny_bert / "model.safetensors"), load_file(run.path / "model.safetensors")
    after = {name.removeprefix("bert."): w for name, w in after.items()}  # BertForSequenceClassification
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.startswith("pooler.") for name in changed)  # the pooler belongs to the head
    first = train(praise(), tiny_bert, tmp_path / "first", unfreezing="top", pooling="first", **SHORT)
    after = load_file(first.path / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_gradual_unfreezing_begins_at_the_top(tiny_bert, tmp_path):
    run = train(praise(), tiny_bert, tmp_path / "run", unfreezing="gradual", pooling="first", save_at="epochs", **SHORT)
    before = load_file(tiny_bert / "model.safetensors")

    def changed(step):
        after = load_file(run.path / f"step-{step}" / "model.safetensors")
        return {name for name in before if not torch.equal(before[name], after[name])}

    assert not changed(0)
    assert not changed(5)
    assert changed(10)
    assert all(name.startswith("encoder.layer.2.") for name in changed(10))


def layers_in_memory(learner, encoder, texts):
    """Every layer of each text: what enters the blocks and leaves them, by hooks on the learner's own encoder."""
    from probekit.models.transformers.blocks import find_blocks

    net, found = learner.encoder, []
    blocks = find_blocks(net)
    handles = [
        block.register_forward_pre_hook(
            lambda _, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
        )
        for block in blocks
    ]
    handles.append(
        blocks[-1].register_forward_hook(lambda _, args, out: last.append(out[0] if isinstance(out, tuple) else out))
    )
    tokens = encoder.tokenize(texts)
    at = np.cumsum(tokens.length) - tokens.length
    with torch.no_grad():
        for start, length in zip(at, tokens.length, strict=True):
            seen, last = [], []
            ids = torch.from_numpy(tokens.token_ids[start : start + length].astype(np.int64))[None]
            types = torch.from_numpy(tokens.type_ids[start : start + length].astype(np.int64))[None]
            more = {"token_type_ids": types} if encoder.tokenizer.type_ids else {}
            out = net(input_ids=ids, attention_mask=torch.ones_like(ids), **more).last_hidden_state
            final = [out] if FINAL_NORM in encoder.sites else []
            found.append(torch.cat([*seen, last[-1], *final])[:, :, :])
    for handle in handles:
        handle.remove()
    return found, tokens


QUICK = ("gpt2",)


@pytest.mark.parametrize("family", [pytest.param(f, marks=[] if f in QUICK else pytest.mark.slow) for f in FAMILIES])
def test_what_is_left_is_what_was_trained(family, tiny_model, tmp_path):
    """One step; the folder read by load_encoder and by cache_activations gives the layers of the learner in memory."""
    model, task = tiny_model(family), praise(16, 6)
    options = SHORT | {"epochs": 1, "batch_size": 16, "learning_rate": 1e-2, "warmup": 0.0, "save_at": "0,1"}
    run = train(task, model, tmp_path / "run", keep="last", **options)
    assert run.card["head"]["pooling"] == ("last" if family in DECODERS else run.card["head"]["pooling"])
    assert {k for k in weights(run.path) if "model" in k} == {k for k in weights(run.path / "step-1") if "model" in k}
    before, first, after = (load_encoder(path) for path in (model, run.path / "step-0", run.path))
    assert before.sites == first.sites == after.sites
    learner, card = load_learner(run.path)
    assert card["step"] == 1
    texts = [e.text for e in task.split("dev")]
    right, tokens = layers_in_memory(learner, after, texts)
    places = np.cumsum(tokens.length) - tokens.length
    differs = False
    for i, (start, length) in enumerate(zip(places, tokens.length, strict=True)):
        rows = slice(start, start + length)
        one = Batch(tokens.token_ids[rows], tokens.type_ids[rows], np.array([length]))
        a, b, c = (all_layers(encoder, one) for encoder in (before, first, after))
        assert torch.equal(a, b)  # step 0 is the pretrained model
        assert c.shape == right[i].shape
        assert torch.allclose(c, right[i], atol=2e-5, rtol=1e-4), float((c - right[i]).abs().max())
        differs |= not torch.allclose(a, c, atol=1e-3)
    assert differs
    with cache_activations(run.path, task, "dev", pooling=["mean"], out=tmp_path / "dev.h5") as cache:
        assert cache.layers == tuple(map(str, after.sites))
        told = {key: cache.spec[key] for key in ("model", "checkpoint", "step")}
        assert told == {"model": model.name, "checkpoint": "run", "step": 1}
        special = tokens.special
        for number, layer in enumerate(cache.layers):
            found = cache.layer(layer)
            for i, start in enumerate(places):
                kept = ~special[start : start + tokens.length[i]]
                assert np.allclose(found[i], right[i][number].numpy()[kept].mean(0), atol=3e-5, rtol=1e-4)


def test_the_tied_embedding_of_t5(tiny_model, tmp_path):
    """Its encoder alone is trained; the file holds the embedding once, and whoever loads it finds it tied."""
    from transformers import AutoModel

    run = train(praise(), tiny_model("t5"), tmp_path / "run", learning_rate=1e-2, **SHORT)
    stored = load_file(run.path / "model.safetensors")
    assert all(name.startswith("encoder.") for name in stored)
    before = load_file(tiny_model("t5") / "model.safetensors")
    assert not torch.equal(stored["encoder.embed_tokens.weight"], before["shared.weight"])
    learner, _ = load_learner(run.path)
    assert torch.equal(learner.encoder.embed_tokens.weight, stored["encoder.embed_tokens.weight"])
    encoder = AutoModel.from_pretrained(run.path).get_encoder()
    assert torch.equal(encoder.embed_tokens.weight, stored["encoder.embed_tokens.weight"])


@pytest.mark.parametrize(
    "way", [*(pytest.param(way, marks=pytest.mark.slow) for way in ("joint", "separate")), "bi-attention"]
)
def test_pairs(way, tiny_bert, tmp_path):
    options = {"head": "bi-attention"} if way == "bi-attention" else {"pairs": way}
    run = train(pairs(), tiny_bert, tmp_path / "run", **SHORT | {"epochs": 1}, **options)
    assert run.card["head"]["pairs_apart"] == (way != "joint")


@pytest.mark.slow
def test_a_run_is_a_model_to_train_on(tiny_bert, tmp_path):
    first = train(praise(), tiny_bert, tmp_path / "first", save_at="5", **SHORT)
    second = train(tags(), first.path / "step-5", tmp_path / "second", save_at="0", **SHORT | {"epochs": 1})
    one, two = (load_file(p / "model.safetensors") for p in (first.path / "step-5", second.path / "step-0"))
    shared = {name for name in one if name.startswith("bert.") and "pooler" not in name}
    assert {name for name in two if name.startswith("bert.")} == shared
    assert all(torch.equal(one[name], two[name]) for name in shared)
    assert second.card["model"] == f"{tiny_bert.name}@first-step-5"
    assert second.card["run"] == "second"


def test_from_scratch(tiny_bert, tmp_path):
    run = train(praise(), tiny_bert, tmp_path / "run", random_weights=3, save_at="0", **SHORT | {"epochs": 1})
    ours = load_encoder(run.path / "step-0")
    theirs = load_encoder(tiny_bert, random_weights=3)
    one = Batch(np.array([2, 7, 9, 3]), np.zeros(4, np.uint8), np.array([4]))
    assert torch.equal(all_layers(ours, one), all_layers(theirs, one))


@pytest.mark.slow
def test_checkpoints_share_their_layers(tiny_bert, tmp_path):
    run = train(praise(), tiny_bert, tmp_path / "run", save_at="log-spaced", **SHORT)
    assert {p.name for p in run.path.glob("step-*")} == {f"step-{n}" for n in (0, 1, 2, 4, 8, 10)}
    for step in (0, 4, 10):
        out = tmp_path / f"{step}.h5"
        cache_activations(run.path / f"step-{step}", praise(), "dev", out=out).close()
        with ActivationCache(out) as cache:
            assert cache.layers == ("0", "1", "2", "3")
            assert cache.spec["step"] == step


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["fine-tune", "feature-extraction"])
def test_what_is_cut_off_is_told(regime, tiny_bert, tmp_path, caplog):
    options = SHORT | {"epochs": 1, "regime": regime, "test": "test", "max_length": 5}
    options |= {"caches": tmp_path / "caches"} if regime == "feature-extraction" else {"save_at": "0"}
    for task, head in ((tags(), "softmax"), (praise(), "linear")):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="probekit.adaptation"):
            rows = train(task, tiny_bert, tmp_path / task.name, head=head, **options).rows
        rows = rows[rows["estimator"] == ""]  # without the constant answer
        if task.kind == TaskKind.CLASSIFICATION:
            assert set(rows["unread_words"]) == {0}
            for split in ("train", "dev", "test"):
                assert len(re.findall(rf"\d+ texts of praise {split} exceed the maximum", caplog.text)) == 1
            assert "words of" not in caplog.text
            continue
        for split in ("train", "dev", "test"):
            words = [len(e.words) for e in task.split(split)]  # three pieces stay between [CLS] and [SEP]
            unread = sum(max(0, n - 3) for n in words)
            assert set(rows.loc[rows["split"] == split, "unread_words"]) == {unread} != {0}
            assert f"{sum(n > 3 for n in words)} texts of tags {split} exceed the maximum length" in caplog.text
            assert f"{unread} words of tags {split} are truncated or have no pieces" in caplog.text
