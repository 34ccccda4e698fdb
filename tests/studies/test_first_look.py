"""One command from a model and a task to caches, probes, a page and the verdict."""

import json
import shlex

import pytest

import probekit
from probekit.cli import main
from probekit.errors import UsageError
from probekit.rows import read_rows

TASK = "grammar:sentiment"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_quick_look_says_so_and_is_not_done_again(here, tiny_bert, capsys):
    words = ["run", str(tiny_bert), TASK, "--quick", "--limit", "40", "--out", "look"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "sentiment: " in told
    assert "Quick look: the penalty was chosen on one held-out part of train" in told
    assert told.endswith("look/quick.html\n")
    assert "Quick look" in (here / "look/quick.html").read_text()
    [rows] = (here / "look/rows").glob("probe-*mean.parquet")
    assert set(read_rows(rows)["target"]) == {"gold"}
    card = json.loads(rows.with_name(f"{rows.name}.json").read_text())
    assert card["verdict"][-1].startswith("Quick look")
    assert main(words) == 0
    assert "6 reused" in capsys.readouterr().out


def test_the_commands_that_are_printed_run(here, tiny_bert, capsys):
    words = ["run", str(tiny_bert), TASK, "--quick", "--limit", "40", "--out", "look"]
    assert main([*words, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not (here / "look").exists()
    assert [shlex.split(line)[1] for line in lines] == [
        *("cache-activations", "cache-activations", "probe", "plot", "summary", "report"),
    ]
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, line
    made = read_rows(next((here / "look/rows").glob("probe-*mean.parquet")))
    assert main([*words[:-1], "other"]) == 0
    again = read_rows(next((here / "other/rows").glob("probe-*mean.parquet")))
    assert made.equals(again)


def test_a_whole_run_has_its_controls(here, tiny_bert):
    result = probekit.run(tiny_bert, TASK, limit=40)
    assert set(result.rows["analysis"]) == {"probe", "mi"}
    assert set(result.rows["random_weights"].dropna()) == {0}
    assert result.rows["target"].eq("shuffled").any()
    assert result.recipe.function == "run"
    assert any("with random weights" in sentence for sentence in result.verdict)
    assert not any("quick" in sentence for sentence in result.verdict)
    [folder] = (here / "probekit-run").iterdir()
    cards = [json.loads(path.read_text()) for path in (folder / "rows").glob("[pm]*.parquet.json")]
    assert sorted(text for card in cards for text in card["verdict"]) == sorted(result.verdict)
    assert folder.name.endswith("-grammar-sentiment")
    assert (folder / "report.html").is_file()
    assert [p.name for p in (folder / "rows").glob("summary*.parquet")] == ["summary.parquet"]


def test_what_cannot_be_run_is_told_before_anything_is_made(here, tiny_bert):
    with pytest.raises(UsageError, match="unknown task 'rtee'"):
        probekit.run(tiny_bert, "rtee")
    with pytest.raises(UsageError, match="pooling must be one of mean"):
        probekit.run(tiny_bert, TASK, pooling="median")
    with pytest.raises(probekit.ProbekitError, match="no-such-model"):
        probekit.run("no-such-model", TASK)
    assert not list(here.iterdir())


def test_files_of_others_stay(here, tiny_bert):
    (here / "look").mkdir()
    (here / "look/study.json").write_text("mine")
    with pytest.raises(UsageError, match=r"is not what a study notes of itself"):
        probekit.run(tiny_bert, TASK, quick=True, limit=40, out="look")
    assert (here / "look/study.json").read_text() == "mine"
