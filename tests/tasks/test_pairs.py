"""Readers of minimal pairs: counts on the real files, small files in their layouts, and bad input."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path

import pytest

from probekit.errors import DataError, UsageError
from probekit.tasks import load_task
from probekit.tasks.pairs import load_pairs

SHARED = Path(__file__).parents[3] / "shared" / "data"
TREEBANK = """\
# sent_id = s1
# text = The keys to the cabinet are here.
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tkeys\tkey\tNOUN\tNNS\tNumber=Plur\t6\tnsubj\t_\t_
3\tto\tto\tADP\tIN\t_\t5\tcase\t_\t_
4\tthe\tthe\tDET\tDT\t_\t5\tdet\t_\t_
5\tcabinet\tcabinet\tNOUN\tNN\tNumber=Sing\t2\tnmod\t_\t_
6\tare\tbe\tAUX\tVBP\t_\t0\troot\t_\t_
7\there\there\tADV\tRB\t_\t6\tadvmod\t_\tSpaceAfter=No
8\t.\t.\tPUNCT\t.\t_\t6\tpunct\t_\t_

# sent_id = s2
# text = A cat sleeps, and it is here.
1\tA\ta\tDET\tDT\t_\t2\tdet\t_\t_
2\tcat\tcat\tNOUN\tNN\tNumber=Sing\t3\tnsubj\t_\t_
3\tsleeps\tsleep\tVERB\tVBZ\t_\t0\troot\t_\tSpaceAfter=No
4\t,\t,\tPUNCT\t,\t_\t3\tpunct\t_\t_
5\tand\tand\tCCONJ\tCC\t_\t7\tcc\t_\t_
6\tit\tit\tPRON\tPRP\t_\t7\tnsubj\t_\t_
7\tis\tbe\tAUX\tVBZ\t_\t3\tconj\t_\t_
8\there\there\tADV\tRB\t_\t7\tadvmod\t_\tSpaceAfter=No
9\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_

