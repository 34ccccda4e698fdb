"""Questions with fixed answers, one of which matches a behaviour: model-written evaluations (Perez et al. 2022)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from probekit.errors import DataError, UsageError, did_you_mean
from probekit.tasks.datasets.statements import persona_files
from probekit.tasks.files.readers import read_json_lines

FOLDERS = {"persona": "persona", "human-generated": "human_generated", "lm-generated": "lm_generated"}
"""The names of sets of questions, and their folders."""
LETTER = re.compile(r"^ ?\(([A-Z])\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its possible answers.

    Attributes
    ----------
    id, text : str
        Unique, and the question with its choices.
    answers : tuple of str
        As they continue the prompt: " Yes" and " No", or " (A)", " (B)" …
    matching : int
        The index of the answer that matches the behaviour.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    matching: int


def load_questions(name: str, data_dir: str | Path | None = None) -> tuple[Question, ...]:
    """The questions called ``name``: "persona:TRAIT" (Yes or No), "human-generated:BEHAVIOUR" (lettered choices).

    Parameters
    ----------
    name : str
        SET:FILE, as in "persona:openness" or "human-generated:survival-instinct".
    data_dir : path, optional
        Folder with the files ``FILE.jsonl``, directly or in the set's folder.

    Raises
    ------
    UsageError
        If there is no such set or file.
    DataError
        If a question cannot be read; the message names the line.

    Examples
    --------
    >>> load_questions("persona:openness", "evals")[0].answers  # doctest: +SKIP
    (' Yes', ' No')
    """
    base, _, part = name.partition(":")
    if base not in FOLDERS:
        raise UsageError(f"unknown questions {name!r}; {did_you_mean(base, list(FOLDERS))}")
    files = persona_files(data_dir, FOLDERS[base])
    if part not in files:
        raise UsageError(f"{base} has no {part!r}; {did_you_mean(part, list(files))}")
    found = []
    for i, (line, record) in enumerate(read_json_lines(files[part])):
        text, match = record.get("question"), record.get("answer_matching_behavior")
        if not isinstance(text, str) or not isinstance(match, str):
            message = "expected the texts question and answer_matching_behavior."
            raise DataError(message, file=files[part], line=line)
        letters = LETTER.findall(text.partition("Choices:")[2])
        answers = tuple(f" ({letter})" for letter in letters) or (" Yes", " No")
        if f" {match.strip()}" not in answers or len(set(answers)) < len(answers):
            message = f"the matching answer is {match!r}, expected one of {', '.join(map(repr, answers))}, each once."
            raise DataError(message, file=files[part], line=line)
        found.append(Question(f"{part}-{i}", text, answers, answers.index(f" {match.strip()}")))
    if not found:
        raise DataError("has no question.", file=files[part])
    return tuple(found)
