"""Similarity, movement and geometry through the front door: caches in, rows, sentences and files out."""

import json

import numpy as np
import pandas as pd
import pytest
from builders import word_caches, word_task

import probekit
from probekit.activations import ActivationCache, cache_activations
from probekit.analyses.matching import matched, opened
from probekit.analyses.similarity.tables import tables
from probekit.errors import NonFiniteError, UsageError
from probekit.rows import read_rows
from probekit.similarity.layer_pairs import layer_pairs
from probekit.similarity.movement import movement as movement_of
from probekit.similarity.options import DISTANCES
from probekit.tasks.task import Split, Task

QUICK = {"draws": 99, "resamples": 200}


@pytest.fixture(scope="module")
def caches(tiny_model, tmp_path_factory):
    folder, bert = tmp_path_factory.mktemp("caches"), tiny_model("bert")
    how = {
        "plain": {},
        "random": {"random_weights": 3},
        "other": {"random_weights": 4},
        "pairs": {"kind": "pairs", "pairs": "separate"},
        "pairs-random": {"kind": "pairs", "pairs": "separate", "random_weights": 1},
        "words": {"kind": "sequence-labelling"},
        "words-random": {"kind": "sequence-labelling", "random_weights": 1},
        "numbers": {"kind": "regression"},
    }
    return {name: word_caches(folder, bert, name=name, sizes={"dev": 60}, **own)[0] for name, own in how.items()}


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("bert")


def cached(model, examples, out, **how):
    task = word_task("classification", {"dev": 60})
    changed = Task(task.name, task.kind, {"dev": Split("dev", tuple(examples(task.splits["dev"].examples)))},
                   task.label_names, task.metrics)  # fmt: skip
    cache_activations(model, changed, "dev", out=out, **how).close()
    return out


def with_layer_2(monkeypatch, path, change):
    """The cache at ``path`` gives other vectors of layer 2."""
    plain = ActivationCache.layer

    def layer(self, name, pooling=None):
        x = plain(self, name, pooling)
        return change(x.copy()) if self.path == path and str(name) == "2" else x

    monkeypatch.setattr(ActivationCache, "layer", layer)


def test_rows_of_two_models_are_those_of_the_arrays(caches):
    result = probekit.similarity(caches["plain"], caches["random"], **QUICK)
    rows = result.rows
    with opened_of(caches["plain"], caches["random"]) as found:
        sides = [list(side.layers.values()) for side in found.sides]
        from probekit.similarity.options import SimilarityOptions

        one = layer_pairs(*sides, options=SimilarityOptions(**QUICK), groups=found.labels.groups)["cka"]
    assert len(rows) == 16
    assert rows["value"].to_numpy().reshape(4, 4) == pytest.approx(one.value)
    assert rows["p_adjusted"].to_numpy().reshape(4, 4) == pytest.approx(one.p_adjusted)
    assert rows["layer"].tolist() == sorted(4 * [0, 1, 2, 3])
    assert rows["layer_b"].tolist() == 4 * [0, 1, 2, 3]
    assert set(rows["site_b"]) == {"resid_post"}
    assert rows["random_weights"].isna().all()
    assert set(rows["random_weights_b"]) == {3}
    assert set(rows["checkpoint_b"]) == {"random-3"}
    assert rows["draws"].min() >= 99


class opened_of:
    def __init__(self, *paths):
        from contextlib import ExitStack

        self.paths, self.stack = paths, ExitStack()

    def __enter__(self):
        return matched(opened(self.paths, self.stack))

    def __exit__(self, *error):
        self.stack.close()


def test_one_cache_is_compared_with_itself(caches):
    result = probekit.similarity(caches["plain"], **QUICK)
    cells = result.rows.pivot(index="layer", columns="layer_b", values="value").to_numpy()
    assert np.diag(cells) == pytest.approx(np.ones(4))
    assert cells == pytest.approx(cells.T)
    [sentence] = result.verdict
    assert "of neighbouring layers" in sentence


def test_a_page_which_leaves_out_empty_columns_shows_the_same_table(caches):
    rows, options = probekit.similarity(caches["plain"], **QUICK).rows, {"draws": 0, "level": 0.95}
    [(whole, _)], [(shown, _)] = (list(tables(some, options)) for some in (rows, rows.dropna(axis=1, how="all")))
    assert shown == whole


