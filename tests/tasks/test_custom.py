"""A user's own data: what the smallest file gives, and the sentence that each mistake gets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from probekit.errors import DataError, UsageError
from probekit.tasks import Task, load_task
from probekit.tasks.files.no_label import names_of_none
from probekit.tasks.task import TaskKind

SPLITS = '[splits]\ntrain = "train.tsv"\n'


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., Task]:
    """``own(toml, {"train.tsv": …})`` writes the files and loads the task."""

    def load(toml: str, files: dict[str, str | bytes] | None = None) -> Task:
        (tmp_path / "mine.toml").write_text(toml, encoding="utf-8")
        for name, content in (files or {}).items():
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_task(str(tmp_path / "mine.toml"))

    return load


def test_the_smallest_file(own: Callable) -> None:
    task = own(
        SPLITS + 'dev = "dev.tsv"\n',
        {"train.tsv": 'text\tlabel\n"Go\tyes\nStop\tno\nWhat\t\n', "dev.tsv": "text\tlabel\nGo on\tyes\n"},
    )
    assert (task.name, task.kind, task.label_names, task.metrics) == (
        "mine", TaskKind.CLASSIFICATION, ("no", "yes"), ("accuracy", "macro-f1")
    )  # fmt: skip
    assert [(e.id, e.text, e.label) for e in task.split("train")] == [
        ("train-0", '"Go', 1), ("train-1", "Stop", 0), ("train-2", "What", None)
    ]  # fmt: skip
    assert task.notes == (
        "Labels found: no, yes.", "train: 1 of 3 examples without a label (1 empty); they are left out."
    )  # fmt: skip


def test_pairs_with_everything_named(own: Callable) -> None:
    toml = (
        'name = "mine, too"\ntype = "classification"\ntext = "a"\npair = "b"\nlabel = "gold"\nid = "key"\n'
        'domain = "site"\nlabels = ["yes", "no"]\nmetrics = ["matthews"]\nlicence = "mine"\n[splits]\ntrain = "t.csv"\n'
    )
    task = own(toml, {"t.csv": 'key,site,a,b,gold\nk1,web,"x, ""y""",z,no\n'})
    (example,) = task.split("train").examples
    assert (example.id, example.text, example.pair, example.label, example.domain) == ("k1", 'x, "y"', "z", 1, "web")
    assert (task.name, task.label_names, task.metrics, task.licence) == (
        "mine, too", ("yes", "no"), ("matthews",), "mine"
    )  # fmt: skip


def test_scores_in_files_without_header(own: Callable) -> None:
    toml = 'type = "regression"\nheader = false\ntext = 1\npair = 2\nlabel = 3\n' + SPLITS
    task = own(toml, {"train.tsv": "a\tb\t1.5\nc\td\t-2\ne\tf\t\n"})
    assert task.labels("train")[:2].tolist() == [1.5, -2.0]
    assert task.split("train")[2].label is None
    assert (task.kind, task.metrics, task.label_names) == (TaskKind.REGRESSION, ("pearson", "spearman"), ())


def test_equal_cells_in_the_first_row_are_no_header(own: Callable) -> None:
    toml = 'header = false\ntext = 1\nlabel = 2\n[splits]\ntrain = "t.csv"\n'
    assert own(toml, {"t.csv": "same,same\nb,c\n"}).label_names == ("c", "same")


def test_repeated_sentence_ids_are_replaced(own: Callable) -> None:
    conllu = "# sent_id = s\n1\tGo\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"
    task = own('[splits]\ntrain = "t.conllu"\n', {"t.conllu": conllu * 2})
    assert [e.id for e in task.split("train")] == ["train-0", "train-1"]


def test_json_lines_and_integer_labels(own: Callable) -> None:
    rows = [{"text": "a", "label": 10}, {"text": "b", "label": 9.0}, {"text": "c", "label": None}, {"text": "d"}]
    task = own('[splits]\ntrain = "t.jsonl"\n', {"t.jsonl": "\n".join(map(json.dumps, rows))})
    assert task.label_names == ("9", "10")
    assert task.labels("train").tolist() == [1, 0, -1, -1]


