"""``probekit study`` and ``probekit table`` as they are typed."""

import os
import re
import signal
import time
from dataclasses import replace

import pytest

from probekit.adaptation.runs.constant import NOT_BETTER, WORSE
from probekit.cli import main
from probekit.cli.steps import StepPrinter, show_warnings
from probekit.files import without_mark
from probekit.rows import make_rows, write_rows
from probekit.studies.planned import StudyRun, plan_study
from probekit.studies.runner import Outcome

STUDY = """
title = "Little"
models = {{ tiny = "{model}" }}
[[mi]]
tasks = ["grammar:sentiment", "{second}"]
limit = 40
options = {{ draws = 19, controls = 0 }}
[[figure]]
kind = "layers"
rows = "mi"
"""


@pytest.fixture
def little(tmp_path, tiny_bert, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(second="grammar:acceptability"):
        (tmp_path / "little.toml").write_text(STUDY.format(model=tiny_bert, second=second))
        return "little.toml"

    return write


def test_a_plan_does_nothing_and_tells_all(little, tmp_path, capsys):
    assert main(["study", "run", little(), "--plan"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Little\n")
    assert "new    mi grammar-sentiment.tiny.pretrained.mean, " in told
    assert "6 of 6 steps to do, roughly" in told
    assert (
        "(the time on an idle machine, within a factor of about two)\ncaches take roughly 1 MB of disk space; " in told
    )
    assert "probekit mi" not in told
    assert not (tmp_path / "studies").exists()
    assert main(["study", "run", little(), "--plan", "--commands", "--out", "here", "--jobs", "2"]) == 0
    told = capsys.readouterr().out
    assert "probekit cache-activations " in told
    assert "--out here/caches/grammar-sentiment.tiny.train.limit-40.h5" in told
    assert "with 2 at a time" in told
    assert main(["study", "run", little("nonsense"), "--plan"]) == 1
    told = capsys.readouterr().out
    assert re.search(r"2 steps cannot be done:\n  cache nonsense.tiny.train.limit-40: unknown task 'nonsense'", told)
    assert "new    figure layers, " in told  # of what is left
    assert "4 of 6 steps to do, roughly" in told
    assert told.endswith("\n  and 1 step that needs one of these\n")


@pytest.mark.slow
def test_a_study_is_run_and_run_again(little, tmp_path, capsys):
    assert main(["study", "run", little("nonsense"), "--jobs", "2"]) == 1
    out, err = capsys.readouterr()
    assert "failed: cache nonsense.tiny.train.limit-40: unknown task 'nonsense'" in err
    assert "mi nonsense.tiny.pretrained.mean: skipped: it needs cache nonsense" in out
    assert "studies/little/report.html" in out
    assert (tmp_path / "studies/little/figures/layers.pdf").exists()
    page = tmp_path / "studies/little/report.html"
    told = page.read_text()
    assert "<h1>Little</h1>" in told
    assert "<li>cache-nonsense.tiny.train.limit-40: unknown task" in told
    assert "<li>mi-nonsense.tiny.pretrained.mean: not started, or an input is missing</li>" in told
    assert main(["study", "run", little()]) == 0
    assert "This study is incomplete" not in page.read_text()
    assert "4 done, 2 reused" in capsys.readouterr().out  # cache and information of the mended task, figure and report
    assert main(["study", "run", little()]) == 0
    assert capsys.readouterr().out.startswith("6 of 6 steps are reused\n6 reused\n")


def test_an_interrupt_names_the_step(little, monkeypatch, capsys):
    def interrupted(planned, pool, *, begin, tell):
        begin(planned.steps[0])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr("probekit.studies.planned.run_study", interrupted)
    assert main(["study", "run", little()]) == 130
    err = capsys.readouterr().err
    assert err.startswith("probekit: interrupted during cache grammar-sentiment.tiny.train.limit-40; run the same")


def test_steps_show_that_they_warned(little, capsys):
    planned = plan_study(little())
    cache, *_, figure, _ = planned.steps
    train = replace(cache, name="run", function="train")
    of_texts = ("60 of 500 examples are not independent",)
    outcomes = (
        Outcome(cache, "reused", warnings=of_texts),
        Outcome(replace(cache, name="second"), "done", warnings=of_texts),
        Outcome(train, "done", warnings=("no dev split", f"cola dev: accuracy 0.5 [0.4, 0.6] {NOT_BETTER}, 0.5.")),
        Outcome(replace(train, name="low"), "done", warnings=(f"rte dev: accuracy 0.3 [0.2, 0.4] {WORSE}, 0.5.",)),
        Outcome(figure, "done"),
    )
    printer = StepPrinter(planned)
    for outcome in outcomes:
        printer.end(outcome)
    show_warnings(StudyRun(planned.folder, outcomes))
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "[1/6] second: done, 0 s, 1 warning",
        "[2/6] run: done, 0 s, 2 warnings",
        "[3/6] low: done, 0 s, 1 warning",
        "[4/6] figure layers: done, 0 s",
    ]
    assert err.splitlines() == [
        "4 steps warned:",
        f"  low: rte dev: accuracy 0.3 [0.2, 0.4] {WORSE}, 0.5.",
        f"  run: cola dev: accuracy 0.5 [0.4, 0.6] {NOT_BETTER}, 0.5.",
        "  run: no dev split",
        f"  {cache.name} and 1 other: {of_texts[0]}",
    ]


def test_what_cannot_be_run_is_told(little, capsys):
    for words, told in (
        (["nonsense"], "there is no study 'nonsense'"),
        ([little(), "--backend", "slurm"], 'Invalid value "slurm" for --backend. Choose from: "loky", "dask"'),
        ([little(), "--backend", "dask"], "--backend dask and --scheduler ADDRESS must be given together"),
        ([little(), "--scheduler", "tcp://x"], "must be given together"),
        ([little(), "--set", "mi.0.split"], "does not match a value"),
        ([little(), "--jobs", "0"], "--jobs is 0"),
    ):
        assert main(["study", "run", *words]) == 2
        assert told in capsys.readouterr().err


def test_shipped_studies_are_listed_and_shown(capsys):
    assert main(["study", "list"]) == 0
    assert "table6-small: Table 6:" in capsys.readouterr().out
    assert main(["study", "show", "table6-small"]) == 0
    assert "[[domains]]" in capsys.readouterr().out
    assert main(["study", "show", "table7"]) == 2


def test_tables(tmp_path, capsys):
    row = {
        "task": "mrpc", "split": "dev", "model": "m", "checkpoint": "mrpc.fine-tune.0", "layer": None,
        "representation": "pooler", "regime": "fine-tune", "head": "linear", "trained_on": "mrpc", "estimator": "",
        "target": "gold", "metric": "accuracy", "analysis": "train", "headline": True,
        "value": 0.75, "ci_low": 0.7, "ci_high": 0.8, "seed": 0, "n": 408, "kept": True,
    }  # fmt: skip
    frozen = row | {
        "regime": "feature-extraction",
        "head": "esim",
        "checkpoint": "mrpc.feature-extraction.0",
        "value": 0.5,
    }
    write_rows(make_rows([row, frozen]), tmp_path / "rows.parquet", {})
    words = ["table", "regimes", str(tmp_path / "*.parquet"), "--published", "peters-2019/2"]
    assert main([*words, "--out", str(tmp_path / "t.md"), "--rows", str(tmp_path / "t.csv")]) == 0
    text = (tmp_path / "t.md").read_text()
    assert "[70.0, 80.0]" in capsys.readouterr().out
    assert main([*words, "--format", "markdown"]) == 0
    assert without_mark(text).strip() in capsys.readouterr().out
    assert text.splitlines()[:5] == [
        "| model | × 100 | mrpc (accuracy, dev) |",
        "| --- | --- | --- |",
        "| m | feature extraction, esim | 50.0 [70.0, 80.0] |",
        "| m | fine-tuning, linear | 75.0 [70.0, 80.0] |",
        "| m | Δ fine-tuning | +25.0 |",
    ]
    assert "| *BERT-base, published* | *fine-tuning* | 84.8 |" in text
    assert (tmp_path / "t.csv").exists()
    for wrong, told in (
        (["table", "regime", "x.parquet"], "--kind is 'regime'; did you mean regimes"),
        ([*words[:3], "--out", "t.txt"], "a table is written as .md"),
        ([*words[:3], "--published", "peters-2019/7"], "no published numbers 'peters-2019/7'"),
        (["table", "domains", *words[2:3]], "contain no runs on single domains"),
    ):
        assert main(wrong) == 2
        assert told in capsys.readouterr().err
