"""The demonstration tasks: fixed bytes, gold labels that a second reader agrees with, nothing to read off the words."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from scipy.sparse import hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from probekit.errors import UsageError
from probekit.metrics import metric
from probekit.tasks.grammar import COST, GRAMMARS, grammar_task, lexicon
from probekit.tasks.task import Split, Task, TaskKind

DIGESTS: dict[str, tuple[str, str]] = {
    "acceptability": ("44a2b6547af933a4ebc7c5d0e41b1043", "fd2db2ea87cef96c29a9c4215bdf6841"),
    "sentiment": ("832a3dd602da00dd9f47421680aff5bb", "94ca3d21b62c5a5d36a695b0e5000c0c"),
    "paraphrase": ("c4c306c19c2c3da7ba19e0a13a14dbb7", "0f4aff0534a55bff398a712ab584d3d2"),
    "similarity": ("9765ca94f838ddc8adf6fb207388c9a0", "fda615faaf3b50da1c24e4f81af4b078"),
}

WORDS = {task: given["words"] for task, given in lexicon().items()}
PLURAL = set(
    """women men children themselves gentlemen are were have do don't these those all two both several
    many most""".split()
)
SINGULAR = set(
    """is was has does doesn't himself herself this that every one each another actress princess waitress""".split()
)
MALE = set(
    "king uncle boy brother father monk prince nephew grandfather gentleman gentlemen man husband actor son".split()
)
NOUNS = {
    form
    for name in ("person", "persons", "thing", "female", "male", "king", "doctor")
    for form in re.findall(r"\w+", WORDS["acceptability"][name])
}
THINGS = set(re.findall(r"\w+", WORDS["acceptability"]["thing"]))
VERBS = {
    form
    for name in ("walks", "stands", "lies", "is", "was", "has", "does", "doesn't")
    for form in re.findall(r"[\w']+", WORDS["acceptability"][name])
}


def words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text)


def plural_noun(word: str) -> bool:
    return word in PLURAL or (word.endswith("s") and word not in SINGULAR)


def plural_verb(word: str) -> bool:
    return word in PLURAL or not (word.endswith("s") or word in SINGULAR)


def only(task: Task, phenomena: set[str]) -> Task:
    kept = {
        n: Split(n, tuple(e for e in s if (e.domain or "").split("/")[0] in phenomena)) for n, s in task.splits.items()
    }
    return dataclasses.replace(task, splits=kept)


def leakage(task: Task) -> dict[str, Any]:
    """How well ``dev`` can be predicted without understanding it.

    template : share of dev examples whose ``domain`` occurs in train
    duplicate : share of dev examples whose text (and pair) occurs in train
    bag_of_words : the task's first metric on dev for a logistic (or ridge) regression fitted to the word counts of
        train; for pairs: the counts of the first, of the second, and their absolute difference
    majority : the same metric for a constant prediction (the most frequent class of train; 0 for correlations)
    by_phenomenon : accuracy (or Pearson's r) of that regression on each phenomenon (``domain`` before the ``/``)
    """
    train, dev = task.split("train"), task.split("dev")
    y, gold = task.labels("train"), task.labels("dev")
    domains = {e.domain for e in train}
    seen = {(e.text, e.pair) for e in train}
    count = CountVectorizer(token_pattern=r"\w[\w']*").fit([f"{e.text} {e.pair or ''}" for e in train])
    regression = task.kind is TaskKind.REGRESSION
    model = Ridge() if regression else LogisticRegression(max_iter=1000)
    guess = model.fit(_bags(count, train), y).predict(_bags(count, dev))
    constant = np.full(len(gold), np.mean(y) if regression else np.bincount(y).argmax(), dtype=gold.dtype)
    task_metric, phenomenon_metric = metric(task.metrics[0]), metric("pearson" if regression else "accuracy")
    phenomena = np.array([(e.domain or "").partition("/")[0] for e in dev])
    return {
        "template": float(np.mean([e.domain in domains for e in dev])),
        "duplicate": float(np.mean([(e.text, e.pair) in seen for e in dev])),
        "bag_of_words": task_metric(gold, guess),
        "majority": 0.0 if regression else task_metric(gold, constant),
        "by_phenomenon": {
            str(p): phenomenon_metric(gold[phenomena == p], guess[phenomena == p]) for p in np.unique(phenomena)
        },
    }


