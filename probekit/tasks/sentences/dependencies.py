"""What a dependency tree (Universal Dependencies) says to the sentence tasks."""

from __future__ import annotations

from probekit.tasks.files.readers import domain_of
from probekit.tasks.sentences.parse import Clauses, Parse, is_word, keeps_capital
from probekit.tasks.treebank import Tree

TENSES = {"VBD": "PAST", "VBP": "PRES", "VBZ": "PRES", "Past": "PAST", "Pres": "PRES"}
"""Penn tags of finite verbs, and values of the feature Tense."""
NUMBERS = {"NN": "NN", "NNS": "NNS", "Sing": "NN", "Plur": "NNS"}
SUBJECTS = ("nsubj", "csubj", "expl")


def of_dependencies(tree: Tree, treebank: str = "") -> Parse:
    """What a tree says: tense and number from the features where there are some, otherwise from Penn tags (XPOS).

    The verb of the main clause is the first finite one among the root and its auxiliaries and copula; a sentence with a
    modal verb has no tense. Subject and object (``nsubj``, ``obj``) are common nouns, not coordinated.
    """
    children: list[list[int]] = [[] for _ in tree.words]
    for i, head in enumerate(tree.heads):
        if head:
            children[head - 1].append(i)
    relations = tree.relations
    return Parse(
        id=tree.id,
        words=tree.words,
        tags=tuple(_tag(tree, i) if tree.upos[i] in ("NOUN", "VERB") else "" for i in range(len(tree))),
        depth=_depth(tree),
        tense=_tense(tree, relations, children[tree.root]),
        subject=_noun(tree, relations, children, "nsubj"),
        object=_noun(tree, relations, children, "obj"),
        clauses=_clauses(tree, relations, children),
        document=tree.document,
        domain=domain_of({"sent_id": tree.id}, treebank) or "",
    )


def _tag(tree: Tree, word: int) -> str:
    return tree.xpos[word] if tree.xpos[word] != "_" else f"{tree.upos[word]} {tree.feats[word]}"


def _depth(tree: Tree) -> int:
    depths: list[int] = [-1] * (len(tree) + 1)
    depths[0] = -1
    for start in range(1, len(tree) + 1):
        path = []
        word = start
        while word and depths[word] < 0:
            path.append(word)
            word = tree.heads[word - 1]
        for at in reversed(path):
            depths[at] = depths[tree.heads[at - 1]] + 1
    return max(depths)


def _tense(tree: Tree, relations: tuple[str, ...], children: list[int]) -> tuple[str, str] | None:
    for word in sorted([tree.root, *(c for c in children if relations[c] in ("aux", "cop"))]):
        tag, form = tree.xpos[word], tree.feature(word, "VerbForm")
        given = tree.feature(word, "Tense") if form in ("", "Fin") and tree.upos[word] in ("VERB", "AUX") else ""
        if not given and (tag == "MD" or (form == "Fin" and tree.upos[word] == "AUX")):
            return None
        if found := TENSES.get(given) or (TENSES.get(tag) if tree.feats[word] == "_" else None):
            return found, tree.words[word].casefold()
    return None


def _noun(tree: Tree, relations: tuple[str, ...], children: list[list[int]], relation: str) -> tuple[str, str] | None:
    for word in children[tree.root]:
        if relations[word] == relation and tree.upos[word] == "NOUN":
            coordinated = any(relations[c] == "conj" for c in children[word])
            given = tree.feature(word, "Number") if tree.feats[word] != "_" else tree.xpos[word]
            if not coordinated and given in NUMBERS:
                return NUMBERS[given], tree.words[word].casefold()
    return None


def _clauses(tree: Tree, relations: tuple[str, ...], children: list[list[int]]) -> Clauses | None:
    def subtree(word: int) -> list[int]:
        return [word, *(below for child in children[word] for below in subtree(child))]

    def is_clause(word: int) -> bool:
        return any(relations[c] in SUBJECTS and c < word for c in children[word])

    root = tree.root
    conjuncts = [c for c in children[root] if relations[c] == "conj"]
    if len(conjuncts) != 1 or not is_clause(root) or not is_clause(conjuncts[0]):
        return None
    within = sorted(subtree(conjuncts[0]))
    start, end = within[0], within[-1] + 1
    rest = [i for i in range(end, len(tree)) if is_word(tree.words[i])]
    if len(within) != end - start or start <= root < end or start == 0 or rest:
        return None
    second = start
    while second < end and relations[second] in ("cc", "punct"):
        second += 1
    while end > second and not is_word(tree.words[end - 1]):
        end -= 1
    while start and not is_word(tree.words[start - 1]):
        start -= 1
    linked = any(relations[i] == "cc" for i in range(start, second))
    again = any(relations[c] == "conj" and is_clause(c) for c in children[conjuncts[0]])
    if not linked or again or min(start, end - second) < 2 or relations[0] in ("cc", "punct"):
        return None
    return Clauses(start, second, end, keeps_capital(tree.words[0], name=tree.upos[0] == "PROPN"))
