"""What analyses read is what was written, or an error that names the file and the place."""

from __future__ import annotations

import json
import os
import shutil
import signal
from functools import partial

import h5py
import numpy as np
import pytest
from toys import toy_pairs, toy_tags, toy_task

from probekit import mdl, mi
from probekit.activations import ActivationCache, cache_activations, verify
from probekit.activations import checked as module
from probekit.activations.checked import CheckedFile
from probekit.activations.hdf5 import extents, open_cache_file, xxh3
from probekit.activations.tokens import TokenReader
from probekit.activations.writing.partial import seal
from probekit.errors import CacheCorrupt, CacheError

TASKS = {"texts": (toy_task, {"tokens": True}), "pairs": (toy_pairs, {"pairs": "separate"}), "tags": (toy_tags, {})}
TASKS["tags"][1].update(pooling="none", tokens=True, token_level="word-first")
TASKS["compressed"] = (toy_task, {"compress": True, "tokens": True})


@pytest.fixture(scope="module")
def caches(tiny_bert, tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("checked"), {}

    def make(kind):
        if kind not in made:
            task, how = TASKS[kind]
            made[kind] = folder / f"{kind}.h5"
            cache_activations(tiny_bert, task(), out=made[kind], device="cpu", **how).close()
        return made[kind]

    return make


@pytest.fixture
def copy(caches, tmp_path):
    return lambda kind="texts": shutil.copy(caches(kind), tmp_path / "c.h5")


@pytest.fixture(autouse=True)
def no_hang():
    """A damaged heap was followed for ever."""
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(60)
    yield
    signal.alarm(0)


def everything(path) -> list[np.ndarray]:
    """All that a reader can ask for."""
    with ActivationCache(path) as cache:
        assert isinstance(cache.origin, dict)
        found = [cache.labels, cache.ids, cache.truncated, cache.index("row_to_unique")]
        found += [cache.layer(layer, pooling) for layer in cache.layers for pooling in cache.poolings]
        found += [np.array([json.dumps(cache.spec, sort_keys=True), str(cache.recipe)])]
        if cache.spec["tokens"]:
            reader = TokenReader(cache)
            found += [reader.gather(reader.start.reshape(-1), reader.length.reshape(-1)), reader.special]
            found += [cache.tokens(layer).values for layer in cache.layers]
        if cache.spec["kind"] == "sequence-labelling":
            found += [cache.word_labels, cache.layer_words(1)]
        return found


@pytest.mark.parametrize(
    "kind", ["texts", *(pytest.param(k, marks=pytest.mark.slow) for k in ("compressed", "pairs", "tags"))]
)
def test_flips_are_errors_or_change_nothing(kind, caches, copy):
    want, size, rng = everything(caches(kind)), caches(kind).stat().st_size, np.random.default_rng(0)
    for at in [*rng.integers(0, 4096, 10), *rng.integers(0, size, 10)]:
        bad = copy(kind)
        with bad.open("rb+") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << int(rng.integers(8))]))
        told = ""
        try:
            found = everything(bad)
        except CacheError as error:
            told = str(error)
        assert str(bad) in told if told else all(map(np.array_equal, found, want))


def test_an_analysis_refuses_a_layer_with_a_flipped_byte(copy):
    bad = copy()
    with open_cache_file(bad) as f:
        at = extents(f)["/pooled/mean/2"].offset + 100
    with bad.open("rb+") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    mi(bad, layers=(1,), draws=1)
    with pytest.raises(CacheCorrupt, match=r"c\.h5: /pooled/mean/2, rows 0 to \d+: the bytes were changed"):
        mi(bad, draws=1)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("kind", ["texts", "pairs", "compressed"])
def test_in_memory_and_mapped_arrays_are_the_same(kind, mapped, caches, monkeypatch):
    want = everything(caches(kind))
    if mapped:
        monkeypatch.setattr(module, "IN_MEMORY", 0)
    with ActivationCache(caches(kind)) as cache:
        for layer in cache.layers:
            assert np.array_equal(cache.mapped_layer(layer, "mean"), cache.layer(layer))
            assert not cache.layer(layer).flags.writeable
    assert all(map(np.array_equal, everything(caches(kind)), want))


@pytest.mark.parametrize("mapped", [False, True])
def test_a_row_of_a_repeated_text_is_compared_with_the_first(mapped, copy, monkeypatch):
    if mapped:
        monkeypatch.setattr(module, "IN_MEMORY", 0)
    bad = copy()
    with open_cache_file(bad) as f:
        slots, extent = f["/index/row_to_unique"][...], extents(f)["/pooled/mean/1"]
    again = int(np.flatnonzero(~module.first_occurrence(slots))[0])
    rows = extent.map(bad, mode="r+")
    rows[again, 3] += 1
    rows.flush()
    with ActivationCache(bad) as cache, pytest.raises(CacheCorrupt, match=f"/pooled/mean/1, row {again} differs"):
        cache.layer(1)


