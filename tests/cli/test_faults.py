"""One sentence, always: what goes wrong is told without a traceback, and a fault of our own says where that is."""

import errno
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from probekit.files import FileKind, write


def sentence(answer, status=2):
    """What a command complained of: one line, without a traceback."""
    assert answer.status == status, answer.err
    assert answer.err.startswith("probekit: ")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    return answer.err


@pytest.fixture
def bert(tiny_bert, tmp_path):
    """A copy of the tiny BERT, to be damaged."""
    return Path(shutil.copytree(tiny_bert, tmp_path / "bert"))


def changed(folder, name, **values):
    told = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(told | values))


@pytest.fixture
def cache(call, tmp_path):
    """Caches the activations of a demonstration task."""

    def run(model, *words):
        out = tmp_path / "out.h5"
        return call("cache-activations", "--model", model, "--task", "grammar:sentiment", "--split", "dev",
                    "--limit", 8, "--out", out, "--device", "cpu", *words)  # fmt: skip

    return run


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "the disk is full. Free some space in the working directory",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/x/.rows.parquet.4711-140012345678912"),
            "/x/rows.parquet cannot be opened or written: the disk is read-only. Choose another place.",
        ),
        (
            OSError(errno.ENOTEMPTY, "Directory not empty", "/x/.out.4711-140012345678912", None, "/x/out"),
            "/x/out cannot be opened or written: it is a folder that is not empty. Choose another name.",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/x/.out.draft.4711-140012345678912"),
            "/x/out cannot be opened or written: the disk is read-only.",
        ),
        (OSError("a store's own words"), "a store's own words"),
    ],
)
def test_errors_of_the_system_name_a_place(error, said, monkeypatch, call):
    """By the name that the user knows, in words, and what to do."""

    def broken(*_, **__):
        raise error

    monkeypatch.setattr("probekit.activations.ActivationCache", broken)
    done = call("inspect", "x.h5")
    assert done.status == 2
    assert said in done.err.replace("\n", " ")
    assert "Errno" not in done.err


