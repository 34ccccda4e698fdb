"""Small treebanks: the same sentences as dependencies and in brackets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

NOUNS = [
    ("cat", "cats"), ("dog", "dogs"), ("bird", "birds"), ("king", "kings"), ("boy", "boys"), ("girl", "girls"),
    ("nurse", "nurses"), ("judge", "judges"), ("clerk", "clerks"), ("guest", "guests"), ("singer", "singers"),
]  # fmt: skip
VERBS = [("VBD", "saw"), ("VBD", "liked"), ("VBD", "heard"), ("VBZ", "sees"), ("VBZ", "likes"), ("VBZ", "hears")]
ADVERBS = ("today", "often", "here")
FEATS = {"VBD": "Tense=Past|VerbForm=Fin", "VBZ": "Tense=Pres|VerbForm=Fin", "NN": "Number=Sing", "NNS": "Number=Plur"}

Word = tuple[str, str, str, int, str]  # form, XPOS, UPOS, head, relation


def clause(subject: tuple[str, str], verb: tuple[str, str], thing: tuple[str, str], adverb: str, at: int) -> list[Word]:
    """The words of "the SUBJECT VERB the OBJECT ADVERB", whose first word has the number ``at + 1``."""
    return [
        ("the", "DT", "DET", at + 2, "det"),
        (*subject, "NOUN", at + 3, "nsubj"),
        (verb[1], verb[0], "VERB", 0, "root"),
        ("the", "DT", "DET", at + 5, "det"),
        (*thing, "NOUN", at + 3, "obj"),
        (adverb, "RB", "ADV", at + 3, "advmod"),
    ]


def clauses() -> Iterator[tuple[tuple[str, str], tuple[str, str], tuple[str, str], str]]:
    """All subjects, verbs, objects and adverbs, such that neighbours differ."""
    nouns = [(form, tag) for pair in NOUNS for form, tag in zip(pair, ("NN", "NNS"), strict=True)]
    found = [(s, v, o, a) for s, v, o, a in product(nouns, VERBS, nouns, ADVERBS) if s[0][:3] != o[0][:3]]
    step = 1009  # coprime with their number
    return (found[i * step % len(found)] for i in range(len(found)))


def simple(n: int) -> list[list[Word]]:
    """Sentences of one clause and a full stop."""
    return [capital([*clause(*c, 0), (".", ".", "PUNCT", 3, "punct")]) for c in islice(clauses(), n)]


def coordinated(n: int) -> list[list[Word]]:
    """Sentences of two clauses with "and" between them."""
    found = list(islice(clauses(), n + 3000))
    sentences = []
    for first, second in zip(found[:n], found[3000:], strict=True):
        right = clause(*second, 7)
        right[2] = (*right[2][:3], 3, "conj")
        right = right[:-1] if len(sentences) % 2 else right
        sentences.append(
            capital([*clause(*first, 0), ("and", "CC", "CCONJ", 10, "cc"), *right, (".", ".", "PUNCT", 3, "punct")])
        )
    return sentences


def capital(words: list[Word]) -> list[Word]:
    return [(words[0][0].capitalize(), *words[0][1:]), *words[1:]]


def conllu(path: Path, sentences: list[list[Word]], *, feats: bool = True, document: int = 5) -> Path:
    """A CoNLL-U file, with a document of each ``document`` sentences (0: none)."""
    lines = []
    for i, words in enumerate(sentences):
        lines += [f"# newdoc id = {path.stem}-{i // document}"] if document and i % document == 0 else []
        lines += [f"# sent_id = {path.stem}-{i}"]
        for j, (form, xpos, upos, head, relation) in enumerate(words, start=1):
            feat = FEATS.get(xpos, "_") if feats else "_"
            lines.append(f"{j}\t{form}\t{form.lower()}\t{upos}\t{xpos}\t{feat}\t{head}\t{relation}\t_\t_")
        lines.append("")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def bracketed(words: list[Word]) -> str:
    """The tree in brackets."""
    tagged = [f"({xpos} {form})" for form, xpos, *_ in words]

    def one(w: list[str]) -> str:
        adverb = f" (ADVP {w[5]})" if len(w) > 5 else ""
        return f"(NP-SBJ {w[0]} {w[1]}) (VP {w[2]} (NP {w[3]} {w[4]}){adverb})"

    if len(words) == 7:
        return f"((S {one(tagged[:6])} {tagged[-1]}))"
    return f"((S (S {one(tagged[:6])}) {tagged[6]} (S {one(tagged[7:-1])}) {tagged[-1]}))"


def treebank(folder: Path, *, feats: bool = True) -> Path:
    """A folder of a UD treebank called xx_toy: 900 sentences for train, 150 each for dev and test."""
    sentences = [s for pair in zip(simple(600), coordinated(600), strict=True) for s in pair]
    for split, part in (("train", slice(0, 900)), ("dev", slice(900, 1050)), ("test", slice(1050, 1200))):
        conllu(folder / f"xx_toy-ud-{split}.conllu", sentences[part], feats=feats)
    return folder