def test_parquet(own: Callable, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "b"], "label": [True, None]}), tmp_path / "t.parquet")
    task = own('[splits]\ntrain = "t.parquet"\n')
    assert (task.label_names, task.labels("train").tolist()) == (("true",), [0, -1])


def test_token_labels_in_json_lines(own: Callable) -> None:
    rows = [{"w": ["New", "York"], "t": ["B-LOC", "I-LOC"]}, {"w": ["."], "t": ["O"]}, {"w": ["x"], "t": None}]
    toml = 'words = "w"\ntags = "t"\n[splits]\ntrain = "t.jsonl"\n'
    task = own(toml, {"t.jsonl": "\n".join(map(json.dumps, rows))})
    assert task.kind is TaskKind.SEQUENCE_LABELLING
    assert task.label_names == ("B-LOC", "I-LOC", "O")
    assert [(e.text, e.label) for e in task.split("train")] == [("New York", (0, 1)), (".", (2,)), ("x", None)]
    assert task.metrics == ("span-f1", "token-accuracy")
    rows[0]["t"] = ["B-LOC"]
    with pytest.raises(DataError, match=r"t.jsonl, line 1, column 't': found 1 tags for 2 words"):
        own(toml, {"t.jsonl": "\n".join(map(json.dumps, rows))})


def test_column_files(own: Callable) -> None:
    task = own('[splits]\ntrain = "t.conll"\n', {"t.conll": "in X O\nRome X B-LOC\n\n. X O\n"})
    assert [(e.words, e.label) for e in task.split("train")] == [(("in", "Rome"), (1, 0)), ((".",), (1,))]
    conllu = "# sent_id = s\n# text = Go!\n1\tGo\t_\tVERB\t_\t_\t0\troot\t_\t_\n2\t!\t_\t_\tX\t_\t1\tpunct\t_\t_\n"
    task = own('[splits]\ntrain = "t.conllu"\n', {"t.conllu": conllu})
    assert [(e.id, e.text, e.label) for e in task.split("train")] == [("s", "Go!", (0, -1))]
    assert task.metrics == ("token-accuracy",)
    deprel = own('tags = "DEPREL"\n[splits]\ntrain = "t.conllu"\n', {"t.conllu": conllu})
    assert deprel.label_names == ("punct", "root")


