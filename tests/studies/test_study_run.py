"""A study from end to end, on toys: done once, not done again, gone on with, and what a broken part takes with it."""

import json
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from study_toys import HERE, TOYS, Here, calls, registering, toy

from probekit.errors import UsageError
from probekit.functions import FUNCTIONS
from probekit.rows import read_card, read_rows
from probekit.studies.file import read_study
from probekit.studies.plan import study_steps
from probekit.studies.planned import open_study
from probekit.studies.pools import Pool, local_pool
from probekit.studies.records import state_of
from probekit.studies.runner import Ended, Outcome, run_steps
from probekit.studies.steps import Inside, Outside, Step

STUDY = """
title = "Toys"
models = {{ tiny = "{model}" }}

[[train]]
tasks = ["{folder}/verse.toml:sea", "{folder}/verse.toml:land"]
transfer = true
options = {{ epochs = 1, head = "linear", pooling = "mean", batch_size = 8 }}

[[probe]]
tasks = ["grammar:sentiment"]
of = ["pretrained", "random"]
limit = 60
options = {{ controls = 2, resamples = 100, folds = 2 }}

[[mi]]
tasks = ["grammar:sentiment"]
limit = 60
options = {{ draws = 19, controls = 0 }}

[[table]]
kind = "regimes"

[[figure]]
kind = "layers"
"""
TASK = """
name = "verse"
domain = "domain"
[splits]
train = "train.tsv"
dev = "dev.tsv"
"""


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    for name, function in TOYS.items():
        monkeypatch.setitem(FUNCTIONS, name, function)
    calls.clear()


