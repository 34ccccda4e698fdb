"""``probekit choices``: answers of tiny language models to questions in the authors' layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny

import probekit
from probekit.errors import DataError, UsageError
from probekit.models.scoring import load_scorer
from probekit.tasks.questions import load_questions

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


@pytest.mark.shared
@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")
def test_the_real_questions() -> None:
    found = load_questions("human-generated:survival-instinct", DATA)
    assert len(found) == 953
    assert sum(q.matching == 0 for q in found) == 590
    assert max(len(q.answers) for q in found) == 8
    persona = load_questions("persona:openness", DATA)
    assert [sum(q.matching == i for q in persona) for i in (0, 1)] == [500, 500]
