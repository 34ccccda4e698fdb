"""Span F1 against AllenNLP's, recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probekit.metrics import metric

SHARED = Path(__file__).parents[1] / "../shared/goldens/task_models/span_f1.json"
CASES = json.loads(SHARED.read_text()) if SHARED.exists() else {}
span_f1 = metric("span-f1").function

OURS = {
    "BIO_ignore_class": 0.5,  # V, ignored there, is right: 1 of 2 and 1 of 2
    "BIO_continuation_partial": 2 / 3,  # C-ARG1 is a type like others: 2 of 2 and 2 of 4
    "BIOUL_broken_B_no_L": 1.0,  # refused there; here one entity of one word
    "BIOUL_broken_I_start": 1.0,  # refused there; here one entity of two
}
"""Where the definitions differ: counted by hand."""


@pytest.mark.shared
@pytest.mark.skipif(not CASES, reason=f"the recorded outputs are not at {SHARED}")
@pytest.mark.parametrize("name", CASES)
def test_span_f1(name):
    case = CASES[name]
    found = span_f1(case["gold"], case["pred"])
    if name in OURS:
        assert found == pytest.approx(OURS[name])
        assert case["error"] or case["metrics"]["f1-measure-overall"] != pytest.approx(OURS[name])
    else:
        assert found == pytest.approx(case["metrics"]["f1-measure-overall"], abs=1e-12)


@pytest.mark.shared
@pytest.mark.skipif(not CASES, reason=f"the recorded outputs are not at {SHARED}")
def test_all_are_there():
    assert len(CASES) == 18
    assert set(OURS) < set(CASES)


def test_entities_of_one_word_that_touch():
    assert span_f1([["U-PER", "U-PER"]], [["U-PER", "O"]]) == pytest.approx(2 / 3)
    assert span_f1([["B-PER", "L-PER", "U-PER"]], [["B-PER", "I-PER", "L-PER"]]) == 0
    assert span_f1([["B", "M", "E", "S"]], [["B", "M", "E", "S"]]) == 1
