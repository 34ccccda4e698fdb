"""Parameter-efficient methods: what they train, what a run keeps, and that all who read it find the same layers."""

import json
import shutil

import numpy as np
import pytest
import torch
from lessons import SHORT, Stop, praise, same_weights, stopping
from peft import PeftModel, get_peft_model_state_dict
from safetensors.numpy import load_file
from tiny import tiny_model as make_tiny
from torch import nn
from transformers import AutoModel

import probekit
from probekit.activations import cache_activations
from probekit.adaptation.methods.adapt import target_layers
from probekit.adaptation.methods.options import METHOD_DEFAULTS, Method
from probekit.adaptation.options import Hyperparameters, TrainOptions
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.train import train
from probekit.errors import ModelError, UsageError
from probekit.models.adapted.bottleneck import Bottleneck, add_adapters
from probekit.models.adapted.library import add_tuner, name_in_file, name_in_model
from probekit.models.adapted.loading import load_adapted
from probekit.models.adapted.record import LIBRARY, MERGEABLE, adapted
from probekit.models.adapted.structure import block_linears
from probekit.models.encoder import Batch
from probekit.models.transformers.encoder import all_layers
from probekit.models.transformers.stock import load_model

HOW = SHORT | {"learning_rate": 2e-2, "epochs": 1, "keep": "last"}
METHODS = [method for method in Method if method is not Method.FULL]
IDS = torch.tensor([[2, 6, 7, 8, 9, 3]])


def quick(*methods):
    """All methods, of which only these are tested quickly."""
    return [pytest.param(one, marks=[] if one in methods else [pytest.mark.slow]) for one in METHODS]


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    """``run("bert", "lora")``: a run of the method on a tiny model."""
    made = {}

    def make(family, method):
        if (family, method) not in made:
            more = {"virtual_tokens": 4} if method in ("prefix", "prompt") else {}
            out = tmp_path_factory.mktemp(method) / f"{family}-{method}"
            made[family, method] = train(praise(), tiny_model(family), out, method=method, save_at="0,3", **HOW, **more)
        return made[family, method]

    return make


def hidden_states(net, **inputs):
    with torch.inference_mode():
        return net(input_ids=IDS, output_hidden_states=True, **inputs).hidden_states


@pytest.mark.parametrize(
    ("family", "method"),
    [
        pytest.param(family, method, marks=[] if method in quickly else [pytest.mark.slow])
        for family, quickly in (("bert", ("lora", "adapter")), ("gpt2", ()))
        for method in METHODS
    ],
)
def test_a_run_keeps_the_changed_weights_and_is_a_model(run, tiny_model, family, method):
    done = run(family, method)
    names = {path.name for path in done.path.iterdir()}
    assert "model.safetensors" not in names
    assert ("adapter_model.safetensors" in names) == ("adapter_config.json" in names) == (method in LIBRARY)
    assert ("changed.safetensors" in names) == (method not in LIBRARY)
    record = adapted(done.path)
    assert record.base_digest == done.card["encoder"]["weights_digest"]
    assert record.base == str(tiny_model(family).resolve())

    stock, merged, apart = (
        load_model(tiny_model(family)),
        load_model(done.path),
        load_adapted(record, load_model, merge=False),
    )
    for plain, one, other in zip(*map(hidden_states, (stock, merged, apart)), strict=True):
        assert one.shape == other.shape == plain.shape
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(plain, one, atol=1e-3)
    if method in MERGEABLE:
        assert {n: type(m) for n, m in merged.named_modules()} == {n: type(m) for n, m in stock.named_modules()}

    encoder = probekit.load_encoder(done.path)
    assert encoder.spec["path"].startswith("grouped" if method in ("prefix", "prompt") else "packed")
    batch = Batch(IDS[0].numpy(), np.zeros(6, np.uint8), np.array([6]))
    layers = all_layers(encoder, batch)
    own = [*layers[:3], layers[-1]]  # GPT-2's last hidden state is final_norm
    for layer, right in zip(own, hidden_states(apart), strict=True):  # no virtual token is among them
        torch.testing.assert_close(layer, right[0], rtol=1e-5, atol=1e-5)
    found = probekit.evaluate(done.path, task=[praise()], split="dev").rows
    assert found[found.headline.fillna(False).astype(bool)].value.item() == done.metrics["accuracy"]


