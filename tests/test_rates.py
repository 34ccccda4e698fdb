"""The runner of the rates: it counts what cases say, and its table tells what is outside the promise."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def calibration() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        found = importlib.import_module("calibration")
        found.OF_FILES = found.load()
    finally:
        sys.path[:] = [p for p in sys.path if not p.startswith(str(BENCHMARKS))]
    return found


def test_the_rate_is_of_the_runs_that_answer(calibration: ModuleType) -> None:
    answers = {"toy/a": lambda rng: None if (u := rng.random()) < 0.5 else u < 0.55}
    one = calibration.Case("toy/a", "false positives", answers["toy/a"])
    found = calibration.summed_up(one, [one.run(np.random.default_rng(i)) for i in range(2000)])
    assert found["runs"] == 2000
    assert abs(found["refused"] - 1000) < 100
    assert found["rate"] == pytest.approx(0.1, abs=0.03)
    assert not found["ok"]


@pytest.mark.parametrize(
    ("kind", "rate", "error", "ok"),
    [
        ("false positives", 0.05, 0.01, True),
        ("false positives", 0.071, 0.01, False),
        ("coverage", 0.93, 0.0, True),
        ("coverage", 0.91, 0.005, False),
        ("coverage", 0.92, 0.012, False),
        ("coverage", 0.92, 0.02, True),
        ("coverage", 0.999, 0.001, True),
        ("coverage", float("nan"), float("nan"), True),
    ],
)
def test_what_bears_a_claim(calibration: ModuleType, kind: str, rate: float, error: float, ok: bool) -> None:
    nominal = 0.05 if kind == "false positives" else 0.95
    assert calibration.Case("x", kind, bool, nominal=nominal).ok(rate, error) == ok


def test_the_table_marks_what_is_outside(calibration: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    one = calibration.Case("toy/b", "false positives", lambda rng: True, before="41 % of 400")
    monkeypatch.setitem(calibration.CASES, "toy/b", one)
    row = calibration.line("toy/b", calibration.summed_up(one, [True] * 10))
    assert row[2] == "41 % of 400"
    assert "**outside**" in row[3]
    assert next(calibration.subjects([row])) == ["toy", "≤ 5%", "1", "100.0%", f"{row[3]}: b", "1"]


def test_the_page_says_what_its_tables_say(calibration: ModuleType) -> None:
    titles, *lines = csv.reader(calibration.TABLE.read_text(encoding="utf-8").splitlines())
    assert titles == list(calibration.TITLES)
    _, *subjects = csv.reader(calibration.SUBJECTS.read_text(encoding="utf-8").splitlines())
    assert subjects == list(calibration.subjects(lines))
    page = (BENCHMARKS.parent / "docs" / "calibration.md").read_text(encoding="utf-8")
    tests, intervals = ([row for row in lines if sign in row[1] and row[3] != "refused"] for sign in ("≤", "covers"))
    assert not [row for row in tests if "outside" in row[3]]
    assert f"**In {len(tests)} simulated cases of tests, none" in page
    short = sum("outside" in row[3] for row in intervals)
    assert f"In {short} of {len(intervals)} simulated cases of intervals" in page
    enough = sum(float(row[3].split("%")[0]) >= float(row[1].strip("covers %")) for row in intervals)
    assert f"In {enough} cases, they cover the truth at least as often as promised" in page
    assert f"{len(lines) - len(tests) - len(intervals)} further cases" in page


def test_every_file_of_cases_registers_some(calibration: ModuleType) -> None:
    assert len(calibration.OF_FILES) == len(list((BENCHMARKS / "rates").glob("*.py")))
    assert not [name for name, cases in calibration.OF_FILES.items() if not cases]
