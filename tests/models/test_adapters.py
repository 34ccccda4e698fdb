"""Adapters of peft as models: what each method gives is what peft itself gives; what does not fit is refused."""

import json
import shutil

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
)

import probekit
from probekit.errors import ModelError, UsageError
from probekit.models.adapted.foreign import READ, apply_adapter
from probekit.models.find import _doubt, resolve_model
from probekit.models.folder import weights_digest
from probekit.models.identity import identify
from probekit.models.scoring.load import load_language_model
from probekit.models.transformers.stock import load_model

pytestmark = pytest.mark.filterwarnings("ignore")  # of peft, on its own defaults
IDS = torch.tensor([[2, 6, 7, 8, 9, 3]])
LAYERS = {"bert": ["query", "value", "dense"], "gpt2": ["c_attn", "c_proj"], "t5": ["q", "v", "wo"]}
LAYERS["llama"] = ["q_proj", "v_proj", "down_proj"]
AUTO = {"bert": (AutoModelForSequenceClassification, "SEQ_CLS"), "t5": (AutoModel, None)}
CAUSAL = (AutoModelForCausalLM, "CAUSAL_LM")


def configuration(method, family):
    """A configuration of each method, for the layers of a family."""
    all_layers = LAYERS[family]
    how = {"target_modules": all_layers}
    two = {"target_modules": all_layers[:2]}  # of one shape
    of = {
        "LORA": how | {"r": 4, "lora_alpha": 7, "bias": "all"},
        "dora": how | {"r": 4, "use_dora": True},
        "all": {
            "target_modules": "all-linear",
            "r": 4,
            "use_rslora": True,
            "rank_pattern": {all_layers[0]: 2},
            "alpha_pattern": {all_layers[1]: 3},
        },
        "pattern": {"target_modules": rf".*\.1\..*\.({'|'.join(all_layers)})", "r": 2},
        "tokens": how | {"trainable_token_indices": [6, 8]},
        "embeddings": how | {"modules_to_save": ["embed_tokens" if family == "llama" else "word_embeddings"]},
        "IA3": how | {"feedforward_modules": all_layers[-1:]},
        "ADALORA": how | {"total_step": 10},
        "OFT": how | {"oft_block_size": 4},
        "BOFT": how | {"boft_block_size": 4},
        "LN_TUNING": {"target_modules": ["LayerNorm" if family == "bert" else "input_layernorm"]},
        "C3A": how | {"block_size": 4},
        "VERA": two | {"r": 4},
        "RANDLORA": two | {"r": 4},
        "VBLORA": how | {"r": 4, "num_vectors": 8, "vector_length": 8, "topk": 2},
        "ROAD": how | {"group_size": 4},
        "GRALORA": how | {"r": 4, "gralora_k": 2},
        "FOURIERFT": how | {"n_frequency": 20},
        "WAVEFT": how | {"n_frequency": 20},
        "PREFIX_TUNING": {"num_virtual_tokens": 3},
        "projected": {"num_virtual_tokens": 3, "prefix_projection": True, "encoder_hidden_size": 16},
        "PROMPT_TUNING": {"num_virtual_tokens": 3},
        "P_TUNING": {"num_virtual_tokens": 3, "encoder_hidden_size": 16},
    }.get(method, how | {"r": 4})
    kind = method if method in READ else "PREFIX_TUNING" if method == "projected" else "LORA"
    return peft.get_peft_config(of | {"peft_type": kind, "task_type": AUTO.get(family, CAUSAL)[1]})


@pytest.fixture(scope="module")
def adapter(tiny_model, tmp_path_factory):
    """``adapter("LORA", "bert")``: the folder of an adapter that is trained, so to say, on a model with its head."""
    made, place = {}, tmp_path_factory.mktemp("adapters")

    def make(method, family="bert"):
        if (method, family) not in made:
            torch.manual_seed(len(made))
            auto, task = AUTO.get(family, CAUSAL)
            whole = auto.from_pretrained(tiny_model(family))
            config = configuration(method, family)
            model = peft.get_peft_model(whole, config) if task else peft.PeftModel(whole, config)
            with torch.no_grad():
                for weight in model.parameters():
                    if weight.requires_grad and weight.is_floating_point():
                        weight += 0.05 * torch.randn_like(weight)
            model.save_pretrained(place / f"{family}-{method}")
            made[method, family] = place / f"{family}-{method}"
        return made[method, family]

    return make