def _bags(count: Any, split: Split) -> Any:
    first = count.transform([e.text for e in split])
    if not split.paired:
        return first
    second = count.transform([e.pair for e in split])
    return hstack([first, second, abs(first - second)]).tocsr()


@pytest.fixture(scope="module", params=list(GRAMMARS))
def task(request: pytest.FixtureRequest) -> Task:
    return grammar_task(request.param)


def test_bytes(task: Task) -> None:
    name = task.name.removeprefix("grammar:")
    assert tuple(task.split(s).digest() for s in ("train", "dev")) == DIGESTS[name]
    again = grammar_task(name, np.random.default_rng(0))
    assert again.split("dev").digest() == DIGESTS[name][1]
    assert grammar_task(name, 1).split("dev").digest() != DIGESTS[name][1]


def test_ids_sizes_and_no_leakage(task: Task) -> None:
    ids = [e.id for s in task.splits.values() for e in s]
    texts = [(e.text, e.pair) for s in task.splits.values() for e in s]
    assert len(set(ids)) == len(ids)
    assert len(set(texts)) == len(texts)
    assert len(task.split("train")) == pytest.approx(2000, abs=100)
    assert len(task.split("dev")) == pytest.approx(600, abs=50)
    found = leakage(task)
    assert found["template"] == found["duplicate"] == 0
    assert all(e.text[0].isupper() and e.text[-1] in ".?!" and "{" not in e.text for e in task.split("train"))


def test_leakage_notices_a_leak(task: Task) -> None:
    half = task.split("dev").examples[::2]
    leaky = dataclasses.replace(
        task, splits={"train": Split("train", task.split("train").examples + half), "dev": task.split("dev")}
    )
    assert leakage(leaky)["duplicate"] == pytest.approx(0.5, abs=0.01)
    assert leakage(leaky)["template"] > 0.5


@pytest.mark.parametrize("name", ["acceptability", "sentiment", "paraphrase"])
def test_every_word_has_both_labels_equally_often(name: str) -> None:
    task = grammar_task(name)
    for split in ("train",) if name == "sentiment" else ("train", "dev"):
        count: Counter[tuple[int, str]] = Counter()
        for e in task.split(split):
            for side, text in enumerate((e.text, e.pair or "")):
                for w in words(re.sub(r"\ban\b", "a", text.lower())):
                    count[side, w] += 2 * e.label - 1
        assert not +count
        assert not -count


def test_role_swaps_have_the_words_of_paraphrases() -> None:
    bags = defaultdict(list)
    for e in only(grammar_task("paraphrase"), {"roles"}).split("train"):
        bags[tuple(sorted(words(e.text.lower()))), tuple(sorted(words(e.pair.lower())))].append(e.label)
    assert all(sum(labels) * 2 == len(labels) for labels in bags.values())


@pytest.mark.parametrize("name", ["acceptability", "sentiment", "paraphrase"])
def test_words_alone_stay_at_chance(name: str) -> None:
    found = leakage(grammar_task(name))
    assert found["bag_of_words"] == pytest.approx(0 if name == "acceptability" else 0.5, abs=0.05)


def test_control_without_negation_words_are_enough() -> None:
    plain = only(grammar_task("sentiment"), {"plain", "intensified", "softened"})
    assert leakage(plain)["bag_of_words"] > 0.95


def test_similarity_of_words_is_not_similarity_of_meaning() -> None:
    assert leakage(grammar_task("similarity"))["bag_of_words"] < 0.6


def acceptable(phenomenon: str, text: str) -> bool:
    """A second grammar, from the surface: words in order, and how they end."""
    w = words(text.lower())
    nouns = [x for x in w if x in NOUNS]
    if phenomenon == "tense":
        return bool({"yesterday", "last", "ago"} & set(w)) != ("will" in w)
    if phenomenon == "auxiliary":
        return any(x.endswith("ing") for x in w) != ("have" in w)
    if phenomenon == "animacy":
        i = next(i for i, x in enumerate(w) if x in ("who", "which"))
        return (w[i] == "which") == (w[i - 1] in THINGS)
    if phenomenon in ("gender", "reflexive"):
        head = nouns[" said " in text]
        fits = plural_noun(head) == ("themselves" in w)
        return fits and ("themselves" in w or (head.removesuffix("s") in MALE) == ("himself" in w))
    if phenomenon == "determiner":
        i = next(i for i, x in enumerate(w) if x in THINGS)
        return plural_noun(w[i]) == next(x in PLURAL for x in w[:i][::-1] if x in PLURAL | SINGULAR and x not in NOUNS)
    verb = plural_verb(next(x for x in w if x in VERBS))
    return verb == (w[0] in PLURAL if phenomenon == "partitive" else plural_noun(nouns[phenomenon == "inversion"]))


