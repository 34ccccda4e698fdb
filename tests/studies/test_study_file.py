"""Study files: what they may say, and what is told where they say something else."""

import pytest

from probekit.errors import DataError, UsageError
from probekit.studies.catalogue import shipped
from probekit.studies.file import read_study

GOOD = """
title = "A study"
models = { tiny = "where" }
[[train]]
tasks = ["grammar:sentiment"]
fine-tune = { epochs = 1 }
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return path

    return write


def test_a_study_has_the_name_of_its_file_and_both_regimes(written):
    study = read_study(written(GOOD))
    assert study.name == "mine"
    (block,) = study.train
    assert [str(regime) for regime in block.regimes] == ["feature-extraction", "fine-tune"]
    assert [block.of_regime(regime) for regime in block.regimes] == [{}, {"epochs": 1}]


def test_what_is_changed_on_the_command_line(written):
    changes = ["train.0.seeds=[0, 1]", "train.0.fine-tune.learning_rate=1e-3", "title=Another", "data.mnli=here"]
    study = read_study(written(GOOD), models={"other": "there"}, changes=changes)
    assert study.train[0].seeds == [0, 1]
    assert study.train[0].fine_tune == {"epochs": 1, "learning_rate": 1e-3}
    assert (study.title, study.models, study.data) == ("Another", {"other": "there"}, {"mnli": "here"})
    for change in ("train.0.seeds", "train.7.seeds=[1]", "train.seeds=[1]", "title.x=1", "domains.0.task=mnli"):
        with pytest.raises(UsageError, match="does not match a value"):
            read_study(written(GOOD), changes=[change])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("train.limit=500", "train is a list of sections; write train.0.limit=500."),
        ("train.fine-tune.epochs=2", "write train.0.fine-tune.epochs=2."),
        (
            "train.0.limit_dev=5",
            r"\[\[train\]\] has no key limit_dev, but \[\[probe\]\] has: write probe.0.limit_dev=5.",
        ),
        ("train.limit_dev=5", r"but \[\[probe\]\] has: write probe.0.limit_dev=5."),
        ("train.1.limit=5", r"it has 1 section \[\[train\]\], numbered from 0."),
        ("mi.0.limit=5", r"it has no section \[\[mi\]\]."),
        ("train.0.limit", "write key=value"),
    ],
)
def test_a_change_that_leads_nowhere_says_what_to_write(written, change, what):
    with pytest.raises(UsageError, match=f"does not match a value of the study; .*{what}"):
        read_study(written(GOOD), changes=[change])


def test_models_keep_their_names_or_it_is_said(written, caplog):
    text = GOOD.replace('models = { tiny = "where" }', 'models = { tiny = "where", other = "there" }')
    assert read_study(written(text), models={"tiny": "here"}).models == {"tiny": "here", "other": "there"}
    assert caplog.text == ""
    assert read_study(written(GOOD), models={"minilm": "here"}).models == {"minilm": "here"}
    assert caplog.messages == [
        "the study has the model tiny, which is replaced by minilm. To keep a name, write --model tiny=MODEL."
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('title = "x"', "lacks models"),
        ('title = "x"\nmodels = {}', "lacks models"),
        (GOOD.replace("tasks =", "task ="), r"train.0.tasks|did you mean 'tasks'"),
        (GOOD + "epochs = 3", r"unknown key 'train.0.epochs'"),
        (GOOD + '[[probe]]\ntasks = ["cola"]\nof = ["frozen"]', "probe.0.of.0 is 'frozen'"),
        (GOOD.replace("epochs = 1", "epoch = 1"), "no option 'epoch'; did you mean epochs"),
        (GOOD.replace("epochs = 1", "epochs = 0"), "epochs is 0; it must be 1 or more"),
        (GOOD.replace("epochs = 1", 'epochs = "three"'), "epochs is 'three'; it must be a whole number"),
        (GOOD.replace('"A study"', "A study"), "not valid TOML"),
        (GOOD + "limit = -5", "train.0.limit is -5"),
        (GOOD.replace("fine-tune =", "seeds = [-1]\nfine-tune ="), "train.0.seeds.0 is -1"),
        (GOOD.replace("fine-tune =", "regimes = []\nfine-tune ="), "train.0.regimes is \\[\\]"),
        (GOOD + '[[probe]]\ntasks = ["cola"]\nof = []', "probe.0.of is \\[\\]"),
        (GOOD + '[[probe]]\ntasks = ["cola"]\npoolings = ["meen"]', "probe.0.poolings.0 is 'meen'"),
        (
            GOOD + '[[mi]]\ntasks = ["cola"]\noptions = { out = "x" }',
            "out is not allowed in options, because the study sets it",
        ),
        ('title = "x"\nmodels = { a = "b" }', "has no analysis"),
        ("caches = { random_weights = 5 }" + GOOD, "random_weights is not allowed in options"),
        ("caches = { batch-tokens = 0 }" + GOOD, "caches: batch_tokens is 0"),
        ("caches = { dtypes = 'float16' }" + GOOD, "caches: cache_activations has no parameter 'dtypes'"),
        ('page = "rows/x.parquet"' + GOOD, "'rows/x.parquet' is not the name of a page"),
        (GOOD + '[[mdl]]\ntasks = ["cola"]\ntogether = true', "mdl.0.together has no effect"),
        (GOOD + 2 * '[[shift]]\ntasks = ["a", "b"]\n', "give each its own group"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(written, text, told):
    with pytest.raises(DataError, match=told) as error:
        read_study(written(text))
    assert "mine.toml" in str(error.value)


def test_a_suite_may_have_sections_of_one_analysis(written):
    text = 'title = "x"\nmodels = { a = "b" }\n[[edges]]\ntasks = ["ud"]\ngroup = "g"\n'
    assert [block.analysis for block in read_study(written(text), "suite").of_tasks] == ["edges"]


def test_unknown_studies_and_files():
    with pytest.raises(UsageError, match="no study 'table7'; did you mean .*table6-full.* must end in .toml"):
        read_study("table7")
    with pytest.raises(DataError, match="cannot be read"):
        read_study("nowhere.toml")


@pytest.mark.parametrize("name", shipped("study"))
def test_the_studies_that_come_with_probekit_are_whole(name):
    study = read_study(name)
    assert study.name == name
    assert study.title
    assert study.table or study.figure
