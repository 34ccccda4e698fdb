"""Recipes: a call as a value, its words, and what is refused."""

import inspect
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import probekit
from probekit import functions
from probekit import recipe as module
from probekit.cli import main
from probekit.errors import UsageError
from probekit.functions import FUNCTIONS
from probekit.provenance.old_cards import recipe_of_command
from probekit.public import public
from probekit.recipe import Recipe, as_json, check_arguments, current, option
from probekit.rows import Result, make_rows


@dataclass(frozen=True, slots=True)
class Options:
    folds: int = option(5, "Of train.")
    layers: tuple[int | str, ...] | None = option(None, "Which.")
    balanced: bool = option(False, "Whether.")

    def __post_init__(self):
        if self.folds < 2:
            raise UsageError(f"folds is {self.folds}.")


@public("probe", options=Options)
def toy(train: str | Path, /, *more: str | Path, options: Options, progress=None) -> Result:
    """A toy in the place of a public function."""
    record = {"task": "t", "split": "dev", "model": "m", "representation": "mean", "estimator": "e", "target": "gold"}
    rows = make_rows([record | {"analysis": "probe", "metric": "accuracy", "value": options.folds / 10, "n": 3}])
    return Result(rows.assign(outermost=str(current())))


probe = toy  # by the name of the public function


@pytest.fixture(autouse=True)
def table(monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "probe", __name__)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[toy.__module__])
    functions.types_of.cache_clear()
    yield
    functions.types_of.cache_clear()


def test_options_one_by_one_or_together_are_one_recipe():
    one, two = toy("a.h5", folds=3), toy("a.h5", options=Options(folds=3))
    assert one.recipe == two.recipe
    assert one.recipe.arguments == {"train": "a.h5", "folds": 3}
    assert one.recipe.defaults == {"more": [], "layers": None, "balanced": False}
    assert one.rows["outermost"].iloc[0] == str(one.recipe)


def test_a_recipe_is_json_and_runs_again():
    first = toy(Path("a.h5"), "b.h5", layers=[0, "final_norm"], folds=4)
    again = Recipe.from_json(json.loads(json.dumps(first.recipe.to_json())))
    assert again == first.recipe
    assert again.run().recipe == first.recipe
    assert again.run().rows["value"].iloc[0] == 0.4


def test_words():
    told = toy("a b.h5", "c.h5", layers=(0, 6), balanced=True, folds=3).recipe
    assert told.words() == ["probekit", "probe", "a b.h5", "c.h5", "--folds", "3", "--layers", "0,6", "--balanced"]
    assert str(told).startswith("probekit probe 'a b.h5' c.h5")


def test_where_it_is_written_and_how_many_threads_are_no_part_of_its_identity(tmp_path):
    a, b = toy("a.h5").recipe, toy("a.h5", out=tmp_path / "x.parquet").recipe
    assert a.arguments == b.arguments
    assert b.leaves == {"out": str(tmp_path / "x.parquet")}
    assert a.identity(["1"]) == b.identity(["1"])
    assert len({a.identity(["1"]), a.identity(["2"]), toy("a.h5", folds=3).recipe.identity(["1"])}) == 3


def test_the_signature_shows_every_option():
    assert list(inspect.signature(toy).parameters) == [
        "train",
        "more",
        "progress",
        "folds",
        "layers",
        "balanced",
        "out",
    ]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"function": "os.system", "arguments": {"train": "x"}}, "no function 'os.system'"),
        ({"function": "probe", "arguments": {"train": "x", "shell": True}}, "has no parameter 'shell'"),
        ({"function": "probe", "arguments": {"train": "x", "out": "/etc/passwd"}}, "has no parameter 'out'"),
        ({"function": "probe", "arguments": {"train": "x", "progress": "print"}}, "has no parameter 'progress'"),
        ({"function": "probe", "arguments": {"train": "x"}, "leaves": {"train": "y"}}, "has no parameter 'train'"),
        ({"function": "probe", "arguments": ["train"]}, "is not a recipe"),
        ("probekit probe a.h5", "is not a recipe"),
        ({}, "is not a recipe"),
        (None, "is not a recipe"),
    ],
)
def test_a_strangers_recipe_is_refused(told, message):
    with pytest.raises(UsageError, match=message):
        Recipe.from_json(told)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": "many"}, "folds is 'many'"),
        ({"folds": 1}, "folds is 1"),
        ({"layers": {"a": 1}}, "layers is"),
        ({"train": 3.5}, "train is 3.5"),
        ({"train": {"object": "probekit.tasks.Task"}}, "train of probe was a Python object"),
    ],
)
def test_arguments_are_checked_before_anything_runs(change, message):
    told = toy("a.h5").recipe
    with pytest.raises(UsageError, match=message):
        replace(told, arguments={**told.arguments, **change}).run()


