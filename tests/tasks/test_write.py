"""Tasks written in SentEval's layout, and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from probekit.cli import main
from probekit.errors import UsageError
from probekit.tasks import load_task
from probekit.tasks.write import write_tasks
from tests.tasks.sentences.treebanks import treebank


def test_what_is_written_is_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = treebank(tmp_path / "data"), tmp_path / "out"
    names = ["treebank:past-present", "treebank:bigram-shift:xx_toy"]
    assert main(["tasks", "write", *names, "--data-dir", str(data), "--out", str(out)]) == 0
    assert "bigram_shift.txt" in capsys.readouterr().out
    for name, theirs in zip(names, ("senteval-past-present", "senteval-bigram-shift"), strict=True):
        made, read = load_task(name, data), load_task(theirs, out)
        assert made.label_names == read.label_names
        for split in made.splits:
            assert [(e.text, e.label) for e in made.split(split)] == [(e.text, e.label) for e in read.split(split)]
    before = (out / "past_present.txt").stat().st_mtime_ns
    write_tasks(names[0], data_dir=data, out=out)  # the same again changes nothing
    assert (out / "past_present.txt").stat().st_mtime_ns == before


def test_another_file_is_never_replaced(tmp_path: Path) -> None:
    data, out = treebank(tmp_path / "data"), tmp_path / "out"
    out.mkdir()
    (out / "past_present.txt").write_text("mine")
    with pytest.raises(UsageError, match="past_present.txt exists and is not a file that is not there yet"):
        write_tasks(["treebank:bigram-shift", "treebank:past-present"], data_dir=data, out=out)
    assert (out / "past_present.txt").read_text() == "mine"
    assert not (out / "bigram_shift.txt").exists()


def test_another_seed_draws_other_sentences(tmp_path: Path) -> None:
    data = treebank(tmp_path / "data")
    (a,), (b,) = (write_tasks("treebank:bigram-shift", data_dir=data, out=tmp_path / str(s), seed=s) for s in (0, 1))
    assert a.read_text() != b.read_text()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("grammar:similarity", "not a classification of single sentences"),
        ("grammar:paraphrase", "not a classification of single sentences"),
        ([], "no task is given"),
        (["grammar:sentiment", "grammar:sentiment"], "would be written twice"),
    ],
)
def test_tasks_that_the_layout_is_not_for(tmp_path: Path, names: list[str] | str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        write_tasks(names, out=tmp_path)
    with pytest.raises(UsageError, match="takes no seed"):
        write_tasks("grammar:sentiment", out=tmp_path, seed=1)
