"""Bases of 8 and 4 bits: their products, what a run keeps and reads back, and what is refused."""

import copy
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from lessons import SHORT, Stop, praise, same_weights, stopping
from tiny import tiny_model as make_tiny
from torch import nn
from transformers.pytorch_utils import Conv1D

import probekit
from probekit.adaptation.options import TrainOptions
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.train import train
from probekit.errors import ModelError, UsageError
from probekit.models.adapted.record import adapted
from probekit.models.encoder import Batch
from probekit.models.transformers import quantised
from probekit.models.transformers.blocks import find_blocks
from probekit.models.transformers.encoder import all_layers
from probekit.models.transformers.stock import load_model

HOW = SHORT | {"learning_rate": 2e-2, "epochs": 1, "keep": "last"}
NF4 = [-1, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0]
NF4 += [0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1]
"""The values of NormalFloat (Dettmers et al. 2023, appendix E)."""


@pytest.fixture(scope="module")
def bnb():
    return pytest.importorskip("bitsandbytes", reason="needs the extra 'quantised' (bitsandbytes)")


WIDE = {
    "bert": {"hidden_size": 64, "intermediate_size": 128},
    "llama": {"hidden_size": 64, "intermediate_size": 128},
    "gpt2": {"n_embd": 64},
    "t5": {"d_model": 64, "d_kv": 16, "d_ff": 128},
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A tiny model of a family whose layers have multiples of 64 inputs."""
    made = {}

    def make(family):
        if family not in made:
            made[family] = make_tiny(family, tmp_path_factory.mktemp(family), **WIDE[family])
        return made[family]

    return make


@pytest.fixture(scope="module")
def run(bnb, wide, tmp_path_factory):
    """A trained run of a family, method and number of bits, trained once."""
    made = {}

    def make(family, method, quantise):
        key = family, method, quantise
        if key not in made:
            out = tmp_path_factory.mktemp("runs") / f"{family}-{method}-{quantise}"
            made[key] = train(praise(), wide(family), out, method=method, quantise=quantise, **HOW)
        return made[key]

    return make


def hidden_states(net):
    with torch.no_grad():
        ids = torch.tensor([[3, 7, 11, 5, 9]])
        return net.eval()(input_ids=ids, output_hidden_states=True).hidden_states


def by_hand(weight, quantise):
    """The rounded weight of a float matrix, and the largest error of each element that the scales may add."""
    if quantise == "8bit":
        half = weight.half().float()  # bitsandbytes rounds what has been rounded to float16
        scale = half.abs().amax(1, keepdim=True)
        return (half / scale * 127).round() / 127 * scale, scale * 1e-6
    blocks = weight.reshape(-1, 64)
    scale = blocks.abs().amax(1, keepdim=True)
    table = torch.tensor(NF4)
    nearest = table[(blocks[..., None] / scale[..., None] - table).abs().argmin(-1)]
    return (nearest * scale).reshape(weight.shape), (0.02 * scale.max()).expand(weight.shape)  # scales have 8 bits


@pytest.mark.parametrize("quantise", ["8bit", "4bit"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5"])
def test_a_product_is_that_of_the_matrix_rounded_by_hand(bnb, wide, family, quantise):
    plain, net = load_model(wide(family)), load_model(wide(family), quantise=quantise)
    inside = {id(module) for block in find_blocks(net) for module in block.modules()}
    linear = {n: m for n, m in net.named_modules() if isinstance(m, nn.Linear | Conv1D) and not n.endswith(".wo")}
    assert all(("Frozen" in type(m).__name__) == (id(m) in inside) for m in linear.values())
    for name, layer in linear.items():
        if id(layer) not in inside:
            continue
        theirs = plain.get_submodule(name)
        weight, tolerance = by_hand(theirs.weight.T if isinstance(theirs, Conv1D) else theirs.weight, quantise)
        apart = (layer.full_weight() - weight).abs() > tolerance
        assert apart.float().mean() < 0.01  # numbers halfway between two values may be rounded to either
        torch.manual_seed(0)
        x = torch.randn(2, 3, weight.shape[1], requires_grad=True)
        out, bias = layer(x), 0 if theirs.bias is None else theirs.bias
        torch.testing.assert_close(out, x @ layer.full_weight().T + bias)
        weights = torch.randn_like(out)
        (out * weights).sum().backward()
        torch.testing.assert_close(x.grad, weights @ layer.full_weight())
    for name, parameter in plain.named_parameters():  # embeddings, norms, biases and the pooler keep their precision
        if name.rpartition(".")[0] not in linear or name.endswith("bias"):
            assert torch.equal(net.get_parameter(name), parameter)


@pytest.mark.parametrize("quantise", ["8bit", "4bit"])
def test_layers_train_after_an_evaluation(bnb, wide, quantise):
    """bitsandbytes' own 4-bit layers do not, on processors with AVX512-BF16."""
    net = load_model(wide("bert"), quantise=quantise)
    before = hidden_states(net)[-1]
    x = net.get_input_embeddings()(torch.tensor([[3, 7, 11, 5, 9]])).requires_grad_()
    net.train()(inputs_embeds=x).last_hidden_state.sum().backward()
    assert x.grad.abs().sum() > 0
    assert torch.equal(hidden_states(net)[-1], before)


@pytest.mark.parametrize(
    ("family", "method", "quantise"),
    [
        *(("bert", "lora", "4bit"), ("gpt2", "adapter", "8bit"), ("llama", "dora", "4bit")),
        *(("gpt2", "prefix", "4bit"), ("t5", "ia3", "8bit"), ("bert", "prompt", "8bit")),
    ],
)
def test_a_run_reads_back_to_the_layers_that_were_trained(run, family, method, quantise):
    done = run(family, method, quantise)
    assert not (done.path / "model.safetensors").exists()
    learner, card = load_learner(done.path)
    assert card["base"]["quantise"] == card["encoder"]["quantise"] == quantise
    assert sum("Frozen" in type(m).__name__ for m in learner.encoder.modules()) >= 3
    found = probekit.evaluate(done.path, task=[praise()], split="dev").rows
    assert found[found.headline.fillna(False).astype(bool)].value.item() == done.metrics["accuracy"]


def test_a_quantised_base_gives_another_model(run, wide, tmp_path):
    done, plain = run("bert", "lora", "4bit"), train(praise(), wide("bert"), tmp_path / "plain", method="lora", **HOW)
    assert done.card["parameters"] == plain.card["parameters"]
    assert "quantise" not in plain.card["base"]
    far = [a - b for a, b in zip(*(hidden_states(load_model(one.path)) for one in (done, plain)), strict=True)]
    assert far[0].abs().max() == 0  # the embeddings
    assert min(one.abs().max() for one in far[1:]) > 1e-3
    of = adapted(done.path)
    digests = {replace(of, quantise=bits).digest() for bits in (None, "4bit", "8bit")}
    assert len(digests) == 3
    assert probekit.load_encoder(of.folder).spec["weights_digest"] == of.digest()


@pytest.mark.parametrize(("method", "quantise"), [("lora", "4bit"), ("adapter", "8bit")])
def test_layers_of_a_run_do_not_depend_on_the_batch(run, method, quantise):
    encoder = probekit.load_encoder(run("bert", method, quantise).path)
    assert probekit.certify(encoder).passed
    rng = np.random.default_rng(0)
    ones = [Batch(rng.integers(40, size=k), np.zeros(k, np.uint8), np.array([k])) for k in (1, 2, 5, 9, 9)]
    every = Batch(*(np.concatenate([getattr(b, f) for b in ones]) for f in ("token_ids", "type_ids", "length")))
    assert torch.equal(all_layers(encoder, every), torch.cat([all_layers(encoder, one) for one in ones], 1))


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("bert", {"method": "lora", "quantise": "4bit", "save_at": "3", "keep": "best"}),
        ("gpt2", {"method": "adapter", "quantise": "8bit", "mix": True, "keep": "last"}),
    ],
)
def test_an_interrupted_run_resumes_to_the_same_bytes(bnb, wide, tmp_path, family, options):
    how = HOW | {"epochs": 2} | options
    right = train(praise(), wide(family), tmp_path / "right", **how)
    with pytest.raises(Stop):
        train(praise(), wide(family), tmp_path / "run", progress=stopping(7), **how)
    assert list((tmp_path / "run").glob(".resume/checkpoint-*"))
    done = train(praise(), wide(family), tmp_path / "run", **how)
    assert same_weights(done.path, right.path)


