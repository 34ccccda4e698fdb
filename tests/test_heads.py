"""The heads of public functions, as their source gives them, are those of the functions."""

import inspect
import math
import sys

import pytest

from probekit.functions import FUNCTIONS, find, place_of
from probekit.heads import head, hint


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_head_is_that_of_the_function(name):
    function, read = find(name), head(place_of(name))
    assert read is not function
    assert vars(read)["options"] == vars(function)["options"]
    assert read.__doc__ == function.__doc__
    ours, theirs = (inspect.signature(one).parameters.values() for one in (read, function))
    assert [(p.name, p.kind, p.annotation) for p in ours] == [(p.name, p.kind, p.annotation) for p in theirs]


def test_objects_beside_texts_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text(
        "from __future__ import annotations\n"
        "from probekit.no_module import Thing\n"
        "MOST = 3\n"
        "def measure(one: str | Thing, /, most: int = MOST): pass\n"
        "late = measure\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    read = head("stranger:measure")
    assert inspect.signature(read).parameters["most"].default == 3
    assert hint(read, "one") is str
    assert "stranger" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        head("stranger:late")


def test_a_head_that_its_source_does_not_tell_is_that_of_the_function(tmp_path, monkeypatch):
    (tmp_path / "computing.py").write_text(
        "from __future__ import annotations\n"
        "import math\n"
        "LEVEL: float = 0.9\n"
        "LOW, HIGH = 0.1, 0.9\n"
        "def measure(*, level: float = LEVEL, turn: float = math.pi, low: math.inf.__class__ = LOW): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    read = head("computing:measure")
    assert [p.default for p in inspect.signature(read).parameters.values()] == [0.9, math.pi, 0.1]
    assert hint(read, "low") is float
