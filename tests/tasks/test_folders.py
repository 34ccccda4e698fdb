"""One rule finds a task's folder: for loading it, for a study, and to make a cache again."""

from __future__ import annotations

import pytest

from probekit.errors import DataError
from probekit.provenance.remake import Place
from probekit.provenance.remake import Sources as Known
from probekit.studies.sources import Sources
from probekit.tasks import load_task, task_folders
from probekit.tasks.folders import plain

COLA = "gj04\t1\t\tThey rode home.\ngj04\t0\t*\tThey rides home.\n"


def write(path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def folder_of(task: str, data_dir, **named: str):
    """As a study finds it."""
    return Sources(data_dir, named, {"m": "m"}).folder(task)


@pytest.mark.parametrize(
    ("task", "folders", "likely"),
    [
        ("sst2", ["SST-2", "SST", "cola"], ["SST-2", "SST", "."]),  # its own, then what its name begins with
        ("trec-50", ["trec", "TREC 50 questions"], ["trec", ".", "TREC 50 questions"]),
        ("sick-e", ["SICK", "SICK-R"], ["SICK", "."]),
        ("ud:en_ewt", ["UD_English-EWT", "UD", "x"], ["UD", ".", "UD_English-EWT"]),
        ("mnli:fiction", ["MNLI_2", "mnli-original"], [".", "MNLI_2", "mnli-original"]),
        ("cola", ["---", "_"], ["."]),  # of a name with neither letters nor digits nothing begins
        ("cola", [], ["."]),
    ],
)
def test_the_likeliest_place_comes_first(tmp_path, task, folders, likely):
    for name in folders:
        (tmp_path / name).mkdir()
    (tmp_path / task.partition(":")[0]).write_text("a file is no folder")
    assert task_folders(task, tmp_path) == [tmp_path / name for name in likely]


def test_a_folder_that_is_not_there(tmp_path):
    assert task_folders("cola", tmp_path / "none") == [tmp_path / "none"]
    with pytest.raises(DataError, match="does not exist"):
        load_task("cola", tmp_path / "none")


def test_names():
    assert plain("SST-2") == plain("sst_2 ") == "sst2"


@pytest.mark.parametrize("name", ["", "CoLA", "cola", "COLA-1.1", "co"])
def test_all_three_find_the_same_files(tmp_path, name):
    write(tmp_path / name / "dev.tsv", COLA)
    (tmp_path / "mrpc").mkdir()
    loaded = load_task("cola", tmp_path).split("dev").digest()
    assert load_task("cola", folder_of("cola", tmp_path)).split("dev").digest() == loaded
    known = Known()
    folders = task_folders("cola", tmp_path)
    found = {known._data_digest(Place("cola", folder), "dev", 2, 0, "none") for folder in folders} - {None}
    assert len(found) == 1


def test_files_in_the_folder_itself_win_over_those_below(tmp_path):
    write(tmp_path / "dev.tsv", COLA)
    write(tmp_path / "CoLA" / "dev.tsv", COLA + COLA)
    assert len(load_task("cola", tmp_path).split("dev")) == 2
    assert folder_of("cola", tmp_path) == tmp_path / "CoLA"  # a study's data folder holds folders


def test_what_a_study_names_itself(tmp_path):
    (tmp_path / "cola").mkdir()
    assert folder_of("cola", tmp_path, cola="elsewhere") == tmp_path / "elsewhere"
    assert [folder_of(task, tmp_path) for task in ("grammar:sentiment", "mine.toml", "mine.toml:x")] == [None] * 3
    assert folder_of("cola", None) is None