@pytest.mark.parametrize(
    ("family", "method"),
    [
        pytest.param(
            family, method, marks=[] if family == "bert" and method in ("lora", "prefix") else [pytest.mark.slow]
        )
        for family in ("bert", "gpt2")
        for method in ("lora", "dora", "ia3", "prefix", "prompt")
    ],
)
def test_peft_opens_a_run(run, tiny_model, family, method):
    done = run(family, method)
    theirs = PeftModel.from_pretrained(AutoModel.from_pretrained(tiny_model(family)), done.path).eval()
    mask = torch.ones_like(IDS)
    last = theirs(input_ids=IDS, attention_mask=mask).last_hidden_state[:, -IDS.shape[1] :]
    ours = load_adapted(adapted(done.path), load_model, merge=False)(
        input_ids=IDS, attention_mask=mask
    ).last_hidden_state
    torch.testing.assert_close(ours, last, rtol=1e-5, atol=1e-5)
    saved = get_peft_model_state_dict(theirs)
    assert load_file(done.path / "adapter_model.safetensors").keys() == saved.keys()
    assert all(name_in_file(name_in_model(name)) == name for name in saved)


@pytest.mark.parametrize("method", quick("prefix"))
def test_an_interrupted_run_ends_as_an_uninterrupted_one(run, tiny_bert, tmp_path, method):
    right = run("bert", method)
    how = HOW | {"method": method, "save_at": "0,3", "evaluate_every": 2}
    how |= {"virtual_tokens": 4} if method in ("prefix", "prompt") else {}

    with pytest.raises(Stop):
        train(praise(), tiny_bert, tmp_path / "run", progress=stopping(4), **how)
    done = train(praise(), tiny_bert, tmp_path / "run", **how)
    assert same_weights(done.path, right.path)
    assert same_weights(done.path / "step-3", right.path / "step-3")
    assert not same_weights(done.path / "step-3", right.path)
    assert load_model(done.path / "step-3").config.num_hidden_layers == 3
    for name in ("adapter_config.json", "config.json"):
        if (right.path / name).is_file():
            assert (done.path / name).read_bytes() == (right.path / name).read_bytes()


def test_the_card_and_the_rows_count_trained_weights(run):
    done = run("bert", "lora")
    count = done.card["parameters"]
    head, pooler, change = 32 * 2 + 2, 32 * 32 + 32, 3 * 2 * 2 * 8 * 32  # blocks, queries and values, A and B, rank
    assert count["trained"] == head + pooler + change
    scored = done.rows[done.rows.estimator == ""]
    assert (scored.trained_parameters == count["trained"]).all()


@pytest.mark.parametrize("family", ["bert", "albert", "distilbert", "deberta-v2", "t5", "gpt2", "gpt_neox", "qwen3"])
def test_layers_are_recognised_by_what_they_do(tiny_model, family):
    net = load_model(tiny_model(family))
    fused = family in ("gpt2", "gpt_neox")
    for block in block_linears(net):
        assert (block.q == block.k == block.v) == fused
        if not fused:
            assert [name.rpartition(".")[2][0] for name in (block.q, block.k, block.v)] == ["q", "k", "v"]
        out, inner = net.get_submodule(block.o), net.get_submodule(block.down)
        assert (out.weight.shape[0], max(inner.weight.shape)) == (32, max(64, max(inner.weight.shape)))
        assert block.o in block.all
        assert "att" in block.o.lower()
        assert "att" not in block.down.rpartition(".1.")[2].lower()


def test_targets_by_role_and_by_name(tiny_bert, tmp_path):
    net = load_model(tiny_bert)
    assert target_layers(net, "lora", None) == target_layers(net, "lora", "query,value")
    assert len(target_layers(net, "lora", "all")) == 3 * 6
    assert target_layers(net, "lora", "encoder.layer.1.output.dense") == ["encoder.layer.1.output.dense"]
    with pytest.raises(UsageError, match=r"'qeury' matches no linear layer in the blocks of bert; did you mean query"):
        train(praise(), tiny_bert, tmp_path / "run", method="lora", targets="qeury", **SHORT)


def test_a_base_that_has_changed_or_moved(tmp_path, call):
    base = make_tiny("bert", tmp_path / "base")
    done = train(praise(), base, tmp_path / "run", method="norms", **HOW)
    before = hidden_states(load_model(done.path))[-1]
    digest = done.card["base"]["weights_digest"]
    (tmp_path / "moved").parent.mkdir(exist_ok=True)
    base.rename(tmp_path / "moved")
    with pytest.raises(ModelError, match=rf"{digest}.*no folder.*edit base.model"):
        load_model(done.path)
    name = probekit.load_encoder  # the digest does not depend on where the base is
    card = json.loads((done.path / "probekit.json").read_text())
    card["base"]["model"] = str(tmp_path / "moved")
    identity = adapted(done.path).digest()
    (done.path / "probekit.json").write_text(json.dumps(card))
    assert adapted(done.path).digest() == identity
    assert torch.equal(hidden_states(load_model(done.path))[-1], before)
    assert name(done.path).spec["weights_digest"] == identity
    make_tiny("bert", tmp_path / "moved", seed=1)
    with pytest.raises(ModelError, match=rf"adapts weights with the digest {digest}, but .*moved now has"):
        load_model(done.path)


