"""``probekit tasks`` and ``probekit tasks check``."""

from __future__ import annotations

from pathlib import Path

import pytest

from probekit.cli import main
from probekit.tasks import DATASETS, GRAMMARS


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_the_list_names_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    out = capsys.readouterr().out
    for name, card in DATASETS.items():
        assert name in out
        assert card.metrics[0] in out
    assert all(f"grammar:{name}" in out for name in GRAMMARS)
    assert "67,349" in out
    assert "CC BY 4.0" in out


def test_check_prints_what_was_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.tsv").write_text("text\tlabel\na b\tyes\na b\tno\nc [d]\tyes\n")
    (tmp_path / "dev.tsv").write_text("text\tlabel\na b\tyes\n")
    (tmp_path / "mine.toml").write_text('[splits]\ntrain = "train.tsv"\ndev = "dev.tsv"\n')
    assert main(["tasks", "check", str(tmp_path / "mine.toml")]) == 0
    out = capsys.readouterr().out
    lines = {" ".join(line.split()) for line in out.splitlines()}
    assert "mine: classification of sentences, measured by accuracy, macro-f1" in lines
    assert {"train dev", "examples 3 1", "texts with conflicting labels 1 0", "text occurs in train 1"} <= lines
    assert {"yes 2 (66.7%) 1 (100.0%)", "no 1 (33.3%) 0 (0.0%)"} <= lines
    assert "Note: Labels found: no, yes." in lines


def test_check_tells_near_copies_across_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "one two three four five six seven eight nine ten".split()
    text = " ".join(words)
    (tmp_path / "train.tsv").write_text(f"text\tlabel\n{text}\tyes\nall else is far away\tno\n")
    near = [text.upper(), text.replace("nine", "9"), "nothing of this is there at all"]
    (tmp_path / "dev.tsv").write_text("text\tlabel\n" + "".join(f"{line}\tyes\n" for line in near))
    (tmp_path / "mine.toml").write_text('[splits]\ntrain = "train.tsv"\ndev = "dev.tsv"\n')
    assert main(["tasks", "check", str(tmp_path / "mine.toml")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "text occurs in train 0" in out
    assert "Warning: dev: the texts of 2 of 3 examples, or near copies, occur in train" in out


def test_check_a_dataset_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "TREC_10.label").write_text("NUM:dist How far ?\nLOC:city Where ?\n")
    assert main(["tasks", "check", "trec-6", "--data-dir", str(tmp_path)]) == 0
    assert "examples by label" in capsys.readouterr().out


def test_many_labels_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.tsv").write_text("text\tlabel\n" + "".join(f"w{i}\tc{i:02}\n" for i in range(40)))
    (tmp_path / "mine.toml").write_text('[splits]\ntrain = "t.tsv"\n')
    assert main(["tasks", "check", str(tmp_path / "mine.toml")]) == 0
    assert "10 others" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[splits]\ntrain = "train.tsv"\n', "train.tsv, line 2: found 1 column, expected 2"),
        ('[split]\ntrain = "train.tsv"\n', "mine.toml, line 1: unknown key 'split'; did you mean 'splits'?"),
    ],
)
def test_a_bad_file_ends_with_status_2_and_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], toml: str, message: str
) -> None:
    (tmp_path / "train.tsv").write_text("text\tlabel\ncut short\n")
    (tmp_path / "mine.toml").write_text(toml)
    assert main(["tasks", "check", str(tmp_path / "mine.toml")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
