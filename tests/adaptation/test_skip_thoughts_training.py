"""Skip-thoughts in both regimes, through the front door: its last state is the sentence, its layers differ in width."""

import json

import numpy as np
import pytest
import torch
from lessons import SHORT, pairs, praise, tags
from safetensors.torch import load_file
from tiny import WORDS

from probekit.activations import ActivationCache
from probekit.adaptation.data.text import TextData
from probekit.adaptation.runs.evaluation import load_learner, predict_run
from probekit.adaptation.train import train
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.models.elmo.lstm import Steps
from probekit.models.encoder import Batch
from probekit.models.skip_thoughts.model import GRU, SkipThoughtsConfig, SkipThoughtsModel
from probekit.models.transformers.onednn import train_with_onednn
from probekit.rows import layer_labels

ONCE = SHORT | {"epochs": 1}
FEATURES = ONCE | {"regime": "feature-extraction"}


@pytest.fixture(scope="module")
def thoughts(tmp_path_factory):
    """The folder of a tiny Skip-thoughts: uni of 8, bi of twice 4, all words of the tasks but one."""
    folder, words = tmp_path_factory.mktemp("thoughts"), ["<eos>", "UNK", *(w for w in WORDS if w != "house")]
    sizes = {"uni_word_size": 6, "bi_word_size": 6, "uni_size": 8, "bi_size": 4}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SkipThoughtsModel(SkipThoughtsConfig(len(words), **sizes))
        for tensor in (*model.parameters(), model.uni_words, model.bi_words):
            torch.nn.init.normal_(tensor, 0.0, 0.6)
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"words": "treebank"}))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    return folder


@pytest.mark.slow
def test_it_learns_and_leaves_what_was_trained(thoughts, tmp_path):
    task = praise(120, 40)
    run = train(task, thoughts, tmp_path / "run", **SHORT | {"epochs": 8, "learning_rate": 3e-2})
    assert run.metrics["accuracy"] > 0.8  # chance is 0.5
    learner, card = load_learner(run.path)
    assert (card["head"]["head"], card["head"]["pooling"]) == ("linear", "last")
    before, after = load_file(thoughts / "model.safetensors"), load_file(run.path / "model.safetensors")
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == set(before) - {"uni_words", "bi_words"}  # which are not trained
    encoder = load_encoder(run.path)
    data = TextData(task, task.split("dev"), encoder.tokenizer, apart=False)
    with torch.no_grad():
        states = learner.states(data.__getitems__(range(len(data)))["first"])
    for i, e in enumerate(task.split("dev")):
        t = encoder.tokenize([e.text])
        layers = []
        encoder.encode(Batch(t.token_ids, t.type_ids, t.length), lambda _, x, kept=layers: kept.append(x.clone()))
        torch.testing.assert_close(states.hidden[i, : t.length[0]], layers[-1], atol=2e-6, rtol=1e-5)


@pytest.mark.slow
def test_what_is_the_default(thoughts, tmp_path):
    for task, head in ((praise(16, 6), "linear"), (pairs(16, 6), "bi-attention"), (tags(16, 6), "crf")):
        run = train(task, thoughts, tmp_path / task.name, **ONCE)
        assert run.card["head"]["head"] == head
        assert run.card["head"]["pairs_apart"] == (task.name == "pairs")
        assert predict_run(run.path, task, "dev").metrics == pytest.approx(run.metrics, abs=1e-5)
    for task, head in ((praise(16, 6), "linear"), (pairs(16, 6), "pair"), (pairs(16, 6), "esim")):
        run = train(task, thoughts, tmp_path / f"cached-{head}", head=head, caches=tmp_path / "caches", **FEATURES)
        assert run.card["layers"] == ["combined"]
        assert run.card["head"]["width"] == 16
        assert run.card["head"]["pooling"] == (None if head == "esim" else "last")
        with ActivationCache(run.card["caches"][1]) as cache:
            assert cache.poolings == (() if head == "esim" else ("last",))
            assert predict_run(run.path, cache).metrics == pytest.approx(run.metrics, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["linear", "bilstm"])
def test_layers_of_one_width_are_mixed(head, thoughts, tmp_path):
    task = praise(16, 6) if head == "linear" else tags(16, 6)
    options = FEATURES | {"head": head, "caches": tmp_path / "caches"}
    for layers in (["uni"], ["uni", "bi"]):
        run = train(task, thoughts, tmp_path / "-".join(layers), layers=layers, **options)
        assert (run.card["layers"], run.card["head"]["width"]) == (layers, 8)
        told = run.rows[run.rows["metric"] == "mix-weight"]
        assert layer_labels(told).tolist() == layers
    with pytest.raises(UsageError, match=r"cannot be mixed: bi has 8, combined has 16\. Choose layers of the s"):
        train(task, thoughts, tmp_path / "both", layers=["bi", "combined"], **options)
    with pytest.raises(UsageError, match="the layers of skip-thoughts differ in width and cannot be mixed"):
        train(task, thoughts, tmp_path / "mix", head=head, mix=True, **ONCE)


@pytest.mark.parametrize("onednn", [False, True])
def test_gradients_of_the_gru_are_those_of_its_equations(onednn):
    """Beside the plain loop, sequence by sequence, by whose weights autograd goes step by step."""
    torch.manual_seed(0)
    gru, lengths = GRU(5, 4), np.array([2, 5, 3])
    x, weight = torch.randn(10, 5, requires_grad=True), torch.randn(10, 4)
    inputs = [*gru.parameters(), x]

    def naive():
        found = []
        for i, n in enumerate(lengths):
            start, h = int(lengths[:i].sum()), torch.zeros(4)
            for row in x[start : start + n]:
                a, b, c = (gru.input.weight @ row + gru.input.bias).chunk(3)
                d, e, f = (gru.recurrent.weight @ h).chunk(3)
                r, u = (a + d).sigmoid(), (b + e).sigmoid()
                h = u * h + (1 - u) * (c + r * f).tanh()
                found.append(h)
        return torch.stack(found)

    steps, wanted = Steps.of(lengths), naive()
    right = torch.autograd.grad((wanted * weight).sum(), inputs)
    if onednn:
        train_with_onednn(gru)
    found = gru(x[steps.forward], steps.sizes)
    torch.testing.assert_close(found, wanted[steps.forward], atol=1e-6, rtol=1e-5)
    for ours, theirs in zip(torch.autograd.grad((found * weight[steps.forward]).sum(), inputs), right, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-5)