@pytest.mark.parametrize(
    "more",
    [
        {"gradient_checkpointing": True},
        {"dtype": "bfloat16", "keep_layers": 2},
        {"lm_loss": 0.5, "order": "head,blocks:top-down", "epochs": 3},
    ],
    ids=lambda more: next(iter(more)),
)
def test_other_options_go_with_it(bnb, wide, run, tmp_path, more):
    done = train(praise(), wide("gpt2"), tmp_path / "run", method="lora", quantise="4bit", **HOW | more)
    assert probekit.load_encoder(done.path, dtype="bfloat16").spec["dtype"] == "bfloat16"
    if "gradient_checkpointing" in more:
        plain = run("gpt2", "lora", "4bit")
        for a, b in zip(*(hidden_states(load_model(one.path)) for one in (done, plain)), strict=True):
            torch.testing.assert_close(a, b)


def test_what_cannot_be_merged_or_trained_further(run, wide, tmp_path, call):
    done = run("bert", "lora", "4bit")
    said = call("merge", done.path, "--out", tmp_path / "whole")
    assert said.status == 2
    assert "has 4bit weights, and merging would round its changes; train without --quantise" in said.err
    with pytest.raises(UsageError, match="cannot be merged with their 4bit base"):
        train(praise(), done.path, tmp_path / "more", **HOW)
    plain = train(praise(), wide("bert"), tmp_path / "plain", method="lora", **HOW)
    with pytest.raises(UsageError, match="Merge it first: probekit merge"):
        train(praise(), plain.path, tmp_path / "more", method="lora", quantise="4bit", **HOW)


