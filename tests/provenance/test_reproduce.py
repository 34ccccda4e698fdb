"""Rows made again from their cards: the comparison against constructed rows, and cards that are not to be trusted."""

import json
import math
import re
import shlex
from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest
import typer

from probekit.cli import app, main
from probekit.errors import DataError, UsageError
from probekit.provenance.reproduce import COMMANDS, compare_rows, read_any_card, unread, words_of
from probekit.rows import evidence, make_rows, read_card, read_rows, write_rows

CLI = typer.main.get_command(app)


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
    return words_of({"command": command}, CLI, tmp_path / "scratch", tmp_path)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("probekit probe a b; rm -rf /", "does not understand|no such option: -r"),
        ("probekit probe a b --out x.parquet; touch y", "writes no rows"),
        ("python -c 'import os'", "made by a program, not by a command of probekit"),
        ("/bin/sh -c probekit", "made by a program"),
        ("train.py --out x", "made by a program"),
        ("../probekit probe a b --out x.parquet", "made by a program"),
        ("probekit", "is not run again; what is: compare, demo"),
        ("probekit clean --yes --what caches", "probekit clean is not run again"),
        ("probekit reproduce x.json", "is not run again"),
        ("probekit convert elmo a b /etc/x", "probekit convert is not run again"),
        ("probekit plot layers rows.parquet --out /etc/x.pdf", "is not run again"),
        ("probekit cache-activations --model m --task t --out /etc/x", "is not run again"),
        ("probekit probe a b --examples /etc/x --out x.parquet", "No such option: --examples"),
        ("probekit probe a b --ou=/etc/x", "No such option: --ou"),
        ("probekit probe a b", "writes no rows"),
        ("probekit probe --help", "asks for help"),
        ("probekit --version", "asks for help, or for the version"),
        ("probekit mdl a.h5 /etc/b --out x.parquet", "does not understand /etc/b"),
        ("probekit probe 'a b --out x.parquet", "cannot be read"),
    ],
)
def test_commands_that_are_refused(command, message, tmp_path):
    with pytest.raises(UsageError, match=f"(?i){message}"):
        turned(command, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("probe a.h5 '$(touch x)' --out /etc/x.csv", {"--out": "out/x.csv"}),
        ("-v mi a.h5 --out=a.csv --out ../../x.parquet", {"--out": "out/x.parquet"}),
        ("domains a=/t --counts /etc/c.parquet --out r.csv", {"--out": "out/r.csv", "--counts": "counts/c.parquet"}),
        (
            "train --task t --model m --caches /etc --out /r/one --report-to wandb",
            {"--out": "out/one", "--caches": "caches/etc"},
        ),
        ("train --task t --model m --out ..", {"--out": "out/*"}),
        ("search paper/fine-tune", {"--out": "out/out"}),
        ("demo", {"--figures": "figures/figures", "--caches": "caches/caches"}),
    ],
)
def test_all_that_is_written_goes_elsewhere(command, written, tmp_path):
    words, made = turned(f"probekit {command}", tmp_path)
    options = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
    for name, place in written.items():
        assert options.pop(name) == str(tmp_path / "scratch" / place.replace("*", tmp_path.parent.name))
    assert not [value for value in options.values() if "/etc" in value]
    assert "--report-to" not in options
    assert made.is_relative_to(tmp_path / "scratch")
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["probe", "a.h5", "--layers", "0,6", "b c.h5", "--balanced", "--seed", "3", "--out", "x.parquet"],
        ["domains", "a=x", "--explain", "a,b", "--explain", "-x,y", "--cased", "--out", "x.csv", "--", "-b=y"],
        ["train", "--task", "t", "--model", "m", "--no-group", "--mix", "--warmup=.2", "--out", "runs/x"],
    ],
)
def test_everything_else_stays_as_it_was(words, tmp_path):
    """The words that are put together again mean to the command's parser what the card's words mean."""
    again, _ = turned(shlex.join(["probekit", *words]), tmp_path)
    command = CLI.get_command(CLI.context_class(CLI), words[0])

    def parsed(words):
        found, rest, order = command.make_parser(command.context_class(command)).parse_args(list(words[1:]))
        assert not rest
        return {p.name: found[p.name] for p in order} | {"out": None}

    assert again[0] == words[0]
    assert parsed(again) == parsed(words)