def states(model, **more):
    """All hidden states of the pieces of the text, (layers, t, width)."""
    with torch.inference_mode():
        out = model(input_ids=IDS, attention_mask=torch.ones_like(IDS), output_hidden_states=True, **more)
    found = getattr(out, "encoder_hidden_states", None) or out.hidden_states
    return torch.stack([x[0, -IDS.shape[1] :] for x in found])


QUICK = {("LORA", "bert"), ("PREFIX_TUNING", "gpt2")}
SPECIAL = {"dora", "all", "pattern", "tokens", "embeddings", "projected"}
CASES = {(m, f) for m in READ | SPECIAL for f in ("bert", "llama")} | QUICK
CASES |= {(m, f) for m in ("LORA", "dora", "IA3") for f in ("gpt2", "t5")}


@pytest.mark.parametrize(
    ("method", "family"),
    [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in sorted(CASES)],
)
def test_an_adapter_gives_the_states_that_peft_gives(adapter, tiny_model, method, family):
    folder, auto = adapter(method, family), AUTO.get(family, CAUSAL)[0]
    theirs = peft.PeftModel.from_pretrained(auto.from_pretrained(tiny_model(family)).double(), folder).double().eval()
    right = states(theirs, **({"decoder_input_ids": IDS} if family == "t5" else {}))
    plain = AutoModel.from_pretrained(tiny_model(family)).double()
    plain = plain.get_encoder() if family == "t5" else plain
    before = states(plain)
    found = states(apply_adapter(plain, folder))
    # not merged, against merged: 1e-15 measured, 1e-6 for C3A, which peft computes in float32
    torch.testing.assert_close(found, right, rtol=0, atol=2e-6 if method == "C3A" else 1e-12)
    assert not torch.allclose(found, before, atol=1e-3)


def test_a_name_stands_for_a_base_and_adapters(adapter, tiny_gpt2, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two, prefix = (adapter(method, "gpt2") for method in ("LORA", "IA3", "PREFIX_TUNING"))
    net = AutoModelForCausalLM.from_pretrained(tiny_gpt2)
    for folder in (one, two):
        net = peft.PeftModel.from_pretrained(net, folder).merge_and_unload()
    name = f"{tiny_gpt2}+{one}+{two}"
    torch.testing.assert_close(states(load_model(resolve_model(name))), states(net), rtol=0, atol=1e-5)
    scores = load_language_model(resolve_model(name), causal=True, random_weights=None)(IDS).logits
    torch.testing.assert_close(scores, net(IDS).logits, rtol=0, atol=1e-5)
    about = identify(name)
    assert about["model"] == "gpt2+gpt2-LORA+gpt2-IA3"
    assert about["base"] == f"gpt2 {weights_digest(tiny_gpt2)}"
    assert [each.split()[0] for each in about["adapters"]] == [one.name, two.name]
    assert about["weights_digest"] != identify(f"{tiny_gpt2}+{two}+{one}")["weights_digest"]
    assert resolve_model(name) == resolve_model(name)
    encoder = probekit.load_encoder(f"{tiny_gpt2}+{one}+{prefix}", device="cpu")
    assert encoder.max_length == 40 - 3
    with pytest.raises(ModelError, match="only its layers are read"):
        load_language_model(encoder.folder, causal=True, random_weights=None)
    with pytest.raises(ModelError, match="give it as the last adapter"):
        resolve_model(f"{tiny_gpt2}+{prefix}+{one}")
    with pytest.raises(UsageError, match="reads it on its base as it is"):
        probekit.merge(one, tmp_path / "merged")
    shutil.copytree(tiny_gpt2, tmp_path / "moved")  # the identity does not depend on places
    assert identify(f"moved+{one}")["weights_digest"] == identify(one)["weights_digest"]


@pytest.fixture
def changed(adapter, tmp_path, monkeypatch):
    """``changed(r=3)``: a copy of an adapter of BERT with another configuration."""
    monkeypatch.chdir(tmp_path)

    def make(**values):
        folder = shutil.copytree(adapter("LORA"), tmp_path / "changed", dirs_exist_ok=True)
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))
        return folder

    return make


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"base_model_name_or_path": None}, "names no base. Name the model that it was trained on: BASE+"),
        ({"base_model_name_or_path": "https://example.org/model"}, "no folder of a model here"),
        ({"base_model_name_or_path": "../../etc"}, "no folder of a model here"),
        ({"base_model_name_or_path": "elmo:options.json,weights.hdf5"}, "no folder of a model here"),
        ({"base_model_name_or_path": "someone/model"}, "Name it yourself: someone/model+"),
        ({"peft_type": "XLORA"}, "the method XLORA, which probekit does not read"),
        ({"megatron_config": {"a": 1}}, "names Megatron's modules"),
        ({"layer_replication": [[0, 2], [1, 3]]}, "layer_replication, which probekit does not read"),
        ({"init_lora_weights": "pissa"}, "changes the base, too"),
        ({"alpha_pattern": {"(a+)+": 2}}, "names of layers, not patterns"),
        ({"r": 5}, "does not fit BertModel"),
        ({"auto_mapping": {"parent_library": "transformers.models.llama.modeling_llama"}}, "of type 'llama'"),
    ],
)
def test_a_configuration_that_cannot_be_followed_is_refused(changed, values, said):
    with pytest.raises(ModelError) as caught:
        load_model(resolve_model(changed(**values)))
    assert said in str(caught.value)


