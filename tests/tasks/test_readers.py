"""Files as they are found in the wild, and as they must not be."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from probekit.errors import DataError
from probekit.files import read_lines
from probekit.tasks.files.custom import custom_task
from probekit.tasks.files.raw import read_any
from probekit.tasks.files.readers import is_quoted, read_conll, read_conllu, read_csv, read_json_lines, read_tsv


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data.tsv"


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb", ["a", "b"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        ("a\u2028b\x85c\x0bd\x1ce\rf\n".encode(), ["a\u2028b\x85c\x0bd\x1ce\rf"]),
        (b"x" * 5_000_000, ["x" * 5_000_000]),
    ],
)
def test_lines_end_at_newlines_alone(file: Path, content: bytes, lines: list[str]) -> None:
    assert read_lines(write(file, content)) == lines


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_what_is_not_utf8_is_named_by_line_and_byte(file: Path, mark: bytes) -> None:
    write(file, mark + b"fine\nna\xefve\n")
    with pytest.raises(DataError, match=rf"line 2: byte 0xef at offset {7 + len(mark)} is not UTF-8"):
        read_lines(file)
    assert read_lines(file, fallback="latin-1")[1] == "naïve"


@pytest.mark.parametrize("content", [b"a\nb\0c\n", "text\n".encode("utf-16-be")])
def test_nul_characters(file: Path, content: bytes) -> None:
    with pytest.raises(DataError, match=r"line \d+: contains a NUL character"):
        read_lines(write(file, content))


def test_a_missing_file(file: Path) -> None:
    with pytest.raises(DataError, match=r"data.tsv: cannot be read: No such file"):
        read_lines(file)


def test_tsv_knows_no_quotes(file: Path) -> None:
    table = read_tsv(write(file, 'label\ttext\n1\t"open\n0\tnever" closed\n1\t"both"\n'))
    assert table.column("text") == ['"open', 'never" closed', '"both"']
    assert list(table.lines) == [2, 3, 4]


def test_tsv_keeps_blanks_empty_cells_and_control_characters(file: Path) -> None:
    table = read_tsv(write(file, "a\t\t \n \x08\tb\t\n\n\n"), ("x", "y", "z"))
    assert table.rows == [["a", "", " "], [" \x08", "b", ""]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\n1\t2\n3\n", r"line 3: found 1 column, expected 2 \(a, b\)"),
        ("a\tb\n1\t2\t3\n", r"line 2: found 3 columns, expected 2"),
        ("a\tb\n1\t2\n\n3\t4\n", r"line 3: found 1 column, expected 2"),
        ("a\tc\n1\t2\n", r"line 1: there is no column 'b'; the header has 'a', 'c'"),
        ("a\tb\tb\n1\t2\t3\n", r"line 1: the header names 'b' more than once"),
        ("", r"is empty; expected a header line"),
    ],
)
def test_tsv_that_is_not_as_it_should_be(file: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_tsv(write(file, content), required=("b",))


def test_ragged_tsv(file: Path) -> None:
    write(file, "1\t2\t3\tmore\n4\t5\n6\n")
    with pytest.raises(DataError, match=r"line 3: found 1 column, expected at least 2"):
        read_tsv(file, ("a", "b", "c"), required=("b",), ragged=True)
    write(file, "1\t2\t3\tmore\n4\t5\n")
    table = read_tsv(file, ("a", "b", "c"), required=("b",), ragged=True)
    assert (table.column("b"), table.column("c")) == (["2", "5"], ["3", ""])


def test_short_rows_are_counted_when_allowed(file: Path) -> None:
    table = read_tsv(write(file, "a\tb\n1\t2\nshort\n3\t4\n"), drop_short=True)
    assert (table.rows, list(table.lines), table.short) == ([["1", "2"], ["3", "4"]], [2, 4], 1)


def test_csv_is_quoted(file: Path) -> None:
    table = read_csv(write(file, 'text,label\r\n"a, ""b""\nc",1\r\nd,0'))
    assert table.rows == [['a, "b"\nc', "1"], ["d", "0"]]
    assert list(table.lines) == [2, 4]
    assert read_csv(write(file, "text\n" + "x" * 200_000)).rows == [["x" * 200_000]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('a,b\n1,2\n3,"open\n4,5\n', r"line 3: is not valid CSV, probably because of a quotation mark"),
        ("a,b\n1\n", r"line 2: found 1 column, expected 2"),
        ("a,b\r1,x\r2,y\r", r"data\.tsv: lines end with carriage returns"),
    ],
)
def test_csv_that_is_not(file: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_csv(write(file, content))


def test_a_carriage_return_within_a_line_is_a_character(file: Path) -> None:
    assert read_csv(write(file, 'a,b\n1,x\ry\n2,"u\rv"\n')).column("b") == ["x\ry", "u\rv"]
    lines = ["text\tlabel\n", "lone\rcr\ta\n", '"say ""x"""\tb\n']
    assert is_quoted(lines)


