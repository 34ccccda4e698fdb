"""Rows made again from their cards: the comparison against constructed rows, and cards that are not to be trusted."""

import inspect
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import probekit
from probekit.cli import main
from probekit.errors import DataError, UsageError
from probekit.functions import FUNCTIONS, hints, outputs, parameters, rows_of
from probekit.provenance.cards import DROPPED, READS, elsewhere, read_any_card, unread, writing
from probekit.provenance.comparison import compare_rows
from probekit.provenance.old_cards import recipe_of_command
from probekit.recipe import Recipe
from probekit.rows import make_rows, read_card, read_rows, write_rows

module = import_module("probekit.provenance.reproduce")


def rows(**change):
    base = {"task": "t", "split": "dev", "model": "m", "representation": "mean", "estimator": "e", "target": "gold"}
    more = {"metric": ["accuracy", "accuracy", "log-loss"], "layer": [0, 1, 0], "value": [0.5, 0.75, 0.3], "n": 8}
    own = {
        "ci_low": [0.4, math.nan, 0.2],
        "ci_high": [0.6, math.nan, 0.4],
        "penalty": 0.1,
        "converged": True,
        "note": "",
    }
    return make_rows(pd.DataFrame(more | base | own | change))


@cache
def compared(off):
    return compare_rows(rows(), rows(value=[0.5, 0.75 + off, 0.3]))


def test_equal_rows_in_any_order():
    found = compare_rows(rows(), rows().iloc[[2, 0, 1]])
    assert found.within(0)
    assert found.metrics["rows"].tolist() == found.metrics["equal"].tolist() == [2, 1]
    assert not found.metrics[["value", "interval", "others"]].to_numpy().any()


@pytest.mark.parametrize(
    ("change", "metric", "column", "size"),
    [
        ({"value": [0.5, 0.75 + 2**-20, 0.3]}, "accuracy", "value", 2**-20),
        ({"ci_low": [0.4, math.nan, 0.1875]}, "log-loss", "interval", 0.2 - 0.1875),
        ({"ci_high": [math.nan, math.nan, 0.4]}, "accuracy", "interval", math.inf),
        ({"penalty": [0.1, 0.1, 0.35]}, "log-loss", "others", 0.35 - 0.1),
        ({"value": [0.5, math.inf, 0.3]}, "accuracy", "value", math.inf),
    ],
)
def test_numbers_that_are_off(change, metric, column, size):
    found = compare_rows(rows(), rows(**change))
    table = found.metrics.set_index("metric")
    assert table.loc[metric, column] == size
    others = [c for c in ("value", "interval", "others") if c != column]
    assert not table[others].to_numpy().any()
    assert table.loc[metric, "rows"] - table.loc[metric, "equal"] == 1
    assert not found.within(0)
    assert found.within(size)
    assert found.within(np.nextafter(size, 0)) == math.isinf(np.nextafter(size, 0))


@pytest.mark.parametrize("change", [{"n": [8, 9, 8]}, {"converged": [True, False, True]}, {"note": ["", "x", ""]}])
def test_what_is_no_measurement_must_be_equal(change):
    found = compare_rows(rows(), rows(**change))
    assert found.metrics["words"].tolist() == [next(iter(change)), ""]
    assert found.metrics["equal"].tolist() == [1, 1]
    assert not found.within(math.inf)


def test_rows_that_are_missing_and_new():
    found = compare_rows(rows(), rows(layer=[0, 2, 0]))
    assert found.missing["layer"].tolist() == [1]
    assert found.new["layer"].tolist() == [2]
    assert not found.within(math.inf)
    assert not compare_rows(rows(), rows().iloc[:2]).within(math.inf)
    assert not compare_rows(rows().iloc[:2], rows()).within(math.inf)
    twice = pd.concat([rows(), rows()], ignore_index=True)
    assert len(compare_rows(twice, rows()).missing) == 3
    assert compare_rows(twice, twice).within(0)
    assert not compare_rows(rows(), rows().drop(columns="note")).within(math.inf)


