"""ELMo in both regimes, and the mix of an encoder's layers while it is trained, through the front door."""

import json

import numpy as np
import pytest
import torch
from lessons import SHORT, Stop, pairs, praise, stopping, tags, weights
from safetensors.torch import load_file
from test_resume import same
from tiny_elmo import tiny_elmo

from probekit.activations import ActivationCache, cache_activations
from probekit.adaptation.data.text import TextData
from probekit.adaptation.runs.evaluation import load_learner, predict_run
from probekit.adaptation.train import train
from probekit.adaptation.training.groups import layer_names, param_groups
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.models.elmo.characters import character_ids
from probekit.models.elmo.files import convert_elmo
from probekit.models.elmo.lstm import ProjectedLSTM, Steps
from probekit.models.encoder import Batch
from probekit.models.loading import text_reader
from probekit.models.transformers.encoder import all_layers
from probekit.models.transformers.onednn import train_with_onednn
from probekit.rows import layer_labels
from probekit.sites import FINAL_NORM
from probekit.tasks.task import Example, Split, Task

ONCE = SHORT | {"epochs": 1}
FEATURES = ONCE | {"regime": "feature-extraction"}


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    """A model folder of a tiny ELMo."""
    folder = tmp_path_factory.mktemp("published")
    return convert_elmo(*tiny_elmo(folder), tmp_path_factory.mktemp("elmo") / "elmo")


def of_encoder(encoder, texts):
    """Every layer of each text, run alone by an encoder: (layers, t, d)."""
    found = []
    for text in texts:
        t = encoder.tokenize([text])
        found.append(all_layers(encoder, Batch(t.token_ids, t.type_ids, t.length, t.characters)))
    return found


def of_learner(learner, folder, task, split="dev"):
    """The states that the head reads, of all examples in one padded batch."""
    data = TextData(task, task.split(split), text_reader(folder, learner.encoder.config), apart=False)
    with torch.no_grad():
        return learner.states(data.__getitems__(range(len(data)))["first"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "options", "metric", "least"),
    [
        (praise(120, 80), {"epochs": 6}, "accuracy", 0.8),  # chance is 0.5
        (tags(120, 60), {"regime": "feature-extraction", "hidden_size": 8, "dropout": 0.0}, "span-f1", 0.6),
    ],
    ids=["fine-tune", "feature-extraction"],
)
def test_it_learns(task, options, metric, least, elmo, tmp_path):
    caches = {"caches": tmp_path / "caches"} if "regime" in options else {}
    run = train(task, elmo, tmp_path / "run", **SHORT | {"epochs": 10, "learning_rate": 1e-2} | options | caches)
    assert run.metrics[metric] > least
    losses = run.rows[run.rows["split"] == "train"]["value"]
    assert losses.iloc[-1] < 0.7 * losses.iloc[0]


@pytest.mark.slow
def test_the_heads_of_the_paper_are_the_default(elmo, tmp_path):
    """Fine-tuning: maximum with softmax, bi-attention, CRF; tags that are no spans are not bound."""
    t = tags(16, 6)
    plain = Task("plain", t.kind, t.splits, ("O", "X", "Y"), ("token-accuracy",))
    for task, head in ((praise(16, 6), "linear"), (pairs(16, 6), "bi-attention"), (t, "crf"), (plain, "softmax")):
        run = train(task, elmo, tmp_path / task.name, **ONCE)
        told = run.card["head"]
        assert (told["head"], told["pairs_apart"]) == (head, task.name == "pairs")
        assert told["pooling"] == ("max" if head == "linear" else None)
        assert predict_run(run.path, task, "dev").metrics == pytest.approx(run.metrics, abs=1e-5)
    for task, head in ((praise(16, 6), "bcn"), (pairs(16, 6), "esim"), (t, "bilstm-crf"), (plain, "bilstm")):
        out = tmp_path / f"cached-{task.name}"
        run = train(task, elmo, out, caches=tmp_path / "caches", hidden_size=4, **FEATURES)
        assert (run.card["head"]["head"], run.card["layers"]) == (head, ["0", "1", "2"])
        with ActivationCache(run.card["caches"][1]) as cache:
            assert cache.spec["sentences"] == (2 if head == "esim" else 1)
            assert predict_run(run.path, cache).metrics == pytest.approx(run.metrics, abs=1e-5)
    linear = train(pairs(16, 6), elmo, tmp_path / "apart", caches=tmp_path / "caches", head="linear", **FEATURES)
    assert linear.card["head"]["pairs_apart"]
    assert linear.card["head"]["pooling"] == "mean"