READ = {
    "probe": {"caches", "pooling", "layers", "metrics", "estimator", "penalties", "choose_by"},
    "mdl": {"train", "code", "pooling", "layers"},
    "mi": {"caches", "estimator", "pooling", "layers"},
    "compare": {"first", "second", "against", "metric", "correction", "tails"},
    "summary": {"tables", "metric"},
    "domains": {
        "sources", "task", "data_dir", "split", "measure", "stop_words", "tokenizer", "document", "field", "explain",
    },
    "train": {
        "task", "model", "regime", "data_dir", "train", "dev", "test", "head", "pooling", "pairs", "layers",
        "optimizer", "schedule", "unfreezing", "dtype", "keep", "save_at", "model_name", "run_name", "revision",
        "device",
    },
    "search": {"space", "task", "model", "data_dir", "test", "device"},
    "demo": set(),
    "guidelines": {"runs", "metric", "split"},
    "evaluate": {"run", "task", "split", "data_dir", "cache", "model", "device"},
    "table": {"kind", "rows", "published"},
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_that_might_write_is_overlooked(name):
    """A new option that takes words must be told here to be read only, or in COMMANDS to be written."""
    (command,) = (c.callback for c in app.registered_commands if c.name == name)
    takes = {
        key for key, kind in get_type_hints(command).items() if {"str", "Path"} & set(re.findall(r"\w+", str(kind)))
    }
    makes = COMMANDS[name]
    assert set(makes.reads) <= READ[name]
    assert takes - READ[name] == {makes.rows, *makes.asked, *makes.always, *makes.dropped}


def test_cards_that_are_none(tmp_path):
    for text, message in {
        "{": "no evidence card",
        "[]": "no evidence card",
        '{"command": "x"}': "no evidence card",
        '{"command": 3, "rows": {"file": "r.csv"}}': "tells no command",
        '{"command": "x", "rows": {"file": "../r.csv"}}': "are not beside it",
    }.items():
        (tmp_path / "r.json").write_text(text)
        with pytest.raises((DataError, UsageError), match=message):
            read_any_card(tmp_path / "r.json")
    with pytest.raises(DataError, match="no such evidence card"):
        read_any_card(tmp_path / "none.parquet")


@pytest.fixture(scope="module")
def result(tmp_path_factory, tiny_bert):
    """Caches, and the rows of mdl on one of them, whose card's command is the one that was given."""
    folder = tmp_path_factory.mktemp("result")
    for split in ("train", "dev"):
        words = ["--model", str(tiny_bert), "--task", "grammar:sentiment", "--split", split, "--limit", "40"]
        assert main(["cache-activations", *words, "--out", str(folder / f"{split}.h5")]) == 0
    words = [
        "probe",
        "train.h5",
        "dev.h5",
        "--layers",
        "0,3",
        "--controls",
        "1",
        "--resamples",
        "50",
        "--out",
        "r.parquet",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["probekit", *words])
        assert main(words) == 0
    return folder


@pytest.fixture
def card(result, tmp_path):
    """Its own copy of the rows, and ``write(**change)`` for the card."""
    write_rows(read_rows(result / "r.parquet"), path := tmp_path / "r.parquet", read_card(result / "r.parquet"))

    def write(**change):
        told = json.loads(path.with_suffix(".json").read_text())
        path.with_suffix(".json").write_text(json.dumps(told | change))
        return path.with_suffix(".json")

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
    assert said.partition("Largest")[0].endswith("-- train.h5 dev.h5 ")  # and nothing is otherwise
    assert (tmp_path / "again" / "out" / "r.parquet").is_file()
    assert before == {p: p.read_bytes() for p in result.iterdir()}


@pytest.mark.slow
def test_rows_changed_by_hand(result, card, tmp_path, capfd):
    path = card()
    changed = read_rows(tmp_path / "r.parquet")
    changed.loc[0, "value"] += 0.125
    changed.to_parquet(tmp_path / "r.parquet", index=False)
    told = {"versions": {"numpy": "0.9"}, "git": "abc"}
    status, said = run(capfd, card(**told), "--from", result)
    assert "is not the file that the card was written for" in said
    assert "numpy was 0.9, is " in said
    assert "revision of the folder was abc, is None" in said
    assert "not reproduced to the bit" in said
    assert "0.125" in said
    assert status == 1
    assert run(capfd, path, "--from", result, "--tolerance", "0.126")[0] == 0


def test_caches_that_are_missing_or_others(result, card, tmp_path, capfd):
    assert main(["reproduce", str(card()), "--from", str(tmp_path)]) == 2
    said = capfd.readouterr()
    assert "there is no cache train.h5 in" in said.err
    assert "it was made by probekit cache-activations --model" in said.out
    assert "--task grammar:sentiment --split dev --limit 40" in said.out
    for a, b in (("train", "dev"), ("dev", "train")):
        (tmp_path / f"{a}.h5").write_bytes((result / f"{b}.h5").read_bytes())
    status, said = run(capfd, card(), "--from", tmp_path, "--plan")
    assert said.count("holds other activations than it did") == 2
    assert status == 0
    (tmp_path / "dev.h5").write_bytes(b"no cache")
    assert "is not an HDF5 file" in run(capfd, card(), "--from", tmp_path, "--plan")[1]
    for caches in ([3], [{"path": "dev.h5"}], [{"path": "x", "spec": {"task": "t"}, "spec_id": ""}]):
        assert main(["reproduce", str(card(caches=caches)), "--from", str(tmp_path)]) == 2


def test_a_cache_of_a_run_is_not_said_to_be_of_the_pretrained_model(result, card, tmp_path, capfd):
    spec = json.loads(card().read_text())["caches"][0]["spec"]
    spec |= {"task": "mrpc", "model": "bert", "checkpoint": "mrpc.fine-tune.0", "step": 345}
    path = card(caches=[{"path": "train.h5", "spec_id": "x", "spec": spec}])
    assert main(["reproduce", str(path), "--from", str(tmp_path), "--plan"]) == 2
    said = capfd.readouterr().out
    assert "of the run mrpc.fine-tune.0 at step 345, whose folder must be found, or trained first: " in said
    assert "cache-activations --model RUN-FOLDER --task mrpc " in said
    assert "(not known: --data-dir, where its data were in a folder)" in said
    del spec["checkpoint"], spec["step"]
    card(caches=[{"path": "train.h5", "spec_id": "x", "spec": spec | {"task": "grammar:sentiment"}}])
    assert main(["reproduce", str(path), "--from", str(tmp_path), "--plan"]) == 2
    said = capfd.readouterr().out
    assert "it was made by probekit cache-activations --model bert " in said
    assert "(not known: the model's folder, where bert is no model of the hub)" in said


def test_the_command_of_a_cache_that_a_study_has_noted(result, card, tmp_path, capfd):
    spec, words = json.loads(card().read_text())["caches"][0]["spec"], "probekit cache-activations --model one/runs/a"
    path = card(caches=[{"path": "one/caches/a.h5", "spec_id": "x", "spec": spec | {"checkpoint": "a", "step": 3}}])
    (tmp_path / "one" / "steps").mkdir(parents=True)
    told = {"step": "cache a", "command": f"{words} --out one/caches/a.h5".split(), "left": {"caches/a.h5": "1"}}
    (tmp_path / "one" / "steps" / "cache-a.json").write_text(json.dumps(told))
    assert main(["reproduce", str(path), "--from", str(tmp_path), "--plan"]) == 2
    study = tmp_path / "one"
    command = f"probekit cache-activations --model {study}/runs/a --out {study}/caches/a.h5"
    assert f"it was made by {command}.\n" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("guidelines runs/one runs/two --out r.csv", ["runs/two"]),
        ("table regimes runs/one/rows.parquet 'runs/*/rows.parquet' 'no/*.parquet' --rows r.csv", ["no/*.parquet"]),
        ("compare a.parquet --against shuffled --out r.csv", ["a.parquet"]),
        ("compare runs/one/rows.parquet b.parquet --out r.csv", ["b.parquet"]),
        ("summary a.parquet b.parquet --out r.csv", ["a.parquet", "b.parquet"]),
        ("evaluate runs/two --cache x.h5 --out r.csv", ["runs/two", "x.h5"]),
        ("train --task t --model m --data-dir data --out runs/three", ["data"]),
        ("train --task t --model m --data-dir runs --out runs/three", []),
    ],
)
def test_what_the_command_reads_and_is_not_there(command, missing, tmp_path):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "rows.parquet").touch()
    found = unread({"command": f"probekit {command}"}, CLI, tmp_path)
    assert found == [f"there is no {word} in {tmp_path}, which the command reads" for word in missing]