def turned(command, tmp_path):
    return elsewhere(recipe_of_command(f"probekit {command}"), tmp_path / "scratch", tmp_path)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("probekit probe a b; rm -rf /", "no such option: -rf"),
        ("probekit probe a b --out x.parquet; touch y", "writes no rows"),
        ("python -c 'import os'", "made by a program, not by a command of probekit"),
        ("/bin/sh -c probekit", "made by a program"),
        ("train.py --out x", "made by a program"),
        ("../probekit probe a b --out x.parquet", "made by a program"),
        ("probekit", "cannot be reproduced; these can: angles, apply, average, choices, compare, demo"),
        ("probekit clean --yes --what caches", "probekit clean cannot be reproduced"),
        ("probekit reproduce x.json", "cannot be reproduced"),
        ("probekit convert elmo a b /etc/x", "probekit convert cannot be reproduced"),
        ("probekit plot layers rows.parquet --out /etc/x.pdf", "cannot be reproduced"),
        ("probekit cache-activations --model m --task t --out /etc/x", "cannot be reproduced"),
        ("probekit probe a b --examples /etc/x --out x.parquet", "No such option: --examples"),
        ("probekit probe a b --ou=/etc/x", "No such option: --ou"),
        ("probekit probe a b", "writes no rows"),
        ("probekit probe --help", "asks for help"),
        ("probekit --version", "asks for help, or for the version"),
        ("probekit mdl a.h5 /etc/b --out x.parquet", "does not understand /etc/b"),
        ("probekit probe 'a b --out x.parquet", "cannot be read"),
        ("probekit probe a b --out x.parquet --folds many", "folds is 'many'"),
        ("probekit probe a b --balanced=/etc/x --out x.parquet", "takes no value"),
        ("probekit probe a b --folds", "ends with --folds"),
        (" ", "holds no command"),
        (3, "holds no command"),
    ],
)
def test_commands_of_old_cards_that_are_refused(command, message, tmp_path):
    with pytest.raises(UsageError, match=f"(?i){message}"):
        elsewhere(recipe_of_command(command), tmp_path / "scratch", tmp_path)
    assert list(tmp_path.iterdir()) == []


PROBE = {"train": "a.h5", "dev": "b.h5"}
NESTED = {"function": "probe", "arguments": PROBE, "leaves": {"out": "/etc/x.parquet"}}
OUT = {"leaves": {"out": "x.parquet"}}


