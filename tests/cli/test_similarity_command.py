"""``probekit similarity``, ``movement``, ``geometry``: tables, sentences, figures, a report and a reproduction."""

import re

import pytest
from builders import word_caches

from probekit.rows import read_rows


@pytest.fixture(scope="module")
def caches(tiny_model, tmp_path_factory):
    folder, bert = tmp_path_factory.mktemp("caches"), tiny_model("bert")
    seeds = {"plain": None, "one": 1, "two": 2, "three": 3, "four": 4}
    return [
        word_caches(folder, bert, name=name, sizes={"dev": 50}, random_weights=seed)[0] for name, seed in seeds.items()
    ]


@pytest.mark.slow
def test_from_two_caches_to_tables_figures_and_a_report(call, caches, tmp_path):
    names = {name: tmp_path / f"{name}.parquet" for name in ("similarity", "movement", "geometry")}
    done = call(
        *("similarity", *caches[:2], "--measures", "cka,mutual-knn", "--draws", "99", "--level", "0.9"),
        *("--out", names["similarity"]),
    )
    assert done.status == 0, done.err
    words = " ".join(done.out.split())
    assert "most similar" in words
    assert "90 % interval" in words
    assert "95 % interval" not in words
    assert "classification dev, CKA: " in words
    assert "classification dev, Shared nearest neighbours: " in words
    assert "p adjusted: corrected over the 16 pairs of layers" in words
    assert "by chance calibrated p adjusted" in words
    one = call("similarity", *caches[:2], "--layers", "1", "--draws", "99", "--resamples", "0")
    assert "p adjusted: corrected over the one pair of layers; " in " ".join(one.out.split())
    assert re.search(r"CKA: layers of (\w+), mean with those of \1, random weights 1, mean, n = 50", words)
    assert len(read_rows(names["similarity"])) == 32
    moved = call(
        "movement", *caches[:2], "--top", "2", "--out", names["movement"], "--examples", tmp_path / "d.parquet"
    )
    assert moved.status == 0, moved.err
    assert "distance, other examples" in " ".join(moved.out.split())
    assert "moved most in layer 3" in moved.out
    assert str(tmp_path / "d.parquet") in moved.out
    shape = call("geometry", caches[0], "--out", names["geometry"], "--format", "csv")
    assert shape.status == 0, shape.err
    assert shape.out.splitlines()[1].startswith("layer,rank,participation ratio,95 % interval,TwoNN dimension")
    for kind, name in (("similarity", "similarity"), ("layers", "similarity"), ("movement",) * 2, ("geometry",) * 2):
        drawn = call("plot", kind, names[name], "--out", tmp_path / f"{kind}.png")
        assert drawn.status == 0, drawn.err
        assert (tmp_path / f"{kind}.png").stat().st_size > 5000
    report = call("report", *names.values(), "-o", tmp_path / "report.html")
    assert report.status == 0, report.err
    page = (tmp_path / "report.html").read_text()
    assert "Not drawn" not in page
    for title in ("Similarity of layers", "Movement from a reference", "Geometry of layers", "The examples that moved"):
        assert title in page
    for name in ("similarity", "movement"):
        again = call("reproduce", f"{names[name]}.json")
        assert again.status == 0, again.err
        assert "reproduced to the bit" in again.out


def test_many_models_in_one_table_and_a_tree(call, caches, tmp_path):
    out = tmp_path / "all.parquet"
    done = call("similarity", *caches, "--against", "all", "--draws", "19", "--resamples", "0", "--out", out)
    assert done.status == 0, done.err
    words = " ".join(done.out.split())
    assert "CKA of the same layers, n = 50" in words
    assert "* not shown to be more alike than chance (p adjusted over the 160 pairs of layers > 0.05)" in words
    assert words.count("random weights 4") >= 4
    drawn = call("plot", "dendrogram", out, "--out", tmp_path / "tree.png")
    assert drawn.status == 0, drawn.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["similarity"], "no cache was given"),
        (["similarity", "A", "A"], "is given twice; give each cache once"),
        (["similarity", "A", "--measures", "cka,ccaa"], "unknown measure 'ccaa'; did you mean cca"),
        (["movement", "A"], "movement needs a reference and one or more models"),
        (["movement", "A", "B", "--measures", "relative"], "unknown distance 'relative'"),
        (["movement", "A", "B", "--examples", "x.csv"], "--examples must be a separate .parquet file"),
        (["geometry", "A", "--discard", "1"], "discard is 1.0; it must be from 0 to below 1"),
        (["geometry", "A", "--layers", "9"], "9"),
        (["geometry", "A", "--remove", "1000"], "remove is 1000; layer 0"),
    ],
)
def test_mistakes_are_one_sentence(call, caches, words, message):
    done = call(*(caches["AB".index(word)] if word in ("A", "B") else word for word in words))
    assert done.status == 2
    assert message in " ".join(done.err.split())
    assert "Traceback" not in done.err
