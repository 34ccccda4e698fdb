"""Suites: many tasks from one file on shared caches, the scoreboard, and what is refused or left out."""

from pathlib import Path

import numpy as np
import pytest
import tiny
from pages import undrawn

import probekit
from probekit.cli import main
from probekit.errors import DataError, ProbekitError, UsageError
from probekit.rows import read_rows
from probekit.studies.catalogue import shipped
from probekit.studies.file import read_study
from probekit.studies.options import StudyOptions
from probekit.studies.plan import study_steps
from probekit.studies.planned import plan_study
from probekit.studies.pools import here_pool
from probekit.studies.steps import Outside, Step

SUITE = """
title = "Toys"
limit = 60
limit_dev = 40

[[tasks]]
group = "form"
tasks = ["grammar:acceptability", "grammar:sentiment"]
options = { controls = 1, held-out = 0.3, resamples = 100 }

[[tasks]]
group = "pairs"
tasks = ["grammar:paraphrase"]
options = { controls = 1, held-out = 0.3, resamples = 100 }
"""


TWICE = 'title = "x"\n[[tasks]]\ngroup = "g"\ntasks = ["cola"]\n[[tasks]]\ngroup = "h"\ntasks = ["cola"]'


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toys.toml").write_text(SUITE)
    return tmp_path


def steps_of(text: str, path: Path, models=None):
    path.write_text(text)
    return study_steps(read_study(path, "suite", models=models or {"m": "m"}))


