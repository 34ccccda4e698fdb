"""What files of others hold is shown, not sent to the terminal."""

from __future__ import annotations

import io
import logging

import pytest
from rich.table import Table

from probekit.cli.show import console, say, warn
from probekit.display import shown
from probekit.progress import display

EVIL = "good\x1b]0;pwned\x07\x1b[2J\x9b31m\u202edab\u2066"
TOLD = r"good\x1b]0;pwned\x07\x1b[2J\x9b31m\u202edab\u2066"


def test_every_control_is_written_out_and_plain_text_stays():
    assert shown(EVIL) == TOLD
    assert shown("a\tb\n·é→日本") == "a\tb\n·é→日本"
    assert shown("\ud800") == r"\ud800"


def obeyed(text: str) -> bool:
    return any(c in text for c in "\x1b\x07\x9b\u202e\u2066")


def test_lines_tables_and_titles(capsys):
    say(EVIL)
    warn(EVIL)
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    console().print(table)
    console().print(EVIL, soft_wrap=True)
    said = capsys.readouterr()
    assert not obeyed(said.out + said.err)
    assert said.out.count("pwned") == 5


def test_errors_and_warnings_of_commands(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("verify", f"{EVIL}.h5")
    assert (done.status, obeyed(done.err)) == (2, False)
    assert "pwned" in done.err


def test_labels_of_a_task_in_check_and_in_rows(call, tmp_path, monkeypatch):
    """On the screen they are shown; in the files they are as they were."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text(
        "text\tlabel\n" + "".join(f"text {i}\t{'AB'[i % 2]}\x1b[31m\n" for i in range(20))
    )
    (tmp_path / "task.toml").write_text(
        'name = "toy"\nlabels = ["A\\u001b[31m", "B\\u001b[31m"]\n[splits]\ntrain = "train.tsv"\n'
    )
    done = call("tasks", "check", "task.toml")
    assert not obeyed(done.out + done.err)
    assert r"A\x1b[31m" in done.out + done.err


def test_progress_and_logging(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with display() as progress:
        progress(EVIL[:12] + "\u202e", 1, 2)
    assert "\x07" not in stream.getvalue()
    assert "\u202e" not in stream.getvalue()
    from probekit.cli import _Shown

    record = logging.LogRecord("x", logging.WARNING, "x", 1, "%s", (EVIL,), None)
    assert _Shown("%(message)s").format(record) == TOLD


@pytest.mark.parametrize("counts", ["/elsewhere/counts.parquet", "../counts.parquet", "a/../../counts.parquet"])
def test_a_study_writes_in_its_own_folder(counts, call, tmp_path, tiny_bert, monkeypatch):
    """Refused before the first step, by its name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a b c\n" * 50)
    study = f'title = "x"\nmodels = {{ m = "{tiny_bert}" }}\n[[domains]]\ntask = "grammar:sentiment"\n'
    (tmp_path / "s.toml").write_text(study + f'corpora = {{ a = "a.txt" }}\noptions = {{ counts = "{counts}" }}\n')
    done = call("study", "run", "s.toml", "--out", "out")
    assert done.status == 2
    assert "a study writes only to its folder" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ['"out=/elsewhere" = true', 'out = "/elsewhere"', 'counts = "/elsewhere"'])
def test_places_in_the_options_of_a_section(option, call, tmp_path, tiny_bert, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = f'title = "x"\nmodels = {{ m = "{tiny_bert}" }}\n[[mi]]\ntasks = ["grammar:sentiment"]\n'
    (tmp_path / "s.toml").write_text(study + f"options = {{ {option} }}\n")
    done = call("study", "run", "s.toml", "--out", "out")
    assert done.status == 2
    assert not (tmp_path / "out").exists()


def test_options_are_named_as_typed_in_our_messages_only(monkeypatch):
    """A library that warns while the command's module is half imported does not make us look at its options."""
    from probekit import functions
    from probekit.cli import _Shown

    def told(logger: str) -> str:
        record = logging.LogRecord(logger, logging.WARNING, "x", 1, "learning_rate is high", (), None)
        return _Shown(["train"]).format(record)

    assert told("probekit.adaptation") == "--learning-rate is high"
    monkeypatch.setattr(functions, "parameters", lambda _: 1 / 0)
    assert told("bitsandbytes.backends") == "learning_rate is high"


def test_names_of_files_are_not_options():
    from probekit.cli import _as_typed

    told = _as_typed("give chat_template, such as a chat_template.jinja.", ["cache-activations"])
    assert told == "give --chat-template, such as a chat_template.jinja."