def test_damaged_weights_are_refused(run, tmp_path):
    folder = shutil.copytree(run("bert", "lora").path, tmp_path / "run")
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\1\2\3\4")
    with pytest.raises(ModelError, match="damaged"):
        load_model(folder)
    file.unlink()
    with pytest.raises(ModelError, match="missing"):
        load_model(folder)


@pytest.mark.slow
def test_a_run_is_overwritten_but_foreign_files_are_not(tiny_bert, tmp_path):
    out = tmp_path / "run"
    train(praise(), tiny_bert, out, method="lora", **HOW)
    with pytest.raises(UsageError, match="its method is 'lora', not 'bitfit'"):
        train(praise(), tiny_bert, out, method="bitfit", **HOW)
    (out / "adapter_notes.json").write_text("{}")
    with pytest.raises(UsageError, match="holds adapter_notes.json"):
        train(praise(), tiny_bert, out, method="bitfit", overwrite=True, **HOW)
    (out / "adapter_notes.json").unlink()
    train(praise(), tiny_bert, out, method="bitfit", overwrite=True, **HOW)
    assert not (out / "adapter_model.safetensors").exists()


@pytest.mark.slow
def test_a_run_is_trained_further_from_its_merged_weights(run, tmp_path):
    first = run("bert", "lora")
    second = train(praise(), first.path, tmp_path / "full", save_at="0", **HOW)
    torch.testing.assert_close(
        hidden_states(load_model(second.path / "step-0"))[-1], hidden_states(load_model(first.path))[-1]
    )
    third = train(praise(), first.path, tmp_path / "bitfit", method="bitfit", save_at="0", **HOW)
    torch.testing.assert_close(
        hidden_states(load_model(third.path / "step-0"))[-1], hidden_states(load_model(first.path))[-1]
    )
    with pytest.raises(UsageError, match="prompt weights, which cannot be merged"):
        train(praise(), run("bert", "prompt").path, tmp_path / "no", **HOW)


def test_a_bottleneck_is_its_formula_and_starts_as_the_identity(tiny_model):
    torch.manual_seed(0)
    one, x = Bottleneck(8, 3), torch.randn(5, 8)
    assert torch.equal(one(x), x)
    nn.init.normal_(one.up.weight)
    inner = x.double() @ one.down.weight.double().T
    inner = inner * (1 + torch.erf(inner / 2**0.5)) / 2
    torch.testing.assert_close(one(x).double(), x + inner @ one.up.weight.double().T, rtol=1e-5, atol=1e-5)
    for family, parts in (("bert", 3), ("llama", 3), ("albert", 1)):
        for placement, each in (("houlsby", 2), ("pfeiffer", 1)):
            net, plain = load_model(tiny_model(family)), load_model(tiny_model(family))
            names = add_adapters(net, bottleneck=4, placement=placement)
            assert len({name.rpartition(".adapter.")[0] for name in names}) == parts * each
            for a, b in zip(hidden_states(net), hidden_states(plain), strict=True):
                assert torch.equal(a, b)


@pytest.mark.slow
def test_cached_layers_of_a_run(run, tmp_path):
    for method in ("lora", "prompt"):
        done = run("bert", method)
        cache_activations(done.path, praise(), "dev", pooling="mean-all", out=tmp_path / f"{method}.h5")
        net, encoder = load_model(done.path), probekit.load_encoder(done.path)
        text = encoder.tokenize([praise().split("dev")[3].text])
        ids = torch.tensor(text.token_ids.astype(np.int64))[None]
        with probekit.ActivationCache(tmp_path / f"{method}.h5") as cache:
            assert cache.spec["weights_digest"] == adapted(done.path).digest()
            for layer, hidden in enumerate(net(input_ids=ids, output_hidden_states=True).hidden_states):
                np.testing.assert_allclose(cache.layer(layer)[3], hidden[0].mean(0), atol=1e-5)
    assert probekit.certify(done.path).passed


@pytest.mark.parametrize("method", quick("prompt"))
def test_every_method_reads_a_mix_of_chosen_layers(tiny_bert, tmp_path, method):
    done = train(praise(), tiny_bert, tmp_path / "run", method=method, mix=True, layers=(0, 2), **HOW)
    learner, card = load_learner(done.path)
    assert card["layers"] == ["0", "2"]
    assert learner.mix.scalar_parameters.abs().sum() > 0
    found = probekit.evaluate(done.path, task=[praise()], split="dev").rows
    assert found[found.headline.fillna(False).astype(bool)].value.item() == done.metrics["accuracy"]