def test_a_hub_dataset(own: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    features = Features(sentence=Value("string"), label=ClassLabel(names=["neg", "pos"]))
    part = Dataset.from_dict({"sentence": ["a", "b"], "label": [1, -1]}, features=features)
    asked: list[Any] = []

    def load_dataset(*arguments: Any) -> DatasetDict:
        asked.append(arguments)
        return DatasetDict(train=part, validation=part)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = own('hub = "me/reviews"\ntext = "sentence"\n')
    assert list(task.splits) == ["train", "dev"]
    assert (task.label_names, task.labels("dev").tolist()) == (("neg", "pos"), [1, -1])
    assert list(
        own('hub = "me/reviews"\nconfig = "en"\ntext = "sentence"\n[splits]\neval = "validation"\n').splits
    ) == ["eval"]
    assert asked == [("me/reviews", None), ("me/reviews", "en")]
    with pytest.raises(DataError, match=r"me/reviews has no split 'test'; it has train, validation"):
        own('hub = "me/reviews"\ntext = "sentence"\n[splits]\ntest = "test"\n')


def test_hub_tags(own: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    features = Features(tokens=List(Value("string")), ner=List(ClassLabel(names=["O", "B-X"])))
    part = Dataset.from_dict({"tokens": [["a", "b"]], "ner": [[0, 1]]}, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: DatasetDict(train=part))
    task = own('hub = "me/ner"\nwords = "tokens"\ntags = "ner"\n')
    assert (task.label_names, task.split("train")[0].label) == (("O", "B-X"), (0, 1))


def test_splits_without_labels(own: Callable) -> None:
    files = {"train.tsv": "text\tlabel\na\tyes\n", "test.tsv": "text\nb\n"}
    task = own(SPLITS + 'test = "test.tsv"\n', files)
    assert task.labels("test").tolist() == [-1]
    assert task.notes[0] == "test has no labels."
    assert own("label = false\n" + SPLITS, files).labels("train").tolist() == [-1]


def test_files_elsewhere(own: Callable, tmp_path: Path) -> None:
    own(SPLITS, {"train.tsv": "text\tlabel\na\tyes\n"})
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "train.tsv").write_text("text\tlabel\nb\tno\n")
    assert load_task(str(tmp_path / "mine.toml"), tmp_path / "there").split("train")[0].text == "b"


def test_the_name_of_a_missing_toml_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing.toml: cannot be read: No such file"):
        load_task(str(tmp_path / "nothing.toml"))


GOOD = {"train.tsv": "text\tlabel\na\tyes\nb\tno\n"}


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("", r"mine.toml: lists no files; add \[splits\]"),
        ("text = a\n" + SPLITS, r"mine.toml, line 1, column 8: is not valid TOML"),
        ("name = \n" + SPLITS, r"mine.toml, line 1"),
        ('\nlable = "label"\n' + SPLITS, r"mine.toml, line 2: unknown key 'lable'; did you mean 'label'\?"),
        ("header = 1\n" + SPLITS, r"mine.toml, line 1: header is 1; it must be true or false"),
        ("text = 1.5\n" + SPLITS, r"line 1: text is 1.5; it must be the column's name"),
        ("labels = 'yes'\n" + SPLITS, r"""line 1: labels is 'yes'; it must be a list such as \["no", """),
        ('splits = "train.tsv"\n', r"line 1: splits is 'train.tsv'; it must be file names by split"),
        (
            SPLITS + 'label = "gold"\n',
            r"line 3: 'label' is below \[splits\], where every key names a split; move it above",
        ),
        (
            'type = "classify"\n' + SPLITS,
            r"line 1: unknown type 'classify'; expected one of classification, regression",
        ),
        ('format = "xlsx"\n' + SPLITS, r"line 1: unknown format 'xlsx'; expected one of tsv, csv"),
        ('metrics = ["mathews"]\n' + SPLITS, r"line 1: unknown metric 'mathews'; did you mean matthews"),
        ('metrics = ["pearson"]\n' + SPLITS, r"pearson cannot be used for classification; choose .*accuracy"),
        (
            'metrics = ["log-loss"]\n' + SPLITS,
            r"line 1: log-loss cannot be computed from labels and predictions; use one of accuracy",
        ),
        ('labels = ["yes", "yes"]\n' + SPLITS, r"line 1: labels lists a label twice"),
        (
            'labels = ["yes", "maybe"]\n' + SPLITS,
            r"train.tsv, line 3, column 'label': 'no' is not one of the labels 'yes', ",
        ),
        ('text = "txt"\n' + SPLITS, r"train.tsv, line 1: there is no column 'txt'; the header has 'text', 'label'"),
        ('label = "gold"\n' + SPLITS, r"mine.toml: no split has a column 'gold'"),
        ("text = 3\n" + SPLITS, r"train.tsv, line 1: text = 3, but the file has 2 columns"),
        ("header = false\n" + SPLITS, r"header = false, so columns are numbered: write text = 1"),
        ("header = false\ntext = 1\n" + SPLITS, r"header = false, so columns are numbered: write label = 2"),
        (
            'type = "regression"\n' + SPLITS,
            r"rows cannot be read.\n  line 2, column 'label': expected a number, found 'yes'",
        ),
        ('type = "sequence-labelling"\n' + SPLITS, r"mine.toml: type = \"sequence-labelling\" needs words and tags"),
        (
            'words = "text"\ntags = "label"\n' + SPLITS,
            r"words, tags, targets, messages and entities are lists; store them in JSON lines",
        ),
        ('[splits]\ntrain = "absent.tsv"\n', r"absent.tsv: does not exist, but is named in .*mine.toml"),
        ('[splits]\ntrain = "mine.toml"\n', r"unknown suffix '.toml'; set format = "),
        ('format = "parquet"\n' + SPLITS, r"train.tsv: cannot be read as Parquet"),
        ('format = "json-lines"\n' + SPLITS, r"train.tsv, line 1, column 1: is not JSON"),
        ('format = "conllu"\n' + SPLITS, r"train.tsv, line 1: found 2 columns, expected 10"),
        ('config = "x"\n' + SPLITS, r"line 1: config is for a hub dataset"),
    ],
)
def test_mistakes(own: Callable, toml: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        own(toml, GOOD)
    assert all(line.startswith("  line ") for line in str(caught.value).split("\n")[1:])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\tlabel\n", r"train.tsv: has no rows for the split 'train'"),
        ("text\tlabel\na\tyes\tmore\n", r"train.tsv, line 2: found 3 columns, expected 2 \(text, label\)"),
        ("text\tlabel\na\t0.5\nb\t1\n", r"labels such as 0.5 look like scores; write type = \"regression\""),
        (b"text\tlabel\nna\xefve\tyes\n", r"train.tsv, line 2: byte 0xef at offset 13 is not UTF-8"),
    ],
)
def test_bad_data(own: Callable, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        own(SPLITS, {"train.tsv": content})


def test_duplicate_ids_name_both_lines(own: Callable) -> None:
    with pytest.raises(DataError, match=r"line 4, column 'key': the id 'k' is already that of line 2"):
        own('id = "key"\n' + SPLITS, {"train.tsv": "key\ttext\tlabel\nk\ta\tx\nl\tb\tx\nk\tc\tx\n"})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": 1}, r"line 2: the object has no 'text' \(text\); it has 'label'"),
        ({"text": None, "label": 1}, r"line 2, column 'text': expected a text, found None"),
        ({"text": 7, "label": 1}, r"line 2, column 'text': expected a text, found 7"),
        ({"text": "b", "label": [1, 2]}, r"line 2, column 'label': expected one label, found '\[1, 2\]'"),
    ],
)
def test_bad_objects(own: Callable, row: dict, message: str) -> None:
    rows = [{"text": "a", "label": 1}, row]
    with pytest.raises(DataError, match=message):
        own('labels = [1]\n[splits]\ntrain = "t.jsonl"\n', {"t.jsonl": "\n".join(map(json.dumps, rows))})


