"""Every metric that rows can hold: its name, unit, range and direction.

    metric("f1").function([0, 1, 1], [0, 1, 0])     # 0.666…
    metric("selectivity(accuracy)").title           # "Selectivity (accuracy)"
    metric("log-loss").better                       # "lower"

Gold values come first. Constant predictions carry no information about the gold values, so their correlation is 0
(scipy would return NaN with a warning). If the *gold* values are constant, Pearson's and Spearman's coefficients are
undefined and NaN.
"""

from __future__ import annotations

import re
import string
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log, pi
from typing import Any, Literal

import numpy as np

from probekit.errors import UsageError, did_you_mean
from probekit.plugins import added, named

Better = Literal["higher", "lower", ""]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes
    ----------
    name : str
        Name in the column ``metric`` and on the command line.
    title : str
        Title for axes and tables, without the unit.
    range : tuple of float
        Lowest and highest value.
    better : {"higher", "lower", ""}
        The better direction; "" if there is none.
    unit : str
        "bits", "nats" …; "" for a proportion or a coefficient.
    needs : {"classes", "labels", "numbers", "tags", "answers", "responses", "scores", "probabilities", ""}
        What it is computed from; "" if gold values and predictions do not determine it. "scores": probes have them;
        see :mod:`probekit.statistics.scored`.
    function : callable or None
        ``function(y_true, y_pred) -> float``. Class indices or numbers, shape (n,); for ``span-f1`` lists of tag names,
        one list per sentence; for ``token-accuracy`` either of them; for answers, the list of right texts of each
        question, and the predicted texts. Raises UsageError if the two differ in length or
        are empty, or if gold values are missing (-1 or NaN).
    alike : bool
        For a measure of two things: whether large values mean that they are alike (a similarity, not a distance).
    of, derived : str
        For "selectivity(accuracy)" the metric "accuracy" and the prefix "selectivity"; "" for a metric that is not
        derived.
    spans : bool
        Whether it counts entities instead of words.
    """

    name: str
    title: str
    range: tuple[float, float] = (-inf, inf)
    better: Better = "higher"
    unit: str = ""
    needs: str = ""
    function: Callable[[Any, Any], float] | None = None
    alike: bool = False
    of: str = ""
    derived: str = ""
    spans: bool = False

    @property
    def evaluates(self) -> bool:
        """Whether gold values with predictions, or with scores of classes, determine it."""
        return self.function is not None or self.needs == "scores"

    @property
    def sign(self) -> int:
        """1 if higher is better, -1 if lower is better, otherwise 0."""
        return {"higher": 1, "lower": -1, "": 0}[self.better]

    def best(self, values: Sequence[float] | np.ndarray) -> int:
        """Index of the best value; NaN is ignored. Raises ValueError if all values are NaN."""
        return int(np.nanargmax(self.sign * np.asarray(values, dtype=np.float64)))

    def __call__(self, y_true: Any, y_pred: Any) -> float:
        """The metric's value for predictions; raises UsageError if it cannot be computed from them."""
        if self.function is None:
            raise UsageError(f"{self.name} cannot be computed from gold values and predictions.")
        return self.function(y_true, y_pred)


DERIVED: dict[str, str] = {
    "selectivity": "Selectivity\n({})",
    "above-permuted": "{}\nabove permuted labels",
    "above-shuffled": "{}\nabove probes of shuffled labels",
    "difference": "Difference in\n{}",
    "by-label": "{}",
    "lost": "{}\nlost by training elsewhere",
    "normalised": "{}\nbetween control (0) and ceiling (1)",
}
"""Derived metrics ``PREFIX(METRIC)`` and their titles: gold minus control tasks (Hewitt & Liang 2019, section 2), minus
what permuted labels reach with the same predictions, or minus probes of shuffled labels; the difference of two values;
of one label alone; the loss from training on another domain; and the place between control and ceiling."""


def derive(prefix: str, name: str) -> str:
    """The name of a derived metric: ``derive("selectivity", "f1")`` is "selectivity(f1)"."""
    return f"{prefix}({name})"


