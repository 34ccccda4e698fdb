"""Bad arguments of every command: one sentence each, no traceback, no hang, and no file of ours is lost."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections import Counter
from pathlib import Path

import pytest
from damage import Hangs, watched

from probekit.cli import main
from probekit.functions import FUNCTIONS, find

pytestmark = pytest.mark.filterwarnings("ignore")

VALUES = (
    "", " ", "-1", "0", "-5", "nan", "inf", "1e400", "3e38", "99999999999999999999", "4294967296", "abc", ",", "1,,2",
    "é\udcff", "x" * 5000, "[]", "{}", "None", "../../..", "/", "~nobody/x", "a\x00b", "--", "-", "\x1b[2J",
)  # fmt: skip
"""What options and arguments are given."""
BASES = {
    "inspect": ["c.h5"],
    "verify": ["c.h5"],
    "probe": ["c.h5", "c.h5", "--resamples", "1000"],
    "mi": ["c.h5"],
    "mdl": ["c.h5"],
    "transferability": ["c.h5"],
    "compare": ["r.parquet"],
    "summary": ["r.parquet"],
    "domains": ["x=x.txt", "y=y.txt"],
    "table": ["regimes", "r.parquet"],
    "report": ["r.parquet", "-o", "page.html"],
    "explore": ["c.h5", "-o", "page.html"],
    "evaluate": ["run", "--task", "grammar:sentiment", "--split", "dev"],
    "train": ["--task", "grammar:sentiment", "--model", "m", "--regime", "fine-tune", "--out", "run2", "--epochs", "1"],
    "pretrain": ["--text", "x.txt", "--tokenizer", "train:300", "--out", "run3"],
    "pretrain-encoder": ["--model", "m", "--on", "grammar:sentiment", "--out", "run4", "--steps", "1"],
    "merge": ["run", "--out", "merged"],
    "new-encoder": ["--config", "c.json", "--tokenizer", "m", "--out", "new"],
    "search": ["paper/fine-tune", "--task", "grammar:sentiment", "--model", "m", "--out", "found", "--trials", "1"],
    "guidelines": ["r.parquet", "r.parquet"],
    "reproduce": ["r.parquet.json"],
    "results": ["."],
    "cache-activations": ["--model", "m", "--task", "grammar:sentiment", "--split", "dev", "--out", "new.h5"],
    "certify": ["m"],
    "plot": ["layers", "r.parquet", "--out", "f.pdf"],
    "tasks": ["check", "t.toml"],
    "study": ["run", "s.toml", "--out", "study"],
    "convert": ["elmo", "options.json", "weights.hdf5", "--out", "elmo"],
}
"""A command line of each command that would be read, were its files what they should be."""


def options_of(command: str) -> list[str]:
    """The options of the public function behind a command."""
    name = command.replace("-", "_")
    if name not in FUNCTIONS:
        return ["--out", "--folder", "--set"]
    names = [field.name for kind in find(name).options.values() for field in dataclasses.fields(kind)]
    return [f"--{name.replace('_', '-')}" for name in names]


def cases() -> list[list[str]]:
    """Every value in the place of each argument, and as the value of each option in turn; some 2,000."""
    found = []
    for command, base in BASES.items():
        for i, word in enumerate(base):
            if not word.startswith("-"):
                found += [[command, *base[:i], value, *base[i + 1 :]] for value in VALUES]
        for k, option in enumerate(options_of(command)):
            found += [[command, *base, option, VALUES[(k + 7 * j) % len(VALUES)]] for j in range(3)]
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that commands read: most of them of another kind than they ask for."""
    folder = tmp_path_factory.mktemp("files")
    for name in ("x.txt", "y.txt"):
        (folder / name).write_text("one two three\n" * 40)
    (folder / "t.toml").write_text('text = "a"\nlabel = "b"\n[splits]\ntrain = "t.csv"\n')
    (folder / "t.csv").write_text("a,b\nx,0\ny,1\n")
    (folder / "s.toml").write_text('name = "s"\n')
    for name in ("c.h5", "r.parquet", "r.parquet.json", "options.json", "weights.hdf5"):
        (folder / name).write_bytes(b"{}")
    for name in ("m", "run"):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text("{}")
    return folder


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def attack(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What came of a command: "told", "done", or, in words, what must not be."""
    before = digests(folder)
    try:
        with watched(seconds=20):
            status = main(words)
    except Hangs:
        return "hang"
    except BaseException as error:
        return f"traceback {type(error).__name__}: {error}"[:200]
    said = capsys.readouterr().err
    after = digests(folder)
    if lost := [name for name, digest in before.items() if after.get(name) != digest]:
        return f"lost {lost}"
    if "Traceback" in said or status == 3:
        return f"traceback {said[-300:]}"
    if status == 2 and not (said.startswith("probekit: ") and said.count("\n") == 1):
        return f"more than a sentence: {said[-300:]!r}"
    return "told" if status else "done"


def run(chosen: list[list[str]], files: Path, tmp_path: Path, monkeypatch, capsys) -> Counter[str]:
    found, wrong = Counter[str](), {}
    work = tmp_path / "work"
    monkeypatch.chdir(shutil.copytree(files, work))
    monkeypatch.setattr("probekit.runtime.EVERY", 1e9)  # a busy machine's lines are no complaint
    for words in chosen:
        outcome = attack(words, work, capsys)
        found[outcome.partition(" ")[0]] += 1
        if outcome not in ("told", "done"):
            wrong.setdefault(f"{words[0]}: {outcome[:60]}", ([word[:40] for word in words], outcome))
            shutil.rmtree(work)
            shutil.copytree(files, work)
            monkeypatch.chdir(work)
    assert not wrong, f"{dict(found)}\n" + "\n".join(map(str, wrong.values()))
    return found


def test_bad_arguments_are_told(files, tmp_path, monkeypatch, capsys):
    chosen = cases()[::40]
    assert sum(run(chosen, files, tmp_path, monkeypatch, capsys).values()) == len(chosen) >= 40


@pytest.mark.slow
def test_all_bad_arguments_are_told(files, tmp_path, monkeypatch, capsys):
    found = run(cases(), files, tmp_path, monkeypatch, capsys)
    assert sum(found.values()) >= 500
    with capsys.disabled():
        print(dict(found))
