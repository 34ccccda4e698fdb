"""What labels are read as, and what is said of those that can not be read."""

from __future__ import annotations

import re

import numpy as np
import pytest

from probekit import mutual_information
from probekit.errors import NonFiniteError, UsageError
from probekit.information.response import response, vectors

CODES = np.arange(30) % 3
NUMBERS = np.linspace(-1.5, 2.25, 30)

CLASSES = {
    "integers": 10 * CODES - 4,
    "small integers": CODES.astype(np.uint8),
    "strings": np.array(["no", "perhaps", "yes"])[CODES],
    "bytes": np.array([b"a", b"b", b"c"])[CODES],
    "objects": np.array(["no", "perhaps", "yes"], dtype=object)[CODES],
    "a list": ["no perhaps yes".split()[code] for code in CODES],
    "one-hot": np.eye(3)[CODES],
    "one-hot integers": np.eye(3, dtype=int)[CODES],
    "one-hot booleans": np.eye(3, dtype=bool)[CODES],
    "whole floats": CODES - 1.0,
    "a column": CODES[:, None],
    "a column of strings": np.array(["no", "perhaps", "yes"])[CODES][:, None],
}


@pytest.mark.parametrize("kind", CLASSES)
def test_labels_that_are_classes(kind):
    found = response(CLASSES[kind])
    assert found.numbers is None
    assert found.codes.dtype == np.int64
    assert found.codes.tolist() == CODES.tolist()
    assert (len(found), found.classes, found.several) == (30, 3, False)
    assert found.entropy == pytest.approx(np.log2(3), abs=1e-12)


def test_booleans_are_two_classes():
    found = response(CODES == 1)
    assert found.codes.tolist() == (CODES == 1).astype(int).tolist()
    p = 1 / 3
    assert found.entropy == pytest.approx(-p * np.log2(p) - (1 - p) * np.log2(1 - p), abs=1e-12)


def test_classes_that_do_not_occur_are_not_counted():
    assert response(CODES * 1000).classes == 3
    assert response(np.eye(7)[CODES * 3]).codes.tolist() == CODES.tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_are_numbers(dtype):
    found = response(NUMBERS.astype(dtype))
    assert found.codes is None
    assert found.numbers.dtype == np.float64
    assert found.numbers[:, 0].tolist() == NUMBERS.astype(dtype).tolist()
    assert (len(found), found.classes, found.entropy, found.several) == (30, 0, np.inf, False)


def test_columns_are_numbers_but_for_one_hot_ones():
    two = np.column_stack([NUMBERS, NUMBERS**2])
    found = response(two)
    assert found.several
    assert np.array_equal(found.numbers, two)
    twice = np.eye(3)[CODES]
    twice[4] = 1, 1, 0  # of two classes at once: no classes, then
    assert response(twice).codes is None
    assert response(np.column_stack([CODES, CODES])).several


def test_discrete_says_otherwise():
    assert response(CODES, discrete=False).numbers[:, 0].tolist() == CODES.tolist()
    assert response(np.eye(3)[CODES], discrete=False).numbers.shape == (30, 3)
    assert response(NUMBERS, discrete=True).codes.tolist() == list(range(30))
    assert response(np.round(NUMBERS) + 0.5, discrete=True).classes == 5
    assert response(CODES, discrete=True).codes.tolist() == response(CODES).codes.tolist()


