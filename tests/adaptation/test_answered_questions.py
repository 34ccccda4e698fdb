"""Questions answered in a text: SQuAD's files, scores, windows, and a head that is transformers' own."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from lessons import Stop, same_weights, stopping
from transformers import AutoModelForQuestionAnswering

from probekit.adaptation.data.sequences import AnswerData
from probekit.adaptation.evaluate import evaluate
from probekit.adaptation.heads.span import best_spans
from probekit.adaptation.runs.evaluation import load_learner, predict_run
from probekit.adaptation.train import train
from probekit.errors import DataError, UsageError
from probekit.metrics import answer_f1, exact_match, metric
from probekit.models import load_encoder
from probekit.statistics.bootstrap import bounds
from probekit.statistics.predictions import Predictions
from probekit.tasks import load_task
from probekit.tasks.files.squad import ANSWERS, read_squad
from probekit.tasks.task import Example, Span, Split, Task, TaskKind

ONCE = {"epochs": 1, "batch_size": 4, "device": "cpu"}
XQUAD = Path(__file__).parents[2] / "../shared/data/xquad/xquad.en.json"
ANIMALS = ("cat", "dog", "bird", "child", "teacher")


def question(i, rng, *, longest=12, none=False):
    """Which animal is small? The words around it are plain."""
    before, after = (" ".join(rng.choice(["the", "a", "and", "sees"], size=rng.integers(1, longest))) for _ in range(2))
    animal = str(rng.choice(ANIMALS))
    context = f"{before} {'old' if none else 'small'} {animal} {after}"
    start = context.index(animal)
    spans = () if none else (Span(start, start + len(animal), second=True),)
    return Example(str(i), "small ?", int(none), pair=context, group=f"g{i // 2}", spans=spans)


def quiz(n=16, dev=8, *, lacking=False, longest=12):
    rng = np.random.default_rng(0)
    splits = {
        name: Split(name, tuple(question(i, rng, longest=longest, none=lacking and i % 3 == 0) for i in range(size)))
        for name, size in {"train": n, "dev": dev, "test": 6}.items()
    }
    metrics = ("answer-f1", "exact-match")
    return Task("quiz", TaskKind.QUESTION_ANSWERING, splits, ANSWERS if lacking else ANSWERS[:1], metrics)


def squad_file(path, *asked, context="The Normans came to Normandy, in France."):
    path.write_text(json.dumps({"data": [{"title": "N", "paragraphs": [{"context": context, "qas": list(asked)}]}]}))
    return path


def test_reading_a_file(tmp_path):
    path = squad_file(
        tmp_path / "dev.json",
        {"id": "a", "question": "Where?", "answers": [{"text": "Normandy", "answer_start": 20}] * 2},
        {"id": "b", "question": "When?", "answers": [], "is_impossible": True},
        {"id": "c", "question": "Who?"},
    )
    found = read_squad(path)
    assert [(e.id, e.label, e.answers, e.group) for e in found] == [
        ("a", 0, ("Normandy",), "N"),
        ("b", 1, (), "N"),
        ("c", None, (), "N"),
    ]
    toml = tmp_path / "mine.toml"
    toml.write_text('type = "question-answering"\n[splits]\ndev = "dev.json"\n')
    task = load_task(str(toml))
    assert (task.label_names, task.metrics) == (ANSWERS, ("answer-f1", "exact-match"))
    assert task.labels("dev").tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"id": "q7", "question": "?", "answers": [{"text": "Normandy", "answer_start": 21}]},
            r"dev.json: question q7: the answer 'Normandy' is not at characters 21 to 29 of its context, where "
            r"'ormandy,' stands. The answer begins at 20.",
        ),
        ({"id": "q7", "question": "?", "answers": [{"text": "Rome", "answer_start": 99}]}, "where nothing stands"),
        ({"id": "q7", "question": "?", "answers": [{"text": "Rome"}]}, "'text' and 'answer_start'"),
        ({"id": "q7", "answers": []}, "'id' and 'question'"),
        (
            {"id": "q7", "question": "?", "answers": [{"text": "came", "answer_start": 12}], "is_impossible": True},
            "q7 is_impossible but has answers",
        ),
    ],
)
def test_answers_that_are_not_in_their_context(asked, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_squad(squad_file(tmp_path / "dev.json", asked))


def test_files_that_are_not_squad(tmp_path):
    for content in (
        "[]",
        "{",
        '{"data": 3}',
        '{"data": [{"paragraphs": [{"qas": [{}]}]}]}',
        '{"data": [], "data": [1]}',
    ):
        path = tmp_path / "x.json"
        path.write_text(content)
        with pytest.raises(DataError, match=r"x\.json"):
            read_squad(path)


@pytest.mark.parametrize(
    ("answers", "said", "em", "f1"),
    [
        (["the Normans", "Normans"], " normans!", 1, 1),
        (["10th and 11th centuries"], "11th century", 0, 2 * 1 / (4 + 2)),
        (["a cat", "two big dogs"], "big dogs dogs", 0, 2 * 2 / (3 + 3)),
        ([], "", 1, 1),
        ([], "France", 0, 0),
        (["France"], "", 0, 0),
    ],
)
def test_scores_of_an_answer(answers, said, em, f1):
    """By hand, from the definition in SQuAD's evaluate-v2.0.py."""
    assert exact_match(answers, said) == em
    assert answer_f1(answers, said) == pytest.approx(f1, abs=1e-15)


