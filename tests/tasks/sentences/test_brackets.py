"""Trees in brackets: layouts of files, traces, and what is not a tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from probekit.errors import DataError
from probekit.tasks.sentences.brackets import read_brackets
from probekit.tasks.sentences.source import of_constituents

VINKEN = (
    "((S (NP-SBJ-1 (NNP Mr.) (NNP Vinken)) (VP (VBZ is) (NP-PRD (NP (NN chairman)) (PP (IN of) (NP (NNP Elsevier)) "
    "(-NONE- *T*-1)))) (-LRB- -LRB-) (. .)))"
)


def write(folder: Path, text: str) -> Path:
    path = folder / "a.mrg"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        VINKEN,
        f"wsj_1.mrg\t0\t{VINKEN}\n",
        "( (S \n    (NP-SBJ-1 (NNP Mr.) (NNP Vinken))\n    (VP (VBZ is)\n (NP-PRD (NP (NN chairman))\n (PP (IN of)\n"
        "(NP (NNP Elsevier))\n (-NONE- *T*-1) )))\n  (-LRB- -LRB-) (. .) ))\n\n",
        f"(ROOT {VINKEN[1:-1]})",
        f"(TOP {VINKEN})",
    ],
)
def test_layouts_give_the_same_tree(tmp_path: Path, text: str) -> None:
    ((document, line, tree),) = read_brackets(write(tmp_path, text))
    assert document == ("wsj_1.mrg" if "\t" in text else "")
    assert line == 1
    assert tree.label == "S"
    assert [leaf.word for leaf in tree.leaves] == ["Mr.", "Vinken", "is", "chairman", "of", "Elsevier", "(", "."]
    assert [child.label for child in tree.children] == ["NP", "VP", "-LRB-", "."]
    assert tree.children[0].functions == ("SBJ",)
    assert tree.depth == 5  # S, VP, NP, PP, NP, NNP


def test_several_trees_know_their_lines(tmp_path: Path) -> None:
    found = list(read_brackets(write(tmp_path, f"{VINKEN}\n\n(S (NP (PRP It))\n (VP (VBZ is)))\n(X (UH Oh))\n")))
    assert [(line, len(tree.leaves)) for _, line, tree in found] == [(1, 8), (3, 2), (5, 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NP (NN a)))\n(S (NP (NN b))\n(S (NP (NN c)))\n", "line 2: the tree that begins here lacks a closing"),
        ("f\t0\t(S (NN a)\nf\t1\t(S (NN b))\n", "line 1: .* lacks a closing bracket; another begins on line 2"),
        ("(S (NN a)))\n", "line 1: found a closing bracket without an opening one"),
        ("It is no treebank.\n", "line 1: found 'It' outside brackets, expected a tree such as"),
        (
            "(S (NN a) and (NN b))\n",
            r"line 1: found the bracket \(S \(NN …\) and \(NN …\)\), expected a tag and a word",
        ),
        ("(S (NN a b c))\n", r"line 1: found the bracket \(NN a b c\)"),
        ("(S (NP (NN a)) (NN ))\n", r"line 1: found the bracket \(NN\), expected a tag and a word"),
        ("(S (NN a))\n( )\n", r"line 2: found the bracket \(\), expected a tag and a word"),
        ("(S (NP ))\n", r"line 1: found the bracket \(NP\)"),
        ("(S\n  (NP (NN a))\n", "line 1: the tree that begins here lacks a closing bracket"),
    ],
)
def test_what_is_no_tree_is_refused_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"a\.mrg, {message}"):
        list(read_brackets(write(tmp_path, text)))


def test_escaped_characters_also_inside_words(tmp_path: Path) -> None:
    text = r"(S (CD 1\/2) (NN and\/or) (NN \*) (NN M\*A\*S\*H) (. :-RRB-))"
    ((_, _, tree),) = read_brackets(write(tmp_path, text))
    assert [leaf.word for leaf in tree.leaves] == ["1/2", "and/or", "*", "M*A*S*H", ":)"]


def test_a_tree_of_traces_alone_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, "(S (NN a))\n( (S (NP (-NONE- *T*)) ) )\n(S (NN b))\n")
    assert [tree.leaves[0].word for _, _, tree in read_brackets(path)] == ["a", "b"]
    assert "a.mrg, line 2: the tree holds only traces" in caplog.text


@pytest.mark.parametrize(
    ("text", "tense", "subject", "thing"),
    [
        (
            "(S (NP-SBJ (DT The) (NN cat)) (VP (VBD saw) (NP (DT the) (NNS birds))) (. .))",
            ("PAST", "saw"), ("NN", "cat"), ("NNS", "birds"),
        ),
        ("(S (NP-SBJ (NNS Cats)) (VP (MD will) (VP (VB go))) (. .))", None, ("NNS", "cats"), None),
        (
            "(S (NP (NP (NNS Cats)) (PP (IN of) (NP (DT the) (NN king)))) (VP (VBP have) (VP (VBN won) "
            "(NP-TMP (NN today)) (NP (DT a) (NN prize)))))",
            ("PRES", "have"), ("NNS", "cats"), ("NN", "prize"),
        ),
        (
            "(S (NP-SBJ (NN cat) (CC and) (NN dog)) (VP (VBP are) (NP-PRD (NNS pets))))",
            ("PRES", "are"), None, None,
        ),
        (
            "(SQ (VBD Did) (NP-SBJ (NP (DT the) (NN king) (POS 's)) (NNS sons)) (VP (VB give) (NP (NNS girls)) "
            "(NP (DT a) (NN cat))) (. ?))",
            ("PAST", "did"), ("NNS", "sons"), ("NN", "cat"),
        ),
        ("(S (NP-SBJ (PRP It)) (VP (VBZ rains)))", ("PRES", "rains"), None, None),
        (
            "(S (S (NP-SBJ (NN man)) (VP (VBD sang))) (CC and) (S (NP-SBJ (NNS women)) (VP (VBP dance))))",
            ("PAST", "sang"), ("NN", "man"), None,
        ),
        ("(NP (DT A) (NN cat))", None, None, None),
    ],
)  # fmt: skip
def test_the_main_clause_gives_tense_and_numbers(
    tmp_path: Path, text: str, tense: tuple[str, str] | None, subject: tuple[str, str] | None,
    thing: tuple[str, str] | None,
) -> None:  # fmt: skip
    ((_, _, tree),) = read_brackets(write(tmp_path, text))
    parse = of_constituents(tree, "a")
    assert (parse.tense, parse.subject, parse.object) == (tense, subject, thing)


def test_coordinated_clauses(tmp_path: Path) -> None:
    text = "(S (S (NP (NNP Ann)) (VP (VBD sang))) (, ,) (CC and) (S (NP (PRP we)) (VP (VBP dance))) (. .))"
    ((_, _, tree),) = read_brackets(write(tmp_path, text))
    clauses = of_constituents(tree, "a").clauses
    assert clauses is not None
    assert (clauses.first, clauses.second, clauses.end, clauses.keeps_capital) == (2, 4, 6, True)
