"""Certificates: what is promised holds, and what does not is said."""

import json

import pytest
import tiny
from transformers import AttentionInterface

from probekit.activations.certify import certify, quick_certificate
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.models.transformers.packed import PACKED, Groups, packed_attention

TEXTS = ["the cat sleeps.", "dog", "a small old dog sees the bird in the garden!", ("the cat", "a dog runs")]


def leaking(module, query, key, value, attention_mask, **kwargs):
    kwargs["probekit_groups"] = Groups(((0, 1, query.shape[2]),))
    return packed_attention(module, query, key, value, attention_mask, **kwargs)


QUICK = ("bert", "gpt2", "t5")


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=[] if f in QUICK else pytest.mark.slow) for f in tiny.FAMILIES]
)
def test_what_is_promised_holds(family, tiny_model):
    certificate = certify(tiny_model(family), TEXTS)
    lines = {line.check: line for line in certificate.lines}
    assert certificate.passed
    assert lines["batch"].verdict == lines["layers"].verdict == "bit-identical"
    assert lines["stock"].verdict in ("bit-identical", "within 1e-6", "within 1e-5")
    assert lines["stock"].relative < 5e-6
    assert certificate.texts == 4
    json.dumps(certificate.to_json())


@pytest.mark.parametrize(
    ("family", "depends"),
    [
        ("bert", True),
        pytest.param("gpt2", True, marks=pytest.mark.slow),
        ("llama", False),
        pytest.param("roberta", False, marks=pytest.mark.slow),
    ],
)
def test_dependence_on_left_padding_is_said(family, depends, tiny_model):
    certificate = certify(tiny_model(family), TEXTS)  # absolute positions are counted from the padding
    line = next(line for line in certificate.lines if line.check == "padding left")
    assert line.verdict == ("depends on left padding" if depends else "within 1e-6")
    assert line.passed is None
    assert ("depends on left padding" in certificate.verdict) is depends


def test_control_a_leak_between_sequences_fails(tiny_bert, monkeypatch):
    encoder = load_encoder(tiny_bert)
    assert quick_certificate(encoder)["passed"]
    monkeypatch.setitem(AttentionInterface._global_mapping, PACKED, leaking)
    certificate = certify(encoder, TEXTS)
    assert not certificate.passed
    assert certificate.lines[0].verdict == "depends on the batch"
    quick = quick_certificate(encoder, TEXTS)
    assert not quick["passed"]
    assert quick["batch"]["relative"] > 0.01


@pytest.mark.parametrize(
    "family", ["bert", "gpt2", *(pytest.param(f, marks=pytest.mark.slow) for f in ("deberta-v2", "t5"))]
)
def test_quick(family, tiny_model):
    encoder = load_encoder(tiny_model(family))
    quick = quick_certificate(encoder, ["", *TEXTS, "the " * 100])
    assert quick["passed"]
    assert quick["verdict"] == "bit-identical in any batch"
    assert quick["texts"] == {"bert": 6, "gpt2": 5, "deberta-v2": 6, "t5": 6}[family]
    assert json.loads(json.dumps(quick)) == quick
    assert quick_certificate(encoder)["texts"] == 8


def test_no_pieces(tiny_gpt2):
    with pytest.raises(UsageError, match="none of the 1 texts"):
        certify(tiny_gpt2, [""])


def test_command(tiny_bert, tmp_path, call):
    (tmp_path / "texts").write_text("the cat sleeps.\n\ndog\n", encoding="utf-8")
    result = call("certify", tiny_bert, "--texts", tmp_path / "texts", "--json")
    assert result.status == 0
    told = json.loads(result.out)
    assert told["passed"]
    assert told["texts"] == 2
    assert "bit-identical in any batch" in call("certify", tiny_bert).out
    refused = call("certify", tiny_bert, "--texts", tmp_path / "none")
    assert refused.status == 2
    assert "cannot be read" in refused.err


def test_command_fails_where_a_check_does(tiny_bert, monkeypatch, call):
    encoder = load_encoder(tiny_bert)
    monkeypatch.setattr("probekit.models.loading.load_encoder", lambda *a, **k: encoder)
    monkeypatch.setitem(AttentionInterface._global_mapping, PACKED, leaking)
    result = call("certify", tiny_bert)
    assert result.status == 1
    assert "depends on the batch" in result.out


def test_nan_in_a_layer_is_said(tiny_bert, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = tmp_path / "nan"
    shutil.copytree(tiny_bert, folder)
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.1.output.dense.bias"][3] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    certificate = certify(folder)
    assert not certificate.passed
    assert "NaN or infinity in 2, 3" in certificate.verdict
    assert [*map(str, load_encoder(folder).sites)] == ["0", "1", "2", "3"]  # NaN is no final norm
