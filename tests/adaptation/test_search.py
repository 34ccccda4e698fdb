"""Hyper-parameter search through its front doors: a tiny model, a task that can be learned."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import pytest
import torch

from probekit.adaptation.optimisation.options import OptimisationOptions
from probekit.adaptation.options import Hyperparameters
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.runs.run import Run
from probekit.adaptation.search import trials as module
from probekit.adaptation.search.search import search
from probekit.adaptation.search.space import OPTIONS, example_line, read_space, shipped_spaces
from probekit.adaptation.signals.options import SignalOptions
from probekit.cli import main
from probekit.errors import CacheBusy, DataError, NonFiniteError, UsageError
from probekit.files import _note
from probekit.rows import make_rows, read_rows
from probekit.tasks import load_task


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """Is it good or bad? Told by one word: a few steps are enough, at a good learning rate."""
    folder = tmp_path_factory.mktemp("task")
    nouns = "cat dog bird child teacher house garden".split()
    verbs = ["great", "terrible"]
    lines = [
        f"the {n} was {w} {e}\t{'good' if w == 'great' else 'bad'}"
        for n in nouns
        for w in verbs
        for e in "! ? .".split()
    ]
    for name, part in {"train": lines[:30], "dev": lines[30:36], "test": lines[36:]}.items():
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(part) + "\n")
    splits = "\n".join(f'{name} = "{name}.tsv"' for name in ("train", "dev", "test"))
    (folder / "task.toml").write_text(f'name = "toy"\nlabels = ["bad", "good"]\n[splits]\n{splits}\n')
    return folder / "task.toml"


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("minilm")


@pytest.fixture
def write(tmp_path, task, model):
    def write(space: str, keys: str = "") -> Path:
        path = tmp_path / "space.toml"
        path.write_text(f"task = {str(task)!r}\nmodel = {str(model)!r}\n{keys}\n[space]\n{space}\n")
        return path

    return write


RANGE = "learning_rate = { low = 1e-4, high = 1e-2, log = true }\nepochs = [1, 2]\nbatch_size = 10"


def told(trials: pd.DataFrame) -> pd.DataFrame:
    return trials.drop(columns="seconds")


def test_from_the_space_to_the_rows(write, tmp_path, task, capsys):
    arguments = [str(write(RANGE, "trials = 2")), "--out", str(tmp_path / "out"), "--seeds", "2", "--device", "cpu"]
    assert main(["search", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "2 trials, 0 of them pruned" in shown
    assert "toy test accuracy" in shown

    trials = pd.read_parquet(tmp_path / "out/trials.parquet")
    assert trials["trial"].tolist() == [0, 1]
    assert trials["learning_rate"].between(1e-4, 1e-2).all()
    assert [len(values) for values in trials["by_epoch"]] == trials["epochs"].tolist()
    best = trials.loc[trials["value"].idxmax()]
    rows = read_rows(tmp_path / "out/rows.parquet")
    said = rows[(rows["estimator"] == "") & (rows["analysis"] == "search")]  # without the constant answer
    expected = rows[rows["analysis"] == "expected-performance"]
    assert expected["trials"].tolist() == [1, 2]
    assert expected["value"].iloc[0] == pytest.approx(trials["value"].mean())  # the mean of one trial
    assert expected["unbiased"].iloc[-1] == pytest.approx(trials["value"].max())
    assert "expected best dev accuracy by the number of trials" in shown
    runs, means = said[said["seed"].notna()], said[said["seed"].isna() & (said["metric"] != "failed-runs")]
    dev = runs[(runs["split"] == "dev") & (runs["metric"] == "accuracy")].set_index("seed")["value"]
    assert dev[0] == best["value"]  # the search's seed is the first: the same training, the same number
    for _, mean in means.iterrows():
        values = runs[(runs["split"] == mean["split"]) & (runs["metric"] == mean["metric"])]["value"]
        assert (mean["runs"], len(values)) == (2, 2)
        assert mean["value"] == pytest.approx(values.mean())
        assert mean["sd"] == pytest.approx(values.std())
    assert set(zip(means["split"], means["metric"], strict=True)) >= {("dev", "accuracy"), ("test", "accuracy")}
    assert set(runs.loc[runs["split"] == "test", "n"]) == {len(load_task(str(task)).split("test"))}
    assert not (tmp_path / "out/trials").exists()

    again = search(read_space(tmp_path / "out/best.toml"), out=tmp_path / "again", device="cpu")
    columns = ["split", "metric", "value", "seed"]
    best_rows = [one[one["analysis"] == "search"][columns] for one in (again.rows, rows)]
    pd.testing.assert_frame_equal(*best_rows)


def test_all_lists_are_tried_once_each(write, tmp_path, monkeypatch):
    _faked(lambda rate, epoch: 0.5, monkeypatch)
    space = read_space(
        write("learning_rate = [1e-3, 1e-4]\nbatch_size = [10, 15]\nepochs = 1", 'trials = 9\nseeds = 1\ntest = ""')
    )
    found = search(space, out=tmp_path / "out", device="cpu")
    tried = set(zip(found.trials["learning_rate"], found.trials["batch_size"], strict=True))
    assert len(found.trials) == 4
    assert tried == {(1e-3, 10), (1e-3, 15), (1e-4, 10), (1e-4, 15)}
    assert set(found.rows["split"]) == {"dev"}
    database = tmp_path / "out/trials.db"
    whole, half = database.read_bytes(), database.stat().st_size // 2
    for damaged in (b"no database", whole[:half] + bytes(len(whole) - half)):
        database.write_bytes(damaged)
        with pytest.raises(DataError, match=r"trials\.db: the trials cannot be read .* give another --out"):
            search(space, out=tmp_path / "out", device="cpu")
        assert database.read_bytes() == damaged
    database.write_bytes(whole)
    with closing(sqlite3.connect(database)) as there:
        there.execute("update study_user_attributes set key = 'identitz'")
        there.commit()
    with pytest.raises(UsageError, match="do not say of which search"):
        search(space, out=tmp_path / "out", device="cpu")
    database.unlink()
    with closing(sqlite3.connect(database)) as there:
        there.execute("create table recipes (cake)")
    theirs = database.read_bytes()
    with pytest.raises(UsageError, match="is a database of something else"):
        search(space, out=tmp_path / "out", device="cpu")
    assert database.read_bytes() == theirs
    database.unlink()
    database.symlink_to("elsewhere")
    with pytest.raises(UsageError, match="is a link to elsewhere, which does not exist"):
        search(space, out=tmp_path / "out", device="cpu")
    assert not database.exists()


@pytest.mark.slow
def test_two_workers_train_what_one_does(write, tmp_path):
    space = read_space(
        write("learning_rate = [1e-3, 3e-3, 1e-2]\nbatch_size = 10\nepochs = 2", "trials = 3\nseeds = 2\nprune = false")
    )
    one = search(space, out=tmp_path / "one", device="cpu")
    two = search(space, out=tmp_path / "two", device="cpu", workers=2)
    key = "learning_rate"
    pd.testing.assert_frame_equal(
        told(one.trials).drop(columns="trial").sort_values(key, ignore_index=True),
        told(two.trials).drop(columns="trial").sort_values(key, ignore_index=True),
    )
    assert one.rows["value"].tolist() == pytest.approx(two.rows["value"].tolist())
    for name, found in (("one", one), ("two", two)):
        (best,) = found.path.glob("best-*/")
        runs = [f"{name}-{best.name}-seed-{seed}" for seed in (0, 1)]
        assert set(found.rows["checkpoint"]) == {*runs, ""}
        assert [read_card(best / f"seed-{seed}")["run"] for seed in (0, 1)] == runs


@pytest.mark.parametrize(
    ("visible", "device", "gpus"),
    [(None, "auto", ["0", "1"]), ("3,GPU-5", "cuda", ["3", "GPU-5"]), ("3,GPU-5", "cuda:1", [])],
    ids=["auto", "cuda", "one"],
)
def test_which_gpus_are_dealt_out_to_workers(visible, device, gpus, monkeypatch):
    asked = []

    @contextmanager
    def executor(workers, **how):
        asked.append((workers, how["gpus"], how["threads"]))
        yield

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr(module, "local_executor", executor)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    if not visible:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with module.local_pool(3, device):
        pass
    assert asked == [(3, gpus, 2)]


def _sees(folder: Path) -> tuple[int, str | None]:
    """The process and the GPUs that it sees, once three processes have come so far."""
    (folder / str(os.getpid())).touch()
    until = time.monotonic() + 60
    while len(list(folder.iterdir())) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    return os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.slow  # three processes import torch
def test_processes_see_the_gpus_dealt_out_to_them(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5")
    with module.local_pool(3, "cuda") as pool:
        found = dict(future.result() for future in [pool.submit(_sees, tmp_path) for _ in range(3)])
    assert len(found) == 3
    assert sorted(found.values()) == ["3", "3", "GPU-5"]


KILLED = """
import sys
from probekit.adaptation.search.search import search
from probekit.adaptation.search.space import read_space
search(read_space(sys.argv[1]), out=sys.argv[2], workers=int(sys.argv[3]), device="cpu")
"""


@pytest.mark.slow
def test_an_interrupted_search_ends_as_it_would_have(write, tmp_path, monkeypatch):
    space = read_space(write(RANGE.replace("[1, 2]", "3"), "trials = 3\nseeds = 1"))
    report, told_ = optuna.Trial.report, []

    def interrupted(trial, value, step):
        report(trial, value, step)
        told_.append(step)
        if len(told_) == 5:  # trial 1, after its second epoch
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(optuna.Trial, "report", interrupted)
        with pytest.raises(KeyboardInterrupt):
            search(space, out=tmp_path / "out", device="cpu")
    assert sorted(_values(tmp_path / "out")) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]
    resumed, whole = (search(space, out=tmp_path / folder, device="cpu") for folder in ("out", "whole"))
    pd.testing.assert_frame_equal(told(resumed.trials), told(whole.trials))
    pd.testing.assert_frame_equal(resumed.rows.drop(columns="checkpoint"), whole.rows.drop(columns="checkpoint"))


class Killed(BaseException):
    """As SIGKILL: nothing catches it."""


WRITES = ["create_new_study", "set_study_user_attr"]
WRITES += ["_create_new_trial", "set_trial_intermediate_value", "set_trial_state_values"] * 2


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "write_number", [pytest.param(i, marks=[] if i == 5 else [pytest.mark.slow]) for i in range(len(WRITES))]
)
def test_a_kill_at_any_write_of_the_storage_changes_nothing(write_number, when, write, tmp_path, monkeypatch):
    """Each write of the storage in turn; what goes on ends as the search that was not killed."""
    _faked(lambda rate, epoch: 1 - rate, monkeypatch)
    space = read_space(write(RANGE.replace("[1, 2]", "1"), 'trials = 2\nseeds = 1\ntest = ""'))
    whole = search(space, out=tmp_path / "whole", device="cpu")
    seen: list[str] = []
    with monkeypatch.context() as patch:
        for name in set(WRITES):
            patch.setattr(optuna.storages.RDBStorage, name, _killing(name, seen, write_number, when))
        with pytest.raises(Killed):
            search(space, out=tmp_path / "out", device="cpu")
    assert seen == WRITES[: write_number + 1]
    assert not (tmp_path / "out/best.toml").exists()
    resumed = search(space, out=tmp_path / "out", device="cpu")
    pd.testing.assert_frame_equal(told(resumed.trials), told(whole.trials))
    assert resumed.trials["learning_rate"].nunique() == 2
    best = [(tmp_path / folder / "best.toml").read_bytes() for folder in ("out", "whole")]
    assert best[0] == best[1]


def _killing(name, seen, number, when):
    write = getattr(optuna.storages.RDBStorage, name)

    def writes(*args, **kwargs):
        seen.append(name)
        if len(seen) == number + 1 and when == "before":
            raise Killed
        done = write(*args, **kwargs)
        if len(seen) == number + 1:
            raise Killed
        return done

    return writes


@pytest.mark.slow
@pytest.mark.parametrize("space", [RANGE, "learning_rate = [1e-3, 1e-2]\nbatch_size = [10, 15]\nepochs = [1]"])
def test_trials_whose_options_an_earlier_version_did_not_finish_are_completed(space, write, tmp_path, monkeypatch):
    """It asked the storage for a trial, and wrote its options one by one; a kill in between left it without."""
    _faked(lambda rate, epoch: 1 - rate, monkeypatch)
    asked = read_space(write(space, 'trials = 4\nseeds = 1\ntest = ""'))
    whole = search(asked, out=tmp_path / "whole", device="cpu")
    (tmp_path / "out").mkdir()
    study = optuna.create_study(
        study_name=module.STUDY, storage=module._storage(tmp_path / "out"), direction="maximize"
    )
    for combination in asked.combinations() or []:
        study.enqueue_trial(combination)
    study.sampler = optuna.samplers.TPESampler(seed=int(np.random.SeedSequence([0, 0]).generate_state(1)[0]))
    study.ask(dict(list(asked.distributions.items())[:1]))
    resumed = search(asked, out=tmp_path / "out", device="cpu")
    pd.testing.assert_frame_equal(told(resumed.trials), told(whole.trials))


@pytest.mark.slow
def test_options_are_drawn_as_optuna_draws_them(write, tmp_path, monkeypatch):
    """So that a search that was begun by an earlier version goes on with its numbers."""
    _faked(lambda rate, epoch: 1 - rate, monkeypatch)
    asked = read_space(write(RANGE.replace("10", "[10, 15]"), 'trials = 14\nseeds = 1\ntest = ""\nprune = false'))
    found = search(asked, out=tmp_path / "out", device="cpu").trials
    study = optuna.create_study(direction="maximize")
    for number, row in found.iterrows():
        seed = int(np.random.SeedSequence([0, number]).generate_state(1)[0])
        study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        trial = study.ask(asked.distributions)
        assert trial.params == {name: row[name] for name in trial.params}
        study.tell(trial, row["value"])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_search_goes_on(write, tmp_path, workers):
    space = write(RANGE.replace("[1, 2]", "6"), "trials = 3\nseeds = 1")
    script, out = tmp_path / "script.py", tmp_path / "out"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(space), str(out), str(workers)]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while len(_values(out)) < 2:  # in the midst of a trial
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        if process.poll() is None:
            process.kill()
    before = _values(out)
    assert 2 <= len(before) < 18
    assert (out / "trials").is_dir()
    until = time.monotonic() + 60
    while True:  # the workers end with their search, a moment later
        try:
            resumed = search(read_space(space), out=out, device="cpu", workers=workers)
            break
        except CacheBusy:
            assert time.monotonic() < until
    assert len(resumed.trials) == 3
    assert before.items() <= _values(out).items()


def _values(out: Path) -> dict[tuple[int, int], float]:
    """What the storage knows of each trial and epoch; read without Optuna, which would make the tables."""
    try:
        with closing(sqlite3.connect(f"file:{out / 'trials.db'}?mode=ro", uri=True)) as database:
            return {
                (trial, step): value
                for trial, step, value in database.execute(
                    "SELECT number, step, intermediate_value "
                    "FROM trial_intermediate_values JOIN trials USING (trial_id)"
                )
            }
    except sqlite3.OperationalError:  # not there yet
        return {}


@pytest.mark.slow
def test_a_finished_search_returns_at_once_and_takes_more_trials(write, tmp_path, monkeypatch):
    keys = "trials = 2\nseeds = 1"
    first = search(read_space(write(RANGE, keys)), out=tmp_path / "out", device="cpu")
    trained = []
    train = module.train
    monkeypatch.setattr(module, "train", lambda *a, **k: trained.append(a[2].parent.name) or train(*a, **k))
    again = search(read_space(write(RANGE, keys)), out=tmp_path / "out", device="cpu")
    assert not {"trials"} & set(trained)
    pd.testing.assert_frame_equal(first.rows, again.rows)
    more = search(read_space(write(RANGE, "trials = 3\nseeds = 1")), out=tmp_path / "out", device="cpu")
    assert trained.count("trials") == 1
    pd.testing.assert_frame_equal(told(more.trials)[:2], told(first.trials))
    with pytest.raises(UsageError, match="holds another search: limit is None there, but 20 here"):
        search(read_space(write(RANGE, keys), {"limit": 20}), out=tmp_path / "out", device="cpu")


def _faked(metric_of, monkeypatch):
    """Training that costs nothing: ``metric_of(learning_rate, epoch)`` is what it reaches."""

    def train(task, model, out, *, watcher=None, **options):
        values = [metric_of(options["learning_rate"], epoch) for epoch in range(1, options["epochs"] + 1)]
        for epoch, value in enumerate(values, start=1):
            if watcher is not None:
                watcher(epoch, {"accuracy": value, "loss": 0.0})
        columns = {"task": "toy", "model": "m", "split": "dev", "layer": None, "representation": "", "estimator": ""}
        row = columns | {"target": "gold", "metric": "accuracy", "value": max(values), "n": 6, "seed": options["seed"]}
        frame = make_rows([row | {"kept": True, "epoch": 1}])
        return Run(frame, card={"metrics": {"accuracy": max(values)}}, path=Path(out))

    monkeypatch.setattr(module, "train", train)


def test_the_table_of_trials_appears_whole(write, tmp_path, monkeypatch):
    """A disk that is full while it is written: what was there stays."""
    _faked(lambda rate, epoch: 0.5, monkeypatch)
    keys = 'trials = {}\nseeds = 1\ntest = ""'
    search(read_space(write("learning_rate = [0.01]\nepochs = 1", keys.format(1))), out=tmp_path / "out")
    files = [tmp_path / "out" / name for name in ("trials.parquet", "best.toml")]
    before = [file.read_bytes() for file in files]
    killed = tmp_path / "out" / f".best.toml.{os.getpid()}-140012345678912"
    killed.write_text("# what a killed process was writing")
    note = killed.with_name(f".best.toml.draft.{os.getpid()}-140012345678912")
    note.write_bytes(_note(killed.name))
    search(read_space(write("learning_rate = [0.01]\nepochs = 1", keys.format(1))), out=tmp_path / "out")
    assert not killed.exists()
    assert not note.exists()

    def full(frame, path, **_):
        Path(path).write_bytes(b"PAR1 and no more")
        raise OSError("no space left")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(OSError, match="no space left"):
        search(read_space(write("learning_rate = [0.01]\nepochs = 1", keys.format(1))), out=tmp_path / "out")
    assert [file.read_bytes() for file in files] == before
    assert not list((tmp_path / "out").glob(".trials*"))


@pytest.mark.slow
@pytest.mark.parametrize(("order", "prune", "pruned"), [(1, "true", 0), (-1, "true", 2), (-1, "false", 0)])
def test_a_trial_below_the_median_is_pruned(write, tmp_path, monkeypatch, order, prune, pruned):
    """Of settings that get better none is pruned; of those that get worse all from the sixth on, after one epoch."""
    _faked(lambda rate, epoch: rate * epoch, monkeypatch)
    rates = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07][::order]
    keys = f'trials = 7\nseeds = 1\ntest = ""\nprune = {prune}'
    trials = search(read_space(write(f"learning_rate = {rates}\nepochs = 3", keys)), out=tmp_path / "out").trials
    assert trials["learning_rate"].tolist() == rates
    assert trials["state"].tolist() == ["complete"] * (7 - pruned) + ["pruned"] * pruned
    assert trials["epochs_done"].tolist() == [3] * (7 - pruned) + [1] * pruned


def test_a_loss_that_is_no_number_ends_a_trial_not_the_search(write, tmp_path, monkeypatch):
    def metric_of(rate, epoch):
        if rate > 0.015:
            raise NonFiniteError("the loss is nan at step 3")
        return 0.7

    _faked(metric_of, monkeypatch)
    keys = 'trials = 2\nseeds = 1\ntest = ""'
    found = search(read_space(write("learning_rate = [0.01, 0.02]\nepochs = 1", keys)), out=tmp_path / "out")
    assert found.options["learning_rate"] == 0.01
    assert found.trials.set_index("learning_rate")["error"].to_dict() == {0.01: "", 0.02: "the loss is nan at step 3"}
    with pytest.raises(UsageError, match="none of 1 trials has a finite metric: the loss is nan at step 3"):
        search(read_space(write("learning_rate = 0.02\nepochs = 1", keys.replace("2", "1"))), out=tmp_path / "none")


@pytest.mark.parametrize(
    ("test", "message"),
    [("dev", "chooses it; give another split"), ("later", "no split 'later'"), ("none", "toy none has no labels")],
)
def test_a_split_that_cannot_be_evaluated(write, tmp_path, task, test, message):
    bare = tmp_path / "bare.toml"
    (tmp_path / "none.tsv").write_text("text\nthe cat\n")
    space = read_space(write(RANGE), {"test": test, "task": str(bare)})
    lines = (
        task.read_text()
        .replace('"train.tsv"', f'"{task.parent}/train.tsv"')
        .replace('"dev.tsv"', f'"{task.parent}/dev.tsv"')
    )
    (tmp_path / "none.tsv").write_text("text\tlabel\nthe cat\t\n")
    bare.write_text(lines.replace('test = "test.tsv"', f'none = "{tmp_path}/none.tsv"'))
    with pytest.raises(UsageError, match=message):
        search(space, out=tmp_path / "out", device="cpu")


@pytest.mark.slow
def test_feature_extraction_caches_once(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # caches go to data_cache/
    space = write(
        "head = 'linear'\nlearning_rate = [1e-2, 1e-1]\nepochs = 2", 'regime = "feature-extraction"\nseeds = 1'
    )
    found = search(read_space(space), out="out", device="cpu")
    assert len(found.trials) == 2
    said = found.rows[found.rows["estimator"] == ""]
    assert set(said["regime"] + " " + said["head"]) == {"feature-extraction linear"}
    assert len(list(Path("data_cache").glob("*.h5"))) == 3


# the file -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "space", "message"),
    [
        ("trails = 3", RANGE, "unknown key 'trails'; did you mean 'trials'"),
        ("learning_rate = 0.1", RANGE, "learning_rate is an option of training; move it below"),
        ("trials = 0", RANGE, "trials is 0; it must be greater than or equal to 1"),
        ('seeds = "three"', RANGE, "seeds is 'three'; it must be a valid integer"),
        ('regime = "tune"', RANGE, "regime is 'tune'; it is one of fine-tune, feature-extraction"),
        ("", "", "is empty; name an option"),
        (
            "",
            "learning_rat = [1e-3]",
            "no option 'learning_rat'; did you mean learning_rate. List the values to try, each a number",
        ),
        ("", "lr = [1e-3]", "no option 'lr'; did you mean learning_rate. .* for example learning_rate = "),
        ("", "num_train_epochs = [1]", "did you mean epochs. .* a whole number, for example epochs = .2, 3, 4"),
        ("", "qqqq = [1]", "Options that are often searched: learning_rate, .* probekit train --help shows all"),
        ("", "learning_rate = '1e-4'", "learning_rate takes a number, not '1e-4'; for example learning_rate = "),
        ("", "seed = [1, 2]", "seed is set for the whole search"),
        ("", "learning_rate = { low = 1e-3, high = 1e-4 }", "from 0.001 to 0.0001; low must be below high"),
        ("", "weight_decay = { low = 0, high = 0.1, log = true }", "above 0 where log = true"),
        (
            "",
            "learning_rate = { low = 1e-4, hihg = 1e-3 }",
            "lacks high.* A range is written like this: learning_rate = { low = 1e-5,",
        ),
        ("", "learning_rate = { low = 1e-4, high = 1e-3, lgg = true }", "unknown key 'lgg'; did you mean 'log'"),
        ("", "dropout = { low = 0.5, high = 1.5 }", "dropout is 1.5; it must be from 0 to below 1"),
        ("", "epochs = { low = 1.5, high = 3 }", "epochs takes a whole number, not 1.5"),
        ("", "epochs = [1, '2']", "epochs takes a whole number, not '2'"),
        ("", "batch_size = []", "batch_size is .*; give a list of different choices"),
        ("", "batch_size = [8, 8]", "give a list of different choices"),
        (
            "",
            "schedule = { low = 1, high = 2 }",
            "schedule takes one of constant, .* so it has no range; list choices: schedule = ..constant., .linear",
        ),
        ("", "schedule = ['linear', 'cosin']", "schedule is 'cosin'; did you mean cosine"),
        ("", "group = 1", "group takes true or false, not 1"),
        ("", "epochs = [1,", "is not valid TOML"),
    ],
)
def test_what_is_wrong_with_a_file(write, keys, space, message):
    with pytest.raises(DataError, match=message) as caught:
        read_space(write(space, keys))
    assert "space.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


OF_RUNS = {"regime", "seed", "window_pooling", "save_at", "sequential_head", "sequential_body"} | {
    f.name for kind in (SignalOptions, OptimisationOptions) for f in fields(kind) if f.name not in ("order", "mixout")
}
"""Not searched, or read only together with another option."""


NEEDS = {f.name: f.metadata["needs"] for f in fields(Hyperparameters) if "needs" in f.metadata}


@pytest.mark.parametrize("as_range", [False, True])
@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - OF_RUNS))
def test_the_lines_that_errors_show_are_right(name, as_range, write):
    """Each example is itself a space, in one of the two regimes."""
    if as_range and OPTIONS[name] not in (int, float):
        pytest.skip("it has no range")
    read = []
    line = example_line(name, as_range=as_range)
    key, _, values = NEEDS.get(name, "").partition("=")
    if values:  # an option of some methods, or of one order
        line += f"\n{key} = '{values.partition('|')[0]}'"
    for regime in ("fine-tune", "feature-extraction"):
        with suppress(DataError):
            read.append(read_space(write(line, f"regime = '{regime}'")))
    assert read


def test_an_option_may_need_another_one(write):
    """rank is for LoRA: it can be searched with method, not without."""
    assert read_space(write('rank = [4, 16]\nmethod = "lora"', "regime = 'fine-tune'")).space["rank"] == [4, 16]
    with pytest.raises(DataError, match="rank is .*, which has an effect only with method lora"):
        read_space(write("rank = [4, 16]", "regime = 'fine-tune'"))


def test_names_and_what_they_lack(tmp_path):
    with pytest.raises(UsageError, match="there is no search space 'paper/tune'; did you mean .*paper/fine-tune"):
        read_space("paper/tune")
    with pytest.raises(DataError, match="lacks task; add task = …, or give --task"):
        read_space("paper/fine-tune", {"model": "bert"})
    with pytest.raises(DataError, match="cannot be read"):
        read_space(tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["paper/feature-extraction", "paper/fine-tune", "paper/fine-tune-layerwise"])
def test_spaces_that_ship(name):
    assert name in shipped_spaces()
    space = read_space(name, {"task": "mrpc", "model": "bert-base-uncased"})
    generator = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(sampler=generator)
    for _ in range(20):
        Hyperparameters(regime=space.regime, **space.fixed | study.ask(space.distributions).params)


@pytest.mark.slow
def test_a_layerwise_setting_of_the_paper_trains(write, tmp_path, task, model):
    """Gradual unfreezing with the slanted triangle and the factor of 0.4, from the file to the run."""
    space = read_space("paper/fine-tune-layerwise", {"task": str(task), "model": str(model), "trials": 1, "seeds": 1})
    chosen = {
        "learning_rate": 1e-3,
        "epochs": 4,
        "schedule": "slanted-triangular",
        "unfreezing": "gradual",
        "layer_factor": 0.4,
    }
    found = search(space.model_copy(update={"space": space.fixed | chosen}), out=tmp_path / "out", device="cpu")
    assert found.options["unfreezing"] == "gradual"
    assert torch.isfinite(torch.tensor(found.rows["value"].tolist())).all()


def test_trials_that_another_program_holds_are_kept(write, tmp_path, monkeypatch):
    _faked(lambda rate, epoch: 0.5, monkeypatch)
    space = read_space(write("learning_rate = [1e-3]\nepochs = 1", 'trials = 1\nseeds = 1\ntest = ""'))
    search(space, out=tmp_path / "out", device="cpu")
    at_once = {"connect_args": {"timeout": 0.1}}
    monkeypatch.setattr(
        module, "_storage", lambda out: optuna.storages.RDBStorage(f"sqlite:///{out}/trials.db", engine_kwargs=at_once)
    )
    with closing(sqlite3.connect(tmp_path / "out/trials.db")) as other:
        other.execute("begin exclusive")
        with pytest.raises(UsageError, match="database is locked. Run it again; the trials are kept"):
            search(space, out=tmp_path / "out", device="cpu")
