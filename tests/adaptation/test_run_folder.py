"""The folder of a run: whole or not there, one run each, nothing of anybody else's touched."""

import json
import multiprocessing
import os
import resource
import shutil
import signal
import stat
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from lessons import SHORT, Stop, count, praise, same_weights, weights

import probekit.adaptation.runs.run as runs
from probekit.activations import cache_activations
from probekit.adaptation.heads.library import Layout
from probekit.adaptation.runs.folder import RESUME, begin, load_weights, locked_run, read_card, remove_run, save_folder
from probekit.adaptation.runs.run import open_run
from probekit.adaptation.train import train, train_on_caches
from probekit.errors import CacheBusy, DataError, ModelError, NonFiniteError, UsageError
from probekit.files import _note
from probekit.rows import read_rows
from probekit.tasks.task import Example, Split, Task, TaskKind

TRAIN = import_module("probekit.adaptation.train")


def stop(*_, **__):
    raise Stop


@pytest.fixture(scope="module")
def finished(tiny_bert, tmp_path_factory):
    """A run that is not changed by any test."""
    return train(praise(), tiny_bert, tmp_path_factory.mktemp("finished") / "run", save_at="3", **SHORT)


@pytest.fixture
def interrupted(tiny_bert, tmp_path):
    """A run that was interrupted in its first epoch."""
    with pytest.raises(Stop):
        train(praise(), tiny_bert, tmp_path / "run", watcher=stop, **SHORT)
    return tmp_path / "run"


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_what_a_run_leaves(finished, tiny_bert):
    model = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "head.safetensors"}
    assert {p.name for p in finished.path.iterdir()} == model | {
        "probekit.json",
        "rows.parquet",
        "rows.parquet.json",
        "dev.examples.parquet",
        "step-3",
    }
    assert {p.name for p in (finished.path / "step-3").iterdir()} == model | {"probekit.json"}
    old = os.umask(0)
    os.umask(old)
    for file in (p for p in finished.path.rglob("*") if p.is_file()):
        assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~old, file  # those whom the folder lets in can read it
    card = read_card(finished.path)
    assert card == finished.card
    assert (card["format"], card["complete"], card["run"], card["model"]) == (
        "probekit-run/1",
        True,
        "run",
        tiny_bert.name,
    )
    assert card["step"] in (5, 10)
    assert card["total_steps"] == 10
    assert card["examples"] == [40, 21]
    assert card["identity"]["data"] == [praise().split(s).digest() for s in ("train", "dev")]
    step = read_card(finished.path / "step-3")
    assert (step["step"], step["complete"], step["run"]) == (3, True, "run")
    assert finished.rows.equals(read_rows(finished.path / "rows.parquet"))
    dev = finished.rows[(finished.rows["split"] == "dev") & finished.rows["kept"]].set_index("metric")["value"]
    assert dev["accuracy"] == finished.metrics["accuracy"]
    assert dev["log-loss"] == finished.metrics["loss"]


def test_a_run_at_a_glance(finished):
    html = finished._repr_html_()
    known = (
        f"step {finished.card['step']} of 10",
        "40 train + 21 dev",
        f"accuracy {finished.metrics['accuracy']:.3f}",
        "seed 0",
    )
    for fact in known:
        assert fact in html
    assert html == open_run(finished.path)._repr_html_()
    evil = replace(finished, card={**finished.card, "variant": "<script>"})._repr_html_()
    assert "&lt;script&gt;" in evil
    assert "<script>" not in evil
    assert f"accuracy {finished.metrics['accuracy']:.3f}" in repr(finished)


def test_the_same_again_returns_at_once(finished, tiny_bert, monkeypatch):
    before = contents(finished.path)
    monkeypatch.setattr(TRAIN, "prepare_fine_tuning", stop)
    again = train(praise(), tiny_bert, finished.path, save_at="3", **SHORT)
    assert again.card == finished.card
    assert again.rows.equals(finished.rows)
    assert contents(finished.path) == before


