"""What panels ask and a page keeps, from real caches of a tiny model and of random weights."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from builders import word_caches

import probekit
from probekit.analyses.exploration import scene
from probekit.display import p_equals
from probekit.errors import UsageError
from probekit.explore.colours import GAINED, LOST, outcomes
from probekit.explore.page import nearest, stored
from probekit.explore.panels import values
from probekit.explore.questions import QUESTIONS, answer, ranked, ranking

NONE = np.zeros(0, np.int64)


@pytest.fixture(scope="module")
def caches(tmp_path_factory, tiny_bert):
    folder = tmp_path_factory.mktemp("explore")
    train, dev = word_caches(folder, tiny_bert, tokens=True)
    random_train, random = word_caches(folder, f"random:{tiny_bert}", name="random", tokens=True)
    rows = []
    for one, two, name in ((train, dev, "a"), (random_train, random, "b")):
        rows.append(folder / f"{name}.parquet")
        probekit.probe(one, two, controls=1, resamples=100, out=rows[-1])
    return {"dev": dev, "random": random, "train": [train, random_train], "rows": rows, "folder": folder}


@pytest.fixture(scope="module")
def shown(caches):
    with scene(caches["dev"], caches["random"], rows=caches["rows"], train=caches["train"]) as found:
        yield found


def ask(shown, question, selected=NONE, **asked):
    found = answer(shown, {"question": question, "number": 1, **asked}, np.asarray(selected))
    json.dumps(found, allow_nan=False)
    return found


@pytest.mark.slow
def test_every_question_has_an_answer(shown):
    example = ask(shown, "example", index=3, layer=1, step=1)
    assert [side["name"] for side in example["neighbours"]] == [side.name for side in shown.sides]
    near = shown.neighbours(1, 1, 3, 5)
    assert [item["index"] for item in example["neighbours"][1]["items"]] == near["point"].tolist()
    right = shown.sides[0].prediction[1, 3] == shown.labels[3]
    assert example["predictions"]["sides"][0]["items"][1]["right"] == right
    for kind in ("distance", "norm", "logit", "unit"):
        strip = ask(shown, "strip", index=3, step=1, kind=kind, unit=2)
        assert [len(side["values"]) for side in strip["sides"]] == [len(shown.layers)] * 2
        assert len(strip["sides"][0]["values"][0]) == len(strip["sides"][0]["tokens"]) == 5
        assert strip["most"] > 0
    unit = ask(shown, "unit", side=1, layer=1, unit=4, step=1)
    assert "linear discriminant of train" in unit["by"]
    assert f"of {32 * len(shown.layers)} units" in unit["noise"]
    assert unit["units"] == 32
    assert {item["side"] for item in unit["similar"]} == {0}
    assert sum(sum(group["counts"]) for group in unit["histogram"]["groups"]) == len(shown)
    assert all(0 <= item["index"] < len(shown) for item in unit["top"])
    assert unit["ranking"] == shown.rank_units(1, 1, k=10)["unit"].tolist()
    chosen = ask(shown, "selection", [4, 7])
    assert chosen["ids"] == ["4", "7"]
    compared = ask(shown, "compare", range(20), layer=1, step=1, origin=["gained at layer 1", 1, 1])
    assert {tuple(row[4:]) for row in compared["rows"] if row[1] == "accuracy"} == {("", "")}
    compared = ask(shown, "compare", range(20), layer=1, step=1, origin=["gained at layer 2", 2, 1])
    assert all(row[4] for row in compared["rows"] if row[1] == "accuracy")
    assert len(compared["rows"]) == len(shown.compare_selection(shown.ids[:20], 1))
    heads = ask(shown, "attention", index=3, step=0, block=0, head=1) if shown.texts else None
    assert heads is None or np.allclose(np.sum(heads["sides"][0]["weights"], axis=1), 1, atol=1e-3)
    assert set(QUESTIONS) == {"attention", "compare", "example", "find", "selection", "strip", "unit"}


@pytest.mark.parametrize("change", [{"index": -1}, {"index": "0"}, {"layer": 99}, {"step": 5}, {"index": 2**40}])
def test_a_question_about_what_is_not_there(shown, change):
    with pytest.raises(UsageError, match="which this view does not have"):
        ask(shown, "example", **({"index": 1, "layer": 1, "step": 1} | change))


def test_the_table_says_what_the_scene_says(shown):
    found = values(shown, [])["curve"]
    table = shown.gained_and_lost(2)
    codes = np.frombuffer(found["outcomes"], np.uint8).reshape(1, len(shown.layers), len(shown))[0, 2]
    assert shown.ids[codes == 2].tolist() == table.gained.tolist()
    assert shown.ids[codes == 1].tolist() == table.lost.tolist()
    assert p_equals(table.p) in found["tests"][0][2]


def test_neighbours_of_all_points_are_those_of_each(shown):
    place, distance = nearest(shown.open_sources.vectors(0, 2), 5)
    for i in range(0, len(shown), 7):
        each = shown.neighbours(0, 2, i, 5)
        np.testing.assert_allclose(distance[i], each["distance"], atol=2e-6)  # float32 against float64
        if (np.diff(each["distance"]) > 1e-5).all():
            assert place[i].tolist() == each["point"].tolist()


@pytest.mark.slow
def test_a_page_keeps_neighbours_tokens_and_units(shown, monkeypatch):
    extra, arrays = stored(shown)
    assert arrays["neighbours"].shape == (2, len(shown.layers), len(shown), 5)
    low, high = extra["distances"]
    code = arrays["distance"][0, 1, 3].astype(float)
    kept = np.where(code == 65535, 0, np.exp(low + code / 65534 * (high - low)))
    np.testing.assert_allclose(kept, nearest(shown.open_sources.vectors(0, 1), 5)[1][3], rtol=1e-3, atol=2e-6)
    assert set(extra["strips"]) == {"distance", "norm", "logit"}
    assert len(extra["strips"]["norm"]) == len(shown)
    monkeypatch.setattr("probekit.explore.page.NUMBERS", 4000)
    kept = stored(shown)[0]["strips"]["norm"]
    assert 0 < len(kept) < len(shown)
    changed = np.isin(outcomes(shown), (GAINED, LOST)).any(axis=(0, 1))
    assert changed[list(kept)].sum() == min(len(kept), changed.sum())
    unit = ranking(shown, 0, 1)[0]
    assert extra["units"][f"0 1 {unit}"]["unit"] == unit


def test_without_training_caches_units_are_ranked_by_correlation(caches):
    with scene(caches["dev"]) as found:
        by = found.rank_units(0, 1, by="correlation", k=10)["unit"].tolist()
        assert ranking(found, 0, 1) == by
        assert "correlation with the labels of the shown points" in ranked(found, 0, 1)[1]
        three = replace(found, labels=np.arange(len(found)) % 3, label_names=("a", "b", "c"))
        assert len(ranking(three, 0, 1)) == 10
        with pytest.raises(UsageError, match="train"):
            ask(found, "strip", index=0, step=0, kind="logit")


def test_the_command_writes_a_page(caches, call, tmp_path, monkeypatch):
    monkeypatch.setattr("probekit.explore.page.NUMBERS", 2000)  # tokens of a few examples
    for package in ("anywidget", "jscatter"):
        pytest.importorskip(package, reason="needs the extra 'explore'")
    out = tmp_path / "page.html"
    rows = ",".join(map(str, caches["rows"]))
    done = call("explore", caches["dev"], caches["random"], "--rows", rows, "--projection", "pca", "-o", out)
    assert done.status == 0
    assert str(out) in done.out
    page = out.read_text()
    assert "probekit explore" in page
    assert "<code>" in page
    assert str(caches["folder"]) not in page
    done = call("explore", caches["dev"], caches["random"], "--rows", *caches["rows"], "-o", out)
    assert "separate the files of --rows by commas" in done.err
    assert call("explore", caches["dev"], "-o", tmp_path / "page.pdf").status == 2


@pytest.mark.slow
def test_a_page_of_one_cache(caches, call, tmp_path):
    for package in ("anywidget", "jscatter"):
        pytest.importorskip(package, reason="needs the extra 'explore'")
    assert call("explore", caches["dev"], "-o", tmp_path / "page.html").status == 0


def test_a_view_of_caches(caches, tmp_path):
    for package in ("anywidget", "jscatter"):
        pytest.importorskip(package, reason="needs the extra 'explore'")
    view = probekit.explore(caches["dev"], caches["random"], rows=caches["rows"], projection="pca", layers="0-1")
    assert view.scene.layers == ("0", "1")
    view.select(["3", "5"])
    assert view.selection.examples["id"].tolist() == ["3", "5"]
    assert "accuracy" in set(view.selection.compare()["quantity"])
    state = json.dumps(view.state | {"colour": "label"})
    again = probekit.explore(caches["dev"], caches["random"], layers="0-1", state=state)
    assert again.selection.ids == ["3", "5"]
    if view.scene.texts is not None:
        assert probekit.load_task(str(view.selection.write_task(tmp_path / "mine.toml"))).split("dev").examples
    for one in (view, again):
        one.close()


def test_an_unknown_option_is_named(caches):
    with pytest.raises(UsageError, match="did you mean projection"):
        probekit.explore(caches["dev"], projektion="pca")


WITHOUT = """
import contextlib, io, json, os, sys
EXTRA = "jscatter", "anywidget", "ipywidgets", "traitlets"
sys.modules.update(dict.fromkeys(EXTRA))
import probekit
from probekit.analyses.exploration import scene
from probekit.cli import main

cache, page = sys.argv[1:]
with scene(cache) as found:
    print(len(found))
main(["explore", "--help"])
for name in EXTRA:
    del sys.modules[name]
for name in EXTRA[:3]:
    sys.stdout.flush()
    if not os.fork():  # a process that has imported nothing of the extra, and finds the rest of it
        sys.modules[name] = None
        try:
            probekit.explore(cache)
        except probekit.errors.UsageError as error:
            raised = str(error)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            status = main(["explore", cache, "-o", page])
        print(json.dumps([name, raised, status, said.getvalue()]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_without_the_extra_it_says_what_to_install_and_everything_else_works(caches, tmp_path):
    words = [sys.executable, "-c", WITHOUT, str(caches["dev"]), str(tmp_path / "x.html")]
    *shown, one, two, three = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert shown[0] == "80"
    assert any("--projection" in line for line in shown)
    for missing, line in zip(("jscatter", "anywidget", "ipywidgets"), (one, two, three), strict=True):
        name, raised, status, said = json.loads(line)
        assert (name, status, said.count("\n")) == (missing, 2, 1)
        assert "pip install 'probekit-lm[explore]'" in raised
        assert "probekit-lm[explore]" in said