def of(leaves=OUT["leaves"], function="probe", **more):
    return {"function": function, "arguments": {**PROBE, **more}, "leaves": leaves}


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"function": "os.system", "arguments": {"command": "touch x"}, **OUT}, "no function 'os.system'"),
        ({"function": "clean", "arguments": {"folder": "/"}, **OUT}, "no function 'clean'"),
        ({"function": ["probe"], "arguments": PROBE, **OUT}, "no function"),
        ({"function": "plot", "arguments": {"kind": "layers"}, "leaves": {"out": ["/etc/x.pdf"]}}, "cannot be"),
        ({"function": "cache_activations", "arguments": {"model": "m", "task": "t"}, **OUT}, "cannot be reproduced"),
        (of(__class__="x"), "has no parameter '__class__'"),
        (of(_cache="x"), "has no parameter '_cache'"),
        (of(options={"folds": 3}), "has no parameter 'options'"),
        (of(progress="print"), "has no parameter 'progress'"),
        (of(out="/etc/x.parquet"), "has no parameter 'out'"),
        (
            {"function": "probe", "arguments": PROBE, "defaults": {"out": "/etc/x.parquet"}, **OUT},
            "has no parameter 'out'",
        ),
        (of({"train": "x"}), "has no parameter 'train'"),
        (of({"out": ["/etc/x.parquet"]}), "which is not a path"),
        (of({"out": {"a": 1}}), "which is not a path"),
        (of({"out": "x\0.parquet"}), "which is not a path"),
        (of({"out": "/etc/passwd"}), "writes no rows"),
        (of({"out": ".."}), "writes no rows"),
        (of({}), "writes no rows"),
        ({"function": "probe", "arguments": {"train": "a.h5"}, **OUT}, "probe needs dev"),
        (of(folds="many"), "folds is 'many'"),
        (of(folds=1e400), "folds is inf"),
        (of(layers={"a": 1}), "layers is"),
        (of(train={"object": "os"}), "was a Python object"),
        (of(train=7), "train is 7"),
        (of(train={"recipe": {"function": "train"}}), "train does not return a result"),
        (of(train={"recipe": {"function": "report"}}), "does not return a result"),
        (of(train={"recipe": {"function": "evaluate", "arguments": {"run": "r"}}}), "does not return a result"),
        (of(train={"recipe": {**NESTED, "arguments": {}}}), "probe needs"),
        (of(train={"recipe": of(train={"recipe": {"function": "demo"}})}), "demo does not return a result"),
        ({"function": "probe", "arguments": [1], **OUT}, "not a recipe"),
        ([], "not a recipe"),
        (None, "not a recipe"),
        ("probekit probe a b", "not a recipe"),
    ],
)
def test_strangers_recipes_that_are_refused(told, message, tmp_path):
    (tmp_path / "r.parquet").touch()
    (tmp_path / "r.parquet.json").write_text(json.dumps({"recipe": told, "rows": {"file": "r.parquet"}}))
    with pytest.raises(UsageError, match=message):
        elsewhere(read_any_card(tmp_path / "r.parquet").recipe, tmp_path / "scratch", tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.parquet", "r.parquet.json"]


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("probe a.h5 '$(touch x)' --out /etc/x.csv", {"out": "out/x.csv"}),
        ("-v mi a.h5 --out=a.csv --out ../../x.parquet", {"out": "out/x.parquet"}),
        ("domains a=/t --counts /etc/c.parquet --out r.csv", {"out": "out/r.csv", "counts": "counts/c.parquet"}),
        (
            "train --task t --model m --regime feature-extraction --caches /etc --out /r/one --report-to wandb",
            {"out": "out/one", "caches": "caches/etc"},
        ),
        ("train --task t --model m --regime feature-extraction --out x", {"out": "out/x", "caches": "caches/caches"}),
        ("train --task t --model m --out ..", {"out": "out/*"}),
        ("search paper/fine-tune", {"out": "out/out"}),
        ("demo", {"figures": "figures/figures", "caches": "caches/caches"}),
    ],
)
def test_all_that_is_written_goes_elsewhere(command, written, tmp_path):
    recipe, made = turned(command, tmp_path)
    places = {key: place.replace("*", tmp_path.parent.name) for key, place in written.items()}
    assert recipe.leaves == {key: str(tmp_path / "scratch" / place) for key, place in places.items()}
    assert " /etc" not in str(recipe)
    assert not set(DROPPED) & set(recipe.arguments)
    assert made.is_relative_to(tmp_path / "scratch")
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (
            "probe a.h5 --layers 0,6,final_norm 'b c.h5' --balanced --penalties 0.1,1 --seed 3 --out x.parquet",
            {"train": "a.h5", "dev": "b c.h5", "layers": [0, 6, "final_norm"], "balanced": True, "seed": 3}
            | {"penalties": [0.1, 1.0]},
        ),
        (
            "train --task t --model m --no-group --mix --warmup=.2 --out runs/x",
            {"task": "t", "model": "m", "group": False, "mix": True, "warmup": 0.2},
        ),
    ],
)
def test_everything_else_stays_as_it_was(words, arguments, tmp_path):
    recipe, _ = turned(words, tmp_path)
    assert recipe.arguments == arguments
    assert recipe.function == words.split()[0]


