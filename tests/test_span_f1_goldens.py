"""Span F1 against AllenNLP's, recorded."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from probekit.metrics import metric
from probekit.statistics.bootstrap import estimates

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


PREFIXES = "B I E S L U M O .".split()
TAGS = st.lists(
    st.one_of(
        st.just("O"),
        st.builds("{}-{}".format, st.sampled_from(PREFIXES), st.sampled_from(["X", "Y", "X-Y", ""])),
        st.sampled_from([*PREFIXES, "PER", "BX", "-X"]),
    ),
    min_size=1,
    max_size=7,
)


@settings(deadline=None)
@given(st.lists(st.tuples(TAGS, st.randoms(use_true_random=False)), min_size=1, max_size=4))
def test_spans_are_those_of_seqeval(sentences):
    """Also where tags are ill formed; L, U and M, which it does not know, are spelled as it knows them."""
    theirs = pytest.importorskip("seqeval.metrics")
    gold = [tags for tags, _ in sentences]
    guess = [[random.choice([*tags, "O", "B-X", "I-Y"]) for _ in tags] for tags, random in sentences]
    known = {"L": "E", "U": "S", "M": "I"}

    def spelled(y):
        parts = [[tag.partition("-") for tag in tags] for tags in y]
        return [["".join((known.get(a, a), dash, rest)) for a, dash, rest in tags] for tags in parts]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = theirs.f1_score(spelled(gold), spelled(guess), zero_division=0)
    assert span_f1(gold, guess) == pytest.approx(wanted, abs=1e-12)


@settings(deadline=None)
@example([["O", "I-"], [".", "I"]])  # an entity that closes without being opened
@given(st.lists(TAGS, min_size=1, max_size=4))
def test_spans_in_codes_are_those_of_the_metric(gold):
    """Each of three fits says something else; the sums of whole words are what the metric counts."""
    names = sorted({tag for tags in gold for tag in tags} | {"O", "B-X"})
    guess = [[[names[(names.index(tag) + k * (i % 2)) % len(names)] for i, tag in enumerate(tags)] for tags in gold]
             for k in range(3)]  # fmt: skip
    as_objects = np.empty(len(gold), dtype=object), np.empty((3, len(gold)), dtype=object)
    as_objects[0][:] = gold
    for k, one in enumerate(guess):
        as_objects[1][k, :] = one
    found = estimates(*as_objects, "span-f1")
    np.testing.assert_allclose(np.nan_to_num(found), [span_f1(gold, one) for one in guess], atol=1e-12)