def test_a_misspelt_field_leads_to_its_key(own: Callable) -> None:
    lines = '{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n'
    with pytest.raises(DataError, match=r"no 'txt' \(text\); it has 'text', 'label'\. Name the field in .*: text = …"):
        own('text = "txt"\n[splits]\ntrain = "t.jsonl"\n', {"t.jsonl": lines})
    with pytest.raises(UsageError, match=r"mine\.tml is not a task; the name of a task file ends in \.toml"):
        load_task("mine.tml")


def test_what_tables_write_for_no_number_is_no_class_among_numbers(own: Callable) -> None:
    cells = ["1", "0", "NaN", "nan", "NULL", "", "NA", "1"]
    lines = "text\tlabel\n" + "".join(f"t{i}\t{cell}\n" for i, cell in enumerate(cells))
    task = own(SPLITS, {"train.tsv": lines})
    assert task.label_names == ("0", "1")
    assert task.labels("train").tolist() == [1, 0, -1, -1, -1, -1, -1, 1]
    assert task.notes[-1] == (
        "train: 5 of 8 examples without a label (1 'NaN', 1 'nan', 1 'NULL', 1 empty, 1 'NA'); they are left out."
    )
    kept = own('labels = [1, 0, "NULL"]\n' + SPLITS, {"train.tsv": lines})  # the task file says it is one
    assert kept.labels("train").tolist() == [0, 1, -1, -1, 2, -1, -1, 0]
    lost = own('type = "regression"\n' + SPLITS, {"train.tsv": "text\tlabel\na\t1.5\nb\tnan\n"})
    assert lost.labels("train").tolist()[0] == 1.5
    assert "1 'nan'" in lost.notes[-1]