READ = {
    "probe": {"train", "dev", "more", "pooling", "layers", "metrics", "estimator", "penalties", "choose_by",
              "groups", "task", "data_dir", "span", "scores"},
    "stream": {"analysis", "chat_template", "data_dir", "dev", "device", "dtype", "layers", "merge", "metrics", "model",
               "model_name", "pairs", "part", "pooling", "positions", "revision", "sites", "split", "task"},
    "edges": {"train", "dev", "more", "metrics", "task", "data_dir", "pooling", "layers", "groups", "span", "probe"},
    "scoreboard": {"sources", "groups", "against", "control"},
    "structural": {"train", "dev", "more", "task", "data_dir", "pooling", "layers", "groups", "span"},
    "pairs": {"source", "task", "data_dir", "pooling", "layers", "device", "model_name", "dtype", "revision", "scores",
              "by", "prefix"},
    "apply": {"probe", "data", "split", "data_dir", "model", "layer", "by", "anyway", "beside", "device"},
    "explain": {"probe", "data", "split", "data_dir", "model", "layer", "by", "lens", "anyway", "device"},
    "import_probe": {"coefficients", "cache", "layer", "pooling"},
    "angles": {"probes", "cache", "layers", "groups"},
    "recheck": {
        "probe", "data", "before", "split", "data_dir", "model", "layer", "dtype", "template",
        "prefix", "device",
    },
    "surprisal": {
        "model", "task", "split", "data_dir", "model_name", "prefix", "score", "device", "dtype", "revision",
    },
    "places": {"train", "test", "more", "task", "data_dir", "pooling", "layers", "groups", "span", "penalties"},
    "choices": {"model", "task", "data_dir", "device", "dtype", "revision", "prompt", "score"},
    "shift": {"train", "dev", "more", "tasks", "data_dir", "pooling", "layers", "groups", "span", "estimators"},
    "directions": {"train", "dev", "more", "pooling", "layers", "groups", "span", "penalties", "metric", "estimator"},
    "mdl": {"train", "code", "pooling", "layers", "groups"},
    "similarity": {"caches", "against", "pooling", "layers", "groups", "measures"},
    "movement": {"caches", "pooling", "layers", "groups", "measures"},
    "geometry": {"caches", "pooling", "layers", "groups"},
    "transferability": {"caches", "pooling", "layers", "groups", "measures"},
    "units": {"train", "dev", "more", "probe", "pooling", "layers", "groups", "span", "rankings", "metric"},
    "mi": {"caches", "estimator", "pooling", "layers", "groups"},
    "compare": {"first", "second", "against", "metric", "correction", "tails"},
    "summary": {"first", "more", "metric"},
    "domains": {
        "sources", "task", "data_dir", "split", "measure", "stop_words", "tokenizer", "document", "field", "explain",
    },
    "train": {
        "task", "model", "data_dir", "train", "dev", "test", "head", "pooling", "pairs", "layers", "save_at",
        "model_name", "run_name", "variant", "revision", "device", "cache", "teacher", "targets",
        "fisher_task", "fisher_split", "fisher_data_dir", "order", "layer_factor",
        "unlabelled", "pseudo_labels", "window_pooling", "also", "sampling", "quantise", "slices", "slice_heads",
    },
    "pretrain": {"model", "text", "dev", "config", "tokenizer", "save_at", "device", "run_name"},
    "pretrain_encoder": {"model", "on", "sampling", "scaling", "data_dir", "device", "run_name", "attention"},
    "search": {"space", "task", "model", "data_dir", "test", "device", "sampler"},
    "demo": set(),
    "guidelines": {"runs", "metric", "split", "reference"},
    "ensemble": {"runs", "split"},
    "average": {"runs", "device"},
    "evaluate": {"run", "task", "split", "data_dir", "cache", "model", "device", "slices", "text"},
    "table": {"kind", "rows", "published", "models", "variants"},
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if rows_of(name)[0]])
def test_no_argument_that_might_write_is_overlooked(name):
    """A new argument that takes words must be told here to be read only, or marked to be written."""
    declared = hints(name)
    takes = {
        key for key in parameters(name)
        if {"str", "Path", "Any"} & set(re.findall(r"\w+", inspect.formatannotation(declared.get(key, "Any"))))
    }  # fmt: skip
    assert set(READS.get(name, ())) <= READ[name]
    assert takes - READ[name] - {"progress", "watcher", "through", *DROPPED} == set(outputs(name))


def test_cards_that_are_none(tmp_path):
    (tmp_path / "r.csv").touch()
    for text, message in {
        "{": "not an evidence card",
        "[]": "not an evidence card",
        "[" * 100_000: "not an evidence card",
        '{"rows": ' + "9" * 5000 + "}": "not an evidence card",
        '{"command": "x"}': "not an evidence card",
        '{"command": 3, "rows": {"file": "r.csv"}}': "holds no command",
        '{"recipe": 3, "rows": {"file": "r.csv"}}': "this is not a recipe",
        '{"command": "x", "rows": {"file": "../q.csv"}}': "which is not in the same folder",
    }.items():
        (tmp_path / "r.json").write_text(text)
        with pytest.raises((DataError, UsageError), match=message):
            read_any_card(tmp_path / "r.json")
    with (tmp_path / "r.json").open("wb") as file:
        file.truncate(1 << 27)
    with pytest.raises(DataError, match="not an evidence card: it is larger"):
        read_any_card(tmp_path / "r.json")
    with pytest.raises(DataError, match="no such file, and reproduce needs it: it is the evidence card"):
        read_any_card(tmp_path / "none.parquet")


