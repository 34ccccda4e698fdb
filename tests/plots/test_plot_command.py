"""``probekit plot``: files of rows in, files of figures out."""

import re
from pathlib import Path

import pytest
from test_plot_differences import records as differences
from test_plot_layers import records, statistics
from test_relation_plots import crossed, points, said

from probekit.cli import main
from probekit.rows import make_rows, write_rows


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    selective = records(metric="selectivity(matthews)")[1:]
    parts = {"cola": [*records(), *selective], "sst2": records("sst2"), "sum": statistics(), "minus": differences()}
    return {name: str(write_rows(make_rows(part), tmp_path / f"{name}.parquet", {})) for name, part in parts.items()}


def test_layers(files, capsys):
    assert main(["plot", "layers", files["cola"], files["sst2"]]) == 0
    assert capsys.readouterr().out.split() == ["figures/layers.pdf", "figures/layers.png"]
    asked = ["--metric", "selectivity(matthews)", "--out", "a.svg"]
    assert main(["plot", "layers", files["cola"], *asked]) == 0
    assert "Selectivity" in Path("a.svg").read_text()
    assert main(["plot", "layers", files["cola"], "--summary", files["sum"], "--out", "b.svg"]) == 0
    assert "centre of gravity" in Path("b.svg").read_text()


def test_differences(files, capsys):
    assert main(["plot", "differences", files["minus"], "--level", "0.15", "--out", "a.svg"]) == 0
    assert "p &gt; 0.15, corrected" in Path("a.svg").read_text()
    assert main(["plot", "differences", files["cola"]]) == 2
    assert "probekit compare makes differences" in capsys.readouterr().err


def test_other_rows_of_the_files_are_left_out(files, tmp_path, capsys):
    """Each plot takes its own; where there is none, all, for which it has words."""
    both = str(write_rows(make_rows([*records(), *differences(), *crossed()]), tmp_path / "both.parquet", {}))
    for name, asked in (("layers", "cola"), ("differences", "minus")):
        assert main(["plot", name, both, "--out", "a.svg"]) == 0
        assert main(["plot", name, files[asked], "--out", "b.svg"]) == 0
        said = [re.findall("<text.*?</text>", Path(f).read_text(), re.S) for f in ("a.svg", "b.svg")]
        assert set(said[0]) == set(said[1])
    assert main(["plot", "relation", files["cola"]]) == 2
    assert "the rows lack corpus, of_metric, x" in capsys.readouterr().err


def test_relation_and_transfer_are_as_wide_as_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lost = [r | {"metric": "lost(accuracy)"} for r in crossed() if r["trained_on"] != r["domain"]]
    rows = make_rows([*crossed(), *lost, *points(), said("pearson", -0.5, 0.4)])
    write_rows(rows, tmp_path / "table.parquet", {})
    for words, shown in (
        (["relation"], "Pearson"), (["relation", "--transfer"], "trained on"), (["transfer"], "evaluated on")
    ):  # fmt: skip
        assert main(["plot", *words, "table.parquet", "--width", "text", "--out", "a.svg"]) == 0
        drawn = Path("a.svg").read_text()
        assert 'width="453.6pt"' in drawn  # 6.3 inches
        assert shown in drawn
    assert main(["plot", "transfer", "table.parquet", "--width", "wide"]) == 2


def test_what_is_not_there_is_said(files, capsys):
    assert main(["plot", "layers", files["sst2"], "--metric", "selectivity(matthews)"]) == 2
    assert "sst2 has no rows of 'selectivity(matthews)'; it has matthews" in capsys.readouterr().err
    assert main(["plot", "layers", files["sst2"], "--summary", files["sum"]]) == 2
    assert "the summary has nothing on matthews of sst2" in capsys.readouterr().err
    assert main(["plot", "layers", files["cola"], "--summary", files["sst2"]]) == 2
    assert "these rows are no summary" in capsys.readouterr().err
    assert main(["plot", "layers", files["minus"]]) == 2
    assert "see layer_differences, or probekit plot differences" in capsys.readouterr().err
