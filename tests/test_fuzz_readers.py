"""Every reader of files, given damaged ones: it reads them or tells in a sentence what is wrong, soon."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from damage import MUTATIONS, damaged, try_reading
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import probekit
from probekit.errors import ProbekitError

pytestmark = pytest.mark.filterwarnings("ignore")


@dataclass(frozen=True)
class Subject:
    """A reader: what makes valid files, which are damaged, what reads their folder; cases of the fast test."""

    make: Callable[[Path], object]
    files: tuple[str, ...]
    read: Callable[[Path], object]
    fast: int


def rows_table() -> pd.DataFrame:
    from probekit.rows import make_rows

    rows = [
        {"analysis": "probe", "task": "toy", "split": "dev", "model": "m", "layer": layer, "metric": "accuracy",
         "value": 0.5 + layer / 10, "ci_low": 0.4, "ci_high": 0.9, "n": 40, "seed": 0, "estimator": "logistic",
         "representation": "mean", "target": "gold"}
        for layer in range(3)
    ]  # fmt: skip
    return make_rows(pd.DataFrame(rows))


def make_rows_files(folder: Path) -> None:
    from probekit.rows import write_rows

    for name in ("r.parquet", "r.csv"):
        write_rows(rows_table(), folder / name, {"format": "probekit-card/2", "reads": [], "seconds": {}})


def make_predictions(folder: Path) -> None:
    from probekit.statistics.predictions import Predictions

    gold = np.arange(12) % 2
    fits = pd.DataFrame(
        {"task": ["toy"] * 2, "split": "dev", "target": ["gold", "shuffled"], "model": "m", "metric": "f"}
    )
    Predictions(
        fits,
        np.array([f"e{i}" for i in range(12)]),
        gold,
        np.stack([gold, 1 - gold]),
        ("accuracy",),
        None,
        None,
        ("a", "b"),
    ).write(folder / "p.examples.parquet")


def read_predictions(folder: Path) -> None:
    from probekit.statistics.predictions import Predictions

    Predictions.read(folder / "p.examples.parquet")


def make_cache(folder: Path, *, compress: bool = False) -> None:
    from activations.toys import toy_tags

    how: dict[str, Any] = {"tokens": True, "compress": compress, "device": "cpu"}
    probekit.cache_activations(MODEL["bert"], toy_tags(8), "train", out=folder / "c.h5", **how)


def read_cache(folder: Path) -> None:
    with probekit.ActivationCache(folder / "c.h5") as cache:
        for layer in cache.layers:
            np.asarray(cache.layer(layer)).sum()
            len(cache.tokens(layer))
        _ = cache.labels, cache.ids, cache.domains, cache.truncated, cache.recipe, cache.origin, repr(cache)
        cache.words(0)
    probekit.inspect(folder / "c.h5")
    probekit.verify(folder / "c.h5")


def make_task(folder: Path) -> None:
    (folder / "t.toml").write_text(
        'name = "mine"\ntype = "classification"\ntext = "a"\npair = "b"\nlabel = "gold"\nid = "key"\n'
        'metrics = ["matthews"]\nlabels = ["yes", "no"]\n[splits]\ntrain = "t.csv"\ndev = "t.jsonl"\n'
    )
    (folder / "t.csv").write_text('key,a,b,gold\nk1,"x, ""y""",z,no\nk2,a,b,yes\n')
    lines = [f'{{"key": "k{i}", "a": "x", "b": "y", "gold": "no"}}\n' for i in range(3)]
    (folder / "t.jsonl").write_text("".join(lines))


def make_words(folder: Path) -> None:
    (folder / "w.toml").write_text('type = "sequence-labelling"\n[splits]\ntrain = "w.conll"\ndev = "w.conllu"\n')
    (folder / "w.conll").write_text("-DOCSTART- O\n\nAnn B-PER\nsings O\n\nBob B-PER\n")
    (folder / "w.conllu").write_text(
        "# sent_id = s\n1\tAnn\t_\tB-PER\t_\t_\t0\troot\t_\t_\n2\tis\t_\tO\t_\t_\t1\tx\t_\t_\n\n"
    )
    pd.DataFrame({"words": [["a", "b"], ["c"]], "tags": [["O", "B-PER"], ["O"]]}).to_parquet(folder / "w.parquet")


def read_words(folder: Path) -> None:
    probekit.load_task(str(folder / "w.toml"))


def make_parquet_task(folder: Path) -> None:
    (folder / "q.toml").write_text('text = "a"\nlabel = "gold"\n[splits]\ntrain = "q.parquet"\n')
    pd.DataFrame({"a": [f"text {i}" for i in range(9)], "gold": [0, 1, 2] * 3}).to_parquet(folder / "q.parquet")


