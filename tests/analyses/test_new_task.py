"""A task file from data alone: what is guessed, how splits are drawn, and that nothing is replaced."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from probekit import check_task, load_task, new_task
from probekit.cli import main as command
from probekit.errors import DataError, UsageError

LABELS = ("bad", "good", "so-so")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def reviews(n=200):
    """Rows of a text, a label, an author of four texts and a number of each row."""
    return [(f"review {i} of the {i * 7919 % 1009}th film", LABELS[i % 3], f"u{i // 4}", str(i)) for i in range(n)]


def write(path, delimiter, header=("review", "liked", "author", "idx"), rows=None):
    lines = [header] * bool(header) + (reviews() if rows is None else rows)
    Path(path).write_text(
        "".join(delimiter.join(f'"{c}"' if delimiter in c else c for c in row) + "\n" for row in lines)
    )


WRITTEN = [("a.csv", ","), ("a.tsv", "\t"), ("a.csv", ";"), ("a.txt", "|"), ("a.txt", "\t")]


@pytest.mark.parametrize(("name", "delimiter"), WRITTEN)
@pytest.mark.parametrize("header", [("review", "liked", "author", "idx"), ()])
def test_separators_and_headers(name, delimiter, header):
    write(name, delimiter, header)
    task = load_task(new_task(name))
    assert {split: len(examples) for split, examples in task.splits.items()} == {"train": 180, "dev": 20}
    assert task.label_names == LABELS
    assert task.splits["dev"].examples[0].text.startswith("review ")
    groups = [{e.group for e in task.splits[split]} for split in ("train", "dev")]
    assert [len(found) for found in groups] == [45, 5]
    assert not groups[0] & groups[1]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('"open,good', r"a\.csv, line 4: a quotation mark opens here and is not closed\. Close it"),
        ('a text,"good', r"a\.csv, line 4: a quotation mark opens here and is not closed\. Close it"),
        ("no label", r"a\.csv, line 4: found 1 column, expected 2, comma-.*: \['no label'\]\. 1 row does .*delete it"),
    ],
)
def test_a_broken_row_is_named_by_its_line(bad, message):
    """The line of the file, with the header and empty lines."""
    rows = [f"review {i},{LABELS[i % 2]}" for i in range(60)]
    Path("a.csv").write_text("\n".join(["text,label", "", rows[0], bad, *rows[1:]]) + "\n")
    with pytest.raises(DataError, match=message):
        new_task("a.csv")


def test_few_groups_are_warned_of_with_a_share_that_gives_enough(caplog):
    rows = [(f"text {i} {i * i}", LABELS[i % 2], f"u{i // 4:02}", str(i)) for i in range(120)]
    write("a.csv", ",", rows=rows)
    report = check_task(load_task(new_task("a.csv")))
    assert caplog.messages == ["dev has 3 of 30 groups; --dev 0.4 gives at least 12."]
    assert [split.groups for split in report.splits] == [27, 3]
    few = "dev: 12 examples in 3 groups; intervals need at least 5 groups, and tests are weak below 12."
    assert few in report.warnings
    caplog.clear()
    report = check_task(load_task(new_task("a.csv", dev=0.4, out="b.toml")))
    assert [split.groups for split in report.splits] == [18, 12]
    assert caplog.messages == []
    assert report.warnings == ("train: 18 groups; mutual information needs at least 20 groups in its split.",)


COLUMNS = [
    *("dialogue", "dialog", "conversationId", "Thread ID", "session_id", "user_name", "author", "speaker_id", "docid"),
    *("document", "doc_key", "paragraph", "article_id", "source", "id_patient", "subject", "groups", "somewhere"),
]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_of_groups_is_found_and_no_group_is_in_two_splits(column):
    """Rows of a group have names with letters and digits and are far apart; the last column has an unknown name."""
    rows = [(f"text {i} {i * i}", LABELS[i % 2], f"x{i % 60}", str(i)) for i in range(600)]
    write("a.csv", ",", header=("text", "label", column, "n"), rows=rows)
    path = new_task("a.csv", dev=0.2, test=0.2)
    assert f'groups = "{column}"' in path.read_text()
    groups = [{e.group for e in split} for split in load_task(path).splits.values()]
    assert sorted(map(len, groups)) == [12, 12, 36]
    assert len(set.union(*groups)) == 60


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("length", [str(i * 7919 % 30) for i in range(200)]),  # numbers that repeat far apart
        ("confidence", [f"{i // 4 / 7:.3f}" for i in range(200)]),  # fractions
        ("n", [str(i) for i in range(200)]),  # a number of each row
        ("speaker", ["AB"[i % 2] for i in range(200)]),  # two values
        ("comment", [f"a long remark on this text which is number {i // 4}" for i in range(200)]),
    ],
)
def test_a_column_of_something_else_is_not_one_of_groups(name, values):
    rows = [(f"text {i} {i * i}", LABELS[i % 2], value) for i, value in enumerate(values)]
    write("a.csv", ",", header=("text", "label", name), rows=rows)
    text = new_task("a.csv").read_text()
    assert '\n# groups = "…"' in text
    assert ("# Repeated values: length (30 values)" in text) == (name == "length")


def test_a_coarser_column_unites_the_groups_of_a_finer_one():
    rows = [(f"text {i} {i * i}", LABELS[i % 2], f"t{i // 5}", f"u{i // 10}") for i in range(600)]
    write("a.csv", ",", header=("text", "label", "thread", "user"), rows=rows)
    assert 'groups = "user"' in new_task("a.csv").read_text()
    crossed = [(*row[:3], f"u{i % 60}") for i, row in enumerate(rows)]
    write("b.csv", ",", header=("text", "label", "thread", "user"), rows=crossed)
    assert 'groups = "thread"' in new_task("b.csv").read_text()


def test_groups_are_given_or_refused():
    write("a.csv", ",")
    given = new_task("a.csv", groups="idx", out="given.toml")
    assert 'groups = "idx"  # as given with --groups' in given.read_text()
    none = new_task("a.csv", groups="none", out="none.toml")
    assert all(e.group is None for split in load_task(none).splits.values() for e in split)
    with pytest.raises(UsageError, match=r"groups is 'autor', but there is no such column; did you mean author\?"):
        new_task("a.csv", groups="autor", out="b.toml")
    with pytest.raises(UsageError, match="groups is 'liked', which holds the labels"):
        new_task("a.csv", groups="liked", out="b.toml")
    write("c.csv", ",", rows=[(*row[:2], f"u{i % 8}", row[3]) for i, row in enumerate(reviews())])
    with pytest.raises(UsageError, match=r"200 rows in 8 groups \(whole groups of 'author'\), too few to draw dev"):
        new_task("c.csv", groups="author")


def test_unbalanced_classes_are_not_measured_by_accuracy():
    for cycle, main in (
        ("b" + 19 * "a", "matthews"),
        ("b" + 19 * "a" + "c" + 19 * "a", "macro-f1"),
        ("baaa", "accuracy"),
    ):
        rows = [(text, cycle[i % len(cycle)]) for i, (text, *_) in enumerate(reviews(400))]
        write(f"{main}.csv", ",", header=("text", "label"), rows=rows)
        path = new_task(f"{main}.csv", groups="none")
        assert load_task(path).metrics[0] == main
        assert ("are a, so always predicting it" in path.read_text()) == (main != "accuracy")
        assert not any("Choose another main metric" in warning for warning in check_task(path).warnings)


def test_rows_without_a_group_are_independent():
    rows = [(*row[:2], "" if i % 2 else row[2], row[3]) for i, row in enumerate(reviews())]
    write("a.csv", ",", rows=rows)
    task = load_task(new_task("a.csv"))
    groups = [{e.group or e.id for e in task.splits[split]} for split in ("train", "dev")]
    assert [len(found) for found in groups] == [135, 15]


def test_whole_groups_are_drawn_and_classes_in_proportion():
    rows = [(f"text {i} {i * i}", "rare" if i < 30 else "often", f"g{i // 3}", str(i)) for i in range(300)]
    write("a.csv", ",", rows=rows)
    task = load_task(new_task("a.csv", dev=0.2, test=0.1))
    groups = [{e.group for e in task.splits[s]} for s in ("train", "dev", "test")]
    assert [len(g) for g in groups] == [70, 20, 10]
    assert len(set.union(*groups)) == 100
    assert [sum(task.label_names[e.label] == "rare" for e in task.splits[s]) for s in ("train", "dev", "test")] == [
        21,
        6,
        3,
    ]


def test_near_copies_stay_together():
    base = [" ".join(f"w{(i * 37 + k * 101) % 997}" for k in range(12)) for i in range(60)]
    rows = [(text + f" end{j}", LABELS[i % 3], "x", "y") for i, text in enumerate(base) for j in range(2)]
    write("a.csv", ",", header=("text", "label", "other", "more"), rows=rows)
    task = load_task(new_task("a.csv", dev=0.25))
    starts = [{e.text.rsplit(" ", 1)[0] for e in task.splits[s]} for s in ("train", "dev")]
    assert not starts[0] & starts[1]


def test_the_same_seed_draws_the_same():
    write("a.csv", ",")
    made = [new_task("a.csv", out=f"{k}.toml", seed=seed) for k, seed in enumerate((0, 0, 1))]
    dev = [path.with_suffix(".dev.jsonl").read_bytes() for path in made]
    assert dev[0] == dev[1] != dev[2]


def test_a_folder_with_splits_stays_where_it_is():
    Path("data").mkdir()
    for split in ("train", "validation", "test"):
        write(f"data/{split}.tsv", "\t")
    path = new_task("data", out="data/mine.toml")
    assert sorted(p.name for p in Path("data").iterdir()) == ["mine.toml", "test.tsv", "train.tsv", "validation.tsv"]
    assert 'dev = "validation.tsv"' in path.read_text()
    assert list(load_task(path).splits) == ["train", "dev", "test"]


def test_a_test_split_that_is_there_leaves_dev_its_share():
    Path("data").mkdir()
    for split in ("train", "test"):
        write(f"data/{split}.csv", ",", header=("review", "liked", "other", "idx"))
    task = load_task(new_task("data", dev=0.2, test=0.5))
    assert {split: len(part) for split, part in task.splits.items()} == {"train": 160, "test": 200, "dev": 40}


def test_pairs_numbers_words_and_lists():
    rng = np.random.default_rng(0)
    pd.DataFrame(
        {
            "premise": [f"one {i}" for i in range(80)],
            "hypothesis": [f"other {i * 31}" for i in range(80)],
            "score": rng.random(80).round(2),
            "genre": ["a", "b"] * 40,
        }
    ).to_parquet("pairs.parquet")
    task = load_task(new_task("pairs.parquet"))
    example = task.splits["dev"].examples[0]
    assert (task.kind, example.pair.startswith("other"), example.domain in "ab") == ("regression", True, True)
    Path("ner.jsonl").write_text(
        "".join(
            json.dumps({"tokens": [f"a{i}", "of", f"b{i}"], "ner_tags": ["B-X", "O", "O"]}) + "\n" for i in range(60)
        )
    )
    assert load_task(new_task("ner.jsonl")).kind == "sequence-labelling"
    Path("conll.txt").write_text("".join(f"w{i} NN B-NP\nx{i * 7} VB O\n\n" for i in range(60)))
    assert load_task(new_task("conll.txt")).label_names == ("B-NP", "O")
    Path("list.json").write_text(json.dumps([{"text": f"text {i}", "label": i % 2} for i in range(60)]))
    assert load_task(new_task("list.json")).label_names == ("0", "1")


def test_every_guess_has_its_reason_and_the_file_is_checked():
    write("a.csv", ";")
    text = new_task("a.csv").read_text()
    assert 'groups = "author"  # by its name; values are repeated' in text
    assert "3 classes: bad (67), good (67), so-so (66)" in text
    assert "whole groups of 'author'" in text
    assert check_task("a.toml").splits[0].examples == 180


def test_nothing_is_replaced():
    write("a.csv", ",")
    new_task("a.csv")
    before = {path: path.read_bytes() for path in Path().iterdir()}
    with pytest.raises(UsageError, match=r"a\.toml, .*already exist and are not replaced; move them"):
        new_task("a.csv")
    Path("b.dev.jsonl").write_text("mine\n")
    with pytest.raises(UsageError, match=r"b\.dev\.jsonl already exists"):
        new_task("a.csv", out="b.toml")
    Path("b.dev.jsonl").unlink()
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_nothing_is_left_of_a_task_that_cannot_be_read(monkeypatch):
    def unreadable(name):
        raise DataError("is not a text.", file="a.dev.jsonl", line=3)

    write("a.csv", ",")
    said = r"a\.dev\.jsonl, line 3: is not a text\. No file is left.*text = 'review'"
    with monkeypatch.context() as now:
        now.setattr("probekit.analyses.new_task.load_task", unreadable)
        with pytest.raises(DataError, match=said):
            new_task("a.csv")
    assert sorted(path.name for path in Path().iterdir()) == ["a.csv"]
    assert load_task(new_task("a.csv")).label_names == LABELS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("text,label\nonly one\nfine,yes\na,b\nc,d\n", "does not have 2 columns"),
        ("1,2\n3,4\n5,6\n", "no column holds text"),
        ("text,label\na,b\nc,d\n", None),
    ],
)
def test_what_cannot_be_a_task(text, message):
    Path("a.csv").write_text(text)
    if message is None:  # too few rows to draw from: train alone
        assert list(load_task(new_task("a.csv")).splits) == ["train"]
    else:
        with pytest.raises(DataError, match=message):
            new_task("a.csv")
    with pytest.raises(DataError, match="does not exist"):
        new_task("none.csv")
    with pytest.raises(UsageError, match="must be shares of train"):
        new_task("a.csv", dev=0.6, test=0.5)


def test_a_column_of_few_values_does_not_group():
    """Eight authors of 400 reviews cannot be held out as wholes."""
    rows = [(f"review {i} of the {i * 7919 % 1009}th film", LABELS[i % 3], f"u{i % 8}", str(i)) for i in range(400)]
    write("a.csv", ";", rows=rows)
    path = new_task("a.csv")
    assert "\ngroups" not in path.read_text()
    assert "Not used: author" in path.read_text()
    assert len(load_task(path).splits["dev"]) == 40


def test_the_task_is_called_as_its_file():
    write("a.csv", ",")
    assert load_task(new_task("a.csv", out="mine.toml")).name == "mine"


def test_data_given_as_a_task_and_other_separators_lead_to_tasks_new():
    write("a.csv", ";")
    with pytest.raises(UsageError, match=r"a\.csv holds data and is not a task; probekit tasks new a\.csv writes"):
        load_task("a.csv")
    Path("a.toml").write_text('text = "review"\nlabel = "liked"\n[splits]\ntrain = "a.csv"\n')
    with pytest.raises(
        DataError,
        match=r"there is no column 'review'.* semicolons, not by commas.*: probekit tasks new a\.csv --out NEW.toml",
    ):
        load_task("a.toml")


@pytest.mark.parametrize("names", [("train", "dev"), ("Training", "validation", "TEST"), ("train", "test")])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_column_of_splits_is_used(name, names):
    rows = [(text, label, names[i % 5 % len(names)]) for i, (text, label, *_) in enumerate(reviews())]
    table = pd.DataFrame(rows, columns=["review", "liked", "Split"])
    {"csv": lambda: table.to_csv(name, index=False), "parquet": lambda: table.to_parquet(name),
     "jsonl": lambda: table.to_json(name, orient="records", lines=True)}[name.split(".")[1]]()  # fmt: skip
    task = load_task(new_task(name, dev=0))
    wanted = {
        {"t": "train", "d": "dev", "v": "dev"}[n[0].lower()] if n != "TEST" and n != "test" else "test": n
        for n in names
    }
    assert {split: [e.text for e in some] for split, some in task.splits.items()} == {
        split: [text for text, _, of in rows if of == their] for split, their in wanted.items()
    }
    assert "by its column 'Split'" in Path("a.toml").read_text()


def test_a_column_of_splits_that_names_something_else_is_asked_about():
    header = ("review", "liked", "split")
    rows = [(text, label, ("train", "dev", "unused")[i % 3]) for i, (text, label, *_) in enumerate(reviews())]
    write("a.csv", ",", header, rows)
    with pytest.raises(DataError, match=r"the column 'split' names the split of each row, but 'unused' \(66 rows\)"):
        new_task("a.csv")
    write("a.csv", ",", header, [(text, label, "test") for text, label, _ in rows])
    with pytest.raises(DataError, match="no row is of train"):
        new_task("a.csv")
    for name, cells in (("set", "ab"), ("part", ("train station", "test drive", "bus stop"))):
        some = [(*row[:2], cells[i % len(cells)]) for i, row in enumerate(rows)]
        write(f"{name}.csv", ",", ("review", "liked", name), some)
        assert sorted(load_task(new_task(f"{name}.csv")).splits) == ["dev", "train"]


def documents(count, sentences=10, begin=1):
    """Sentences of documents in the format of CoNLL, the first documents without a mark."""
    lines = []
    for document in range(count):
        lines += ["-DOCSTART- O", ""] if document >= begin else []
        for i in range(sentences):
            lines += [f"d{document}s{i} B-X", f"word{i * 7919 % 1009} O", f"other{i * document} O", ""]
    return "\n".join(lines)


@pytest.mark.parametrize("begin", [0, 1])
def test_marked_documents_are_drawn_whole(begin):
    Path("n.conll").write_text(documents(40, begin=begin))
    task = load_task(new_task("n.conll"))
    of = [{e.words[0].split("s")[0] for e in task.split(split)} for split in ("train", "dev")]
    assert [len(found) for found in of] == [36, 4]
    assert not of[0] & of[1]
    assert len({e.group for split in task.splits.values() for e in split}) == 40
    Path("whole.toml").write_text('[splits]\ntrain = "n.conll"\n')
    assert len({e.group for e in load_task("whole.toml").split("train")}) == 40


def test_few_marked_documents_are_not_divided():
    Path("n.conll").write_text(documents(5, 40))
    with pytest.raises(UsageError, match=r"200 rows in 5 groups \(whole groups of 'document'\), too few to draw dev"):
        new_task("n.conll")
    assert len(load_task(new_task("n.conll", groups="none")).splits) == 2


def test_a_mark_of_a_document_within_a_sentence_is_an_error():
    Path("n.conll").write_text("a O\n-DOCSTART- O\nb O\n")
    with pytest.raises(DataError, match=r"n\.conll, line 2: -DOCSTART- begins a document; put an empty line before it"):
        new_task("n.conll")


def test_a_header_with_blanks_is_not_kept_as_it_is():
    write("a.csv", ",", (" review", " liked ", "author", "idx"))
    assert load_task(new_task("a.csv", dev=0)).label_names == LABELS


def lines(path, records):
    Path(path).write_text("".join(json.dumps(record) + "\n" for record in records))


def test_files_of_other_splits_are_found_beside_one_or_given():
    for name in ("a_train", "a-dev", "A_Test", "b_train", "held"):
        write(f"{name}.csv", ",", header=("review", "liked", "other", "idx"))
    path = new_task("a-dev.csv")
    assert path.name == "a.toml"
    assert (
        'test = "A_Test.csv"  # A_Test.csv: comma-separated, with a header; found beside a-dev.csv' in path.read_text()
    )
    assert {split: len(some) for split, some in load_task(path).splits.items()} == {
        "train": 200,
        "dev": 200,
        "test": 200,
    }
    given = new_task("b_train.csv", "dev=held.csv")
    assert (given.name, list(load_task(given).splits)) == ("b.toml", ["train", "dev"])
    for wrong, message in (
        (("b_train.csv", "held.csv"), r"held\.csv does not say which split it is; write train=held\.csv"),
        (("a_train.csv", "b_train.csv"), "both a_train.csv and b_train.csv are given as the train split"),
        (("a-dev.csv", "test=held.csv"), "no training file among them"),
    ):
        with pytest.raises(UsageError, match=message):
            new_task(*wrong, out="c.toml")


def test_two_columns_of_splits_are_asked_about():
    rows = [
        (text, label, "train" if i < 120 else "dev", "train" if i < 160 else "test")
        for i, (text, label, *_) in enumerate(reviews())
    ]
    write("a.csv", ",", ("review", "liked", "split", "fold"), rows)
    with pytest.raises(DataError, match=r"both 'split' and 'fold' name the split.*differ.*--columns split=split or"):
        new_task("a.csv")
    sizes = {"fold": {"train": 160, "test": 40}, "none": {"train": 180, "dev": 20}}
    for column, wanted in sizes.items():
        task = load_task(
            new_task("a.csv", out=f"{column}.toml", columns={"split": column}, dev=0.1 * (column == "none"))
        )
        assert {split: len(some) for split, some in task.splits.items()} == wanted


def test_splits_without_a_header_choices_and_numbered_texts():
    """Columns of SentEval's files, of COPA, and of pairs of units."""
    rows = [(("tr", "va", "te")[i % 3], label, text) for i, (text, label, *_) in enumerate(reviews(60))]
    write("depth.txt", "\t", header=(), rows=rows)
    assert {s: len(some) for s, some in load_task(new_task("depth.txt")).splits.items()} == dict.fromkeys(
        ("train", "dev", "test"), 20
    )
    lines(
        "choose.jsonl",
        [
            {
                "premise": f"It rained {i}.",
                "choice1": f"Ann {i} stayed.",
                "choice2": f"Bo {i * 3} left.",
                "label": i % 2,
            }
            for i in range(60)
        ],
    )
    task = load_task(new_task("choose.jsonl", dev=0))
    assert (task.kind, task.split("train")[1].choices) == ("multiple-choice", ("Ann 1 stayed.", "Bo 3 left."))
    Path("d").mkdir()
    for split in ("train", "dev"):
        write(
            f"d/a_{split}.rels",
            "\t",
            ("doc", "unit1_txt", "unit2_txt", "label"),
            [(f"d{i // 4}", text, f"so {i} it is", label) for i, (text, label, *_) in enumerate(reviews(80))],
        )
    task = load_task(new_task("d"))
    e = task.split("dev")[5]
    assert (e.text[:9], e.pair, e.group, list(task.splits)) == ("review 5 ", "so 5 it is", "d1", ["train", "dev"])