def test_weights_and_bases_that_do_not_fit_are_refused(changed, adapter, tiny_model, tmp_path):
    for family, said in (("gpt2", "changes no part of a model"), ("roberta", "begin with 'bert'"), ("minilm", "fit")):
        with pytest.raises(ModelError, match=said):
            load_model(resolve_model(f"{tiny_model(family)}+{adapter('LORA')}"))
    folder = changed()
    file = folder / "adapter_model.safetensors"
    weights = load_file(file)
    lost = {name: x for name, x in weights.items() if not name.endswith("layer.0.attention.self.query.lora_B.weight")}
    more = weights | {"base_model.model.bert.encoder.layer.7.attention.self.query.lora_A.weight": torch.zeros(4, 32)}
    for content, said in ((lost, "it lacks"), (more, "it changes bert.encoder.layer.7")):
        save_file(content, file)
        with pytest.raises(ModelError, match=said):
            load_model(resolve_model(folder))
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(Exception, match=r"adapter_model\.safetensors") as caught:
        load_model(resolve_model(folder))
    assert isinstance(caught.value, probekit.ProbekitError)
    file.rename(folder / "adapter_model.bin")
    with pytest.raises(ModelError, match="only pickled weights"):
        resolve_model(folder)
    with pytest.raises(ModelError, match="it is not an adapter of peft"):
        resolve_model(f"{tiny_model('bert')}+{tiny_model('gpt2')}")
    with pytest.raises(ModelError, match="names no model before or after"):
        resolve_model("+bert")


@pytest.mark.parametrize("task", ["CAUSAL_LM", None])
def test_an_adapter_of_a_model_with_two_towers_changes_the_one_that_reads_texts(task, tmp_path):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    see = {"model_type": "siglip_vision_model", "image_size": 8, "patch_size": 4, "projection_dim": 16, **sizes}
    read = {"model_type": "gemma", "vocab_size": 40, "num_key_value_heads": 2, "head_dim": 8, **sizes}
    config = PaliGemmaConfig(
        vision_config=see, text_config={**read, "pad_token_id": 0}, image_token_index=39, projection_dim=16
    )
    net = PaliGemmaForConditionalGeneration(config)
    net.save_pretrained(tmp_path / "base")
    both = r".*vision.*\.(q|v)_proj|.*language_model\.layers\.1\.self_attn\.q_proj"  # more places of the other tower
    tuned = peft.get_peft_model(net, peft.LoraConfig(task_type=task, r=2, target_modules=both))
    for name, weight in tuned.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight)
    tuned.save_pretrained(tmp_path / "adapter")
    with torch.inference_mode():
        right = tuned.eval()(input_ids=IDS, output_hidden_states=True)
    text = load_model(tmp_path / "base")
    before = states(text)
    found = states(apply_adapter(text, tmp_path / "adapter"))
    torch.testing.assert_close(found, torch.cat(right.hidden_states), rtol=0, atol=1e-5)
    assert not torch.allclose(found, before, atol=1e-3)
    whole = apply_adapter(
        load_language_model(tmp_path / "base", causal=True, random_weights=None), tmp_path / "adapter"
    )
    torch.testing.assert_close(whole(input_ids=IDS).logits, right.logits, rtol=0, atol=1e-5)


