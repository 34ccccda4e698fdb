"""TOML and JSON of strangers, valid but of another structure: read, or told in a sentence, and nothing else happens."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders import word_caches
from damage import try_reading
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from structures import guarded, restructured
from test_fuzz_readers import make_study, make_task, make_words

import probekit
from probekit.errors import ProbekitError

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("reproduced_here")]
CHANGES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, (1 << 32) - 1)), min_size=1, max_size=3)


@dataclass(frozen=True)
class Subject:
    """What makes valid files, the one whose structure changes, what reads their folder; cases of the slow test."""

    make: Callable[[Path], object]
    file: str
    read: Callable[[Path], object]
    cases: int


MODEL: dict[str, Path] = {}


def make_chat(folder: Path) -> None:
    (folder / "t.toml").write_text('messages = "talk"\nlabel = "good"\n[splits]\ntrain = "c.jsonl"\n')
    talk = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "you"}]
    (folder / "c.jsonl").write_text(json.dumps({"talk": talk, "good": 1}) + "\n")


def read_task(folder: Path) -> None:
    from probekit.tasks.check import check_task

    task = probekit.load_task(str(folder / "t.toml"))
    for split in task.splits:
        part = task.split(split)
        [example.text for example in part]
    check_task(str(folder / "t.toml"))


def plan_study(folder: Path) -> None:
    from probekit.studies.options import StudyOptions
    from probekit.studies.planned import plan_study as plan

    make_task(folder)
    plan(folder / "s.toml", folder / "out", StudyOptions(model=(f"all-MiniLM-L6-v2={MODEL['bert']}",))).forecast()


def make_own_study(folder: Path) -> None:
    make_task(folder)
    (folder / "s.toml").write_text(
        f'title = "Mine"\nabout = "x"\nmodels = {{ tiny = "{MODEL["bert"]}" }}\n'
        f'[[train]]\ntasks = ["{folder}/t.toml"]\nname = "a"\nseeds = [0, 1]\nlimit = 10\n'
        "options = { epochs = 1, batch_size = 8 }\nfine-tune = { learning_rate = 1e-3 }\n"
        f'[[probe]]\ntasks = ["{folder}/t.toml"]\nof = ["pretrained", "random"]\npoolings = ["mean"]\n'
        "options = { controls = 2, folds = 2 }\n"
        f'[[mi]]\ntasks = ["{folder}/t.toml"]\noptions = {{ draws = 19 }}\n'
        '[[table]]\nkind = "regimes"\n[[figure]]\nkind = "layers"\nname = "f"\noptions = { width = "text" }\n'
    )


def make_suite(folder: Path) -> None:
    make_task(folder)
    (folder / "s.toml").write_text(
        f'title = "Mine"\nlimit = 100\nmodels = {{ tiny = "{MODEL["bert"]}" }}\n'
        f'[[tasks]]\ngroup = "g"\ntasks = ["{folder}/t.toml"]\noptions = {{ controls = 1, folds = 2 }}\n'
    )


def plan_suite(folder: Path) -> None:
    from probekit.studies.planned import plan_study as plan

    plan(folder / "s.toml", folder / "out", kind="suite").forecast()


def make_space(folder: Path) -> None:
    (folder / "s.toml").write_text(
        f'task = "{folder}/t.toml"\nmodel = "{MODEL["bert"]}"\ntrials = 2\nseeds = 1\nprune = true\nseed = 3\n[space]\n'
        "epochs = { low = 1, high = 3 }\nlearning_rate = { low = 1e-4, high = 1e-2, log = true }\n"
        "batch_size = [2, 4]\ndropout = [0.0, 0.1]\n"
    )


def read_space(folder: Path) -> None:
    from random import Random

    from probekit.adaptation.search.space import read_space as read

    space = read(folder / "s.toml")
    repr(space), Random(0)


def make_card(folder: Path) -> None:
    shutil.copy(MODEL["cache"], folder / "c.h5")
    with chdir(folder):
        probekit.mi("c.h5", out="r.parquet", layers=(0,), draws=1, controls=0)


def read_card(folder: Path) -> None:
    """As ``probekit reproduce`` does, in this process."""
    from probekit.provenance.reproduce import plan_reproduction, run_reproduction

    with chdir(folder):
        plan = plan_reproduction(folder / "r.parquet.json", folder / "again")
        outside = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if "again" not in path.parts}
        try:
            run_reproduction(plan)
        finally:
            after = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if "again" not in path.parts}
            assert after == outside, set(after.items()) ^ set(outside.items())


def make_model(folder: Path) -> None:
    shutil.copytree(MODEL["bert"], folder, dirs_exist_ok=True)


def read_model(folder: Path) -> None:
    from probekit.models import load_encoder

    batch = load_encoder(folder, device="cpu").tokenize(["the cat sat on the mat.", ""])
    assert batch.length.sum() > 0


def make_shards(folder: Path) -> None:
    from activations.toys import toy_task

    probekit.cache_activations(
        MODEL["bert"], toy_task(12), "train", out=folder / "c", shard_size=5, device="cpu"
    ).close()


def read_shards(folder: Path) -> None:
    with probekit.ActivationCache(folder / "c") as cache:
        [cache.layer(layer) for layer in cache.layers[:2]]
        _ = cache.labels, cache.ids, cache.origin, repr(cache)
    probekit.inspect(folder / "c")
    probekit.verify(folder / "c")


def make_config(kind: str, **settings: object) -> Callable[[Path], object]:
    return lambda folder: (folder / "c.json").write_text(json.dumps({"model_type": kind, **settings}))


def read_config(folder: Path) -> None:
    probekit.new_encoder(folder / "c.json", out=folder / "out", tokenizer=str(MODEL["bert"]))


SUBJECTS = {
    "tasks": Subject(make_task, "t.toml", read_task, 450),
    "tasks of words": Subject(
        lambda f: (make_words(f), shutil.move(f / "w.toml", f / "t.toml")), "t.toml", read_task, 450
    ),
    "tasks of chats": Subject(make_chat, "t.toml", read_task, 450),
    "lines of chats": Subject(make_chat, "c.jsonl", read_task, 450),
    "shipped studies": Subject(make_study, "s.toml", plan_study, 100),
    "studies": Subject(make_own_study, "s.toml", plan_study, 200),
    "suites": Subject(make_suite, "s.toml", plan_suite, 200),
    "spaces": Subject(make_space, "s.toml", read_space, 450),
    "cards": Subject(make_card, "r.parquet.json", read_card, 250),
    "configurations": Subject(make_model, "config.json", read_model, 150),
    "tokenizers": Subject(make_model, "tokenizer_config.json", read_model, 150),
    "manifests": Subject(make_shards, "c/manifest.json", read_shards, 250),
    "new models": Subject(make_config("gpt2", n_embd=8, n_layer=1, n_head=1), "c.json", read_config, 150),
    "new BiLSTMs": Subject(
        make_config("bilstm", input="pieces", cells=7, embedding_size=10), "c.json", read_config, 150
    ),
}


@pytest.fixture(scope="module")
def valid(tiny_bert, tmp_path_factory):
    """Folders of valid files, made once."""
    MODEL["bert"] = tiny_bert
    MODEL["cache"] = word_caches(tmp_path_factory.mktemp("caches"), tiny_bert)[0]

    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp("valid")
        SUBJECTS[name].make(folder)
        return folder

    return make


def attack(name: str, valid: Path, cases: int, *, seed: bool = False) -> Counter[str]:
    """What came of this many files of another structure; the first that is neither read nor told fails."""
    subject, found, wrong = SUBJECTS[name], Counter[str](), dict[str, tuple]()
    whole = valid.parent / f"{valid.name}.whole"
    shutil.copytree(valid, whole)

    def attempt(changes: list[tuple[float, int]]) -> None:
        shutil.rmtree(valid)
        shutil.copytree(whole, valid)
        data = restructured((whole / subject.file).read_bytes(), Path(subject.file).suffix, changes)
        (valid / subject.file).write_bytes(data)
        with guarded() as happened:
            outcome = try_reading(lambda: subject.read(valid), (ProbekitError, OSError), seconds=60)
        outcome = f"happened: {happened}" if happened else outcome
        found[outcome.partition(":")[0]] += 1
        if outcome not in ("read", "told"):
            wrong.setdefault(outcome[:50], (changes, outcome, data[:1500]))

    outcome = try_reading(lambda: subject.read(valid), (), seconds=60)
    assert outcome == "read", outcome
    run = settings(
        max_examples=cases, derandomize=not seed, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(given(CHANGES)(attempt))  # fmt: skip
    run()
    assert not wrong, f"{dict(found)}\n" + "\n".join(map(str, wrong.values()))
    return found


@pytest.mark.parametrize("name", ["tasks", "lines of chats"])
def test_files_of_another_structure_are_read_or_told(name, valid):
    assert sum(attack(name, valid(name), 6).values()) == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_thousands_of_files_of_another_structure(name, valid, capsys):
    found = attack(name, valid(name), SUBJECTS[name].cases, seed=True)
    with capsys.disabled():
        print(f"{name}: {dict(found)}")
