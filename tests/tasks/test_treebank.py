"""Trees of CoNLL-U files, and sentences that are not trees."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probekit.errors import DataError
from probekit.tasks import load_task
from probekit.tasks.treebank import not_a_tree, read_trees

EWT = Path(__file__).parents[2] / "../shared/data/ud_english_ewt"
SENTENCE = """# newdoc id = weblog-1
# sent_id = weblog-1-1
# text = Dogs don't bark.
1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\tMood=Ind|Tense=Pres\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tbark\tbark\tVERB\tVB\tVerbForm=Inf\t0\troot\t_\t_
4.1\tbark\t_\t_\t_\t_\t_\t_\t_\t_
5\t.\t.\tPUNCT\t.\t_\t4\tpunct:end\t_\t_

"""


def conllu(path: Path, *heads: str) -> Path:
    """A file with a sentence for each string of heads."""
    rows = ("".join(f"{i}\tw\tw\tX\tX\t_\t{h}\tdep\t_\t_\n" for i, h in enumerate(s.split(), 1)) for s in heads)
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_tree_is_read_without_multiword_tokens_and_empty_nodes(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(SENTENCE)
    (tree,) = read_trees(path)
    assert tree.words == ("Dogs", "do", "n't", "bark", ".")
    assert tree.heads == (4, 4, 4, 0, 4)
    assert (tree.id, tree.document, tree.text, tree.line) == ("weblog-1-1", "weblog-1", "Dogs don't bark.", 4)
    assert tree.xpos == ("NNS", "VBP", "RB", "VB", ".")
    assert tree.lemmas[2] == "not"
    assert tree.relations[-1] == "punct"
    assert (tree.root, tree.children(tree.root), tree.children(0)) == (3, (0, 1, 2, 4), ())
    assert [tree.feature(i, "Tense") for i in range(len(tree))] == ["", "Pres", "", "", ""]


def test_sentences_without_ids_are_called_as_the_examples_of_the_task(tmp_path: Path) -> None:
    conllu(tmp_path / "x-ud-dev.conllu", "0 1", "2 0")
    trees = read_trees(tmp_path / "x-ud-dev.conllu", "dev")
    assert [t.id for t in trees] == [e.id for e in load_task("ud", tmp_path).split("dev")] == ["dev-0", "dev-1"]


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ("0 0 1", r"line 1, column 'HEAD': .* not a tree; it has two roots \(words 1 and 2\), expected one"),
        ("0 0 0", r"3 roots \(words 1, 2 and 3\)"),
        ("2 1", "a cycle: word 1 -> 2 -> 1"),
        ("0 3 4 2 2", "a cycle: word 2 -> 3 -> 4 -> 2"),
        ("0 2", "a cycle: word 2 -> 2"),
        ("0 7", "the head 7 of word 2, expected a word from 1 to 2"),
        ("0 _", r"the head '_' of word 2, expected a number. The treebank has no trees"),
        ("-1 0", "the head '-1' of word 1, expected a number"),
    ],
)
def test_what_is_not_a_tree_is_refused_with_file_and_line(tmp_path: Path, heads: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_trees(conllu(tmp_path / "a.conllu", heads))


def test_all_sentences_that_are_not_trees_are_listed(tmp_path: Path) -> None:
    path = conllu(tmp_path / "a.conllu", "0 0", "0 1", "2 1 0")
    with pytest.raises(DataError, match=r"2 rows cannot be read.\n  line 1, .*\n  line 7, .* a cycle"):
        read_trees(path)


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_a_tree_is_what_leads_every_word_to_the_one_root(heads: list[int]) -> None:
    def leads_to_root(word: int) -> bool:
        for _ in range(len(heads) + 1):
            if word == 0:
                return True
            word = heads[word - 1]
        return False

    inside = max(heads) <= len(heads)
    tree = inside and heads.count(0) == 1 and all(map(leads_to_root, range(1, len(heads) + 1)))
    assert (not_a_tree(heads) == "") == tree


@pytest.mark.shared
@pytest.mark.skipif(not EWT.is_dir(), reason=f"English EWT is not at {EWT}")
def test_english_ewt() -> None:
    trees = read_trees(EWT / "en_ewt-ud-dev.conllu")
    assert len(trees) == 2001
    assert sum(map(len, trees)) == 25147  # words of the split in stats.xml
    assert [t.id for t in trees] == [e.id for e in load_task("ud", EWT).split("dev")]