def test_a_class_that_is_a_text_and_a_number_is_told(own: Callable) -> None:
    rows = [{"text": f"t{i}", "label": label} for i, label in enumerate([1, "1", 0, "no", True, "true"])]
    task = own('[splits]\ntrain = "t.jsonl"\n', {"t.jsonl": "\n".join(map(json.dumps, rows))})
    assert set(task.label_names) == {"0", "1", "no", "true"}
    told = [note for note in task.notes if "both are one class" in note]
    assert [note.partition("'")[2].partition("'")[0] for note in told] == ["1", "true"]


WORDS = ["null", "nan", "<NA>", "#N/A", "NA", "None", "n/a", "word"]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.parquet"])
def test_classes_named_like_missing_values_keep_their_examples(own: Callable, tmp_path: Path, name: str) -> None:
    rows = pd.DataFrame({"text": [f"t{i}" for i in range(16)], "label": WORDS * 2})
    written = {
        "t.csv": lambda to: rows.to_csv(to, index=False),
        "t.tsv": lambda to: rows.to_csv(to, sep="\t", index=False),
        "t.jsonl": lambda to: rows.to_json(to, orient="records", lines=True),
        "t.parquet": rows.to_parquet,
    }
    written[name](tmp_path / name)
    task = own(f'[splits]\ntrain = "{name}"\n')
    assert [task.label_names[e.label] for e in task.split("train")] == WORDS * 2
    told = "'null' (2) is a class like the others. If it means that there is no label, leave such cells empty"
    assert any(told in note for note in task.notes)


@pytest.mark.parametrize(
    ("splits", "listed", "none"),
    [
        (({"0": 9, "1": 8}, {"-1": 5}), None, {"-1"}),  # the hub's test sets
        (({"pos": 9, "neg": 8}, {"-1": 5}), None, {"-1"}),
        (({"pos": 9, "neg": 8}, {"nan": 5}), None, {"nan"}),
        (({"0": 9, "1": 8, "2": 7, "-1": 1},), None, {"-1"}),  # SNLI
        (({"0": 9, "1": 8, "2": 7, "-1": 6}, {"0": 3, "1": 3, "2": 2, "-1": 3}), None, set()),  # four classes
        (({"0": 9, "1": 8, "2": 7, "-1": 90},), None, {"-1"}),  # most are unlabelled
        (({"0": 99, "1": 98, "2": 97, "-1": 9, "-100": 1},), None, {"-1", "-100"}),
        (({"0": 9, "1": 8, "-1": 7},), None, set()),  # three sentiments
        (({"0": 9, "1": 8, "-1": 7},), ["0", "1"], {"-1"}),
        (({"-1": 9, "1": 8},), None, set()),
        (({"0": 9, "1": 8, "-100": 7},), None, {"-100"}),
        (({"pos": 9, "null": 8}, {"null": 5}), None, set()),
        (({"nan": 9},), None, {"nan"}),
        (({"-1": 9},), None, set()),
    ],
)
def test_labels_that_may_mean_none(splits: tuple[dict[str, int], ...], listed: list[str] | None, none: set) -> None:
    assert names_of_none(map(Counter, splits), listed, scores=False) == none


def test_minus_one_is_a_score_but_not_if_it_is_all_that_a_split_has() -> None:
    assert names_of_none([Counter({"-1": 3, "0": 2, "1": 1, "2": 1})], None, scores=True) == set()
    assert names_of_none([Counter({"0.5": 3, "2": 2}), Counter({"-1": 9})], None, scores=True) == {"-1"}