"""


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
def test_the_real_files_have_the_published_counts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = load_pairs("blimp", SHARED / "blimp")
    assert len(found) == 67_000 - 7
    assert len({p.paradigm for p in found.pairs}) == 67
    assert len({p.phenomenon for p in found.pairs}) == 13  # the paper's 12, and s-selection
    assert set(Counter(p.field for p in found.pairs)) == {"syntax", "morphology", "syntax_semantics", "semantics"}
    assert len(found.equal) == 7
    assert "passive_1.jsonl, line 325" in caplog.text
    linzen = load_pairs("marvin-linzen", SHARED / "marvin_linzen")
    assert len(linzen) == 12_420 + 2 * 664
    assert {p.phenomenon for p in linzen.pairs} == {"agreement", "reflexives", "npi"}
    assert len(load_pairs("blimp:passive_2", SHARED / "blimp").equal) == 0
    part = load_task("blimp:passive_1", SHARED / "blimp")
    assert len(part.split("test")) == 2 * 998


def test_agreement_changes_the_verb_and_counts_attractors(tmp_path: Path) -> None:
    (tmp_path / "xx-ud-train.conllu").write_text(TREEBANK)
    (pair,) = load_pairs("agreement", tmp_path).pairs  # "sleeps" has no other form here, "it" is no common noun
    assert (pair.good, pair.bad) == ("The keys to the cabinet are here.", "The keys to the cabinet is here.")
    assert dict(pair.factors) == {"distance": "3", "attractors": "1"}
    assert load_pairs("agreement", tmp_path).name == "agreement:xx"


@pytest.mark.parametrize(
    ("was", "now", "bad"),
    [
        ("\tare\tbe", "\tARE\tbe", "The keys to the cabinet IS here."),
        ("\tare\tbe", "\tAre\tbe", "The keys to the cabinet Is here."),
        ("\tare\tbe", "\t're\tbe", None),
    ],
)
def test_agreement_keeps_the_case_and_leaves_contractions_out(
    tmp_path: Path, was: str, now: str, bad: str | None
) -> None:
    text = TREEBANK.replace(was, now).replace(" are here", " " * (now[1] != "'") + f"{now.split()[0]} here")
    (tmp_path / "xx-ud-train.conllu").write_text(text)
    if bad is None:
        with pytest.raises(DataError, match="no pair of different sentences"):
            load_pairs("agreement", tmp_path)
    else:
        assert [p.bad for p in load_pairs("agreement", tmp_path).pairs] == [bad]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
@pytest.mark.slow
def test_agreement_in_a_real_treebank_changes_one_whole_word() -> None:
    found = load_pairs("agreement", SHARED / "ud_english_ewt").pairs
    assert len(found) == 2379
    for pair in found:
        good, bad = pair.good.split(), pair.bad.split()
        assert len(good) == len(bad)
        assert sum(a != b for a, b in zip(good, bad, strict=True)) == 1


def test_own_files_keep_their_columns(tmp_path: Path) -> None:
    rows = ["good\tbad\tparadigm\tdistance", "the cat sleeps\tthe cat sleep\tshort\t0", "a\tb\tlong\t3"]
    (tmp_path / "mine.tsv").write_text("\n".join(rows) + "\n")
    found = load_pairs(str(tmp_path / "mine.tsv"))
    assert [(p.paradigm, dict(p.factors)) for p in found.pairs] == [
        ("short", {"distance": "0"}), ("long", {"distance": "3"}),
    ]  # fmt: skip
    lines = [json.dumps({"sentence_good": "x y", "sentence_bad": "y x", "UID": "order"})]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    assert load_pairs(str(tmp_path / "mine.jsonl")).pairs[0].paradigm == "order"


def test_bad_files_say_where(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.tsv").write_text("good\tbad\nx\tx\ny\tz\n")
    with caplog.at_level(logging.WARNING):
        assert len(load_pairs(str(tmp_path / "a.tsv"))) == 1
    assert "a.tsv, line 2" in caplog.text
    (tmp_path / "b.tsv").write_text("good\tbad\nx\t\n")
    with pytest.raises(DataError, match=r"b\.tsv, line 2, column 'bad': is empty"):
        load_pairs(str(tmp_path / "b.tsv"))
    (tmp_path / "c.tsv").write_text("right\twrong\nx\ty\n")
    with pytest.raises(DataError, match="expected the columns good and bad"):
        load_pairs(str(tmp_path / "c.tsv"))
    (tmp_path / "d.tsv").write_text("good\tbad\nx\tx\n")
    with pytest.raises(DataError, match="no pair of different sentences"):
        load_pairs(str(tmp_path / "d.tsv"))
    (tmp_path / "e.jsonl").write_text('{"good": "x", "bad": "y"}\n{"good": "x", "bad": null}\n')
    with pytest.raises(DataError, match=r"e\.jsonl, line 2, column 'bad': found None, expected a sentence"):
        load_pairs(str(tmp_path / "e.jsonl"))
    (tmp_path / "e.jsonl").unlink()
    (tmp_path / "f.tsv").write_text("good\tbad\n")
    with pytest.raises(DataError, match=r"f\.tsv: no pair"):
        load_pairs(str(tmp_path / "f.tsv"))
    with pytest.raises(UsageError, match="did you mean blimp"):
        load_pairs("blmp", tmp_path)
    with pytest.raises(DataError, match="has no file of blimp"):
        load_pairs("blimp", tmp_path)


def test_as_a_task_the_sentences_of_a_pair_are_one_group(tmp_path: Path) -> None:
    (tmp_path / "xx-ud-train.conllu").write_text(TREEBANK)
    task = load_task("agreement", tmp_path)
    good, bad = task.split("test")
    assert (good.label, bad.label) == (1, 0)
    assert good.group == bad.group
    assert task.label_names == ("unacceptable", "acceptable")
