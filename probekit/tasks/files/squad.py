"""Questions with answers in a text, as JSON in the format of SQuAD 1.1 and 2.0 (https://rajpurkar.github.io/SQuAD-explorer/)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from probekit.errors import DataError, Faults
from probekit.files import check_text, parse_json
from probekit.tasks.task import Example, Span

ANSWERS = ("answer", "no answer")
"""The label names of questions; a task in which every question has an answer has only the first."""


def read_squad(path: str | Path) -> list[Example]:
    """The questions of a file, in order: ``text`` is the question, ``pair`` the context, ``spans`` the answers.

    An empty list of answers means that the context holds none; without ``answers`` a question is unlabelled. Questions
    about one article are one group.

    Raises
    ------
    DataError
        If the file is not in SQuAD's format, ids are repeated, or an answer is not at its place in the context.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        check_text(path, raw)
        articles = parse_json(raw, unique=True)["data"]
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}.", file=path) from error
    except (ValueError, KeyError, TypeError) as error:
        problem = "it has no list 'data'" if isinstance(error, KeyError | TypeError) else str(error)
        raise DataError(
            f'expected JSON in the format of SQuAD, {{"data": [{{"paragraphs": …}}]}}, but {problem}.', file=path
        ) from error
    faults, found, seen = Faults(), [], set()
    for group, context, asked in _questions(path, articles):
        with faults:
            one = _example(path, group, context, asked)
            if one.id in seen:
                raise DataError(f"the id {one.id!r} occurs twice; ids must be unique.", file=path)
            seen.add(one.id)
            found.append(one)
    faults.check()
    if not found:
        raise DataError("has no questions.", file=path)
    return found


def question_columns(path: str | Path) -> dict[str, list[Any]]:
    """The questions of a file in SQuAD's format as columns: id, title, context, question, answers."""
    found = read_squad(path)
    answers = [
        None if e.label is None else {"text": list(e.answers), "answer_start": [span.start for span in e.spans]}
        for e in found
    ]
    return {
        "id": [e.id for e in found],
        "title": [e.group for e in found],
        "context": [e.pair for e in found],
        "question": [e.text for e in found],
        "answers": answers,
    }


def is_answers(value: Any) -> bool:
    """Whether a cell holds answers as the hub's copy of SQuAD does, or as SQuAD's file does."""
    if isinstance(value, dict):
        return isinstance(value.get("text"), list) and isinstance(value.get("answer_start"), list)
    one = value[0] if isinstance(value, list) and value else None
    return isinstance(one, dict) and {"text", "answer_start"} <= set(one)


def as_squad(columns: Mapping[str, Sequence[Any]], roles: Mapping[str, str]) -> dict[str, Any]:
    """Questions in columns as an object in SQuAD's format.

    Parameters
    ----------
    roles : dict of str to str
        The columns called text (the question), pair (the context), answers and, if there are any, id and groups (the
        title of the article).
    """
    n, articles = len(columns[roles["text"]]), dict[str, dict[str, list[dict[str, Any]]]]()
    for i in range(n):
        row = {role: columns[name][i] for role, name in roles.items()}
        answers = row.get("answers")
        if isinstance(answers, dict):
            pairs = zip(answers["text"], answers["answer_start"], strict=True)
            answers = [{"text": text, "answer_start": start} for text, start in pairs]
        asked = {"id": str(row.get("id", i)), "question": row["text"]} | (
            {} if answers is None else {"answers": answers}
        )
        articles.setdefault(str(row.get("groups", row["pair"])), {}).setdefault(row["pair"], []).append(asked)
    data = [
        {"title": title, "paragraphs": [{"context": context, "qas": asked} for context, asked in texts.items()]}
        for title, texts in articles.items()
    ]
    return {"data": data}


def _questions(path: Path, articles: Any) -> Iterator[tuple[str, str, Any]]:
    """The group, the context and the record of each question."""
    for a, article in enumerate(_list(path, articles, "data"), start=1):
        where = f"article {a}"
        for p, paragraph in enumerate(_list(path, article, where, "paragraphs"), start=1):
            there = f"{where}, paragraph {p}"
            for asked in _list(path, paragraph, there, "qas"):
                if not isinstance(paragraph.get("context"), str):
                    raise DataError(f"{there} has no text 'context'.", file=path)
                yield str(article.get("title") or where), paragraph["context"], asked


def _list(path: Path, value: Any, where: str, key: str = "") -> list[Any]:
    if key:
        value, where = value.get(key) if isinstance(value, dict) else None, f"{where}, {key!r}"
    if not isinstance(value, list):
        raise DataError(f"{where}: expected a list, found {str(value)[:40]!r}.", file=path)
    return value


def _example(path: Path, group: str, context: str, asked: Any) -> Example:
    if not isinstance(asked, dict) or not isinstance(asked.get("question"), str) or "id" not in asked:
        raise DataError(f"{group}: expected an object with 'id' and 'question', found {str(asked)[:60]!r}.", file=path)
    given = asked.get("answers")
    if given is not None and not isinstance(given, list):
        raise DataError(f"question {asked['id']}: answers is {str(given)[:40]!r}, expected a list.", file=path)
    if given and asked.get("is_impossible"):
        raise DataError(f"question {asked['id']} is_impossible but has answers; remove one of them.", file=path)
    pairs = None if given is None else [_answer(path, asked["id"], one) for one in given]
    return question(path, str(asked["id"]), asked["question"], context, pairs, group)


def _answer(path: Path, name: object, given: Any) -> tuple[str, int]:
    text, start = (given.get(key) if isinstance(given, dict) else None for key in ("text", "answer_start"))
    if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
        message = f"question {name}: expected an answer with 'text' and 'answer_start', found {str(given)[:60]!r}."
        raise DataError(message, file=path)
    return text, start


def question(
    source: str | Path, name: str, text: str, context: str, answers: Iterable[tuple[str, int]] | None, group: str | None
) -> Example:
    """The example of a question with its answers as (text, first character); None for an unlabelled question.

    Raises
    ------
    DataError
        If an answer is empty, or not at its place in the context; the message says what stands there.
    """
    spans = []
    for answer, start in answers or ():
        end = start + len(answer)
        if start < 0 or not answer or context[start:end] != answer:
            there = repr(context[start:end]) if 0 <= start < len(context) else "nothing"
            place = context.find(answer) if answer else -1
            hint = f" The answer begins at {place}." if place >= 0 else ""
            raise DataError(
                f"question {name}: the answer {answer!r} is not at characters {start} to {end} of its context, where "
                f"{there} stands.{hint}",
                file=source,
            )
        spans.append(Span(start, end, second=True))
    label = None if answers is None else int(not spans)
    return Example(name, text, label, pair=context, group=group, spans=tuple(dict.fromkeys(spans)))