def make_questions(folder: Path) -> None:
    (folder / "t.toml").write_text('type = "question-answering"\n[splits]\ntrain = "q.json"\n')
    answers = [{"text": "cat", "answer_start": 4}]
    asked = [{"id": f"q{i}", "question": "who sat?", "answers": answers[: i % 2]} for i in range(3)]
    paragraphs = [{"context": "the cat sat on the mat", "qas": asked}]
    content = {"version": "v2.0", "data": [{"title": "cats", "paragraphs": paragraphs}]}
    (folder / "q.json").write_text(json.dumps(content))


def make_arrow(folder: Path) -> None:
    import pyarrow as pa

    (folder / "d").mkdir()
    table = pa.table({"text": ["one two", "three", "four"] * 3, "label": [0, 1, 1] * 3})
    with pa.OSFile(str(folder / "d/train.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    (folder / "d/README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: train.arrow\n---\n"
    )


def read_arrow(folder: Path) -> None:
    from probekit.domains.corpora import read_hub

    for chunk in read_hub(str(folder / "d"), "train").chunks:
        len(chunk.data)


def make_study(folder: Path) -> None:
    from importlib.resources import files

    shipped = files("probekit.studies") / "shipped"
    (folder / "s.toml").write_text((shipped / "table2-small.toml").read_text("utf-8"))


def read_study(folder: Path) -> None:
    from probekit.studies.file import read_study as read

    read(folder / "s.toml")


def make_space(folder: Path) -> None:
    from probekit.adaptation.search.space import shipped_spaces

    (folder / "s.toml").write_text('task = "cola"\nmodel = "m"\n' + shipped_spaces()["paper/fine-tune"])


def read_space(folder: Path) -> None:
    from probekit.adaptation.search.space import read_space as read

    read(folder / "s.toml")


def read_model(folder: Path) -> None:
    from probekit.models import load_encoder

    encoder = load_encoder(folder, device="cpu")
    batch = encoder.tokenize(["the cat sat on the mat.", ""])
    assert batch.length.sum() > 0


def make_elmo(folder: Path) -> None:
    from tiny_elmo import tiny_elmo

    tiny_elmo(folder)


def read_elmo(folder: Path) -> None:
    from probekit.models.elmo.files import convert_elmo

    convert_elmo(folder / "options.json", folder / "weights.hdf5", folder / "out")


def make_thoughts(folder: Path) -> None:
    from models.thoughts import publish

    publish(folder)
    (folder / "vectors.txt").write_text("4 3\nthe 0.1 0.2 0.3\ncat 1 2 3\nfox 0 1 0\nowl 3e38 1 1\n")


def read_thoughts(folder: Path) -> None:
    from probekit.models.skip_thoughts.files import convert_skip_thoughts

    convert_skip_thoughts(folder, folder / "out", vectors=folder / "vectors.txt")


def make_run(folder: Path) -> None:
    shutil.copytree(MODEL["run"], folder, dirs_exist_ok=True)


def read_run(folder: Path) -> None:
    from probekit.adaptation.runs.evaluation import load_learner
    from probekit.models.identity import trained_by

    trained_by(folder)
    load_learner(folder)


def make_corpora(folder: Path) -> None:
    import gzip

    (folder / "a.txt").write_text("one two three\nfour five\n\nsix\n" * 9)
    (folder / "b.jsonl").write_text('{"text": "one two"}\n{"text": "three", "id": 1}\n' * 5)
    (folder / "c.txt.gz").write_bytes(gzip.compress(b"one two three\n" * 50))


def read_corpora(folder: Path) -> None:
    from probekit.domains.corpora import read_files

    for chunk in read_files(folder).chunks:
        len(chunk.data)


def make_counts(folder: Path) -> None:
    for name in ("x", "y"):
        (folder / f"{name}.txt").write_text(f"one two three {name}\n" * 30)
    probekit.domains(f"x={folder}/x.txt", f"y={folder}/y.txt", counts=folder / "c.parquet", document="line")


def read_counts(folder: Path) -> None:
    from probekit.domains.terms import load_counts

    load_counts(folder / "c.parquet")


MODEL: dict[str, Path] = {}
BERT = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")


def make_activations(folder: Path) -> None:
    import torch
    from datasets import Array2D, Dataset, Features, Sequence, Value, disable_progress_bars
    from safetensors.torch import save_file

    x, ids = np.arange(60, dtype=np.float32).reshape(3, 5, 4), np.arange(15).reshape(3, 5)
    for name in ("v", "a", "n", "s"):
        (folder / name).mkdir(parents=True)
    save_file({"token_ids": torch.from_numpy(ids[0]), "hidden_states": torch.ones(5, 2, 4)}, folder / "v/0.safetensors")
    save_file({"token_ids": torch.from_numpy(ids), "layer_1": torch.from_numpy(x)}, folder / "a/a.safetensors")
    np.savez(folder / "n/a.npz", token_ids=ids, layer_1=x, attention_mask=ids > 1)
    disable_progress_bars()
    features = Features({"layer_1": Array2D((5, 4), "float32"), "token_ids": Sequence(Value("int32"), length=5)})
    Dataset.from_dict({"layer_1": x, "token_ids": ids}, features=features).save_to_disk(str(folder / "s"))


def read_activations(folder: Path) -> None:
    from probekit.activations.foreign.opening import open_source

    for name in ("v", "a", "n", "s"):
        source = open_source(folder / name)
        for i in range(min(len(source), 5)):
            _ = source.ids[i], [view.rows(i) for array in source.arrays for view in array.views]


SUBJECTS = {
    "rows parquet": Subject(make_rows_files, ("r.parquet",), lambda f: probekit.read_rows(f / "r.parquet"), 13),
    "rows csv": Subject(make_rows_files, ("r.csv",), lambda f: probekit.read_rows(f / "r.csv"), 20),
    "cards": Subject(make_rows_files, ("r.parquet.json",), lambda f: probekit.read(f / "r.parquet"), 13),
    "predictions": Subject(make_predictions, ("p.examples.parquet",), read_predictions, 20),
    "caches": Subject(make_cache, ("c.h5",), read_cache, 6),
    "compressed caches": Subject(lambda f: make_cache(f, compress=True), ("c.h5",), read_cache, 6),
    "questions": Subject(make_questions, ("t.toml", "q.json"), lambda f: probekit.load_task(str(f / "t.toml")), 33),
    "data sets": Subject(make_arrow, ("d/train.arrow", "d/README.md"), read_arrow, 6),
    "tasks": Subject(make_task, ("t.toml", "t.csv", "t.jsonl"), lambda f: probekit.load_task(str(f / "t.toml")), 50),
    "tasks of words": Subject(make_words, ("w.toml", "w.conll", "w.conllu"), read_words, 50),
    "tasks in parquet": Subject(make_parquet_task, ("q.parquet",), lambda f: probekit.load_task(str(f / "q.toml")), 26),
    "studies": Subject(make_study, ("s.toml",), read_study, 20),
    "spaces": Subject(make_space, ("s.toml",), read_space, 33),
    "models": Subject(lambda f: shutil.copytree(MODEL["bert"], f, dirs_exist_ok=True), BERT, read_model, 6),
    "elmo": Subject(make_elmo, ("options.json", "weights.hdf5"), read_elmo, 13),
    "skip-thoughts": Subject(
        make_thoughts, ("uni_skip.npz", "bi_skip.npz", "utable.npy", "dictionary.txt", "vectors.txt"), read_thoughts, 13
    ),
    "runs": Subject(make_run, ("probekit.json", "head.safetensors", "config.json", "model.safetensors"), read_run, 6),
    "corpora": Subject(make_corpora, ("a.txt", "b.jsonl", "c.txt.gz"), read_corpora, 50),
    "activations of others": Subject(
        make_activations,
        ("v/0.safetensors", "a/a.safetensors", "n/a.npz", "s/data-00000-of-00001.arrow", "s/state.json"),
        read_activations,
        20,
    ),
    "counts": Subject(make_counts, ("c.parquet",), read_counts, 20),
}


@pytest.fixture(scope="module")
def valid(tiny_bert, tmp_path_factory):
    """Folders of valid files, made once."""
    MODEL["bert"] = tiny_bert
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name == "runs" and "run" not in MODEL:
            from adaptation.lessons import praise

            MODEL["run"] = tmp_path_factory.mktemp("run") / "run"
            probekit.train(praise(8, 4), tiny_bert, MODEL["run"], epochs=1, batch_size=4, device="cpu")
        if name not in made:
            made[name] = tmp_path_factory.mktemp("valid")
            SUBJECTS[name].make(made[name])
        return made[name]

    return make


def attack(name: str, valid: Path, cases: int, seed: int = 0) -> Counter[str]:
    """What came of this many damaged files; the first that is neither read nor told fails."""
    subject, found, wrong = SUBJECTS[name], Counter[str](), dict[str, tuple]()
    folder = valid.parent / f"{valid.name}.damaged"

    def attempt(file: str, mutations: list) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(valid, folder)
        (folder / file).write_bytes(damaged((valid / file).read_bytes(), mutations))
        outcome = try_reading(lambda: subject.read(folder), (ProbekitError, OSError))
        found[outcome] += 1
        if outcome not in ("read", "told"):
            wrong.setdefault(outcome.partition(":")[0], (file, mutations, outcome))

    assert try_reading(lambda: subject.read(Path(shutil.copytree(valid, folder, dirs_exist_ok=True))), ()) == "read"
    run = settings(
        max_examples=cases, derandomize=not seed, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(given(st.sampled_from(subject.files), MUTATIONS)(attempt))  # fmt: skip
    run()
    assert not wrong, "\n".join(map(str, wrong.values()))
    return found


@pytest.mark.parametrize("name", SUBJECTS)
def test_damaged_files_are_read_or_told(name, valid):
    assert sum(attack(name, valid(name), SUBJECTS[name].fast).values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_ten_thousand_damaged_files(name, valid, capsys):
    found = attack(name, valid(name), 10_000 // len(SUBJECTS), seed=1)
    with capsys.disabled():
        print(f"{name}: {dict(found)}")
