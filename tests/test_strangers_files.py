"""Each command, from its words to the files: what it did not write stays byte for byte; what it wrote it replaces."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from builders import word_caches, word_task

import probekit
from probekit.adaptation.train import train
from probekit.errors import DataError, UsageError
from probekit.rows import read
from probekit.rows.files import check_out

OLD = Path(__file__).parent / "rows_of_0_1"
REGIMES = [str(OLD / f"train-{name}.parquet") for name in ("fine-tune", "feature-extraction")]
TOY = word_task(sizes={"train": 40, "dev": 20}, first=True)
THEIRS = b"mine: years of work\n"
TASK = 'name = "toy"\nlabels = ["bad", "good"]\n[splits]\ntrain = "train.tsv"\ndev = "train.tsv"\n'


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [
        f"a text of {i} words that is {'good' if i % 2 else 'bad'}\t{'good' if i % 2 else 'bad'}" for i in range(40)
    ]
    Path("train.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    Path("task.toml").write_text(TASK)
    for name in "ab":
        Path(f"{name}.txt").write_text("\n".join(f"the {name} cat sat on mat {i}" for i in range(200)))


@pytest.fixture(scope="module")
def caches(tmp_path_factory, tiny_bert):
    return [str(path) for path in word_caches(tmp_path_factory.mktemp("caches"), tiny_bert)]


FEW = ["--document", "line", "--draws", "19", "--resamples", "100"]
OUTPUTS = {
    "table": (["table", "regimes", *REGIMES, "--out"], "table.md"),
    "table rows": (["table", "regimes", *REGIMES, "--rows"], "table.csv"),
    "report": (["report", *REGIMES, "-o"], "report.html"),
    "domains": (["domains", "a=a.txt", "b=b.txt", *FEW, "--out"], "domains.parquet"),
    "counts": (["domains", "a=a.txt", "b=b.txt", *FEW, "--counts"], "counts.parquet"),
    **{f"plot {kind}": (["plot", "mix", *REGIMES, "--out"], f"figure.{kind}") for kind in ("pdf", "png", "svg", "eps")},
    "mdl": (["mdl", "CACHE", "--layers", "0", "--out"], "config.parquet"),
    "mi": (["mi", "CACHE", "--draws", "0", "--layers", "0", "--out"], "mi.csv"),
    "probe": (["probe", "CACHE", "DEV", "--controls", "0", "--layers", "0", "--out"], "probe.parquet"),
}


QUICKLY = ("table", "counts", "plot svg", "mi")  # a text, a table without a card, a figure, rows; others are as these
QUICK = [pytest.param(what, marks=[] if what in QUICKLY else [pytest.mark.slow]) for what in OUTPUTS]


@pytest.mark.parametrize("what", QUICK)
def test_a_strangers_file_is_refused_and_our_own_replaced(what, call, caches):
    words, name = OUTPUTS[what]
    words = [caches[("CACHE", "DEV").index(w)] if w in ("CACHE", "DEV") else w for w in words]
    path = Path(name)
    path.write_bytes(THEIRS)
    done = call(*words, name)
    assert (done.status, path.read_bytes()) == (2, THEIRS)
    assert "exists and is not" in done.err
    path.rename("target")
    path.symlink_to("target")
    done = call(*words, name)
    assert (done.status, Path("target").read_bytes()) == (2, THEIRS)
    assert "is a link" in done.err
    path.unlink()
    for _ in range(2):  # the same command again, with no flag
        done = call(*words, name)
        assert done.status == 0, done.err
    ours = path.read_bytes()
    if what == "counts":  # whose mark is no digest
        return
    path.write_bytes(edited := ours[:-30] + bytes([ours[-30] ^ 1]) + ours[-29:])  # somebody has edited it since
    done = call(*words, name)
    assert (done.status, path.read_bytes()) == (2, edited)


def test_companions_go_by_the_whole_name(call, caches):
    """A card is beside config.parquet without touching config.json; x.csv and x.parquet have one each."""
    Path("config.json").write_bytes(THEIRS)
    assert call("mdl", caches[0], "--layers", "0", "--out", "config.parquet").status == 0
    assert Path("config.json").read_bytes() == THEIRS
    for suffix in ("csv", "parquet"):
        assert call("mi", caches[0], "--draws", "0", "--layers", "0", "--out", f"x.{suffix}").status == 0
    cards = [json.loads(Path(f"x.{suffix}.json").read_text())["rows"]["file"] for suffix in ("csv", "parquet")]
    assert cards == ["x.csv", "x.parquet"]
    Path("x.csv.json").write_bytes(THEIRS)
    done = call("mi", caches[0], "--draws", "0", "--layers", "0", "--out", "x.csv")
    assert (done.status, Path("x.csv.json").read_bytes()) == (2, THEIRS)
    assert "is not an evidence card" in done.err
    Path("y.parquet.json").symlink_to("x.csv.json")
    assert call("mi", caches[0], "--draws", "0", "--layers", "0", "--out", "y.parquet").status == 2
    assert Path("x.csv.json").read_bytes() == THEIRS


def test_rows_that_a_killed_process_left_without_their_card_are_ours(call, caches):
    words = ["mi", caches[0], "--draws", "0", "--layers", "0", "--out", "x.parquet"]
    assert call(*words).status == 0
    Path("x.parquet.json").rename(f".x.parquet.json.{os.getpid()}-140012345678912")  # as between the two renames
    assert call(*words).status == 0


def test_rows_whose_card_is_gone_can_be_deleted_as_the_message_says(call, caches):
    words = ["mi", caches[0], "--draws", "0", "--layers", "0", "--out", "x.parquet"]
    assert call(*words).status == 0
    Path("x.parquet.json").unlink()
    done = call(*words)
    assert done.status == 2
    assert "choose another name for the rows, or delete that file if nobody needs it" in done.err
    Path("x.parquet").unlink()
    assert call(*words).status == 0


@pytest.mark.parametrize(
    "words", [["mi", "no.h5", "--out", "x.csv"], ["report", *REGIMES, "-o", "x.html"]], ids=["mi", "report"]
)
def test_a_pipe_is_not_ours(words, call):
    os.mkfifo(words[-1])
    done = call(*words)
    assert (done.status, Path(words[-1]).is_fifo()) == (2, True)
    assert f"{words[-1]} exists and is not" in done.err


@pytest.mark.parametrize("name", ["p.examples.parquet", "p.cola-dev.examples.parquet"])
@pytest.mark.parametrize(
    "words",
    [["probe", "no.h5", "no.h5"], ["mi", "no.h5"], ["mdl", "no.h5"], ["compare", "no.parquet"],
     ["summary", "no.parquet"], ["domains", "a=no.txt", "b=no.txt"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_places_of_examples_are_looked_at_before_the_work(words, name, call):
    Path(name).write_bytes(THEIRS)
    done = call(*words, "--out", "p.parquet")
    assert (done.status, Path(name).read_bytes()) == (2, THEIRS)
    assert f"{name} exists and is not a file of evaluated examples" in done.err


def test_rows_take_the_place_of_former_ones_with_their_examples(call, caches):
    assert call("probe", *caches, "--controls", "0", "--layers", "0", "--out", "p.parquet").status == 0
    shutil.copy("p.examples.parquet", "q.examples.parquet")  # of rows that were moved away
    for name in "pq":
        assert call("mi", caches[0], "--draws", "0", "--layers", "0", "--out", f"{name}.parquet").status == 0
        assert read(f"{name}.parquet").predictions == ()
    assert not Path("p.examples.parquet").exists()
    assert Path("q.examples.parquet").exists()


@pytest.mark.slow
def test_examples_of_other_rows_are_told(call, caches):
    words = ["probe", *caches, "--controls", "0", "--out"]
    assert call(*words, "p.parquet").status == 0
    assert call(*words, "q.parquet", "--penalties", "0.1").status == 0
    shutil.copy("q.examples.parquet", "p.examples.parquet")  # as where a process was killed between the two
    done = call("summary", "p.parquet")
    assert done.status == 2
    assert "p.examples.parquet: the evidence card describes other examples. Compute the rows again." in done.err
    assert call(*words, "p.parquet").status == 0
    assert len(read("p.parquet").predictions) == 1


READS = [
    ["compare", "p.parquet", "--out", "p.parquet"],
    ["compare", "p.parquet", "--out", "./sub/../p.parquet"],
    ["summary", "p.parquet", "--out", "p.parquet"],
    ["summary", "link.parquet", "--out", "p.parquet"],
    ["compare", "q.parquet", "p.parquet", "--out", "p.parquet"],
    ["compare", "p.examples.parquet", "--against", "shuffled", "--out", "p.parquet"],
    ["table", "regimes", "p.parquet", "--rows", "p.parquet"],
]


@pytest.fixture(scope="module")
def probed(tmp_path_factory, caches):
    folder = tmp_path_factory.mktemp("probed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        probekit.probe(*caches, controls=1, layers=[0, 1], resamples=100, out="p.parquet").save("q.parquet")
    return folder


@pytest.fixture
def rows(probed):
    shutil.copytree(probed, ".", dirs_exist_ok=True)
    Path("sub").mkdir()
    Path("link.parquet").symlink_to("p.parquet")
    Path("link.examples.parquet").symlink_to("p.examples.parquet")


def test_what_is_read_is_not_replaced(rows, call):
    before = {path: path.read_bytes() for path in Path().glob("p.*")}
    assert len(before) == 3
    for words in READS:
        done = call(*words)
        place = words[1] if "examples" in words[1] else words[-1].removeprefix("./")
        assert (done.status, {path: path.read_bytes() for path in Path().glob("p.*")}) == (2, before), words
        assert f"{place} is an input; choose another --out." in done.err


def test_the_rows_of_a_run_are_not_replaced_by_what_is_read_of_it(rows):
    Path("run").mkdir()
    read("p.parquet").save("run/rows.parquet")
    with pytest.raises(UsageError, match=r"^run/rows\.parquet is an input"):
        check_out(Path("run/rows.parquet"), {"run": "run"})
    check_out(Path("run/test.parquet"), {"run": "run"})


def test_counts_are_not_written_over_counts_that_are_read(call):
    for name in ("a", "b"):
        Path(f"{name}.txt").write_text("".join(f"{name} word {i}\n" for i in range(40)))
    words = ["domains", "a=a.txt", "b=b.txt", *FEW]
    assert call(*words, "--counts", "c.parquet").status == 0
    before = Path("c.parquet").read_bytes()
    Path("c.txt").write_text("c word\n" * 40)
    done = call("domains", "c.parquet", "c=c.txt", *words[3:], "--counts", "./c.parquet")
    assert (done.status, Path("c.parquet").read_bytes()) == (2, before)
    assert "c.parquet is also a source; choose another file." in done.err


def test_results_in_memory_are_not_saved_over_what_they_are_made_of(rows):
    p = read("p.parquet")
    with pytest.raises(UsageError, match=r"^p\.parquet is an input"):
        p.compare("shuffled", out="p.parquet")
    compared = p.compare("shuffled")
    with pytest.raises(UsageError, match=r"^p\.parquet is an input"):
        compared.save("p.parquet")
    assert len(read("p.parquet").predictions) == 1


def test_a_damaged_card_is_an_error_and_without_one_examples_are_those_of_the_rows(rows, call):
    card = Path("p.parquet.json").read_text()
    for text in ("{", ""):
        Path("p.parquet.json").write_text(text)
        done = call("summary", "p.parquet")
        assert (done.status, "p.parquet.json" in done.err) == (2, True)
    Path("p.parquet.json").unlink()
    assert len(read("p.parquet").predictions) == 1
    other = read("p.parquet")
    replace(other, rows=other.rows.assign(model="another")).save("r.parquet")
    Path("r.parquet.json").unlink()
    with pytest.raises(
        DataError, match=r"r\.examples\.parquet: holds examples for .*, which the rows next to it do not contain"
    ):
        read("r.parquet")
    Path("p.parquet.json").write_text(card)
    assert len(read("p.parquet").predictions) == 1


def test_another_place_is_taken_again_and_again(rows, call):
    for _ in range(2):
        assert call("compare", "p.examples.parquet", "--against", "shuffled", "--out", "c.parquet").status == 0
        assert call("summary", "p.parquet", "--out", "q.parquet").status == 0
    Path("s.examples.parquet").write_bytes(Path("p.examples.parquet").read_bytes())  # of no rows
    for _ in range(2):  # rows beside examples that are not theirs leave them
        assert call("compare", "s.examples.parquet", "--against", "shuffled", "--out", "s.parquet").status == 0
    assert Path("s.examples.parquet").read_bytes() == Path("p.examples.parquet").read_bytes()


@pytest.mark.parametrize(
    ("suffix", "overwrite"),
    [
        *((suffix, []) for suffix in ("", ".journal", ".partial", ".partial.new")),
        ("", ["--overwrite"]),
        *(pytest.param(f, ["--overwrite"], marks=pytest.mark.slow) for f in (".journal", ".partial", ".partial.new")),
    ],
)
def test_what_lies_where_a_cache_grows(suffix, overwrite, call, tiny_bert):
    words = ["cache-activations", "--model", tiny_bert, "--task", "task.toml", "--split", "dev", "--device", "cpu"]
    words += ["--limit", 4, *overwrite, "--out", "notes.h5"]
    path = Path(f"notes.h5{suffix}")
    path.write_bytes(THEIRS)
    done = call(*words)
    assert (done.status, path.read_bytes()) == (2, THEIRS)
    assert "notes.h5" in done.err
    path.rename("target")
    path.symlink_to("target")
    done = call(*words)
    assert (done.status, Path("target").read_bytes(), path.is_symlink()) == (2, THEIRS, True)
    assert "is a link" in done.err or not suffix
    path.unlink()
    assert call(*words).status == 0
    assert call(*words).status == 0


def test_notes_beside_a_cache_without_a_suffix(call, tiny_bert):
    Path("notes.journal").write_bytes(THEIRS)
    words = ["cache-activations", "--model", tiny_bert, "--task", "task.toml", "--split", "dev", "--out", "notes"]
    done = call(*words, "--device", "cpu", "--limit", 4)
    assert (done.status, Path("notes.journal").read_bytes()) == (2, THEIRS)


def test_train_deletes_what_a_run_leaves_and_nothing_else(tiny_bert):
    how = {"epochs": 1, "batch_size": 20, "device": "cpu", "save_at": "1"}
    out = Path("run")
    train(TOY, tiny_bert, out, **how)
    for name in ("notes.txt", "step-1/notes.txt", "step-notes"):
        (out / name).write_bytes(THEIRS)
        before = sorted(out.rglob("*"))
        with pytest.raises(
            UsageError, match=f"{Path(name).parts[0]}, which does not belong to a run, so nothing is deleted"
        ):
            train(TOY, tiny_bert, out, **how, seed=1, overwrite=True)
        assert sorted(out.rglob("*")) == before
        (out / name).unlink()
    shutil.move(out / "config.json", "config.json")
    (out / "config.json").symlink_to(Path("config.json").absolute())
    with pytest.raises(UsageError, match="the link config.json"):
        train(TOY, tiny_bert, out, **how, seed=1, overwrite=True)
    (out / "config.json").unlink()
    train(TOY, tiny_bert, out, **how, seed=1, overwrite=True)
    assert (out / "step-1" / "probekit.json").is_file()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_lock_that_is_not_ours(kind, tiny_bert):
    Path("run").mkdir()
    Path("target").write_bytes(THEIRS)
    if kind == "link":
        Path("run/.lock").symlink_to(Path("target").absolute())
    else:
        Path("target").rename("run/.lock")
        Path("target").symlink_to("run/.lock")
    with pytest.raises(UsageError, match="is a link|is needed as a lock file"):
        train(TOY, tiny_bert, "run", epochs=1, device="cpu")
    assert Path("target").read_bytes() == THEIRS
    assert Path("run/.lock").exists()


STUDY = """
title = "x"
models = { m = "MODEL" }
[data]
"task.toml" = "."
[[mi]]
tasks = ["task.toml"]
options = { draws = 0 }
"""


@pytest.mark.parametrize("name", ["study.json", "logs/STEP", ".lock"])
def test_a_study_in_a_folder_with_other_things(name, call, tiny_bert, monkeypatch):
    from probekit.studies import planned as studies

    Path("study.toml").write_text(STUDY.replace("MODEL", str(tiny_bert)))
    planned = studies.plan_study("study.toml", "out")
    step = next(step for step in planned.steps if step.function)
    from probekit.studies.records import log_path

    path = log_path(Path("out"), step) if name == "logs/STEP" else Path("out", name)
    path.parent.mkdir(parents=True)
    path.write_bytes(THEIRS)
    done = call("study", "run", "study.toml", "--out", "out")
    assert (done.status, path.read_bytes()) == (2, THEIRS)