@pytest.fixture(scope="module")
def toys(tmp_path_factory, tiny_model, no_certificates):
    """The folder of a suite that was run, and its scoreboard."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "toys.toml").write_text(SUITE)
    with pytest.MonkeyPatch.context() as patch:  # a process of its own would import torch first
        patch.setattr("probekit.studies.planned.pool_of", lambda workers: here_pool())
        undrawn(patch)
        board = probekit.suite(folder / "toys.toml", model=(f"tiny={tiny_model('bert')}",), out=folder / "toys")
    return folder / "toys", board


def test_a_suite_and_its_scoreboard(toys):
    folder, board = toys
    assert {path.name for path in folder.iterdir()} >= {"report.html", "rows", "caches", "figures", "tables"}
    rows = board.rows
    scores = rows[rows["metric"].str.startswith("normalised(")]
    assert set(scores["line"]) == {"grammar:acceptability", "grammar:sentiment", "grammar:paraphrase"}
    assert dict(zip(scores["line"], scores["group"], strict=True))["grammar:paraphrase"] == "pairs"
    assert set(scores["checkpoint"]) == {"", "random-0"}
    assert (scores.groupby(["line", "checkpoint"])["chosen"].sum() == 1).all()
    by_hand = (scores["raw"] - scores["control"]) / (scores["ceiling"] - scores["control"])
    np.testing.assert_allclose(scores["value"], by_hand, atol=1e-12)
    mean = rows[(rows["metric"] == "mean-normalised") & (rows["group"] == "") & (rows["checkpoint"] == "")]
    chosen = scores[scores["chosen"].astype(bool) & (scores["checkpoint"] == "")]
    assert mean["value"].item() == pytest.approx(chosen["value"].mean())
    ranks = rows[(rows["metric"] == "rank") & (rows["task"] != "")]
    assert len(ranks) == 6
    assert (ranks.groupby("line")["value"].sum() == 3).all()
    table = (folder / "tables/scoreboard.md").read_text()
    assert "grammar:sentiment" in table
    assert "rank by mean" in table
    assert any("tiny is above the control on" in sentence for sentence in board.verdict)


def test_a_suite_from_the_command_line_reuses_what_is_done(toys, tiny_bert, capsys):
    folder, _ = toys
    words = ["suite", "run", str(folder.parent / "toys.toml"), "--model", f"tiny={tiny_bert}", "--out", str(folder)]
    assert main([*words, "--plan"]) == 0
    assert "0 of 15 steps to do" in capsys.readouterr().out
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "15 of 15 steps are reused" in told
    assert "tiny is above the control on" in told


def test_tasks_in_one_place_share_caches_by_what_they_read(here):
    steps = study_steps(read_study("toys.toml", "suite", models={"m": "m"}))
    caches = [step.name for step in steps if step.name.startswith("cache")]
    assert caches == [
        "cache tasks.texts.m.train.limit-60", "cache tasks.texts.m.dev.limit-40",
        "cache tasks.texts.m.random-0.train.limit-60", "cache tasks.texts.m.random-0.dev.limit-40",
        "cache grammar-paraphrase.pairs.m.train.limit-60", "cache grammar-paraphrase.pairs.m.dev.limit-40",
        "cache grammar-paraphrase.pairs.m.random-0.train.limit-60",
        "cache grammar-paraphrase.pairs.m.random-0.dev.limit-40",
    ]  # fmt: skip


def test_the_numbers_are_those_of_a_cache_of_the_task_alone(toys, here, tiny_bert):
    caches = [
        probekit.cache_activations(tiny_bert, "grammar:sentiment", split, limit=limit, out=f"{split}.h5")
        for split, limit in (("train", 60), ("dev", 40))
    ]
    alone = probekit.probe(*caches, controls=1, held_out=0.3, resamples=100).rows
    gold = alone[(alone["target"] == "gold") & (alone["metric"] == "accuracy") & (alone["site"] != "")]
    rows = toys[1].rows
    line = rows[(rows["line"] == "grammar:sentiment") & (rows["checkpoint"] == "") & (rows["site"] != "")]
    assert line["raw"].tolist() == gold["value"].tolist()
    chosen = line[line["chosen"].astype(bool)].iloc[0]
    assert chosen["layer"] == gold.loc[gold["held_out"].astype(float).idxmin(), "layer"]


@pytest.mark.slow
def test_a_missing_task_leaves_the_rest(here, tiny_bert, capsys):
    changed = SUITE.replace('"grammar:sentiment"', '"nosuch"').replace("grammar:paraphrase", "missing.toml")
    (here / "toys.toml").write_text(changed)
    words = ["suite", "run", "toys.toml", "--model", f"tiny={tiny_bert}", "--out", "toys", "--set", 'of=["pretrained"]']
    assert main(words) == 1
    told = capsys.readouterr()
    assert "unknown task 'nosuch'" in told.err
    assert "missing.toml" in told.err
    assert "tiny is above the control on" in told.out
    board = read_rows(here / "toys/rows/scoreboard.parquet")
    assert set(board["line"].dropna()) - {""} == {"grammar:acceptability"}


def test_nothing_that_can_be_done_is_an_error_before_anything_runs(here, tiny_bert):
    (here / "toys.toml").write_text('title = "x"\n[[tasks]]\ngroup = "g"\ntasks = ["nosuch"]\n')
    with pytest.raises(UsageError, match="nothing of the suite toys can be done: unknown task 'nosuch'"):
        plan_study("toys.toml", None, StudyOptions(model=(str(tiny_bert),)), "suite")
    assert not (here / "suites").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('title = "x"', "has no tasks"),
        ('title = "x"\n[[tasks]]\ntasks = ["cola"]', "lacks tasks.0.group"),
        ('title = "x"\n[[tasks]]\ngroup = "g"\ntasks = ["cola"]\nanalysis = "prob"', "did you mean 'probe'"),
        ('title = "x"\n[[tasks]]\ngroup = "g"\ntasks = ["cola"]\noptions = { task = "a" }', "task is not allowed"),
        ('title = "x"\n[[tasks]]\ngroup = "g"\ntasks = ["cola"]\noptions = { contrls = 1 }', "contrls"),
        ('title = "x"\ninclude = ["sintax"]', "did you mean syntax"),
        (TWICE, "two sections"),
    ],
)  # fmt: skip
def test_mistakes_in_the_file(here, text, said):
    (here / "mine.toml").write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        read_study("mine.toml", "suite", models={"m": "m"})
    assert "mine.toml" in str(caught.value)


def test_a_suite_needs_a_model(here):
    with pytest.raises(UsageError, match="needs a model: --model minilm"):
        read_study("toys.toml", "suite")


@pytest.mark.parametrize("name", shipped("suite"))
def test_shipped_suites_are_valid(name, capsys):
    suite = read_study(name, "suite", models={"m": "m"})
    assert suite.about
    assert main(["suite", "show", name]) == 0
    assert capsys.readouterr().out.rstrip("\n") == shipped("suite")[name].rstrip("\n")


def test_everything_holds_the_tasks_of_what_it_includes_once():
    whole = [(task, s.analysis) for s in read_study("everything", "suite", models={"m": "m"}).tasks for task in s.tasks]
    assert len(whole) == len(set(whole)) >= 30
    for name in ("surface", "syntax", "edges", "truth"):
        suite = read_study(name, "suite", models={"m": "m"})
        assert {(task, section.analysis) for section in suite.tasks for task in section.tasks} <= set(whole)


def test_pairs_are_refused_for_a_model_without_a_head(here, tiny_bert):
    text = 'title = "x"\n[[tasks]]\ngroup = "g"\ntasks = ["mine.tsv"]\nanalysis = "pairs"\n'
    (here / "mine.tsv").write_text("good\tbad\na b\tb a\nc d\td c\n")
    found = steps_of(text, here / "p.toml", {"tiny": str(tiny_bert)})
    assert any("it cannot score minimal pairs" in step.error for step in found)


@pytest.mark.slow
def test_pairs_of_a_model_have_the_name_that_the_suite_gives_it(here, tiny_model):
    text = 'title = "x"\n[[tasks]]\ngroup = "g"\ntasks = ["mine.tsv"]\nanalysis = "pairs"\n'
    (here / "mine.tsv").write_text("good\tbad\na b\tb a\nc d\td c\n")
    gpt2 = tiny.tiny_language_model("gpt2", here / "some-folder", causal=True)
    (here / "p.toml").write_text(text)
    board = probekit.suite(here / "p.toml", model=(f"mine={gpt2}",), out=here / "out")
    rows = board.rows[board.rows["metric"] == "mean-normalised"]
    assert set(rows["model"]) == {"mine"}
    assert set(rows["checkpoint"]) == {"", "random-0"}


SHIFTED = """
title = "Shifted"
limit = 60
limit_dev = 40