def test_single_marks_that_look_like_a_pair_are_ordinary() -> None:
    assert not is_quoted(["text\tlabel\r\n", '"\t1\r\n', "x\t0\r\n", '"\t1\r\n'])
    assert is_quoted(["text\tlabel\n", '"two\n', 'lines"\t1\n'])


def test_line_ends_in_cells_stay_as_they_are(file: Path) -> None:
    table = read_csv(write(file, 'a,b\r\n"x\r\ny",1\r\n"u\nv",2\r\n'))
    assert table.column("a") == ["x\r\ny", "u\nv"]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC, csv.QUOTE_ALL])
@pytest.mark.parametrize("texts", [['say "yes"', '"Never" again', "plain"], ["two\tcolumns", "two\nlines", ""]])
def test_a_quoted_tsv_is_read_as_it_was_written(tmp_path: Path, texts: list[str], quoting: int) -> None:
    rows = pd.DataFrame({"text": texts * 7, "label": ["pos", "neg", "pos"] * 7, "score": [1.5, -2, 3e9] * 7})
    rows.to_csv(tmp_path / "a.tsv", sep="\t", index=False, quoting=quoting)
    (tmp_path / "t.toml").write_text('domain = "score"\n[splits]\ntrain = "a.tsv"\n')
    task = custom_task(tmp_path / "t.toml")
    assert [e.text for e in task.split("train")] == texts * 7
    assert any("cells are in quotation marks" in note for note in task.notes)
    assert read_any(tmp_path / "a.tsv").columns["text"] == texts * 7


@pytest.mark.parametrize(
    "body", ['"open\t1\n', 'never" closed\t1\n', '"both"\t1\nplain\t0\n', 'a "word" here\t1\n', '""twice""\t1\n']
)
def test_marks_that_no_program_writes_so_are_ordinary(tmp_path: Path, body: str) -> None:
    write(tmp_path / "a.tsv", "text\tlabel\n" + body)
    write(tmp_path / "t.toml", '[splits]\ntrain = "a.tsv"\n')
    given = [line.split("\t")[0] for line in body.splitlines()]
    assert [e.text for e in custom_task(tmp_path / "t.toml").split("train")] == given


def test_a_tab_in_half_quoted_cells_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", 'text\tlabel\n"a\tb"\t1\n"odd\t0\n')
    write(tmp_path / "t.toml", '[splits]\ntrain = "a.tsv"\n')
    with pytest.raises(DataError, match="line 2: found 3 columns.*A quotation mark is an ordinary character here"):
        custom_task(tmp_path / "t.toml")


