"""What a stranger's package adds through the entry points appears everywhere, without a change of ours.

``tests/plugin`` is such a package; its metadata are written as an editable install writes them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from probekit.rows import read_rows
from probekit.toml import read_toml

PLUGIN = Path(__file__).parent / "plugin"

STUDY = """
title = "Mine"
models = { letters = "letters" }

[[norm]]
tasks = ["colours"]
of = ["pretrained"]

[[figure]]
kind = "norm"
"""
COMMANDS = {
    "tasks": "tasks",
    "help": "--help",
    "its help": "norm --help",
    "train": "cache-activations --model letters --task colours --split train --out train.h5",
    "dev": "cache-activations --model letters --task colours --split dev --out dev.h5",
    "norm": "norm dev.h5 --out norm.parquet",
    "plot": "plot norm norm.parquet --out norm.png",
    "probe": "probe train.h5 dev.h5 --folds 2 --controls 0 --out probe.parquet",
    "study": "study run mine.toml --out study",
    "report": "report study -o page.html",
    "new": "new-encoder --config bilstm.json --vocabulary words.txt --out bilstm",
    "objective": "pretrain-encoder --model bilstm --on longer:a.en+a.fr --steps 2 --evaluate-every 1 --out run",
}
HERE = """
import contextlib, io, json, sys, torch
from pathlib import Path
from safetensors.torch import save_file
folder = Path("letters"); folder.mkdir()
(folder / "config.json").write_text(json.dumps({"model_type": "letters"}))
(folder / "tokenizer_config.json").write_text(json.dumps({"letters": "code points, modulo 128"}))
save_file({"table": torch.randn(128, 8, generator=torch.Generator().manual_seed(0))}, folder / "model.safetensors")
Path("bilstm.json").write_text(json.dumps({"model_type": "bilstm", "input": "words", "cells": 3, "embedding_size": 4}))
Path("words.txt").write_text("one\\ntwo\\nthree")
Path("a.en").write_text("one\\ntwo three\\n" * 40)
Path("a.fr").write_text("two one\\nthree\\n" * 40)
import probekit, probekit.studies.planned as studies
from probekit.cli import main
from probekit.studies.pools import here_pool
studies.pool_of = lambda workers: here_pool()  # a process of its own would import torch first
said = {}
for name, command in json.loads(sys.argv[1]).items():
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        try:
            status = main(command.split())
        except SystemExit as ended:
            status = ended.code
    said[name] = [status or 0, out.getvalue()]
said["function"] = [0, str(probekit.norm("dev.h5", layers="1").verdict)]
Path("said.json").write_text(json.dumps(said))
"""


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """The folder in which the commands ran with the package installed, and what they said."""
    here = tmp_path_factory.mktemp("stranger")
    project = read_toml(PLUGIN / "pyproject.toml")[0]["project"]
    about = here / "site" / f"{project['name']}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: stranger\nVersion: 1\n")
    groups = project["entry-points"].items()
    text = ("\n".join([f"[{group}]", *(f"{k} = {v}" for k, v in its.items())]) for group, its in groups)
    (about / "entry_points.txt").write_text("\n".join(text))
    (here / "mine.toml").write_text(STUDY)
    path = [str(PLUGIN), str(here / "site"), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path)), "HF_HUB_OFFLINE": "1", "COLUMNS": "120"}
    call = [sys.executable, "-c", HERE, json.dumps(COMMANDS)]
    done = subprocess.run(call, cwd=here, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads((here / "said.json").read_text())
    assert {name: text for name, (status, text) in said.items() if status} == {}
    return here, {name: text for name, (_, text) in said.items()}


def test_its_analysis_is_a_command_with_help_a_table_and_a_sentence(stranger):
    here, said = stranger
    assert "Measure how long the vectors" in " ".join(said["help"].split())
    assert "Coverage of the intervals." in " ".join(said["its help"].split())
    assert "mean length" in said["norm"]
    assert "vectors are on average" in said["norm"]
    rows = read_rows(here / "norm.parquet")
    assert [*rows["layer"]] == [0, 1]
    assert (rows["ci_low"] < rows["value"]).all()
    assert json.loads((here / "norm.parquet.json").read_text())["recipe"]["function"] == "norm"


def test_its_function_is_public(stranger):
    assert "vectors are on average" in stranger[1]["function"]


def test_its_figure_is_drawn(stranger):
    here, _ = stranger
    assert (here / "norm.png").stat().st_size > 1000
    assert "Length of the vectors of each layer." in (here / "norm.caption.txt").read_text()


def test_its_task_is_listed_and_has_its_metric(stranger):
    here, said = stranger
    assert "Is the thing red?" in said["tasks"]
    assert "hits" in set(read_rows(here / "probe.parquet")["metric"])


def test_it_stands_in_a_study_and_a_report(stranger):
    here, _ = stranger
    page = (here / "page.html").read_text()
    assert "vectors are on average" in page
    assert "Length of vectors" in page
    assert "mean length" in page


def test_its_objective_trains(stranger):
    assert "longer:a.en+a.fr" in stranger[1]["objective"]
    assert set(read_rows(stranger[0] / "run/rows.parquet")["metric"]) >= {"accuracy"}
