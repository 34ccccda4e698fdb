"""A folder of shards is read like one file, and every change of its bytes has a name."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from toys import sentences, toy_pairs, toy_tags, toy_task

import probekit
from probekit.activations import ActivationCache, cache_activations, verify
from probekit.activations import folder as folder_module
from probekit.activations.certify import quick_certificate
from probekit.activations.grouping import groups_of
from probekit.activations.manifest import MANIFEST, Manifest
from probekit.activations.tokens import TokenReader
from probekit.activations.writing import shards as shards_module
from probekit.errors import CacheCorrupt, CacheIncomplete, CacheMismatch, DataError, ModelError, UsageError
from probekit.files import lock
from probekit.models import load_encoder
from probekit.tasks.files import stream as stream_module
from probekit.tasks.files.stream import stream_task
from probekit.tasks.task import Example, Span, Split, Target, Task, TaskKind
from probekit.tasks.union import union

pytestmark = pytest.mark.usefixtures("no_certificates")
KINDS = {
    "texts": (toy_task, {"pooling": ["mean", "max"], "tokens": True}),
    "pairs": (toy_pairs, {"pairs": "separate", "tokens": True, "store": "bfloat16"}),
    "words": (toy_tags, {}),
}


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return load_encoder(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def both(encoder, tmp_path_factory):
    """``both("texts")``: the same activations as one file, and as a folder of shards of 17 examples."""
    base, made = tmp_path_factory.mktemp("shards"), {}

    def make(kind: str) -> tuple[ActivationCache, ActivationCache]:
        if kind not in made:
            build, options = KINDS[kind]
            made[kind] = (
                cache_activations(encoder, build(), out=base / f"{kind}.h5", **options),
                cache_activations(encoder, build(), out=base / kind, shard_size=17, **options),
            )
        return made[kind]

    return make


@pytest.fixture
def copy(both, tmp_path) -> Path:
    """A copy of the shards of texts, to spoil."""
    return Path(shutil.copytree(both("texts")[1].path, tmp_path / "copy"))


def equal(a, b) -> bool:
    return (a is None and b is None) or np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] if k == "pairs" else []) for k in KINDS])
def test_a_folder_reads_like_a_file(both, kind):
    one, many = both(kind)
    assert sorted(p.name for p in many.path.iterdir())[:2] == [MANIFEST, "shard-00000.h5"]
    assert len(many) == len(one)
    for layer in one.layers:
        assert all(equal(one.layer(layer, p), many.layer(layer, p)) for p in one.poolings)
        left, right = one.tokens(layer), many.tokens(layer)
        assert len(left) == len(right)
        assert all(equal(a, b) for a, b in zip(left, right, strict=True))
    assert all(equal(getattr(one, x), getattr(many, x)) for x in ("labels", "ids", "domains", "truncated"))
    assert all(equal(a, b) for x, y in zip(one.pieces, many.pieces, strict=True) for a, b in zip(x, y, strict=True))
    chosen = np.array([20, 3, 29, 3])
    a, b = (TokenReader(c) for c in (one, many))
    if kind != "pairs":
        assert equal(a.gather(a.start[chosen], a.length[chosen]), b.gather(b.start[chosen], b.length[chosen]))
    if kind == "words":
        assert equal(one.words(2).vectors, many.words(2).vectors)
        assert equal(one.targets.labels, many.targets.labels)
    assert groups_of(many).columns == groups_of(one).columns  # groups reach across shards
    assert verify(many.path).ok


def test_targets_and_declared_groups_reach_across_shards(encoder, tmp_path):
    """Also where a shard has no target, no label of several, or no domain."""
    texts = sentences(30, 5, longest=9)
    examples = [
        Example(
            str(i), text, domain="x" if i > 20 else None, group=f"g{i % 7}" if i % 3 else None,
            targets=() if i < 8 else (Target((Span(0, 1),), ((i % 2,) if i % 5 else ()) if i > 16 else None),),
            words=tuple(text.split()),
        )
        for i, text in enumerate(texts)
    ]  # fmt: skip
    task = Task("spans", TaskKind.SPAN_LABELLING, {"dev": Split("dev", tuple(examples))}, ("a", "b"), ("micro-f1",))
    one = cache_activations(encoder, task, "dev", out=tmp_path / "one.h5")
    many = cache_activations(encoder, task, "dev", out=tmp_path / "many", shard_size=8)
    assert equal(one.targets.labels, many.targets.labels)
    assert equal(one.targets.example, many.targets.example)
    x, y = (c.tokens(1).values[c.targets.first[:, 0]] for c in (one, many))
    assert equal(x, y)
    assert equal(one.domains, many.domains)
    same = one.groups[:, None] == one.groups
    assert equal(same, many.groups[:, None] == many.groups)
    assert many.grouping["made"] == "declared"
    assert one.group_names[one.groups].tolist() == many.group_names[many.groups].tolist()


@pytest.mark.parametrize("named", [range(8), range(8, 16)])
def test_groups_of_which_a_shard_has_none(encoder, tmp_path, named):
    examples = [Example(str(i), "a cat", i % 2, group=f"g{i % 3}" if i in named else None) for i in range(16)]
    task = Task("some", TaskKind.CLASSIFICATION, {"train": Split("train", tuple(examples))}, ("a", "b"), ("accuracy",))
    groups = cache_activations(encoder, task, out=tmp_path / "many", shard_size=8).groups
    names = [e.group or e.id for e in examples]
    assert equal(groups[:, None] == groups, np.array([[a == b for a in names] for b in names]))


def test_one_cache_for_several_tasks(encoder, tmp_path):
    parts = [toy_task(), toy_task(40, empty=False)]
    parts[1] = Task("other", parts[1].kind, parts[1].splits, parts[1].label_names)
    many = cache_activations(encoder, union("toy+other", parts), out=tmp_path / "many", shard_size=25)
    seen = many.for_task(parts[1], "train")
    alone = cache_activations(encoder, parts[1], out=tmp_path / "alone.h5")
    assert equal(seen.layer(2), alone.layer(2))
    assert equal(seen.labels, alone.labels)


@pytest.mark.slow  # it imports all that the analyses need
def test_analyses_take_folders(both, tmp_path, encoder, monkeypatch):
    one, many = both("texts")
    dev = cache_activations(encoder, toy_task(30), out=tmp_path / "dev.h5")
    for analysis in (probekit.mi, probekit.mdl, probekit.similarity):
        values = [analysis(c, layers=[0, 2], groups="none").rows["value"].to_numpy() for c in (one, many)]
        with monkeypatch.context() as patch:
            patch.setattr(folder_module, "IN_MEMORY", 0)  # as for layers larger than memory
            values.append(analysis(many, layers=[0, 2], groups="none").rows["value"].to_numpy())
        assert all(equal(values[0], other) for other in values[1:])
    rows = [probekit.probe(c, dev, layers=[0, 2], resamples=0).rows for c in (one, many.path)]
    assert equal(rows[0]["value"].to_numpy(), rows[1]["value"].to_numpy())
    monkeypatch.setattr(folder_module, "IN_MEMORY", 0)  # as for layers larger than memory
    large = probekit.probe(many, dev, layers=[0, 2], resamples=0).rows
    assert equal(rows[0]["value"].to_numpy(), large["value"].to_numpy())


def test_batches(both):
    one, many = both("texts")
    for seed in (None, 0):
        a, b = (list(c.batches([0, 2], size=7, seed=seed)) for c in (one, many))
        rows = np.concatenate([batch.rows for batch in b])
        assert [len(batch) for batch in b] == [7] * 8 + [4]
        assert sorted(rows.tolist()) == list(range(60))
        assert (rows.tolist() == list(range(60))) == (seed is None)
        for x, y in zip(a, b, strict=True):
            assert equal(x.rows, y.rows)
            assert all(equal(many.layer(k)[y.rows], v) for k, v in zip((0, 2), y.vectors, strict=True))
    assert any(not equal(x.rows, y.rows) for x, y in zip(many.batches(seed=0), many.batches(seed=1), strict=True))
    tokens = np.concatenate([batch.vectors[0] for batch in many.batches([1], tokens=True)])
    assert equal(tokens, many.tokens(1).values)
    with pytest.raises(UsageError, match="size is 0"):
        next(many.batches(size=0))


def test_shuffled_rows_come_from_all_over(both, monkeypatch):
    from probekit.activations import batches

    monkeypatch.setattr(batches, "RUN", 2)
    monkeypatch.setattr(batches, "MIXED", 4)
    order = np.concatenate([batch.rows for batch in both("texts")[1].batches([0], size=8, seed=3)])
    assert sorted(order.tolist()) == list(range(60))
    assert max(np.ptp(order[k : k + 8]) for k in range(0, 56, 8)) > 30


def test_rows_at_random(both):
    many = both("texts")[1]
    rows, all_of_it = many.rows("/pooled/mean/1"), many.layer(1)
    at = np.array([59, 0, -1, 16, 17, 17])
    assert equal(rows[at], all_of_it[at])
    assert equal(rows[all_of_it[:, 0] > 0], all_of_it[all_of_it[:, 0] > 0])
    assert equal(rows[10:40:3], all_of_it[10:40:3])
    assert equal(rows[5], all_of_it[5])
    assert equal(rows[[]], all_of_it[:0])
    for wrong, message in (
        ([60], "row 60"),
        ([3, -61], "row -61"),
        ("ab", "'ab' where rows"),
        ([0.5], "whole numbers"),
    ):
        with pytest.raises(IndexError, match=message):
            rows[wrong]
    with pytest.raises(IndexError, match="a mask of 60"):
        rows[np.ones(59, dtype=bool)]


def spoil(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def test_verify_names_the_shard_and_the_dataset_of_any_flipped_bit(copy):
    path = copy / "shard-00002.h5"
    offset = ActivationCache(path)._checked.dataset("/pooled/max/1").id.get_offset()
    spoil(path, offset + 77)
    verdict = verify(copy)
    assert len(verdict.problems) == 1
    assert verdict.problems[0].startswith("shard-00002.h5: /pooled/max/1, rows ")
    with ActivationCache(copy) as cache:
        assert len(cache.layer(0, "max")) == 60
        with pytest.raises(CacheCorrupt, match=r"shard-00002.h5: /pooled/max/1, rows"):
            cache.layer(1, "max")
    for at in np.random.default_rng(0).integers(0, path.stat().st_size, 5).tolist():
        spoil(path, at)
        assert any(p.startswith("shard-00002.h5") for p in verify(copy).problems)
        spoil(path, at)


def test_what_else_may_be_wrong_with_a_folder(copy, both, encoder, tmp_path, call):
    second = copy / "shard-00001.h5"
    whole = second.read_bytes()
    second.write_bytes(whole[:-100])
    assert verify(copy).problems == (f"shard-00001.h5: it is truncated: {len(whole) - 100:,} of {len(whole):,} bytes",)
    with pytest.raises(CacheCorrupt, match=r"shard-00001.h5 has .* bytes, but the manifest says"):
        ActivationCache(copy)
    second.unlink()
    assert verify(copy).problems == ("shard-00001.h5 (rows 17 to 33) is missing",)
    with pytest.raises(CacheCorrupt, match="1 of 4 shards are missing"):
        ActivationCache(copy)
    said = call("verify", copy)
    assert said.status == 1
    assert "shard-00001.h5 (rows 17 to 33) is missing" in said.err
    other = cache_activations(encoder, toy_task(20), out=tmp_path / "other", shard_size=10)
    shutil.copy(other.path / "shard-00001.h5", second)
    assert any("shard of another job" in p or "truncated" in p for p in verify(copy).problems)
    second.write_bytes(whole)
    shutil.copy(second, copy / "shard-00009.h5")
    assert verify(copy).problems == ("shard-00009.h5 is not in the manifest",)
    (copy / "shard-00009.h5").unlink()
    shutil.copy(copy / MANIFEST, copy / "manifest-2.json")
    with pytest.raises(CacheMismatch, match=r"has 2 manifests \(manifest-2.json, manifest.json\)"):
        verify(copy)
    (copy / "manifest-2.json").unlink()
    assert verify(copy).ok
    text = (copy / MANIFEST).read_text()
    for wrong in (text.replace('"n": 60', '"n": 61'), "{}", text[:-9]):
        (copy / MANIFEST).write_text(wrong)
        with pytest.raises(CacheCorrupt, match="it is made from the shards, which are kept"):
            ActivationCache(copy)
    (copy / MANIFEST).unlink()
    with pytest.raises(CacheIncomplete, match=r"has 4 shards and no manifest.json"):
        ActivationCache(copy)


def test_the_manifest_is_made_from_the_shards(copy, encoder):
    """Removed, or with a shard removed, the folder is made again: only what is missing."""
    _, options = KINDS["texts"]
    text, times = (copy / MANIFEST).read_text(), {p.name: p.stat().st_mtime_ns for p in copy.glob("shard-*")}
    (copy / MANIFEST).unlink()
    cache_activations(encoder, toy_task(), out=copy, shard_size=17, **options).close()
    assert (copy / MANIFEST).read_text() == text
    (copy / "shard-00003.h5").unlink()
    cache_activations(encoder, toy_task(), out=copy, shard_size=17, **options).close()
    assert verify(copy).ok
    assert {p.name for p in copy.glob("shard-*") if p.stat().st_mtime_ns != times[p.name]} == {"shard-00003.h5"}
    assert [s.last for s in Manifest.read(copy).shards] == [17, 34, 51, 60]
    with (copy / "shard-00001.h5").open("r+b") as file:
        file.truncate(9000)
    with pytest.raises(CacheCorrupt, match=r"shard-00001.h5.*truncated.*remove the shard"):
        cache_activations(encoder, toy_task(), out=copy, shard_size=17, **options)
    cache_activations(encoder, toy_task(), out=copy, shard_size=17, overwrite=True, **options).close()
    assert verify(copy).ok
    (copy / MANIFEST).write_text("mine")
    with pytest.raises(UsageError, match=r"remove it: the manifest is made from the shards"):
        cache_activations(encoder, toy_task(), out=copy, shard_size=17, **options)


def test_a_shard_under_another_name_is_refused(copy, encoder):
    """Its rows would be there twice, and others be missing."""
    (copy / MANIFEST).unlink()
    shutil.copy(copy / "shard-00001.h5", copy / "shard-00002.h5")
    with pytest.raises(CacheMismatch, match=r"shard-00002.h5 .*: it holds the rows of shard-00001.h5"):
        cache_activations(encoder, toy_task(), out=copy, shard_size=17, **KINDS["texts"][1])


def test_a_manifest_names_no_other_folder(copy):
    """A manifest comes from a store, too, and shards are written where it says."""
    manifest = Manifest.read(copy)
    a, b, *others = manifest.shards
    for shards in ((dataclasses.replace(a, file="../a.h5"), b, *others), (b, a, *others), (a, *others), ()):
        (copy / MANIFEST).write_text(dataclasses.replace(manifest, shards=shards).to_json())
        with pytest.raises(CacheCorrupt, match="is not the next shard|names no shards"):
            ActivationCache(copy)


def test_the_commands(both, call, tmp_path, tiny_bert):
    said = call("inspect", both("texts")[1].path)
    assert "4, of up to 17 examples" in said.out
    words = ("cache-activations", "--model", tiny_bert, "--task", "grammar:sentiment", "--split", "dev", "--limit", 40)
    said = call(*words, "--shard-size", 20, "--out", tmp_path / "new")
    assert said.status == 0, said.err
    assert "40 examples" in said.out
    assert call("verify", tmp_path / "new").status == 0
    said = call(*words, "--shard-size", 20, "--out", tmp_path / "new")
    assert "already cached" in said.out
    said = call(*words, "--shard-size", 0)
    assert said.status == 2
    assert "shard_size is 0" in said.err or "shard-size" in said.err


def test_streams(encoder, tmp_path, call):
    """What is read a shard at a time has the vectors, labels and ids of what is read whole."""
    rows = [{"text": text, "label": "abc"[i % 3]} for i, text in enumerate(sentences(24, 2))]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.toml").write_text('labels = ["a", "b", "c"]\n[splits]\ntrain = "a.jsonl"\n')
    one = cache_activations(encoder, tmp_path / "a.toml", out=tmp_path / "one.h5")
    many = cache_activations(encoder, tmp_path / "a.toml", out=tmp_path / "many", shard_size=13, stream=True)
    for cache in (many, cache_activations(encoder, tmp_path / "a.jsonl", out=tmp_path / "texts.h5")):
        assert equal(one.ids, cache.ids)
        assert equal(one.layer(2), cache.layer(2))
    assert equal(one.labels, many.labels)
    assert many.spec["n"] == 24

    unknown = stream_task(tmp_path / "a.toml")
    for size in (8, 9, 25):  # the last shard is whole, or not
        part = dataclasses.replace(unknown.split("train"), records=_Endless(rows))
        task = dataclasses.replace(unknown, splits={"train": part})
        cache = cache_activations(encoder, task, out=tmp_path / f"unknown-{size}", shard_size=size)
        assert len(cache) == 24
        assert equal(one.labels, cache.labels)
        assert equal(one.layer(2), cache.layer(2))
        assert verify(cache.path).ok
    empty = dataclasses.replace(unknown, splits={"train": dataclasses.replace(part, records=_Endless([]))})
    with pytest.raises(UsageError, match="has no examples"):
        cache_activations(encoder, empty, out=tmp_path / "empty", shard_size=9)
    said = call("cache-activations", "--model", "x", "--task", tmp_path / "no.jsonl")
    assert said.status == 2
    assert "no.jsonl: cannot be read: No such file" in said.err


def test_ids_that_occur_in_two_shards(encoder, tmp_path, caplog):
    rows = [{"text": f"the cat {i}", "id": f"e{i % 4}"} for i in range(8)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.toml").write_text('id = "id"\nlabel = false\n[splits]\ntrain = "a.jsonl"\n')
    cache_activations(encoder, tmp_path / "a.toml", out=tmp_path / "many", shard_size=4, stream=True).close()
    assert "4 rows have the id of a row in another shard" in caplog.text


class _Endless:
    """Records whose number is known only at the end."""

    file, count, identity = "rows", None, "rows"

    def __init__(self, rows: list[dict[str, str]]) -> None:
        self.rows = rows

    def read(self, first: int, last: int) -> list[tuple[int, dict[str, str]]]:
        return list(enumerate(self.rows, start=1))[first:last]


def test_one_certificate_for_all_shards(encoder, tmp_path, monkeypatch):
    """It is that of texts which each worker has, and is made once; the shards of all workers have the same bytes."""
    made = []

    def certificate(*given):
        made.append(quick_certificate(*given))
        return made[-1]

    monkeypatch.setattr(shards_module, "quick_certificate", certificate)
    cache = cache_activations(encoder, toy_task(30), out=tmp_path / "many", shard_size=10)
    assert len(made) == 1
    assert made[0]["passed"]
    for k in range(3):
        assert ActivationCache(tmp_path / "many" / f"shard-{k:05d}.h5").spec["certificate"] == made[0]
    assert cache.spec["certificate"] == made[0]


@pytest.mark.parametrize("lines", ['{"text": "the cat"}\n{"text": "a dog sleeps"}\n', "the cat\n\na dog sleeps\n"])
def test_texts_from_standard_input(encoder, tmp_path, monkeypatch, lines):
    """One file of few texts, and shards of many; nothing else is left beside it."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    cache = cache_activations(encoder, "-", out=tmp_path / "new" / "c")
    assert [p.name for p in cache.path.parent.iterdir()] == ["c"]
    assert cache.spec["task"] == "stdin"
    assert cache.recipe.arguments["task"] == "-"
    given = Split("train", (Example("train-0", "the cat"), Example("train-1", "a dog sleeps")))
    told = cache_activations(encoder, Task("told", TaskKind.CLASSIFICATION, {"train": given}), out=tmp_path / "t.h5")
    assert (cache.layer(3) == told.layer(3)).all()
    monkeypatch.setattr("probekit.activations.writing.request.SHARD", 1)
    for out, name in (("many", MANIFEST), ("one.h5", "")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        again = cache_activations(encoder, "-", out=tmp_path / out)
        assert (again.path / name).is_file()
        assert (again.layer(3) == told.layer(3)).all()


def test_the_command_reads_standard_input(tiny_bert, tmp_path, monkeypatch, call):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\na dog sleeps\n")))
    said = call("cache-activations", "--model", tiny_bert, "--task", "-", "--out", tmp_path / "c.h5")
    assert said.status == 0
    assert len(ActivationCache(tmp_path / "c.h5")) == 2


def test_a_terminal_gives_no_texts(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(UsageError, match="pipe them into the command"):
        cache_activations(encoder, "-", out=tmp_path / "c.h5")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("\n", "standard input, which holds none"),
        ("{braces} are text\n", "^standard input, line 1.*save plain texts"),
        ('{"text": "a"}\n{"text": 3}\n', "^standard input, line 2"),
    ],
)
def test_what_is_no_text_on_standard_input(encoder, tmp_path, monkeypatch, lines, message):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    with pytest.raises((UsageError, DataError), match=message):
        cache_activations(encoder, "-", out=tmp_path / "new" / "c.h5")
    assert not list(tmp_path.rglob(".stdin-*"))


