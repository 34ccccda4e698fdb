"""What is said about folders that are not what they should be, and digests that tell models apart."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from probekit.errors import ModelError, UsageError
from probekit.models import load_encoder
from probekit.models.find import resolve_model
from probekit.models.folder import configuration, tokenizer_digest, weights_digest, writing_tensors


@pytest.fixture
def folder(tiny_bert, tmp_path):
    """A copy that may be broken."""
    return shutil.copytree(tiny_bert, tmp_path / "bert")


def refused(folder, *said, **options):
    with pytest.raises(ModelError) as caught:
        load_encoder(folder, **options)
    for word in said:
        assert word in str(caught.value)


def test_no_such_folder(tmp_path):
    refused(tmp_path / "none", "there is no folder", "config.json and safetensors")
    refused("./none", "there is no folder")


def test_what_is_there_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.gguf").write_bytes(b"GGUF")
    refused("a.gguf", "is a file", "GGUF files are not read: give the hub id or the folder")
    Path("weights.bin").write_bytes(b"0")
    refused("weights.bin", "is a file", "Give the folder that the file is in")
    for name in ("adapter/adapter_config.json", "outer/inner/config.json", "nothing/readme"):
        Path(name).parent.mkdir(parents=True)
        Path(name).write_text("{}")
    refused("adapter", "names no base", "BASE+adapter")
    refused("outer", "Give a folder inside it that has one: outer/inner.")
    refused("nothing", "save_pretrained wrote")


def test_no_such_hub_model(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused(
        "someone/no-such-model", "HF_HUB_OFFLINE is set", "(hf download someone/no-such-model) and give the downloaded"
    )
    for name in ("minlm", "MiniLM"):
        refused(name, "Did you mean minilm?")
    refused("not a name!", "hub id")


def test_no_config(folder):
    (folder / "config.json").unlink()
    refused(folder, "config.json")


def test_a_config_that_is_no_json(folder):
    (folder / "config.json").write_text("{")
    refused(folder, "cannot be loaded")


def test_an_unknown_type(folder):
    (folder / "config.json").write_text('{"model_type": "not-a-type"}')
    refused(folder, "not-a-type")


def test_code_of_its_own_is_not_run(folder):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModel": "mine.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text("raise SystemExit('run!')")
    refused(folder, "cannot be loaded")


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    refused(folder, "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    refused(folder, "pickled", "save_pretrained")


@pytest.mark.parametrize("left", [0, 5, 1000, -1])
def test_cut_short(folder, left):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:left])
    refused(folder, "damaged or truncated")


def test_missing_weights_are_not_made_up(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    refused(folder, "encoder.layer.1.output.dense.weight", "1 of the weights")


def test_a_missing_pooler_does_not_matter(folder):
    weights = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in weights.items() if "pooler" not in k}, folder / "model.safetensors", {"format": "pt"})
    assert [*map(str, load_encoder(folder).sites)] == ["0", "1", "2", "3"]


def test_weights_of_another_size(folder):
    config = json.loads((folder / "config.json").read_text()) | {"intermediate_size": 96}
    (folder / "config.json").write_text(json.dumps(config))
    refused(folder, "cannot be loaded")


def test_a_missing_shard(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(folder, "model-00002-of-00002.safetensors is missing")
    (folder / "model.safetensors.index.json").write_text("[]")
    refused(folder, "index")


def test_shards(tiny_bert, tmp_path):
    from transformers import AutoModel

    shutil.copytree(tiny_bert, tmp_path / "sharded")
    (tmp_path / "sharded/model.safetensors").unlink()
    AutoModel.from_pretrained(tiny_bert).save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    assert load_encoder(tmp_path / "sharded").spec["weights_digest"] == weights_digest(tmp_path / "sharded")


def test_no_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    refused(folder, "no tokenizer")
    (folder / "tokenizer.json").write_text("{}")
    refused(folder, "tokenizer", "cannot be loaded")


def test_digests(folder, tiny_bert):
    assert weights_digest(folder) == weights_digest(tiny_bert)
    assert len(weights_digest(folder)) == 32
    before = tokenizer_digest(folder)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    assert weights_digest(folder) != weights_digest(tiny_bert)
    assert tokenizer_digest(folder) == before
    (folder / "tokenizer_config.json").write_text("{}")
    assert tokenizer_digest(folder) != before


def test_who_it_is_needs_no_torch(tiny_bert):
    code = (
        "import sys; import probekit.models; from probekit.models import find, folder as f; "
        f"p = find.resolve_model({str(tiny_bert)!r}); f.weights_digest(p); f.tokenizer_digest(p); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert resolve_model(tiny_bert) == tiny_bert


def test_wrong_choices(tiny_bert):
    with pytest.raises(UsageError, match="dtype is 'float8'; did you mean float32"):
        load_encoder(tiny_bert, dtype="float8")
    with pytest.raises(UsageError, match="packing is 'padded'; did you mean packed"):
        load_encoder(tiny_bert, packing="padded")


@pytest.mark.parametrize(
    "text", ['{"model_typf": "bert"}', "{", "[]", '{"model_type": ["bert"]}', '{"model_type": "x/y"}']
)
def test_a_configuration_that_cannot_be_read(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json"):
        configuration(tmp_path)


@pytest.mark.parametrize(
    ("told", "number"),
    [
        (SafetensorError("Error while serializing: I/O error: File too large (os error 27)"), 27),
        (RuntimeError("[enforce fail] PytorchStreamWriter failed writing file"), 28),
    ],
)
def test_what_safetensors_and_torch_say_of_a_full_disk(told, number):
    with pytest.raises(OSError, match="x.safetensors") as caught, writing_tensors(Path("x.safetensors")):
        raise told
    assert (caught.value.errno, caught.value.filename) == (number, "x.safetensors")
    with pytest.raises(RuntimeError, match="another"), writing_tensors(Path("x.safetensors")):
        raise RuntimeError("another error")
