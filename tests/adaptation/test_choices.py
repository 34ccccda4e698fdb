"""One of several texts, and a word in two sentences."""

import json

import numpy as np
import pytest
import torch
from lessons import PLAIN, sentence
from transformers import AutoModelForMultipleChoice

from probekit.activations import cache_activations
from probekit.adaptation.data.sequences import ChoiceData
from probekit.adaptation.data.text import MarkedData
from probekit.adaptation.evaluate import evaluate
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.train import train
from probekit.errors import DataError, UsageError
from probekit.models import load_encoder
from probekit.tasks import load_task
from probekit.tasks.task import Example, Span, Split, Task, TaskKind

ONCE = {"epochs": 1, "batch_size": 4, "device": "cpu"}


def which(n=12, dev=6, most=3):
    """Which text is good? Examples have two or three choices."""
    rng = np.random.default_rng(0)

    def make(i):
        k, right = 2 + i % (most - 1), int(rng.integers(2))
        choices = tuple(sentence(rng, "good" if j == right else "bad", 4) for j in range(k))
        return Example(str(i), sentence(rng, None, 4), right, choices=choices)

    splits = {name: Split(name, tuple(map(make, range(size)))) for name, size in {"train": n, "dev": dev}.items()}
    return Task("which", TaskKind.MULTIPLE_CHOICE, splits, tuple(map(str, range(most))), ("accuracy",))


def words_in_context(n=12, dev=6):
    """Is the small one red in both sentences?"""
    rng = np.random.default_rng(0)

    def make(i):
        texts, spans = [], []
        for second in (False, True):
            left = " ".join(rng.choice(PLAIN, size=rng.integers(1, 4)))
            texts.append(f"{left} sleeping {rng.choice(PLAIN)}")
            spans.append(Span(len(left) + 1, len(left) + 9, second))
        return Example(str(i), texts[0], i % 2, pair=texts[1], spans=tuple(spans))

    splits = {name: Split(name, tuple(map(make, range(size)))) for name, size in {"train": n, "dev": dev}.items()}
    return Task("words", TaskKind.CLASSIFICATION, splits, ("false", "true"), ("accuracy",))


def test_choices_are_scored_as_by_transformers(tiny_bert, tmp_path):
    task = which(most=2)
    run = train(task, tiny_bert, tmp_path / "run", **ONCE)
    model, (learner, _) = AutoModelForMultipleChoice.from_pretrained(run.path).eval(), load_learner(run.path)
    batch = ChoiceData(task, task.split("dev"), load_encoder(tiny_bert).tokenizer).__getitems__([0, 1, 2])
    names = ("input_ids", "attention_mask", "token_type_ids")
    with torch.no_grad():
        found = learner(**batch, probabilities=True)
        theirs = model(**{k: batch["first"][k].unflatten(0, (3, 2)) for k in names}, labels=batch["labels"])
    assert torch.allclose(found["probabilities"], theirs.logits.softmax(-1), atol=1e-6)
    assert torch.allclose(found["loss"], theirs.loss, atol=1e-6)


