"""Slices: what a file of conditions means, and what is wrong with it."""

import pytest

from probekit.errors import DataError
from probekit.tasks.slices import read_slices
from probekit.tasks.task import Example, Split, Task, TaskKind

EXAMPLES = (
    Example("a", "It is not good", 0, pair="Never", domain="x; y"),
    Example("b", "good", 1, pair="It is notable", domain="y"),
    Example("c", "NOT at all good", 1, pair="x", domain=None),
)
TASK = Task("t", TaskKind.CLASSIFICATION, {"dev": Split("dev", EXAMPLES)}, ("no", "yes"))
SINGLE = Task("s", TaskKind.REGRESSION, {"dev": Split("dev", (Example("a", "one text", 0.5),))})


def members(text, tmp_path, task=TASK):
    file = tmp_path / "slices.toml"
    file.write_text(text)
    return read_slices(file).members(task, task.split("dev"))


@pytest.mark.parametrize(
    ("condition", "inside"),
    [
        (r"text = '\bnot\b'", "a"),
        (r"text = '(?i)\bnot\b'", "ac"),
        ("pair = 'not'", "b"),
        ("words_at_least = 5", "ac"),
        ("words_at_most = 4", "b"),
        ("label = 'yes'", "bc"),
        ("label = ['yes', 'no']", "abc"),
        ("domain = 'y'", "ab"),
        ("domain = ['x']", "a"),
        ("text = 'good'\nlabel = 'yes'\nwords_at_least = 5", "c"),
    ],
)
def test_what_conditions_mean(condition, inside, tmp_path):
    assert members(f"[one]\n{condition}\n[all]\ntext = ''\n", tmp_path) == {
        "one": frozenset(inside), "all": frozenset("abc")
    }  # fmt: skip


def test_words_of_labelled_words(tmp_path):
    tagged = Example("a", "a b c d", (0, 0), words=("a b", "c d"))
    task = Task("w", TaskKind.SEQUENCE_LABELLING, {"dev": Split("dev", (tagged,))}, ("O",))
    assert members("[two]\nwords_at_least = 2\nwords_at_most = 2\n", tmp_path, task) == {"two": {"a"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "slices.toml: describes no slices; add a table"),
        ("words_at_least = 3", "line 1: slice 'words_at_least' is not a table; write .* one of text, pair"),
        ("[a]\n", "line 1: slice 'a' has no conditions; write .a. and below it one of text, pair"),
        ("[a]\ntxt = 'x'", "line 1: slice 'a' has no key 'txt'; the keys are text, pair, words_at_least, words"),
        ("\n[a]\ntext = '('", r"line 2: slice 'a', key 'text': '\(' is not a regular expression of Python: missing \)"),
        ("[a]\nwords_at_least = 'x'", "slice 'a', key 'words_at_least': 'x' must be a whole number of 0 or more"),
        ("[a]\nwords_at_most = -1", "slice 'a', key 'words_at_most': -1 must be a whole number of 0 or more"),
        ("[a]\nlabel = 3", "slice 'a', key 'label': 3 must be a text in quotation marks, or a list of texts"),
        ("[a]\ntext = 3", "slice 'a', key 'text': 3 must be a text in quotation marks"),
        ("[a]\ntext = 'x'\n[a]\ntext = 'y'", r"line 3.*\[a\] is given twice; each slice has one table"),
        ("[a]\ntext = 'x'\ntext = 'y'", r"line 3.*text = 'y' is given twice in \[a\]"),
        ("[a]\ntext = x", "line 2.*is not valid TOML"),
        ("[b]\ntext = 'good'\n[a]\ntext = 'bad'", "line 3: slice 'a' holds none of the 3 examples of t dev; change it"),
        ("[a]\nlabel = 'yess'", "slice 'a', key 'label': t has no label 'yess'; did you mean yes"),
        ("[a]\ndomain = 'z'", "slice 'a', key 'domain': t has no domain 'z'; there are x, y"),
        ("[x]\ntext = 'good'", "slice 'x' has the name of a domain of t; choose another name"),
    ],
)
def test_what_is_wrong(text, message, tmp_path):
    with pytest.raises(DataError, match=message):
        members(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nlabel = 'x'", "key 'label': s has no label 'x'; its examples have no labels to choose from"),
        ("[a]\npair = 'x'", "key 'pair': the examples of s have one text; use text"),
    ],
)
def test_what_a_task_does_not_have(text, message, tmp_path):
    with pytest.raises(DataError, match=message):
        members(text, tmp_path, SINGLE)


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_slices(tmp_path / "none.toml")


def test_a_regular_expression_that_takes_years_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("probekit.tasks.slices.SECONDS", 1)
    task = Task("t", TaskKind.CLASSIFICATION, {"dev": Split("dev", (Example("a", "a" * 60 + "!", 0),))}, ("no", "yes"))
    with pytest.raises(
        DataError, match=r"line 3: slice 'bad', key 'text': '\(a\+\)\+\$' is not found in 1 texts within"
    ):
        members("[good]\ntext = 'a'\n[bad]\ntext = '(a+)+$'\n", tmp_path, task)
