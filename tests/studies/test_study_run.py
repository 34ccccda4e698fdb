"""A study from end to end, on toys: done once, not done again, gone on with, and what a broken part takes with it."""

import json
import os
import signal
from pathlib import Path

import pytest

from probekit.cli import main
from probekit.errors import UsageError
from probekit.rows import read_card, read_rows
from probekit.studies.file import read_study
from probekit.studies.plan import study_steps
from probekit.studies.runner import Outcome, Pool, open_study, run_steps, state_of
from probekit.studies.steps import OUT, Step

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
options = {{ controls = 2, resamples = 20, folds = 2 }}

[[mi]]
tasks = ["grammar:sentiment"]
limit = 60
options = {{ shuffles = 19, controls = 0 }}

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


class Here:
    """Runs what it is given at once, in this process."""

    def submit(self, fn, *args):
        from concurrent.futures import Future

        future = Future()
        try:
            future.set_result(fn(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **how):
        pass


HERE = Pool(Here)


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
    return {name: one[0] for name, one in state_of(steps, out).items()}


@pytest.mark.slow
def test_a_study_from_end_to_end(steps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, todo = tmp_path / "out", steps()
    assert set(states(todo, out).values()) == {"new"}
    told = []
    outcomes = run_steps(todo, out, main, HERE, tell=told.append)
    assert [(o.step.name, o.message) for o in outcomes if o.state != "done"] == []
    assert [o.step.name for o in outcomes] == [step.name for step in todo]
    assert (out / "tables/regimes.md").read_text().count("\n|") >= 4
    assert {f.name for f in (out / "figures").iterdir()} == {"layers.svg", "layers.pdf", "layers.png"}
    assert "Toys" in (out / "report.html").read_text()
    probed = read_rows(*sorted((out / "rows").glob("probe*.mean.parquet")))
    assert set(probed["model"]) == {"tiny"}
    card = read_card(next((out / "rows").glob("probe*pretrained.mean.parquet")))
    assert card["command"].startswith(f"probekit probe {out}/caches/")

    again = run_steps(todo, out, main, HERE)
    assert {o.state for o in again} == {"reused"}

    later = steps("probe.0.options.controls=1")  # changes probes, their figure, and what is made of all rows
    changed = {name for name, state in states(later, out).items() if state != "done"}
    assert {"figure layers", "table regimes", "report"} < changed
    assert all(name.startswith(("probe ", "figure ", "table ", "report")) for name in changed)

    rows = out / "rows/mi-grammar-sentiment.tiny.pretrained.mean.parquet"
    rows.write_bytes(b"not what was left")
    assert states(todo, out)["mi grammar-sentiment.tiny.pretrained.mean"] == "again"
    assert {o.step.name for o in run_steps(todo, out, main, HERE) if o.state == "done"} == {
        "mi grammar-sentiment.tiny.pretrained.mean", "table regimes", "report"
    }  # fmt: skip


def test_other_data_or_weights_make_steps_new(steps, tmp_path, tiny_bert):
    def digests():
        return {name: one[1] for name, one in state_of(steps(), tmp_path / "out").items()}

    before = digests()
    assert digests() == before
    assert {name: one[1] for name, one in state_of(steps(), tmp_path / "elsewhere").items()} == before
    with (tmp_path / "dev.tsv").open("a") as file:
        file.write("the sea is wild\twild\tsea\n")
    from probekit.studies.digests import task_reader

    task_reader.cache_clear()
    after = digests()
    changed = {name for name in before if before[name] != after[name]}
    assert "verse-sea.fine-tune.0" in changed
    assert "transfer verse-land.fine-tune.0" in changed
    assert not any("grammar" in name for name in changed)
    assert "verse-land.fine-tune.0" not in changed


def test_a_broken_task_spoils_its_own_steps(steps, tmp_path):
    todo = steps('probe.0.tasks=["grammar:sentiment", "nonsense"]', 'mi.0.tasks=["grammar:sentimnet"]')
    failing = {step.name: step.error for step in todo if step.error}
    assert all("unknown task" in message for message in failing.values())
    assert {name.split()[1].split(".")[0] for name in failing} == {"nonsense", "grammar-sentimnet"}

    def touch(words):
        """Leaves what it should, but for one run."""
        if words[0] == "train" and "land" in words[2]:
            print("probekit: the loss is no number")
            return 2
        step = next(s for s in todo if tuple(w.replace(str(out), OUT) for w in words) == s.words or s.partly)
        by_out = [s for s in todo if s.words and s.words[0] == words[0]]
        for leaf in step.leaves if not step.partly else [leaf for s in by_out for leaf in s.leaves]:
            (out / leaf).parent.mkdir(parents=True, exist_ok=True)
            (out / leaf).write_text("x")
        calls.append(words)
        return 0

    out, calls = tmp_path / "out", []
    ended = {o.step.name: o for o in run_steps(todo, out, touch, HERE)}
    assert ended["verse-land.fine-tune.0"].state == "failed"
    assert ended["verse-land.fine-tune.0"].message == "the loss is no number"
    assert ended["transfer verse-land.fine-tune.0"] == Outcome(
        next(s for s in todo if s.name == "transfer verse-land.fine-tune.0"), "skipped",
        message="it needs verse-land.fine-tune.0",
    )  # fmt: skip
    assert ended["probe nonsense.tiny.pretrained.mean"].state == "skipped"
    assert ended["transfer verse-sea.fine-tune.0"].state == "done"
    table = next(words for words in calls if words[0] == "table")
    assert not any("land.fine-tune" in word for word in table)
    assert any("sea.fine-tune" in word for word in table)
    assert ended["table regimes"].message.startswith("without ")
    assert states(todo, out)["table regimes"] == "again"  # to be made whole when the rest is there
    assert states(todo, out)["verse-sea.fine-tune.0"] == "done"


def fake(name, *needs, **more):
    return Step(name, ("write", f"{OUT}/{name}"), needs, (name,), **more)


def write(words):
    Path(words[1]).write_text("x")
    return 0


def test_a_process_that_dies_is_tried_once_more_alone(tmp_path):
    from concurrent.futures import Future
    from concurrent.futures.process import BrokenProcessPool

    deaths = {"a": 1, "b": 9}

    class Dying(Here):
        def submit(self, fn, main, words, *rest):
            name = Path(words[1]).name
            if deaths.get(name, 0):
                deaths[name] -= 1
                future = Future()
                future.set_exception(BrokenProcessPool("killed"))
                return future
            return super().submit(fn, main, words, *rest)

    todo = [fake("a"), fake("b"), fake("c", "a"), fake("d", "b"), fake("e", "b", "c", partly=True)]
    ended = {o.step.name: o.state for o in run_steps(todo, tmp_path, write, Pool(Dying, jobs=2))}
    assert ended == {"a": "done", "b": "failed", "c": "done", "d": "skipped", "e": "done"}


def test_a_command_that_leaves_nothing_or_raises_has_failed(tmp_path):
    def odd(words):
        if words[1].endswith("a"):
            return 0
        raise MemoryError("no room")

    ended = run_steps([fake("a"), fake("b")], tmp_path, odd, HERE)
    assert [o.state for o in ended] == ["failed", "failed"]
    assert ended[0].message == "it left no a"
    assert ended[1].message == "MemoryError: no room"
    assert "Traceback" in (tmp_path / "logs/b.log").read_text()


def test_records_that_are_damaged_are_done_again(tmp_path):
    run_steps([fake("a")], tmp_path, write, HERE)
    record = tmp_path / "steps/a.json"
    assert json.loads(record.read_text())["step"] == "a"
    for text in ("", "[]", '{"digest": 3}'):
        record.write_text(text)
        assert states([fake("a")], tmp_path)["a"] != "done"


def test_what_was_made_of_something_else_makes_room(tmp_path):
    """A command that goes on with what it finds would refuse what was made with other options."""
    run = Step("r", ("train", f"{OUT}/runs/r", "one"), (), ("runs/r/rows",))
    asked = []

    def train(words):
        folder = Path(words[1])
        if folder.exists() and (folder / "asked").read_text() != words[2]:
            return 2
        folder.mkdir(parents=True, exist_ok=True)
        asked.append(((folder / "asked").exists(), words[2]))
        (folder / "asked").write_text(words[2])
        if words[2] == "fails":
            return 1
        (folder / "rows").write_text("x")
        return 0

    other = Step("r", ("train", f"{OUT}/runs/r", "fails"), (), ("runs/r/rows",))
    assert run_steps([run], tmp_path, train, HERE)[0].state == "done"
    for _ in range(2):  # what was begun of the same is gone on with
        assert run_steps([other], tmp_path, train, HERE)[0].state == "failed"
    assert states([run], tmp_path) == {"r": "new"}
    assert run_steps([run], tmp_path, train, HERE)[0].state == "done"
    assert asked == [(False, "one"), (False, "fails"), (True, "fails"), (False, "one")]
    assert [f.name for f in (tmp_path / "steps").iterdir()] == ["r.json"]


def test_what_a_skipped_step_left_is_not_done(tmp_path):
    todo = [fake("a"), fake("b", "a")]
    run_steps(todo, tmp_path, write, HERE)
    broken = [Step("a", ("write", f"{OUT}/a", "else"), (), ("a",), error="no such task"), fake("b", "a")]
    assert [o.state for o in run_steps(broken, tmp_path, write, HERE)] == ["failed", "skipped"]
    assert not list((tmp_path / "steps").glob("*.json"))
    assert states(todo, tmp_path) == {"a": "new", "b": "new"}


def test_a_cache_that_is_gone_is_made_again_only_where_it_is_needed(tmp_path):
    todo = [fake("c", between=True), fake("p", "c"), fake("q", "c"), fake("t", "p", "q")]
    run_steps(todo, tmp_path, write, HERE)
    (tmp_path / "c").unlink()
    assert set(states(todo, tmp_path).values()) == {"done"}
    (tmp_path / "q").unlink()
    assert set(states(todo, tmp_path).values()) == {"again"}
    assert {o.state for o in run_steps(todo, tmp_path, write, HERE)} == {"done"}


def test_a_part_of_a_step_that_is_lost_is_noticed(tmp_path):
    step = Step("a", ("write", f"{OUT}/a"), (), ("a", "b"))
    (tmp_path / "b").write_text("y")
    assert run_steps([step], tmp_path, write, HERE)[0].state == "done"
    (tmp_path / "b").unlink()
    assert states([step], tmp_path)["a"] == "again"


def test_a_full_disk_is_told_as_such(tmp_path):
    class Full(Here):
        def submit(self, fn, *args):
            from concurrent.futures import Future

            future = Future()
            future.set_exception(OSError(28, "No space left on device"))
            return future

    (ended,) = run_steps([fake("a")], tmp_path, write, Pool(Full))
    assert (ended.state, ended.message) == ("failed", "[Errno 28] No space left on device")


def test_one_process_runs_a_study(tmp_path):
    with open_study(tmp_path / "s"), pytest.raises(UsageError, match="another process runs the study"):
        open_study(tmp_path / "s").__enter__()


def test_steps_run_in_processes_of_their_own(tmp_path):
    from probekit.studies.runner import local_pool

    def number(words):
        Path(words[1]).write_text(str(os.getpid()))
        return 0

    todo = [fake("a"), fake("b", "a"), fake("c", "a")]
    assert [o.state for o in run_steps(todo, tmp_path, number, local_pool(2))] == ["done"] * 3
    assert str(os.getpid()) not in {(tmp_path / name).read_text() for name in "abc"}
    with pytest.raises(UsageError, match="must be 1 or more"):
        local_pool(0)


@pytest.mark.slow
def test_a_process_that_is_killed_costs_its_step(tmp_path):
    from probekit.studies.runner import local_pool

    def odd(words):
        if words[1].endswith("b"):
            os.kill(os.getpid(), signal.SIGKILL)
        Path(words[1]).write_text("x")
        return 0

    ended = run_steps([fake("a"), fake("b"), fake("c"), fake("d", "b")], tmp_path, odd, local_pool(2))
    assert [o.state for o in ended] == ["done", "failed", "done", "skipped"]
    assert "died twice" in ended[1].message