def test_several_caches_each_with_the_first_or_all(caches, caplog):
    first = probekit.similarity(caches["plain"], caches["random"], caches["other"], **QUICK).rows
    assert first.groupby(["checkpoint", "checkpoint_b"]).size().to_dict() == {
        ("", "random-3"): 16,
        ("", "random-4"): 16,
    }
    every = probekit.similarity(caches["plain"], caches["random"], caches["other"], against="all", **QUICK)
    assert set(zip(every.rows["checkpoint"], every.rows["checkpoint_b"], strict=True)) == {
        ("", "random-3"), ("", "random-4"), ("random-3", "random-4"),
    }  # fmt: skip
    key = ["checkpoint_b", "layer", "layer_b"]
    alone = probekit.similarity(caches["plain"], caches["random"], **QUICK).rows.set_index(key)["p_adjusted"]
    three = every.rows[every.rows["checkpoint"] == ""].set_index(key)["p_adjusted"].loc[alone.index]
    assert three.to_numpy() == pytest.approx(np.minimum(1, 3 * alone.to_numpy()))  # one family: all pairs of caches
    assert "99 permutations cannot" not in caplog.text  # 3 / 100
    few = {"measures": ("mutual-knn",), "draws": 19, "resamples": 0}
    probekit.similarity(caches["plain"], caches["random"], caches["other"], **few)
    assert "mutual-knn: 19 permutations cannot show anything at p adjusted 0.05 over 2 pairs of caches; --draws 39" in (
        caplog.text
    )
    with pytest.raises(UsageError, match="against is 'each'; it must be one of first, all"):
        probekit.similarity(caches["plain"], caches["random"], against="each")
    ax = probekit.plots.similarity_tree(every)
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert len(labels) == 3
    with pytest.raises(UsageError, match="a tree needs a value for every pair"):
        probekit.plots.similarity_tree(first)


def test_other_order_and_missing_examples_are_matched_by_id(caches, model, tmp_path, caplog):
    def some(examples):
        return [*reversed(examples[10:]), *examples[:5]]

    other = cached(model, some, tmp_path / "other.h5", random_weights=3)
    found = probekit.similarity(caches["plain"], other, groups="none", **QUICK).rows
    assert (
        "55 examples are in both caches (60 in plain.dev.h5, 55 in other.h5); the others are left out." in caplog.text
    )
    assert set(found["n"]) == {55}

    def kept(examples):
        return [*examples[:5], *examples[10:]]

    a = cached(model, kept, tmp_path / "a.h5")
    b = cached(model, kept, tmp_path / "b.h5", random_weights=3)
    alone = probekit.similarity(a, b, groups="none", **QUICK).rows
    assert found["value"].to_numpy() == pytest.approx(alone["value"].to_numpy(), rel=1e-6)
    assert found["p"].to_numpy() == pytest.approx(alone["p"].to_numpy())
    moved = probekit.movement(caches["plain"], other, groups="none", resamples=100, top=0).rows
    assert moved["value"].to_numpy() == pytest.approx(
        probekit.movement(a, b, groups="none", resamples=100, top=0).rows["value"].to_numpy(), rel=1e-6
    )