@pytest.fixture(scope="module")
def result(tmp_path_factory, tiny_bert):
    """Caches, and the rows of a probe of them."""
    folder = tmp_path_factory.mktemp("result")
    for split in ("train", "dev"):
        out = folder / f"{split}.h5"
        probekit.cache_activations(tiny_bert, "grammar:sentiment", split, limit=40, out=out).close()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        probekit.probe("train.h5", "dev.h5", layers=[0, 3], controls=1, resamples=100, out="r.parquet")
    return folder


@pytest.fixture
def card(result, tmp_path):
    """Its own copy of the rows, and ``write(**change)`` for the card."""
    write_rows(read_rows(result / "r.parquet"), path := tmp_path / "r.parquet", read_card(result / "r.parquet"))
    beside = path.with_name("r.parquet.json")

    def write(**change):
        beside.write_text(json.dumps(json.loads(beside.read_text()) | change))
        return beside

    return write


def run(capfd, *words):
    capfd.readouterr()
    status = main(["reproduce", *map(str, words)])
    return status, " ".join(capfd.readouterr().out.split())


def test_rows_are_reproduced_to_the_bit(result, card, tmp_path, capfd):
    before = {p: p.read_bytes() for p in result.iterdir()}
    status, said = run(capfd, card(), "--from", result, "--out", tmp_path / "again")
    assert "reproduced to the bit" in said
    assert status == 0
    assert said.partition("Largest")[0].endswith("/again/out/r.parquet ")  # and nothing is otherwise
    assert (tmp_path / "again" / "out" / "r.parquet").is_file()
    assert before == {p: p.read_bytes() for p in result.iterdir()}


WAYS = {
    "script": "import probekit\nprobekit.probe('train.h5', 'dev.h5', layers=[0, 3], controls=1, out='r.parquet')",
    "command": "probe train.h5 dev.h5 --layers 0,3 --controls 1 --out r.parquet",
}