@pytest.fixture
def steps(tmp_path, tiny_bert):
    """The steps of the toy study, with its changes."""
    for split, count in (("train", 24), ("dev", 12)):
        lines = [
            f"the {where} is {how}{'er' * (i % 3)} today\t{how}\t{where}"
            for i in range(count)
            for how, where in ((("calm", "wild")[i % 2], ("sea", "land")[i // 2 % 2]),)
        ]
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\tdomain\n" + "\n".join(lines) + "\n")
    (tmp_path / "verse.toml").write_text(TASK)
    (tmp_path / "toys.toml").write_text(STUDY.format(model=tiny_bert, folder=tmp_path))

    def of(*changes):
        return study_steps(read_study(tmp_path / "toys.toml", changes=changes))

    return of


def states(steps, out):
    return {name: one.word for name, one in state_of(steps, out).items()}


@pytest.mark.slow
def test_a_study_from_end_to_end(steps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, todo = tmp_path / "out", steps()
    assert set(states(todo, out).values()) == {"new"}
    told = []
    outcomes = run_steps(todo, out, HERE, tell=told.append)
    assert [(o.step.name, o.message) for o in outcomes if o.state != "done"] == []
    assert [o.step.name for o in outcomes] == [step.name for step in todo]
    assert (out / "tables/regimes.md").read_text().count("\n|") >= 4
    assert {f.name for f in (out / "figures").iterdir()} == {
        *("layers.svg", "layers.pdf", "layers.png", "layers.caption.txt")
    }
    assert "Toys" in (out / "report.html").read_text()
    probed = read_rows(*sorted((out / "rows").glob("probe*.mean.parquet")))
    assert set(probed["model"]) == {"tiny"}
    card = read_card(next((out / "rows").glob("probe*pretrained.mean.parquet")))
    assert card["recipe"]["arguments"]["train"].startswith(f"{out}/caches/")

    left, mine = (out / "steps" / f"{page}.begun" for page in ("report", "table-regimes"))
    left.write_text("0" * 32)  # killed after its record was written
    mine.write_text("my notes")
    again = run_steps(todo, out, HERE)
    assert {o.state for o in again} == {"reused"}
    assert list((out / "steps").glob("*.begun")) == [mine]
    mine.unlink()

    later = steps("probe.0.options.controls=1")  # changes probes, their figure, and what is made of all rows
    changed = {name for name, state in states(later, out).items() if state != "done"}
    assert {"figure layers", "table regimes", "report"} < changed
    assert all(name.startswith(("probe ", "figure ", "table ", "report")) for name in changed)

    rows = out / "rows/mi-grammar-sentiment.tiny.pretrained.mean.parquet"
    rows.write_bytes(b"not what was left")
    assert states(todo, out)["mi grammar-sentiment.tiny.pretrained.mean"] == "again"
    outcomes = {o.step.name: o for o in run_steps(todo, out, HERE)}
    refused = outcomes["mi grammar-sentiment.tiny.pretrained.mean"].message
    assert "is not a file of rows that matches its evidence card, so probekit does not replace it" in refused
    assert rows.read_bytes() == b"not what was left"
    rows.unlink()
    done = {o.step.name for o in run_steps(todo, out, HERE) if o.state == "done"}
    assert {"mi grammar-sentiment.tiny.pretrained.mean", "report"} <= done
    assert {o.state for o in run_steps(todo, out, HERE)} == {"reused"}


def test_other_data_or_weights_make_steps_new(steps, tmp_path, tiny_bert):
    def digests():
        return {name: one.digest for name, one in state_of(steps(), tmp_path / "out").items()}

    before = digests()
    assert digests() == before
    assert {name: one.digest for name, one in state_of(steps(), tmp_path / "elsewhere").items()} == before
    with (tmp_path / "dev.tsv").open("a") as file:
        file.write("the sea is wild\twild\tsea\n")
    after = digests()
    changed = {name for name in before if before[name] != after[name]}
    assert "verse-sea.fine-tune.0" in changed
    assert "transfer verse-land.fine-tune.0" in changed
    assert not any("grammar" in name for name in changed)
    assert "verse-land.fine-tune.0" not in changed


def test_a_broken_task_spoils_its_own_steps(steps, tmp_path, monkeypatch):
    todo = steps('probe.0.tasks=["grammar:sentiment", "nonsense"]', 'mi.0.tasks=["grammar:sentimnet"]')
    failing = {step.name: step.error for step in todo if step.error}
    assert all("unknown task" in message for message in failing.values())
    assert {name.split()[1].split(".")[0] for name in failing} == {"nonsense", "grammar-sentimnet"}

    def touch(recipe, log, more, **_):
        """Leaves what it should, but for one run."""
        done.append(recipe)
        if recipe.function == "train" and "land" in recipe.arguments["task"]:
            return Ended(0.1, "the loss is no number")
        for step in todo:
            if step.function == recipe.function and (step.partly or step.recipe(out) == recipe):
                for leaf in step.leaves:
                    (out / leaf).parent.mkdir(parents=True, exist_ok=True)
                    (out / leaf).write_text("x")
        return Ended(0.1)

    out, done = tmp_path / "out", []
    monkeypatch.setattr("probekit.studies.runner.perform", touch)
    ended = {o.step.name: o for o in run_steps(todo, out, HERE)}
    assert ended["verse-land.fine-tune.0"].state == "failed"
    assert ended["verse-land.fine-tune.0"].message == "the loss is no number"
    assert ended["transfer verse-land.fine-tune.0"] == Outcome(
        next(s for s in todo if s.name == "transfer verse-land.fine-tune.0"), "skipped",
        message="it needs verse-land.fine-tune.0",
    )  # fmt: skip
    assert ended["probe nonsense.tiny.pretrained.mean"].state == "skipped"
    assert ended["transfer verse-sea.fine-tune.0"].state == "done"
    rows = next(recipe for recipe in done if recipe.function == "table").arguments["rows"]
    assert not any("land.fine-tune" in path for path in rows)
    assert any("sea.fine-tune" in path for path in rows)
    assert ended["table regimes"].message.startswith("without ")
    record = json.loads((out / "steps/table-regimes.json").read_text())
    assert "verse-land.fine-tune.0" in record["without"]
    assert states(todo, out)["table regimes"] == "again"  # to be made whole when the rest is there
    assert states(todo, out)["verse-sea.fine-tune.0"] == "done"


def test_what_needs_no_training_comes_first_and_analyses_follow_their_caches(tmp_path, monkeypatch):
    def step(name, function, *needs):
        return Step(name, function, {"out": Inside(name)}, needs, (name,))

    def touch(recipe, log, more, **_):
        Path({**recipe.arguments, **recipe.leaves}["out"]).write_text("x")
        return Ended(0.1)

    todo = [
        step("t1", "train"), step("t2", "train"), step("c1", "cache_activations"), step("p1", "probe", "c1"),
        step("c2", "cache_activations", "t1"), step("p2", "probe", "c2"), step("c3", "cache_activations"),
        step("p3", "probe", "c3"), step("report", "report", "p1", "p2", "p3", "t2"),
    ]  # fmt: skip
    begun = []
    monkeypatch.setattr("probekit.studies.runner.perform", touch)
    ended = run_steps(todo, tmp_path, HERE, begin=lambda step: begun.append(step.name))
    assert begun == ["c1", "p1", "c3", "p3", "t1", "c2", "p2", "t2", "report"]
    assert [o.step.name for o in ended] == [one.name for one in todo]


def test_a_process_that_dies_is_tried_once_more_alone(tmp_path):
    deaths = {"a": 1, "b": 9}

    class Dying(Here):
        def submit(self, fn, /, recipe, *rest):
            name = Path(recipe.leaves["out"] if "out" in recipe.leaves else recipe.arguments["out"]).name
            if deaths.get(name, 0):
                deaths[name] -= 1
                future = Future()
                future.set_exception(BrokenProcessPool("killed"))
                return future
            return super().submit(fn, recipe, *rest)

    todo = [toy("a"), toy("b"), toy("c", "a"), toy("d", "b"), toy("e", "b", "c", partly=True)]
    ended = {o.step.name: o.state for o in run_steps(todo, tmp_path, Pool(Dying, jobs=2))}
    assert ended == {"a": "done", "b": "failed", "c": "done", "d": "skipped", "e": "done"}


def test_a_function_that_leaves_nothing_or_raises_has_failed(tmp_path):
    todo = [toy("a", fail="nothing"), toy("b", fail="memory"), toy("c", fail="usage")]
    ended = run_steps(todo, tmp_path, HERE)
    assert [o.state for o in ended] == ["failed"] * 3
    assert [o.message for o in ended] == ["it did not write a", "MemoryError: no room", "the loss is no number"]
    assert "Traceback" in (tmp_path / "logs/b.log").read_text()
    assert (tmp_path / "logs/c.log").read_text() == "probekit: the loss is no number\n"


@pytest.mark.filterwarnings("default:warned")
def test_each_log_has_what_its_own_step_says_though_several_run_in_threads(tmp_path, capfd):
    together = threading.Barrier(2, timeout=20)

    class Together(ThreadPoolExecutor):
        def submit(self, fn, /, *args):
            def both():
                together.wait()
                return fn(*args)

            return super().submit(both)

    ended = run_steps([toy(name, fail="talk") for name in "ab"], tmp_path, Pool(lambda: Together(2), jobs=2))
    assert [o.state for o in ended] == ["done", "done"]
    assert [o.warnings for o in ended] == [("heard in a",), ("heard in b",)]
    reused = run_steps([toy(name, fail="talk") for name in "ab"], tmp_path, HERE)
    assert [(o.state, o.warnings) for o in reused] == [("reused", ("heard in a",)), ("reused", ("heard in b",))]
    for name, other in ("ab", "ba"):
        told = (tmp_path / f"logs/{name}.log").read_text()
        assert f"WARNING probekit.toy: heard in {name}" in told
        assert f"warned in {name}" in told
        assert f" in {other}" not in told
    assert capfd.readouterr().out == ""


def test_a_log_tells_how_far_a_step_is(tmp_path, monkeypatch):
    monkeypatch.setattr("probekit.runtime.EVERY", 0.0)
    run_steps([toy("a", fail="slow")], tmp_path, HERE)
    assert (tmp_path / "logs/a.log").read_text() == "training: 3 of 9 (33 %)\n"


def test_records_that_are_damaged_are_done_again(tmp_path):
    run_steps([toy("a")], tmp_path, HERE)
    record = tmp_path / "steps/a.json"
    told = json.loads(record.read_text())
    assert told["step"] == "a"
    assert told["recipe"]["function"] == "toy_write"
    assert told["command"][:2] == ["probekit", "toy-write"]
    for text in ("", "[]", '{"digest": 3}'):
        record.write_text(text)
        assert states([toy("a")], tmp_path)["a"] != "done"


def test_what_was_made_of_something_else_makes_room(tmp_path):
    """A function that goes on with what it finds would refuse what was made with other options."""

    def of(text):
        return Step("r", "toy_train", {"out": Inside("runs/r"), "text": text}, (), ("runs/r/rows.parquet",))

    run, other = of("one"), of("fails")
    assert run_steps([run], tmp_path, HERE)[0].state == "done"
    for _ in range(2):  # what was begun of the same is gone on with
        assert run_steps([other], tmp_path, HERE)[0].state == "failed"
    assert states([run], tmp_path) == {"r": "new"}
    assert run_steps([run], tmp_path, HERE)[0].state == "done"
    found = [(told["there"], told["text"]) for _, told in calls]
    assert found == [(False, "one"), (False, "fails"), (True, "fails"), (False, "one")]
    assert [f.name for f in (tmp_path / "steps").iterdir()] == ["r.json"]


def test_a_study_of_the_version_before_is_done_again_and_nothing_is_deleted_first(tmp_path):
    """Its records say what was typed; what they left is for the functions to know again, or to refuse."""
    (tmp_path / "runs/r").mkdir(parents=True)
    (tmp_path / "runs/r/probekit.json").write_text("one")
    (tmp_path / "runs/r/rows.parquet").write_text("mine")
    (tmp_path / "steps").mkdir()
    old = {
        "step": "r",
        "digest": "ab",
        "seconds": 3,
        "command": ["probekit", "train"],
        "left": {"runs/r/rows.parquet": "4"},
    }

    def of(text):
        (tmp_path / "steps/r.json").write_text(json.dumps(old))
        return Step("r", "toy_train", {"out": Inside("runs/r"), "text": text}, (), ("runs/r/rows.parquet",))

    assert states([of("two")], tmp_path) == {"r": "again"}
    assert run_steps([of("two")], tmp_path, HERE)[0].message == "another run is there"
    assert (tmp_path / "runs/r/rows.parquet").read_text() == "mine"
    (tmp_path / "steps/r.begun").unlink()
    assert run_steps([of("one")], tmp_path, HERE)[0].state == "done"
    assert calls[-1] == ("toy_train", {"there": True, "text": "one"})


def test_the_digest_is_of_content_and_not_of_places(tmp_path):
    def of(place, digest, out="a"):
        return Step("a", "toy_write", {"read": [Outside(place, digest), Inside("b")], "out": Inside(out)}).digest({})

    assert of("here", "1") == of("there", "1")
    assert of("here", "1") != of("here", "2")
    assert toy("a", "b").digest({"b": "1"}) != toy("a", "b").digest({"b": "2"})
    step = Step("a", "toy_write", {"read": [Outside("x"), Inside("b"), Inside("c")], "out": Inside("a")})
    assert step.recipe(Path("out"), without=["c"]).arguments["read"] == ["x", "out/b"]
    assert step.recipe(Path("out"), absolute=True).arguments["read"] == [
        "x",
        f"{Path.cwd()}/out/b",
        f"{Path.cwd()}/out/c",
    ]


def test_each_worker_has_its_own_device(tmp_path):
    ended = run_steps([toy("a"), toy("b")], tmp_path, Pool(Here, jobs=2, gpus=2))
    assert [o.state for o in ended] == ["done", "done"]
    assert {told["device"] for _, told in calls} <= {"cuda:0", "cuda:1"}
    assert states([toy("a"), toy("b")], tmp_path) == {"a": "done", "b": "done"}


def test_what_a_skipped_step_left_is_not_done(tmp_path):
    todo = [toy("a"), toy("b", "a")]
    run_steps(todo, tmp_path, HERE)
    broken = [Step("a", leaves=("a",), error="no such task"), toy("b", "a")]
    assert [o.state for o in run_steps(broken, tmp_path, HERE)] == ["failed", "skipped"]
    assert not list((tmp_path / "steps").glob("*.json"))
    assert states(todo, tmp_path) == {"a": "new", "b": "new"}


def test_a_cache_that_is_gone_is_made_again_only_where_it_is_needed(tmp_path):
    todo = [toy("c", between=True), toy("p", "c"), toy("q", "c"), toy("t", "p", "q")]
    run_steps(todo, tmp_path, HERE)
    (tmp_path / "c").unlink()
    assert set(states(todo, tmp_path).values()) == {"done"}
    (tmp_path / "q").unlink()
    assert set(states(todo, tmp_path).values()) == {"again"}
    assert {o.state for o in run_steps(todo, tmp_path, HERE)} == {"done"}


def test_a_part_of_a_step_that_is_lost_is_noticed(tmp_path):
    step = toy("a", leaves=("a", "b"))
    (tmp_path / "b").write_text("y")
    assert run_steps([step], tmp_path, HERE)[0].state == "done"
    (tmp_path / "b").unlink()
    assert states([step], tmp_path)["a"] == "again"


def test_a_full_disk_is_told_as_such(tmp_path):
    class Full(Here):
        def submit(self, fn, /, *args):
            future = Future()
            future.set_exception(OSError(28, "No space left on device"))
            return future

    (ended,) = run_steps([toy("a")], tmp_path, Pool(Full))
    assert (ended.state, ended.message) == ("failed", "[Errno 28] No space left on device")


def test_one_process_runs_a_study(tmp_path):
    with open_study(tmp_path / "s"), pytest.raises(UsageError, match="another process runs the study"):
        open_study(tmp_path / "s").__enter__()


def processes(jobs):
    return Pool(lambda: registering(local_pool(jobs)), jobs)


def test_steps_run_in_processes_of_their_own(tmp_path):
    todo = [toy("a", text="pid"), toy("b", "a", text="pid"), toy("c", "a", text="pid")]
    assert [o.state for o in run_steps(todo, tmp_path, processes(2))] == ["done"] * 3
    assert str(os.getpid()) not in {(tmp_path / name).read_text() for name in "abc"}


@pytest.mark.slow
def test_a_process_that_is_killed_costs_its_step(tmp_path):
    todo = [toy("a"), toy("b", fail="killed"), toy("c"), toy("d", "b")]
    ended = run_steps(todo, tmp_path, processes(2))
    assert [o.state for o in ended] == ["done", "failed", "done", "skipped"]
    assert "died twice" in ended[1].message


def test_an_analysis_of_several_runs_goes_on_with_those_that_exist(tmp_path, monkeypatch):
    def touch(recipe, log, more, **_):
        place = Path({**recipe.arguments, **recipe.leaves}["out"])
        if place.name in fails:
            return Ended(0.1, "the loss is no number")
        if recipe.function == "probe":
            read.append([Path(recipe.arguments[k]).name for k in ("train", "dev")])
            read[-1] += [Path(path).name for path in recipe.arguments.get("more", ())]
        place.write_text("x")
        return Ended(0.1)

    def cache(name, *needs):
        return Step(f"cache {name}", "cache_activations", {"out": Inside(name)}, needs, (name,))

    runs = [Step(name, "train", {"out": Inside(name)}, (), (name,)) for name in "abc"]
    caches = [cache(f"{run}.{split}", run) for run in "abc" for split in ("train", "dev")]
    needs, files = tuple(step.name for step in caches), [Inside(step.leaves[0]) for step in caches]
    given = {"train": files[0], "dev": files[1], "more": files[2:], "out": Inside("rows")}
    probed = Step(
        "probe p", "probe", given, needs, ("rows",), partly=True, together=(needs[:2], needs[2:4], needs[4:]),
        inputs=("train", "dev", "more"),
    )  # fmt: skip
    monkeypatch.setattr("probekit.studies.runner.perform", touch)
    read: list[list[str]] = []
    fails = {"a", "b.dev"}  # a run, and one of the two caches of another
    ended = {o.step.name: o for o in run_steps([*runs, *caches, probed], tmp_path, HERE)}
    assert read == [["c.train", "c.dev"]]
    assert ended["probe p"].state == "done"
    assert ended["probe p"].message == "without cache a.train, cache a.dev, cache b.train, cache b.dev"
    fails = {"b.dev"}
    run_steps([*runs, *caches, probed], tmp_path, HERE)
    fails = set()
    run_steps([*runs, *caches, probed], tmp_path, HERE)
    assert read[1:] == [["a.train", "a.dev", "c.train", "c.dev"], [f.leaf for f in files]]
    fails, out = {"a", "b", "c"}, tmp_path / "other"
    out.mkdir()
    ended = {o.step.name: o for o in run_steps([*runs, *caches, probed], out, HERE)}
    assert (ended["probe p"].state, ended["probe p"].message) == ("skipped", "it needs cache a.train")
