"""Studies that make and pretrain their encoders: steps and recipes, what is refused, and resuming after a kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import probekit
from probekit.errors import DataError
from probekit.studies.file import read_study
from probekit.studies.plan import check_steps, study_steps
from probekit.studies.records import tidy
from probekit.studies.steps import Inside, Step

CONFIG = '{ model_type = "bilstm", input = "pieces", cells = 6, embedding_size = 5, directions = "separate" }'
FAST = "steps = 8, batch_size = 4, evaluate_every = 4, outputs = 40, hidden_size = 5, limit = 40, dev_limit = 20"
STUDY = """
title = "Friends"

[encoders.bilstm]
tokenizer = "{tokenizer}"
config = {config}

[[pretrain]]
seeds = [0, 3]
on = {{ random = [] }}

[[pretrain]]
options = {{ {fast} }}
[pretrain.on]
Grammar = ["grammar:sentiment"]
"Denoise, grammar" = ["denoise:books.txt", "grammar:sentiment"]

[[train]]
tasks = ["grammar:sentiment"]
regimes = ["feature-extraction"]
seeds = [7]
limit = 60
options = {{ head = "max-mlp", hidden_size = 4, epochs = 1, layers = ["output"] }}
"""


@pytest.fixture
def written(tmp_path, tiny_bert):
    """A function that writes the study, with replacements, to a folder with its text."""
    words = "the cat sat on the mat and the dog ran".split()
    sentences = [" ".join(words[i % 7 :] + words[: i % 5]) for i in range(60)]
    (tmp_path / "books.txt").write_text("\n".join(sentences) + "\n")

    def write(**changes):
        text = STUDY.format(tokenizer=tiny_bert, config=CONFIG, fast=FAST)
        for old, new in changes.items():
            assert text.count(old) or old == "add"
            text = text + new if old == "add" else text.replace(old, new)
        path = tmp_path / "friends.toml"
        path.write_text(text)
        return path

    return write


def planned(path):
    study = read_study(path)
    steps = study_steps(study, path.parent)
    check_steps(study, steps)
    assert [step.error for step in steps if step.error] == []
    return {step.name: step for step in steps}


def test_encoders_are_made_pretrained_and_used(written):
    steps = planned(written())
    assert list(steps) == [
        "encoder bilstm.0", "encoder bilstm.3", "pretrain.Grammar.0", "pretrain.Denoise-grammar.0",
        *(f"grammar-sentiment.{run}" for run in (
            "random.feature-extraction.0", "random.feature-extraction.3", "Grammar.feature-extraction.0",
            "Denoise-grammar.feature-extraction.0",
        )), "report",
    ]  # fmt: skip
    new = steps["encoder bilstm.3"].recipe(Path("out"))
    assert (new.arguments["seed"], new.leaves["out"]) == (3, "out/encoders/bilstm.3")
    pretraining = steps["pretrain.Denoise-grammar.0"]
    recipe = pretraining.recipe(Path("out"))
    assert recipe.arguments["on"] == ["denoise:books.txt", "grammar:sentiment"]
    assert (recipe.arguments["model"], recipe.arguments["run_name"]) == ("out/encoders/bilstm.0", "Denoise, grammar")
    assert (recipe.arguments["steps"], pretraining.needs) == (8, ("encoder bilstm.0",))
    run = steps["grammar-sentiment.random.feature-extraction.3"]
    assert run.needs == ("encoder bilstm.3",)
    assert {k: run.arguments[k] for k in ("model", "model_name", "seed", "caches")} == {
        "model": Inside("encoders/bilstm.3"), "model_name": "random", "seed": 3, "caches": Inside(run.scratch),
    }  # fmt: skip
    last = steps["grammar-sentiment.Denoise-grammar.feature-extraction.0"]
    assert last.arguments["model"] == Inside("runs/pretrain.Denoise-grammar.0")
    assert last.needs == ("pretrain.Denoise-grammar.0",)


def test_runs_are_evaluated_on_another_task(written):
    section = '[[evaluate]]\ntask = "grammar:sentiment"\nof = "grammar:sentiment"\nsplit = "dev"\n'
    steps = planned(written(add=section + "options = { batch_size = 8 }"))
    step = steps["evaluate grammar-sentiment.grammar-sentiment.random.feature-extraction.3"]
    recipe = step.recipe(Path("out"))
    assert recipe.arguments["run"] == "out/runs/grammar-sentiment.random.feature-extraction.3"
    assert (recipe.arguments["model"], recipe.arguments["batch_size"]) == ("out/encoders/bilstm.3", 8)
    assert step.needs == ("grammar-sentiment.random.feature-extraction.3",)
    assert step.scratch == recipe.leaves["caches"].removeprefix("out/")
    with pytest.raises(probekit.ProbekitError, match=r"\[\[evaluate\]\] needs runs on cola"):
        planned(written(add=section.replace('of = "grammar:sentiment"', 'of = "cola"')))


LAYERS = """
[[probe]]
tasks = ["grammar:sentiment"]
of = ["pretrained", "random"]
limit = 40

