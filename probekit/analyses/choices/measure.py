"""How often a language model's likeliest answer matches a behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations.writing.request import origin_of
from probekit.analyses.choices import ChoiceOptions
from probekit.analyses.vectors import model_columns, read_of_model
from probekit.errors import DataError
from probekit.models.options import ScorerOptions
from probekit.models.scoring import load_scorer
from probekit.notes import logger
from probekit.rows import Result, make_fits, make_rows
from probekit.runtime import Progress
from probekit.statistics.comparisons import in_deviations
from probekit.statistics.duplicates import find_groups, text_numbers
from probekit.statistics.multiplicity import tails
from probekit.statistics.predictions import Predictions
from probekit.statistics.proportions import wilson
from probekit.statistics.relabelling import shuffles
from probekit.tasks.questions import Question, load_questions

log = logger(__name__)


def measure(
    model: str | Path,
    task: str,
    data_dir: str | Path | None,
    loading: ScorerOptions,
    options: ChoiceOptions,
    progress: Progress,
) -> Result:
    """The rows of :func:`probekit.choices`."""
    found = load_questions(task, data_dir)
    scorer = load_scorer(model, options=loading)
    prompts = [options.prompt.replace("\\n", "\n").replace("{question}", q.text) for q in found]
    texts = [[prompt + answer for answer in q.answers] for prompt, q in zip(prompts, found, strict=True)]
    able = [bool(scorer.scored(some).all()) for some in texts]
    if not all(able):
        log.warning("%s: %d of %d questions are longer than the model reads, and are left out.", task,
                    len(able) - sum(able), len(able))  # fmt: skip
    kept = [(q, prompt) for q, prompt, there in zip(found, prompts, able, strict=True) if there]
    if not kept:
        raise DataError(f"{task}: the model can score no question; it reads {scorer.max_length} pieces.")
    flat = [(prompt, answer) for q, prompt in kept for answer in q.answers]
    scores = scorer.continuations(
        [prompt for prompt, _ in flat], [answer for _, answer in flat], options.score, progress=progress
    )
    cuts = np.cumsum([len(q.answers) for q, _ in kept])[:-1]
    questions, by_question = [q for q, _ in kept], np.split(np.asarray(scores), cuts)
    about = {
        "analysis": "choices", "task": task, "split": "test", "target": "gold",
        **model_columns(scorer.spec, origin_of(model, loading)), "layer": None, "representation": "lm-head",
        "estimator": str(options.score or scorer.scores[0]),
    }  # fmt: skip
    groups = copies(questions)
    rows = make_rows(about | row for row in question_rows(questions, by_question, groups, options))
    share = np.array([_share(q, s) for q, s in zip(questions, by_question, strict=True)])
    predictions = Predictions(
        make_fits([about | {"n": len(share)}]), np.array([q.id for q in questions]),
        np.ones(len(share), dtype=np.int64), (share == 1).astype(np.int64)[None], ("accuracy",), groups,
        label_names=("other", "matching"),
    )  # fmt: skip
    return Result(rows, (predictions,), reads=(read_of_model(model, scorer.spec),))


def _share(question: Question, scores: np.ndarray) -> float:
    """1 if the matching answer has the highest score alone, its share if several have it, otherwise 0."""
    return float(_chosen(scores)[question.matching])


def _chosen(scores: np.ndarray) -> np.ndarray:
    """The share of each answer in the choice: 1 for the one with the highest score; equal ones share it."""
    best = scores == scores.max()
    return np.asarray(best / best.sum())


def copies(questions: Sequence[Question]) -> np.ndarray | None:
    """The group of each question with its copies and near copies, (n,); None if there are none."""
    found = find_groups((text_numbers([q.text for q in questions]),))
    return found.of if found.count < len(questions) else None


def question_rows(
    questions: Sequence[Question], scores: Sequence[np.ndarray], groups: np.ndarray | None, options: ChoiceOptions
) -> Iterator[dict[str, Any]]:
    """The share of questions whose matching answer is chosen, of all, and of those that each answer matches."""
    share = np.array([_share(q, s) for q, s in zip(questions, scores, strict=True)])
    chance, drawn = _by_chance(questions, scores, groups, options)
    match = np.array([q.answers[q.matching].strip() for q in questions])
    of_group = np.arange(len(share)) if groups is None else groups
    for name, of in (("all", ""), *(("matching", str(of)) for of in sorted(set(match)))):
        mine = np.ones(len(share), dtype=bool) if name == "all" else match == of
        n = int(mine.sum())
        worth = n**2 / float((np.bincount(of_group[mine]) ** 2).sum())  # copies count once
        value, expected = float(share[mine].mean()), float(chance[mine].mean())
        low, high = (float(end) for end in wilson(np.array(value * worth), np.array(worth), options.level))
        row = {
            "metric": "matching-answers", "value": value, "ci_low": low, "ci_high": high, "n": n, "level": name,
            "of": of, "chance": expected, "ties": int(((share[mine] > 0) & (share[mine] < 1)).sum()),
        }  # fmt: skip
        if name == "all" and len(drawn):
            size, null = in_deviations(np.array([value]), drawn[None], 0, np.array([expected]))
            row["p"] = row["p_adjusted"] = float(tails(size, null)[0][0])
        yield row


def _by_chance(
    questions: Sequence[Question], scores: Sequence[np.ndarray], groups: np.ndarray | None, options: ChoiceOptions
) -> tuple[np.ndarray, np.ndarray]:
    """How often each matching answer, (n,), is chosen for any question with the same answers; and permutations.

    The share of matches, (draws,), if the matching answers of these questions, those of copies together, are
    permuted: a model that ignores the question has this share, whichever answers it prefers.
    """
    sets = np.array(["\0".join(q.answers) for q in questions])
    chance, drawn = np.empty(len(questions)), np.zeros(options.draws)
    for k, one in enumerate(dict.fromkeys(sets.tolist())):
        at = np.flatnonzero(sets == one)
        places = at.tolist()
        chosen = np.stack([_chosen(scores[i]) for i in places])
        match = np.array([questions[i].matching for i in places])
        chance[at] = chosen.mean(0)[match]
        of = None if groups is None else groups[at]
        orders = shuffles(len(at), of, draws=options.draws, seed=options.seed + k) if options.draws else ()
        blocks = [chosen[np.arange(len(at)), match[order]].sum(1) for order in orders]
        drawn += np.concatenate(blocks) / len(questions) if blocks else 0.0
    return chance, drawn
