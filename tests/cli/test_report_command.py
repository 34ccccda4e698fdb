"""``probekit report``: files of rows in, a page out."""

import re
from pathlib import Path

import pytest
from pages import curve, save

from probekit.cli import main


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return save(curve([0.5, 0.8]), tmp_path / "cola.parquet").name


def test_a_page(rows, capsys):
    Path("t.md").write_text("Some **words**.")
    assert main(["report", rows, "-o", "out/p.html", "--title", "Mine", "--text", "t.md"]) == 0
    assert capsys.readouterr().out.startswith("out/p.html  (")
    html = Path("out/p.html").read_text()
    assert "<h1>Mine</h1>" in html
    assert "<strong>words</strong>" in html
    assert "probekit report cola.parquet --out p.html --title Mine --text t.md" in html
    assert main(["report", rows]) == 0
    assert "Results on CoLA" in Path("report.html").read_text()


@pytest.mark.slow
def test_two_studies(rows, capsys):
    for name in ("a", "b"):
        folder = Path("studies", name, "rows")
        folder.mkdir(parents=True)
        save(curve([0.5, 0.8]), folder / "probe.parquet")
    assert main(["report", "studies/a", "studies/b", rows, "-o", "p.html"]) == 0
    html = Path("p.html").read_text()
    assert "<h1>Results of several studies</h1>" in html
    assert [f"<h2>{title}</h2>" in html for title in ("a", "b", "Results on CoLA")] == [True] * 3
    assert html.count("<svg") == 3
    assert main(["report", "studies", rows, "-o", "all.html"]) == 0
    assert re.findall("<h2>(.*?)</h2>", Path("all.html").read_text())[:3] == ["a", "b", "Results on CoLA"]
    Path("empty").mkdir()
    assert main(["report", "studies/a", "empty"]) == 2
    assert "empty is a folder without rows" in capsys.readouterr().err


def test_wrong_words(rows, capsys):
    assert main(["report", rows, "-o", "p.pdf"]) == 2
    assert "a report is one HTML page, not .pdf; name it" in capsys.readouterr().err
    assert main(["report", "nothing.parquet"]) == 2
    assert "nothing.parquet: does not exist; expected a file of rows" in capsys.readouterr().err
    assert main(["report", rows, "--figure", "no.svg"]) == 2
    assert "no.svg: this figure does not exist" in capsys.readouterr().err