def test_scripts_differ_for_answers_without_words():
    """evaluate-v1.1.py gives F1 0 for no common word, and counts an answer such as "the"; evaluate-v2.0.py drops it."""
    assert (exact_match(["The"], "a", version="1.1"), answer_f1(["The"], "a", version="1.1")) == (1, 0)
    assert (exact_match(["The"], "a"), answer_f1(["The"], "a")) == (1, 1)
    assert (exact_match(["The", "sun"], "a", version="1.1"), exact_match(["The", "sun"], "a")) == (1, 0)


@pytest.mark.shared
@pytest.mark.skipif(not XQUAD.is_file(), reason=f"there is no {XQUAD}")
def test_xquad_with_its_own_answers():
    found = read_squad(XQUAD)
    assert (len(found), len({e.group for e in found}), len({e.pair for e in found})) == (1190, 48, 240)
    own = [e.answers[0] for e in found]
    perturbed = [f"The {a.upper()}!" if i % 2 else f"{a} zzz" for i, a in enumerate(own)]
    for name, expected in (("exact-match-1.1", 1.0), ("answer-f1-1.1", 1.0), ("exact-match", 1.0), ("answer-f1", 1.0)):
        assert metric(name)([e.answers for e in found], own) == expected
    # every second answer gets a word more: no exact match, and 2 n / (2 n + 1) for its n words
    words = [len([w for w in answer.split() if normal(w)]) for answer in own[::2]]
    by_hand = (sum(2 * n / (2 * n + 1) for n in words) + len(own) // 2) / len(own)
    assert metric("exact-match")([e.answers for e in found], perturbed) == 0.5
    assert metric("answer-f1")([e.answers for e in found], perturbed) == pytest.approx(by_hand, abs=1e-12)


def normal(word):
    plain = "".join(c for c in word.lower() if c.isalnum() or ord(c) > 127)
    return plain not in ("", "a", "an", "the")


def test_intervals_of_answers():
    """Exact match has the interval of an accuracy; F1 that of the mean of the questions' F1."""
    gold = np.array([json.dumps(["red cat"])] * 30 + [json.dumps([])] * 10, dtype=object)
    said = np.array(["red cat", "cat", ""] * 10 + [""] * 10, dtype=object)
    hit = np.array([exact_match(json.loads(g), p) for g, p in zip(gold, said, strict=True)])
    f1 = np.array([answer_f1(json.loads(g), p) for g, p in zip(gold, said, strict=True)])
    found, accuracy = (
        bounds(gold, said[None], "exact-match"),
        bounds(np.ones(40, int), hit[None].astype(int), "accuracy"),
    )
    assert (found.value == accuracy.value).all()
    assert (found.ci == accuracy.ci).all()
    found, mean = bounds(gold, said[None], "answer-f1"), bounds(f1, f1[None], "log-loss", log_loss=f1[None])
    assert found.value == pytest.approx(f1.mean())
    np.testing.assert_allclose(found.ci, mean.ci)


def test_best_span_is_that_of_all_spans():
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 9, 2, generator=rng)
    context = torch.zeros(5, 9, dtype=torch.bool)
    context[:4, 3:8] = True
    score, start, end = best_spans(logits, context, 3)
    for b in range(4):
        spans = {(i, j): float(logits[b, i, 0] + logits[b, j, 1]) for i in range(3, 8) for j in range(i, min(i + 3, 8))}
        assert (int(start[b]), int(end[b])) == max(spans, key=spans.get)
        assert float(score[b]) == pytest.approx(max(spans.values()))
    assert score[4] == -torch.inf


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_windows_hold_each_piece_and_each_answer(family, tiny_model):
    """Windows overlap, cover the context, and the pieces of an answer decode to its text."""
    task, reader = quiz(8, longest=40), load_encoder(tiny_model(family)).tokenizer
    data = AnswerData(task, task.split("train"), reader, overlap=4)
    assert (data.count > 1).any()
    for i, e in enumerate(task.split("train")):
        covered, answered = np.zeros(len(e.pair), bool), 0
        for w in data.sequences([i]):
            rows = slice(data.pieces.start[w], data.pieces.start[w] + data.pieces.tokens.length[w])
            inside = data.context[rows]
            for a, b in zip(
                data.pieces.tokens.char_start[rows][inside], data.pieces.tokens.char_end[rows][inside], strict=True
            ):
                covered[a:b] = True
            first, last = data.gold[w]
            if last:
                text = data.decoded([i], np.array([[w - data.first[i], first, last]]))[0][0][0]
                assert text == e.answers[0]
                answered += 1
        assert answered >= 1
        assert covered[[k for k, c in enumerate(e.pair) if c != " "]].all()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_training_and_evaluation(family, tiny_model, tmp_path):
    task = quiz(lacking=True)
    run = train(task, tiny_model(family), tmp_path / "run", test="test", learning_rate=1e-3, **ONCE)
    examples = Predictions.read(tmp_path / "run" / "test.examples.parquet")
    gold = [json.loads(text) for text in examples.gold]
    assert gold == [list(e.answers) for e in task.split("test")]
    f1 = np.mean([answer_f1(g, p) for g, p in zip(gold, examples.predicted[0], strict=True)])
    assert run.test["answer-f1"] == pytest.approx(f1)
    again = evaluate(run.path, task=task, split="test").rows
    kept = again[again["kept"] & (again["metric"] == "answer-f1")]
    assert kept["value"].item() == pytest.approx(f1)
    constant = again[again["estimator"] == "majority"].set_index("metric")["value"]
    assert constant["exact-match"] == pytest.approx(2 / 6)  # every third question has no answer