def test_a_wrong_option_is_found_before_standard_input_is_read(tiny_bert, tmp_path, monkeypatch):
    for wrong, message in (
        ({"model": tmp_path / "brt"}, "brt"),
        ({"pooling": "middle"}, "middle"),
        ({"layers": "99"}, "99"),
    ):
        source = io.BytesIO(b"the cat\n" * 100_000)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(source))
        with pytest.raises((UsageError, DataError, ModelError), match=message):
            cache_activations(**{"model": tiny_bert, "task": "-", "out": tmp_path / "c.h5"} | wrong)
        assert source.tell() < 1 << 17


def test_what_killed_processes_left_of_standard_input_is_removed(encoder, tmp_path, monkeypatch, caplog):
    own, other = stream_module._kept_here(), ".stdin-0123456789abcdef-"
    names = [f"{prefix}{k:016x}.txt" for prefix in (own, other) for k in range(2)] + [".stdin-notes.txt"]
    for name in names:
        (tmp_path / name).write_text("the cat")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a dog sleeps\n")))
    with lock(tmp_path / names[1], UsageError("no"), ours=lambda start: True):  # its process lives
        cache_activations(encoder, "-", out=tmp_path / "c.h5").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[1:], "c.h5"])
    assert [name for name in names if name in caplog.text] == names[2:4]


def test_standard_input_is_not_shared(encoder, tmp_path, monkeypatch, call):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n")))
    several = call("cache-activations", "minilm", "--model", "bert", "--task", "-", "--out", f"{tmp_path}/")
    assert "standard input can be read once, but there are 2 models" in several.err
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="the processes of torchrun would share out"):
        cache_activations(encoder, "-", out=tmp_path / "c.h5")