def test_a_base_with_more_blocks_is_refused(adapter, tiny_gpt2, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = AutoModelForCausalLM.from_pretrained(tiny_gpt2)
    shutil.copytree(tiny_gpt2, tmp_path / "deeper")
    net.config.n_layer += 1
    AutoModelForCausalLM.from_config(net.config).save_pretrained(tmp_path / "deeper")
    with pytest.raises(ModelError, match=r"has no weights for transformer\.h\.\d\.attn.c_attn"):
        load_model(resolve_model(f"deeper+{adapter('LORA', 'gpt2')}"))


def test_a_base_that_may_be_another_is_said_in_cache_notes_and_verdict(
    adapter, tiny_gpt2, tmp_path, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    lora, copy = adapter("LORA", "gpt2"), shutil.copytree(tiny_gpt2, tmp_path / "moved")
    assert "doubts" not in identify(f"moved+{lora}")  # the base that it names is here, and has the same weights
    net = AutoModelForCausalLM.from_pretrained(copy)
    with torch.no_grad():
        net.transformer.wte.weight += 0.01
    net.save_pretrained(copy)
    said = f"gpt2-LORA was trained on {tiny_gpt2}, but its base here is called moved, and nothing shows that these are"
    for split in ("train", "dev"):
        with probekit.cache_activations(
            f"moved+{lora}", "grammar:sentiment", split, limit=24, layers=(1,), out=f"{split}.h5", device="cpu"
        ) as cache:
            assert said[:60] in cache.spec["doubts"][0]
    assert "A base of the same shape with other weights is not noticed" in caplog.text
    result = probekit.probe("train.h5", "dev.h5", resamples=0, controls=0, out="rows.parquet")
    assert said[-60:] in result.verdict[-1]
    assert any(said[-60:] in note for note in result.notes)
    card = json.loads((tmp_path / "rows.parquet.json").read_text())
    assert any(said[-60:] in note for note in card["notes"])
    assert said[-60:] in card["reads"][0]["spec"]["doubts"][0]


@pytest.mark.parametrize(
    ("said", "base", "doubted"),
    [
        ("bert-base-uncased", "google-bert/bert-base-uncased", False),
        ("someone/bert", "google-bert/bert", True),
        ("/data/bert", "google-bert/bert", False),
        ("google-bert/bert", "cached", False),
        (None, "google-bert/bert", True),
    ],
)
def test_names_that_may_be_one_base(changed, tmp_path, said, base, doubted):
    cached = tmp_path / "hub/models--google-bert--bert/snapshots/0123"
    cached.mkdir(parents=True)
    doubt = _doubt("lora", changed(base_model_name_or_path=said), (str(cached) if base == "cached" else base, cached))
    assert bool(doubt) == doubted


def test_a_run_as_an_adapter_is_refused_on_other_weights_than_it_was_trained_on(tiny_gpt2, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    probekit.train(
        "grammar:sentiment", tiny_gpt2, regime="fine-tune", method="lora", out="run", limit=16, epochs=1, device="cpu"
    )
    alone = states(load_model(resolve_model("run")))
    shutil.copytree(tiny_gpt2, tmp_path / "moved")  # the place does not matter
    torch.testing.assert_close(states(load_model(resolve_model("moved+run"))), alone, rtol=0, atol=1e-5)
    net = AutoModelForCausalLM.from_pretrained(tiny_gpt2)
    with torch.no_grad():
        net.transformer.wte.weight += 0.01
    net.save_pretrained(tmp_path / "moved")
    with pytest.raises(ModelError, match=r"run was trained on .*gpt2 \(digest .*\), but moved has other weights"):
        resolve_model("moved+run")
    (tmp_path / "bare").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(tmp_path / "run" / name, tmp_path / "bare" / name)
    assert "bare was trained on" in identify("moved+bare")["doubts"][0]


def test_an_adapter_of_a_classifier_scores_with_the_head_of_the_base(tiny_model, tmp_path):
    base = tmp_path / "base"
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tiny_model("llama"))).save_pretrained(base)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_proj"], init_lora_weights=False)
    tuned = peft.get_peft_model(AutoModelForSequenceClassification.from_pretrained(base), config)
    tuned.save_pretrained(tmp_path / "adapter")
    found = apply_adapter(load_language_model(base, causal=True, random_weights=None), tmp_path / "adapter")
    torch.testing.assert_close(states(found.model), states(tuned.eval()), rtol=0, atol=1e-5)
