"""Text as training data: batches against what the tokenizer gives of each text alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lessons import count, pairs, praise, tags

from probekit.adaptation.data.text import TextData
from probekit.adaptation.heads.head import IGNORED
from probekit.models import load_encoder
from probekit.tasks.task import Example, Split, Task, TaskKind

ROWS = [5, 0, 11, 3]


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    made = {}

    def of(family):
        if family not in made:
            made[family] = load_encoder(tiny_model(family)).tokenizer
        return made[family]

    return of


def data(task, tokenizer, split="train", *, apart=False):
    return TextData(task, task.split(split), tokenizer, apart=apart)


def check(inputs, texts, tokenizer):
    longest = max(len(tokenizer([text]).token_ids) for text in texts)
    assert inputs["input_ids"].shape == (len(texts), longest)
    assert ("token_type_ids" in inputs) == tokenizer.type_ids
    for i, text in enumerate(texts):
        one = tokenizer([text])
        n = len(one.token_ids)
        assert inputs["input_ids"][i, :n].tolist() == one.token_ids.tolist()
        assert (inputs["input_ids"][i, n:] == tokenizer.padding_id).all()
        assert inputs["attention_mask"][i].tolist() == [1] * n + [0] * (longest - n)
        assert inputs["special"][i, :n].tolist() == one.special.tolist()
        assert not inputs["special"][i, n:].any()
        if tokenizer.type_ids:
            assert inputs["token_type_ids"][i].tolist() == one.type_ids.tolist() + [0] * (longest - n)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "t5"])
def test_sentences(family, tokenizer):
    task, read = praise(), tokenizer(family)
    found = data(task, read)
    batch = found.__getitems__(ROWS)
    assert batch.keys() == {"labels", "first"}
    assert batch["labels"].tolist() == [task.split("train")[i].label for i in ROWS]
    assert batch["labels"].dtype == torch.int64
    check(batch["first"], [task.split("train")[i].text for i in ROWS], read)
    assert found.length.tolist() == [len(read([e.text]).token_ids) for e in task.split("train")]
    cut = sum(bool(read([e.text]).truncated[0]) for e in task.split("train"))  # letters are many pieces
    assert (len(found), found.truncated, found.unread) == (40, cut, 0)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_pairs(family, tokenizer):
    task, read = pairs(), tokenizer(family)
    chosen = [task.split("train")[i] for i in ROWS]
    joint = data(task, read).__getitems__(ROWS)
    assert joint.keys() == {"labels", "first"}
    check(joint["first"], [(e.text, e.pair) for e in chosen], read)
    apart = data(task, read, apart=True)
    batch = apart.__getitems__(ROWS)
    check(batch["first"], [e.text for e in chosen], read)
    check(batch["second"], [e.pair for e in chosen], read)
    assert apart.length[5] == len(read([chosen[0].text]).token_ids) + len(read([chosen[0].pair]).token_ids)


def test_numbers(tokenizer):
    batch = data(count(), tokenizer("bert")).__getitems__(ROWS)
    assert batch["labels"].dtype == torch.float32
    assert batch["labels"].tolist() == [1.0, 0.0, 3.0, 3.0]


@pytest.mark.parametrize("family", ["bert", "roberta", "t5"])
def test_words(family, tokenizer):
    task, read = tags(), tokenizer(family)
    found = data(task, read)
    batch = found.__getitems__(ROWS)
    for i, row in enumerate(ROWS):
        e = task.split("train")[row]
        one = read([(e.words,)])
        first = [one.word_index.tolist().index(w) for w in range(len(e.words))]
        wide = batch["labels"].shape[1]
        assert batch["first"]["words"][i].tolist() == first + [-1] * (wide - len(first))
        assert batch["labels"][i].tolist() == [*e.label, *[IGNORED] * (wide - len(first))]
    assert found.unread == 0


def test_what_cannot_be_read(tiny_bert):
    read = load_encoder(tiny_bert, max_length=5).tokenizer
    examples = (
        Example("a", "the cat", (0, 1), words=("the", "cat")),
        Example("b", "​ the dog cat dog", (1, 0, 1, 2, 2), words=("​", "the", "dog", "cat", "dog")),
        Example("c", "cat", None, words=("cat",)),
        Example("d", "", (), words=()),
    )
    task = Task(
        "t", TaskKind.SEQUENCE_LABELLING, {"train": Split("train", examples)}, ("O", "B-X", "I-X"), ("span-f1",)
    )
    found = data(task, read)
    batch = found.__getitems__([1, 3, 2, 0])
    assert batch["labels"].tolist() == [[0, 1, 2], [IGNORED] * 3, [IGNORED] * 3, [0, 1, IGNORED]]
    assert batch["first"]["words"].tolist() == [[1, 2, 3], [-1] * 3, [1, -1, -1], [1, 2, -1]]
    assert (found.unread, found.truncated) == (2, 1)  # the one without a piece, the one that is cut off
    assert np.concatenate([labels for _, labels in found.words]).tolist() == [0, 1, 0, 1, 2, -1]


def test_an_empty_text_of_a_tokenizer_without_special_pieces(tokenizer):
    task = praise()
    examples = (*task.split("train").examples[:3], replace(task.split("train")[3], id="no. 4", text=""))
    task = Task("t", TaskKind.CLASSIFICATION, {"train": Split("train", examples)}, ("a", "b"))
    assert data(task, tokenizer("bert")).length[3] == 2
    with pytest.raises(ValueError, match=r"t train, example 'no. 4' has no pieces"):
        data(task, tokenizer("gpt2"))
