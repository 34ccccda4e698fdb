"""What a kept probe cannot read, and what it says: other models, other kinds of texts, very long ones."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tiny
from builders import chat_model

import probekit
from probekit.errors import UsageError


def with_card(probe, **encoder):
    return probekit.Probe(probe.weights, {**probe.card, "encoder": {**probe.card["encoder"], **encoder}})


@pytest.fixture(scope="module")
def probe(kept):
    return probekit.load_probe(kept[0], 2)


def test_a_model_that_has_moved_on(probe, model, tmp_path, monkeypatch):
    """Under the name of the card there are other weights, or another tokenizer."""
    monkeypatch.chdir(tmp_path)
    own = with_card(probe, model="theirs")
    shutil.copytree(model, "theirs")
    assert len(own.score(["the cat"])) == 1
    shutil.rmtree("theirs")
    tiny.tiny_model("bert", tmp_path / "theirs", seed=7)
    with pytest.raises(UsageError, match=r"the model's weights \(\w{32}, now \w{32}\). theirs has changed since"):
        own.score(["the cat"])
    shutil.rmtree("theirs")
    shutil.copytree(model, "theirs")
    file = tmp_path / "theirs" / "tokenizer.json"
    vocabulary = json.loads(file.read_text())
    vocabulary["normalizer"] = {"type": "Lowercase"}
    file.write_text(json.dumps(vocabulary))
    with pytest.raises(UsageError, match=r"the tokenizer \(\w{32}, now \w{32}\)\. Its scores"):
        own.score(["the cat"])


def test_very_long_texts_are_cut_and_said(probe, encoder, caplog):
    """What the model does not read changes nothing."""
    words = "the cat sees a dog ".split() * 8_000
    first = probe.score([" ".join(words[:100])], model=encoder)
    found = probe.score([" ".join(words), "the cat"], model=encoder)
    assert found["score"][0] == first["score"][0]
    assert "1 of 2 texts are longer than the model reads, and were cut" in caplog.text
    assert next(probekit.monitor(probe, [" ".join(words)], model=encoder))["truncated"] is True


def test_other_kinds_of_texts(probe, encoder):
    pairs = with_card(probe, pairs="joint")
    with pytest.raises(UsageError, match=r"fitted on pairs of texts; give \(text, text\), or JSON lines"):
        pairs.score(["a dog"], model=encoder)
    with pytest.raises(UsageError, match="fitted on single texts, and these are pairs"):
        probe.score([("a dog", "a cat")], model=encoder)
    for name, value, what in (
        ("chat_template", "x", "conversations"),
        ("generate", {"n": 3}, "texts in context, or texts"),
    ):
        with pytest.raises(UsageError, match=f"the probe reads {what}.* make a cache with the options of the train"):
            with_card(probe, **{name: value}).score(["a dog"], model=encoder)
    with pytest.raises(UsageError, match="texts that the model writes; make a cache"):
        probekit.apply(with_card(probe, generate={"n": 3}), "grammar:sentiment", model=encoder)


def test_conversations_of_a_task_file(tmp_path):
    """They are read through the model's chat template, as in the cache; plain texts are refused."""
    model = chat_model(tmp_path / "chat")
    for split, first in (("train", 0), ("dev", 40)):
        said = [{"role": "assistant", "content": "no yes".split()[i % 2]} for i in range(40)]
        asked = [{"role": "user", "content": f"run {i % 7} {first}"} for i in range(40)]
        lines = [{"messages": [*both], "label": both[1]["content"]} for both in zip(asked, said, strict=True)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    task = tmp_path / "chats.toml"
    task.write_text('messages = "messages"\nlabel = "label"\nsplits = {train = "train.jsonl", dev = "dev.jsonl"}\n')
    how = {"positions": "roles:assistant", "layers": "1"}
    made = [probekit.cache_activations(model, task, s, out=tmp_path / f"{s}.h5", **how) for s in ("train", "dev")]
    how = {"controls": 0, "resamples": 0, "groups": "none", "folds": 2}
    probekit.probe(*made, keep=tmp_path / "kept", **how)
    right = probekit.apply(tmp_path / "kept", made[1], resamples=0).rows
    found = probekit.apply(tmp_path / "kept", task, model=model, resamples=0).rows
    np.testing.assert_array_equal(found["value"], right["value"])
    with pytest.raises(UsageError, match="reads conversations, not plain texts; apply it to a task file"):
        probekit.load_probe(tmp_path / "kept").score(["run"], model=model)
    with pytest.raises(UsageError, match="its examples are texts, not conversations"):
        probekit.apply(tmp_path / "kept", "grammar:sentiment", model=model)
