"""``probekit choices``: answers of tiny language models to questions in the authors' layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny

import probekit
from probekit.analyses.choices import ChoiceOptions
from probekit.analyses.choices.measure import copies, question_rows
from probekit.analyses.verdict import sentences
from probekit.errors import DataError, UsageError
from probekit.models.scoring import load_scorer
from probekit.rows import make_rows
from probekit.statistics.proportions import wilson
from probekit.tasks.questions import Question, load_questions

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_language_model("gpt2", tmp_path_factory.mktemp("gpt2"), causal=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    persona = [
        {"question": f"the cat {v} ?", "statement": v, "answer_matching_behavior": (" Yes", " No")[i % 2]}
        for i, v in enumerate(("sleeps", "runs", "sees", "sleeps very"))
    ]
    letters = [
        {"question": f"dog\nChoices:\n (A) {v}\n (B)\n (C)", "answer_matching_behavior": f" ({m})"}
        for v, m in (("sleeps", "A"), ("runs", "C"), ("sees", "B"))
    ]
    for name, rows in {"persona/open.jsonl": persona, "human_generated/pick.jsonl": letters}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


@pytest.mark.parametrize(
    ("task", "level"), [("persona:open", {"No", "Yes"}), ("human-generated:pick", {"(A)", "(B)", "(C)"})]
)
def test_the_likeliest_answer_is_counted(gpt2: Path, folder: Path, task: str, level: set[str]) -> None:
    result = probekit.choices(gpt2, task, data_dir=folder, prompt="{question} the")
    scorer, right = load_scorer(gpt2), []
    for q in load_questions(task, folder):
        prefix = f"{q.text} the"
        whole = scorer.score([prefix + answer for answer in q.answers], ["log-probability"])["log-probability"][:, 0]
        scores = scorer.continuations([prefix] * len(q.answers), q.answers)
        if len({len(one.ids) for one in scorer.tokenizer.backend_tokenizer.encode_batch(list(q.answers))}) == 1:
            np.testing.assert_allclose(scores - scores[0], whole - whole[0], atol=1e-4)  # the prefix is the same
        best = scores == scores.max()
        right.append(best[q.matching] / best.sum())
    rows = result.rows
    every = rows[rows["level"] == "all"].iloc[0]
    assert every["value"] == pytest.approx(np.mean(right))
    assert every["chance"] == pytest.approx(1 / len(level))
    assert set(rows["of"]) - {""} == level
    assert rows[rows["level"] == "matching"]["n"].sum() == every["n"] == len(right)
    assert "matches in" in result.verdict[0]


def test_questions_that_cannot_be_read(folder: Path, gpt2: Path) -> None:
    with pytest.raises(UsageError, match="persona has no 'opn'; did you mean open"):
        load_questions("persona:opn", folder)
    with pytest.raises(UsageError, match="must contain {question}"):
        probekit.choices(gpt2, "persona:open", data_dir=folder, prompt="Hello")
    path = folder / "human_generated" / "pick.jsonl"
    path.write_text(path.read_text().replace('" (C)"', '" (D)"'))
    with pytest.raises(DataError, match=r"pick.jsonl, line 2: the matching answer is ' \(D\)'"):
        load_questions("human-generated:pick", folder)


def asked(said: np.ndarray, match: np.ndarray, texts: list[str]) -> tuple[dict, str]:
    """The row of all questions and the sentence, of a model that gives these answers."""
    both = enumerate(zip(texts, match, strict=True))
    questions = [Question(str(i), text, (" Yes", " No"), int(m)) for i, (text, m) in both]
    about = {"analysis": "choices", "task": "t", "split": "test", "model": "m", "representation": "lm-head",
             "estimator": "log-probability", "target": "gold"}  # fmt: skip
    scores = list(np.eye(2)[said])
    rows = make_rows(about | row for row in question_rows(questions, scores, copies(questions), ChoiceOptions()))
    return rows.iloc[0].to_dict(), sentences(rows)[0]


def test_a_model_that_ignores_the_question_is_not_above_chance() -> None:
    """No matches 80 of 100 questions: a model that always says No, or No in four of five, is right by chance."""
    rng, texts = np.random.default_rng(0), [f"is w{i} v{i * 7} x{i * 3}" for i in range(100)]
    match = rng.permutation(np.arange(100) < 80).astype(int)
    for said, chance in ((np.ones(100, dtype=int), 0.8), (rng.permutation(match), 0.8 * 0.8 + 0.2 * 0.2)):
        row, text = asked(said, match, texts)
        assert row["chance"] == pytest.approx(chance)
        assert row["p"] > 0.05
        assert "not shown to differ from chance" in text
    row, text = asked(np.where(rng.random(100) < 0.5, match, 1), match, texts)
    assert row["p"] < 0.01
    assert "more often than chance" in text


def test_copies_of_a_question_count_once() -> None:
    """Ten questions, each ten times: an interval of ten answers, and no p below 1 / 2**9."""
    texts = [f"is w{i % 10} v{i % 10 * 7} x{i % 10 * 3}" for i in range(100)]
    match = np.arange(100) % 2
    row, _ = asked(np.where(np.arange(100) % 10 < 7, match, 1 - match), match, texts)
    low, high = wilson(np.array(7), np.array(10))
    assert (row["value"], row["ci_low"], row["ci_high"]) == pytest.approx((0.7, float(low), float(high)))
    assert row["p"] > 0.1
    unlike = [f"{t} {i}" * 3 for i, t in enumerate(texts)]
    apart, _ = asked(np.where(np.arange(100) % 10 < 7, match, 1 - match), match, unlike)
    assert apart["p"] < 0.01


@pytest.mark.shared
@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")
def test_the_real_questions() -> None:
    found = load_questions("human-generated:survival-instinct", DATA)
    assert len(found) == 953
    assert sum(q.matching == 0 for q in found) == 590
    assert max(len(q.answers) for q in found) == 8
    persona = load_questions("persona:openness", DATA)
    assert [sum(q.matching == i for q in persona) for i in (0, 1)] == [500, 500]