@lru_cache(maxsize=256)
def metric(name: str) -> Metric:
    """The metric called ``name``, which may be derived.

    Raises
    ------
    UsageError
        If the name is unknown; the message lists similar ones.
    """
    if name in METRICS:
        return METRICS[name]
    prefix, opened, inner = name.removesuffix(")").partition("(")
    if opened and prefix in DERIVED:
        base = metric(inner)
        low, high = base.range
        title = within(base.title) if prefix in ("selectivity", "difference") else base.title
        width = high - low
        better: Better = {"lost": "lower", "normalised": "higher"}.get(prefix, base.better)  # type: ignore[assignment]
        ends = {"normalised": (-inf, 1.0), "by-label": base.range}.get(prefix, (-width, width))
        return replace(
            base, name=name, title=DERIVED[prefix].format(title), range=ends, better=better, function=None,
            of=inner, derived=prefix, unit="" if prefix == "normalised" else base.unit,
        )  # fmt: skip
    raise UsageError(f"unknown metric {name!r}; {did_you_mean(name, METRICS, most=3)}")


OVER_LABELS = ("macro-f1", "balanced-accuracy")
"""Metrics of classes that are means over the labels where several labels of a text can hold."""


def unordered(names: Iterable[str], kind: str, classes: Sequence[str], known: Iterable[str] = ()) -> str:
    """A message about the first metric that needs ordered classes, if these have no order; "" otherwise.

    Classes are ordered if all their names are numbers, or if the task says so: ``known`` are its metrics.
    """
    numbers = all(re.fullmatch(r"[-+]?\d+([.,]\d+)?", name.strip()) for name in classes)
    if kind != "classification" or (numbers and classes) or set(ORDERED) & set(known):
        return ""
    name = next((one for one in names if one in ORDERED), "")
    say = 'If the classes have an order, write ordered = true and labels = ["LOWEST", …, "HIGHEST"] in the task file.'
    return f"{name} is for ordered classes, and {', '.join(classes[:4])} … have no order. {say}" if name else ""


ORDERED = ("quadratic-kappa", "spearman")
"""The metrics of classes that know their order, which is that of the label names."""


def unfit(names: Iterable[str], kind: str) -> str:
    """A message about the first of these metrics that does not fit the labels of this kind of task; "" if all fit."""
    needs = {
        "classification": {"classes", "scores"}, "regression": {"numbers"}, "multiple-choice": {"classes"},
        "response-generation": {"responses"},
        "question-answering": {"answers"}, "span-labelling": {"classes", "labels", "scores"},
        "multi-label": {"labels", "scores"}, "multi-output": {"numbers"},
    }.get(kind, {"classes", "tags", "scores"})  # fmt: skip
    every = {"classes", "labels", "numbers", "tags", "answers", "responses", "edges", "scores"}
    over_labels = {"multi-label": OVER_LABELS, "classification": ("spearman",)}.get(kind, ())
    for name in names:
        if name in METRICS and METRICS[name].needs in every - needs and name not in over_labels:
            fit = [*over_labels, *(m.name for m in METRICS.values() if m.evaluates and m.needs in needs)]
            return f"{name} cannot be used for {kind}; choose {', '.join(fit[:-1])} or {fit[-1]}."
    return ""


def task_metrics() -> tuple[str, ...]:
    """The names of the metrics that tasks can use: those computed from gold values and predictions."""
    return tuple(name for name, known in METRICS.items() if known.function is not None)