def made_by(way, folder):
    if way == "notebook":
        import nbclient
        import nbformat

        cell = nbformat.v4.new_code_cell(WAYS["script"])
        notebook = nbformat.v4.new_notebook(cells=[cell])
        nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
        return
    words = ["-c", WAYS["script"]] if way == "script" else ["-m", "probekit", *WAYS["command"].split()]
    subprocess.run([sys.executable, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_script_a_notebook_and_a_command_leave_the_same_card(result, tmp_path, capfd):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cards = {}
    for way in ("script", "command", "notebook"):
        (folder := tmp_path / way).mkdir()
        for split in ("train", "dev"):
            (folder / f"{split}.h5").write_bytes((result / f"{split}.h5").read_bytes())
        made_by(way, folder)
        status, said = run(capfd, folder / "r.parquet", "--from", folder)
        assert (status, "reproduced to the bit" in said) == (0, True), said
        told = json.loads((folder / "r.parquet.json").read_text())
        cards[way] = {key: value for key, value in told.items() if key not in ("seconds", "created")}
    assert cards["script"] == cards["command"] == cards["notebook"]


@pytest.mark.parametrize(
    ("off", "elsewhere", "tolerance", "verdict"),
    [
        (0.0, False, None, "to the bit"),
        (0.0, True, None, "to the bit"),
        (3e-8, True, None, "to rounding"),
        (3e-8, False, None, "different"),  # the same processor and libraries: something else is wrong
        (1e-3, True, None, "different"),
        (1e-3, True, 1e-2, "within the tolerance"),
        (1e-3, False, 1e-2, "within the tolerance"),
        (1e-3, True, 1e-4, "different"),
    ],
)
def test_the_verdicts(off, elsewhere, tolerance, verdict):
    assert module._verdict(compared(off), tolerance, SimpleNamespace(elsewhere=elsewhere)) == verdict


@pytest.mark.slow
def test_another_processor_is_told(result, card, tmp_path, capfd):
    told = json.loads(card().read_text())
    path = card(machine=told["machine"] | {"processor": "Z80"}, versions=told["versions"] | {"numpy": "0.9"}, git="abc")
    changed = read_rows(tmp_path / "r.parquet")
    changed.loc[0, "value"] += 2**-26
    changed.to_parquet(tmp_path / "r.parquet", index=False)
    status, said = run(capfd, path, "--from", result)
    assert "is not the file that the card was written for" in said
    assert "numpy was 0.9, is " in said
    assert "the processor was Z80, is " in said
    assert "the revision of the code was abc, is " in said
    assert "reproduced to rounding, on another processor or library: the largest difference is 1.49e-08." in said
    assert status == 0


@pytest.mark.slow
def test_rows_changed_by_hand(result, card, tmp_path, capfd):
    path = card()
    changed = read_rows(tmp_path / "r.parquet")
    changed.loc[0, "value"] += 0.125
    changed.to_parquet(tmp_path / "r.parquet", index=False)
    status, said = run(capfd, path, "--from", result)
    assert "different: not reproduced to the bit" in said
    assert "0.125" in said
    assert status == 1
    assert run(capfd, path, "--from", result, "--tolerance", "0.126")[0] == 0


def test_caches_that_are_missing_or_others(result, card, tmp_path, capfd):
    assert main(["reproduce", str(card()), "--from", str(tmp_path)]) == 2
    said = capfd.readouterr()
    assert "the cache train.h5 is not in " in said.err
    assert "it was made by probekit cache-activations" in said.out
    assert "grammar:sentiment" in said.out
    for a, b in (("train", "dev"), ("dev", "train")):
        (tmp_path / f"{a}.h5").write_bytes((result / f"{b}.h5").read_bytes())
    status, said = run(capfd, card(), "--from", tmp_path, "--plan")
    assert said.count("holds other activations than it did") == 2
    assert status == 0
    (tmp_path / "dev.h5").write_bytes(b"no cache")
    assert "it is not an HDF5 file" in run(capfd, card(), "--from", tmp_path, "--plan")[1]
    for reads in ([3], [{"path": "dev.h5"}], [{"path": "x", "kind": "cache", "digest": "", "spec": "t"}], "x"):
        assert main(["reproduce", str(card(reads=reads)), "--from", str(tmp_path)]) == 2


def test_a_cache_of_standard_input_is_not_remade(card, tmp_path, capfd):
    recipe = Recipe.of("cache_activations", {"model": "m", "task": "-", "tokens": True})
    told = [{**one, "recipe": recipe.to_json()} for one in json.loads(card().read_text())["reads"]]
    path = card(reads=told)
    for more in ([], ["--remake"]):
        assert main(["reproduce", str(path), "--from", str(tmp_path), *more]) == 2
        said = capfd.readouterr().err
        assert "its texts were standard input, which is not kept; pipe them into probekit cache-activations" in said
        assert "--task=- --out train.h5 --tokens once more" in said
        assert "add --remake" not in said


@pytest.mark.slow
def test_caches_that_are_missing_are_remade(result, card, tmp_path, tiny_bert, capfd):
    """Below our own folder, wherever a card says that they were."""
    words = ["--from", tmp_path, "--remake", "--model", tiny_bert]
    status, said = run(capfd, card(), *words)
    assert (status, "reproduced to the bit" in said) == (0, True), said
    assert {p.name for p in tmp_path.iterdir()} == {"r.parquet", "r.parquet.json"}
    told = [{**one, "digest": "0" * 32} for one in json.loads(card().read_text())["reads"]]
    assert main(["reproduce", str(card(reads=told)), *map(str, words)]) == 2
    assert "was made again and differs" in capfd.readouterr().err


def test_a_cache_of_a_run_is_not_said_to_be_of_the_pretrained_model(result, card, tmp_path, capfd):
    spec = json.loads(card().read_text())["reads"][0]["spec"]
    spec |= {"task": "mrpc", "model": "bert", "checkpoint": "mrpc.fine-tune.0", "step": 345}

    def said():
        read = {"path": "train.h5", "kind": "cache", "digest": "x", "spec": spec}
        assert main(["reproduce", str(card(reads=[read])), "--from", str(tmp_path), "--plan"]) == 2
        return capfd.readouterr().out

    told = said()
    assert "from the run mrpc.fine-tune.0 at step 345, whose folder must be found, or trained first: " in told
    assert re.search("cache-activations .*RUN-FOLDER .*mrpc ", told)
    assert "(not known: --data-dir, if its data were in a folder)" in told
    del spec["checkpoint"], spec["step"]
    spec["task"] = "grammar:sentiment"
    told = said()
    assert re.search("it was made by probekit cache-activations .*bert ", told)
    assert "(not known: the model's folder, if bert is not a model on the hub)" in told


def test_the_recipe_of_a_cache_that_a_study_has_noted(result, card, tmp_path, capfd):
    spec = json.loads(card().read_text())["reads"][0]["spec"] | {"checkpoint": "a", "step": 3}
    read = {"path": "one/caches/a.h5", "kind": "cache", "digest": "x", "spec": spec}
    (tmp_path / "one" / "steps").mkdir(parents=True)
    arguments = {"model": "two/runs/a", "task": "grammar:sentiment"}
    recipe = {"function": "cache_activations", "arguments": arguments, "leaves": {"out": "two/caches/a.h5"}}
    words = "probekit cache-activations --model two/runs/a --task grammar:sentiment --out two/caches/a.h5"
    study = re.escape(str(tmp_path / "one"))
    for how in ({"recipe": recipe}, {"command": words.split()}):  # of this version, and of the one before
        told = {"step": "cache a", "left": {"caches/a.h5": "1"}, **how}
        (tmp_path / "one" / "steps" / "cache-a.json").write_text(json.dumps(told))
        assert main(["reproduce", str(card(reads=[read])), "--from", str(tmp_path), "--plan"]) == 2
        made = rf"it was made by probekit cache-activations .*{study}/runs/a .*--out {study}/caches/a\.h5\.\n"
        assert re.search(made, capfd.readouterr().out)


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("guidelines runs/one runs/two --out r.csv", ["runs/two"]),
        ("table regimes runs/one/rows.parquet 'runs/*/rows.parquet' 'no/*.parquet' --rows r.csv", ["no/*.parquet"]),
        ("compare a.parquet --against shuffled --out r.csv", ["a.parquet"]),
        ("compare runs/one/rows.parquet b.parquet --out r.csv", ["b.parquet"]),
        ("summary a.parquet b.parquet --out r.csv", ["a.parquet", "b.parquet"]),
        ("evaluate runs/two --task mrpc --data-dir no --out r.csv", ["runs/two", "no"]),
        ("evaluate runs/two --cache x.h5 --out r.csv", ["runs/two", "x.h5"]),
        ("train --task t --model m --data-dir data --out runs/three", ["data"]),
        ("train --task t --model m --data-dir runs --out runs/three", []),
    ],
)
def test_what_the_function_reads_and_is_not_there(command, missing, tmp_path):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "rows.parquet").touch()
    recipe = recipe_of_command(f"probekit {command}")
    assert unread(recipe, tmp_path) == [
        f"{recipe.function} reads {word}, which is not in {tmp_path}" for word in missing
    ]


