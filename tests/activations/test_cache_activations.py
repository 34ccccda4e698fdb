"""Making a cache through the front door: what is stored, reuse, resume, refusals."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import tiny
import torch
from tokenizers import pre_tokenizers
from toys import toy_pairs, toy_tags, toy_task

from probekit.activations import ActivationCache, cache_activations, inspect, verify
from probekit.activations.writing import job as job_module
from probekit.activations.writing import journal as journal_module
from probekit.activations.writing import partial as partial_module
from probekit.activations.writing import plan as plan_module
from probekit.analyses.vectors import layer_vectors
from probekit.errors import (
    CacheBusy,
    CacheCorrupt,
    CacheError,
    CacheMismatch,
    NonFiniteError,
    TruncationError,
    UsageError,
)
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.runtime import torch_threads
from probekit.tasks.task import Example, Split, Task, TaskKind


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return load_encoder(tiny_bert, device="cpu")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(plan_module, "LEAST_TOKENS", 100)


def alone(encoder, text):
    """All layers of one text run by itself with one thread, (layers, t, d), and its tokens."""
    tokens, seen = encoder.tokenize([text]), []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    batch = Batch(tokens.token_ids, tokens.type_ids, tokens.length)
    encoder.encode(batch, lambda i, h: seen.append(h.float().numpy().copy()))
    torch.set_num_threads(threads)
    return np.stack(seen), tokens


def ema(content, decay):
    average = content[:, 0]
    for k in range(1, content.shape[1]):
        average = decay * average + (1 - decay) * content[:, k]
    return average


def naive(hidden, special, how):
    """The slow twin of pooling."""
    content = hidden[:, ~special]
    empty = np.zeros_like(hidden[:, 0])
    return {
        "mean": content.mean(1) if content.shape[1] else empty,
        "max": content.max(1) if content.shape[1] else empty,
        "mean-all": hidden.mean(1),
        "ema:0.7": ema(content, 0.7) if content.shape[1] else empty,
        "first": hidden[:, 0],
        "last": hidden[:, -1],
    }[how]


ALL = ["mean", "mean-all", "first", "last", "max", "ema:0.7"]


def test_every_vector_is_that_of_the_text_alone(encoder, tmp_path, small_blocks):
    task = toy_task()
    cache = cache_activations(encoder, task, pooling=ALL, tokens=True, out=tmp_path / "c.h5")
    assert cache.layers == ("0", "1", "2", "3")
    for i, example in enumerate(task.split("train").examples[:12]):  # an empty one and its repetition are among them
        hidden, tokens = alone(encoder, example.text)
        for layer in range(4):
            np.testing.assert_array_equal(cache.tokens(layer)[i], hidden[layer])
            for how in ALL:
                # float32 means of up to 30 numbers around 1, summed in another order than numpy's
                np.testing.assert_allclose(
                    cache.layer(layer, how)[i], naive(hidden, tokens.special, how)[layer], atol=2e-6
                )
    assert [str(x) for x in cache.ids] == [e.id for e in task.split("train")]
    np.testing.assert_array_equal(cache.labels, task.labels("train"))
    assert cache.labels[4] == -1
    assert cache.spec["counts"]["unique"] < 60
    assert cache.spec["counts"]["empty"] == 2  # the empty text, and its repetition
    assert len(h5py.File(cache.path)["/pieces/blocks"]) > 3
    assert verify(cache.path).ok


def test_pooled_rows_do_not_depend_on_the_batch(encoder, tmp_path, small_blocks):
    one = cache_activations(encoder, toy_task(), pooling=ALL, out=tmp_path / "a.h5", batch_tokens=1)
    many = cache_activations(encoder, toy_task(), pooling=ALL, out=tmp_path / "b.h5", batch_tokens=4096)
    for layer in one.layers:
        for how in ALL:
            np.testing.assert_array_equal(one.layer(layer, how), many.layer(layer, how))


def test_h5py_alone_reads_it(encoder, tmp_path):
    cache_activations(encoder, toy_task(), out=tmp_path / "c.h5")
    with h5py.File(tmp_path / "c.h5") as f:
        x, y = f["/pooled/mean/3"][:], f["/labels"][:]
        ids = f["/ids"].asstr()[:]
        assert f.attrs["format"] == "probekit-activations/1"
        assert f.attrs["complete"]
        assert json.loads(f.attrs["spec"])["task"] == "toy"
        assert f["/pooled/mean/3"].chunks is None
    assert x.shape == (60, 32)
    assert y.shape == (60,)
    assert ids[0] == "é0"


def test_the_texts_of_a_task_in_memory_are_not_in_the_file(encoder, tmp_path):
    cache_activations(encoder, toy_task(), out=tmp_path / "c.h5")
    with h5py.File(tmp_path / "c.h5") as f:
        assert json.loads(f.attrs["recipe"])["arguments"]["task"] == {"object": "probekit.tasks.task.Task"}
    longest = max((e.text for e in toy_task().splits["train"]), key=len)
    assert longest.encode() not in (tmp_path / "c.h5").read_bytes()


@pytest.mark.parametrize(
    "family", ["deberta-v2", *(pytest.param(f, marks=pytest.mark.slow) for f in ("t5", "gpt2", "llama"))]
)
def test_other_families(tiny_model, tmp_path, family):
    """Grouped models too, decoders without a padding token, final norms, texts with no piece at all."""
    model = load_encoder(tiny_model(family), device="cpu")
    task = toy_task(25)
    cache = cache_activations(model, task, pooling=["mean", "last"], out=tmp_path / "c.h5")
    assert ("final_norm" in cache.layers) == (family != "deberta-v2")
    for i in (0, 1, 2, 7, 24):
        text = task.split("train")[i].text
        tokens = model.tokenize([text])
        if not tokens.length[0]:
            assert not cache.layer(1)[i].any()
            continue
        hidden, tokens = alone(model, text)
        for k, layer in enumerate(cache.layers):
            # groups of several lengths share a matrix product whose rounding depends on its size
            np.testing.assert_allclose(cache.layer(layer)[i], naive(hidden, tokens.special, "mean")[k], atol=1e-5)


def test_pairs_joint_and_separate(encoder, tmp_path):
    task = toy_pairs()
    joint = cache_activations(encoder, task, out=tmp_path / "j.h5")
    apart = cache_activations(encoder, task, pairs="separate", tokens=True, out=tmp_path / "s.h5")
    assert joint.layer(2).shape == (40, 32)
    assert apart.layer(2).shape == (40, 64)
    for i, e in enumerate(task.split("train").examples[:8]):
        hidden, tokens = alone(encoder, (e.text, e.pair))
        np.testing.assert_allclose(joint.layer(2)[i], naive(hidden, tokens.special, "mean")[2], atol=2e-6)
        for k, text in enumerate((e.text, e.pair)):
            hidden, tokens = alone(encoder, text)
            np.testing.assert_allclose(
                apart.layer(2)[i, 32 * k : 32 * k + 32], naive(hidden, tokens.special, "mean")[2], atol=2e-6
            )
            np.testing.assert_array_equal(apart.tokens(2)[40 * k + i], hidden[2])
    assert list(joint.domains[:3]) == ["y", "x", "y"]
    assert verify(apart.path).ok


@pytest.mark.parametrize(
    "level", [*(pytest.param(v, marks=pytest.mark.slow) for v in ("piece", "word-first")), "word-mean"]
)
def test_word_vectors_are_aligned(encoder, tmp_path, level):
    task = toy_tags()
    long = Example("long", "x", (1, 2, 0), words=("unhappying", "dog", "sees"))
    task = Task(task.name, task.kind, {"train": Split("train", (*task.split("train"), long))}, task.label_names)
    cache = cache_activations(encoder, task, pooling=[], tokens=True, token_level=level, out=tmp_path / "c.h5")
    words = cache.layer_words(1)
    assert (
        len(words)
        == len(cache.word_labels)
        == len(cache.word_sentence)
        == sum(len(e.words) for e in task.split("train"))
    )
    np.testing.assert_array_equal(cache.word_labels, task.labels("train"))
    at = 0
    for i, e in enumerate(task.split("train")):
        if 12 <= i < len(task.split("train")) - 1:  # as those before
            at += len(e.words)
            continue
        hidden, tokens = alone(encoder, (e.words,))
        for w in range(len(e.words)):
            pieces = hidden[1][tokens.word_index == w]
            want = pieces.mean(0) if level == "word-mean" else pieces[0]
            np.testing.assert_allclose(words[at], want, atol=1e-6)
            assert cache.word_sentence[at] == i
            at += 1
    assert (tokens.word_index == 0).sum() > 1  # the last sentence has a word of several pieces
    assert verify(cache.path).ok


@pytest.mark.parametrize(
    ("store", "relative", "compress"),
    [
        ("float16", 2**-11, True),
        pytest.param("bfloat16", 2**-8, False, marks=pytest.mark.slow),
        pytest.param("float16", 2**-11, False, marks=pytest.mark.slow),
        pytest.param("bfloat16", 2**-8, True, marks=pytest.mark.slow),
    ],
)
def test_half_precision(encoder, tmp_path, store, relative, compress):
    full = cache_activations(encoder, toy_task(), tokens=True, out=tmp_path / "f.h5")
    half = cache_activations(encoder, toy_task(), tokens=True, store=store, compress=compress, out=tmp_path / "h.h5")
    for a, b in ((full.layer(2), half.layer(2)), (full.tokens(2).values, half.tokens(2).values)):
        np.testing.assert_allclose(b.astype(np.float32), a, rtol=relative, atol=1e-6)  # half a unit in the last place
        assert not np.array_equal(a, b)
    assert verify(half.path).ok


def test_reuse_mismatch_and_overwrite(encoder, tmp_path):
    out = tmp_path / "c.h5"
    first = cache_activations(encoder, toy_task(), out=out)
    stamp = out.stat().st_mtime_ns
    assert cache_activations(encoder, toy_task(), out=out).spec_id == first.spec_id
    assert out.stat().st_mtime_ns == stamp
    with pytest.raises(CacheMismatch, match=r"pooling is \['mean'\] in the file and \['max'\] now.*--overwrite"):
        cache_activations(encoder, toy_task(), pooling="max", out=out)
    with pytest.raises(CacheMismatch, match="the number of examples is 60 in the file and 59 now"):
        cache_activations(encoder, toy_task(59), out=out)
    assert out.stat().st_mtime_ns == stamp
    assert cache_activations(encoder, toy_task(), pooling="max", out=out, overwrite=True).poolings == ("max",)
    (tmp_path / "text.h5").write_text("my thesis")
    with pytest.raises(
        CacheMismatch,
        match=r"is not an activation cache \(it is not an HDF5 file\)\. It exists already and is not overwritten;",
    ):
        cache_activations(encoder, toy_task(), out=tmp_path / "text.h5")
    assert (tmp_path / "text.h5").read_text() == "my thesis"
    assert sorted(os.listdir(tmp_path)) == ["c.h5", "text.h5"]


def test_default_path_says_what_it_is(encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = cache_activations(encoder, toy_task())
    assert cache.path.parent == Path("data_cache")
    assert cache.path.name == f"toy.train.{encoder.name}.{cache.spec_id[:8]}.h5"


def fail_after(monkeypatch, batches):
    """Make the encoder fail after some batches, as an interruption would."""
    calls = 0
    inner = job_module.run_blocks

    def run(partial, encoder, *args, **kwargs):
        class Failing:
            def __getattr__(self, name):
                return getattr(encoder, name)

            def encode(self, *a):
                nonlocal calls
                calls += 1
                if calls > batches:
                    raise KeyboardInterrupt
                return encoder.encode(*a)

        return inner(partial, Failing(), *args, **kwargs)

    monkeypatch.setattr(job_module, "run_blocks", run)


def test_interrupted_work_is_taken_up(encoder, tmp_path, small_blocks, monkeypatch):
    out = tmp_path / "c.h5"
    with monkeypatch.context() as patch:
        fail_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            cache_activations(encoder, toy_task(), out=out)
    assert not out.exists()
    with pytest.raises(CacheError, match="is unfinished"):
        ActivationCache(journal_module.partial_path(out))
    begun = []
    cache_activations(
        encoder, toy_task(), out=out, progress=lambda stage, done, total, **_: begun.append((stage, done))
    )
    assert next(done for stage, done in begun if stage == "model") > 0  # what was done is not done again
    whole = cache_activations(encoder, toy_task(), out=tmp_path / "w.h5")
    for layer in whole.layers:
        np.testing.assert_array_equal(ActivationCache(out).layer(layer), whole.layer(layer))


def test_a_damaged_unfinished_cache_is_mended(encoder, tmp_path, small_blocks, monkeypatch, caplog):
    out = tmp_path / "c.h5"
    with monkeypatch.context() as patch:
        fail_after(patch, 5)
        with pytest.raises(KeyboardInterrupt):
            cache_activations(encoder, toy_task(), out=out)
    partial = partial_module.open_partial(out)
    flip(partial.file, partial.extents["/pooled/mean/2"].offset + 5)
    with journal_module.journal_path(out).open("a") as journal:
        journal.write('{"block": 77, "xx')  # torn by a full disk
    cache = cache_activations(encoder, toy_task(), out=out)
    assert "is run again" in caplog.text
    whole = cache_activations(encoder, toy_task(), out=tmp_path / "w.h5")
    np.testing.assert_array_equal(cache.layer(2), whole.layer(2))


def test_an_unfinished_cache_of_another_job_is_kept(encoder, tmp_path, small_blocks, monkeypatch):
    out = tmp_path / "c.h5"
    with monkeypatch.context() as patch:
        fail_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            cache_activations(encoder, toy_task(), out=out)
    with pytest.raises(CacheMismatch, match="unfinished cache of another job: pooling"):
        cache_activations(encoder, toy_task(), pooling="max", out=out)
    assert journal_module.partial_path(out).exists()
    assert cache_activations(encoder, toy_task(), pooling="max", out=out, overwrite=True).poolings == ("max",)


def test_other_software_does_not_go_on(encoder, tmp_path, small_blocks, monkeypatch):
    out = tmp_path / "c.h5"
    with monkeypatch.context() as patch:
        fail_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            cache_activations(encoder, toy_task(), out=out)
    monkeypatch.setitem(encoder.versions, "torch", "1.0")
    with pytest.raises(CacheMismatch, match=r"another environment: torch is .* and '1\.0' now"):
        cache_activations(encoder, toy_task(), out=out)


def test_two_writers_do_not_harm_each_other(encoder, tmp_path, small_blocks):
    out = tmp_path / "c.h5"
    results, waited = [], []

    def make():
        results.append(cache_activations(encoder, toy_task(), out=out, wait=lambda: waited.append(1)).layer(3).copy())

    threads = [threading.Thread(target=make) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 3
    assert waited
    np.testing.assert_array_equal(results[0], results[1])
    assert os.listdir(tmp_path) == ["c.h5"]
    with (
        journal_module.locked(tmp_path / "d.h5", wait=None),
        pytest.raises(CacheBusy, match="another process is writing"),
    ):
        cache_activations(encoder, toy_task(), out=tmp_path / "d.h5", wait=None)


@pytest.mark.slow
def test_workers_give_the_same_file(tiny_bert, encoder, tmp_path, small_blocks):
    one = cache_activations(tiny_bert, toy_task(), device="cpu", tokens=True, out=tmp_path / "1.h5")
    two = cache_activations(tiny_bert, toy_task(), device="cpu", tokens=True, out=tmp_path / "2.h5", workers=2)
    assert one.spec_id == two.spec_id
    with h5py.File(one.path) as a, h5py.File(two.path) as b:
        np.testing.assert_array_equal(a["/blocks"][:-1], b["/blocks"][:-1])
    for layer in one.layers:
        np.testing.assert_array_equal(one.tokens(layer).values, two.tokens(layer).values)


@pytest.fixture
def broken(tiny_bert, tmp_path):
    """A model whose layer 2 is NaN."""
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    shutil.copytree(tiny_bert, folder)
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.1.output.dense.bias"][3] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


NAN = r"layer 2 of example 'é\d+' \(row \d+\) is NaN or infinite"


def test_what_is_not_finite_is_told_with_its_place(broken, tmp_path, small_blocks):
    with pytest.raises(NonFiniteError, match=NAN) as failed:
        cache_activations(broken, toy_task(), device="cpu", out=tmp_path / "c.h5")
    again = pickle.loads(pickle.dumps(failed.value))  # as from a worker
    assert (type(again), str(again)) == (NonFiniteError, str(failed.value))
    with pytest.raises(NonFiniteError, match="layer 2"):
        cache_activations(broken, toy_task(), device="cpu", pooling=[], tokens=True, out=tmp_path / "t.h5")
    kept = cache_activations(broken, toy_task(), device="cpu", out=tmp_path / "k.h5", allow_nonfinite=True)
    assert np.isnan(kept.layer(2)).any()
    assert np.isfinite(kept.layer(1)).all()


@pytest.mark.slow  # two processes that import torch
def test_a_worker_that_fails_says_why(broken, tmp_path, small_blocks):
    with pytest.raises(NonFiniteError, match=NAN):
        cache_activations(broken, toy_task(), device="cpu", out=tmp_path / "c.h5", workers=2)


def test_tasks_that_label_words_keep_vectors_of_words(encoder, tmp_path):
    tags, sentences = toy_tags(), toy_task()
    default = cache_activations(encoder, tags, out=tmp_path / "default.h5")
    named = cache_activations(encoder, tags, tokens=True, token_level="word-first", out=tmp_path / "named.h5")
    assert default.spec_id == named.spec_id

    def tokens(task, **options):
        return cache_activations(encoder, task, out=tmp_path / f"{task.name}-{options}.h5", **options).spec["tokens"]

    assert tokens(tags, token_level="word-mean") == "word-mean"
    assert tokens(tags, tokens=True) == "piece"
    assert tokens(tags, tokens=False) is None
    assert tokens(sentences) is None


def test_numbers_too_large_for_float16(encoder, tmp_path, monkeypatch):
    inner = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda batch, sink, edit=None: inner(batch, lambda i, h: sink(i, h * 1e6)))
    for options in ({}, {"pooling": [], "tokens": True}, {"pooling": [], "tokens": True, "token_level": "word-mean"}):
        with pytest.raises(NonFiniteError, match=r"layer 0 of example 'é\d+' .* too large for float16; use --store"):
            cache_activations(
                encoder, toy_task(), store="float16", out=tmp_path / f"{len(options)}.h5", overwrite=True, **options
            )


def test_a_special_token_that_the_text_holds_already_is_reported(encoder, tmp_path, caplog):
    texts = ("[CLS] the dog", "the dog", "[CLS]")
    examples = tuple(Example(str(i), text, i % 2) for i, text in enumerate(texts))
    task = Task("chat", TaskKind.CLASSIFICATION, {"train": Split("train", examples)}, ("a", "b"))
    cache_activations(encoder, task, out=tmp_path / "c.h5")
    assert "2 of 3 texts begin with the special token that the tokenizer adds itself" in caplog.text
    caplog.clear()
    cache_activations(encoder, toy_task(), out=tmp_path / "d.h5")
    assert "special token" not in caplog.text


def test_long_texts(encoder, tmp_path):
    long = Task(
        "long",
        TaskKind.CLASSIFICATION,
        {"train": Split("train", (Example("s", "the dog", 0), Example("l", "dog " * 99, 1)))},
        ("a", "b"),
    )
    cache = cache_activations(encoder, long, out=tmp_path / "c.h5")
    assert list(cache.truncated) == [False, True]
    assert cache.spec["counts"]["truncated"] == 1
    with pytest.raises(TruncationError, match="1 of 2 examples are longer than the 40 pieces .* the first is 'l'"):
        cache_activations(encoder, long, out=tmp_path / "d.h5", on_truncate="error")
    assert os.listdir(tmp_path) == ["c.h5"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "mode"}, "there is no pooling 'mode'; expected one or more of mean, mean-all, first, last, max"),
        ({"pooling": []}, "nothing to store"),
        ({"tokens": "letters"}, "tokens is 'letters'; it must be true or false"),
        ({"token_level": "word-mean"}, "add --tokens"),
        (
            {"tokens": True, "token_level": "letters"},
            "token_level is 'letters'; expected one of piece, word-pieces, word-first, word-mean",
        ),
        ({"store": "float8"}, "store is 'float8'"),
        ({"split": "test"}, "toy has no split 'test'; it has train"),
        ({"limit": 0}, "limit is 0"),
        ({"workers": 0}, "workers is 0"),
        ({"batch_tokens": -5}, "batch_tokens is -5; it must be 1 or more"),
        ({"workers": 2}, "give its name or folder"),
        ({"pairs": "both"}, "pairs is 'both'"),
        ({"on_truncate": "cry"}, "on_truncate is 'cry'"),
        ({"task": Task("none", TaskKind.CLASSIFICATION, {"train": Split("train", ())})}, "none train has no examples"),
    ],
)
def test_wrong_options(encoder, tmp_path, options, message):
    options = {"task": toy_task(), "out": tmp_path / "c.h5"} | options
    with pytest.raises(UsageError, match=message):
        cache_activations(encoder, options.pop("task"), **options)
    assert not os.listdir(tmp_path)


def test_no_room_on_the_disk(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda p: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(CacheError, match=r"it needs [\d,]{5,} bytes, but only 1,000 are free.*--store float16"):
        cache_activations(encoder, toy_task(), out=tmp_path / "c.h5")
    monkeypatch.undo()

    def full(fd, *rest):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CacheError, match="the disk is full"):
        cache_activations(encoder, toy_task(), out=tmp_path / "c.h5")
    monkeypatch.undo()
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(CacheError, match="the disk is full. What is finished is kept"):
        cache_activations(encoder, toy_task(), out=tmp_path / "c.h5")
    monkeypatch.undo()
    assert verify(cache_activations(encoder, toy_task(), out=tmp_path / "c.h5").path).ok


def test_folders_that_cannot_be_written(encoder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="not a folder"):
        cache_activations(encoder, toy_task(), out=tmp_path / "file" / "c.h5")
    code = (
        "import filelock, os, sys; from pathlib import Path; from probekit.activations.writing.journal import locked\n"
        "folder = Path(sys.argv[1]); folder.chmod(0o555)\n"
        "if os.getuid() == 0: folder.parent.chmod(0o777); os.setuid(65534)\n"
        "with locked(folder / 'c.h5', wait=None): pass"
    )
    (folder := Path(tempfile.mkdtemp())).joinpath("ro").mkdir()
    done = subprocess.run([sys.executable, "-c", code, str(folder / "ro")], capture_output=True, text=True, check=False)
    shutil.rmtree(folder)
    assert "CacheError: cannot write" in done.stderr
    assert "no permission to write" in done.stderr


def flip(path, at, bit=1):
    with path.open("rb+") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ bit]))


@pytest.mark.parametrize("flips", [20, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize("compress", [False, True])
def test_every_flipped_byte_is_found(encoder, tmp_path, compress, flips):
    good = cache_activations(encoder, toy_task(20), tokens=True, compress=compress, out=tmp_path / "c.h5").path
    size = good.stat().st_size
    rng = np.random.default_rng(0)
    bad = tmp_path / "bad.h5"
    missed = []
    where = {*range(0, 4096, 15250 // flips), *rng.integers(0, size, flips), size - 1}
    for at in sorted(int(x) for x in where):
        shutil.copy(good, bad)
        flip(bad, at, 1 << int(rng.integers(8)))
        try:
            if verify(bad).ok:
                missed.append(at)
        except CacheError:
            pass
    assert not missed
    assert verify(good).ok


def test_truncated_and_foreign_files(encoder, tmp_path):
    good = cache_activations(encoder, toy_task(20), out=tmp_path / "c.h5").path
    cut = tmp_path / "cut.h5"
    for size in (0, 7, 100, good.stat().st_size // 2, good.stat().st_size - 1):
        cut.write_bytes(good.read_bytes()[:size])
        with pytest.raises(CacheError, match=r"cut\.h5"):
            verify(cut)
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["x"] = 1
    with pytest.raises(CacheMismatch, match="not a probekit cache"):
        ActivationCache(tmp_path / "other.h5")
    with h5py.File(cut, "w") as f:
        f.attrs["format"] = "probekit-activations/9"
    with pytest.raises(CacheMismatch, match="'probekit-activations/9'; this version reads 'probekit-activations/1'"):
        ActivationCache(cut)
    with pytest.raises(CacheError, match="does not exist"):
        ActivationCache(tmp_path / "nowhere.h5")


def test_links_out_of_the_file_are_not_followed(encoder, tmp_path):
    good = cache_activations(encoder, toy_task(20), out=tmp_path / "c.h5").path
    with h5py.File(good, "r+") as f:
        del f["/pooled/mean/1"]
        f["/pooled/mean/1"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/x")
    with h5py.File(tmp_path / "secret.h5", "w") as f:
        f["x"] = np.ones((20, 32), np.float32)
    with pytest.raises(CacheCorrupt, match="structure or attributes were changed"):
        ActivationCache(good).layer(1)
    assert not verify(good).ok


def test_layers_by_name(encoder, tmp_path):
    cache = cache_activations(encoder, toy_task(20), out=tmp_path / "c.h5")
    np.testing.assert_array_equal(cache.layer(-1), cache.layer("3"))
    for wrong in (4, -5, "norm"):
        with pytest.raises(UsageError, match="it has 0, 1, 2, 3"):
            cache.layer(wrong)
    with pytest.raises(UsageError, match="no pooling 'max'; it has mean"):
        cache.layer(0, "max")
    with pytest.raises(UsageError, match="no token vectors"):
        cache.tokens(0)
    with pytest.raises(UsageError, match="one label per text"):
        _ = cache.word_labels
    assert "layers 0–3" in repr(cache)


def test_random_weights_are_another_model(tiny_bert, tmp_path):
    caches = [
        cache_activations(tiny_bert, toy_task(20), device="cpu", random_weights=seed, out=tmp_path / f"{i}.h5")
        for i, seed in enumerate((None, 0, 0, 1))
    ]
    assert len({c.spec_id for c in caches}) == 3
    np.testing.assert_array_equal(caches[1].layer(2), caches[2].layer(2))
    assert not np.allclose(caches[1].layer(2), caches[3].layer(2), atol=0.1)
    assert not np.allclose(caches[0].layer(2), caches[1].layer(2), atol=0.1)


def test_a_reader_keeps_the_file_it_opened(encoder, tmp_path, monkeypatch):
    out = tmp_path / "c.h5"
    old = cache_activations(encoder, toy_task(), out=out)
    before = {layer: old.layer(layer).copy() for layer in old.layers}
    cache_activations(encoder, toy_task(20), pooling=["first", "mean"], out=out, overwrite=True)
    monkeypatch.chdir("/")
    for layer, want in before.items():
        np.testing.assert_array_equal(old.layer(layer), want)
    old.close()
    with pytest.raises(UsageError, match="is closed"):
        old.layer(1)


MADE_WITH = ["/pieces/token_ids", "/pieces/length", "/pieces/blocks", "/labels", "/ids", "/index/row_to_unique", "spec"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in ("/pieces/token_ids", "/labels", "spec") else pytest.mark.slow)
        for n in MADE_WITH
    ],
)
def test_damage_to_what_an_unfinished_file_was_made_with_is_found(encoder, tmp_path, small_blocks, monkeypatch, name):
    out = tmp_path / "c.h5"
    with monkeypatch.context() as patch:
        fail_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            cache_activations(encoder, toy_task(), out=out)
    partial = partial_module.open_partial(out)
    at = partial.file.read_bytes().index(b"data_digest") if name == "spec" else partial.extents[name].offset
    flip(partial.file, at + 1)
    with pytest.raises(CacheCorrupt, match="start again with --overwrite"):
        cache_activations(encoder, toy_task(), out=out)
    assert verify(cache_activations(encoder, toy_task(), out=out, overwrite=True).path).ok


def test_laxer_terms_are_not_taken_over(tiny_bert, encoder, tmp_path):
    long = Task("long", TaskKind.CLASSIFICATION, {"train": Split("train", (Example("l", "dog " * 99, 1),))}, ("a", "b"))
    cache_activations(encoder, long, out=tmp_path / "c.h5")
    with pytest.raises(TruncationError, match="1 of 1 texts were truncated"):
        cache_activations(encoder, long, out=tmp_path / "c.h5", on_truncate="error")
    cache_activations(encoder, toy_task(), out=tmp_path / "n.h5", allow_nonfinite=True)
    with pytest.raises(NonFiniteError, match="may hold NaN"):
        cache_activations(encoder, toy_task(), out=tmp_path / "n.h5")


def test_a_compressed_file_is_read_by_a_process_that_never_wrote_one(encoder, tmp_path):
    """The zstd filter is registered by whoever reads."""
    path = cache_activations(encoder, toy_pairs(), pairs="separate", compress=True, out=tmp_path / "c.h5").path
    code = (
        "import sys, probekit\n"
        "assert probekit.verify(sys.argv[1]).ok\n"
        "assert probekit.ActivationCache(sys.argv[1]).layer(1).shape == (40, 64)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def test_compressing_needs_room(encoder, tmp_path, monkeypatch):
    inner = partial_module._compressed

    def full(partial):
        monkeypatch.setattr(shutil, "disk_usage", lambda p: shutil._ntuple_diskusage(10**9, 10**9, 1000))
        return inner(partial)

    monkeypatch.setattr(partial_module, "_compressed", full)
    with pytest.raises(CacheError, match="1,000 are free"):
        cache_activations(encoder, toy_task(), compress=True, out=tmp_path / "c.h5")
    monkeypatch.undo()
    assert verify(cache_activations(encoder, toy_task(), compress=True, out=tmp_path / "c.h5").path).ok
    assert os.listdir(tmp_path) == ["c.h5"]


@pytest.mark.parametrize("lanes", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_kill_costs_at_most_one_block_a_lane(encoder, tmp_path, small_blocks, monkeypatch, lanes):
    from probekit.activations.writing import extract

    begun, noted, most = [], [], []
    inner_begin, inner_append = extract._Output.begin, journal_module.Journal.append

    def begin(self, b):
        begun.append(b)
        most.append(len(begun) - len(noted))
        return inner_begin(self, b)

    def append(self, block, digests):
        time.sleep(0.02)  # a slow disk
        inner_append(self, block, digests)
        noted.append(block)

    monkeypatch.setattr(extract._Output, "begin", begin)
    monkeypatch.setattr(journal_module.Journal, "append", append)
    with torch_threads(lanes):
        cache_activations(encoder, toy_task(120), tokens=True, out=tmp_path / "c.h5")
    assert len(noted) > 6
    assert max(most) <= lanes


@pytest.mark.parametrize("level", ["word-first", "word-mean", "word-pieces", "piece"])
def test_labelled_words_without_a_piece_are_counted(encoder, tmp_path, level):
    """BERT's tokenizer drops a zero-width space; here all words of the class Z are such."""
    words, labels = ("the", "\u200b", "cat", "\u200b", "sleeps"), (0, 2, 1, -1, 1)
    long = ("dog",) * 60  # more than the model reads
    examples = tuple(Example(str(i), " ".join(words), labels, words=words) for i in range(4))
    names, splits = ("A", "B", "Z"), {"train": Split("train", (*examples, Example("long", "", (0,) * 60, words=long)))}
    task = Task("zero-width", TaskKind.SEQUENCE_LABELLING, splits, names, ("token-accuracy",))
    path = tmp_path / "c.h5"
    cache_activations(encoder, task, "train", out=path, token_level=level, layers=("1",))
    with ActivationCache(path) as cache:
        lost, read = np.bincount(cache.unread_words).tolist(), int(cache.truncated.sum())
        assert read == 1
        assert lost == [60 - encoder.max_length + 2, 0, 4]
        told = inspect(path)["not read"]
        every = 4 * 4 + 60
        assert told == (
            f"{sum(lost):,} of {every} labelled words have no vector, since the tokenizer leaves nothing of them, or "
            f"the text was truncated (A: {lost[0]}; Z: 4, which are all)"
        )
        vectors = layer_vectors(cache)
        assert len(vectors.labels.y) == len(cache.layer_words("1"))
        assert vectors.group_columns["unread_words"] == sum(lost)