def test_unfreezing_trains_only_the_method(tiny_bert, tmp_path):
    done = train(praise(), tiny_bert, tmp_path / "run", method="lora", unfreezing="gradual", **HOW | {"epochs": 5})
    stock, apart = load_model(tiny_bert), load_adapted(adapted(done.path), load_model, merge=False)
    base = {n.replace(".base_layer", ""): w for n, w in apart.state_dict().items()}
    assert all(torch.equal(w, base[n]) for n, w in stock.state_dict().items() if "pooler" not in n)
    with pytest.raises(UsageError, match="no effect"):
        TrainOptions(method="prompt", unfreezing="gradual")


@pytest.mark.slow
def test_gradient_checkpointing_changes_nothing(tiny_bert, run, tmp_path):
    done = train(praise(), tiny_bert, tmp_path / "run", method="lora", gradient_checkpointing=True, **HOW)
    ours, plain = (load_file(one.path / "adapter_model.safetensors") for one in (done, run("bert", "lora")))
    assert all(np.allclose(ours[name], plain[name], atol=1e-6) for name in plain)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rank": 4, "method": "bitfit"}, "rank is 4, which has an effect only with method lora or dora"),
        ({"rank": 4}, "rank is 4, which"),
        ({"last": 1, "method": "norms"}, "last is 1, which has an effect only with method last"),
        (
            {"virtual_tokens": 3, "method": "ia3"},
            "virtual_tokens is 3, which has an effect only with method prefix or prompt",
        ),
        ({"method": "lroa"}, "did you mean lora"),
        ({"method": "lora", "regime": "feature-extraction"}, "is for fine-tuning"),
        ({"method": "prefix", "gradient_checkpointing": True}, "keeps keys and values"),
        ({"method": "lora", "reinit_top": 1}, "does not train"),
        ({"method": "last", "reinit_top": 3}, "does not train"),
        ({"rank": 0, "method": "lora"}, "1 or more"),
        ({"keep_layers": 0}, "1 or more"),
    ],
)
def test_options_that_do_not_belong_together(wrong, message):
    with pytest.raises(UsageError, match=message):
        Hyperparameters(**wrong)


def test_default_rates():
    for method, wanted in METHOD_DEFAULTS.items():
        found = Hyperparameters(method=method)
        assert {name: getattr(found, name) for name in wanted} == wanted
    assert Hyperparameters(method="lora", learning_rate=1e-5).learning_rate == 1e-5


@pytest.mark.parametrize("family", ["t5", "albert", "distilbert", "deberta-v2"])
def test_a_prefix_that_blocks_do_not_read_is_refused(tiny_model, family):
    with pytest.raises(UsageError, match=f"prefix tuning does not work for models of type {family}"):
        add_tuner(
            load_model(tiny_model(family)),
            {"peft_type": "PREFIX_TUNING", "task_type": "FEATURE_EXTRACTION", "num_virtual_tokens": 3},
        )


def test_methods_without_such_weights_are_refused(tiny_model, tmp_path):
    with pytest.raises(UsageError, match="llama has no such weights"):
        train(praise(), tiny_model("llama"), tmp_path / "a", method="bitfit", **SHORT)
    with pytest.raises(UsageError, match="the model has 3 blocks"):
        train(praise(), tiny_model("bert"), tmp_path / "b", method="last", last=4, **SHORT)


@pytest.mark.parametrize("method", quick("dora"))
def test_a_merged_run_needs_no_base(run, tiny_model, tmp_path, call, method):
    done = run("bert", method)
    if method not in MERGEABLE:
        with pytest.raises(UsageError, match="cannot be merged"):
            probekit.merge(done.path, tmp_path / "whole")
        return
    assert call("merge", done.path, "--out", tmp_path / "whole", "--base", tiny_model("bert")).status == 0
    assert adapted(tmp_path / "whole") is None
    for a, b in zip(*map(hidden_states, map(load_model, (tmp_path / "whole", done.path))), strict=True):
        assert torch.equal(a, b)
    theirs = AutoModel.from_pretrained(tmp_path / "whole").eval()
    torch.testing.assert_close(hidden_states(theirs)[-1], hidden_states(load_model(done.path))[-1])
    found = probekit.evaluate(tmp_path / "whole", task=[praise()], split="dev").rows
    assert found[found.headline.fillna(False).astype(bool)].value.item() == done.metrics["accuracy"]
    with pytest.raises(UsageError, match="nothing to merge"):
        probekit.merge(tmp_path / "whole", tmp_path / "again")
    with pytest.raises(UsageError, match="exists"):
        probekit.merge(done.path, tmp_path / "whole")


@pytest.mark.parametrize("wrong", [{"megatron_config": {"a": 1}}, {"megatron_core": "os"}])
def test_no_module_that_an_adapter_names_is_imported(run, tmp_path, wrong):
    folder = tmp_path / "run"
    shutil.copytree(run("bert", "lora").path, folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | wrong))
    with pytest.raises(ModelError, match=r"adapter_config\.json names Megatron's modules"):
        probekit.load_encoder(folder, device="cpu")
