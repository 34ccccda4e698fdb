"""Guesses about a file of labelled data: which column is the text, the label …, and the kind of task that follows.

Every guess comes with its reason, which ``probekit tasks new`` writes next to it; one that is not sure is a
:class:`~probekit.tasks.files.roles.Doubt`, about which it asks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from probekit.errors import DataError, UsageError, did_you_mean
from probekit.tasks.chat import problem
from probekit.tasks.datasets.sources import number
from probekit.tasks.files.entities import is_entities
from probekit.tasks.files.group_column import NAMES, GroupGuess, group_column
from probekit.tasks.files.marked import place_among, place_of, place_of_part, with_places, wrong_place
from probekit.tasks.files.no_label import class_name, missing
from probekit.tasks.files.raw import DOCUMENT, Raw
from probekit.tasks.files.roles import NONE, Doubt, Found, Guess, told
from probekit.tasks.files.several import HOLDS
from probekit.tasks.files.squad import is_answers
from probekit.tasks.task import TaskKind

CLASSES = 20
"""With more distinct numbers than this, labels are scores."""


def guess(raw: Raw, groups: str | None = None, columns: Sequence[str] = ()) -> Guess:
    """The likely role of each column of a file, and the kind of task that follows.

    Parameters
    ----------
    groups : str, optional
        The column that groups the rows, or "none" for no groups, instead of a guess.
    columns : sequence of str
        ROLE=COLUMN for what is known; ROLE=none if there is none.

    Raises
    ------
    DataError
        If no column holds text.
    UsageError
        If there is no such column, or the one of groups is the label.
    """
    given = told(raw, columns)
    groups = given.pop("groups", groups)
    given.pop("split", None)
    found = Found(raw, given)
    kind = next(kind for read in (_questions, _chats, _entities, _words, _texts) if (kind := read(found)))
    of_groups = _groups(found, kind, groups)
    others = {name: v for name, v in found.free.items() if name != of_groups.column}
    unique = {name for name, values in others.items() if len({str(v) for v in values}) == len(values)}
    found.take("id", _first_named(unique, NAMES["ids"]), "unique")
    if of_groups.column is not None:
        found.roles["groups"], found.why["groups"] = of_groups.column, of_groups.why
        if of_groups.why.startswith("not by its name"):
            found.doubts.append(Doubt("groups", of_groups.column, (NONE,), of_groups.why))
    found.take("domain", _first_named(set(others) - unique, NAMES["domains"]), "by its name")
    classes = Counter[str]()
    if "label" in found.roles and not kind.several:
        kind, classes = _of_labels(raw.columns[found.roles["label"]], kind)
    repeated = of_groups.repeated or {}
    return Guess(kind, found.roles, found.why, dict(classes.most_common()), repeated, tuple(found.doubts), found.keys)


def _of_labels(values: Sequence[Any], kind: TaskKind) -> tuple[TaskKind, Counter[str]]:
    """Classes with their counts; or numbers to predict, if there are fractions or many."""
    labels = [v for v in values if v is not None and str(v).strip() != ""]
    numbers = [None if isinstance(v, bool) else number(str(v)) for v in labels]
    integers = None in numbers or all(x == int(x) for x in numbers)  # type: ignore[arg-type]
    if None not in numbers and (not integers or len(set(numbers)) > CLASSES):
        return TaskKind.REGRESSION, Counter()
    return kind, Counter(str(v) for v in labels)


def _questions(found: Found) -> TaskKind | None:
    """Questions with answers that are parts of a text, as SQuAD has them."""
    answers = _first_named(found.sample, NAMES["answers"])
    if answers is None or not any(map(is_answers, found.sample[answers])):
        return None
    lower = {name.lower(): name for name in found.sample}
    for role, names in (("text", ("question", "query")), ("pair", ("context", "passage", "paragraph"))):
        found.take(role, next((lower[name] for name in names if name in lower), None), "by its name")
    if "text" not in found.roles or "pair" not in found.roles:
        return None
    found.take("answers", answers, "texts with the place where each begins")
    return TaskKind.QUESTION_ANSWERING


def _chats(found: Found) -> TaskKind | None:
    """Conversations, which are classified as a whole."""
    some = {name: [v for v in values if v is not None][:10] for name, values in found.sample.items()}
    chats = [name for name, values in some.items() if values and not any(map(problem, values))]
    if "messages" not in found.roles and (not chats or not found.wants("messages")):
        return None
    found.take("messages", _first_named(chats, NAMES["chats"]) or next(iter(sorted(chats)), None), "lists of messages")
    _label(found, {n: v for n, v in found.free.items() if not isinstance(v[0], list | dict)})
    return TaskKind.CLASSIFICATION


def _entities(found: Found) -> TaskKind | None:
    """Named entities, as the characters of a text where each begins and ends."""
    likely = [name for name, values in found.free.items() if is_entities(values)]
    if "entities" not in found.roles and (not likely or not found.wants("entities")):
        return None
    found.take("entities", _first_named(likely, NAMES["entities"]) or likely[0], "places of characters with labels")
    if (words := _first_named(found.free, NAMES["words"])) and not any(map(_mean_words, found.free.values())):
        raise DataError(
            f"{found.roles['entities']!r} has places of words, and there is no text whose characters they could count; "
            f"write a list with the tag of each word beside {words!r}.",
            file=found.raw.path,
        )
    _text(found)
    return TaskKind.SEQUENCE_LABELLING


def _words(found: Found) -> TaskKind | None:
    """Lists of words, and of tags."""
    lists = [n for n, values in found.sample.items() if any(isinstance(v, list) for v in values)]
    lists = [n for n in lists if not any(isinstance(v, list) and v and isinstance(v[0], dict) for v in found.sample[n])]
    texts = [n for n in lists if all(isinstance(w, str) for v in found.sample[n] if isinstance(v, list) for w in v)]
    words = found.roles.get("words") or _first_named(lists, NAMES["words"])
    if words is None and not (texts and _same_lengths(found, texts[0], lists)):
        return None
    words = words or texts[0]
    found.take("words", words, "lists of words")
    fits = [name for name in lists if name not in found.used and _same_lengths(found, words, [name])]
    named = [name for name in NAMES["tags"] if name in fits] or fits
    found.take("tags", next(iter(named), None), "lists of the same length", named[1:])
    return TaskKind.SEQUENCE_LABELLING


def _same_lengths(found: Found, words: str, others: Sequence[str]) -> bool:
    """Whether each list of one of the other columns is as long as that of words."""
    pairs = [list(zip(found.sample[words], found.sample[name], strict=True)) for name in others if name != words]
    return any(all(len(a or ()) == len(b) for a, b in rows if isinstance(b, list)) for rows in pairs)


def _texts(found: Found) -> TaskKind:
    """A text or a pair of texts, a word in them, and a label."""
    lower = {name.lower(): name for name in found.sample}
    for first, second in NAMES["pairs"]:
        fits = found.roles.get("text", lower.get(first)) == lower.get(first) and "pair" not in found.refused
        if first in lower and second in lower and fits:
            found.take("text", lower[first], "by its name")
            found.take("pair", lower[second], "by its name")
            break
    if kind := _choices(found):
        return kind
    _marked(found)
    if kind := _several(found):
        _text(found)
        return kind
    label = _first_named(found.free, NAMES["labels"])
    if label:
        _label(found, found.free)
    _text(found)
    _label(found, found.free)
    return TaskKind.CLASSIFICATION


SEPARATORS = (";", "|", ",")
"""What may be between the labels of a cell, the likeliest first."""


def _several(found: Found) -> TaskKind | None:
    """Several labels or numbers of a text: in a column each, in lists or objects, or in one cell."""
    name = found.roles.get("label") or _first_named(found.free, NAMES["labels"])
    if name is None and found.wants("label"):
        held = [n for n, values in found.free.items() if set(map(class_name, values)) <= HOLDS.keys()]
        held = [n for n in held if len({class_name(v) for v in found.sample[n]}) > 1]
        others = held if len(held) == 2 else []
        if len(held) > 1:
            found.roles["label"], found.why["label"] = held, "1 or 0 in each"
            found.doubts += [Doubt("label", "+".join(held), tuple(others), "1 or 0 in each")] * bool(others)
            return TaskKind.MULTI_LABEL
        lists = [n for n, values in found.free.items() if any(isinstance(v, list | dict) for v in values)]
        name = lists[0] if lists and any(map(_mean_words, found.free.values())) else None
    if isinstance(name, list):
        said = {class_name(v).lower() for one in name for v in found.sample[one] if not missing(v)}
        return TaskKind.MULTI_LABEL if said <= HOLDS.keys() else TaskKind.MULTI_OUTPUT
    values = [] if name is None else [v for v in found.sample[name] if not missing(v)]
    if values and all(isinstance(v, list | dict) for v in values):
        found.take("label", name, "lists of labels" if isinstance(values[0], list) else "labels by name")
        cells = [one for v in values for one in (v.values() if isinstance(v, dict) else v)]
        numbers = any(isinstance(one, float) or (isinstance(one, int) and one not in (0, 1)) for one in cells)
        return TaskKind.MULTI_OUTPUT if numbers and isinstance(values[0], dict) else TaskKind.MULTI_LABEL
    if separator := next((mark for mark in SEPARATORS if _are_joined(values, mark)), ""):
        found.take("label", name, f"several labels with {separator} between them")
        found.keys["separator"] = separator
        return TaskKind.MULTI_LABEL
    return None


def _are_joined(cells: Sequence[Any], mark: str) -> bool:
    """Whether cells are labels with a mark between them: several in many cells, and each often."""
    parts = [[one.strip() for one in cell.split(mark)] for cell in cells if isinstance(cell, str)]
    if len(parts) < len(cells) or sum(len(some) > 1 for some in parts) < max(2, len(parts) / 20):
        return False
    count = Counter(one for some in parts for one in some)
    return len(count) < len(set(map(str, cells))) and len(count) <= max(CLASSES, len(cells) // 10)


_CHOICE = re.compile(r"(?P<stem>choice|option|ending|candidate)[-_ ]?(?P<number>\d|[a-e])", re.IGNORECASE)


def _choices(found: Found) -> TaskKind | None:
    """Texts to choose from, in columns such as choice1 and choice2, if labels number them from 0."""
    named = [name for name, values in found.free.items() if _CHOICE.fullmatch(name) and _mean_words(values)]
    label = found.roles.get("label") or _first_named(found.free, NAMES["labels"])
    numbers = set(map(str, found.sample[label])) - {"None", "", "-1"} if isinstance(label, str) else set()
    if len(named) < 2 or not numbers or not numbers <= set(map(str, range(len(named)))):
        return None
    found.take("choices", named, "texts to choose from")
    found.take("label", label, "by its name: the number of the right one, from 0")
    _text(found)
    return TaskKind.MULTIPLE_CHOICE


def _text(found: Found) -> None:
    """The text: by its name, otherwise the longest; raises DataError if no column holds text."""
    columns = found.free
    length = {name: _mean_words(values) for name, values in columns.items()}
    texts = {n: v for n, v in columns.items() if length[n] and any(number(str(cell)) is None for cell in v)}
    named = [name for name in texts if name.lower() in NAMES["texts"]]
    if named:
        name = _first_named(named, NAMES["texts"]) or named[0]
        longer = [other for other in named if length[other] > max(3, length[name])]
        found.take("text", name, "by its name", longer)
    elif texts:
        name = max(texts, key=length.__getitem__)
        why = f"the longest texts, {length[name]:.1f} words on average"
        twins = {one: one.replace("1", "2") for one in texts if one.replace("1", "2") in {*texts} - {one, "2"}}
        first, second = next(((a, b) for a, b in twins.items() if name in (a, b)), (name, None))
        close = [n for n in texts if n not in (first, second) and length[n] > max(2, length[name] / 2)]
        found.take("text", first, why, close)
        found.take("pair", second, f"beside {first}")
    if "text" not in found.roles:
        raise DataError(
            f"no column holds text; the columns are {', '.join(map(repr, found.raw.columns))}.", file=found.raw.path
        )


def _label(found: Found, columns: Mapping[str, Sequence[Any]]) -> None:
    """The label: by its name; otherwise the column with the fewest distinct values, or the last column of numbers."""
    named = [columns_of for name in NAMES["labels"] if (columns_of := _first_named(columns, [name]))]
    if named:
        found.take("label", named[0], "by its name", [n for n in named[1:] if _is_label(columns[n])])
    elif found.wants("label"):
        found.take("label", *_fewest(columns))


def _is_label(values: Sequence[Any]) -> bool:
    """Whether values repeat as labels do."""
    return 2 <= len({str(v) for v in values}) <= max(CLASSES, len(values) // 10)


_PLACE = re.compile(r"(?P<end>end|stop|to)|start|begin|from", re.IGNORECASE)


def _marked(found: Found) -> None:
    """The places of a word in a text or in both of a pair, as numbers, or the word itself."""
    numbers = [name for name, values in found.free.items() if _are_places(values)]
    for role, which in (("span", "1" if "pair" in found.roles else ""), ("pair_span", "2")):
        ends: dict[bool, str] = {}
        for name in numbers:
            words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
            place = _PLACE.search(words)
            if place and (re.findall(r"\d", words) or [""])[-1] == which:
                ends.setdefault(place["end"] is not None, name)
        if len(ends) == 2 and (role == "span" or "pair" in found.roles):
            found.take(role, [ends[False], ends[True]], "its first character, and the one after its last")
    _of_places(found)
    if "pair" in found.roles and found.wants("span") and found.wants("pair_span"):
        word = _first_named(found.free, NAMES["lemmas"])
        texts = (found.sample[found.roles["text"]], found.sample[found.roles["pair"]])
        if word and all(_mostly_in(found.sample[word], text) for text in texts):
            found.roles |= {"span": word, "pair_span": word}
            found.why |= {"span": "the word in question", "pair_span": "in the second text, too"}


def _of_places(found: Found) -> None:
    """The places of a word in one column, such as "4-9", of each text; by their number or their order."""
    roles = [("span", "text"), ("pair_span", "pair")] if "pair" in found.roles else [("span", "text")]
    text = found.roles.get("text") or _first_named(found.free, NAMES["texts"])
    chosen: dict[str, str] = {}
    for number_of, (role, of) in enumerate(roles, 1):
        texts = found.sample.get(str(found.roles.get(of, text)), ())
        free = [name for name in found.free if name not in chosen.values()]
        fits = [name for name in free if _are_of(name, found.sample[name], texts)]
        fits.sort(key=lambda name: re.findall(r"\d", name)[-1:] != [str(number_of)])
        chosen |= {role: fits[0]} if fits else {}
    if len(chosen) == len(roles) and all(map(found.wants, chosen)):
        for role, name in chosen.items():
            found.take(role, name, "its first character, and the one after its last")


_OF_PLACES = re.compile(r"span|offset|char|position|indexes|indices", re.IGNORECASE)


def _are_of(name: str, values: Sequence[Any], texts: Sequence[Any]) -> bool:
    """Whether nearly all cells are places, of whole words of the texts beside them unless the name says so."""
    rows = [(v, t) for v, t in zip(with_places(values), texts, strict=False) if not missing(v) and isinstance(t, str)]
    places = [(place_among((v[0], v[1])) if isinstance(v, list) and len(v) == 2 else None, t) for v, t in rows]
    named = _OF_PLACES.search(name) is not None
    right = (place is not None and (named or not wrong_place(t, *place)) for place, t in places)
    return sum(right) > 0.8 * len(rows)


def _are_places(values: Sequence[Any]) -> bool:
    some = [str(v) for v in values if v is not None and str(v) != ""]
    return bool(some) and all(re.fullmatch(r"\d+(\.0)?", v) for v in some)


def _mostly_in(words: Sequence[Any], texts: Sequence[Any]) -> bool:
    """Whether nearly all texts have their word once."""
    rows = [(w, t) for w, t in zip(words, texts, strict=True) if isinstance(w, str) and isinstance(t, str)]
    return bool(rows) and sum(bool(place_of(w, t) or place_of_part(w, t)) for w, t in rows) > 0.8 * len(rows)


def _groups(found: Found, kind: TaskKind, groups: str | None) -> GroupGuess:
    """The column of groups: the one that is given, or a guess from the columns without a role."""
    raw, roles = found.raw, found.roles
    if groups is None and not raw.named and DOCUMENT in raw.columns:
        return GroupGuess(DOCUMENT, "the documents that the file marks")
    if groups is None and kind is TaskKind.QUESTION_ANSWERING:
        return _articles(found)
    if groups is None:
        free = {name: values for name, values in raw.columns.items() if name not in found.used}
        words = {n: v for n, v in raw.columns.items() if n in free or n == roles.get("span")}
        if "pair_span" in roles and (word := _first_named(words, NAMES["lemmas"])):
            column = group_column({"lemma": words[word]}).column
            return GroupGuess(column and word, "pairs with the same word belong together" if column else "")
        return group_column(free)
    if groups == NONE:
        return GroupGuess()
    if groups not in raw.columns:
        raise UsageError(f"groups is {groups!r}, but there is no such column; {did_you_mean(groups, raw.columns)}")
    if groups in (roles.get("label"), roles.get("tags"), roles.get("words")):
        raise UsageError(f"groups is {groups!r}, which holds the labels or words; choose another column, or none.")
    return GroupGuess(groups, "as given with --groups")


def _articles(found: Found) -> GroupGuess:
    """The article of each question if there are many; otherwise the text that it is about."""
    title = _first_named(found.free, ("title", "article"))
    column = group_column({} if title is None else {f"{title} article": found.raw.columns[title]}).column
    return GroupGuess(found.roles["pair"] if column is None else title, "questions about one text belong together")


def _first_named(columns: Any, names: Sequence[str]) -> str | None:
    """The first column that has one of these names."""
    lower = {name.lower(): name for name in columns}
    return next((lower[name] for name in names if name in lower), None)


def _mean_words(values: Sequence[Any]) -> float:
    texts = [v for v in values if isinstance(v, str)]
    return fmean(len(v.split()) for v in texts) if texts else 0.0


def _fewest(columns: Mapping[str, Sequence[Any]]) -> tuple[str | None, str, list[str]]:
    """The column with the fewest distinct values if they repeat as labels do, otherwise the last column of numbers.

    The other columns that repeat like that come with it.
    """
    distinct = {name: len({str(v) for v in values}) for name, values in columns.items()}
    likely = {name: d for name, d in distinct.items() if _is_label(columns[name])}
    if likely:
        name = min(likely, key=likely.__getitem__)
        return name, f"{likely[name]} distinct values, the fewest", [other for other in likely if other != name]
    scores = [n for n, values in columns.items() if distinct[n] > 1 and all(number(str(v)) is not None for v in values)]
    return (scores[-1], "numbers", scores[:-1]) if scores else (None, "", [])
