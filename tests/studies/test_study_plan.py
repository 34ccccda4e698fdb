"""From a study to its steps: which commands, and what is told before anything is done."""

import re
from html import escape
from pathlib import Path

import pytest

from probekit.analysis import analyses
from probekit.cli import main
from probekit.errors import DataError, ProbekitError, UsageError
from probekit.rows import read_card
from probekit.studies.file import read_study
from probekit.studies.plan import study_steps
from probekit.studies.sources import Sources

HEAD = 'title = "A study"\nmodels = {{ tiny = "{model}" }}\n'
TEXTS = '[[probe]]\ntasks = ["grammar:sentiment"]\n'
WORDS = '[[probe]]\ntasks = ["words.toml"]\n'
TASK = """
name = "words"
type = "sequence-labelling"
format = "conll"
words = 1
tags = 2
[splits]
train = "train.txt"
dev = "dev.txt"
"""


@pytest.fixture
def written(tmp_path, tiny_bert, monkeypatch):
    """The path of a study with the sections given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.toml").write_text(TASK)
    for split, word in (("train", "cat"), ("dev", "dog")):
        (tmp_path / f"{split}.txt").write_text(f"the O\n{word} B-x\n\n{word} B-x\nis O\nnot O\n" * 20)

    def write(*sections):
        path = tmp_path / "mine.toml"
        path.write_text(HEAD.format(model=tiny_bert) + "\n".join(sections))
        return path

    return write


def steps(path, **how):
    planned = study_steps(read_study(path, **how))
    return {step.name: step.recipe(Path("out")).arguments for step in planned if step.function}


def test_tasks_of_one_folder_are_named_together(tmp_path):
    sources = Sources(tmp_path, {"senteval": "probing", "senteval-tree-depth": "own", "ax-b": "glue"}, {})
    names = ("senteval-past-present", "senteval-tree-depth", "ax-b", "rte")
    assert [sources.folder(name) for name in names] == [*(tmp_path / f for f in ("probing", "own", "glue")), tmp_path]


def test_an_analysis_of_caches_stands_in_a_study_without_a_line_of_its_own_there(written):
    section = '[[geometry]]\ntasks = ["grammar:sentiment"]\nsplit = "dev"\noptions = { remove = 2 }\n'
    told = steps(written(section, '[[figure]]\nkind = "geometry"\nrows = "geometry"\n'))
    measured, drawn = told["geometry grammar-sentiment.tiny.pretrained.mean"], told["figure geometry"]
    assert (len(measured["caches"]), measured["pooling"], measured["remove"]) == (1, "mean", 2)
    assert drawn["rows"] == ["out/rows/geometry-grammar-sentiment.tiny.pretrained.mean.parquet"]
    with pytest.raises(DataError, match="geometry.0.options: remove is -1; it must be 0 or more"):
        read_study(written(section.replace("2", "-1")))


WITHOUT_CACHES = {"angles", "apply", "choices", "explain", "recheck", "stream", "ensemble", "surprisal"}
"""Analyses of models, texts, runs or kept probes."""
PLAIN_PAIRS = {"places", "units"}
"""Analyses of plain pairs of caches, which stand in no study."""
OF_ITS_OWN = {
    "scoreboard": '[[tasks]]\ngroup = "x"\ntasks = ["grammar:sentiment"]',
    "guidelines": '[[train]]\ntasks = ["grammar:sentiment"]',
    "compare": '[[compare]]\nof = ["pretrained", "random"]',
    "domains": '[[domains]]\ntask = "grammar:sentiment"',
    "summary": "[[summary]]",
    "movement": '[[movement]]\nof = ["pretrained", "random"]',
    "similarity": '[[similarity]]\nof = ["pretrained", "random"]',
    "directions": '[[directions]]\nof = ["pretrained", "random"]',
}
"""Sections without tasks, or of another name."""


@pytest.mark.parametrize("name", sorted({*analyses()} - WITHOUT_CACHES - PLAIN_PAIRS))
def test_each_analysis_of_caches_stands_in_a_study(written, name):
    section = OF_ITS_OWN.get(name, f'[[{name}]]\ntasks = ["grammar:sentiment", "grammar:acceptability"]')
    probe = TEXTS + 'of = ["pretrained", "random"]\nname = "both"'
    found = study_steps(read_study(written(probe, section)))
    assert any(f"{step.name} ".startswith(f"{name} ") for step in found)


def test_directions_read_train_and_dev_of_the_reference_then_of_the_others(written):
    probe = TEXTS + 'of = ["pretrained", "random"]\nseeds = [0, 1]\nlimit = 8'
    found = {
        step.name: step
        for step in study_steps(read_study(written(probe, '[[directions]]\nof = ["pretrained", "random"]')))
    }
    step = found["directions grammar-sentiment.tiny.pretrained-random.mean"]
    names = [Path(one.leaf).stem for one in (step.arguments["train"], step.arguments["dev"], *step.arguments["more"])]
    kinds = ("", ".random-0", ".random-1")
    assert names == [f"grammar-sentiment.tiny{of}.{part}" for of in kinds for part in ("train.limit-8", "dev")]
    reference, *_ = step.needs
    assert step.lost({reference}) == reference
    assert step.lost({step.needs[2]}) is None
    assert step.unused({step.needs[2]}) == [*step.needs[2:4]], "train without dev is of no use"


def test_an_analysis_of_one_cache_has_a_step_for_each(written):
    found = steps(written('[[mdl]]\ntasks = ["grammar:sentiment"]\nof = ["pretrained", "random"]\nname = "code"'))
    caches = {name: step["train"] for name, step in found.items() if name.startswith("mdl ")}
    assert caches == {
        f"mdl grammar-sentiment.tiny{of}.train.code.mean": f"out/caches/grammar-sentiment.tiny{of}.train.h5"
        for of in ("", ".random-0")
    }


def test_kinds_of_weights_may_have_one_verdict(written):
    found = steps(written(BOTH, TEXTS + 'of = ["pretrained", "random"]\nname = "one"\ntogether = true', "[[summary]]"))
    one = found["probe grammar-sentiment.tiny.pretrained.one.mean"]
    random = [f"out/caches/grammar-sentiment.tiny.random-0.{split}.h5" for split in ("train", "dev")]
    assert one["more"] == random
    assert sum(name.startswith("probe ") for name in found) == 5
    assert len(found["summary"]["more"]) == 4


def test_all_caches_of_a_study_have_the_options_that_it_gives(written):
    told = steps(written('caches = { dtype = "float16", layers = [0] }', TEXTS, TASKS))
    caches = [arguments for name, arguments in told.items() if name.startswith("cache ")]
    assert len(caches) == 6
    assert {(one["dtype"], *one["layers"]) for one in caches} == {("float16", 0)}


TASKS = '[[tasks]]\ngroup = "x"\ntasks = ["grammar:sentiment"]\n'


def test_words_that_are_labelled_have_caches_of_words(written):
    told = steps(written(WORDS, WORDS.replace("probe", "mi") + 'poolings = ["first", "mean"]'))
    caches = [name for name in told if name.startswith("cache ")]
    assert caches == [f"cache words.tiny.{x}" for x in ("train.word-first", "dev.word-first", "train.word-mean")]
    assert [told[name]["token_level"] for name in caches] == ["word-first", "word-first", "word-mean"]
    analyses = ["probe words.tiny.pretrained.first", "mi words.tiny.pretrained.first", "mi words.tiny.pretrained.mean"]
    assert [name for name in told if name in analyses] == analyses
    assert not any("pooling" in arguments for arguments in told.values())


@pytest.mark.slow
def test_words_are_probed(written, tmp_path):
    path = written(WORDS + "options = { controls = 1, resamples = 100, folds = 2 }")
    assert main(["study", "run", str(path), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/rows/probe-words.tiny.pretrained.first.parquet").exists()


@pytest.mark.slow
def test_caches_of_pieces_are_counted_once(written, tmp_path, capsys):
    path = written('[[train]]\ntasks = ["grammar:sentiment"]\nseeds = [0, 1]\nlimit = 100')
    one, two, *tuned = (step.space for step in study_steps(read_study(path)) if step.name.startswith("grammar"))
    assert (two, tuned) == (0, [0, 0])
    words = ["--task", "grammar:sentiment", "--model", read_study(path).models["tiny"], "--limit", "100"]
    words += ["--regime", "feature-extraction", "--epochs", "1", "--out", "r", "--caches", "c"]
    assert main(["train", *words]) == 0
    assert one == pytest.approx(sum(f.stat().st_size for f in (tmp_path / "c").glob("*.h5")), rel=0.5)


BOTH = TEXTS + 'of = ["pretrained", "random"]\npoolings = ["mean", "max"]\n'


def test_kinds_of_weights_are_compared(written):
    told = steps(written(BOTH, '[[compare]]\nof = ["pretrained", "random"]\noptions = { resamples = 100 }'))
    names = [f"compare grammar-sentiment.tiny.pretrained-random.{pooling}" for pooling in ("mean", "max")]
    assert [name for name in told if name.startswith("compare ")] == names
    rows = "out/rows/probe-grammar-sentiment.tiny.{}.max.parquet"
    assert told[names[1]] == {
        "first": rows.format("pretrained"), "second": rows.format("random"), "against": "random", "resamples": 100,
    }  # fmt: skip


def test_analyses_of_several_runs_go_on_with_those_that_exist(written):
    runs = '[[train]]\ntasks = ["grammar:sentiment"]\nregimes = ["fine-tune"]\nseeds = [0, 1]\nlimit = 40'
    both = TEXTS + 'of = ["pretrained", "fine-tuned"]\n'
    path = written(runs, both, '[[movement]]\nof = ["pretrained", "fine-tuned"]')
    found = {step.name: step for step in study_steps(read_study(path))}
    probed = found["probe grammar-sentiment.tiny.fine-tuned.mean"]
    moved = next(step for name, step in found.items() if name.startswith("movement "))
    first = [name for name in probed.needs if "fine-tune.0" in name]
    assert len(first) == 2
    assert probed.lost(first) is None
    assert probed.lost(probed.needs) == probed.needs[0]
    left = probed.recipe(Path("out"), [found[name].leaves[0] for name in first]).arguments
    assert "more" not in left
    assert all("fine-tune.1" in left[name] for name in ("train", "dev"))
    assert moved.unused(first) == [name for name in moved.needs if name in first]
    assert moved.lost([moved.needs[0]]) == moved.needs[0]  # the pretrained layers, from which all are measured
    alone = found["probe grammar-sentiment.tiny.pretrained.mean"]
    assert alone.lost([alone.needs[1]]) == alone.needs[1]


@pytest.mark.slow
def test_the_sentence_of_a_comparison_comes_first_in_the_report(written, tmp_path):
    fast = "limit = 60\noptions = { controls = 1, resamples = 100, folds = 2 }\n"
    path = written(
        TEXTS + 'of = ["pretrained", "random"]\n' + fast,
        '[[compare]]\nof = ["pretrained", "random"]\noptions = { resamples = 100 }',
    )
    assert main(["study", "run", str(path), "--out", str(tmp_path / "out")]) == 0
    card = read_card(tmp_path / "out/rows/compare-grammar-sentiment.tiny.pretrained-random.mean.parquet")
    page = (tmp_path / "out/report.html").read_text()
    probed = "sentiment: no layer beats permuted labels"  # with p corrected over the layers of both weights
    assert 0 < page.index(escape(card["verdict"][0])) < page.index(probed)


def test_one_task_in_two_sections(written):
    other = TEXTS + "options = { controls = 1 }\n"
    with pytest.raises(UsageError, match="two different steps .* 'probe grammar-sentiment.tiny.pretrained.mean'; give"):
        steps(written(TEXTS, other))
    told = steps(written(TEXTS, other + 'name = "one control"'))
    assert told["probe grammar-sentiment.tiny.pretrained.one-control.mean"]["controls"] == 1
    assert "controls" not in told["probe grammar-sentiment.tiny.pretrained.mean"]
    assert sum(name.startswith("cache ") for name in told) == 2


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            TEXTS + "options = { resample = 3 }",
            "probe.0.options: probe has no parameter 'resample'; did you mean resamples",
        ),
        (TEXTS + 'options = { folds = "two" }', "probe.0.options: folds is 'two'"),
        (TEXTS + '[[figure]]\nkind = "layer"', "figure layer: unknown kind 'layer'; did you mean layers"),
        (TEXTS + '[[figure]]\nkind = "layers"\noptions = { width = "wide" }', "figure.0.options: .*'wide'"),
        (TEXTS + "[[compare]]", r'needs a section \[\[probe\]\] with of = \["fine-tuned", "pretrained"\]'),
        (
            BOTH + '[[compare]]\nof = ["pretrained", "random"]\ntasks = ["cola"]',
            r"needs a section \[\[probe\]\] on cola with of",
        ),
        (TEXTS + '[[table]]\nkind = "regime"', "table.0.kind is 'regime'"),
        (
            TEXTS + '[[table]]\nkind = "regimes"\n[[table]]\nkind = "regimes"\npublished = "peters-2019/2"',
            "two different steps called 'table regimes'; give .* names",
        ),
        (TEXTS + '[[figure]]\nkind = "layers"\n[[figure]]\nkind = "layers"\ncolumns = 1', "unknown key"),
        (
            TEXTS + '[[figure]]\nkind = "layers"\n[[figure]]\nkind = "layers"\noptions = {dpi = 90}',
            "'figure layers'; g",
        ),
        (
            WORDS + 'poolings = ["max"]',
            "words.toml labels words; the pooling of their pieces must be first or mean, not max",
        ),
        (TEXTS + '[[table]]\nkind = "regimes"\npublished = "peters-2019/9"', "no published numbers 'peters-2019/9'"),
    ],
)
def test_what_no_function_takes_is_told_before_anything_is_done(written, tmp_path, capsys, sections, message):
    assert main(["study", "run", str(written(sections)), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert re.search(message, told), told
    assert not (tmp_path / "out").exists()


TUNED = '[[train]]\ntasks = ["grammar:sentiment"]\nregimes = ["fine-tune"]\nfine-tune = { save_at = "0,4,2" }\n'


def test_layers_of_checkpoints_are_compared_with_the_pretrained_ones(written):
    found = steps(
        written(
            TUNED + TEXTS + 'of = ["pretrained", "checkpoints"]', '[[similarity]]\nof = ["pretrained", "checkpoints"]'
        )
    )
    run = "grammar-sentiment.fine-tune.0"
    assert found[f"cache {run}.step-2.dev"]["model"] == f"out/runs/{run}/step-2"
    caches = [f"out/caches/{run}.step-{step}.dev.h5" for step in (0, 2, 4)]
    told = found["similarity grammar-sentiment.tiny.pretrained-checkpoints.mean"]
    assert told == {"caches": ["out/caches/grammar-sentiment.tiny.dev.h5", *caches], "pooling": "mean"}
    assert len(found["probe grammar-sentiment.tiny.checkpoints.mean"]["more"]) == 4


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (TUNED.replace("0,4,2", "epochs") + TEXTS + 'of = ["checkpoints"]', "save_at is 'epochs'; write"),
        (
            TEXTS + "[[similarity]]",
            r'\[\[similarity\]\] needs a section \[\[probe\]\] with of = \["pretrained", "fine-t',
        ),
        (BOTH + '[[movement]]\nof = ["pretrained", "random"]\ntasks = ["cola"]', r"\[\[movement\]\] needs .* on cola"),
    ],
)
def test_layers_that_cannot_be_compared(written, sections, message):
    with pytest.raises(UsageError, match=message):
        steps(written(sections))


WAYS = """
[[train]]
name = "full"
tasks = ["grammar:sentiment", "grammar:agreement"]
regimes = ["fine-tune"]
seeds = [0, 1]
[[train]]
name = "small"
tasks = ["grammar:sentiment"]
regimes = ["fine-tune"]
seeds = [1]
teacher = "full"
options = { keep_layers = 1 }
"""
ON = TEXTS + 'of = ["pretrained", "fine-tuned"]\n'


def read_by(found, name):
    """The runs whose caches a step reads, with the texts, dev only."""
    arguments = found[name]
    caches = arguments["caches"] if "caches" in arguments else [arguments["dev"], *arguments["more"]]
    return [Path(one).name.removesuffix(".dev.h5") for one in caches if ".dev." in one]


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        pytest.param(kind, url, marks=[] if kind == "study" or url.startswith("https") else pytest.mark.slow)
        for kind in ("study", "suite")
        for url in ("dask://{}/x::file:///x", "https://{}/cache", "s3://{}/x", "tcp://{}")
    ],
)
def test_an_address_in_a_file_is_opened_only_where_it_is_allowed(written, call, listener, kind, url):
    """But what readers see may hold addresses, and what the user types is his own."""
    address = url.format(listener.address)
    told = 'about = "https://example.org"\n'
    train = f'[[train]]\ntasks = ["grammar:sentiment"]\noptions = {{ cache = ["{address}"] }}\n'
    tasks = f'[[tasks]]\ngroup = "x"\ntasks = ["grammar:sentiment", "{address}"]\n'
    path = written(train if kind == "study" else tasks)
    path.write_text(told + path.read_text())
    for plan in ([], ["--plan"]):
        done = call(kind, "run", path, *plan)
        assert (done.status, listener.connections) == (2, [])
        assert f"names the address {address}, which whoever wrote the file chose" in done.err.replace("\n", " ")
    done = call(kind, "run", path, "--plan", "--allow-remote")
    assert "names the address" not in done.err
    path.write_text(path.read_text().replace(address, "grammar:voice"))
    assert "names the address" not in call(kind, "run", path, "--plan", "--set", f"name={address}").err


def test_a_run_of_the_study_is_the_teacher_of_another(written):
    planned = {step.name: step for step in study_steps(read_study(written(WAYS)))}
    step = planned["grammar-sentiment.small.fine-tune.1"]
    assert step.recipe(Path("out")).arguments["teacher"] == "out/runs/grammar-sentiment.full.fine-tune.1"
    assert step.needs == ("grammar-sentiment.full.fine-tune.1",)
    assert "teacher" not in planned["grammar-sentiment.full.fine-tune.1"].arguments
    lacking = {s.name: s for s in study_steps(read_study(written(WAYS), changes=["train.1.seeds=[2]"]))}
    error = lacking["grammar-sentiment.small.fine-tune.2"].error
    assert "the teacher full has no fine-tuning run of tiny on grammar:sentiment with seed 2" in error


def test_runs_are_probed_on_the_tasks_of_others(written):
    names = {"own": [f"sentiment.{run}" for run in ("full.fine-tune.0", "full.fine-tune.1", "small.fine-tune.1")],
             "others": [f"agreement.full.fine-tune.{seed}.on-grammar-sentiment" for seed in (0, 1)]}  # fmt: skip
    names["all"] = names["own"][:1] + names["own"][1:2] + names["others"] + names["own"][2:]
    for which, runs in names.items():
        found = steps(written(WAYS, ON + f'trained_on = "{which}"'))
        assert read_by(found, "probe grammar-sentiment.tiny.fine-tuned.mean") == [f"grammar-{run}" for run in runs]
    told = found["cache grammar-agreement.full.fine-tune.0.on-grammar-sentiment.dev"]
    assert (told["task"], told["model"]) == ("grammar:sentiment", "out/runs/grammar-agreement.full.fine-tune.0")


def test_variants_and_seeds_of_runs_are_chosen(written):
    more = ON + 'trained_on = "all"\nrun_seeds = [1]'
    found = steps(written(WAYS, more, '[[movement]]\nvariants = ["full"]', '[[similarity]]\ntrained_on = "others"'))
    small, full = (f"grammar-sentiment.{name}.fine-tune.1" for name in ("small", "full"))
    other = "grammar-agreement.full.fine-tune.1.on-grammar-sentiment"
    assert read_by(found, "probe grammar-sentiment.tiny.fine-tuned.mean") == [full, other, small]
    kinds = "grammar-sentiment.tiny.pretrained-fine-tuned.mean"
    assert read_by(found, f"movement {kinds}") == ["grammar-sentiment.tiny", full]
    assert read_by(found, f"similarity {kinds}") == ["grammar-sentiment.tiny", other]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            WAYS.replace('teacher = "full"', 'teacher = "ful"'),
            "train.1.teacher: no section .* is called 'ful'; did you",
        ),
        (WAYS.replace('teacher = "full"', 'teacher = "small"'), "train.1.teacher needs .* another section"),
        (
            WAYS + ON + 'variants = ["smal"]',
            r"probe.0.variants: no section \[\[train\]\] is called 'smal'; did you mean",
        ),
        (WAYS + ON + "run_seeds = [7]", "no fine-tuning run on grammar:sentiment with seed 7"),
        (WAYS + ON + '[[movement]]\ntrained_on = "others"', "selects no run on grammar:sentiment"),
    ],
)
def test_runs_that_cannot_be_chosen(written, sections, message):
    with pytest.raises(ProbekitError, match=message):
        steps(written(sections))


@pytest.mark.parametrize("where", ["options = { KEY = 'wandb' }", "fine-tune = { KEY = 'wandb' }", "KEY = 'wandb'"])
@pytest.mark.parametrize("key", ["report_to", "report-to"])
def test_no_study_reports_in_the_users_name(written, where, key):
    section = '[[train]]\ntasks = ["grammar:sentiment"]\nregimes = ["fine-tune"]\n'
    with pytest.raises(DataError, match="report.to"):
        read_study(written(section + where.replace("KEY", key)), allow_remote=True)
