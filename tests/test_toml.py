"""What people write in TOML: read with the place of what is wrong, whatever the file is for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from probekit.errors import DataError, UsageError, did_you_mean
from probekit.toml import parse_toml, read_named, read_toml, what_is_wrong


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


class Part(BaseModel):
    """A section of the file."""

    model_config = ConfigDict(extra="forbid")

    tasks: list[str] = Field(min_length=1)
    kind: Literal["layers", "bars"] = "layers"
    fine_tune: bool = Field(False, alias="fine-tune")

    @field_validator("tasks")
    @classmethod
    def lower(cls, tasks: list[str]) -> list[str]:
        if any(task != task.lower() for task in tasks):
            raise ValueError("names of tasks are written small")
        return tasks


class Whole(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str
    header: bool = True
    count: int = Field(1, ge=1)
    part: list[Part] = []
    one: Part | None = None


def wrong(text: str, **wanted: str) -> str:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(parse_toml(text, "x.toml"))
    return what_is_wrong(caught.value, Whole, wanted)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("count = 1", "lacks title; add title = …."),
        ("title = 'x'\ncount = 0", "count is 0; it must be greater than or equal to 1."),
        ("title = 'x'\nheader = 'yes'", "header is 'yes'; it must be true or false."),
        ("title = 'x'\ntitel = 'y'", "unknown key 'titel'; did you mean 'title'?"),
        ("title = 'x'\nqqq = 'y'", "unknown key 'qqq'; there are title, header, count, part, one."),
        ("title = 'x'\n[[part]]\ntask = ['a']", "lacks part.0.tasks; add tasks = …."),
        ("title = 'x'\n[[part]]\ntasks = ['a']\ntask = 1", "unknown key 'part.0.task'; did you mean 'tasks'?"),
        ("title = 'x'\n[one]\ntasks = ['a']\nfine-tun = 1", "unknown key 'one.fine-tun'; did you mean 'fine-tune'?"),
        ("title = 'x'\n[one]\ntasks = ['A']", "one.tasks is ['A']; names of tasks are written small."),
        ("title = 'x'\n[one]\ntasks = ['a']\nkind = 'bar'", "one.kind is 'bar'; did you mean 'bars'?"),
        ("title = 'x'\n[one]\ntasks = ['a']\nkind = 'xy'", "one.kind is 'xy'; there are layers, bars."),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_place(text, told):
    assert wrong(text, header="true or false") == told


def test_a_file_names_line_and_column(tmp_path):
    path = write(tmp_path / "x.toml", "\ufefftitle = 'x'\r\n[[part]]\r\ntasks = ['a']\r\n")
    values, text = read_toml(path)
    assert values == {"title": "x", "part": [{"tasks": ["a"]}]}
    assert text.count("\n") == 2
    with pytest.raises(
        DataError, match=r"x.toml, line 2, column 9: is not valid TOML: .* Strings need quotation marks"
    ):
        read_toml(write(path, "a = 1\ntitle = x\n"))
    with pytest.raises(DataError, match="x.toml, line 1: byte 0xff at offset 5 is not UTF-8"):
        read_toml(write(path, b"a = '\xff'"))
    with pytest.raises(DataError, match="cannot be read"):
        read_toml(tmp_path / "none.toml")


def test_files_that_come_along_are_read_by_name(tmp_path):
    shipped = {"small": "a = 1", "large": "a = 2"}
    assert read_named("large", shipped, "study")[0] == {"a": 2}
    path = write(tmp_path / "small.toml", "a = 3")
    assert read_named(path, shipped, "study") == ({"a": 3}, path)
    with pytest.raises(UsageError, match="no study 'smal'; did you mean small.* must end in .toml"):
        read_named("smal", shipped, "study")


def test_did_you_mean():
    known = ["accuracy", "f1", "macro-f1"]
    assert did_you_mean("f", known, most=2) == "did you mean f1?"
    assert did_you_mean("macro-f", iter(known), most=3, show=repr) == "did you mean 'macro-f1'?"
    assert did_you_mean("zzz", known) == "there are accuracy, f1, macro-f1."


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a = 1\nb = "data\\train.csv"', 2),
        ('b = ["C:\\new\\rows"]', 1),
        ('b = "C:\\Users\\x\\train.csv"', 1),
        ('b = "data\\dev.csv"', 1),
        ('[c]\nb = {d = "x\\beta\\files.tsv"}', 2),
    ],
)
def test_backslashes_of_windows_are_named_as_the_reason(text, line):
    with pytest.raises(
        DataError, match=rf"^x\.toml, line {line}.*A backslash in double.*single quotation.*forward slashes"
    ):
        parse_toml(text, "x.toml")


@pytest.mark.parametrize(
    "text",
    [
        "'C:\\new\\a.csv'",
        '"C:/new/a.csv"',
        '"C:\\\\new\\\\a.csv"',
        '"Q: {q}\\nA: yes."',
        '"a\\tb"',
        '"""\nline\nb.csv"""',
    ],
)
def test_other_backslashes_are_no_reason(text):
    assert parse_toml(f"a = {text}", "x.toml")
