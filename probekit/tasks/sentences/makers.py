"""The ten tasks of Conneau et al. 2018, section 2: drafts from parsed sentences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import xxhash

from probekit.errors import DataError
from probekit.tasks.sentences.balance import LEAST, LEAST_IN_TRAIN, Draft, Drafts, tally, worth
from probekit.tasks.sentences.parse import Parse, is_word

Sentences = Mapping[str, Sequence[Parse]]
Made = tuple[Drafts, Sequence[str]]
"""Drafts, and the labels in order."""

BINS = (8, 12, 16, 20, 25, 28)
"""Upper ends of the bins of sentence length, in words; the first begins at 5."""
TOP = 19
"""Sequences of constituents that are classes of their own, at most."""
OTHER = "OTHER"
FREQUENT, CONTENT = 100, 50
"""The most frequent words that are no classes of word-content, and the number of those after them that are."""


def _each(sentences: Sentences, draft: Callable[[Parse], Draft | None]) -> Drafts:
    return {split: [d for parse in some if (d := draft(parse)) is not None] for split, some in sentences.items()}


def sentence_length(sentences: Sentences, seed: int) -> Made:
    """The number of words (with punctuation) in six bins, 5-8 to 26-28."""
    bins = [next(i for i, top in enumerate(BINS) if n <= top) for n in range(BINS[-1] + 1)]
    made = _each(sentences, lambda parse: Draft(parse, str(bins[len(parse)]), parse.words))
    return made, [str(i) for i in range(len(BINS))]


def tree_depth(sentences: Sentences, seed: int) -> Made:
    """The edges from the root to the deepest word; of each sentence length, as many sentences of each depth.

    The depths are the widest range of which each has many sentences; see :func:`worth`.
    """
    made = _each(sentences, lambda parse: Draft(parse, str(parse.depth), parse.words, len(parse)))
    known = sorted({int(draft.label) for draft in made["train"]})
    ranges = [tuple(map(str, known[i:j])) for i in range(len(known)) for j in range(i + 2, len(known) + 1)]
    counts = tally(made)
    return made, max(ranges, key=lambda labels: worth(counts, labels), default=())


def top_constituents(sentences: Sentences, seed: int) -> Made:
    """The labels of the constituents below S: up to 19 frequent sequences of which there are many, and OTHER."""
    counts = Counter(parse.top for parse in sentences["train"] if parse.top)
    common = [top for top, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TOP]]

    def drafts(classes: Sequence[str]) -> Drafts:
        def draft(parse: Parse) -> Draft | None:
            return Draft(parse, parse.top if parse.top in classes else OTHER, parse.words) if parse.top else None

        return _each(sentences, draft)

    choices = {(*common[:k], *([OTHER] if k < len(counts) else [])): k for k in range(len(common), 0, -1)}
    best = max(choices, key=lambda labels: worth(tally(drafts(common[: choices[labels]])), labels), default=())
    return drafts(common[: choices.get(best, 0)]), best


def word_content(sentences: Sentences, seed: int) -> Made:
    """Which of the chosen words the sentence contains: one and only one of them.

    The words consist of lower-case letters; those after the 100 most frequent in train, by number of sentences, of
    which each split has enough, up to 50.
    """
    counts = {split: Counter(w for parse in some for w in _vocabulary(parse)) for split, some in sentences.items()}
    ranked = sorted(counts["train"], key=lambda word: (-counts["train"][word], word))[FREQUENT:]
    words = [word for word in ranked if _has_enough(counts, word)][:CONTENT]
    while True:
        wanted = frozenset(words)

        def draft(parse: Parse, wanted: frozenset[str] = wanted) -> Draft | None:
            found = [word for word in parse.words if word.casefold() in wanted]
            return Draft(parse, found[0].casefold(), parse.words) if len(found) == 1 else None

        made = _each(sentences, draft)
        alone = {split: Counter(draft.label for draft in some) for split, some in made.items()}
        kept = [word for word in words if _has_enough(alone, word)]
        if kept == words:
            return made, sorted(words)
        words = kept


def _vocabulary(parse: Parse) -> set[str]:
    """The words of letters, but not those that occur only with a capital inside the sentence (names)."""
    first, *rest = parse.words
    return {word for word in (first.lower(), *rest) if word.isalpha() and word.islower()}


def _has_enough(counts: Mapping[str, Counter[str]], word: str) -> bool:
    return all(n[word] >= (LEAST_IN_TRAIN if split == "train" else LEAST) for split, n in counts.items())


def bigram_shift(sentences: Sentences, seed: int) -> Made:
    """Two neighbouring words exchanged (I), or the original (O); not the first word, and no punctuation.

    Every sentence is in the task once, in the form that a hash of its words chooses.
    """

    def draft(parse: Parse) -> Draft | None:
        words = parse.words
        places = [
            i + 1
            for i, (a, b) in enumerate(pairwise(words[1:]))
            if is_word(a) and is_word(b) and a.casefold() != b.casefold()
        ]
        if not places:
            return None
        if parse.drawn(seed, "shifted") % 2:
            return Draft(parse, "O", words)
        at = places[parse.drawn(seed, "place") % len(places)]
        return Draft(parse, "I", (*words[:at], words[at + 1], words[at], *words[at + 2 :]))

    return _each(sentences, draft), ("I", "O")


def of_label(attribute: str, labels: Sequence[str], lacking: str) -> Callable[[Sentences, int], Made]:
    """A task of sentences as they are, whose label is the class in an attribute of the parse."""

    def make(sentences: Sentences, seed: int) -> Made:
        def draft(parse: Parse) -> Draft | None:
            found = getattr(parse, attribute)
            return Draft(parse, found[0], parse.words) if found else None

        made = _each(sentences, draft)
        if not any(made.values()):
            raise DataError(f"the treebank has no sentence with {lacking}.")
        return made, labels

    return make


def coordination_inversion(sentences: Sentences, seed: int) -> Made:
    """Two coordinate clauses, in their order (O) or exchanged (I); capitals and the final mark keep their places.

    Strata are the differences between the lengths of the first and the second clause as they stand.
    """

    def draft(parse: Parse) -> Draft | None:
        clauses = parse.clauses
        if clauses is None:
            return None
        first, second = parse.words[: clauses.first], parse.words[clauses.second : clauses.end]
        inverted = parse.drawn(seed, "inverted") % 2 == 0
        longer = (len(second) - len(first)) if inverted else (len(first) - len(second))
        stratum = (longer > 0) - (longer < 0), abs(longer) > 3
        if not inverted:
            return Draft(parse, "O", parse.words, stratum)
        head = first[0] if clauses.keeps_capital else first[0][:1].lower() + first[0][1:]
        begin = second[0][:1].upper() + second[0][1:] if parse.words[0][:1].isupper() else second[0]
        link, mark = parse.words[clauses.first : clauses.second], parse.words[clauses.end :]
        return Draft(parse, "I", (begin, *second[1:], *link, head, *first[1:], *mark), stratum)

    return _each(sentences, draft), ("I", "O")


FACTOR = 4
"""How much the frequencies of words and bigrams may differ: the original's times or divided by this."""