def test_several_labels_in_columns_lists_and_cells():
    texts = [text for text, *_ in reviews(60)]
    held = [(i % 2, (i + 1) % 3 // 2, int(i % 5 == 0)) for i in range(60)]
    names = ("sad", "angry", "glad")
    of = [[name for name, holds in zip(names, row, strict=True) if holds] for row in held]
    write(
        "columns.csv", ",", ("comment", *names), [(text, *map(str, row)) for text, row in zip(texts, held, strict=True)]
    )
    lines("lists.jsonl", [{"comment": text, "labels": some} for text, some in zip(texts, of, strict=True)])
    write(
        "cells.csv", ",", ("comment", "labels"), [(text, ";".join(some)) for text, some in zip(texts, of, strict=True)]
    )
    for name in ("columns.csv", "lists.jsonl", "cells.csv"):
        task = load_task(new_task(name, dev=0))
        assert task.kind == "multi-label"
        read = [None if e.label is None else {task.label_names[k] for k in e.label} for e in task.split("train")]
        assert read == [set(some) if some or name != "cells.csv" else None for some in of]  # an empty cell says nothing
    one = load_task(new_task("columns.csv", dev=0, out="one.toml", columns="label=angry"))
    assert (one.kind, one.label_names) == ("classification", ("0", "1"))
    two = load_task(new_task("columns.csv", dev=0, out="two.toml", columns={"label": "sad+glad"}))
    assert (two.kind, two.label_names) == ("multi-label", ("sad", "glad"))


def test_untidy_rows_are_tidied_and_told(caplog):
    """A byte-order mark, Windows line ends, labels in several spellings, an empty text, and one that is not there."""
    rows = []
    for i, (text, *_) in enumerate(reviews()):
        label = ("good", "bad")[i % 2]
        label = label.upper() if i % 10 == 3 else f" {label.title()} " if i % 10 == 4 else label
        rows.append((text if i % 100 else "", label, f"u{i // 4}", "train" if i < 160 else "dev"))
    names = ("review", "liked", "author", "split")
    Path("a.csv").write_bytes("\r\n".join(["\ufeff" + ",".join(names), *map(",".join, rows), ""]).encode())
    lines("b.jsonl", [dict(zip(names, (row[0] or None, *row[1:]), strict=True)) for row in rows])
    for name, left in (("a", 160), ("b", 158)):
        caplog.clear()
        task = load_task(new_task(next(Path().glob(f"{name}.*"))))
        assert task.label_names == ("bad", "good")
        assert {split: len(some) for split, some in task.splits.items()} == {"train": left, "dev": 40}
        messages = [message.partition(": ")[2] for message in caplog.messages]
        assert messages == [
            *["train: 2 of 160 rows are left out: 2 without review."] * (left == 158),
            "The label 'good' is also spelled ' Good '; all are one class. If they are several, spell them apart.",
            "The label 'bad' is also spelled 'BAD'; all are one class. If they are several, spell them apart.",
        ]
        assert all(f"# {message}" in Path(f"{name}.toml").read_text() for message in messages)


def test_a_guess_that_is_not_sure_is_told_or_asked_about(caplog, monkeypatch, capsys):
    rows = [(text, str(i % 5 + 1), ("a", "b")[i % 2]) for i, (text, *_) in enumerate(reviews())]
    write("a.csv", ",", ("review", "stars", "polarity"), rows)
    path = new_task("a.csv")
    assert caplog.messages == [
        "a.csv: label is 'polarity' (by its name), but could be 'stars'. Choose with --columns label=COLUMN."
    ]
    assert "# Not sure: label is 'polarity' (by its name), but could be 'stars'." in path.read_text()
    caplog.clear()
    monkeypatch.setattr("sys.stdin", Terminal("2\n"))
    assert command(["tasks", "new", "a.csv", "--out", "asked.toml"]) == 0
    assert (
        "Which column is label? 'polarity' is a guess: by its name.\n  1 polarity\n  2 stars" in capsys.readouterr().out
    )
    assert 'label = "stars"  # as given with --columns' in Path("asked.toml").read_text()
    assert "# ordered = true" in Path("asked.toml").read_text()
    assert "ordered" not in path.read_text()
    assert caplog.messages == []
    for columns, message in (
        ("label=star", "no such column; did you mean stars"),
        ("lable=stars", "mean label"),
        ("x", "ROLE=COLUMN"),
    ):
        with pytest.raises(UsageError, match=message):
            new_task("a.csv", out="b.toml", columns=columns)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def context(i):
    """A pair of texts with a word, in another form in the first, and its places."""
    word, pair = f"w{chr(97 + i % 26)}{chr(97 + i // 26)}nk", [f"one {i} of them", f"there is {i * 7}"]
    texts = [f"{pair[0]} {word}ed it", f"The {word} {pair[1]}"]
    return word, texts, [texts[0].index(word), texts[0].index(word) + len(word) + 2, 4, 4 + len(word)]


@pytest.mark.parametrize("offsets", [int, str, None])
def test_words_in_context(offsets):
    """Places as numbers or as texts, or the word alone, also in another form; rows without it are left out."""
    rows = []
    for i in range(200):
        word, texts, places = context(i)
        names = ("start1", "end1", "start2", "end2")
        at = {name: offsets(place) for name, place in zip(names, places, strict=True)} if offsets else {}
        rows.append({"lemma": word, "sentence1": texts[0], "sentence2": texts[1], "label": "TF"[i % 2], **at})
    if offsets is None:
        rows[3]["sentence1"] = "It is not there."
    lines("wic.jsonl", rows)
    path = new_task("wic.jsonl", dev=0, groups="none")
    task = load_task(path)
    assert (task.name, task.source) == ("own-wic", "wic.toml")  # not credited to the authors of the published set
    assert {e.answers[0].removesuffix("ed") == e.answers[1] for e in task.split("train")} == {True}
    assert len(task.split("train")) == 200 - (offsets is None)
    if offsets:
        rows[3] |= {"end1": offsets(int(rows[3]["end1"]) - 1), "start2": offsets(90), "end2": offsets(95)}
        lines("bad.jsonl", rows)
        with pytest.raises(
            DataError, match=r"(?s)bad\.jsonl.*line 4, column 'start1': .*ends inside 'wdanked'"
        ) as error:
            new_task("bad.jsonl", dev=0, groups="none")
        assert "line 4, column 'start2': [90, 95] is no part of the text, which has" in str(error.value)
        assert not Path("bad.toml").exists()


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("{}-{}", ("span1", "span2")),
        ("{}:{}", ("target_2", "target_1")),
        ("[{}, {}]", ("in the first", "in the other")),
    ],
)
def test_places_in_one_column(form, names):
    """Both ends in a cell; columns are told apart by their number, or by their order. Errors have lines of the data."""
    rows = []
    for i in range(60):
        word, texts, places = context(i)
        cells = {names[0]: form.format(*places[:2]), names[1]: form.format(*places[2:])}
        if names == ("target_2", "target_1"):
            cells = dict(zip(cells, reversed(cells.values()), strict=True))
        rows.append({"lemma": word, "sentence1": texts[0], "sentence2": texts[1], **cells, "label": "TF"[i % 2]})
    pd.DataFrame(rows).to_csv("mine.csv", index=False)
    task = load_task(new_task("mine.csv", dev=0.4, groups="none"))
    assert {e.answers[0].removesuffix("ed") == e.answers[1] for e in task.split("train")} == {True}
    rows[40][names[0]] = form.format(0, 5)
    rows[41][names[1]] = form.format(3, 999)
    pd.DataFrame(rows).to_csv("bad.csv", index=False)
    with pytest.raises(DataError, match=r"bad\.csv: 2 rows cannot be read") as error:
        new_task("bad.csv", dev=0.4, groups="none")
    assert f"line 42, column '{names[0]}': characters 0 to 5 are" in str(error.value)
    assert f"line 43, column '{names[1]}': [3, 999] is no part of the text" in str(error.value)
    assert not Path("bad.toml").exists()