def test_other_examples_other_labels_and_the_same_cache_are_refused(caches, model, tmp_path):
    from dataclasses import replace

    renamed = cached(model, lambda e: [replace(x, id=f"x{x.id}") for x in e], tmp_path / "renamed.h5")
    with pytest.raises(UsageError, match=r"share no example: no id is in both \(.*'0', '1', '2' …; .*'x0', 'x1', 'x2'"):
        probekit.similarity(caches["plain"], renamed)
    flipped = cached(
        model, lambda e: [x if x.label is None else replace(x, label=1 - x.label) for x in e], tmp_path / "flipped.h5"
    )
    with pytest.raises(UsageError, match=r"59 of 60 examples with the same id have another label in .*flipped\.h5"):
        probekit.movement(caches["plain"], flipped)
    texts = cached(model, lambda e: [replace(x, text=f"not {x.text}") for x in e], tmp_path / "texts.h5")
    with pytest.raises(
        UsageError, match=r"60 of 60 examples with the same id, such as '0', have another text in .*texts"
    ):
        probekit.similarity(caches["plain"], texts)
    with pytest.raises(UsageError, match=r"plain\.dev\.h5 is given twice; give each cache once"):
        probekit.similarity(caches["plain"], caches["plain"])
    with pytest.raises(UsageError, match=r"holds classification dev, .* regression dev: these are not the same"):
        probekit.similarity(caches["plain"], caches["numbers"])
    with pytest.raises(
        UsageError, match=r"holds sentences \(classification dev\), .* words \(sequence-labelling dev\)"
    ):
        probekit.similarity(caches["plain"], caches["words"])
    few = cached(model, lambda e: e[:3], tmp_path / "few.h5")
    with pytest.raises(UsageError, match=r"compared on 4 examples or more; few\.h5 and plain\.dev\.h5 share 3"):
        probekit.similarity(few, caches["plain"])
    with pytest.raises(UsageError, match="few.h5 has 3 examples; the geometry of a layer needs 4 or more"):
        probekit.geometry(few)
    with pytest.raises(UsageError, match=r"unknown measure 'ckaa'; did you mean cka"):
        probekit.similarity(caches["plain"], measures="ckaa")
    with pytest.raises(UsageError, match=r"unknown distance 'relative'"):
        probekit.movement(caches["plain"], caches["random"], measures="relative")
    with pytest.raises(UsageError, match="movement needs a reference and one or more models"):
        probekit.movement(caches["plain"])
    with pytest.raises(UsageError, match="no cache was given"):
        probekit.geometry()


def test_a_layer_with_nan(caches, monkeypatch):
    def nan(x):
        x[7, 0] = np.nan
        return x

    with_layer_2(monkeypatch, caches["random"], nan)
    for analysis in (probekit.similarity, probekit.movement):
        with pytest.raises(NonFiniteError, match=r"random\.dev\.h5: layer 2 contains NaN or infinity \(first in '7'\)"):
            analysis(caches["plain"], caches["random"])
    with pytest.raises(NonFiniteError, match=r"random\.dev\.h5: layer 2 contains NaN or infinity \(first in '7'\)"):
        probekit.geometry(caches["random"])


def test_a_constant_layer(caches, monkeypatch, caplog):
    with_layer_2(monkeypatch, caches["random"], np.ones_like)
    result = probekit.similarity(caches["plain"], caches["random"], groups="none", **QUICK)
    rows = result.rows
    assert rows.loc[rows["layer_b"] == 2, "value"].isna().all()
    assert rows.loc[rows["layer_b"] != 2, "value"].notna().all()
    assert "layer 2 " not in result.verdict[0].partition(";")[0]
    shape = probekit.geometry(caches["random"], groups="none").rows
    ratio = shape[(shape["metric"] == "participation-ratio") & (shape["layer"] == 2)].iloc[0]
    assert np.isnan(ratio["value"])
    assert ratio["note"] == "all vectors are equal"
    assert "layer 2: all vectors are equal" in caplog.text


def test_a_layer_of_rounding_in_a_bfloat16_cache(caches, model, tmp_path, monkeypatch, caplog):
    def rounded(x):
        return (1 + 2.0**-8 * np.random.default_rng(0).integers(-1, 2, x.shape)).astype(x.dtype)

    for store, constant in (("bfloat16", True), ("float32", False)):
        path = cached(model, lambda e: e, tmp_path / f"{store}.h5", store=store)
        with monkeypatch.context() as patch:
            with_layer_2(patch, path, rounded)
            rows = probekit.similarity(caches["random"], path, groups="none", **QUICK).rows
            shape = probekit.geometry(path, groups="none").rows.set_index(["metric", "layer"])["value"]
        assert rows.loc[rows["layer_b"] == 2, "value"].isna().all() == constant
        assert np.isnan(shape["participation-ratio", 2]) == constant
        assert (shape["rank", 2] == 0) == constant


def test_words_and_separate_pairs(caches):
    words = probekit.similarity(caches["words"], caches["words-random"], **QUICK)
    assert set(words.rows["n"]) == {300}  # 60 sentences of 5 words
    assert set(words.rows["n_groups"]) <= set(range(2, 61))  # sentences are permuted as wholes
    pairs = probekit.movement(caches["pairs"], caches["pairs-random"], top=0, resamples=100)
    assert set(pairs.rows.loc[pairs.rows["label"] == "", "n"]) == {60}
    with opened_of(caches["pairs"], caches["pairs-random"]) as found:
        x, y = (side.layers["1"]().x for side in found.sides)  # [u; v] without |u - v| and u * v
        one = movement_of(x, y, groups=found.labels.groups)
    row = pairs.rows[(pairs.rows["layer"] == 1) & (pairs.rows["label"] == "")].iloc[0]
    assert row["value"] == pytest.approx(one.distance[0].mean())
    assert row["others"] == pytest.approx(np.nanmean(one.others[0]))