def odd_man_out(sentences: Sentences, seed: int) -> Made:
    """One noun or verb replaced (C), or the original (O).

    The replacement has the tag of the original word, and its frequency within a factor of 4. Both bigrams with the
    neighbouring words are attested in the treebank as often, within the factor; those of the original word are counted
    in other sentences. Only sentences with such a word and such a replacement are in the task, whether as they are or
    changed, so that originals differ in nothing else. No replacement is in two splits: a hash gives half of the words
    to train, and a quarter each to dev and test.
    """
    lexicon = Lexicon([parse for some in sentences.values() for parse in some])
    made: dict[str, list[Draft]] = {split: [] for split in sentences}
    for split, some in sentences.items():
        for parse in some:
            chosen = lexicon.replacement(parse, seed, split)
            if chosen is None:
                continue
            at, word = chosen
            odd = parse.drawn(seed, "odd") % 2 == 0
            words = (*parse.words[:at], word, *parse.words[at + 1 :]) if odd else parse.words
            made[split].append(Draft(parse, "C" if odd else "O", words))
    return made, ("C", "O")


def _split_of(word: str) -> str:
    return ("train", "train", "dev", "test")[xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass")) % 4]


class Lexicon:
    """Frequencies of words with their tags, and of bigrams, in lower case."""

    def __init__(self, parses: Sequence[Parse]) -> None:
        self.words: Counter[tuple[str, str]] = Counter()
        self.bigrams: Counter[tuple[str, str]] = Counter()
        self.after: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.before: dict[tuple[str, str], set[str]] = defaultdict(set)
        for parse in parses:
            words = [word.casefold() for word in parse.words]
            self.words.update((word, tag) for word, tag in zip(words, parse.tags, strict=True) if tag)
            self.bigrams.update(pairwise(words))
            for (left, word), tag in zip(pairwise(words), parse.tags[1:], strict=True):
                if tag:
                    self.after[left, tag].add(word)
            for (word, right), tag in zip(pairwise(words), parse.tags, strict=False):
                if tag:
                    self.before[right, tag].add(word)

    def replacement(self, parse: Parse, seed: int, split: str) -> tuple[int, str] | None:
        """A place in a sentence and a word of the split to put there, drawn among all that fit; None if none fits."""
        words = [word.casefold() for word in parse.words]
        own = Counter(pairwise(words))
        places = [i for i in range(1, len(words) - 1) if parse.tags[i] and parse.words[i].islower()]
        first = parse.drawn(seed, "place") % max(len(places), 1)
        for at in (*places[first:], *places[:first]):
            tag, left, word, right = parse.tags[at], *words[at - 1 : at + 2]
            before, after = (left, word), (word, right)
            here = self.words[word, tag], self.bigrams[before] - own[before], self.bigrams[after] - own[after]
            if not all(here):
                continue
            found = []
            for new in sorted(self.after[left, tag] & self.before[right, tag]):
                if new == word or _split_of(new) != split:
                    continue
                there = self.words[new, tag], self.bigrams[left, new], self.bigrams[new, right]
                if all(n <= FACTOR * m and m <= FACTOR * n for n, m in zip(there, here, strict=True)):
                    found.append(new)
            if found:
                return at, found[parse.drawn(seed, "word") % len(found)]
        return None
