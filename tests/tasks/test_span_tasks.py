"""Spans and pairs of spans: readers, errors that say where, and the sentences of several tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from probekit.errors import DataError, UsageError
from probekit.tasks import load_task
from probekit.tasks.check import check_task
from probekit.tasks.task import Example, Span, Split, Target, Task, TaskKind
from probekit.tasks.union import input_key

CONLLU = """# newdoc id = d
# sent_id = a-1
# text = Dogs don't bark
1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\tMood=Ind|Tense=Pres\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod:neg\t_\t_
4\tbark\tbark\tVERB\tVB\tVerbForm=Inf\t0\troot\t_\t_

"""


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    for split in ("train", "dev"):
        (tmp_path / f"xx_toy-ud-{split}.conllu").write_text(CONLLU)
    return tmp_path


def test_relations_are_pairs_of_a_word_and_its_head(treebank: Path) -> None:
    task = load_task("ud-relations", treebank)
    (e,) = task.split("dev")
    names = [(t.spans[0].start, t.spans[1].start, task.label_names[t.label]) for t in e.targets]  # type: ignore[index]
    assert names == [(0, 3, "nsubj"), (1, 3, "aux"), (2, 3, "advmod")]
    assert e.words == ("Dogs", "do", "n't", "bark")
    assert e.group == "d"
    assert task.labels("dev").tolist() == [task.label_names.index(name) for _, _, name in names]


def test_features_are_several_labels_of_a_word(treebank: Path) -> None:
    task = load_task("ud-features:xx_toy", treebank)
    assert task.label_names == ("Mood=Ind", "Number=Plur", "Tense=Pres", "VerbForm=Inf")
    assert task.several_labels
    assert task.labels("dev").tolist() == [
        [False, True, False, False],
        [True, False, True, False],
        [False] * 4,
        [False, False, False, True],
    ]
    assert check_task(task).splits[0].targets == 4


@pytest.mark.parametrize(("was", "now", "said"), [("\t4\tnsubj", "\t9\tnsubj", "head '9'"),
                                                  ("\t4\tnsubj", "\t4\tsubject", "relation 'subject'"),
                                                  ("\t4\tnsubj", "\t1\tnsubj", "head '1'")])  # fmt: skip
def test_wrong_heads_and_relations_say_where(treebank: Path, was: str, now: str, said: str) -> None:
    (treebank / "xx_toy-ud-dev.conllu").write_text(CONLLU.replace(was, now))
    with pytest.raises(DataError, match=said) as error:
        load_task("ud-relations", treebank)
    assert "line 4" in str(error.value)
    assert "word 1" in str(error.value)


@pytest.mark.parametrize(("was", "now", "said"), [("\t4\tnsubj", "\t0\tnsubj", "two roots (words 1 and 4)"),
                                                  ("\t0\troot", "\t1\tdep", "a cycle: word 1 -> 4 -> 1")])  # fmt: skip
def test_sentences_that_are_no_trees_say_where_and_what_to_do(treebank: Path, was: str, now: str, said: str) -> None:
    assert was in CONLLU
    (treebank / "xx_toy-ud-dev.conllu").write_text(CONLLU.replace(was, now))
    with pytest.raises(DataError) as error:
        load_task("ud-relations", treebank)
    assert f"not a tree; it has {said}" in str(error.value)
    assert "xx_toy-ud-dev.conllu, line 4" in str(error.value)
    assert "Mend it" in str(error.value)


def test_chunks_are_read_from_iob2(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("He PRP B-NP\nsaw VBD B-VP\nthe DT B-NP\ndog NN I-NP\n. . O\n\n")
    task = load_task("conll2000", tmp_path)
    (e,) = task.split("train")
    assert [(t.spans[0][:2], task.label_names[t.label]) for t in e.targets] == [  # type: ignore[index]
        ((0, 1), "NP"), ((1, 2), "VP"), ((2, 4), "NP")
    ]  # fmt: skip
    (tmp_path / "train.txt").write_text("He PRP B-XX\n")
    with pytest.raises(DataError, match="B-XX"):
        load_task("conll2000", tmp_path)


def test_semeval_relations_have_characters(tmp_path: Path) -> None:
    block = '7\t"The <e1>child</e1> is in the <e2>cradle</e2>."\r\n{}\r\nComment:\r\n\r\n'
    (tmp_path / "TRAIN_FILE.TXT").write_text(block.format("Entity-Destination(e1,e2)"))
    (e,) = load_task("semeval2010", tmp_path).split("train")
    assert e.text == "The child is in the cradle."
    assert e.id == "7"
    assert [e.text[s.start : s.end] for s in e.targets[0].spans] == ["child", "cradle"]
    (tmp_path / "TRAIN_FILE.TXT").write_text(block.format("Kinship"))
    with pytest.raises(DataError, match=r"line 2: found the relation 'Kinship'"):
        load_task("semeval2010", tmp_path)
    (tmp_path / "TRAIN_FILE.TXT").write_text('7\t"No marks."\r\nOther\r\n')
    with pytest.raises(DataError, match=r"line 1: expected a sentence with <e1>"):
        load_task("semeval2010", tmp_path)


def test_pronouns_that_occur_twice_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "train.c.txt").write_text(
        "The bee landed on the flower because it had pollen.\nit\nThe bee,the flower\nthe flower\n\n"
        "When Al hit Bo, he said he left.\nhe\nAl,Bo\nAl\n\n"
    )
    task = load_task("dpr", tmp_path)
    (e,) = task.split("train")
    assert [([e.text[s.start : s.end] for s in t.spans], t.label) for t in e.targets] == [
        (["it", "The bee"], 0), (["it", "the flower"], 1)
    ]  # fmt: skip
    assert "1 of 2 sentences" in task.notes[0]
    (tmp_path / "train.c.txt").write_text("One.\nit\na,b\nc\n\n")
    with pytest.raises(DataError, match=r"line 1: expected a sentence, a pronoun"):
        load_task("dpr", tmp_path)


def test_protoroles_hold_from_a_mean_response_of_4(tmp_path: Path) -> None:
    head = "Split\tSentence.ID\tPred.Token\tArg.Tokens.Begin\tArg.Tokens.End\tProperty\tResponse\tApplicable\n"
    rows = [("awareness", "5", "yes"), ("awareness", "3", "yes"), ("sentient", "5", "no"), ("volition", "3", "yes")]
    lines = [f"train\ten-ud-train.conllu 7\t2\t0\t1\t{name}\t{r}\t{ok}\n" for name, r, ok in rows]
    (tmp_path / "protoroles_eng_ud1.2_11082016.tsv").write_text(head + "".join(lines))
    (tmp_path / "sentences.tsv").write_text("split\tsentnum\ttokens\ntrain\t7\tThe dog barks .\n")
    task = load_task("spr2", tmp_path)
    (e,) = task.split("train")
    assert e.targets == (Target((Span(2, 3), Span(0, 2)), (task.label_names.index("awareness"),)),)


def write(folder: Path, targets: object, unit: str = "") -> Path:
    (folder / "train.jsonl").write_text(json.dumps({"text": "The cat sat .", "targets": targets}) + "\n")
    toml = folder / "mine.toml"
    toml.write_text(f'type = "span-labelling"\ntargets = "targets"\n{unit}\n[splits]\ntrain = "train.jsonl"\n')
    return toml


def test_own_spans_in_words_and_characters(tmp_path: Path) -> None:
    targets = [
        {"span1": [0, 2], "span2": [2, 3], "label": ["agent", "animate"]},
        {"span1": [1, 2], "span2": [3, 4], "label": []},
    ]
    (e,) = load_task(str(write(tmp_path, targets, 'unit = "words"'))).split("train")
    assert e.words == ("The", "cat", "sat", ".")
    assert e.targets == (Target((Span(0, 2), Span(2, 3)), (0, 1)), Target((Span(1, 2), Span(3, 4)), ()))
    task = load_task(str(write(tmp_path, [{"span1": [4, 7], "label": "noun"}])))
    assert task.metrics == ("accuracy", "macro-f1")
    assert task.label_names == ("noun",)
    assert task.split("train")[0].words is None


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ([{"span1": [0, 14], "label": "a"}], "covers characters 0 to 14, but the sentence has 13"),
        ([{"span1": [3, 3], "label": "a"}], "at least one"),
        ([{"span1": [0, 1.5], "label": "a"}], "expected a list such as"),
        ("x", "expected a list such as"),
        ([{"span1": [0, 1], "label": ["a"]}, {"span1": [0, 1]}], "write \\[\\] if none"),
        ([{"span1": [0, 1], "label": "a"}, {"span1": [0, 1], "label": ["a"]}], "differs from the first"),
        ([{"span1": [0, 1], "label": "a"}, {"span1": [0, 1], "span2": [1, 2], "label": "a"}], "differs from the first"),
    ],
)
def test_wrong_targets_say_file_and_line(tmp_path: Path, targets: object, said: str) -> None:
    with pytest.raises(DataError, match=said) as error:
        load_task(str(write(tmp_path, targets)))
    assert "train.jsonl, line 1" in str(error.value)


def test_wrong_targets_in_words_say_file_and_line(tmp_path: Path) -> None:
    targets = [{"span1": [0, 2], "label": "a"}, {"span1": [1, 5], "label": "a"}]  # overlapping spans are allowed
    with pytest.raises(DataError, match="covers words 1 to 5, but the sentence has 4") as error:
        load_task(str(write(tmp_path, targets, 'unit = "words"')))
    assert "train.jsonl, line 1" in str(error.value)


@pytest.mark.parametrize("unit", ["words", "characters"])
@pytest.mark.parametrize("text", [None, "", " ", 3])
def test_spans_of_no_text_say_file_and_line(tmp_path: Path, text: object, unit: str) -> None:
    rows = [{"text": text, "targets": [{"span1": [0, 1], "label": "x"}]}]
    rows += [{"text": "the cat", "targets": [{"span1": [0, 1], "label": "x"}]}]
    toml = write(tmp_path, [], f'unit = "{unit}"')
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if text == " " and unit == "characters":
        assert len(load_task(str(toml)).split("train")) == 2
        return
    with pytest.raises(DataError, match=r"train\.jsonl, line 1"):
        load_task(str(toml))


def test_a_field_that_is_not_set_changes_no_digest() -> None:
    plain = Split("train", (Example("1", "A cat.", 1), Example("2", "Dogs", None, domain="d")))
    assert plain.digest() == "bf26f5b36688c60bbfb5c89d5f4cac54"  # before there were targets
    with_targets = Split("train", (Example("1", "A cat.", 1, targets=(Target((Span(0, 1),), 0),)), plain[1]))
    assert with_targets.digest() != plain.digest()


def test_the_sentences_of_several_tasks_are_read_once(treebank: Path) -> None:
    both = load_task("ud-relations+ud-features+ud", treebank)
    (e,) = both.split("dev")
    assert both.kind is TaskKind.SPAN_LABELLING
    assert e.words == ("Dogs", "do", "n't", "bark")
    assert e.label is None
    (other,) = load_task("ud", treebank).split("dev")
    assert e.id == input_key(other, TaskKind.SEQUENCE_LABELLING)
    with pytest.raises(UsageError, match="none of .* has a split 'test'"):
        both.split("test")


def test_pairs_and_single_sentences_are_not_mixed() -> None:
    from probekit.tasks.union import union

    one = Task("one", TaskKind.CLASSIFICATION, {"dev": Split("dev", (Example("1", "a"),))})
    two = Task("two", TaskKind.CLASSIFICATION, {"dev": Split("dev", (Example("1", "a", None, "b"),))})
    with pytest.raises(UsageError, match="two has pairs"):
        union("one+two", [one, two])


def test_micro_f1_counts_all_labels_together() -> None:
    from sklearn.metrics import f1_score

    from probekit.metrics import metric

    rng = np.random.default_rng(0)
    gold, guess = rng.random((2, 50, 7)) < 0.3
    assert metric("micro-f1")(gold, guess) == pytest.approx(f1_score(gold, guess, average="micro"))
    assert metric("micro-f1")(np.zeros((2, 3), bool), np.zeros((2, 3), bool)) == 0.0
    assert metric("micro-f1")(gold.ravel().astype(int), guess.ravel().astype(int)) == metric("micro-f1")(gold, guess)
    with pytest.raises(UsageError, match="same shape"):
        metric("micro-f1")(gold, guess[:, :3])


TREES = """
( (S
    (NP-SBJ-1 (DT The) (NNS dogs))
    (VP (VBD wanted)
      (S
        (NP-SBJ (-NONE- *-1))
        (VP (TO to) (VP (VB eat)
          (NP (NNS bones) (-LRB- -LRB-) (NN meat) (-RRB- -RRB-))))))
    (. .)) )
