"""Questions with fixed answers: how often a model that ignores them is said to match more, or less, often than chance.

The model prefers one answer, and one answer matches more often, which have nothing to do with each other; questions may
have copies, which it answers alike. From the scores of answers to the sentence.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from calibration import case

from probekit.analyses.choices import ChoiceOptions
from probekit.analyses.choices.measure import copies, question_rows
from probekit.analyses.verdict import sentences
from probekit.rows import make_rows
from probekit.tasks.questions import Question

ABOUT = {
    "analysis": "choices", "task": "t", "split": "test", "model": "m", "representation": "lm-head",
    "estimator": "log-probability", "target": "gold",
}  # fmt: skip


def differs(rng: np.random.Generator, *, count: int, says: float, matches: float, copied: int, near: bool) -> bool:
    """Whether the sentence says that matches are more, or less, frequent than by chance."""
    texts = [" ".join(f"w{k}" for k in rng.integers(500, size=12)) for _ in range(count)]
    match = (rng.random(count) < matches).astype(int)
    scores = rng.normal(size=(count, 2)) + np.array([0.0, 1.4 * says])
    of = np.repeat(np.arange(count), copied)
    asked = [Question(str(i), f"{texts[k]} more{i}" if near else texts[k], (" Yes", " No"), int(match[k]))
             for i, k in enumerate(of)]  # fmt: skip
    options = ChoiceOptions(resamples=400, seed=int(rng.integers(1 << 30)))
    rows = make_rows(ABOUT | row for row in question_rows(asked, list(scores[of]), copies(asked), options))
    return "not shown to differ" not in sentences(rows)[0]


for called, says, matches in (("equal", 0.0, 0.5), ("unequal", 1.0, 0.8), ("very unequal", 3.0, 0.95)):
    for count, copied, near in ((200, 1, False), (30, 1, False), (40, 5, False), (40, 5, True)):
        where = f"{called} answers, {count} questions" + f", {copied} {'near ' * near}copies" * (copied > 1)
        case(f"choices/a model that ignores the question differs from chance, {where}", "false positives")(
            partial(differs, count=count, says=says, matches=matches, copied=copied, near=near)
        )