def test_a_copy_of_a_layer_is_independent(bnb, wide):
    net = load_model(wide("bert"), quantise="4bit")
    assert torch.equal(hidden_states(copy.deepcopy(net))[-1], hidden_states(net)[-1])


def test_4bit_rows_of_other_lengths_are_refused(bnb, tiny_bert):
    with pytest.raises(ModelError, match="has 32 inputs; 4bit needs a multiple of 64"):
        load_model(tiny_bert, quantise="4bit")


def test_without_bitsandbytes_it_is_refused(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(quantised, "find_spec", lambda name: None)
    needed = r"4bit weights need bitsandbytes, which is not installed: pip install 'probekit-lm\[quantised\]'"
    with pytest.raises(ModelError, match=needed):
        train(praise(), tiny_bert, tmp_path / "run", method="lora", quantise="4bit", **HOW)
    with pytest.raises(ModelError, match=needed):
        load_model(tiny_bert, quantise="4bit")
    shutil.copytree(tiny_bert, tmp_path / "rounded")
    config = (tmp_path / "rounded" / "config.json").read_text()
    config = config.replace("{", '{"quantization_config": {"load_in_4bit": true},', 1)
    (tmp_path / "rounded" / "config.json").write_text(config)
    with pytest.raises(ModelError, match=needed):
        load_model(tmp_path / "rounded")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"quantise": "4bit"}, "freezes the base's weights, which --method full trains; choose one of lora"),
        ({"quantise": "8bit", "method": "bitfit"}, "which --method bitfit trains"),
        ({"quantise": "8bit", "method": "norms"}, "which --method norms trains"),
        ({"quantise": "8bit", "method": "last"}, "which --method last trains"),
        ({"quantise": "2bit", "method": "lora"}, "must be one of 8bit, 4bit"),
        ({"quantise": "4bit", "method": "lora", "compile": True}, "--compile does not work with quantised weights"),
        ({"quantise": "4bit", "method": "lora", "shard": True}, "--shard does not work with quantised weights"),
        ({"quantise": "4bit", "method": "lora", "random_weights": 1}, "drawn in full precision"),
        ({"quantise": "4bit", "regime": "feature-extraction"}, "method full"),
    ],
)
def test_options_that_exclude_each_other(wrong, message):
    with pytest.raises(UsageError, match=message):
        TrainOptions(**wrong)