def test_one_class_is_no_task():
    write("a.csv", ",", rows=[(text, "good", *more) for text, _, *more in reviews()])
    with pytest.raises(
        DataError, match=r"a\.csv, column 'liked': all 200 labels of train are 'good', and a task needs"
    ):
        new_task("a.csv", columns={"label": "liked"})
    assert load_task(new_task("a.csv", columns={"label": "none"})).label_names == ()


def named_entities():
    for i in range(200):
        begin = f"They say {i}"
        text = f"{begin} Ada Byron's map, no {i * i}."
        yield {
            "doc_id": f"d{i // 8}",
            "text": text,
            "entities": [{"start": len(begin) + 1, "end": len(begin) + 10, "label": "PER"}],
        }


def test_entities_by_characters_are_words_with_tags():
    rows = list(named_entities())
    lines("a.jsonl", rows)
    lines("b.jsonl", [{**r, "entities": [[str(e["start"]), e["end"], "PER"] for e in r["entities"]]} for r in rows])
    for name in ("a.jsonl", "b.jsonl"):
        task = load_task(new_task(name, dev=0.2))
        e = task.split("train")[0]
        assert (task.kind, e.words[3:7], [task.label_names[k] for k in e.label[3:7]]) == (
            "sequence-labelling", ("Ada", "Byron", "'", "s"), ["B-PER", "I-PER", "O", "O"]
        )  # fmt: skip
        assert [len({e.group for e in some}) for some in task.splits.values()] == [20, 5]
    for k, end, label in ((1, 3, "PER"), (2, -400, "PER"), (3, 0, None)):
        start = rows[k]["entities"][0]["start"]
        one = {"start": start, "end": start + end if end > 0 else 400, "label": label}
        rows[k]["entities"] = [one, [start, start + 9, "X"]]
    rows[4]["text"] = None
    lines("c.jsonl", rows)
    Path("c.toml").write_text('entities = "entities"\n[splits]\ntrain = "c.jsonl"\n')
    with pytest.raises(DataError) as error:
        load_task("c.toml")
    for part in (
        "line 2, column 'entities': two entities cover 'Ada'; keep one",
        "line 3, column 'entities': [11, 400] is no part",
        "line 4, column 'entities': expected a list of",
        "line 5, column 'text': expected a text, found None; remove the row",
    ):
        assert part in str(error.value)


