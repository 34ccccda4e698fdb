"""``probekit results`` and ``probekit clean``: what they show, what they ask, and what is left."""

import io
import json
import os
import re
from importlib import import_module

import h5py
import pytest

from probekit.activations import cache_activations
from probekit.activations.writing.journal import journal_path
from probekit.activations.writing.partial import seal
from probekit.cli import main

NOW = 1_700_000_000


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_bert):
    path = tmp_path_factory.mktemp("made") / "a.h5"
    cache_activations(tiny_bert, "grammar:sentiment", "dev", limit=9, out=path).close()
    with h5py.File(path, "r+") as f:
        del f.attrs["recipe"]  # as versions before 0.2 left it
    seal(path)
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path, made):
    """An old cache, a new one, and the journal that a killed process has left."""
    for name in ("new.h5", "old.h5"):
        (tmp_path / name).write_bytes(made)
    os.utime(tmp_path / "old.h5", (NOW, NOW))
    journal_path(tmp_path / "new.h5").touch()
    (tmp_path / "mine[b].txt").write_text("x")
    return tmp_path


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_the_table_and_json(folder, tiny_bert, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["results", str(folder), "--model", str(tiny_bert)]) == 0
    said = capsys.readouterr().out
    assert "mine[b].txt" in said
    assert len(re.findall(r"(?:old|new)\.h5 +cache +grammar:sentiment dev .* yes", said)) == 2
    assert "4 results, " in said
    assert "probekit clean --what caches: 2 can be made again, " in said
    assert main(["results", str(folder), "--json"]) == 0
    told = {item["path"]: item for item in json.loads(capsys.readouterr().out)}
    assert told[str(folder / "old.h5")]["clean"] is None
    assert "--limit 9" in told[str(folder / "old.h5")]["command"]
    assert told[str(folder / "new.h5.journal")]["clean"] == "leftovers"
    assert names(folder) == ["mine[b].txt", "new.h5", "new.h5.journal", "old.h5"]


def test_plain_clean_takes_leftovers_only(folder, capsys):
    assert main(["clean", str(folder), "--yes"]) == 0
    assert "1 deleted, 0 B" in capsys.readouterr().out
    assert names(folder) == ["mine[b].txt", "new.h5", "old.h5"]
    assert main(["clean", str(folder)]) == 0
    assert "there are no leftovers" in capsys.readouterr().out


def test_it_asks(folder, tiny_bert, capsys, monkeypatch):
    before = names(folder)
    words = ["clean", str(folder), "--what", "caches", "--model", str(tiny_bert)]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(words) == 2
    assert "nobody can confirm" in capsys.readouterr().err
    assert main([*words, "--dry-run"]) == 0
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert main(words) == 0
    assert "nothing was deleted" in capsys.readouterr().out
    assert names(folder) == before
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert main([*words, "--older-than", "30d"]) == 0
    assert "cache-activations --model" in capsys.readouterr().out
    assert names(folder) == ["mine[b].txt", "new.h5", "new.h5.journal"]


def test_what_could_not_be_deleted_is_told(folder, tiny_bert, capsys, monkeypatch):
    delete = "delete", lambda item: "why" if item.path.name == "old.h5" else ""
    monkeypatch.setattr(import_module("probekit.provenance.clean"), *delete)
    assert main(["clean", str(folder), "--what", "caches", "--model", str(tiny_bert), "--yes"]) == 1
    said = capsys.readouterr()
    assert "old.h5 is not deleted: why." in said.err
    assert "1 deleted, " in said.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["clean", "--what", "rows"], 'Choose from: "leftovers", "unfinished", "caches", "checkpoints"'),
        (["clean", "--older-than", "30"], "such as 12h"),
        (["clean", "none"], "there is no folder 'none'"),
        (["results", "none"], "there is no folder 'none'"),
        (["results", "--model", "none"], "not the folder of a model"),
    ],
)
def test_wrong_words(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err
