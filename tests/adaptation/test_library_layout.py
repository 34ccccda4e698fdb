"""The folder of a run read by transformers alone: what it says of the labels, and the same logits where it can."""

import json
import shutil

import pytest
import torch
from lessons import SHORT, amounts, animals, count, pairs, praise, tags
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification

from probekit.activations import cache_activations
from probekit.adaptation.heads.library import CLASSIFIERS, TAGGERS
from probekit.adaptation.runs.evaluation import load_learner, predict_run
from probekit.adaptation.train import train

ONCE = SHORT | {"epochs": 1, "batch_size": 16, "learning_rate": 1e-2, "warmup": 0.0, "keep": "last"}
SIBLINGS = {"xlm-roberta": "roberta", "camembert": "roberta"}
"""Types of model whose weights have the names of another's."""


def model_of(kind, tiny_model, tmp_path):
    if kind not in SIBLINGS:
        return tiny_model(kind)
    folder = shutil.copytree(tiny_model(SIBLINGS[kind]), tmp_path / kind)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": kind}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def batch_of(learner, *texts):
    """Padded pieces without regard to what they mean, as both sides read them."""
    generator, config = torch.Generator().manual_seed(0), learner.encoder.config
    lowest = (config.pad_token_id or 0) + 1
    ids = torch.randint(lowest, config.vocab_size, (3, 9), generator=generator)
    mask = torch.ones_like(ids)
    ids[1, 6:], mask[1, 6:] = config.pad_token_id or 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def assert_same_logits(run, auto, words):
    learner, _ = load_learner(run)
    theirs, report = auto.from_pretrained(run, output_loading_info=True)
    assert not any(report.values()), report
    assert config_of(run)["architectures"] == [type(theirs).__name__]
    inputs = batch_of(learner)
    mask = inputs["attention_mask"] > 0
    places = {"words": torch.arange(mask.shape[1]).repeat(len(mask), 1)} if words else {}
    with torch.no_grad():
        found = theirs.eval()(**inputs).logits
        right = learner.head(learner.states({**inputs, "special": torch.zeros_like(mask), **places}))
    where = mask if words else slice(None)
    assert float(right[where].std()) > 1e-2  # the weights are drawn wide
    assert torch.allclose(found[where], right[where], atol=1e-5, rtol=1e-5)
    return theirs


FAST = ("roberta",)


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[] if k in FAST else pytest.mark.slow) for k in TAGGERS])
def test_a_tagger(kind, tiny_model, tmp_path):
    run = train(tags(16, 6), model_of(kind, tiny_model, tmp_path), tmp_path / "run", head="softmax", **ONCE)
    theirs = assert_same_logits(run.path, AutoModelForTokenClassification, words=True)
    assert theirs.config.id2label == {0: "O", 1: "B-X", 2: "I-X"}
    assert theirs.config.label2id == {"O": 0, "B-X": 1, "I-X": 2}


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[] if k in FAST else pytest.mark.slow) for k in CLASSIFIERS])
def test_a_classifier_of_sentences(kind, tiny_model, tmp_path):
    run = train(praise(16, 6), model_of(kind, tiny_model, tmp_path), tmp_path / "run", **ONCE, pooling="pooler")
    theirs = assert_same_logits(run.path, AutoModelForSequenceClassification, words=False)
    assert theirs.config.id2label == {0: "bad", 1: "good"}
    again = predict_run(run.path, praise(16, 6), "dev", device="cpu")
    assert again.metrics == pytest.approx(run.metrics)


PROBLEMS = {"count": "regression", "amounts": "regression", "animals": "multi_label_classification"}


@pytest.mark.parametrize(
    "task", [count(16, 6), animals(16, 6), amounts(16, 6), pytest.param(pairs(16, 6), marks=pytest.mark.slow)]
)
def test_numbers_labels_and_pairs(task, tiny_bert, tmp_path):
    run = train(task, tiny_bert, tmp_path / "run", save_at="0", **ONCE)
    names = task.label_names or ("LABEL_0",)
    for folder in (run.path, run.path / "step-0"):
        theirs = assert_same_logits(folder, AutoModelForSequenceClassification, words=False)
        assert theirs.config.problem_type == PROBLEMS.get(task.name)
        assert theirs.config.num_labels == config_of(folder)["num_labels"] == len(names)
        assert theirs.config.id2label == dict(enumerate(names))


@pytest.mark.parametrize(
    ("family", "task", "options"),
    [
        pytest.param("bert", praise(16, 6), {"pooling": "mean"}, marks=pytest.mark.slow),
        ("bert", tags(16, 6), {"head": "crf"}),
        pytest.param("gpt2", praise(16, 6), {}, marks=pytest.mark.slow),
        pytest.param("bert", tags(16, 6), {"head": "softmax", "mix": True}, marks=pytest.mark.slow),
        pytest.param("bert", pairs(16, 6), {"pairs": "separate"}, marks=pytest.mark.slow),
        pytest.param("electra", praise(16, 6), {}, marks=pytest.mark.slow),
        pytest.param("t5", praise(16, 6), {}, marks=pytest.mark.slow),
    ],
)
def test_a_head_that_transformers_lacks_is_not_called_its_own(family, task, options, tiny_model, tmp_path):
    run = train(task, tiny_model(family), tmp_path / "run", **ONCE, **options)
    config, names = config_of(run.path), dict(enumerate(task.label_names))
    assert config["architectures"] == config_of(tiny_model(family))["architectures"]
    assert (config["num_labels"], config["id2label"]) == (len(names), {str(i): name for i, name in names.items()})
    assert AutoModel.from_pretrained(run.path).config.id2label == names
    assert not [name for name in load_file(run.path / "model.safetensors") if "classifier" in name or "score" in name]


def test_what_it_learned_before_is_no_longer_said(tiny_bert, tmp_path):
    first = train(count(16, 6), tiny_bert, tmp_path / "first", **ONCE)
    second = train(tags(16, 6), first.path, tmp_path / "second", head="crf", **ONCE)
    config = config_of(second.path)
    assert (config["architectures"], config["num_labels"]) == (["BertModel"], 3)
    assert "problem_type" not in config


@pytest.mark.slow
@pytest.mark.parametrize(("family", "task"), [("bert", tags(16, 6)), ("roberta", praise(16, 6))])
def test_it_is_still_a_model(family, task, tiny_model, tmp_path):
    """Its layers are the encoder's; the pooler, which the library's class lacks or calls its own, goes on."""
    head = "softmax" if task.name == "tags" else "linear"
    run = train(task, tiny_model(family), tmp_path / "run", head=head, **ONCE)
    learner, _ = load_learner(run.path)
    own = learner.encoder.state_dict()
    second = train(praise(16, 6), run.path, tmp_path / "second", save_at="0", **ONCE)
    before = load_learner(second.path / "step-0")[0].encoder.state_dict()
    assert any("pooler" in name for name in own)
    assert all(torch.equal(own[name], before[name]) for name in own)
    caches = [tmp_path / "one.h5", tmp_path / "two.h5"]
    for model, out in zip((run.path, second.path / "step-0"), caches, strict=True):
        cache_activations(model, praise(16, 6), "dev", out=out).close()
    import h5py

    with h5py.File(caches[0]) as one, h5py.File(caches[1]) as two:
        assert (one["pooled/mean/2"][:] == two["pooled/mean/2"][:]).all()