def test_a_cache_that_is_cut_short_under_a_reader(copy):
    path = copy()
    with ActivationCache(path) as cache:
        reader, mapped = TokenReader(cache), cache.mapped_layer(1, "mean")
        os.truncate(path, 4096)
        for read in (lambda: cache.layer(1), lambda: reader.gather(reader.start[:2], reader.length[:2])):
            with pytest.raises(CacheCorrupt, match=r"c\.h5 was truncated while .* was read"):
                read()
        with pytest.raises(CacheCorrupt, match="was truncated"):
            cache.check_size()
        with pytest.raises(CacheError):
            _ = cache.labels
        assert mapped.shape == (60, 32)
    with pytest.raises(CacheError, match=r"c\.h5"):
        ActivationCache(path)


@pytest.mark.parametrize(
    "analyse", [partial(mi, draws=1), pytest.param(mdl, marks=pytest.mark.slow)], ids=["mi", "mdl"]
)
def test_a_mapped_cache_that_is_cut_short_amid_an_analysis(analyse, copy, monkeypatch):
    """As layers of more than a gigabyte are read; where they are not looked at first, the process is killed here."""
    path = copy()
    want = analyse(path).rows["value"]
    monkeypatch.setattr(module, "IN_MEMORY", 0)
    assert analyse(path).rows["value"].equals(want)
    values = CheckedFile.values

    def cut(self, name, **how):
        array = values(self, name, **how)
        if name.startswith("/pooled/mean/2"):
            os.truncate(path, 4096)
        return array

    monkeypatch.setattr(CheckedFile, "values", cut)
    with pytest.raises(CacheCorrupt, match="was truncated"):
        analyse(path)


def forge(path, change) -> None:
    """Change a cache and make its digests anew, as who wants to deceive would."""
    with h5py.File(path, "r+") as f:
        change(f)
        table = f["/blocks"][...]
        for row in table:
            name = row["dataset"].decode()
            if name.startswith(("/labels", "/index", "/ids")) and name in f:
                row["xxh3"] = xxh3(f[name][...])
        f["/blocks"][...] = table
    seal(path)


def spec(key, value):
    def change(f):
        f.attrs["spec"] = json.dumps(json.loads(f.attrs["spec"]) | {key: value})

    return change


def attribute(name, value):
    def change(f):
        f.attrs[name] = value

    return change


def replaced(name, values):
    def change(f):
        del f[name]
        f[name] = values

    return change


def label(f):
    f["/labels"][3] = 77


def index(f):
    f["/index/start"][3] = 10**6


def swapped(f):
    f.move("/pooled/mean/1", "/pooled/mean/x")
    f.move("/pooled/mean/2", "/pooled/mean/1")
    f.move("/pooled/mean/x", "/pooled/mean/2")


def linked(link):
    def change(f):
        f.move("/pooled/mean", "/elsewhere")
        f["/pooled/mean"] = link

    return change


def cycle(f):
    f["/pooled/mean/again"] = f["/pooled"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (label, r"/labels holds 77, but there are 3 classes"),
        (index, r"/index points beyond the \d+ rows of /tokens"),
        (spec("n", 10**9), r"/labels has the shape \(60,\), but the description says \(1000000000,\)"),
        (spec("width", 31), r"/pooled/mean/0 has the shape"),
        (spec("n", 1e308), r"n is 1e\+308; expected a whole number"),
        (spec("n", 10**30), r"n is 10+; expected a whole number"),
        (spec("store", "evil"), "store is 'evil'; expected one of float32, float16, bfloat16"),
        (spec("metrics", None), "metrics is None; expected a list of texts"),
        (spec("certificate", "x"), "certificate is 'x'; expected a verdict"),
        (spec("layers", "1"), "layers is '1'; expected a list of texts"),
        (attribute("origin", "[" * 10**4), "its origin cannot be read .it is nested too deeply"),
        (replaced("/labels", np.array([b"x"] * 60)), "/labels holds no numbers"),
        (replaced("/ids", np.array([b"\xff"] * 60)), "/ids is not UTF-8"),
        (swapped, r"/pooled/mean/1, rows .*: the bytes were changed after they were written"),
        (linked(h5py.SoftLink("/elsewhere")), "is a link, which probekit does not follow"),
        (linked(h5py.ExternalLink("other.h5", "/x")), "is a link, which probekit does not follow"),
    ],
    ids=[
        *("label", "index", "n", "width", "float n", "huge n", "store", "metrics", "certificate", "layers", "origin"),
        *("labels of text", "ids", "swapped"),
        "soft link",
        "external link",
    ],
)
def test_what_has_digests_and_cannot_be(change, told, copy):
    bad = copy()
    forge(bad, change)
    with pytest.raises(CacheCorrupt, match=told):
        everything(bad)


def test_a_group_that_holds_itself_is_no_hang(copy):
    bad = copy()
    forge(bad, cycle)
    everything(bad)


def test_a_damaged_heap_is_told_before_it_is_read(caches, copy):
    data = caches("texts").read_bytes()
    heap = data.index(b"GCOL")
    for at in range(heap, heap + 64, 3):
        bad = copy()
        bad.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        with pytest.raises(CacheError, match=r"c\.h5"):
            ActivationCache(bad)
        try:
            assert not verify(bad).ok
        except CacheError:  # the name of the format is in the heap, too
            assert at >= heap + 16