@pytest.mark.slow
def test_it_learns(tiny_bert, tmp_path):
    task = quiz(48, 24, longest=4)
    run = train(
        task,
        tiny_bert,
        tmp_path / "run",
        epochs=12,
        batch_size=8,
        learning_rate=3e-3,
        device="cpu",
        encoder_dropout=0.0,
    )
    assert run.metrics["exact-match"] > 0.8
    rows = run.rows[(run.rows["metric"] == "exact-match") & run.rows["kept"] & run.rows["ci_low"].notna()]
    assert (rows["ci_low"] < rows["value"]).all()


def test_logits_are_those_of_transformers(tiny_bert, tmp_path):
    """The run is a BertForQuestionAnswering, whose logits for question and context are the head's."""
    task = quiz()
    run = train(task, tiny_bert, tmp_path / "run", **ONCE)
    model = AutoModelForQuestionAnswering.from_pretrained(run.path).eval()
    learner, _ = load_learner(run.path)
    data = AnswerData(task, task.split("dev"), load_encoder(tiny_bert).tokenizer, overlap=None)
    first = data.__getitems__([0, 1, 2])["first"]
    with torch.no_grad():
        states = learner.states(first)
        ours = learner.head(states)
        theirs = model(**{k: first[k] for k in ("input_ids", "attention_mask", "token_type_ids")})
    at = first["context"]
    for i, logits in enumerate((theirs.start_logits, theirs.end_logits)):
        assert torch.allclose(ours[..., i][at], logits[at], atol=1e-6)
        assert torch.allclose(ours[:, 0, i], logits[:, 0], atol=1e-6)


@pytest.mark.slow
def test_resumed_is_uninterrupted(tiny_bert, tmp_path):
    how = ONCE | {"epochs": 2}
    whole = train(quiz(), tiny_bert, tmp_path / "whole", **how)
    with pytest.raises(Stop):
        train(quiz(), tiny_bert, tmp_path / "cut", progress=stopping(5), **how)
    cut = train(quiz(), tiny_bert, tmp_path / "cut", **how)
    assert same_weights(whole.path, cut.path)
    assert whole.metrics == cut.metrics


@pytest.mark.slow
def test_what_does_not_apply(tiny_bert, tmp_path):
    from probekit.activations import cache_activations

    with pytest.raises(UsageError, match="question-answering, for which layers are not cached"):
        train(quiz(), tiny_bert, tmp_path / "run", regime="feature-extraction", caches=tmp_path, **ONCE)
    with pytest.raises(UsageError, match="task of question-answering"):
        cache_activations(tiny_bert, quiz(), "dev", out=tmp_path / "x.h5")
    with pytest.raises(UsageError, match="the head 'linear' is for"):
        train(quiz(), tiny_bert, tmp_path / "run", head="linear", **ONCE)
    run = train(quiz(), tiny_bert, tmp_path / "run", answer_length=2, **ONCE)
    found = predict_run(run.path, quiz(lacking=True), "dev")  # also on questions without an answer
    assert all(len(text[0].split()) <= 2 for text in found.predictions)
