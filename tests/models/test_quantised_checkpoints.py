"""Folders of quantised weights: read as the weights that they stand for, or refused with what is missing."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import tiny_model
from transformers import AutoModel, AutoModelForCausalLM

import probekit
from probekit.errors import ModelError, UsageError
from probekit.models.adapted.foreign import apply_adapter
from probekit.models.identity import identify
from probekit.models.scoring.load import load_language_model
from probekit.models.transformers.stock import load_model

IDS = torch.tensor([[3, 7, 11, 5, 9]])
WEIGHTS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
HOW = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "fmt": "e4m3"},
    "compressed-tensors": {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS}},
    },
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A tiny Llama with its head."""
    place = tmp_path_factory.mktemp("plain")
    tiny_model("llama", place / "headless", hidden_size=64, intermediate_size=128)
    folder = shutil.copytree(place / "headless", place / "plain")
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder)
    return folder


def described(folder, how):
    """Write into a folder's config.json how its weights are quantised."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": how}))
    return folder


def rounded(plain, folder, method):
    """A folder whose linear layers are quantised by hand, and what these stand for, by name."""
    shutil.copytree(plain, folder)
    weights, right = {}, {}
    for name, x in load_file(plain / "model.safetensors").items():
        right[name] = weights[name] = x
        if "proj" not in name:
            continue
        if method == "fp8":
            scale = (x.abs().max() / 448).reshape(1, 1)
            weights[name], weights[f"{name}_scale_inv"] = (x / scale).to(torch.float8_e4m3fn), scale
        else:
            scale = x.abs().amax(1, keepdim=True) / 127
            weights[name], weights[f"{name}_scale"] = (x / scale).round().to(torch.int8), scale
        right[name] = weights[name].float() * scale
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return described(folder, HOW[method]), right


@pytest.mark.parametrize("method", HOW)
def test_weights_are_expanded_where_transformers_can(plain, tmp_path, method):
    if method == "compressed-tensors":
        pytest.importorskip("compressed_tensors")
    folder, weights = rounded(plain, tmp_path / "m", method)
    right = AutoModelForCausalLM.from_pretrained(plain)
    right.load_state_dict(weights, strict=False)
    found = load_model(folder)
    for one, other in zip(found.parameters(), right.base_model.parameters(), strict=True):
        assert torch.equal(one, other)
    logits = load_language_model(folder, causal=True, random_weights=None)(IDS).logits
    torch.testing.assert_close(logits, right(IDS).logits, rtol=0, atol=1e-6)
    assert identify(folder)["quantised"] == method
    assert "quantised" not in identify(folder, random_weights=1)
    encoder = probekit.load_encoder(folder, device="cpu")
    assert encoder.spec["path"].startswith("packed")
    assert load_model(folder, random_weights=1).layers[0].self_attn.q_proj.weight.dtype is torch.float32
    with pytest.raises(UsageError, match="are not trained"):
        probekit.train("grammar:sentiment", folder, tmp_path / "run", limit=8, method="lora")
    with pytest.raises(ModelError, match="leave out --quantise"):
        load_model(folder, quantise="8bit")


@pytest.mark.parametrize(
    ("method", "package"), [("gptq", "optimum"), ("awq", "gptqmodel"), ("hqq", "hqq"), ("nonsense", "nonsense")]
)
def test_what_is_missing_is_said_in_one_sentence(plain, tmp_path, method, package):
    folder = described(shutil.copytree(plain, tmp_path / "m"), {"quant_method": method, "bits": 4, "group_size": 64})
    with pytest.raises(ModelError) as caught:
        load_model(folder)
    assert package in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("bits", ["8bit", "4bit"])
def test_folders_of_bitsandbytes_are_read_as_the_original_rounded_here(plain, tmp_path, bits):
    pytest.importorskip("bitsandbytes")
    from transformers import BitsAndBytesConfig

    from probekit.models.transformers.quantised import SETTINGS

    how = BitsAndBytesConfig(**SETTINGS[bits])
    folder = shutil.copytree(plain, tmp_path / "m")
    AutoModel.from_pretrained(
        plain, quantization_config=how, device_map={"": "cpu"}, dtype=torch.float32
    ).save_pretrained(folder)
    found, right = load_model(folder), load_model(plain, quantise=bits)
    with torch.no_grad():
        states, others = (net(IDS, output_hidden_states=True).hidden_states for net in (found, right))
    torch.testing.assert_close(torch.stack(states), torch.stack(others), rtol=0, atol=1e-6)
    assert identify(folder)["quantised"] == f"bitsandbytes {bits}"
    assert probekit.certify(folder, device="cpu").passed
    place = tmp_path / "adapter"
    place.mkdir()
    (place / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2}')
    name = "base_model.model.layers.0.self_attn.q_proj.lora_A.weight"
    save_file({name: torch.zeros(2, 64)}, place / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="give the original base"):
        apply_adapter(found, place)
