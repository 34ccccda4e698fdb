"""Printed tables: no cell is cut at any width, nothing is repeated for nothing, and files get the full width."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probekit.cli.terminal import show_table, tables_as
from probekit.grid import Column, Format, Grid

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "figures" / "studies"


def wide(columns: int = 9, rows: int = 4) -> Grid:
    names = [Column("layer", key=True), *(Column(f"span-f1 of the split {i}") for i in range(columns))]
    return Grid(names, [[str(r), *(f"{r}.{c}00 – {r}.{c}99" for c in range(columns))] for r in range(rows)])


@pytest.mark.parametrize("width", [40, 60, 80, 120, 400])
def test_no_cell_is_cut_and_no_line_is_too_long(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    grid = wide()
    show_table(grid)
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= width
    for row in grid.rows:
        for cell in row:
            assert cell in out


TEXT = st.text("abc -", min_size=0, max_size=30).map(str.strip)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(TEXT, min_size=5, max_size=5), min_size=1, max_size=4), width=st.integers(40, 130))
def test_any_cells_fit_any_width(rows, width):
    """Only words longer than the terminal are folded; their letters stay."""
    from contextlib import redirect_stdout
    from io import StringIO

    columns = [Column("name", key=True), Column("label", label=True), Column("x"), Column("y"), Column("z", wrap=True)]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
        patch.setenv("COLUMNS", str(width))
        show_table(Grid(columns, rows))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= max(width, max(len(f"label {row[1]}") for row in rows))
    assert "…" not in text
    letters = [c for row in rows for i, cell in enumerate(row) for c in cell if i != 1 and c in "abc"]
    printed = [c for c in text.replace("label", "").replace("name", "") if c in "abc"]
    assert len(printed) >= len(letters)


def test_a_wide_table_of_few_rows_is_turned(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    show_table(wide(rows=3))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == ["layer", "0", "1", "2"]
    assert len(lines) == 2 + 9


def test_blocks_repeat_the_layer_and_are_even(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    show_table(wide(columns=6, rows=30))
    heads = [line for line in capsys.readouterr().out.splitlines() if "layer" in line]
    assert len(heads) == 2


def test_a_file_or_pipe_gets_the_full_width(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    show_table(wide())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert len(lines) == 2 + 4
    assert "\x1b" not in "".join(lines)


def test_names_are_no_markup_and_no_emoji(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    show_table(Grid([Column("task", key=True), Column("[bold]x[/]")], [[":smile:", "[red]1[/]"]]))
    out = capsys.readouterr().out
    assert ":smile:" in out
    assert "[red]1[/]" in out
    assert "[bold]x[/]" in out


def test_formats_have_standard_output_for_themselves(capsys):
    with tables_as(Format.CSV):
        show_table(wide(columns=2, rows=2))
        print("a verdict")
    done = capsys.readouterr()
    assert done.out.splitlines() == [
        "layer,span-f1 of the split 0,span-f1 of the split 1", "0,0.000 – 0.099,0.100 – 0.199",
        "1,1.000 – 1.099,1.100 – 1.199", "",
    ]  # fmt: skip
    assert done.err == "a verdict\n"


CARDS = [
    ("table", "regimes", STUDIES / "table2-small/table-table2.parquet", "--published", "peters-2019/2"),
    ("table", "regimes", STUDIES / "table4-small/table-table4.parquet"),
    ("table", "domains", STUDIES / "table6-small/table-table6.parquet", "--published", "peters-2019/6"),
]


@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.parametrize("words", CARDS, ids=lambda words: f"{words[1]}-{words[2].stem}")
def test_tables_of_papers_fit_the_terminal(words, width, call, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    done = call(*words)
    assert done.status == 0
    assert max(map(len, done.out.splitlines())) <= width
    full = call(*words, "--format", "markdown").out
    for cell in re.findall(r"[+-]?\d+\.\d \[[^]]*\]", full):
        assert cell in done.out


@pytest.mark.parametrize("form", ["markdown", "latex", "csv"])
def test_table_in_a_format(form, call):
    done = call("table", "regimes", STUDIES / "table2-small/table-table2.parquet", "--format", form)
    assert done.status == 0
    assert {"markdown": "| model | × 100 |", "latex": r"\begin{tabular}", "csv": "model,× 100,"}[form] in done.out


def test_a_file_of_rows_without_a_kind_is_shown_as_its_command_printed_it(call, tmp_path):
    rows = STUDIES / "figure1-small/probe-stsb.all-MiniLM-L6-v2.fine-tuned.mean.parquet"
    done = call("table", rows, "--format", "csv")
    assert "layer,pearson" in done.out
    assert "best layer 4" in done.err
    assert "stands before" in call("table", rows, "--out", tmp_path / "t.md").err
    assert "give the rows beside it" in call("table", tmp_path / "a.examples.parquet").err


def test_stored_rows_in_every_analysis(monkeypatch, capsys):
    """The printed tables of probes and of information, from the rows that come with the repository."""
    from probekit.cli.terminal import show_table
    from probekit.rows import read_rows
    from probekit.view import tables

    monkeypatch.setenv("COLUMNS", "80")
    probed, informed = "probe-stsb.all-MiniLM-L6-v2.fine-tuned.mean", "mi-cola.all-MiniLM-L6-v2.random.mean"
    for analysis, place in (("probe", f"figure1-small/{probed}"), ("mi", f"figure2-small/{informed}")):
        for grid, _ in tables(analysis, read_rows(STUDIES / f"{place}.parquet"), {}):
            show_table(grid)
    out = capsys.readouterr().out
    tables = [line for line in out.splitlines() if line.startswith(" ")]
    assert max(map(len, tables)) <= 80
    assert "…" not in out
    assert "penalty" in out
    assert "p adjusted" in out