def _pair(y_true: Any, y_pred: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both as one-dimensional arrays of equal length, with all gold labels present."""
    gold, guess = np.asarray(y_true), np.asarray(y_pred)
    if gold.ndim != 1 or gold.shape != guess.shape:
        raise UsageError(f"expected two arrays of the same shape (n,), got {gold.shape} and {guess.shape}.")
    if not len(gold):
        raise UsageError("a metric needs at least one example.")
    unlabelled = np.isnan(gold) if gold.dtype.kind == "f" else gold == -1 if gold.dtype.kind == "i" else None
    if unlabelled is not None and unlabelled.any():
        raise UsageError(f"{unlabelled.sum()} of {len(gold)} gold labels are missing; choose a labelled split.")
    return gold, guess


def _accuracy(y_true: Any, y_pred: Any) -> float:
    """Proportion of equal values."""
    gold, guess = _pair(y_true, y_pred)
    return float(np.mean(gold == guess))


def _balanced_accuracy(y_true: Any, y_pred: Any) -> float:
    """Mean recall over the classes that occur in gold values (Brodersen et al. 2010)."""
    gold, guess = _pair(y_true, y_pred)
    return float(np.mean([np.mean(guess[gold == c] == c) for c in np.unique(gold)]))


def _f1(y_true: Any, y_pred: Any) -> float:
    """F1 of class 1; 0 if neither gold values nor predictions have it."""
    from sklearn.metrics import f1_score

    gold, guess = _pair(y_true, y_pred)
    if gold.max() > 1:
        raise UsageError(f"f1 is for two classes (0 and 1), found class {gold.max()}; use macro-f1.")
    return float(f1_score(gold == 1, guess == 1, zero_division=0.0))


def _macro_f1(y_true: Any, y_pred: Any) -> float:
    """Mean F1 over the classes that occur in gold values or predictions."""
    from sklearn.metrics import f1_score

    return float(f1_score(*_pair(y_true, y_pred), average="macro", zero_division=0.0))


def _micro_f1(y_true: Any, y_pred: Any) -> float:
    """F1 of all labels together, 2 TP / (2 TP + FP + FN), 0 if none holds and none is predicted (Tenney et al. 2019,
    section 5): of bool (n, labels), or of 0 and 1 for each pair of a target and a label, (n · labels,)."""
    gold, guess = np.asarray(y_true), np.asarray(y_pred)
    if gold.ndim == 1:
        return _f1(gold, guess)
    if gold.shape != guess.shape or gold.dtype != bool or guess.dtype != bool or not len(gold):
        found = f"{gold.dtype} {gold.shape} and {guess.dtype} {guess.shape}"
        raise UsageError(f"expected two bool arrays of the same shape (n, labels), n > 0, got {found}.")
    both = 2 * int((gold & guess).sum())
    of = int(gold.sum()) + int(guess.sum())
    return both / of if of else 0.0


def _matthews(y_true: Any, y_pred: Any) -> float:
    """Matthews correlation (many classes: Gorodkin's R_K); 0 if gold values or predictions are constant."""
    from sklearn.metrics import matthews_corrcoef

    gold, guess = _pair(y_true, y_pred)
    if (gold == gold[0]).all() or (guess == guess[0]).all():
        return 0.0
    return float(matthews_corrcoef(gold, guess))


def _quadratic_kappa(y_true: Any, y_pred: Any) -> float:
    """Cohen's kappa with squared distances of ordered classes as weights (Cohen 1968); 0 by chance.

    NaN if gold values and predictions are one class, the same.
    """
    gold, guess = (np.asarray(y, dtype=np.float64) for y in _pair(y_true, y_pred))
    expected = gold.var() + guess.var() + (gold.mean() - guess.mean()) ** 2
    return float(1 - np.mean((gold - guess) ** 2) / expected) if expected else float("nan")


def _correlation(name: str) -> Callable[[Any, Any], float]:
    def correlate(y_true: Any, y_pred: Any) -> float:
        from scipy import stats

        gold, guess = (np.asarray(y, dtype=np.float64) for y in _pair(y_true, y_pred))
        if (gold == gold[0]).all() or not np.isfinite(guess).all():
            return float("nan")
        if (guess == guess[0]).all():
            return 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.NearConstantInputWarning)
            return float(getattr(stats, name)(gold, guess).statistic)

    return correlate


def _rmse(y_true: Any, y_pred: Any) -> float:
    """Root of the mean squared error."""
    gold, guess = _pair(y_true, y_pred)
    return float(np.sqrt(np.mean((gold.astype(np.float64) - guess) ** 2)))


def _absolute_error(y_true: Any, y_pred: Any) -> float:
    gold, guess = _pair(y_true, y_pred)
    return float(np.mean(np.abs(gold - guess)))


def _r2(y_true: Any, y_pred: Any) -> float:
    """1 - squared errors / squared distances from the mean of the gold values; NaN if these are constant."""
    gold, guess = _pair(y_true, y_pred)
    spread = float(((gold - gold.mean()) ** 2).sum())
    return 1 - float(((gold - guess) ** 2).sum()) / spread if spread else float("nan")


def _sentences(y_true: Sequence[Sequence[Any]], y_pred: Sequence[Sequence[Any]]) -> None:
    if [len(s) for s in y_true] != [len(s) for s in y_pred]:
        raise UsageError("gold and predicted tags must have the same sentences and the same number of words in each.")
    if not any(len(s) for s in y_true):
        raise UsageError("a metric needs at least one word.")


def _span_f1(y_true: Sequence[Sequence[str]], y_pred: Sequence[Sequence[str]]) -> float:
    """Micro-averaged F1 of whole entities, counted like conlleval; 0 if there are none.

    For BIO, IOB1, BIOES, BIOUL and BMES tags. Inconsistent sequences are accepted: an I- without a beginning begins an
    entity. AllenNLP's SpanBasedF1Measure agrees, except for types that it is set to ignore, the C- and R- types of
    semantic roles, which it joins to the entity they continue, and inconsistent BIOUL, which it refuses.
    """
    _sentences(y_true, y_pred)
    right = gold = guess = 0
    for gold_tags, predicted_tags in zip(y_true, y_pred, strict=True):
        gold_entities, predicted_entities = _entities(gold_tags), _entities(predicted_tags)
        right, gold, guess = (
            right + len(gold_entities & predicted_entities),
            gold + len(gold_entities),
            guess + len(predicted_entities),
        )
    return 2 * right / (gold + guess) if gold + guess else 0.0


OUTSIDE = ("O", "_")
"""The result of :func:`span_part` for a word outside entities."""


def span_part(tag: str) -> tuple[str, str]:
    """Prefix and entity type of a tag, such as B and PER of B-PER; last is end, unit is single, middle is inside."""
    prefix, _, entity = tag.partition("-")
    if prefix in _SAME:
        return _SAME[prefix], entity or "_"
    return (tag[0], tag[1:].split("-", maxsplit=1)[-1] or "_") if tag else OUTSIDE


_SAME = {"L": "E", "U": "S", "M": "I"}


def span_opens(before: tuple[str, str], this: tuple[str, str]) -> bool:
    """Whether an entity begins at a word, from its tag and the previous one, by conlleval's rules.

    After Tjong Kim Sang's ``conlleval`` (CoNLL-2000), with E and S for ends and single-word entities.
    """
    (last, kind), (prefix, other) = before, this
    begins = prefix in ("B", "S") or (last in ("E", "S", "O") and prefix in ("E", "I"))
    return begins or (prefix not in ("O", ".") and kind != other)


def span_closes(this: tuple[str, str], after: tuple[str, str]) -> bool:
    """Whether an entity ends with a word, from its tag and the next one, by conlleval's rules."""
    (prefix, kind), (following, other) = this, after
    ends = prefix in ("E", "S") or (prefix in ("B", "I") and following in ("B", "S", "O"))
    return ends or (prefix not in ("O", ".") and kind != other)


def _entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """First and last word, and type, of each entity of a sentence."""
    found, first = set(), 0
    parts = [OUTSIDE, *map(span_part, tags), OUTSIDE]
    for i, (before, this, after) in enumerate(zip(parts, parts[1:], parts[2:], strict=False)):
        if span_opens(before, this):
            first = i
        if span_closes(this, after):
            found.add((first, i, this[1]))
    return found


def _token_accuracy(y_true: Any, y_pred: Any) -> float:
    """Proportion of words with the right tag."""
    if len(y_true) and isinstance(y_true[0], Sequence | np.ndarray) and not isinstance(y_true[0], str):
        _sentences(y_true, y_pred)
        y_true, y_pred = ([tag for sentence in y for tag in sentence] for y in (y_true, y_pred))
    return _accuracy(y_true, y_pred)


def normalised_answer(text: str) -> str:
    """An answer as SQuAD's scripts compare it: in lower case, without ASCII punctuation, articles and double spaces."""
    plain = "".join(c for c in text.lower() if c not in _PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


_PUNCTUATION = frozenset(string.punctuation)


def exact_match(answers: Sequence[str], predicted: str, *, version: str = "2.0") -> float:
    """1 if the prediction is one of the answers after :func:`normalised_answer`, otherwise 0, as in SQuAD's script.

    Parameters
    ----------
    answers : Sequence[str]
        The right answers to a question; none means that "" is right.
    version : str, default '2.0'
        In the script for SQuAD 2.0, answers that are empty after normalisation do not count; for 1.1 they do.

    Examples
    --------
    >>> exact_match(["the Normans", "Normans"], "Normans!"), exact_match([], "Normans")
    (1.0, 0.0)
    """
    return float(normalised_answer(predicted) in map(normalised_answer, _counted(answers, version)))


def answer_f1(answers: Sequence[str], predicted: str, *, version: str = "2.0") -> float:
    """The highest F1 over the words of the prediction and of each answer, as in SQuAD's script.

    Arguments as for :func:`exact_match`. If one of the two has no words, 2.0 asks whether both have none; 1.1 gives 0.

    Examples
    --------
    >>> round(answer_f1(["10th and 11th centuries"], "the 11th century"), 3)
    0.333
    """
    said = normalised_answer(predicted).split()
    best = 0.0
    for answer in _counted(answers, version):
        gold = normalised_answer(answer).split()
        same = sum((Counter(gold) & Counter(said)).values())
        nothing = version == "2.0" and not (gold and said)
        best = max(best, float(gold == said) if nothing else 2 * same / max(1, len(gold) + len(said)))
    return best


def _counted(answers: Sequence[str], version: str) -> Sequence[str]:
    kept = [answer for answer in answers if version == "1.1" or normalised_answer(answer)]
    return kept or [""]


def _mean_over_questions(one: Callable[..., float], version: str) -> Callable[[Any, Any], float]:
    def mean(y_true: Sequence[Sequence[str]], y_pred: Sequence[str]) -> float:
        if len(y_true) != len(y_pred) or not len(y_true):
            raise UsageError(f"expected predictions for {len(y_true)} questions, at least one; found {len(y_pred)}.")
        return float(np.mean([one(g, p, version=version) for g, p in zip(y_true, y_pred, strict=True)]))

    return mean


def chrf(reference: str, text: str) -> float:
    """The chrF3 of one text (Popović 2015): F with β = 3 of the mean n-gram precision and recall of characters.

    n is 1 to 6, without white space; an n for which both texts are too short is left out. ``nltk`` differs: it takes
    the mean of the F of each n, where the paper takes the F of the means.

    Examples
    --------
    >>> chrf("ab", "ab"), round(chrf("abc", "ab"), 4)
    (1.0, 0.4058)
    """
    gold, said = ("".join(one.split()) for one in (reference, text))
    precision, recall = [], []
    for n in range(1, 1 + min(6, max(len(gold), len(said)))):
        a, b = (Counter(one[i : i + n] for i in range(len(one) - n + 1)) for one in (gold, said))
        same = (a & b).total()
        precision.append(same / max(1, b.total()))
        recall.append(same / max(1, a.total()))
    p, r = (sum(values) / max(1, len(values)) for values in (precision, recall))
    return 10 * p * r / (9 * p + r) if p + r else 0.0


def distinct(texts: Sequence[str], n: int) -> float:
    """Distinct n-grams of words over the number of words in all texts (Li et al. 2016, section 5.3); 0 without words.

    Examples
    --------
    >>> distinct(["I do", "I do"], 1), distinct(["I do", "I do"], 2)
    (0.5, 0.25)
    """
    words = [text.split() for text in texts]
    found = {tuple(one[i : i + n]) for one in words for i in range(len(one) - n + 1)}
    return len(found) / max(1, sum(map(len, words)))


def _mean_chrf(y_true: Sequence[str], y_pred: Sequence[str]) -> float:
    return float(np.mean([chrf(gold, said) for gold, said in zip(y_true, y_pred, strict=True)]))


def _distinct(n: int) -> Callable[[Any, Any], float]:
    return lambda y_true, y_pred: distinct(y_pred, n)


PROPER = (
    "Bhattacharyya", "Brier", "Euclidean", "Jaccard", "Jensen", "Kendall", "Kullback", "Matthews", "Pearson",
    "Procrustes", "Rényi", "Spearman",
)  # fmt: skip
"""Names with which titles begin, and which keep their capital within a sentence."""


def within(title: str) -> str:
    """A title as it stands within a sentence: "accuracy", "Matthews correlation", "F1"."""
    plain = re.match(r"[A-Z][a-z]+\b", title) and not title.startswith(PROPER)
    return title[0].lower() + title[1:] if plain else title


SHARE, SIGNED, ABOVE_0 = (0.0, 1.0), (-1.0, 1.0), (0.0, inf)


class _Metrics(Mapping[str, Metric]):
    """Ours, and those of the entry points ``probekit.metrics``, which are imported when one of them may be meant."""

    def __init__(self, *ours: Metric) -> None:
        self.ours = {one.name: one for one in ours}

    def __getitem__(self, name: str) -> Metric:
        return self.ours[name] if name in self.ours else added("probekit.metrics", Metric)[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.ours, **dict.fromkeys(named("probekit.metrics"))})

    def __len__(self) -> int:
        return sum(1 for _ in self)


METRICS = _Metrics(
    Metric("accuracy", "Accuracy", SHARE, needs="classes", function=_accuracy),
    Metric("balanced-accuracy", "Balanced accuracy", SHARE, needs="classes", function=_balanced_accuracy),
    Metric("f1", "F1", SHARE, needs="classes", function=_f1),
    Metric("macro-f1", "Macro F1", SHARE, needs="classes", function=_macro_f1),
    Metric("micro-f1", "Micro F1", SHARE, needs="labels", function=_micro_f1),
    Metric("matthews", "Matthews correlation", SIGNED, needs="classes", function=_matthews),
    Metric("quadratic-kappa", "Quadratic kappa", SIGNED, needs="classes", function=_quadratic_kappa),
    Metric("pearson", "Pearson correlation", SIGNED, needs="numbers", function=_correlation("pearsonr")),
    Metric("spearman", "Spearman correlation", SIGNED, needs="numbers", function=_correlation("spearmanr")),
    Metric("rmse", "Root mean squared error", ABOVE_0, "lower", needs="numbers", function=_rmse),
    Metric("uuas", "Undirected unlabelled\nattachment score", SHARE, needs="edges", function=_accuracy),
    Metric("uas", "Unlabelled\nattachment score", SHARE),
    Metric("las", "Labelled\nattachment score", SHARE),
    Metric("relation-accuracy", "Accuracy of relations\nof gold arcs", SHARE),
    Metric("distance-spearman", "Spearman correlation\nof distances", SIGNED),
    Metric("depth-spearman", "Spearman correlation\nof depths", SIGNED),
    Metric("root-accuracy", "Root accuracy", SHARE),
    Metric("span-f1", "Span F1", SHARE, needs="tags", function=_span_f1, spans=True),
    Metric("token-accuracy", "Token accuracy", SHARE, needs="tags", function=_token_accuracy),
    *(
        Metric(f"{name}{suffix}", f"{title}{more}", SHARE, needs="answers", function=_mean_over_questions(one, version))
        for suffix, more, version in (("", "", "2.0"), ("-1.1", " (SQuAD 1.1)", "1.1"))
        for name, title, one in (("answer-f1", "Answer F1", answer_f1), ("exact-match", "Exact match", exact_match))
    ),
    Metric("chrf", "chrF3", SHARE, needs="responses", function=_mean_chrf),
    *(Metric(f"distinct-{n}", f"Distinct {n}-grams", SHARE, needs="responses", function=_distinct(n)) for n in (1, 2)),
    Metric("r2", "R²", (-inf, 1.0), needs="numbers", function=_r2),
    Metric("mean-absolute-error", "Mean absolute error", ABOVE_0, "lower", needs="numbers", function=_absolute_error),
    Metric("great-circle-error", "Distance to the true place", ABOVE_0, "lower", "km"),
    Metric("great-circle-error-median", "Median distance to the true place", ABOVE_0, "lower", "km"),
    Metric("matching-answers", "Answers that match the behaviour", SHARE, ""),
    # scores of classes
    Metric("auroc", "AUROC", SHARE, needs="scores"),
    Metric("average-precision", "Average precision", SHARE, needs="scores"),
    *(
        Metric(f"recall-at-fpr-{rate:g}", f"Recall at {100 * rate:g} % false positives", SHARE, needs="scores")
        for rate in (0.01, 0.05, 0.1)
    ),
    Metric("recall-at-rate", "Recall at the threshold of train", SHARE),
    Metric("false-positive-rate", "False positives at the threshold of train", SHARE, "lower"),
    Metric("recall-at-rate-on-test", "Recall at the test set's own threshold", SHARE),
    Metric("false-positives-at-threshold", "False positives at a kept threshold", SHARE, ""),
    Metric("recall-at-threshold", "Recall at a kept threshold", SHARE),
    Metric("kept-threshold", "Threshold", better="", unit="logits"),
    Metric("score-shift", "Shift of a probe's scores", better="", unit="logits"),
    Metric("score-scale", "Scale of a probe's scores", ABOVE_0, ""),
    Metric("score-correlation", "Correlation of old and new scores", SIGNED, ""),
    Metric("changed-decisions", "Changed decisions", SHARE, "lower"),
    Metric("temperature", "Temperature", ABOVE_0, ""),
    Metric("extraction-error", "Relative error of vectors", ABOVE_0, "lower"),
    # probes and trained models
    Metric("log-loss", "Log loss", ABOVE_0, "lower", "nats", "probabilities"),
    Metric("log-loss, scaled", "Log loss, temperature scaled", ABOVE_0, "lower", "nats", "probabilities"),
    Metric("mean-squared-error", "Mean squared error", ABOVE_0, "lower", needs="numbers"),
    Metric("brier", "Brier score", (0.0, 2.0), "lower", needs="probabilities"),
    Metric("brier, scaled", "Brier score, temperature scaled", (0.0, 2.0), "lower", needs="probabilities"),
    Metric("calibration-error-15", "Calibration error (15 bins)", SHARE, "lower", needs="scores"),
    Metric("calibration-error-15, scaled", "Calibration error (15 bins), scaled", SHARE, "lower", "", "probabilities"),
    Metric("glue-score", "GLUE score", SIGNED),
    Metric("glue-partial", "Mean of some GLUE tasks", SIGNED),
    Metric("mean-of-metrics", "Mean of the tasks' metrics", SIGNED),
    Metric("failed-runs", "Failed runs", SHARE, "lower"),
    Metric("trained-parameters", "Trained weights", ABOVE_0, "lower"),
    Metric("cpu-seconds", "Processor time", ABOVE_0, "lower", "seconds"),
    Metric("peak-memory", "Peak memory", ABOVE_0, "lower", "bytes"),
    Metric("mix-weight", "Mix weight", SHARE, ""),
    Metric("mix-gamma", "Mix gamma", better=""),
    Metric("added-loss", "Term added to the loss", better=""),
    # information and codes
    Metric("mutual-information", "Mutual information", ABOVE_0, unit="bits"),
    Metric("v-information", "V-information", unit="bits"),
    Metric("v-entropy", "V-entropy", ABOVE_0, "", "bits"),
    Metric("conditional-v-entropy", "Conditional V-entropy", ABOVE_0, "lower", "bits"),
    Metric("codelength-bits", "Code length", ABOVE_0, "lower", "bits"),
    Metric("perplexity", "Perplexity", (1.0, inf), "lower", ""),
    Metric("probe-score", "Score of a probe", better="", unit="logits"),
    Metric("probability", "Probability of a class", SHARE, ""),
    Metric("semi-partial-r2", "Share of the variance of the scores", SHARE, ""),
    Metric("lens-product", "Product of the direction with a piece", better=""),
    Metric("unit-score", "Score of a unit", better=""),
    Metric("selection-share", "Halves of train with the unit\namong the first", SHARE, ""),
    Metric("rank-biased-overlap", "Rank-biased overlap", SHARE, "", alike=True),
    Metric("surprisal", "Surprisal", better="", unit="bits"),
    Metric("surprisal-nats", "Surprisal", better="", unit="nats"),
    Metric("bits-per-byte", "Bits per byte", ABOVE_0, "lower", "bits"),
    Metric("bits-per-example", "Bits per example", ABOVE_0, "lower", "bits"),
    Metric("portion-bits-per-example", "Bits per example of a portion", ABOVE_0, "lower", "bits"),
    Metric("compression", "Compression", ABOVE_0),
    Metric("compression-over-prior", "Compression over the prior's code", ABOVE_0),
    Metric("saved-bits", "Bits saved on the prior's code", unit="bits"),
    # layer curves
    Metric("best-layer", "Best layer", ABOVE_0, "", "layers"),
    Metric("centre-of-gravity", "Centre of gravity", ABOVE_0, "", "layers"),
    Metric("expected-layer", "Expected layer", ABOVE_0, "", "layers"),
    Metric("first-good-layer", "First good layer", ABOVE_0, "", "layers"),
    # a scoreboard of tasks
    Metric("mean-normalised", "Mean of tasks\nbetween control (0) and ceiling (1)", (-inf, 1.0)),
    Metric("above-control", "Tasks above the control", ABOVE_0),
    Metric("mean-rank", "Mean rank", (1.0, inf), "lower"),
    Metric("rank-correlation", "Rank correlation\nwith the leaderboard", SIGNED),
    # two domains; see probekit.domains.options.Measure
    Metric("js-divergence", "Jensen-Shannon divergence", SHARE, "", "bits"),
    Metric("js-divergence-nats", "Jensen-Shannon divergence", (0.0, log(2)), "", "nats"),
    Metric("js-distance", "Jensen-Shannon distance", SHARE, ""),
    Metric("js-similarity", "1 - Jensen-Shannon divergence", (1 - log(2), 1.0), "", "nats", alike=True),
    Metric("kl", "Kullback-Leibler divergence", ABOVE_0, "", "nats"),
    Metric("renyi", "Rényi divergence", ABOVE_0, "", "nats"),
    Metric("bhattacharyya", "Bhattacharyya distance", ABOVE_0, "", "nats"),
    Metric("cosine", "Cosine distance", SHARE, ""),
    Metric("euclidean", "Euclidean distance", ABOVE_0, ""),
    Metric("variational", "Variational distance", (0.0, 2.0), ""),
    Metric("vocabulary-overlap", "Vocabulary overlap", SHARE, "", alike=True),
    Metric("proxy-a-distance", "Proxy A-distance", (-2.0, 2.0), ""),
    Metric("js-divergence-by-size", "Jensen-Shannon divergence by corpus size", SHARE, "", "bits"),
    Metric("js-contribution", "Contribution to the Jensen-Shannon divergence", SHARE, "", "bits"),
    # two layers; see probekit.similarity.options.Similarity
    Metric("erased-dimensions", "Dimensions erased", ABOVE_0, ""),
    Metric("erased-variance", "Share of variance erased", SHARE, ""),
    Metric("cka", "CKA", SIGNED, "", alike=True),
    Metric("cka-biased", "CKA (biased)", SHARE, "", alike=True),
    Metric("cka-rbf", "CKA (Gaussian kernel)", SIGNED, "", alike=True),
    Metric("cca", "Mean canonical correlation", SHARE, "", alike=True),
    Metric("cca-r2", "Mean squared canonical correlation", SHARE, "", alike=True),
    Metric("eigenspace-overlap", "Eigenspace overlap", SHARE, "", alike=True),
    Metric("svcca", "SVCCA", SHARE, "", alike=True),
    Metric("pwcca", "PWCCA", SHARE, "", alike=True),
    Metric("procrustes", "Procrustes similarity", SHARE, "", alike=True),
    Metric("procrustes-angle", "Procrustes angle", (0.0, pi / 2), "", "radians"),
    Metric("rsa-pearson", "RSA (Pearson)", SIGNED, "", alike=True),
    Metric("rsa-spearman", "RSA (Spearman)", SIGNED, "", alike=True),
    Metric("rsa-cosine", "RSA (cosine)", SIGNED, "", alike=True),
    Metric("mutual-knn", "Shared nearest neighbours", SHARE, "", alike=True),
    Metric("knn-jaccard", "Jaccard index of neighbours", SHARE, "", alike=True),
    Metric("knn-rank", "Rank similarity of neighbours", SHARE, "", alike=True),
    Metric("linear-predictivity", "Linear predictivity (R²)", (-inf, 1.0), "", alike=True),
    Metric("linear-predictivity-reverse", "Linear predictivity, reversed (R²)", (-inf, 1.0), "", alike=True),
    # how well vectors explain labels without a trained classifier
    Metric("logme", "LogME", unit="nats"),
    Metric("h-score", "H-score", ABOVE_0),
    Metric("transrate", "TransRate", ABOVE_0, unit="nats"),
    # how far vectors move, and their geometry
    Metric("relative-distance", "Relative distance\nto the reference", ABOVE_0, ""),
    Metric("cosine-distance", "Cosine distance\nto the reference", (0.0, 2.0), ""),
    Metric("direction-cosine", "Cosine between\ndirections of probes", SIGNED, ""),
    Metric("direction-angle", "Angle between\ndirections of probes", (0.0, 180.0), "", "degrees"),
    Metric("aligned-distance", "Aligned distance\n(after shift and rotation)", ABOVE_0, ""),
    Metric("rank", "Rank", ABOVE_0, ""),
    Metric("participation-ratio", "Participation ratio", ABOVE_0, ""),
    Metric("intrinsic-dimension", "Intrinsic dimension\n(TwoNN)", ABOVE_0, ""),
    Metric("mean-cosine", "Mean cosine\nof two examples", SIGNED, ""),
    Metric("mean-cosine-without-top", "Mean cosine without top\n(mean and components)", SIGNED, ""),
    # distances
    Metric("kendall", "Kendall correlation", SIGNED),
)
"""All metrics by name. Tasks can use those with a function."""