def test_the_plan_says_what_is_missing(card, tmp_path, capfd):
    path = card(command="probekit guidelines one two three --out r.parquet", caches=[])
    assert main(["reproduce", str(path), "--from", str(tmp_path), "--plan"]) == 2
    said = capfd.readouterr()
    assert said.out.count("which the command reads") == 3
    assert f"there is no one in {tmp_path}, which the command reads, and 2 more. Make it again there" in said.err


@pytest.mark.slow
def test_a_command_that_fails_is_told(result, card, capfd):
    assert (
        main(["reproduce", str(card(command="probekit probe none.h5 dev.h5 --out r.csv")), "--from", str(result)]) == 2
    )
    said = capfd.readouterr().err
    assert "none.h5: there is no such file" in said
    assert "ended with the status 2" in said


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
    monkeypatch.setattr("sys.argv", ["probekit", *words])
    assert main(words) == 0
    for path in (tmp_path / "data_cache").iterdir():
        path.unlink()
    status, said = run(capfd, "runs/one/probekit.json")
    assert "reproduced to the bit" in said
    assert status == 0
    assert list((tmp_path / "data_cache").iterdir()) == []
    assert {p.name for p in tmp_path.iterdir()} == {"data_cache", "runs"}


def test_the_command_of_python_m_is_a_command_of_probekit(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/probekit/__main__.py", "mi", "a.h5"])
    assert evidence()["command"] == "probekit mi a.h5"