def test_a_key_that_occurs_twice_and_labels_of_bytes_are_refused(own: Callable, tmp_path: Path) -> None:
    toml = '[splits]\ntrain = "t.jsonl"\n'
    with pytest.raises(DataError, match="t.jsonl, line 1: cannot be read as JSON: the key 'label' occurs twice"):
        own(toml, {"t.jsonl": '{"text": "a", "label": "x", "label": "y"}\n'})
    pq.write_table(pa.table({"text": ["a", "b"], "label": [b"x", b"y"]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="2 rows cannot be read.\n  line 1, column 'label': expected one label"):
        own('labels = ["x", "y"]\n[splits]\ntrain = "t.parquet"\n')


def test_tags_that_differ_by_case_are_told(own: Callable) -> None:
    task = own('[splits]\ntrain = "t.conll"\n', {"t.conll": "Ann B-PER\n\nBob B-Per\n\nsings O\n"})
    assert "The tags 'B-PER', 'B-Per' are different classes; if they are one, spell them alike." in task.notes


def test_tags_that_are_to_be_ignored_are_counted(own: Callable) -> None:
    rows = [{"words": ["a", "b"], "tags": [0, -100]}, {"words": ["c"], "tags": [1]}]
    task = own('words = "words"\ntags = "tags"\n[splits]\ntrain = "t.jsonl"\n',
               {"t.jsonl": "\n".join(map(json.dumps, rows))})  # fmt: skip
    assert task.label_names == ("0", "1")
    assert task.labels("train").tolist() == [0, -1, 1]
    assert "train: 1 of 3 words without a tag (1 -100); they are left out." in task.notes


def test_one_number_written_in_two_ways_is_a_question(own: Callable) -> None:
    lines = "text\tlabel\na\t0\nb\t1\nc\t1.0\n"
    with pytest.raises(
        DataError, match=r"line 4.*found the label '1\.0', but '1' in line 3 of .*If they are the same class"
    ):
        own(SPLITS, {"train.tsv": lines})
    listed = own('labels = ["0", "1", "1.0"]\n' + SPLITS, {"train.tsv": lines})  # the answer
    assert listed.labels("train").tolist() == [0, 1, 2]
    assert own(SPLITS, {"train.tsv": "text\tlabel\na\t1.0\nb\t2.0\n"}).label_names == ("1.0", "2.0")


@pytest.mark.parametrize("other", ["Yes", "yes ", " YES"])
def test_labels_that_differ_by_case_or_blanks_are_a_question(own: Callable, other: str) -> None:
    lines = f"text\tlabel\na\tno\nb\tyes\nc\t{other}\n"
    with pytest.raises(DataError, match=rf"train.tsv, line 4, column 'label': found the label '{other}', but 'yes'"):
        own(SPLITS, {"train.tsv": lines})
    assert len(own(f'labels = ["no", "yes", "{other}"]\n' + SPLITS, {"train.tsv": lines}).label_names) == 3


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [("caf\xe9", "cafe\u0301", r"'cafe\\u0301', but 'caf\\xe9'"), ("yes", "\uff39es", "'\uff39es', but 'yes'")],
    ids=["composed", "full-width"],
)
def test_labels_that_differ_in_their_unicode_form_are_a_question(
    own: Callable, one: str, other: str, told: str
) -> None:
    lines = f"text\tlabel\na\tno\nb\t{one}\nc\t{other}\n"
    with pytest.raises(DataError, match=told):
        own(SPLITS, {"train.tsv": lines})
    assert len(own(f'labels = ["no", "{one}", "{other}"]\n' + SPLITS, {"train.tsv": lines}).label_names) == 3


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_number_beyond_all_is_refused_where_it_stands(own: Callable, kind: str) -> None:
    told = f'type = "{kind}"\n'
    with pytest.raises(DataError, match=r"train.tsv, line 3, column 'label': .*'1e400'"):
        own(told + SPLITS, {"train.tsv": "text\tlabel\na\t1\nb\t1e400\n"})
    lines = '{"text": "a", "label": 1}\n{"text": "b", "label": 1e400}\n'
    with pytest.raises(DataError, match=r"train.jsonl, line 2, column 'label': .*inf"):
        own(told + '[splits]\ntrain = "train.jsonl"\n', {"train.jsonl": lines})


def test_io_tags_are_spans(own: Callable) -> None:
    words = "Ann I-PER\nLee I-PER\nleft O\n\nRome I-LOC\n"
    task = own('[splits]\ntrain = "t.conll"\n', {"t.conll": words})
    assert task.metrics == ("span-f1", "token-accuracy")
    assert any(note.startswith("The tags are IO") for note in task.notes)
    plain = own('[splits]\ntrain = "t.conll"\n', {"t.conll": "Ann PER\nleft O\n"})  # the control
    assert plain.metrics == ("token-accuracy",)


def test_docstart_lines_begin_documents(own: Callable) -> None:
    text = "-DOCSTART- -X- O\n\nAnn I-PER\n\nRome I-LOC\n\n-DOCSTART- -X- O\nLee I-PER\nleft O\n"
    task = own('[splits]\ntrain = "t.conll"\n', {"t.conll": text.replace(" -X-", "")})
    assert [(e.words, e.group) for e in task.split("train")] == [
        (("Ann",), "t.conll 1"), (("Rome",), "t.conll 1"), (("Lee", "left"), "t.conll 2")
    ]  # fmt: skip
    assert (
        "train: 2 documents are marked; each is held out and resampled as a whole. "
        "The -DOCSTART- lines are not examples." in task.notes
    )


def test_declared_groups(own: Callable) -> None:
    lines = "text\tlabel\tpremise\na\tyes\tp1\nb\tno\tp1\nc\tyes\t\n"
    task = own('groups = "premise"\n' + SPLITS, {"train.tsv": lines})
    assert [e.group for e in task.split("train")] == ["p1", "p1", None]
    with pytest.raises(DataError, match="there is no column 'premise'"):
        own('groups = "premise"\n' + SPLITS, {"train.tsv": "text\tlabel\na\tyes\n"})


def test_all_bad_rows_are_told_at_once(tmp_path):
    lines = ["text\tlabel\tid"] + [f"text {i}\t{'x' if i % 9 == 4 else i / 7:}\t{max(i, 2)}" for i in range(30)]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "t.toml").write_text('type = "regression"\nid = "id"\n[splits]\ntrain = "train.tsv"\n')
    with pytest.raises(DataError) as caught:
        load_task(tmp_path / "t.toml")
    told = str(caught.value).split("\n")
    assert told[0] == f"{tmp_path / 'train.tsv'}: 5 rows cannot be read."
    assert told[1] == "  line 3, column 'id': the id '2' is already that of line 2; ids must be unique."
    assert [line.partition(",")[0] for line in told[1:]] == [f"  line {n}" for n in (3, 4, 6, 15, 24)]


