"""Words of a recipe are read as the same recipe; recipes of strangers are checked before anything is read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probekit.analyses import train_dev
from probekit.analyses.compare import measure as compare_module
from probekit.analyses.mdl import measure as mdl_module
from probekit.cli import main
from probekit.errors import UsageError
from probekit.functions import types_of
from probekit.recipe import Recipe, current


class Reached(Exception):
    """The work itself would begin."""


@pytest.fixture
def reached(monkeypatch):
    """Recipes with which the work would have begun."""
    found = []

    def stop(*_, **__):
        found.append(current())
        raise UsageError("reached")

    monkeypatch.setattr(train_dev, "Pairs", stop)
    monkeypatch.setattr(mdl_module, "open_caches", stop)
    monkeypatch.setattr(compare_module, "predictions_of", stop)
    monkeypatch.setattr(compare_module, "read", stop)
    types_of.cache_clear()
    yield found
    types_of.cache_clear()


COUNT = st.integers(0, 99)
LAYERS = st.lists(st.one_of(st.integers(-13, 12), st.just("final_norm")), min_size=1, max_size=4)
POSITIVE = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=4)
NAME = st.text("abcdefgh-", min_size=1, max_size=8).filter(lambda text: text.strip("-") == text)
OPTIONS = {
    "probe": {
        "metrics": st.lists(st.sampled_from(["f1", "accuracy", "matthews"]), min_size=1, unique=True), "pooling": NAME,
        "layers": LAYERS, "estimator": st.sampled_from(["logistic", "mlp", "mass-mean"]), "penalties": POSITIVE,
        "choose_by": NAME, "folds": st.integers(2, 9), "held_out": st.floats(0.05, 0.9), "balanced": st.booleans(),
        "hold_out_domains": st.booleans(), "controls": COUNT, "calibrate": st.booleans(),
        "resamples": st.integers(100, 999), "level": st.floats(0.5, 0.99), "seed": COUNT, "threads": st.integers(1, 8),
    },
    "mdl": {
        "pooling": NAME, "layers": LAYERS, "code": st.sampled_from(["online", "variational"]), "controls": COUNT,
        "penalties": POSITIVE, "seed": COUNT,
    },
    "compare": {
        "against": NAME.map("layer-{}".format), "metric": NAME, "correction": st.sampled_from(["max-t", "holm"]),
        "tails": st.sampled_from(["two-sided", "better"]), "resamples": st.integers(100, 999), "seed": COUNT,
    },
    "summary": {"metric": NAME, "resamples": st.integers(100, 999), "level": st.floats(0.5, 0.99), "seed": COUNT},
}  # fmt: skip
THINGS = {
    "probe": {"train": "a.h5", "dev": "b.h5"}, "mdl": {"train": "a b.h5"},
    "compare": {"first": "a.parquet", "second": "$(touch x).parquet"}, "summary": {"first": "a.parquet"},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_words_are_read_as_the_recipe_that_they_show(name, reached, capsys):
    @settings(max_examples=15, deadline=None)
    @given(st.fixed_dictionaries({}, optional=OPTIONS[name]))
    def check(options):
        recipe = Recipe.of(name, THINGS[name] | options)
        reached.clear()
        assert main(recipe.words()[1:]) == 2
        assert [one.to_json() for one in reached] == [recipe.to_json()], capsys.readouterr().err

    check()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("probe", {"folds": "3; rm -rf /"}),
        ("probe", {"folds": {"object": "os.system"}}),
        ("probe", {"seed": -1}),
        ("probe", {"estimator": "svm"}),
        ("probe", {"penalties": ["x"]}),
        ("probe", {"layers": [{"recipe": {"function": "os.system", "arguments": {}}}]}),
        ("probe", {"progress": "print"}),
        ("probe", {"__class__": "x"}),
        ("mdl", {"code": "prequential"}),
        ("mdl", {"controls": 1e99}),
        ("compare", {"correction": "none"}),
        ("compare", {"resamples": 1}),
        ("compare", {"second": 3}),
        ("summary", {"level": 2}),
        ("summary", {"more": "a.parquet"}),
    ],
)
def test_hostile_values_are_refused_before_anything_is_read(name, arguments, reached):
    with pytest.raises(UsageError):
        Recipe.from_json({"function": name, "arguments": THINGS[name] | arguments}).run()
    assert not reached


def test_brackets_in_help_are_shown_wherever_help_is_asked(capsys):
    for words in (["--help", "mi"], ["mi", "--help"]):
        main(words)
        assert "[u; v]" in capsys.readouterr().out


def test_help_shows_every_option_and_an_example(capsys):
    for name, options in OPTIONS.items():
        main([name, "--help"])
        said = capsys.readouterr().out
        assert all(f"--{option.replace('_', '-')}" in said for option in options)
        assert f"probekit {name} " in said