@pytest.mark.parametrize("family", ["bert", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_examples_with_different_numbers_of_choices(family, tiny_model, tmp_path):
    task = which()
    run = train(task, tiny_model(family), tmp_path / "run", **ONCE)
    found = run.predictions[0]
    assert found.probabilities.shape == (1, 6, 3)
    two = [len(e.choices) == 2 for e in task.split("dev")]
    assert (found.probabilities[0][two, 2] == 0).all()
    assert (found.probabilities[0][~np.array(two), 2] > 0).all()
    rows = evaluate(run.path, task=task, split="dev").rows
    assert rows[rows["headline"].astype(bool)]["value"].item() == pytest.approx(run.metrics["accuracy"])


def test_choices_in_a_task_file(tmp_path):
    (tmp_path / "a.csv").write_text("text,x,y,z,label\nq,one,two,three,2\nr,one,two,,0\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "q", "options": ["one", "two"], "label": "B"}) + "\n")
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text('choices = ["x", "y", "z"]\n[splits]\ntrain = "a.csv"\n')
    second.write_text(
        'type = "multiple-choice"\nchoices = "options"\nlabels = ["A", "B"]\n[splits]\ntrain = "b.jsonl"\n'
    )
    task = load_task(str(first))
    assert (task.kind, task.label_names) == (TaskKind.MULTIPLE_CHOICE, ("0", "1", "2"))
    assert [(e.choices, e.label) for e in task.split("train")] == [(("one", "two", "three"), 2), (("one", "two"), 0)]
    assert load_task(str(second)).split("train")[0].label == 1
    (tmp_path / "a.csv").write_text("text,x,y,z,label\nq,one,two,,2\nr,one,,,0\n")
    with pytest.raises(DataError, match=r"number 2, from 0, but there are 2(.|\n)*two or more texts"):
        load_task(str(first))
    first.write_text('type = "multiple-choice"\n[splits]\ntrain = "a.csv"\n')
    with pytest.raises(DataError, match="needs choices"):
        load_task(str(first))


def test_superglue_files(tmp_path):
    copa = {"premise": "It fell.", "choice1": "a", "choice2": "b", "question": "cause", "label": 1, "idx": 0}
    wic = {"word": "class", "sentence1": "A class.", "sentence2": "It showed class.", "label": "false", "idx": 3}
    for name, rows in {
        "COPA/val.jsonl": [copa],
        "WiC/val.jsonl": [wic | {"start1": 2, "end1": 7, "start2": 10, "end2": 15}],
        "WiC/train.jsonl": [wic, wic | {"sentence1": "class in class"}],
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (example,) = load_task("copa", tmp_path).split("dev")
    assert (example.text, example.choices, example.label) == ("It fell. What was the cause?", ("a", "b"), 1)
    task = load_task("wic", tmp_path)
    assert [e.answers for split in ("train", "dev") for e in task.split(split)] == [("class", "class")] * 2
    assert task.notes == ("1 of 2 rows of train do not say where the word is, and are left out.",)
    (tmp_path / "WiC/val.jsonl").write_text(json.dumps(wic | {"start1": 2, "end1": 70, "start2": 0, "end2": 2}) + "\n")
    with pytest.raises(DataError, match=r"val.jsonl, line 1, column 'sentence1': 'class' is at characters 2 to 70"):
        load_task("wic", tmp_path)


@pytest.mark.parametrize(
    ("family", "pairs"),
    [
        ("bert", "separate"),
        ("gpt2", "joint"),
        *(pytest.param(family, "joint", marks=pytest.mark.slow) for family in ("bert", "roberta")),
    ],
)
def test_marked_words(family, pairs, tiny_model, tmp_path):
    """The head reads the mean of the word's pieces, found by encoding it in its place."""
    task = words_in_context()
    apart = pairs == "separate"
    reader = load_encoder(tiny_model(family)).tokenizer
    data = MarkedData(task, task.split("train"), reader, apart=apart)
    batch = data.__getitems__([0, 3])
    for i, row in enumerate((0, 3)):
        parts = [batch["first"], batch["second"]] if apart else [batch["first"]]
        places = [(part["input_ids"][i], span) for part in parts for span in part["spans"][i].tolist()]
        assert len(places) == 2
        for ids, (a, b) in places:
            assert reader.backend.decode(ids[a:b].tolist()).replace(" ##", "").strip() == "sleeping", row
    run = train(task, tiny_model(family), tmp_path / "run", pairs=pairs, **ONCE)
    assert run.card["head"]["head"] == "marked"
    learner, _ = load_learner(run.path)
    width = learner.head.output.in_features // run.card["head"]["width"]
    assert width == (4 if apart else 3)
    with torch.no_grad():
        states = learner.read(batch["first"], batch.get("second"))
        a, b = batch["first"]["spans"][1, 0].tolist()
        u = states.hidden[1, a:b].mean(0)
        vectors = [states.hidden[1, 0], u] if not apart else [u]
        if not apart:
            a, b = batch["first"]["spans"][1, 1].tolist()
            vectors.append(states.hidden[1, a:b].mean(0))
        else:
            a, b = batch["second"]["spans"][1, 0].tolist()
            v = states.second.hidden[1, a:b].mean(0)
            vectors += [v, (u - v).abs(), u * v]
        expected = learner.head.output(torch.cat(vectors))
        assert torch.allclose(learner.head(states)[1], expected, atol=1e-5)
    again = evaluate(run.path, task=task, split="dev").rows
    assert again[again["headline"].astype(bool)]["value"].item() == pytest.approx(run.metrics["accuracy"])


def test_what_does_not_apply(tiny_bert, tmp_path):
    with pytest.raises(UsageError, match="multiple-choice, for which layers are not cached"):
        train(which(), tiny_bert, tmp_path / "run", regime="feature-extraction", **ONCE)
    with pytest.raises(UsageError, match="task of multiple-choice"):
        cache_activations(tiny_bert, which(), "dev", out=tmp_path / "x.h5")
    with pytest.raises(UsageError, match="marked word is beyond the 6 pieces"):
        train(words_in_context(), tiny_bert, tmp_path / "run", max_length=6, **ONCE)
    cache_activations(
        tiny_bert, words_in_context(), "dev", out=tmp_path / "x.h5"
    ).close()  # sentence pairs with a class


def test_spans_and_choices_enter_digests_only_where_they_are():
    plain = Example("0", "a b", 1)
    digest = Split("train", (plain,)).digest()
    assert digest == "5ad648e7bed18f16adb0489fc34313ae"
    assert Split("train", (Example("0", "a b", 1, spans=(Span(0, 1),)),)).digest() != digest
    assert Split("train", (Example("0", "a b", 1, choices=("x",)),)).digest() != digest