def test_a_misspelt_option_is_told_with_the_closest():
    with pytest.raises(UsageError, match="has no parameter 'fold'; did you mean folds"):
        toy("a.h5", fold=3)


def test_results_of_other_analyses_are_nested_recipes(tmp_path):
    inner = toy("a.h5")
    assert as_json(inner) == {"recipe": inner.recipe.to_json()}
    assert as_json(inner.save(tmp_path / "x.parquet")) == str(tmp_path / "x.parquet")
    assert as_json(object()) == {"object": "builtins.object"}


def test_a_nested_recipe_writes_nothing(tmp_path):
    inner = {"function": "probe", "arguments": {"train": "a"}, "leaves": {"out": str(tmp_path / "x.parquet")}}
    module._made({"recipe": inner})
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="train does not return a result"):
        module._made({"recipe": {"function": "train", "arguments": {}, "leaves": {"out": str(tmp_path)}}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": "many"}, "folds is 'many'"),
        ({"folds": 1}, "folds is 1"),
        ({"more": [3.5]}, "more is"),
        ({"fold": 3}, "has no parameter 'fold'; did you mean folds"),
        ({"train": {"recipe": {"function": "probe", "arguments": {"folds": 3}}}}, "probe needs train"),
    ],
)
def test_a_recipe_is_checked_without_being_run(change, message):
    told = toy("a.h5").recipe
    told.check()
    with pytest.raises(UsageError, match=message):
        replace(told, arguments={**told.arguments, **change}).check()
    assert functions.takes_many("probe", "layers")
    assert not functions.takes_many("probe", "folds")


def test_an_axes_of_ones_own_is_drawn_by_other_functions():
    with pytest.raises(UsageError, match=r"probekit.plots.layer_curve\(result.rows, ax=ax\)"):
        Recipe.of("plot", {"ax": 1})


@pytest.mark.parametrize(
    ("function", "former", "identity"),
    [
        ("mi", "shuffles", "a54fc6746e7204ac4d457a4389ceac44"),
        ("transferability", "permutations", "6589908a32d9100b89905992beff1f57"),
    ],
)
def test_recipes_and_commands_of_before_have_the_new_names(function, former, identity, capsys):
    """Their identity is the one of before, so that a study goes on; a call or a command line is told the new name."""
    defaults = dict(Recipe.of(function, {"caches": ["a.h5"]}).defaults)
    defaults.pop("draws")
    assert defaults.pop("span_pair") == "compared"
    old = {"function": function, "arguments": {"caches": ["a.h5"], former: 50}, "defaults": defaults}
    recipe = Recipe.from_json(old)
    assert recipe.arguments == {"caches": ["a.h5"], "draws": 50}
    assert recipe.defaults["span_pair"] == "sides"  # an option of today that is not what was done before
    assert Recipe.from_json(old | {"defaults": {}}).defaults == {}  # written by hand
    of_words = recipe_of_command(f"probekit {function} a.h5 --{former} 50")
    assert (of_words.arguments, of_words.defaults["span_pair"]) == (recipe.arguments, "sides")
    with pytest.raises(UsageError, match=f"^{former} of {function} is now draws.$"):
        getattr(probekit, function)("a.h5", **{former: 50})
    with pytest.raises(UsageError, match=f"^{former} of {function} is now draws.$"):
        check_arguments(function, {former: 50})  # as from a TOML file
    for words in ([f"--{former}", "50"], [f"--{former}=50"]):
        assert main([function, "a.h5", *words]) == 2
        assert f"--{former} is now --draws." in capsys.readouterr().err
