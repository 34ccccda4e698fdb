"""Texts longer than the model: truncated, head and tail, windows, and windows joined before the head."""

import numpy as np
import pytest
import torch
from lessons import same_weights, sentence, tags

from probekit.adaptation.data.reading import data_as_in
from probekit.adaptation.data.sequences import HeadAndTail, WindowData
from probekit.adaptation.evaluate import evaluate
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.train import train
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.tasks import load_task
from probekit.tasks.task import Example, Split, Task, TaskKind

ONCE = {"epochs": 1, "batch_size": 4, "device": "cpu"}


def reviews(n=12, dev=6):
    """Good or bad? Short texts, and texts of more than 40 pieces whose last words decide."""
    rng = np.random.default_rng(0)

    def make(i):
        start = " ".join(rng.choice(["the", "cat", "sees", "and"], size=60 if i % 3 else 5))
        return Example(str(i), f"{start} {sentence(rng, ('bad', 'good')[i % 2], 4)}", i % 2)

    splits = {name: Split(name, tuple(map(make, range(size)))) for name, size in {"train": n, "dev": dev}.items()}
    return Task("reviews", TaskKind.CLASSIFICATION, splits, ("bad", "good"), ("accuracy",))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_head_and_tail(family, tiny_model):
    reader, task = load_encoder(tiny_model(family)).tokenizer, reviews()
    text = task.split("train")[1].text
    backend = reader.backend
    backend.no_truncation()
    pieces = backend.encode(text, add_special_tokens=False).ids
    backend.enable_truncation(40)
    special = backend.num_special_tokens_to_add(is_pair=False)
    room = 40 - special
    head = round(room * 128 / 510)
    ids = HeadAndTail(reader)([text, "the cat"])
    inner = ids.token_ids[: ids.length[0]][~ids.special[: ids.length[0]]]
    assert inner.tolist() == pieces[:head] + pieces[len(pieces) - (room - head) :]
    assert ids.length.tolist() == [40, special + len(backend.encode("the cat", add_special_tokens=False))]
    assert ids.truncated.tolist() == [True, False]
    assert reader([text]).length.tolist() == [40]  # as before


def test_windows_cover_the_text(tiny_bert):
    reader, task = load_encoder(tiny_bert).tokenizer, reviews()
    data = WindowData(task, task.split("train"), reader, overlap=10)
    assert data.truncated == 0
    backend = reader.backend
    backend.no_truncation()
    for i, e in enumerate(task.split("train")):
        pieces, joined = backend.encode(e.text, add_special_tokens=False).ids, []
        for w in data.sequences([i]):
            ids = data.pieces.tokens.token_ids[data.pieces.start[w] :][: data.pieces.tokens.length[w]][1:-1].tolist()
            joined += ids[10:] if joined else ids
        assert joined == pieces


@pytest.mark.parametrize("way", ["windows", "mean", pytest.param("max", marks=pytest.mark.slow)])
def test_logits_of_documents(way, tiny_bert, tmp_path):
    """Means of logits, and means and maxima of vectors, against one window at a time."""
    how = {"long": "windows"} if way == "windows" else {"long": "hierarchical", "window_pooling": way}
    task = reviews()
    run = train(task, tiny_bert, tmp_path / "run", overlap=10, **how, **ONCE)
    learner, card = load_learner(run.path)
    data = data_as_in(card, task, task.split("dev"), load_encoder(tiny_bert).tokenizer)
    assert data.count.tolist() == [1, 2, 2, 1, 2, 2]
    with torch.no_grad():
        found = learner(**data.__getitems__(range(6)), probabilities=True)["probabilities"]
        for i in range(6):
            states = learner.states({k: v for k, v in data.inputs([i]).items() if k != "sequences"})
            pooled = states.pooled
            if way == "windows":
                logits = learner.head.output(pooled).mean(0)
            else:
                logits = learner.head.output(pooled.mean(0) if way == "mean" else pooled.amax(0))
            assert torch.allclose(found[i], logits.softmax(-1), atol=1e-5)
    rows = evaluate(run.path, task=task, split="dev").rows
    assert rows[rows["metric"] == "log-loss"]["value"].iloc[0] == pytest.approx(run.metrics["loss"], abs=1e-6)
    assert card["encoder"]["long"] == how["long"]
    assert not any(card["truncated"])


@pytest.mark.slow
def test_truncation_is_the_default_and_short_texts_need_none(tiny_bert, tmp_path):
    task = reviews()
    plain = train(task, tiny_bert, tmp_path / "plain", **ONCE)
    assert "long" not in plain.card["encoder"]
    assert plain.card["truncated"] == [8, 4]
    same = train(task, tiny_bert, tmp_path / "same", long="truncate", **ONCE)
    assert same_weights(plain.path, same.path)
    short = Task(task.name, task.kind, {n: Split(n, s.examples[::3]) for n, s in task.splits.items()}, task.label_names)
    runs = [train(short, tiny_bert, tmp_path / long, long=long, **ONCE) for long in ("truncate", "head-tail")]
    assert same_weights(*(run.path for run in runs))


def test_options_that_do_not_fit(tiny_bert, tmp_path):
    for task, how, message in (
        (tags(), {"long": "windows"}, "--long windows is for the classification of single texts, which tags is not"),
        (reviews(), {"overlap": 3}, "overlap is for questions"),
        (reviews(), {"long": "hierarchical", "head": "bcn"}, "hierarchical is for the head linear"),
        (
            reviews(),
            {"window_pooling": "max"},
            "window_pooling is 'max', which has an effect only with long hierarchical",
        ),
        (reviews(), {"answer_length": 3}, "answer_length is for questions"),
        (reviews(), {"long": "all"}, "long is 'all'; it must be one of truncate"),
        (reviews(), {"long": "windows", "regime": "feature-extraction"}, "--long windows is for fine-tuning"),
    ):
        with pytest.raises(UsageError, match=message):
            train(task, tiny_bert, tmp_path / "run", **how, **ONCE)


def test_documents_in_their_files(tmp_path):
    for place, text in {"train/pos/0_9": "Fine.", "train/neg/1_2": "Dull.", "test/neg/7_1": "No."}.items():
        path = tmp_path / "aclImdb" / f"{place}.txt"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    task = load_task("imdb", tmp_path)
    assert {s: [(e.id, e.text, e.label) for e in split] for s, split in task.splits.items()} == {
        "train": [("neg/1_2", "Dull.", 0), ("pos/0_9", "Fine.", 1)],
        "test": [("neg/7_1", "No.", 0)],
    }
    (tmp_path / "ag_news").mkdir()
    (tmp_path / "ag_news" / "test.csv").write_text('"4","A title","And a ""text"""\n')
    (example,) = load_task("ag-news", tmp_path).split("test")
    assert (example.text, example.label) == ('A title And a "text"', 3)
    (tmp_path / "cad").mkdir()
    (tmp_path / "cad" / "dev_paired.tsv").write_text(
        "Sentiment\tText\tbatch_id\nNegative\tDull.\t4\nPositive\tFine.\t4\n"
    )
    assert [(e.label, e.group) for e in load_task("imdb-cad", tmp_path).split("dev")] == [(0, "4"), (1, "4")]