def test_words_of_plain_texts_are_those_between_blanks_where_the_tokenizer_finds_none(tmp_path):
    folder = tiny.tiny_model("llama", tmp_path / "m")
    tokenizer = tiny.tiny_tokenizer("llama").backend_tokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)  # a text is one word
    saved = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    assert saved["pre_tokenizer"] != json.loads(tokenizer.to_str())["pre_tokenizer"]
    texts = ["the cat sees the dog", " the  dog", "sees"]
    (tmp_path / "t.txt").write_text("\n".join(texts) + "\n")
    want = {"tokens": True, "layers": ("1",), "device": "cpu"}
    by_level = {
        level: cache_activations(folder, tmp_path / "t.txt", out=tmp_path / f"{level}.h5", token_level=level, **want)
        for level in ("word-mean", "word-first", "piece")
    }
    pieces, mean, first = (by_level[level].tokens("1") for level in ("piece", "word-mean", "word-first"))
    assert by_level["word-mean"].spec["words"] == "white space"
    assert "words" not in by_level["piece"].spec
    for i, text in enumerate(texts):
        assert len(mean[i]) == len(first[i]) == len(text.split())
    at = by_level["piece"].index("word_index")
    start, length = (by_level["piece"].index(name)[0] for name in ("start", "length"))
    rows = start + np.arange(length)
    for word in range(5):
        of_word = pieces.values[rows[at[rows] == word]]
        np.testing.assert_array_equal(first[0][word], of_word[0])
        np.testing.assert_allclose(mean[0][word], of_word.mean(0), atol=1e-6)