[[compare]]
of = ["pretrained", "random"]

[[mi]]
tasks = ["grammar:sentiment"]
models = ["Grammar"]

[[transferability]]
tasks = ["grammar:sentiment"]
models = ["random", "Grammar"]
options = { measures = "logme", draws = 19 }
"""


def test_layers_of_encoders_are_analysed(written):
    steps = planned(written(add=LAYERS))
    analyses = [name for name in steps if name.split()[0] in ("probe", "mi", "transferability", "compare")]
    assert analyses == [
        *(f"probe grammar-sentiment.{m}.{of}.mean" for m in ("random", "Grammar", "Denoise-grammar")
          for of in ("pretrained", "random")),
        "mi grammar-sentiment.Grammar.pretrained.mean",
        *(f"transferability grammar-sentiment.{m}.pretrained.mean" for m in ("random", "Grammar")),
        *(f"compare grammar-sentiment.{m}.pretrained-random.mean" for m in ("random", "Grammar", "Denoise-grammar")),
    ]  # fmt: skip
    cache = steps["cache grammar-sentiment.Denoise-grammar.train.limit-40"]
    assert cache.needs == ("pretrain.Denoise-grammar.0",)
    assert cache.arguments["model"] == Inside("runs/pretrain.Denoise-grammar.0")
    assert cache.arguments["model_name"] == "Denoise, grammar"
    untrained = steps["cache grammar-sentiment.random.train"]
    assert (untrained.arguments["model"], untrained.needs) == (Inside("encoders/bilstm.0"), ("encoder bilstm.0",))
    scores = steps["transferability grammar-sentiment.random.pretrained.mean"]
    assert (scores.arguments["draws"], scores.needs) == (19, (untrained.name,))
    with pytest.raises(DataError, match="mi: unknown model 'Gramar'; the models are random, Grammar"):
        read_study(written(add=LAYERS.replace('models = ["Grammar"]', 'models = ["Gramar"]')))


def test_layers_are_compared_across_models(written):
    """One step per task compares all models in pairs, also those that different sections probe."""
    probes = LAYERS + '[[probe]]\ntasks = ["grammar:similarity"]\nmodels = ["random"]\nname = "a"\n'
    probes += '[[probe]]\ntasks = ["grammar:similarity"]\nmodels = ["Grammar"]\nname = "b"\n'
    steps = planned(written(add=probes + '[[similarity]]\nacross = "models"\noptions = { draws = 0 }'))
    found = {name: step for name, step in steps.items() if step.function == "similarity"}
    names = {"sentiment": ("random", "Grammar", "Denoise-grammar"), "similarity": ("random", "Grammar")}
    assert list(found) == [f"similarity grammar-{task}.models.pretrained.mean" for task in names]
    for step, (task, models) in zip(found.values(), names.items(), strict=True):
        caches = [f"caches/grammar-{task}.{model}.dev.h5" for model in models]
        assert step.arguments["caches"] == [Inside(leaf) for leaf in caches]
        assert (step.arguments["against"], step.arguments["draws"]) == ("all", 0)
        assert step.needs == tuple(f"cache grammar-{task}.{model}.dev" for model in models)
    some = 'across = "models"\nmodels = ["Grammar", "random"]\nof = ["pretrained", "random"]\n'
    steps = planned(written(add=f'{LAYERS}[[similarity]]\n{some}options = {{ against = "first" }}'))
    caches = [
        f"caches/grammar-sentiment.{m}.dev.h5" for m in ("Grammar", "Grammar.random-0", "random", "random.random-0")
    ]
    (step,) = (step for step in steps.values() if step.function == "similarity")
    assert step.arguments["caches"] == [Inside(leaf) for leaf in caches]
    assert step.arguments["against"] == "first"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('across = "models"\nmodels = ["random"]', "needs two or more models, but grammar:sentiment has one"),
        ('across = "models"\nof = ["fine-tuned"]', r'needs a section \[\[probe\]\] with of = \["fine-tuned"\]'),
        ('across = "models"\nmodels = ["Gramar"]', "similarity: unknown model 'Gramar'; the models are random"),
        ('across = "layers"', "similarity.0.across"),
        ('[[movement]]\nacross = "models"', "unknown key 'movement.0.across'"),
    ],
)
def test_models_that_cannot_be_compared(written, section, message):
    with pytest.raises(probekit.ProbekitError, match=message):
        planned(written(add=f"{LAYERS}[[similarity]]\n{section}"))


def test_costs_come_from_the_configuration(written):
    small, large = (planned(written(**{"cells = 6": f"cells = {cells}"})) for cells in (6, 60))
    for name in ("pretrain.Grammar.0", "grammar-sentiment.Grammar.feature-extraction.0"):
        assert 0 < small[name].work < large[name].work
    longer = planned(written(**{"steps = 8": "steps = 80"}))
    assert longer["pretrain.Grammar.0"].work == pytest.approx(10 * small["pretrain.Grammar.0"].work)


def digests(steps):
    done = {}
    for step in steps.values():
        done[step.name] = step.digest(done)
    return done


def test_what_a_pretraining_reads_is_part_of_its_digest(written):
    before = digests(planned(written()))
    book = written().parent / "books.txt"
    book.write_text(book.read_text() + "a new sentence .\n")
    after = digests(planned(written()))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"pretrain.Denoise-grammar.0", "grammar-sentiment.Denoise-grammar.feature-extraction.0", "report"}
    seeds = digests(planned(written(**{"cells = 6": "cells = 7"})))
    assert all(seeds[name] != after[name] for name in after)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"[[pretrain]]\noptions": '[[pretrain]]\nencoder = "bilst"\noptions'}, "unknown encoder 'bilst'; did you"),
        ({"add": "[encoders.other]\nconfig = {}"}, "pretrain.0: unknown encoder ''; bilstm, other"),
        ({"Grammar =": "random ="}, "two models or encoders are called 'random'"),
        ({"add": '[[pretrain]]\non = { x = [] }\noptions = { step = 3 }'}, "'step'; did you mean steps"),
        ({"add": '[[pretrain]]\non = { x = [] }\noptions = { seed = 3 }'}, "seed is not allowed"),
        ({"tokenizer =": "seed = 3\ntokenizer ="}, "encoders.bilstm: seed is not allowed"),
        ({"tokenizer =": "tokeniser ="}, "encoders.bilstm: .*'tokeniser'; did you mean tokenizer"),
        ({"config =": "lower_case ="}, "encoders.bilstm: "),
        ({'regimes =': 'models = ["Random"]\nregimes ='}, "unknown model 'Random'; the models are random"),
    ],
)  # fmt: skip
def test_what_is_refused_before_anything_is_planned(written, changes, message):
    with pytest.raises(DataError, match=message):
        read_study(written(**changes))


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("denoising:books.txt", "did you mean denoise"),
        ("denoise:novels.txt", "novels.txt"),
        ("denoise", "denoise needs a corpus"),
    ],
)
def test_an_objective_that_cannot_be_read_stops_only_its_steps(written, objective, message):
    path = written(**{'"denoise:books.txt", ': f'"{objective}", '})
    steps = {step.name: step for step in study_steps(read_study(path), path.parent)}
    errors = {name: step.error for name, step in steps.items() if step.error}
    assert list(errors) == ["pretrain.Denoise-grammar.0"]
    assert message in errors["pretrain.Denoise-grammar.0"]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("validation = 0.25", "a held-out part of train"),
        ('dev = "train"', "train"),
        ('test = "train"', "train"),
        ('validation = 0.25\ntrain = "dev"', None),
        ('validation = 0.25\nmodels = ["random"]', None),
    ],
)
def test_targets_are_not_reported_on_examples_of_pretraining(written, change, part):
    path = written(**{"limit = 60": f"limit = 60\n{change}"})
    errors = {step.name: step.error for step in study_steps(read_study(path), path.parent) if step.error}
    runs = [] if part is None else ["Grammar.feature-extraction.0", "Denoise-grammar.feature-extraction.0"]
    assert list(errors) == [f"grammar-sentiment.{run}" for run in runs]
    for name, error in errors.items():
        model = "Grammar" if ".Grammar." in name else "Denoise, grammar"
        expected = (
            f"{model} is pretrained on grammar:sentiment train, with labels, so results on {part} would say nothing"
        )
        assert error.startswith(expected)


def test_tables_and_learning_curves_of_some_encoders(written):
    chosen = 'options = { models = ["random", "Denoise, grammar"], variants = [""] }'
    learning = 'kind = "learning"\nrows = "train"\noptions = { over = "pretraining", models = ["random", "Grammar"] }'
    steps = planned(written(add=f'\n[[table]]\nkind = "glue"\n{chosen}\n[[figure]]\n{learning}\n'))
    table, figure = (steps[name].arguments for name in ("table glue", "figure learning"))
    assert (table["models"], table["variants"]) == (["random", "Denoise, grammar"], [""])
    assert (figure["over"], figure["models"]) == ("pretraining", ["random", "Grammar"])
    assert Inside("runs/pretrain.Grammar.0/rows.parquet") in figure["rows"]


def test_an_encoder_that_is_there_is_left_as_it_is(tmp_path, tiny_bert):
    config = {"model_type": "bilstm", "input": "pieces", "cells": 3, "embedding_size": 4}
    made = probekit.new_encoder(config, tmp_path / "a", tokenizer=tiny_bert)
    weights = made / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert probekit.new_encoder(config, tmp_path / "a", tokenizer=tiny_bert) == made
    (made / "untrained.json").unlink()  # a folder of an earlier version
    assert probekit.new_encoder(config, tmp_path / "a", tokenizer=tiny_bert) == made
    assert weights.stat().st_mtime_ns == before
    with pytest.raises(probekit.ProbekitError, match="exists, and differs from the requested encoder"):
        probekit.new_encoder(config, tmp_path / "a", tokenizer=tiny_bert, seed=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_only_caches_are_deleted_from_scratch(tmp_path):
    step = Step("s", scratch="caches/s")
    folder = tmp_path / "caches/s"
    folder.mkdir(parents=True)
    (folder / "mine.h5").write_text("not a cache")
    tidy(tmp_path, step)
    assert (folder / "mine.h5").exists()
    (folder / "mine.h5").unlink()
    tidy(tmp_path, step)
    assert not folder.exists()


@pytest.mark.slow
def test_a_killed_study_resumes_to_the_same_numbers(written, tmp_path):
    path = written()

    def numbers(out):
        rows = [probekit.read_rows(file) for file in sorted(out.glob("runs/*/rows.parquet"))]
        return [(row.model, row.task, row.metric, row.step, row.value) for one in rows for row in one.itertuples()]

    whole = probekit.study(path, out=tmp_path / "whole", data_dir=tmp_path)
    assert not whole.failed
    assert {row[0] for row in numbers(tmp_path / "whole")} == {"random", "Grammar", "Denoise, grammar"}
    assert not list((tmp_path / "whole/caches").glob("*/*"))
    command = [sys.executable, "-m", "probekit", "study", "run", str(path), "--data-dir", str(tmp_path)]
    command += ["--out", str(tmp_path / "killed")]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as one:
        until = time.monotonic() + 300
        while not list((tmp_path / "killed").glob("runs/pretrain.*/probekit.json")) and time.monotonic() < until:
            time.sleep(0.02)
        os.killpg(one.pid, signal.SIGKILL)
    again = probekit.study(path, out=tmp_path / "killed", data_dir=tmp_path)
    states = [outcome.state for outcome in again.outcomes]
    assert set(states) == {"done", "reused"}
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "whole")