@pytest.mark.slow
def test_published_files_are_a_model(tmp_path, monkeypatch):
    monkeypatch.setattr("probekit.files.DATA_CACHE", tmp_path / "data_cache")
    options, file = tiny_elmo(tmp_path)
    for regime in ("fine-tune", "feature-extraction"):
        made = train(praise(16, 6), f"elmo:{options},{file}", tmp_path / regime, regime=regime, head="linear", **ONCE)
        assert made.card["model"] == tmp_path.name  # "weights" says nothing
        assert (tmp_path / "data_cache").is_dir()


def test_batches_hold_each_word_once(elmo):
    task = tags()
    encoder = load_encoder(elmo)
    data = TextData(task, task.split("train"), encoder.tokenizer, apart=False)
    rows = [5, 0, 11, 3]
    first = data.__getitems__(rows)["first"]
    sentences = [task.split("train")[i].words for i in rows]
    assert len(first["characters"]) == len({word for words in sentences for word in words})
    for i, words in enumerate(sentences):
        ids = first["input_ids"][i][first["attention_mask"][i] > 0]
        assert torch.equal(first["characters"][ids], torch.from_numpy(character_ids(words)))


@pytest.mark.parametrize("mix", [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_is_left_is_what_was_trained(mix, elmo, tmp_path):
    """A padded batch of the learner in memory, and each text alone by the encoder of the folder that it left."""
    task = praise(16, 6)
    options = ONCE | {"learning_rate": 1e-2, "warmup": 0.0, "save_at": "0,1", "mix": mix}
    run = train(task, elmo, tmp_path / "run", **options)
    texts = [e.text for e in task.split("dev")]
    before, first, after = (of_encoder(load_encoder(f), texts) for f in (elmo, run.path / "step-0", run.path))
    learner, card = load_learner(run.path)
    states = of_learner(learner, run.path, task)
    assert card["layers"] == (["0", "1", "2"] if mix else [])
    for i, layers in enumerate(after):
        assert torch.equal(before[i], first[i])
        assert not torch.allclose(before[i][0], layers[0], atol=1e-3)
        assert states.mask[i].sum() == layers.shape[1]
        wanted = layers[-1]
        if mix:
            share = learner.mix.scalar_parameters.detach().softmax(0)
            wanted = learner.mix.gamma.detach() * sum(a * b for a, b in zip(share, layers, strict=True))
        torch.testing.assert_close(states.hidden[i, : layers.shape[1]], wanted, atol=2e-6, rtol=1e-5)
    with cache_activations(run.path / "step-1", task, "dev", pooling="max", out=tmp_path / "dev.h5") as cache:
        assert (cache.layers, cache.spec["step"], cache.spec["checkpoint"]) == (("0", "1", "2"), 1, "run")


def test_a_frozen_elmo_stays_bit_for_bit(elmo, tmp_path):
    run = train(praise(), elmo, tmp_path / "run", unfreezing="top", mix=True, **SHORT | {"learning_rate": 1e-2})
    before, after = load_file(elmo / "model.safetensors"), load_file(run.path / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert weights(run.path)["head.safetensors:mix.scalar_parameters"].any()  # the mix is trained with the head


@pytest.mark.slow
def test_layers_thaw_from_the_top(elmo, tmp_path):
    options = {"epochs": 4, "batch_size": 20, "device": "cpu", "save_at": "epochs", "learning_rate": 1e-2}
    run = train(
        praise(), elmo, tmp_path / "run", unfreezing="gradual", layer_factor=0.4, schedule="slanted-triangular",
        **options,
    )  # fmt: skip
    before = load_file(elmo / "model.safetensors")
    for epoch, thawed in enumerate([(), (), ("layers.1.",), ("layers.0.", "layers.1."), ("layers.", "embeddings.")]):
        after = load_file(run.path / f"step-{2 * epoch}" / "model.safetensors")
        moved = {name for name in before if not torch.equal(before[name], after[name])}
        assert {name for name in before if name.startswith(thawed)} == moved, epoch


def test_each_layer_has_a_rate_of_its_own(elmo, tmp_path):
    learner, _ = load_learner(train(praise(16, 6), elmo, tmp_path / "run", mix=True, **ONCE).path)
    groups = learner.groups()
    assert [name for name, _ in groups] == ["embeddings", "block 1", "block 2", "head"]
    rates = {id(p): g["lr"] for g in param_groups(groups, lr=1.0, layer_factor=0.4) for p in g["params"]}
    for name, p in learner.named_parameters():
        depth = 3 if "embeddings" in name else 2 if "layers.0" in name else 1 if "layers.1" in name else 0
        assert rates.pop(id(p)) == pytest.approx(0.4**depth), name
    assert not rates


@pytest.mark.slow
def test_an_interrupted_run_ends_as_an_uninterrupted_one(elmo, tmp_path):
    options = {
        "epochs": 3, "batch_size": 8, "learning_rate": 1e-2, "device": "cpu", "save_at": "5,7", "mix": True,
        "unfreezing": "gradual", "layer_factor": 0.4, "dropout": 0.3,
    }  # fmt: skip
    whole = train(praise(), elmo, tmp_path / "whole", test="test", **options)
    with pytest.raises(Stop):
        train(praise(), elmo, tmp_path / "run", test="test", progress=stopping(8), **options)
    assert not json.loads((tmp_path / "run/probekit.json").read_text())["complete"]
    same(whole, train(praise(), elmo, tmp_path / "run", test="test", **options))


@pytest.mark.slow
@pytest.mark.parametrize("norm", [False, True])
def test_both_regimes_are_one_where_the_encoder_is_frozen(norm, elmo, tmp_path):
    """The same numbers, whether the layers come from the encoder or from a cache; one batch is all examples."""
    options = {
        "epochs": 4, "batch_size": 40, "learning_rate": 0.05, "weight_decay": 0.0, "warmup": 0.0, "dropout": 0.0,
        "head": "linear", "pooling": "max", "layer_norm": norm, "device": "cpu",
    }  # fmt: skip
    tuned = train(praise(), elmo, tmp_path / "tuned", mix=True, unfreezing="top", **options)
    cached = train(praise(), elmo, tmp_path / "cached", regime="feature-extraction", caches=tmp_path, **options)
    one, two = (run.rows.sort_values(["metric", "step", "layer"], kind="stable") for run in (tuned, cached))
    assert one["metric"].tolist() == two["metric"].tolist()
    assert {"mix-weight", "mix-gamma", "log-loss"} <= set(one["metric"])
    np.testing.assert_allclose(one["value"], two["value"], rtol=2e-4, atol=2e-5)
    last = one[(one["metric"] == "mix-weight") & one["kept"]]
    assert layer_labels(last).tolist() == ["0", "1", "2"]
    assert last["value"].std() > 1e-3


@pytest.mark.parametrize(
    "family", ["gpt2", *(pytest.param(f, marks=pytest.mark.slow) for f in ("bert", "t5", "albert"))]
)
def test_the_mix_of_a_transformer(family, tiny_model, tmp_path):
    """What enters each block, and the last hidden states: where a norm comes last, not what leaves the last block."""
    task, model = praise(16, 6), tiny_model(family)
    run = train(task, model, tmp_path / "run", mix=True, layer_norm=family == "gpt2", **ONCE | {"learning_rate": 1e-2})
    encoder = load_encoder(run.path)
    names = [*map(str, range(3)), "final_norm" if FINAL_NORM in encoder.sites else "3"]
    learner, card = load_learner(run.path)
    assert card["layers"] == names == list(layer_names(learner.encoder))
    states = of_learner(learner, run.path, task)
    chosen = [[*map(str, encoder.sites)].index(name) for name in names]
    found = [layers[chosen] for layers in of_encoder(encoder, [e.text for e in task.split("dev")])]
    with torch.no_grad():
        wanted = learner.mix(torch.cat(found, 1))
    torch.testing.assert_close(states.hidden[states.mask], wanted, atol=3e-5, rtol=1e-4)
    kept = run.rows[(run.rows["metric"] == "mix-weight") & run.rows["kept"]]
    assert layer_labels(kept).tolist() == names
    np.testing.assert_allclose(kept["value"], learner.mix.weights, atol=1e-6)
    assert predict_run(run.path, task, "dev").metrics == pytest.approx(run.metrics, abs=1e-5)
    frozen = {name for name in weights(run.path) if "pooler" in name}
    before = load_file(model / "model.safetensors")
    assert all(
        torch.equal(before[name.partition(":")[2]], torch.from_numpy(weights(run.path)[name])) for name in frozen
    )


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        (pairs(), {"pairs": "joint"}, "elmo reads one sentence at a time"),
        (pairs(), {"pairs": "joint", "regime": "feature-extraction"}, "elmo reads one sentence at a time"),
        (pairs(), {"head": "bcn"}, "the head 'bcn' reads single sentences or pairs in one sequence, not"),
        (praise(), {"layer_norm": True}, "layer_norm applies to the mix of layers"),
        (praise(), {"mix": True, "pooling": "pooler"}, "the encoder's pooler reads only its last layer"),
        (praise(), {"gradient_checkpointing": True}, "ElmoModel does not support gradient checkpointing"),
    ],
)
def test_what_is_refused(task, options, message, elmo, tmp_path):
    with pytest.raises(UsageError, match=message):
        train(task, elmo, tmp_path / "run", **ONCE | options)
    assert not (tmp_path / "run").exists()


def test_a_text_without_words(elmo, tmp_path):
    t = praise(16, 6)
    dev = Split("dev", (*t.split("dev").examples, Example("blank", " ", 0)))
    task = Task("blank", t.kind, {**t.splits, "dev": dev}, t.label_names, t.metrics)
    with pytest.raises(UsageError, match="blank dev, example 'blank' has no pieces after tokenization"):
        train(task, elmo, tmp_path / "run", **ONCE)


@pytest.mark.slow
def test_bfloat16(elmo, tmp_path):
    plain, mixed = (
        train(praise(), elmo, tmp_path / dtype, dtype=dtype, mix=True, **ONCE) for dtype in ("float32", "bfloat16")
    )
    assert mixed.metrics["loss"] == pytest.approx(plain.metrics["loss"], abs=0.02)
    assert load_file(mixed.path / "model.safetensors")["embeddings.characters.weight"].dtype == torch.float32


@pytest.mark.parametrize("onednn", [False, True])
def test_gradients_of_the_lstm_are_those_of_its_equations(onednn):
    """Beside the plain loop, sequence by sequence, by whose weights autograd goes step by step; limits are reached."""
    torch.manual_seed(0)
    lstm, lengths = ProjectedLSTM(6, 7, 9, cell_clip=1.0, proj_clip=0.5), np.array([2, 5, 3])
    for p in lstm.parameters():
        torch.nn.init.normal_(p, 0.0, 0.7)
    x, h, c = (torch.randn(n, d, requires_grad=True) for n, d in ((10, 6), (3, 7), (3, 9)))
    inputs = [*lstm.parameters(), x, h, c]

    def naive():
        found = []
        for i, n in enumerate(lengths):
            start, one, two = int(lengths[:i].sum()), h[i], c[i]
            for row in x[start : start + n]:
                gates = lstm.input.weight @ row + lstm.input.bias + lstm.recurrent.weight @ one
                add, keep, new, out = gates.chunk(4)
                two = (add.sigmoid() * new.tanh() + keep.sigmoid() * two).clamp(-1.0, 1.0)
                one = (lstm.projection.weight @ (out.sigmoid() * two.tanh())).clamp(-0.5, 0.5)
                found.append(one)
        return torch.stack(found)

    steps, weight = Steps.of(lengths), torch.randn(10, 7)
    wanted = naive()
    assert ((wanted.abs() == 0.5).any(), (wanted.abs() < 0.5).any()) == (True, True)
    right = torch.autograd.grad((wanted * weight).sum(), inputs)
    if onednn:
        train_with_onednn(lstm)
    found = lstm(x[steps.forward], steps.sizes, h[steps.order], c[steps.order])[0]
    torch.testing.assert_close(found, wanted[steps.forward], atol=1e-6, rtol=1e-5)
    gradients = torch.autograd.grad((found * weight[steps.forward]).sum(), inputs)
    for ours, theirs in zip(gradients, right, strict=True):
        torch.testing.assert_close(ours, theirs, atol=5e-6, rtol=1e-5)