def test_json_lines(file: Path) -> None:
    write(file, '{"a": "\\u00e9\u2028"}\n\n{"a": 2}')
    assert list(read_json_lines(file)) == [(1, {"a": "é\u2028"}), (3, {"a": 2})]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\n{"a" 2}\n', r"line 2, column 6: is not JSON: Expecting ':' delimiter"),
        ("[1]\n", r"line 1: expected a JSON object, found a list"),
        ('{"a": "\\ud800"}\n', r"line 1: contains half of a surrogate pair"),
        ('{"a": ' + "[" * 200_000, r"line 1"),
        ('{"a": ' + "1" * 5000 + "}", r"line 1: cannot be read as JSON"),
    ],
)
def test_json_lines_that_are_not(file: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_json_lines(write(file, content)))


def test_conll_sentences_end_at_blank_lines_of_any_kind(file: Path) -> None:
    write(file, "#tag\tO\nin\tO\n\t\nBerlin\tB-location\n\n\n \t \nNew\u00a0York\tB-location")
    words = [s.column(0) for s in read_conll(file)]
    assert words == [("#tag", "in"), ("Berlin",), ("New\u00a0York",)]
    assert [s.line for s in read_conll(file)] == [1, 4, 8]


def test_conll_separated_by_blanks(file: Path) -> None:
    write(file, "-DOCSTART- -X- O O\r\n\r\nU.N. NNP I-NP I-ORG \r\n")
    (sentence,) = read_conll(file, columns=4)
    assert sentence.rows == (("U.N.", "NNP", "I-NP", "I-ORG"),)
    assert sentence.document == "data.tsv 1"


def test_conll_rows_without_tag(file: Path) -> None:
    with pytest.raises(DataError, match=r"line 2: found 'b', expected at least 2 columns, the first of them a word"):
        list(read_conll(write(file, "a\tO\nb\n")))


CONLLU = """# sent_id = s1
# text = Don't go
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\t_\t_\t0\troot\t_\t_
2\tn't\tnot\tPART\t_\t_\t1\tadvmod\t_\t_
2.1\tplease\t_\tINTJ\t_\t_\t_\t_\t_\t_
3\tgo\tgo\tVERB\t_\t_\t1\tccomp\t_\t_
"""


def test_conllu_words(file: Path) -> None:
    (sentence,) = read_conllu(write(file, CONLLU))
    assert sentence.column(1) == ("Do", "n't", "go")
    assert sentence.comments == {"sent_id": "s1", "text": "Don't go"}
    assert (sentence.multiword, sentence.empty) == (1, 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("3\tgo", "4\tgo", r"line 7, column 'ID': expected the word with ID 3, found '4'"),
        ("\tccomp", "", r"line 7: found 9 columns, expected 10 \(ID, FORM"),
    ],
)
def test_conllu_that_is_not(file: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_conllu(write(file, CONLLU.replace(old, new))))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.xlsx", b"PK\x03\x04rest", "is a spreadsheet. Save the sheet as CSV"),
        ("a.csv.gz", b"\x1f\x8b\x08rest", r"is compressed with gzip. Unpack it \(gunzip a.csv.gz\)"),
        ("a.csv", "text,label\nyes,1\n".encode("utf-16"), "is UTF-16. Save it as UTF-8"),
        ("a.csv", b"PAR1rest", "is a Parquet file"),
        (
            "a.csv",
            b"text;label\ngood, but \xc3\xa4;1\n",
            "semicolons, not by commas. .*probekit tasks new .*a.csv --out NEW.toml",
        ),
        ("a.csv", b'text;label\n"good";1\n', "line 1: the columns seem to be separated by semicolons, not by commas"),
        ("a.csv", b"a good film,1\na bad film,0\n", "If the file has no header, write header = false in .*mine.toml"),
        ("a.csv", b"review,stars\ngood,1\nbad,2\n", r"Name the column in .*mine.toml: text = …"),
    ],
)
def test_a_file_of_another_kind_says_what_to_do(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    task = tmp_path / "mine.toml"
    task.write_text(f'[splits]\ntrain = "{name}"\n')
    with pytest.raises(DataError, match=told):
        custom_task(task)