( (S (NP-SBJ (PRP They)) (VP (VBD slept)) (. .)) )
"""


def spr1_files(folder: Path, rows: Sequence[str]) -> Path:
    (folder / "wsj/00").mkdir(parents=True)
    (folder / "wsj/00/wsj_0003.mrg").write_text(TREES)
    (folder / "wsj/00/wsj_0004.mrg").write_text("(S (not read")
    head = "Split\tSentence.ID\tPred.Token\tArg\tArg.Pos\tRoleset\tGram.Func\tProperty\tResponse\tApplicable\n"
    (folder / "protoroles_eng_pb_08302015.tsv").write_text(head + "".join(f"{row}\n" for row in rows))
    return folder


def test_spr1_finds_words_in_trees_whose_places_count_traces(tmp_path: Path) -> None:
    eat, rest = "train\t0003_0\t5\t{}\t{}\teat.01\tsubj\t{}", ("sentient\t5\tTrue", "created\t5\tFalse")
    rows = [eat.format(0, place, end) for place in ("0:1", "6:1") for end in rest]
    rows += [eat.format(1, "3:1", rest[0]), eat.format(1, "0:1,6:1", rest[0]), eat.format(1, "0:1,2:0", rest[0])]
    rows += ["dev\t0003_1\t1\t0\t0:1\tsleep.01\tsubj\tvolition\t4\tTrue"]
    rows += ["test\t1778_51\t1\t0\t0:1\thear.01\tsubj\tawareness\t5\tTrue"]
    task = load_task("spr1", spr1_files(tmp_path, rows))
    (e,), (other,) = task.split("train"), task.split("dev")
    assert e.words == ("The", "dogs", "wanted", "to", "eat", "bones", "(", "meat", ")", ".")
    sentient = (task.label_names.index("sentient"),)
    arguments = (Span(0, 2), Span(0, 3), Span(5, 9))  # the trace before "to" is terminal 3
    assert e.targets == tuple(Target((Span(4, 5), argument), sentient) for argument in arguments)
    assert (e.group, other.id, other.words) == ("wsj_0003", "0003_1", ("They", "slept", "."))
    assert other.targets == (Target((Span(1, 2), Span(0, 1)), (task.label_names.index("volition"),)),)
    assert task.notes == (
        "1 annotated sentences have no tree, and are left out.",
        "2 arguments are traces or have parts apart from each other, and are left out.",
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("train\t0003_0\t5\t0\t0-1\teat.01\tsubj\tsentient\t5\tTrue", "line 3: found the positions 5 and '0-1'"),
        ("train\t0003_0\t5\t0\t0:1\teat.01\tsubj\tsentient\t9\tTrue", "line 3: found the response '9'"),
    ],
)
def test_wrong_annotations_of_spr1_say_file_and_line(tmp_path: Path, row: str, said: str) -> None:
    good = "train\t0003_0\t5\t0\t0:1\teat.01\tsubj\tsentient\t5\tTrue"
    with pytest.raises(DataError, match=said):
        load_task("spr1", spr1_files(tmp_path, [good, row]))


def test_spr1_without_trees_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "protoroles_eng_pb_08302015.tsv").write_text("Split\tSentence.ID\n")
    with pytest.raises(DataError, match=r"no wsj_\*\.mrg.*Penn Treebank"):
        load_task("spr1", tmp_path)