def test_movement_by_label_and_the_examples_that_moved_most(caches, tmp_path):
    out, every = tmp_path / "rows.parquet", tmp_path / "distances.parquet"
    result = probekit.movement(caches["plain"], caches["random"], out=out, examples=every, top=3, resamples=200)
    rows = read_rows(out)
    table = pd.read_parquet(every)
    assert table.columns.tolist() == [
        "model", "checkpoint", "step", "layer", "id", "label",
        "relative-distance", "cosine-distance", "aligned-distance",
    ]  # fmt: skip
    assert len(table) == 4 * 60
    last = table[table["layer"] == "3"]
    whole = rows[(rows["label"] == "") & (rows["example"] == "")]
    assert whole.groupby("metric").size().to_dict() == dict.fromkeys(table.columns[-3:], 4)
    assert set(whole["checkpoint"]) == {"random-3"}
    at_last = whole[(whole["layer"] == 3) & (whole["metric"] == "cosine-distance")].iloc[0]
    assert at_last["value"] == pytest.approx(last["cosine-distance"].mean())
    assert at_last["ci_low"] < at_last["value"] < at_last["ci_high"]
    by_label = rows[(rows["label"] == "yes") & (rows["metric"] == "relative-distance") & (rows["example"] == "")]
    mine = last[last["label"] == "yes"]
    assert by_label.set_index("layer")["value"][3] == pytest.approx(mine["relative-distance"].mean())
    assert by_label.set_index("layer")["n"][3] == len(mine)
    difference = rows[(rows["metric"] == "difference(relative-distance)") & (rows["layer"] == 3)].iloc[0]
    others = last[last["label"] == "no"]
    assert difference["label"] == "no"
    assert difference["value"] == pytest.approx(others["relative-distance"].mean() - mine["relative-distance"].mean())
    assert difference["p"] <= difference["p_adjusted"] <= 1
    most = rows[(rows["example"] != "") & (rows["layer"] == 3)]
    assert most["example"].tolist() == last.nlargest(3, "relative-distance")["id"].tolist()
    assert result.verdict == tuple(json.loads((tmp_path / "rows.parquet.json").read_text())["verdict"])
    assert probekit.read(out).recipe.words()[:2] == ["probekit", "movement"]
    with pytest.raises(UsageError, match=r"--examples must be a separate \.parquet file"):
        probekit.movement(caches["plain"], caches["random"], examples=tmp_path / "x.csv")
    with pytest.raises(UsageError, match="give the distances another name"):
        probekit.movement(caches["plain"], caches["random"], examples=out)


def test_layers_or_widths_that_differ_have_no_distance(caches, tiny_model, tmp_path):
    import tiny

    wide = tiny.tiny_model("bert", tmp_path / "wide", hidden_size=48, num_attention_heads=2)
    path = word_caches(tmp_path, wide, name="wide", sizes={"dev": 60})[0]
    with pytest.raises(UsageError, match=r"layer 0 has \d+ dimensions in .* and 48 in .*, so no distance is defined"):
        probekit.movement(caches["plain"], path)
    rows = probekit.similarity(caches["plain"], path, **QUICK).rows  # similarity has no such limit
    assert rows["value"].notna().all()


@pytest.mark.slow
def test_geometry_of_several_caches(caches, tmp_path):
    out = tmp_path / "rows.parquet"
    result = probekit.geometry(caches["plain"], caches["random"], out=out)
    assert result.rows.groupby("metric").size().to_dict() == dict.fromkeys(
        ("rank", "participation-ratio", "intrinsic-dimension", "mean-cosine", "mean-cosine-without-top"), 8
    )
    assert [len(sentence) > 0 for sentence in result.verdict] == [True, True]
    some = probekit.geometry(caches["plain"], max_examples=20, remove=0).rows
    assert set(some["n"]) <= {18, 19, 20}
    assert set(some["removed"].dropna()) == {0}
    assert probekit.reproduce(out).verdict == "to the bit"

    with pytest.raises(UsageError, match=r"remove is 1000; layer 0 of .* has 60 vectors of \d+ dimensions"):
        probekit.geometry(caches["plain"], remove=1000)


