"""Conversations from a file to a cache: what the model reads, the role of each row, and what is pooled."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from builders import chat_model
from chat_templates import CHATML, GEMMA, QWEN3

import probekit
from probekit.errors import DataError, ModelError, UsageError
from probekit.models import load_encoder
from probekit.models.encoder import Rendered
from probekit.tasks import load_task
from probekit.tasks.task import Example, Split, Task, TaskKind

LINES = [
    {"messages": [{"role": "user", "content": "the cat?"}, {"role": "assistant", "content": "a dog."}], "label": "no"},
    {"messages": [{"role": "system", "content": "be good"}, {"role": "user", "content": "run"}], "label": "yes"},
    {
        "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "<think>hm</think>ok"}],
        "label": "yes",
    },
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return chat_model(tmp_path_factory.mktemp("chat"))


@pytest.fixture
def task(tmp_path):
    return write(tmp_path, LINES)


def write(folder, lines, keys=""):
    (folder / "chats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "chats.toml").write_text(f'messages = "messages"\n{keys}\n[splits]\ntrain = "chats.jsonl"\n')
    return load_task(str(folder / "chats.toml"))


def cached(model, task, out, **how):
    return probekit.cache_activations(model, task, out=out / "c.h5" if out.is_dir() else out, **how)


def test_roles_of_rows_and_what_is_pooled(model, task, tmp_path):
    cache = cached(model, task, tmp_path, tokens=True, pooling="mean")
    assert cache.spec["tokens"] == "piece"
    encoder = load_encoder(model)
    rendered = [
        "<|im_start|>user\nthe cat?<|im_end|>\n<|im_start|>assistant\na dog.<|im_end|>\n",
        "<|im_start|>system\nbe good<|im_end|>\n<|im_start|>user\nrun<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<think>hm</think>ok<|im_end|>\n",
    ]
    said = [{"user": "the cat?", "assistant": "a dog."}, {"system": "be good", "user": "run"}]
    said.append({"user": "x", "thinking": "hm", "assistant": "ok"})
    start, length = cache.index("start"), cache.index("length")
    for i, text in enumerate(rendered):
        rows = slice(start[i], start[i] + length[i])
        tokens = encoder.tokenize([Rendered(text)])
        assert cache.index("token_ids")[rows].tolist() == tokens.token_ids.tolist()
        roles, low, high = (a[rows] for a in (cache.roles, cache.index("char_start"), cache.index("char_end")))
        for role in ("system", "user", "assistant", "thinking", "template"):
            pieces = [text[a:b] for a, b in zip(low[roles == role], high[roles == role], strict=True)]
            if role != "template":
                assert "".join(pieces) == said[i].get(role, "")
        assert set(roles) == {*said[i], "template"}
    pooled = cached(model, task, tmp_path / "p.h5", positions="roles:user,assistant", pooling="mean,last", tokens=True)
    for i in range(3):
        chosen = np.isin(cache.roles[start[i] : start[i] + length[i]], ["user", "assistant"])
        right = cache.tokens(2)[i][chosen]
        np.testing.assert_array_equal(pooled.tokens(2)[i], right)
        np.testing.assert_allclose(pooled.layer(2)[i], right.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(pooled.layer(2, "last")[i], right[-1])
    assert set(pooled.roles) == {"user", "assistant"}


def test_special_pieces_are_those_of_the_template(model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "special")
    (folder / "chat_template.jinja").write_text(CHATML.replace("<|im_end|>", "<|endoftext|>"))
    task = write(tmp_path, LINES[:1])
    cache = cached(folder, task, tmp_path, positions="special", tokens=True, pooling="last")
    assert cache.index("length").tolist() == [2]
    assert cache.special_rows().all()
    assert (cache.index("word_index") == -1).all()


def test_spans_of_messages(model, tmp_path):
    lines = [LINES[0] | {"span": "dog"}, LINES[2] | {"span": "hm"}]
    task = write(tmp_path, lines, 'span = "span"')
    cache = cached(model, task, tmp_path, positions="answer", tokens=True)
    ids = load_encoder(model).tokenize([Rendered("dog"), Rendered("hm")])
    assert cache.index("token_ids").tolist() == ids.token_ids.tolist()
    assert set(cache.roles) == {"assistant", "thinking"}
    whole = cached(model, task, tmp_path / "w.h5", tokens=True)
    for found in (cache, whole):  # the spans that labels are about are rows of both
        places = zip(found.targets.first[:, 0], found.targets.last[:, 0] + 1, strict=True)
        assert [found.index("token_ids")[a:b].tolist() for a, b in places] == [
            [*map(int, ids.token_ids[a:b])] for a, b in ((0, 3), (3, 5))
        ]


def test_another_template_is_another_cache(model, tmp_path):
    task = write(tmp_path, LINES[:1])
    own = cached(model, task, tmp_path)
    (tmp_path / "gemma.jinja").write_text(GEMMA)
    other = cached(model, task, tmp_path / "g.h5", chat_template=str(tmp_path / "gemma.jinja"))
    assert own.spec_id != other.spec_id
    assert own.spec["chat_template"] != other.spec["chat_template"]
    assert not np.array_equal(own.layer(1), other.layer(1))


def test_what_a_template_leaves_out_is_said(model, tmp_path, caplog):
    turns = [*LINES[2]["messages"], {"role": "user", "content": "and"}]
    (tmp_path / "qwen.jinja").write_text(QWEN3)
    cached(
        model,
        write(tmp_path, [{"messages": turns, "label": "a"}]),
        tmp_path,
        chat_template=str(tmp_path / "qwen.jinja"),
    )
    assert "The chat template leaves out texts of thinking of 1 of 1 conversations." in caplog.text


def test_tasks_count_messages(task, tmp_path):
    report = probekit.check_task(task).splits[0]
    assert dict(report.messages) == {"user": 3, "assistant": 2, "system": 1}
    assert report.control == 0
    assert task.split("train")[0].text == "user: the cat?\nassistant: a dog."
    new = probekit.new_task(tmp_path / "chats.jsonl", out=tmp_path / "new.toml", dev=0)
    assert 'messages = "messages"' in new.read_text()
    assert [e.chat for e in load_task(str(new)).split("train")] == [e.chat for e in task.split("train")]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], r"line 1, column 'messages': expected a list of messages such as"),
        ([{"role": "bot", "content": "x"}], r"message 1 has the role 'bot'; expected one of system, developer, user"),
        ([{"role": "user", "content": [{"type": "image"}]}], r"message 1 has content that is not text"),
        ([{"role": "user", "content": 3}], r"message 1 has the content '3'; expected a text"),
        ([{"role": "assistant"}], r"message 1 has no content"),
    ],
)
def test_wrong_messages(messages, message, tmp_path):
    with pytest.raises(DataError, match=message):
        write(tmp_path, [{"messages": messages, "label": "a"}])


def test_bad_input(model, tiny_gpt2, task, tmp_path):
    with pytest.raises(ModelError, match=r"has no chat template.*--chat-template FILE"):
        cached(tiny_gpt2, task, tmp_path)
    with pytest.raises(UsageError, match=r"3 of 3 examples of chats have no piece at --positions roles:tool"):
        cached(model, task, tmp_path, positions="roles:tool")
    texts = Task("t", TaskKind.CLASSIFICATION, {"train": Split("train", (Example("0", "a", 0),))}, ("a",))
    with pytest.raises(UsageError, match=r"--chat-template is for conversations"):
        cached(model, texts, tmp_path, chat_template="x.jinja")
    (tmp_path / "gemma.jinja").write_text(GEMMA)
    two = write(tmp_path, [{"messages": [LINES[0]["messages"][0]] * 2, "label": "a"}])
    with pytest.raises(UsageError, match=r"chats, example 'train-0': the chat template of .* roles must alternate"):
        cached(model, two, tmp_path, chat_template=str(tmp_path / "gemma.jinja"))
    with pytest.raises(DataError, match=r"messages are classified or rated as a whole; leave out text"):
        write(tmp_path, LINES, 'text = "messages"')
    assert not list(tmp_path.glob("*.h5*"))
