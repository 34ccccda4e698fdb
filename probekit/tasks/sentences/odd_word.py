"""Odd man out (Conneau et al. 2018, section 2): a noun or verb replaced by another with comparable bigrams."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import xxhash

from probekit.tasks.sentences.balance import Draft
from probekit.tasks.sentences.makers import Made, Sentences
from probekit.tasks.sentences.parse import Parse

__all__ = ["odd_man_out"]

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