def test_questions_and_conversations_in_several_layouts():
    asked = [
        {
            "id": f"q{i}",
            "question": f"Who is {i}?",
            "context": f"It is Ada {i // 2} now.",
            "answers": {"text": ["Ada"], "answer_start": [6]},
        }
        for i in range(80)
    ]
    lines("flat.jsonl", asked)
    task = load_task(new_task("flat.jsonl"))
    assert (task.kind, {e.answers for some in task.splits.values() for e in some}) == ("question-answering", {("Ada",)})
    assert not {e.pair for e in task.split("train")} & {e.pair for e in task.split("dev")}
    Path("flat.train.json").rename("squad.json")
    again = load_task(new_task("squad.json", dev=0))
    assert again.split("train").examples == task.split("train").examples
    says = [("human", "user", "How are you today?"), ("gpt", "assistant", "I am well.")]
    layouts = {
        "a.jsonl": [
            {"conversations": [{"from": a, "value": f"{text} {i}"} for a, _, text in says], "label": i % 2}
            for i in range(40)
        ],
        "b.jsonl": [[{"role": role, "content": f"{text} {i}"} for _, role, text in says] for i in range(40)],
        "c.jsonl": [{"dialogue": [f"{text} {i}" for *_, text in says], "label": i % 2} for i in range(40)],
    }
    for name, records in layouts.items():
        lines(name, records)
        e = load_task(new_task(name, dev=0)).split("train")[0]
        assert e.text.startswith("user: How are you today? 0\nassistant: I am well. 0")


def test_marks_of_documents_and_numbers_of_words_in_columns():
    Path("a.conll").write_text(
        "".join(
            f"# newdoc id = d{i // 5}\n" * (i % 5 == 0) + f"# text = a b\n1\ta{i}\tB-X\tme\n2\tb\tO\tme\n\n"
            for i in range(200)
        )
    )
    for dev in (0.1, 0):
        task = load_task(new_task("a.conll", dev=dev, out=f"{dev}.toml"))
        assert task.split("train")[0].words[1] == "b"
        assert (task.label_names, len({e.group for some in task.splits.values() for e in some})) == (("B-X", "O"), 40)