def test_the_plan_says_what_is_missing(card, tmp_path, capfd):
    recipe = {"function": "guidelines", "arguments": {"runs": ["one", "two", "three"]}, "leaves": {"out": "r.parquet"}}
    assert main(["reproduce", str(card(recipe=recipe, reads=[])), "--from", str(tmp_path), "--plan"]) == 2
    said = capfd.readouterr()
    assert said.out.count("guidelines reads ") == 3
    assert f"guidelines reads one, which is not in {tmp_path}, and 2 more. If you moved it, add --from" in said.err


@pytest.mark.slow
def test_a_recipe_that_fails_is_told(result, card, capfd):
    recipe = {"function": "probe", "arguments": {"train": "none.h5", "dev": "dev.h5"}, "leaves": {"out": "r.csv"}}
    assert main(["reproduce", str(card(recipe=recipe)), "--from", str(result)]) == 2
    said = capfd.readouterr().err
    assert "none.h5 does not exist" in said
    assert "probe failed with exit status 2" in said


@pytest.mark.slow
def test_what_lies_in_the_folder_is_not_imported(result, card, tmp_path, capfd):
    (folder := tmp_path / "hostile").mkdir()
    for name in ("json.py", "probekit.py", "sitecustomize.py"):
        (folder / name).write_text(f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n")
    for split in ("train", "dev"):
        (folder / f"{split}.h5").write_bytes((result / f"{split}.h5").read_bytes())
    assert run(capfd, card(), "--from", folder)[0] == 0
    assert not (tmp_path / "ran").exists()


ADDRESSES = [
    "dask://{}/x::file:///x",
    "reference://x::ftp://{}/refs.json",
    "https://{}/train",
    "file:///etc",
    "s3:/a/b",
]


@pytest.mark.parametrize("url", ADDRESSES)
@pytest.mark.parametrize("place", ["arguments", "nested", "remade"])
def test_an_address_on_a_card_is_opened_only_where_it_is_allowed(place, url, result, card, tmp_path, call, listener):
    """Nothing connects, whether the recipe names the address, one inside it, or that of a cache that is missing."""
    path = card()
    told = json.loads(path.read_text())
    address = url.format(listener.address)
    if place == "arguments":
        told["recipe"]["arguments"]["train"] = address
    elif place == "nested":
        told["recipe"]["arguments"]["train"] = {"recipe": {"function": "probe", "arguments": {"train": address}}}
    else:
        told["reads"][0]["recipe"] = {"function": "cache_activations", "arguments": {"model": address, "task": "cola"}}
    path.write_text(json.dumps(told))
    done = call("reproduce", path, "--from", tmp_path, "--remake")
    assert (done.status, listener.connections) == (2, [])
    assert f"names the address {address}, which whoever wrote the file chose" in done.err.replace("\n", " ")
    with pytest.raises(DataError, match="add --allow-remote"):
        probekit.reproduce(path)


def test_a_card_names_no_scheduler():
    """Whoever answers as a Dask scheduler is sent pickles, and sends some."""
    far = {"backend": "dask", "scheduler": "tcp://stranger:8786"}
    made = Recipe.from_json({"function": "cache_activations", "arguments": {"model": ".", "task": "cola", **far}})
    safe = writing(replace(made, defaults=far), {"out": "x.h5"})
    assert (safe.arguments, safe.defaults) == ({"model": ".", "task": "cola"}, {})


def test_a_recipe_of_a_card_fetches_nothing_from_the_hub(tmp_path, monkeypatch):
    seen = []

    def noted(command, env, **how):
        seen.append(env)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(module.subprocess, "run", noted)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for allowed in (False, True):
        plan = SimpleNamespace(folder=tmp_path, allow_remote=allowed)
        module._run(Recipe("probe", {}), plan)
    assert [env.get("HF_HUB_OFFLINE") for env in seen] == ["1", None]


def test_the_scratch_folder_is_new(result, card, tmp_path):
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "mine").touch()
    assert main(["reproduce", str(card()), "--from", str(result), "--out", str(tmp_path / "again")]) == 2
    assert main(["reproduce", str(card()), "--from", str(result / "none")]) == 2