[[tasks]]
group = "form"
tasks = ["one.toml", "two.toml"]
options = { controls = 1, held-out = 0.3, resamples = 100 }

[[tasks]]
group = "transfer"
analysis = "shift"
tasks = ["one.toml", "two.toml"]
options = { controls = 1, blocks = 3, estimators = ["logistic"] }
"""


def write_sets(folder: Path) -> None:
    """Two data sets with equal labels, in one folder."""
    task = probekit.load_task("grammar:sentiment")
    for i, name in enumerate(("one", "two")):
        for split in ("train", "dev"):
            lines = [f"{e.text}\t{e.label}" for e in task.split(split)[i::2]]
            (folder / f"{name}.{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
        (folder / f"{name}.toml").write_text(
            f'name = "{name}"\ntype = "classification"\ntext = "text"\nlabel = "label"\nlabels = ["0", "1"]\n'
            f'[splits]\ntrain = "{name}.train.tsv"\ndev = "{name}.dev.tsv"\n'
        )


@pytest.mark.slow
def test_a_suite_evaluates_probes_of_each_task_on_the_others(here, tiny_bert, capsys):
    write_sets(here)
    (here / "shifted.toml").write_text(SHIFTED)
    main(["suite", "run", "shifted.toml", "--model", f"tiny={tiny_bert}", "--out", "s"])
    rows = read_rows(here / "s/rows/shift-transfer.tiny.parquet")
    cells = rows[(rows["metric"] == "auroc") & (rows["target"] == "gold")]
    assert set(zip(cells["trained_on"], cells["task"], strict=True)) == {
        (a, b) for a in ("one", "two") for b in ("one", "two")
    }
    assert (here / "s/figures/shift.png").exists()
    board = read_rows(here / "s/rows/scoreboard.parquet")
    assert {"one", "two"} <= {*board["line"].dropna()}
    assert not board["line"].astype(str).str.contains("shift").any()


@pytest.mark.slow
def test_caches_of_several_tasks_need_the_names_of_the_data_sets(here, tiny_bert):
    write_sets(here)
    caches = [
        probekit.cache_activations(tiny_bert, "one.toml+two.toml", split=split, pooling=("mean",), out=f"{split}.h5")
        for split in ("train", "dev")
    ]
    with pytest.raises(UsageError, match=r"--tasks one.toml,two.toml"):
        probekit.shift(*caches)
    with pytest.raises(UsageError, match="only one is given"):
        probekit.shift(*caches, tasks=("one.toml",))
    found = probekit.shift(*caches, tasks=("one.toml", "two.toml"), controls=0, blocks=3, resamples=0)
    alone = [
        probekit.cache_activations(tiny_bert, f"{name}.toml", split=split, pooling=("mean",), out=f"{name}.{split}.h5")
        for name in ("one", "two") for split in ("train", "dev")
    ]  # fmt: skip
    apart = probekit.shift(*alone, controls=0, blocks=3, resamples=0)
    np.testing.assert_array_equal(found.rows["value"], apart.rows["value"])


def test_a_suite_lowers_the_limits_of_those_it_includes():
    def limits(*changes: str) -> set[tuple[int | None, int | None]]:
        found = read_study("everything", "suite", models={"m": "m"}, changes=changes)
        return {(section.limit, section.limit_dev) for section in found.tasks if section.limit}

    assert limits() == {(2000, 1000), (300, 300), (1000, 300), (1500, 1000)}
    assert limits("limit=200", "limit_dev=100") == {(200, 100)}


def test_task_files_among_several_tasks_have_absolute_paths_elsewhere(here):
    (here / "one.toml").write_text("")
    step = Step(
        "c", "cache_activations", {"model": "m", "task": Outside("one.toml+cola+one.toml:news", "d"), "split": "dev"}
    )
    given = step.recipe(here, absolute=True).arguments["task"]
    assert given == f"{here}/one.toml+cola+{here}/one.toml:news"


def test_what_a_section_of_shift_cannot_do_is_told_before_anything_runs(here, tiny_bert, capsys):
    write_sets(here)
    (here / "two.toml").write_text((here / "two.toml").read_text().replace('["0", "1"]', '["1", "0"]'))
    (here / "shifted.toml").write_text(SHIFTED)
    assert main(["suite", "run", "shifted.toml", "--model", f"tiny={tiny_bert}", "--plan"]) == 1
    assert "one.toml has the labels 0, 1, two.toml 1, 0" in " ".join(capsys.readouterr().out.split())
    twice = SHIFTED + SHIFTED[SHIFTED.rindex("[[tasks]]") :]
    (here / "twice.toml").write_text(twice.replace('tasks = ["one.toml", "two.toml"]', 'tasks = ["cola", "sst2"]', 1))
    with pytest.raises(DataError, match="two sections of the analysis shift|another section of shift"):
        read_study(here / "twice.toml", "suite", models={"m": "m"})


def test_a_model_that_cannot_be_read_is_told_before_data_are_read(here, monkeypatch):
    monkeypatch.setattr("probekit.studies.sources.load_task", lambda *_: pytest.fail("a task was read"))
    with pytest.raises((UsageError, ProbekitError), match="no-such-model"):
        plan_study("toys.toml", None, StudyOptions(model=("m=./no-such-model",)), "suite")


def test_a_suite_takes_a_leaderboard(here, tiny_bert, monkeypatch):
    (here / "board.csv").write_text("model,score\ntiny,0.5\nother,0.6\n")
    (here / "toys.toml").write_text('against = "board.csv"\n' + SUITE)
    options = StudyOptions(model=(f"tiny={tiny_bert}",))
    step = next(step for step in plan_study("toys.toml", None, options, "suite").steps if step.name == "scoreboard")
    assert step.recipe(here).arguments["against"] == "board.csv"
    before = step.digest(dict.fromkeys(step.needs, ""))
    (here / "board.csv").write_text("model,score\ntiny,0.7\nother,0.6\n")
    again = next(step for step in plan_study("toys.toml", None, options, "suite").steps if step.name == "scoreboard")
    assert again.digest(dict.fromkeys(step.needs, "")) != before  # only the scoreboard is made again
    (here / "board.csv").write_text("model,points\ntiny,0.7\n")
    monkeypatch.setattr("probekit.studies.sources.load_task", lambda *_: pytest.fail("a task was read"))
    with pytest.raises(DataError, match="lacks the column score"):
        plan_study("toys.toml", None, options, "suite")