def test_a_second_grammar_agrees() -> None:
    for split in grammar_task("acceptability").splits.values():
        for e in split:
            assert acceptable(e.domain.split("/")[0], e.text) == bool(e.label), e


def test_a_second_reader_hears_the_same_opinion() -> None:
    good, bad = zip(*re.findall(r"(\w+)/(\w+)", WORDS["sentiment"]["good"]), strict=True)
    good, bad = (
        {*good, *"loved enjoyed admired praised adored".split()},
        {*bad, *"hated disliked despised criticised loathed".split()},
    )
    reverse = re.compile(r"\b(not|never|less|isn't|neither|nobody|failed|hardly|none|far from|can't)\b(?! only)")
    for split in grammar_task("sentiment").splits.values():
        for e in split:
            w = words(e.text.lower())
            if e.domain.startswith("contrast/"):  # the opinion of the main clause
                first = "despite" in w or "even" in w
                w = [x for x in w if x in good | bad][slice(0, 1) if first else slice(1, 2)]
            opinions = {x in good for x in w if x in good | bad}
            assert opinions == {bool(e.label) != bool(reverse.search(e.text.lower()))}, e


def clause(text: str) -> tuple[str, str, str]:
    """Who did what to whom, synonyms as one word."""
    same = dict(re.findall(r"(\w+)/(\w+)", " ".join(WORDS["paraphrase"].values())))
    people = set(re.findall(r"\w+", WORDS["paraphrase"]["person"]))
    w = words(text.lower())
    first, second = (same.get(x, x) for x in w if x in people)
    verb = next(same.get(x, x) for x in w if x in same | {v: v for v in same.values()} and x not in people)
    by = text.find(" by the ")
    if by >= 0:
        agent = re.match(r" by the (\w+)", text[by:])[1]
        agent = same.get(agent, agent)
        return agent, verb, second if agent == first else first
    return (second, verb, first) if "whom" in w else (first, verb, second)


def test_a_second_reader_finds_the_same_paraphrases() -> None:
    for split in grammar_task("paraphrase").splits.values():
        for e in split:
            assert (clause(e.text) == clause(e.pair)) == bool(e.label), e


def caption(text: str) -> dict[str, object]:
    """The facts of a caption, from its surface."""
    w = words(text)
    scenes = [scene for part in lexicon()["similarity"]["scenes"].values() for scene in part]
    objects = set(re.findall(r"\w+", " ".join(o for _, o in scenes)))
    verbs = {form: ing for v, _ in scenes for ing, d in re.findall(r"(\w+)/(\w+)", v) for form in (ing, d)}
    subjects = set(re.findall(r"\w+", WORDS["similarity"]["subject"]))
    places = [" ".join(p.split()) for p in re.split(r"[,|]", WORDS["similarity"]["place"])]
    return {
        "subject": next(x for x in w if x in subjects),
        "verb": next(verbs[x] for x in w if x in verbs),
        "object": next(x for x in w if x in objects),
        "place": next(p for p in places if p in text.lower()),
        "polarity": "not" in w,
        "voice": " by a " in text or " by the " in text.replace(" by the lake", ""),
    }


def test_similarity_is_five_less_the_changes() -> None:
    assert sum(COST.values()) == 5
    cells: Counter[tuple[bool, ...]] = Counter()
    for e in grammar_task("similarity").split("train"):
        one, two = caption(e.text), caption(e.pair)
        assert e.label == 5 - sum(COST[k] for k in COST if one[k] != two[k]), e
        cells[tuple(one[k] != two[k] for k in COST)] += 1
    assert len(cells) == 64
    assert set(cells.values()) == {30}


def test_unknown_name() -> None:
    with pytest.raises(UsageError, match="acceptability, sentiment"):
        grammar_task("spelling")
