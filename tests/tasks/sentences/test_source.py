"""Where treebanks are found, and folders that hold none."""

from __future__ import annotations

from pathlib import Path

import pytest

from probekit.errors import DataError
from probekit.tasks import load_task
from probekit.tasks.sentences.source import find_treebank, parses
from tests.tasks.sentences.treebanks import bracketed, conllu, coordinated, simple, treebank


def test_a_treebank_is_found_in_a_subfolder_and_chosen_by_name(tmp_path: Path) -> None:
    treebank(tmp_path / "UD_Toy")
    (tmp_path / "ptb").mkdir()
    (tmp_path / "ptb" / "a.mrg").write_text("".join(f"{bracketed(w)}\n" for w in simple(400)))
    with pytest.raises(DataError, match=r"several treebanks \(xx_toy, ptb\); choose one: treebank:NAME:xx_toy"):
        load_task("treebank:past-present", tmp_path)
    assert load_task("treebank:past-present:xx-toy", tmp_path).name == "treebank:past-present:xx_toy"
    assert load_task("treebank:past-present:ptb", tmp_path).name == "treebank:past-present:ptb"
    assert find_treebank(tmp_path, brackets=True)[0] == "ptb"


def test_copies_of_a_treebank_are_not_read_twice(tmp_path: Path) -> None:
    treebank(tmp_path)
    treebank(tmp_path / "copy")
    assert len(find_treebank(tmp_path)[1]) == 3
    treebank(tmp_path / "two" / "a")
    treebank(tmp_path / "two" / "b")
    with pytest.raises(DataError, match=r"could be the dev split of xx_toy, as could .* Keep one"):
        parses(find_treebank(tmp_path / "two"))


def test_both_kinds_of_trees_in_a_folder_are_two_treebanks(tmp_path: Path) -> None:
    conllu(tmp_path / "my.conllu", simple(3))
    (tmp_path / "my.mrg").write_text(f"{bracketed(simple(1)[0])}\n")
    assert find_treebank(tmp_path, tmp_path.name)[1][0][1].name == "my.conllu"
    assert find_treebank(tmp_path, f"{tmp_path.name}-brackets")[1][0][1].name == "my.mrg"
    assert find_treebank(tmp_path, brackets=True)[0] == f"{tmp_path.name}-brackets"


def test_sections_of_one_treebank_are_read_together(tmp_path: Path) -> None:
    for section in ("00", "01"):
        folder = tmp_path / "wsj" / section
        folder.mkdir(parents=True)
        (folder / f"wsj_{section}.mrg").write_text(f"{bracketed(simple(1)[0])}\n")
    name, files = find_treebank(tmp_path)
    assert (name, len(files)) == ("wsj", 2)


def test_one_file_is_divided_by_sentences_if_it_has_few_documents(tmp_path: Path) -> None:
    conllu(tmp_path / "my.conllu", simple(500), document=0)
    splits = parses(find_treebank(tmp_path))
    assert list(splits) == ["train", "dev", "test"]
    assert [len(some) for some in splits.values()] == [400, 50, 50]
    words = {split: {parse.words for parse in some} for split, some in splits.items()}
    assert not words["train"] & words["dev"]
    assert not words["train"] & words["test"]


def test_whole_documents_are_divided_if_there_are_many(tmp_path: Path) -> None:
    conllu(tmp_path / "my.conllu", simple(500))
    documents = {split: {p.document for p in some} for split, some in parses(find_treebank(tmp_path)).items()}
    assert not documents["train"] & (documents["dev"] | documents["test"])


def test_what_was_changed_is_read_again(tmp_path: Path) -> None:
    conllu(tmp_path / "my.conllu", simple(50), document=0)
    first = parses(find_treebank(tmp_path))
    assert parses(find_treebank(tmp_path)) is first
    conllu(tmp_path / "my.conllu", coordinated(60), document=0)
    assert sum(map(len, parses(find_treebank(tmp_path)).values())) == 60


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("", "", "has no treebank; expected TREEBANK-ud-train.conllu"),
        ("notes.txt", "hello", "has no treebank"),
        ("my.conllu", "", "my.conllu: has no sentences"),
        ("my.mrg", "\n\n", "my.mrg: has no sentences"),
        ("my.mrg", "This is no tree.", "my.mrg, line 1: found 'This' outside brackets"),
        ("my.conllu", "This is no tree.\n", "my.conllu, line 1: found 4 columns, expected 10"),
        ("xx_a-ud-train.conllu", "1\tA\ta\tX\tX\t_\t5\tdep\t_\t_\n", "line 1, column 'HEAD': .* not a tree"),
    ],
)
def test_what_is_no_treebank(tmp_path: Path, file: str, text: str, message: str) -> None:
    if file:
        (tmp_path / file).write_text(text)
    with pytest.raises(DataError, match=message):
        load_task("treebank:bigram-shift", tmp_path)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_task("treebank:bigram-shift", tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file, expected a folder"):
        load_task("treebank:bigram-shift", tmp_path / "file")


def test_a_treebank_without_tense(tmp_path: Path) -> None:
    words = [[(form, "_", upos, head, rel) for form, _, upos, head, rel in s] for s in simple(300)]
    conllu(tmp_path / "my.conllu", words, feats=False)
    with pytest.raises(
        DataError, match="no sentence with a tense: the feature Tense of a finite verb, or the Penn tags"
    ):
        load_task("treebank:past-present", tmp_path)


def test_too_few_sentences_are_counted(tmp_path: Path) -> None:
    conllu(tmp_path / "my.conllu", simple(20))
    with pytest.raises(DataError, match=r"needs at least two labels with 20 sentences .* has PAST \d+, PRES \d+"):
        load_task("treebank:past-present", tmp_path)