@pytest.mark.slow
def test_the_same_features_again(tiny_bert, tmp_path, monkeypatch):
    options = SHORT | {"regime": "feature-extraction", "head": "linear", "caches": tmp_path / "caches"}
    first = train(praise(), tiny_bert, tmp_path / "run", **options)
    monkeypatch.setattr(TRAIN, "prepare_feature_extraction", stop)
    monkeypatch.setattr("probekit.models.transformers.stock.load_model", stop)
    again = train(praise(), tiny_bert, tmp_path / "run", **options)
    assert again.card == first.card


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("learning_rate", 0.5),
        ("seed", 7),
        ("head", "bcn"),
        ("keep", "last"),
        ("dropout", 0.5),
        ("max_length", 5),
        ("random_weights", 1),
        ("limit", 10),
        ("test", "test"),
    ],
)
def test_another_run_in_its_folder(option, value, finished, tiny_bert):
    before = contents(finished.path)
    name = {"max_length": "max_length", "random_weights": "model", "limit": "data", "test": "splits"}.get(
        option, option
    )
    different = rf"(its {name} is|its {name} are)"
    with pytest.raises(UsageError, match=f"holds another run: .*{different} .*Give another --out, or replace"):
        train(praise(), tiny_bert, finished.path, **SHORT | {"save_at": "3", option: value})
    assert contents(finished.path) == before


def test_a_run_of_before_there_was_a_mix(finished, tiny_bert, tmp_path):
    old = shutil.copytree(finished.path, tmp_path / "run")
    card = json.loads((old / "probekit.json").read_text())
    del card["identity"]["mix"]
    (old / "probekit.json").write_text(json.dumps(card))
    assert train(praise(), tiny_bert, old, save_at="3", **SHORT).metrics == finished.metrics
    with pytest.raises(UsageError, match="its mix is False, not True"):
        train(praise(), tiny_bert, old, save_at="3", **SHORT, mix=True)


@pytest.mark.slow
def test_caches_read_otherwise_are_another_run(tiny_bert, tmp_path):
    def caches(**how):
        return [
            cache_activations(tiny_bert, count(), s, out=tmp_path / f"{s}-{'-'.join(how)}.h5", **how).path
            for s in ("train", "dev")
        ]

    options = SHORT | {"head": "linear"}
    train_on_caches(*caches(), tmp_path / "run", **options)
    with pytest.raises(UsageError, match=r"holds another run: its cache is .*'tokens': None.*not .*'tokens': 'piece'"):
        train_on_caches(*caches(tokens=True), tmp_path / "run", **options)


def test_overwrite(interrupted, tiny_bert):
    before = train(praise(), tiny_bert, interrupted, **SHORT)
    (interrupted / "step-99").mkdir()
    after = train(praise(), tiny_bert, interrupted, overwrite=True, **SHORT | {"seed": 1})
    assert after.card["seeds"] == {"seed": 1}
    assert not list(interrupted.glob("step-*"))
    assert not after.rows.equals(before.rows)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"save_at": "99"}, UsageError),
        pytest.param({"report_to": "nobody"}, UsageError, marks=pytest.mark.slow),
        ({"learning_rate": 1e9, "warmup": 0.0, "epochs": 4, "save_at": "0,1"}, NonFiniteError),
    ],
    ids=["save-at", "report-to", "no-number"],
)
def test_a_run_that_failed_makes_room_for_its_correction(wrong, error, finished, tiny_bert, tmp_path):
    with pytest.raises(error):
        train(praise(), tiny_bert, tmp_path / "run", **SHORT | wrong)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    done = train(praise(), tiny_bert, tmp_path / "run", **SHORT | {"save_at": "3"})
    assert same_weights(done.path, finished.path)
    assert "failed" not in done.card
    assert {p.name for p in done.path.iterdir()} == {p.name for p in finished.path.iterdir()} | {"notes.txt"}


def test_a_run_that_can_go_on_is_not_replaced(interrupted, tiny_bert):
    with pytest.raises(Stop):  # after the second epoch, so that there is a checkpoint of the first
        train(praise(), tiny_bert, interrupted, watcher=lambda epoch, _: epoch == 2 and stop(), **SHORT)
    before = contents(interrupted)
    with pytest.raises(UsageError, match="holds another run: its seed is 0, not 1"):
        train(praise(), tiny_bert, interrupted, **SHORT | {"seed": 1})
    assert contents(interrupted) == before