REFUSED = {
    "ragged": ([[1], [1, 2]] * 15, {}, "y is [[1], [1, 2], [1], [1, 2], "),
    "3-d": (np.zeros((30, 2, 2)), {}, "labels are an array (n,) or (n, m), not of shape (30, 2, 2)."),
    "a number": (3, {}, "labels are an array (n,) or (n, m), not of shape ()."),
    "empty": ([], {}, "labels are an array (n,) or (n, m), not of shape (0,)."),
    "no columns": (np.zeros((30, 0)), {}, "labels are an array (n,) or (n, m), not of shape (30, 0)."),
    "one class": (np.full(30, 7), {}, "all 30 labels are 7: there is nothing to know about them."),
    "one string": (["a"] * 30, {}, "all 30 labels are 'a': there is nothing to know about them."),
    "one hot column": (np.eye(3)[np.ones(30, dtype=int)], {}, "all 30 labels are 1: there is nothing to know"),
    "one number": (np.full(30, 0.5), {}, "all 30 labels are [0.5]: there is nothing to know about them."),
    "19": (CODES[:19], {}, "mutual information needs at least 20 examples; there are 19."),
    "no label": (np.array(["a", None] * 15, dtype=object), {}, "these are objects of type NoneType, str."),
    "mixed": (np.array(["a", 1] * 15, dtype=object), {}, "these are objects of type int, str."),
    "strings as numbers": (CLASSES["strings"], {"discrete": False}, "labels are strings, so they are classes"),
    "columns as classes": (np.column_stack([CODES] * 2), {"discrete": True}, "shape (30, 2) is neither."),
    "columns of strings": (np.full((30, 2), "a"), {}, "classes are (n,) or one-hot (n, k); shape (30, 2) is neither."),
    "complex": (NUMBERS + 1j, {}, "labels are integers, booleans, strings or floats, not complex128."),
    "dates": (
        CODES.astype("datetime64[D]"),
        {},
        "labels are integers, booleans, strings or floats, not datetime64[D].",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_labels_that_are_refused(case):
    labels, how, message = REFUSED[case]
    x = np.random.default_rng(0).standard_normal((30, 2))
    with pytest.raises(UsageError, match=re.escape(message)):
        mutual_information(x, labels, **how)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_label_that_is_no_number_is_named(bad):
    one, two = NUMBERS.copy(), np.column_stack([NUMBERS, NUMBERS])
    one[[11, 20]] = two[[17, 25], [1, 0]] = bad
    for labels, row in ((one, 11), (two, 17)):
        for discrete in (None, True, False):
            with pytest.raises(NonFiniteError, match=f"label {row} is NaN or infinite; leave unlabelled"):
                response(labels, discrete=discrete)


def test_labels_are_not_changed():
    for labels in (*CLASSES.values(), NUMBERS):
        given = np.array(labels)
        response(given)
        assert np.array_equal(given, labels)


VECTORS = {
    "a list": ([[1, 2], [3, 4.5]] * 15, np.float64),
    "integers": (np.arange(60).reshape(30, 2), np.float64),
    "booleans": (np.eye(30, dtype=bool), np.float64),
    "float16": (np.ones((30, 2), dtype=np.float16), np.float32),
    "float32": (np.ones((30, 2), dtype=np.float32), np.float32),
    "float64": (np.ones((30, 2)), np.float64),
    "one column": (NUMBERS, np.float64),
}


@pytest.mark.parametrize("kind", VECTORS)
def test_vectors_are_widened_not_copied(kind):
    given, dtype = VECTORS[kind]
    found = vectors(given, 30)
    assert found.dtype == dtype
    assert np.array_equal(found, np.asarray(given).reshape(30, -1))
    assert (found is given) == (kind in ("float32", "float64"))


REFUSED_VECTORS = {
    "ragged": ([[1.0], [1.0, 2.0]] * 15, "x is [[1.0], [1.0, 2.0], "),
    "3-d": (np.zeros((30, 2, 2)), "vectors are a matrix (n, d) with at least one column, not of shape (30, 2, 2)."),
    "no columns": (np.zeros((30, 0)), "with at least one column, not of shape (30, 0)."),
    "strings": (np.full((30, 2), "a"), "vectors are numbers, not <U1."),
    "complex": (np.full((30, 2), 1j), "vectors are numbers, not complex128."),
    "too few": (np.zeros((29, 2)), "29 vectors do not go with 30 labels."),
}


@pytest.mark.parametrize("case", REFUSED_VECTORS)
def test_vectors_that_are_refused(case):
    given, message = REFUSED_VECTORS[case]
    with pytest.raises(UsageError, match=re.escape(message)):
        vectors(given, 30)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_vectors_that_hold_no_numbers_are_refused(bad, dtype):
    x = np.random.default_rng(0).standard_normal((30, 4)).astype(dtype)
    assert mutual_information(x, CODES, draws=0).n == 30  # the control
    x[7, 2] = bad
    with pytest.raises(NonFiniteError, match="NaN or infinity, in column 2"):
        mutual_information(x, CODES)