def test_all_rows_of_another_width_are_told_at_once(tmp_path):
    lines = ["text\tlabel"] + [f"text {i}" if i % 10 == 5 else f"text {i}\tyes" for i in range(300)]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "t.toml").write_text('[splits]\ntrain = "train.tsv"\n')
    told = r"30 of 300 rows have the wrong number of columns: line 7 has 1, line 17 has 1.*and 10 more rows"
    with pytest.raises(DataError, match=told):
        load_task(tmp_path / "t.toml")


def test_spans_that_labels_are_about(tmp_path):
    lines = ['{"text": "a cat sees a dog", "label": "x", "s": "cat"}', '{"text": "a dog", "label": "y", "s": [2, 5]}']
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, '{"text": "no", "label": "x", "s": null}']))
    (tmp_path / "mine.toml").write_text('span = "s"\n[splits]\ntrain = "a.jsonl"\n')
    train = load_task(str(tmp_path / "mine.toml")).split("train")
    assert [e.answers for e in train] == [("cat",), ("dog",), ()]
    (tmp_path / "b.tsv").write_text("text\tlabel\ts\na cat a cat\tx\tcat\na dog\ty\t\n")
    (tmp_path / "other.toml").write_text('span = "s"\n[splits]\ntrain = "b.tsv"\n')
    with pytest.raises(DataError, match=r"b.tsv, line 2, column 's': 'cat' occurs 2 times in the text; expected once"):
        load_task(str(tmp_path / "other.toml"))
    (tmp_path / "a.jsonl").write_text('{"text": "a dog", "label": "y", "s": [2, 6]}')
    with pytest.raises(DataError, match=r"\[2, 6\] is no part of the text, which has 5 characters"):
        load_task(str(tmp_path / "mine.toml"))