def test_a_folder_with_other_things(tiny_bert, tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(
            UsageError, match="is a folder with other files" if not overwrite else "does not hold a run"
        ):
            train(praise(), tiny_bert, tmp_path, overwrite=overwrite, **SHORT)
    assert contents(tmp_path) == {"thesis.txt": b"mine"}


def test_a_refusal_leaves_no_folder(tiny_bert, tmp_path):
    with pytest.raises(UsageError, match="the head 'softmax' is for"):
        train(praise(), tiny_bert, tmp_path / "run", head="softmax", **SHORT)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("names", [("bad", "good"), ("bad",)], ids=["two-names", "one-name"])
@pytest.mark.parametrize("kind", [TaskKind.CLASSIFICATION, TaskKind.SEQUENCE_LABELLING], ids=["classes", "tags"])
def test_one_class_is_nothing_to_learn(kind, names, tiny_bert, tmp_path):
    def example(i):
        return Example(str(i), "a cat", (0, 0) if kind == TaskKind.SEQUENCE_LABELLING else 0, words=("a", "cat"))

    splits = {name: Split(name, tuple(map(example, range(9)))) for name in ("train", "dev")}
    metrics = ("token-accuracy",) if kind == TaskKind.SEQUENCE_LABELLING else ("accuracy",)
    with pytest.raises(DataError, match="one: all training examples have the same class, bad"):
        train(Task("one", kind, splits, names, metrics), tiny_bert, tmp_path / "run", **SHORT)
    assert not (tmp_path / "run").exists()


def test_what_does_not_fit_is_told_before_anything_is_cached(tiny_bert, tmp_path):
    for head, more in (("esim", {}), ("crf", {}), ("linear", {"pooling": "pooler"}), ("linear", {"hidden_size": 3})):
        with pytest.raises(UsageError):
            train(
                praise(), tiny_bert, tmp_path / "run", regime="feature-extraction", caches=tmp_path / "caches",
                head=head, **SHORT | more,
            )  # fmt: skip
    assert not (tmp_path / "caches").exists()


def hold(out, ready, enough):
    with locked_run(Path(out)):
        ready.set()
        enough.wait(60)


def test_two_at_once(tiny_bert, tmp_path):
    context = multiprocessing.get_context("fork")
    ready, enough = context.Event(), context.Event()
    other = context.Process(target=hold, args=(tmp_path / "run", ready, enough))
    other.start()
    assert ready.wait(60)
    with pytest.raises(CacheBusy, match="another process is writing to"):
        train(praise(), tiny_bert, tmp_path / "run", **SHORT)
    enough.set()
    other.join()
    assert train(praise(), tiny_bert, tmp_path / "run", **SHORT | {"epochs": 1}).card["complete"]


def test_a_damaged_checkpoint_is_not_gone_on_from(interrupted, tiny_bert, finished, tmp_path):
    with pytest.raises(Stop):  # after the second epoch, so that there is a checkpoint of the first
        train(praise(), tiny_bert, interrupted, watcher=lambda epoch, _: epoch == 2 and stop(), **SHORT)
    (state,) = interrupted.glob(f"{RESUME}/checkpoint-5/trainer_state.json")
    state.write_bytes(state.read_bytes()[:100])
    done = train(praise(), tiny_bert, interrupted, **SHORT)
    assert same_weights(done.path, finished.path)
    assert done.metrics == finished.metrics


def test_a_damaged_card(finished, tmp_path, tiny_bert):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "probekit.json").write_text((finished.path / "probekit.json").read_text()[:50])
    with pytest.raises(ModelError, match="cannot be read as the card of a run"):
        train(praise(), tiny_bert, folder, **SHORT)
    with pytest.raises(ModelError, match=r"is not a run: it has no probekit.json"):
        read_card(tmp_path)


