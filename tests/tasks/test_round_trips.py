"""Texts and labels that pandas, csv, json and pyarrow write: what was written is read, or an error says why not."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probekit import load_task, new_task
from probekit.errors import DataError

TEXTS = st.sampled_from([
    *("plain text", 'He said "yes" twice', '"Never" again', '"quoted"', "a\ttab", "two\nlines", "cr\r\nlf", "lone\rcr"),
    *(" lead", "trail ", "comma, and; semi|bar", "it's", "null", "nan", "NA", "", " ", "#hash", "=1+1", "caf\u00e9"),
    *("cafe\u0301", "\u65e5\u672c", "\U0001f600", "\u200b", "a\u2028b", "a\x0bb", "\x07bell", "1", "01", "1e5", "True"),
    *('"', "\ufeffbom", "back\\slash", "\\n", "x" * 300, '""', "''", 'a "b', 'a" b', "-DOCSTART-"),
])  # fmt: skip
LABELS = st.sampled_from([
    *(["pos", "neg"], ["null", "pos"], ["nan", "NA", "<NA>"], ["0", "1"], ["01", "02"], ["1e5", "2e5"]),
    *(["True", "False"], ["pos ", "neg"], [" a", "b"], ["Yes", "yes"], ["\u00e9", "e\u0301"], ["-1", "0", "1"]),
    *(["#N/A", "x"], ["None", "some"], ["a,b", "c"], ['"q"', "r"], ['say "x"', "r"], ["a\tb", "c"], ["1.0", "2.0"]),
    *(["1", "1.0"], ["inf", "x"], ["1_000", "2"], ["\u65e5", "\u672c"], ["x\ny", "z"], ["N/A", "x", "y"]),
])  # fmt: skip

ALIKE = (["Yes", "yes"], ["\u00e9", "e\u0301"], ["1", "1.0"])
"""Labels that differ by case, form or spelling of a number; new_task takes the first two for one class, and says so."""


def delimited(quoting: int, end: str, encoding: str) -> Callable[[pd.DataFrame, Path], None]:
    def write(rows: pd.DataFrame, path: Path) -> None:
        sep = "\t" if path.suffix == ".tsv" else ","
        rows.to_csv(path, sep=sep, index=False, quoting=quoting, lineterminator=end, encoding=encoding)

    return write


def plain(rows: pd.DataFrame, path: Path) -> None:
    """Without quoting, as most published files are."""
    if any(c in cell for column in rows for cell in rows[column] for c in "\t\n\r"):
        raise ValueError
    lines = ["\t".join(cells) for cells in [tuple(rows), *rows.itertuples(index=False)]]
    path.write_bytes("\n".join([*lines, ""]).encode())


def json_lines(ascii_only: bool, end: str) -> Callable[[pd.DataFrame, Path], None]:
    def write(rows: pd.DataFrame, path: Path) -> None:
        lines = [json.dumps(row, ensure_ascii=ascii_only) for row in rows.to_dict("records")]
        path.write_bytes(end.join([*lines, ""]).encode())

    return write


def parquet(kind: pa.DataType) -> Callable[[pd.DataFrame, Path], None]:
    def write(rows: pd.DataFrame, path: Path) -> None:
        table = {name: pa.array(list(rows[name]), pa.string()).cast(kind) for name in rows}
        pq.write_table(pa.table(table), path)

    return write


QUOTING = (csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)
WRITERS = [
    *((delimited(q, "\n", "utf-8"), suffix) for q in QUOTING for suffix in (".csv", ".tsv")),
    *((delimited(q, "\r\n", "utf-8-sig"), suffix) for q in QUOTING for suffix in (".csv", ".tsv")),
    (plain, ".tsv"),
    *((json_lines(ascii_only, end), ".jsonl") for ascii_only in (True, False) for end in ("\n", "\r\n")),
    *((parquet(kind), ".parquet") for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()))),
]


@pytest.mark.parametrize("reader", ["load_task", "new_task"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(how=st.sampled_from(WRITERS), texts=st.lists(TEXTS, min_size=3, max_size=10), names=LABELS)
def test_what_is_written_is_read(reader, how, texts, names, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (write, suffix), texts = how, ["plain text", *texts]  # new_task looks for one
    labels = [names[i % len(names)] for i in range(len(texts))]
    try:
        write(pd.DataFrame({"text": texts, "label": labels}), folder / f"a{suffix}")
    except ValueError:
        return
    toml = folder / "a.toml"

    def read_back():
        if reader == "new_task":
            new_task(folder / f"a{suffix}", out=toml, dev=0)
        else:
            toml.write_text(f'[splits]\ntrain = "a{suffix}"\n')
        return load_task(str(toml))

    if reader == "new_task" and names in ALIKE[:2]:
        task = read_back()
        assert len(task.label_names) == 1
        assert f"The label {task.label_names[0]!r} is also spelled" in toml.read_text()
        return
    if set(labels) >= set(names) and names in ALIKE:
        with pytest.raises(DataError, match="found the label .* If they are the same class, spell them alike"):
            read_back()
        return
    task = read_back()
    examples = task.split("train").examples
    assert [e.text for e in examples] == texts
    read = [None if e.label is None else task.label_names[e.label] for e in examples]
    if None in read:
        assert {label for label, name in zip(labels, read, strict=True) if name is None} <= {
            "nan",
            "NA",
            "<NA>",
            "null",
        }
        assert any("examples without a label" in note for note in task.notes)
    else:
        assert read == labels