def test_a_full_disk_is_told_with_the_final_name(tmp_path, monkeypatch):
    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device: .*/x.json'") as caught:
        write(tmp_path / "x.json", "{}", FileKind("a file", lambda path: True))
    assert caught.value.filename == str(tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("columns", ["²", "1000000000", "0", "-1", ""])
def test_a_width_that_is_none(columns, monkeypatch, call):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", columns)
    assert call("tasks", "--help").status == 0
    assert "COLUMNS" not in os.environ


def test_a_fault_of_ours_names_the_file_of_its_traceback(call, monkeypatch, tmp_path):
    def fault(*_, **__):
        raise RuntimeError("the moon\nis full")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("probekit.activations.ActivationCache", fault)
    told = sentence(call("inspect", tmp_path / "a.h5"), 3)
    file = Path(re.search(r"the traceback is in (\S+)\.$", told)[1])
    assert "RuntimeError: the moon;" in told
    assert 'raise RuntimeError("the moon\\nis full")' in file.read_text()
    with pytest.raises(RuntimeError, match="the moon"):
        call("--debug", "inspect", tmp_path / "a.h5")


def test_no_memory(call, monkeypatch, tmp_path):
    def fault(*_, **__):
        raise MemoryError("Unable to allocate 596. GiB for an array")

    monkeypatch.setattr("probekit.activations.ActivationCache", fault)
    assert "not enough memory (Unable to allocate 596. GiB" in sentence(call("inspect", tmp_path / "a.h5"))


def test_a_token_that_was_added_to_the_tokenizer_alone(bert, cache):
    tokenizer = tiny.transformers.AutoTokenizer.from_pretrained(bert)
    tokenizer.add_tokens(["the"])
    told = json.loads((bert / "tokenizer.json").read_text())
    rows = json.loads((bert / "config.json").read_text())["vocab_size"]
    vocabulary = told["model"]["vocab"]
    vocabulary["the"] = rows + 3
    (bert / "tokenizer.json").write_text(json.dumps(told))
    told = sentence(cache(bert))
    assert f"reads the piece 'the' (number {rows + 3})" in told
    assert f"the model has embeddings for only {rows} pieces" in told
    assert "resize_token_embeddings" in told


def test_a_vocabulary_without_unk(bert, cache):
    told = json.loads((bert / "tokenizer.json").read_text())
    for name in ("[UNK]", "the"):
        told["model"]["vocab"].pop(name)
    told["added_tokens"] = [token for token in told["added_tokens"] if token["content"] != "[UNK]"]
    (bert / "tokenizer.json").write_text(json.dumps(told))
    changed(bert, "tokenizer_config.json", unk_token=None)
    assert "[UNK]" in sentence(cache(bert))


@pytest.mark.parametrize("length", [-5, 0, 1])
def test_a_length_that_no_text_has(bert, cache, length):
    changed(bert, "tokenizer_config.json", model_max_length=length)
    assert f"model_max_length in tokenizer_config.json is {length}. Correct them" in sentence(cache(bert))


@pytest.mark.parametrize("seed", [-1, 1 << 32])
@pytest.mark.parametrize(
    "words",
    [
        ("cache-activations", "--model", "m", "--task", "grammar:sentiment", "--split", "dev", "--random-weights"),
        ("train", "--task", "grammar:sentiment", "--model", "m", "--regime", "fine-tune", "--out", "RUN", "--seed"),
        ("search", "paper/fine-tune", "--out", "FOUND", "--task", "grammar:sentiment", "--model", "m", "--seed"),
        ("probe", "a.h5", "b.h5", "--seed"), ("mi", "a.h5", "--seed"), ("mdl", "a.h5", "--seed"),
        ("domains", "a=x", "b=y", "--seed"), ("compare", "a.parquet", "--seed"), ("summary", "a.parquet", "--seed"),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else None,
)  # fmt: skip
def test_seeds_are_numbers_of_32_bits(call, tmp_path, monkeypatch, words, seed):
    monkeypatch.chdir(tmp_path)
    told = sentence(call(*words, seed))
    assert "seed" in told
    assert not list(tmp_path.iterdir())


def test_an_epoch_that_is_no_number(bert, cache, monkeypatch):
    for epoch in ("abc", "1e400", str(10**20)):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        assert f"SOURCE_DATE_EPOCH is {epoch!r}; expected seconds since 1970" in sentence(cache(bert))


@pytest.fixture
def limited():
    """No file may be longer than this many bytes, from the call on."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_limit_of_file_sizes(bert, cache, call, limited, tmp_path):
    limited(20_000)
    assert re.search(r"cannot write \S+/out.h5: .* files may have at most 20,000 here", sentence(cache(bert)))
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]
    answer = call("train", "--task", "grammar:sentiment", "--model", bert, "--regime", "fine-tune", "--limit", 8,
                  "--out", tmp_path / "run", "--epochs", 1, "--device", "cpu")  # fmt: skip
    assert "files of this size are not allowed there (ulimit -f)" in sentence(answer)


def test_what_a_terminal_would_obey_is_written_out(call):
    assert r"\x1b[2J\udcff" in sentence(call("inspect", "\x1b[2J\udcff"))
    assert "NUL" in sentence(call("inspect", "a\0b"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("compare", "a.parquet", "--against", "permutd"), "--against is 'permutd'; did you mean permuted?"),
        (("compare", "a.parquet", "--against", "3"), "--against is '3'; did you mean layer-3?"),
        (("compare", "a.parquet", "--resamples", 10), "--resamples is 10; it must be 100 or more"),
        (
            ("probe", "a.h5", "b.h5", "--penalties", "-1,0.1"),
            "--penalties is (-1.0, 0.1); -1.0 does not fit: it must be above 0.",
        ),
        (("probe", "a.h5", "b.h5", "--held-out", "2"), "--held-out is 2.0; it must be between 0 and 1"),
        (("probe", "a.h5", "b.h5", "--metrics", "accurcy"), "unknown metric 'accurcy'; did you mean accuracy"),
        (("mi", "a.h5", "--threads", 0), "--threads is 0; it must be 1 or more"),
        (("inspect", "a.h5", "--groups", "x"), "there is no option --groups. See probekit inspect --help."),
        (("compare", "a.parquet", "--agains", "x"), "there is no option --agains; did you mean --against?"),
        (
            ("train", "--task", "t", "--model", "m", "--regime", "fine-tune", "--out", "r", "--learning-rate", "1,2"),
            "--learning-rate is '1,2'; it must be one number.",
        ),
        (("run", "minilm"), "TASK is missing. Give probekit run MODEL TASK. A task is a name"),
        (("run", "rte", "minilm"), "rte is a task, and the model comes first: probekit run minilm rte."),
        (("run", "minilm", "rte", "--pooling", "cls"), "last, max, ema, sentence. Give first for the vector of [CLS]."),
        (("study", "run", "figure3-small"), "did you mean figure2-small or figure1-small?"),
        (("report", "a.parquet", "-o", "page.docx"), "a report is one HTML page, not .docx; name it page.html."),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_a_mistake_says_what_to_do_in_the_words_that_were_typed(call, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    assert told in sentence(call(*words))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "errors"),
    [
        (["tasks"], False),
        (["--help"], True),
        *(
            pytest.param(["tasks", "check", "grammar:sentiment"], errors, marks=pytest.mark.slow)
            for errors in (False, True)
        ),
    ],
)
def test_a_reader_that_has_ended_ends_the_command_silently(words, errors, tmp_path):
    """As in ``probekit tasks | head``, and with ``errors`` as in ``probekit tasks 2>&1 | head``."""
    reading, writing = os.pipe()
    os.close(reading)
    with (tmp_path / "errors").open("w") as other:
        ended = subprocess.run(
            [sys.executable, "-m", "probekit", *words], stdout=writing, stderr=writing if errors else other, check=False
        )
    os.close(writing)
    assert ended.returncode == 141
    assert (tmp_path / "errors").read_text() == ""