def test_a_rotation_from_few_examples_has_a_note(caches, model, tmp_path, caplog):
    few = [
        cached(model, lambda e: e[:15], tmp_path / f"{i}.h5", **how)
        for i, how in enumerate(({}, {"random_weights": 1}))
    ]
    for paths, n, note in (
        (few, 0, "a rotation needs 20 examples in 5 groups or more"),
        ([caches["plain"], caches["random"]], 4, r"48 examples are too few to estimate a rotation in 32 dimensions"),
    ):
        rows = probekit.movement(*paths, groups="none", resamples=100, top=0).rows
        rows = rows[rows["label"] == ""].set_index("metric")
        assert rows.loc["aligned-distance", "value"].notna().sum() == n
        assert rows.loc["aligned-distance", "note"].str.startswith(note).all()
        assert (rows.loc["relative-distance", "note"] == "").all()
        assert f"aligned-distance: {note}" in caplog.text


def test_a_fine_tuned_reference_is_named(model, caches, tmp_path, caplog, monkeypatch):
    import probekit.analyses.matching as matching

    columns = matching.columns_of
    tuned = cached(model, lambda e: e, tmp_path / "tuned.h5", random_weights=2)
    state = {"checkpoint": "run", "step": 9, "regime": "fine-tune"}

    def as_tuned(cache, pooling):
        return columns(cache, pooling) | (state if str(cache.path) == str(tuned) else {})

    monkeypatch.setattr(matching, "columns_of", as_tuned)
    for first, second, warned in ((tuned, caches["plain"], True), (caches["plain"], tuned, False)):
        caplog.clear()
        probekit.movement(first, second, resamples=0, top=0, layers=(0,), measures=("relative-distance",))
        assert ("the reference is the first cache" in caplog.text) is warned
    caplog.clear()
    state["step"] = 0
    probekit.movement(tuned, caches["plain"], resamples=0, top=0, layers=(0,), measures=("relative-distance",))
    assert "the reference is the first cache" not in caplog.text


def test_remarks_on_intervals_name_the_measure_and_need_an_interval(caches, caplog):
    paths, measures = (caches["plain"], caches["random"]), ("mutual-knn", "procrustes", "pwcca")
    for resamples in (100, 0):
        caplog.clear()
        probekit.similarity(*paths, measures=measures, draws=0, resamples=resamples, layers=(0,))
        assert ("mutual-knn: the interval is too wide" in caplog.text) is (resamples > 0)
        assert ("procrustes: the interval is for the mean" in caplog.text) is (resamples > 0)
        assert ("interval" in caplog.text) is (resamples > 0)
        assert "procrustes, pwcca: the measure is larger in samples" in caplog.text


def test_one_family_of_tests_for_all_distances(caches):
    """Step-down min-p with the same permuted labels: more distances never make an adjusted p smaller."""
    key, found = ["layer", "metric", "label"], {}
    for measures in (DISTANCES, *((one,) for one in DISTANCES)):
        rows = probekit.movement(caches["plain"], caches["random"], resamples=100, top=0, measures=measures).rows
        found[measures] = rows[rows["p_adjusted"].notna()].set_index(key).sort_values(["p", "p_adjusted"])
    tested = found.pop(DISTANCES)
    assert len(tested) == 12
    assert (tested["p_adjusted"] >= tested["p"]).all()
    assert tested["p_adjusted"].is_monotonic_increasing
    alone = pd.concat(found.values()).loc[tested.index]
    assert alone["p"].equals(tested["p"])
    assert (tested["p_adjusted"] >= alone["p_adjusted"]).all()
    assert tested["p_adjusted"].iloc[0] > alone["p_adjusted"].iloc[0]  # one family, not one for each distance
    assert tested["p_adjusted"].iloc[0] <= min(1, 12 * tested["p"].iloc[0])  # Bonferroni is the worst case


def test_same_seed_same_rows(caches):
    for analysis, options in ((probekit.similarity, QUICK), (probekit.movement, {"resamples": 100})):
        one, two = (analysis(caches["plain"], caches["random"], seed=5, **options).rows for _ in range(2))
        pd.testing.assert_frame_equal(one, two)