@pytest.mark.slow
def test_a_run_is_trained_again(tmp_path, tiny_bert, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["train", "--task", "grammar:sentiment", "--model", str(tiny_bert), "--limit", "16", "--epochs", "1"]
    words += ["--regime", "feature-extraction", "--head", "linear", "--out", "runs/one"]
    assert main(words) == 0
    for path in (tmp_path / "data_cache").iterdir():
        path.unlink()
    status, said = run(capfd, "runs/one/probekit.json")
    assert "reproduced to the bit" in said
    assert status == 0
    assert list((tmp_path / "data_cache").iterdir()) == []
    assert {p.name for p in tmp_path.iterdir()} == {"data_cache", "runs"}


CARDS = sorted(Path(__file__).parents[2].glob("figures/**/*.json"))


@pytest.mark.parametrize("path", CARDS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_committed_cards_are_read(path, tmp_path):
    card = read_any_card(path)
    recipe, made = elsewhere(card.recipe, tmp_path / "scratch", tmp_path)
    assert made.name == card.rows.name or recipe.function == "table"
    assert recipe.function == card.recipe.function
    assert list(card.reads()) or card.recipe.function not in ("probe", "mi")


@pytest.mark.parametrize(("given", "caches"), [({}, True), ({"cache": ["a.h5", "b.h5"]}, False)])
def test_a_training_on_given_caches_writes_none(tmp_path, given, caches):
    arguments = {"model": "m", "task": "cola", "regime": "feature-extraction", **given}
    again, _ = elsewhere(Recipe("train", arguments, leaves={"out": "run"}), tmp_path / "again", tmp_path)
    assert ("caches" in again.leaves) == caches
