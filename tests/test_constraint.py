"""One check of values, by their annotations: from Python, from options, from recipes."""

import gc
import itertools
import weakref
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import pytest

import probekit
from probekit.adaptation.options import TrainOptions
from probekit.constraint import Checked, Commas, Draws, Ge, MinLen, OrZero, Positive, Seed, Share, check
from probekit.errors import UsageError
from probekit.functions import FUNCTIONS, find, parameters
from probekit.models.encoder import Encoder
from probekit.recipe import option

Penalties = Annotated[tuple[Positive, ...], MinLen(1)]
Layers = tuple[int | str, ...] | None


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("hint", "value", "found"),
    [
        (int, np.int64(3), 3),
        (int, 3.0, 3),
        (float, 1, 1.0),
        (float, np.float32(0.5), 0.5),
        (str | Path, "a", "a"),
        (Path, "a", Path("a")),
        (Colour, "red", Colour.RED),
        (Colour | None, None, None),
        (Layers, 1, (1,)),
        (Layers, "0,4-6", ("0", "4-6")),
        (Layers, np.array([1, 2]), (1, 2)),
        (Layers, range(2), (0, 1)),
        (Penalties, 0.1, (0.1,)),
        (Penalties, np.logspace(-1, 0, 2), (0.1, 1.0)),
        (Penalties, pd.Series([1, 2]), (1.0, 2.0)),
        (tuple[str, ...] | str, "a,b", ("a", "b")),
        (tuple[str, ...], {"cola": "CoLA"}, ("cola=CoLA",)),
        (Commas | None, ["a", "b"], "a,b"),
        (tuple[Path, ...] | None, "a,b", (Path("a"), Path("b"))),
    ],
)
def test_what_is_taken(hint, value, found):
    got = check("x", hint, value)
    assert got == found
    assert type(got) is type(found)


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (Annotated[int, Ge(2)], 1, "x is 1; it must be 2 or more."),
        (Annotated[int, Ge(2)], "3", "x is '3'; it must be a whole number."),
        (int, True, "x is True; it must be a whole number."),
        (int, 10**4000, "x is a number of 4,001 digits; it must be at most 9,223,372,036,854,775,807."),
        (Draws, 10**12, "x is 1000000000000; it must be at most 10,000."),
        (Seed | None, -1, "x is -1; it must be a seed, a whole number from 0 to 4294967295."),
        (Share, float("nan"), "x is nan; it must be a finite number."),
        (float, "x", "x is 'x'; it must be a number."),
        (Penalties, (1, -1), "x is (1, -1); -1 does not fit: it must be above 0."),
        (Penalties, (), "x is empty; name a number above 0, one or more."),
        (Colour, "rde", "x is 'rde'; did you mean red?"),
        (Literal["a", "b"], "q", "x is 'q'; it must be one of a, b."),
        (Colour, 3, "x is 3; it must be red or blue."),
        (str | Path, 3.5, "x is 3.5; it must be a path."),
        (Path, "a\0b", "x is 'a\\x00b'; no path contains a NUL character."),
        (str, "\ud800", "x is '\\ud800'; it holds half of a character (a surrogate), which cannot be written."),
        (str | Encoder, pd.DataFrame({"a": [1]}), "x is a 0 1; it must be a text or an Encoder."),
        (Encoder, {"tokenize": 1}, "x is {'tokenize': 1}; it must be an Encoder."),
        (Annotated[int, OrZero(100, "none")], 5, "x is 5; it must be 100 or more, or 0 for none."),
    ],
)
def test_what_is_refused(hint, value, message):
    with pytest.raises(UsageError) as told:
        check("x", hint, value)
    assert str(told.value) == message


@dataclass(frozen=True, slots=True)
class Base(Checked):
    folds: Annotated[int, Ge(2)] = option(5, "Folds.")

    def together(self) -> None:
        if self.folds == 7:
            raise UsageError("folds is 7, and so is no other option.")


@dataclass(frozen=True, slots=True)
class Wide(Base):
    layers: tuple[int | str, ...] | None = option(None, "Layers.")


def test_options_are_checked_with_those_of_their_base():
    assert Wide(folds=np.int64(3), layers=1) == Wide(folds=3, layers=(1,))
    for folds, message in ((1, "folds is 1"), (7, "no other option")):
        with pytest.raises(UsageError, match=message):
            Wide(folds=folds)


def test_values_of_several_options_stand_in_one_text():
    assert TrainOptions(also=["a", "b.toml"], save_at=[10, 20]).also == "a,b.toml"


ODD = (
    None,
    float("nan"),
    float("inf"),
    -1,
    10**30,
    "3",
    "",
    [],
    np.zeros((2, 2)),
    {"a": 1},
    b"x",
    True,
    object(),
    "a\0b",
)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_no_odd_value_of_an_option_ends_in_another_error(name):
    """Each option with each value, beside inputs that do not exist: a UsageError about either, and nothing is read."""
    function = find(name)
    for kind in getattr(function, "options", {}).values():
        assert issubclass(kind, Checked)
        for f, value in itertools.product(fields(kind), ODD):
            try:
                kind(**{f.name: value})
            except UsageError as error:
                assert str(error)  # noqa: PT017 any sentence
            except TypeError as error:
                assert "required" in str(error)  # noqa: PT017 a field without a default


def test_inputs_without_a_name_in_calls_may_be_named():
    with pytest.raises(UsageError, match=r"probe: missing .*'dev'; call it as probe\(train, dev, \*more, …\)"):
        probekit.probe(train="a.h5")
    with pytest.raises(UsageError, match="folds is '3'; it must be a whole number"):
        probekit.probe(train="a.h5", dev="b.h5", folds="3")
    with pytest.raises(UsageError, match="train is given twice"):
        probekit.probe("a.h5", train="a.h5", dev="b.h5")
    assert [p.name for p in parameters("probe").values()][:2] == ["train", "dev"]


def test_a_list_within_itself_is_no_recipe():
    rows = []
    rows.append(rows)
    with pytest.raises(UsageError, match="a list within itself"):
        probekit.table("regimes", rows)
    with pytest.raises(UsageError, match="the list of rows holds itself"):
        probekit.glue_score(rows)


class Text(str):
    """A text that can be referred to weakly."""


@pytest.mark.parametrize("given", [lambda text: text, lambda text: (text, "b"), lambda text: [text]])
def test_a_check_leaves_no_cycle_that_keeps_the_callers_values(given):
    text = Text("a")
    kept = weakref.ref(text)
    gc.disable()
    try:
        check("out", int | str | Path | tuple[str, ...] | None, given(text))
        del text
        assert kept() is None
    finally:
        gc.enable()