def test_publishing_is_finished_where_it_was_interrupted(tiny_bert, tmp_path, monkeypatch, finished):
    options = SHORT | {"save_at": "3", "test": "test"}
    real = Path.replace

    def publish(out, card):
        monkeypatch.setattr(Path, "replace", once)
        publish_really(out, card)

    def once(self, target):
        done = real(self, target)
        if self.parent.name == "kept" and self.suffix == ".safetensors":
            raise Stop
        return done

    publish_really = runs.publish
    monkeypatch.setattr(runs, "publish", publish)
    with pytest.raises(Stop):
        train(praise(), tiny_bert, tmp_path / "run", **options)
    monkeypatch.undo()
    assert not read_card(tmp_path / "run")["complete"]
    monkeypatch.setattr(TRAIN, "prepare_fine_tuning", stop)  # it is not trained, nor loaded, again
    done = train(praise(), tiny_bert, tmp_path / "run", **options)
    assert same_weights(done.path, finished.path)
    assert done.metrics == finished.metrics
    assert done.test is not None
    assert not (done.path / RESUME).exists()


def test_what_a_killed_process_was_writing_is_swept_away(interrupted, tiny_bert):
    (interrupted / ".step-3.12345").mkdir()
    (interrupted / ".step-3.12345" / "model.safetensors").write_bytes(b"half")
    done = train(praise(), tiny_bert, interrupted, **SHORT)
    assert not [p for p in done.path.iterdir() if p.name.startswith(".")]


def test_what_was_killed_before_its_first_card_is_begun_anew(tmp_path):
    """Also by a process of the same number, as in a container; what others call alike stays."""
    card = tmp_path / f".probekit.json.{os.getpid()}-140012345678912"
    card.write_text("{")
    note = card.with_name(f".probekit.json.draft.{os.getpid()}-140012345678912")
    note.write_bytes(_note(card.name))
    assert begin(tmp_path, {}, overwrite=False) is None
    assert not list(tmp_path.iterdir())
    card.write_text("{")
    note.write_bytes(_note(card.name))
    rows = tmp_path / ".rows.parquet.4711-140012345678912"
    rows.write_text("PAR1")
    rows.with_name(".rows.parquet.draft.4711-140012345678912").write_bytes(_note(rows.name))
    theirs = tmp_path / ".notes.4711-140012345678912"
    theirs.write_text("mine")
    remove_run(tmp_path)
    assert list(tmp_path.iterdir()) == [theirs]


@pytest.mark.parametrize("at", ["checkpoint", pytest.param("kept", marks=pytest.mark.slow)])
def test_a_full_disk_leaves_nothing_half_written(at, tiny_bert, tmp_path, monkeypatch, finished, capsys):
    """The size that files may have stands for the disk: safetensors and torch meet the error where it really comes."""
    size = (finished.path / "model.safetensors").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    largest = {"kept": size // 2, "checkpoint": size + 5000}[at]  # the optimiser's state is twice the weights
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, limits[1]))
    try:
        with pytest.raises(OSError, match="cannot be written|File too large"):
            train(praise(), tiny_bert, tmp_path / "run", **SHORT | {"save_at": "3"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    left = {p.name for p in (tmp_path / "run").iterdir()}
    assert left == {"probekit.json", RESUME} | ({"step-3"} if at == "checkpoint" else set())
    assert not list((tmp_path / "run").glob(f"{RESUME}/.*"))
    done = train(praise(), tiny_bert, tmp_path / "run", **SHORT | {"save_at": "3"})
    assert same_weights(done.path, finished.path)


def test_tensors_come_back_by_their_names(tiny_model, tmp_path):
    import torch

    shared = torch.arange(6.0).view(2, 3)
    state = {
        "encoder.a": shared,
        "encoder.b": shared,
        "encoder.t": shared.T,
        "head.w": torch.ones(2),
        "mix.g": torch.zeros(1),
    }
    card = {"format": "probekit-run/1", "prefix": "encoder."}
    save_folder(tmp_path / "x", state, card, tiny_model("t5"), Layout("encoder."))
    found = load_weights(tmp_path / "x")
    assert found.keys() == state.keys()
    assert all(torch.equal(found[k], v) for k, v in state.items())
    assert {k for k in weights(tmp_path / "x") if k.startswith("model")} == {
        f"model.safetensors:encoder.{x}" for x in "abt"
    }
    with pytest.raises(ModelError, match=r"has no head.safetensors"):
        load_weights(tiny_model("t5"))
