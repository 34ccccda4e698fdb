"""``probekit edges`` on the command line: the table, the verdict, and figures from its rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from probekit.rows import read_rows
from tests.analyses.test_probe_spans import ONE, cached

SHORT = ("--steps", "40", "--check", "20", "--projection", "8", "--hidden", "8", "--resamples", "100")


@pytest.fixture(scope="module")
def caches(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return cached(tiny_bert, ONE, tmp_path_factory.mktemp("caches"))


@pytest.mark.slow
def test_from_caches_to_a_table_rows_and_figures(caches: list[Path], tmp_path: Path, call: Callable) -> None:
    out = tmp_path / "rows.parquet"
    result = call("edges", *caches, *SHORT, "--groups", "none", "--out", out)
    assert result.status == 0
    for word in ("mix up to it", "weight in mix", "control-task", "shuffled", "majority", "centre of gravity"):
        assert word in result.out
    rows = read_rows(out)
    assert set(rows["analysis"]) == {"edges"}
    for kind in ("layers", "mix"):
        assert call("plot", kind, out, "--out", tmp_path / f"{kind}.png").status == 0
        assert (tmp_path / f"{kind}.png").stat().st_size > 1000


def test_wrong_use_is_one_sentence(caches: list[Path], call: Callable) -> None:
    for words, said in (
        ((caches[0],), "DEV"),
        ((*caches, caches[0]), "given in pairs"),
        ((*caches, "--probe", "cubic"), "cubic"),
        ((*caches, "--span", "mean"), "leave out pooling and span"),
    ):
        result = call("edges", *words)
        assert result.status == 2
        assert said in result.err.replace("\n", " ")
