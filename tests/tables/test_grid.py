"""Tables of text cells as Markdown, LaTeX and CSV, and the tables of papers in these formats."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

import probekit
from probekit.errors import UsageError
from probekit.grid import Column, Grid, to_csv, to_latex, to_markdown

STUDIES = Path(__file__).parents[2] / "figures" / "studies"
TABLE2 = STUDIES / "table2-small" / "table-table2.parquet"
TABLE6 = STUDIES / "table6-small" / "table-table6.parquet"
HOSTILE = r"a_1 & 50% of $x^2 #3 {b} ~ \input{/etc/passwd}"


def grid(*rows: list[str], bold: set[tuple[int, int]] | None = None) -> Grid:
    columns = [Column("task", align="left", key=True), Column("model_1", align="left", label=True), Column("Δ")]
    return Grid(columns, rows, "a title", bold or set())


def test_latex_has_booktabs_escapes_and_minus_signs():
    text = to_latex(grid([HOSTILE, "m-2", "-0.5 [-1.0, +0.0]"], ["*b*", "n", "≤ 0.5 – 1"], bold={(1, 2)}))
    lines = text.splitlines()
    assert lines[0] == "% a title"
    assert lines[1:3] == [r"\begin{tabular}{llr}", r"\toprule"]
    assert lines[3] == r"task & model\_1 & $\Delta$ \\"
    assert lines[5].endswith(r" & m-2 & $-$0.5 [$-$1.0, +0.0] \\")
    assert lines[6] == r"\emph{b} & n & \textbf{$\leq$ 0.5 -- 1} \\"
    assert r"\input" not in text
    assert re.search(r"a\\_1 \\& 50\\% of \\\$x", text)


def test_latex_is_read_by_latex(tmp_path):
    if not (latex := shutil.which("pdflatex") or shutil.which("tectonic")):
        pytest.skip("there is no LaTeX")
    body = to_latex(grid([HOSTILE, "m", "-1 ± ∞ × †"])) + probekit.table("domains", TABLE6).to_latex()
    head = "\\documentclass{article}\\usepackage[utf8]{inputenc}\\usepackage{booktabs}\\begin{document}\n"
    (tmp_path / "a.tex").write_text(f"{head}{body}\\end{{document}}\n")
    subprocess.run([latex, "a.tex"], cwd=tmp_path, check=True, stdin=subprocess.DEVNULL, timeout=120)


def test_shared_labels_stand_above_and_empty_columns_are_left_out():
    same = grid(["a", "m", ""], ["b", "m", ""])
    assert same.shared() == {"model_1": "m"}
    assert to_markdown(same) == "**a title; model_1 m**\n\n| task |\n| --- |\n| a |\n| b |\n"
    assert [column.name for column in grid(["a", "m", "1"]).compact().columns] == ["task", "model_1", "Δ"]


def test_csv_is_read_by_pandas():
    text = to_csv(grid(['a, "b"', "m", "1"], ["*c*", "n", ""]))
    read = pd.read_csv(io.StringIO(text), comment="#", dtype=str, keep_default_na=False)
    assert read.to_numpy().tolist() == [['a, "b"', "m", "1"], ["c", "n", ""]]


@pytest.mark.parametrize("suffix", [".md", ".tex", ".csv"])
def test_a_table_is_written_by_suffix_and_replaces_only_its_own(suffix, tmp_path):
    out = tmp_path / f"t{suffix}"
    table = probekit.table("regimes", TABLE2, out=out)
    first = out.read_text()
    assert {".md": table.to_markdown(), ".tex": table.to_latex(), ".csv": table.to_csv()}[suffix].rstrip() in first
    probekit.table("regimes", TABLE2, out=out)
    assert out.read_text() == first
    if suffix == ".csv":
        read = pd.read_csv(out, comment="#")
        assert len(read) == 3
        assert read.columns[0] == "model"
    out.write_text("mine")
    with pytest.raises(UsageError, match="not a table as probekit wrote it"):
        probekit.table("regimes", TABLE2, out=out)
    assert out.read_text() == "mine"


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"written as .md, .tex, .csv, not 't.docx'"):
        probekit.table("regimes", TABLE2, out=tmp_path / "t.docx")


@pytest.mark.parametrize(("kind", "path"), [("regimes", TABLE2), ("domains", TABLE6)])
def test_rows_of_a_table_give_the_table_again(kind, path, tmp_path):
    """What --rows-out writes is read again as the same table, with the same rows."""
    first = probekit.table(kind, path, rows_out=tmp_path / "rows.parquet")
    again = probekit.table(kind, tmp_path / "rows.parquet")
    assert again.text == first.text
    stored = (path.parent / f"{path.stem.removeprefix('table-')}.md").read_text()
    cells = re.findall(r"[+-]?\d+\.\d+ \[[^]]*\]", stored)
    assert len(cells) > 20
    assert sorted(cells) == sorted(re.findall(r"[+-]?\d+\.\d+ \[[^]]*\]", first.text))


def test_seeds_of_a_table_survive(tmp_path):
    rows = pd.read_parquet(TABLE2).assign(seeds=5, sd=0.01)
    assert "Means over 5 seeds" in probekit.table("regimes", rows).text
