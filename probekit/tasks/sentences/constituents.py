"""What a constituency tree (Penn Treebank) says to the sentence tasks."""

from __future__ import annotations

from probekit.tasks.sentences.brackets import Node
from probekit.tasks.sentences.dependencies import NUMBERS, TENSES
from probekit.tasks.sentences.parse import Clauses, Parse, is_word, keeps_capital

__all__ = ["of_constituents"]

CLAUSES = ("S", "SINV", "SQ", "SBARQ")
LEXICAL = ("NN", "NNS", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ")
BE = frozenset(["be", "am", "is", "are", "was", "were", "been", "being", "'s", "'re", "'m"])
AUXILIARIES = BE | {"have", "has", "had", "having", "'ve", "'d", "do", "does", "did", "doing", "done"}
ADVERBIAL = {"TMP", "ADV", "EXT", "LOC", "DIR", "MNR", "PRD", "PRP", "CLR", "VOC", "TPC"}
"""Function tags of noun phrases that are no direct objects."""


def of_constituents(tree: Node, name: str, document: str = "") -> Parse:
    """What a tree says: the verb is the first finite one of the main clause, and nouns the heads of noun phrases.

    The subject is the phrase with the function tag SBJ, otherwise the last noun phrase before the verb phrase; the
    object is the first noun phrase after the last verb of the main clause. The head of a phrase is its last common
    noun; coordinated phrases have none.
    """
    leaves = tree.leaves
    words = tuple(leaf.word for leaf in leaves)
    lexical = (leaf.label in LEXICAL and leaf.word.casefold() not in AUXILIARIES for leaf in leaves)
    clause = _main_clause(tree)
    return Parse(
        id=name,
        words=words,
        tags=tuple(leaf.label if keep else "" for leaf, keep in zip(leaves, lexical, strict=True)),
        depth=tree.depth,
        top="_".join(child.label for child in tree.children) if tree.label == "S" else "",
        tense=_tense(clause) if clause else None,
        subject=_subject(clause) if clause else None,
        object=_object(clause) if clause else None,
        clauses=_clauses(tree, leaves[0]),
        document=document,
    )


def _main_clause(tree: Node) -> Node | None:
    """The clause whose child is a verb phrase; the first of coordinated clauses."""
    node: Node | None = tree
    while node is not None and node.label in CLAUSES:
        if any(child.label == "VP" for child in node.children):
            return node
        node = next((child for child in node.children if child.label in CLAUSES), None)
    return None


def _verbs(clause: Node) -> list[tuple[Node, Node]]:
    """The verbs of a clause from its first to its last verb phrase, each with the phrase that it is in."""
    found, phrase = (
        [(child, clause) for child in clause.children if child.label == "MD" or child.label in TENSES],
        clause,
    )
    while inner := next((child for child in phrase.children if child.label == "VP"), None):
        phrase = inner
        found += [(c, phrase) for c in phrase.children if c.word and (c.label[:2] == "VB" or c.label in ("MD", "TO"))]
    return found


def _tense(clause: Node) -> tuple[str, str] | None:
    for verb, _ in _verbs(clause):
        if verb.label in TENSES:
            return TENSES[verb.label], verb.word.casefold()
        if verb.label == "MD":
            return None
    return None


def _noun(phrase: Node) -> tuple[str, str] | None:
    """Number and form of the head of a noun phrase; None for pronouns, names and coordinations."""
    while not phrase.word and (inner := next((c for c in phrase.children if c.label == "NP"), None)):
        if any(child.label in ("CC", "CONJP", "POS") for child in phrase.children):
            return None
        if any(leaf.label == "POS" for leaf in inner.leaves[-1:]):
            break  # "the company 's plans": the head is outside
        phrase = inner
    if any(child.label in ("CC", "CONJP") for child in phrase.children):
        return None
    heads = [child for child in phrase.children if child.label in ("NN", "NNS", "NNP", "NNPS", "PRP", "DT", "CD")]
    return (NUMBERS[heads[-1].label], heads[-1].word.casefold()) if heads and heads[-1].label in NUMBERS else None


def _subject(clause: Node) -> tuple[str, str] | None:
    marked = [child for child in clause.children if "SBJ" in child.functions]
    at = next(i for i, child in enumerate(clause.children) if child.label == "VP")
    before = [child for child in clause.children[:at] if child.label == "NP" and not ADVERBIAL & set(child.functions)]
    phrases = [child for child in marked if child.label == "NP"] if marked else before[-1:]
    return _noun(phrases[0]) if phrases else None


def _object(clause: Node) -> tuple[str, str] | None:
    verbs = [(verb, phrase) for verb, phrase in _verbs(clause) if verb.label[:2] == "VB"]
    if not verbs or verbs[-1][0].word.casefold() in BE:
        return None
    verb, phrase = verbs[-1]
    after = phrase.children[phrase.children.index(verb) + 1 :]
    phrases = [child for child in after if child.label == "NP" and not ADVERBIAL & set(child.functions)]
    return _noun(phrases[-1]) if phrases else None  # the second of two objects is the direct one


def _clauses(tree: Node, first_word: Node) -> Clauses | None:
    """Of a sentence whose constituents are clause, (comma), conjunction, clause and (mark)."""
    parts = [child for child in tree.children if is_word("".join(leaf.word for leaf in child.leaves))]
    if tree.label != "S" or [part.label for part in parts] != ["S", "CC", "S"] or not is_word(tree.leaves[0].word):
        return None
    starts, at = [], 0
    for child in tree.children:
        starts += [at] if child in parts else []
        at += len(child.leaves)
    first, second = len(parts[0].leaves), starts[2]
    end = second + len(parts[2].leaves)
    if tree.children[0] is not parts[0] or min(first, end - second) < 2 or first_word.label == "CC":
        return None
    return Clauses(first, second, end, keeps_capital(first_word.word, name=first_word.label in ("NNP", "NNPS")))
