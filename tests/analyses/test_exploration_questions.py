"""Questions to a scene, against the caches that it was made from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from builders import word_caches, word_task
from scipy import stats
from scipy.spatial.distance import cdist, pdist

import probekit
from probekit.activations import ActivationCache
from probekit.analyses.exploration import scene
from probekit.errors import CacheMismatch, UsageError
from probekit.probes.units.rankings import mean_differences
from probekit.projection import fit_discriminant


@pytest.fixture(scope="module")
def toys(tmp_path_factory, tiny_bert) -> SimpleNamespace:
    """Train and dev of a model and of random weights, with tokens; probes of both."""
    folder = tmp_path_factory.mktemp("questions")
    train, dev = word_caches(folder, tiny_bert, tokens=True)
    random_train, random = word_caches(folder, tiny_bert, name="random", tokens=True, random_weights=1)
    rows = probekit.probe(train, dev, random_train, random, controls=1, resamples=0, out=folder / "rows.parquet")
    return SimpleNamespace(
        folder=folder, train=train, dev=dev, random=random, random_train=random_train, rows=rows, task=word_task()
    )


@pytest.fixture(scope="module")
def found(toys):
    with scene(
        toys.dev, toys.random, rows=toys.folder / "rows.parquet", train=[toys.random_train, toys.train], task=toys.task,
        projection=("pca", "lda"), clusters="kmeans",
    ) as made:  # fmt: skip
        yield made


@pytest.mark.slow
def test_predictions_are_those_of_the_probes(found, toys):
    predictions = toys.rows.predictions[0]
    fits = predictions.fits
    for side, random in zip(found.sides, (False, True), strict=True):
        for layer in range(len(found.layers)):
            match = (
                (fits["layer"].fillna(-1) == layer)
                & (fits["target"] == "gold")
                & (fits["random_weights"].notna() == random)
            )
            fit = int(np.flatnonzero(match)[0])
            by_id = dict(zip(predictions.ids.tolist(), predictions.predicted[fit], strict=True))
            assert [by_id.get(i, -1) for i in found.ids.tolist()] == side.prediction[layer].tolist()
        known = side.prediction[0] >= 0
        assert (side.confidence[:, known] >= 0.5).all()
        assert set(side.curve["target"]) >= {"gold", "shuffled"}
        assert (side.curve["random_weights"].notna() == random).all()
    assert (found.sides[0].prediction[:, found.labels < 0] == -1).all()
    assert found.notes[0].startswith("1 points of classification.dev.h5 have no prediction")


def test_rows_of_other_caches_are_refused(toys, tmp_path, caplog):
    other = toys.rows.rows.assign(model="another")
    probekit.write_rows(other, tmp_path / "other.parquet", {})
    with pytest.raises(UsageError, match="rows belong to other caches: they are about classification dev, another"):
        scene(toys.dev, rows=tmp_path / "other.parquet")
    before_maps = []

    def progress(*_, **__):
        before_maps.append(caplog.text)

    rows = toys.rows.rows.pipe(lambda r: _saved(r[r["random_weights"].isna()], tmp_path))
    with scene(toys.dev, toys.random, rows=rows, progress=progress) as part:
        assert "The files hold no rows for random.dev.h5" in before_maps[0]
        assert part.sides[1].curve is None
        assert "The files hold rows but no predictions for classification.dev.h5" in part.notes[0]
        assert "The files hold no rows for random.dev.h5" in part.notes[1]
        with pytest.raises(UsageError, match="no predictions for .*; give the rows of probekit probe"):
            part.gained_and_lost(1)


def _saved(rows: pd.DataFrame, folder: Path) -> Path:
    probekit.write_rows(rows, folder / "part.parquet", {})
    return folder / "part.parquet"


def test_texts_come_from_the_task_the_tokenizer_or_nowhere(found, toys, monkeypatch):
    assert found.texts == [(e.text,) for e in toys.task.split("dev")]
    with scene(toys.dev) as decoded:
        assert decoded.texts[3] == found.texts[3]  # simple words, which the tokenizer restores
        assert "Texts are decoded tokens" in decoded.notes[-1]
    monkeypatch.setattr("probekit.analyses.exploration.texts.tokenizer_of", lambda cache: 1 / 0)
    with scene(toys.dev, train=toys.train) as bare:
        assert bare.texts is None
        assert "There are no texts" in bare.notes[-1]
        assert bare.token_strip(0).tokens[0][0].startswith("#")
        assert bare.unit(0, 1, 3).tokens["token"].str.startswith("#").all()
        assert "text" not in bare.examples(["1"])
        for wants_text in (lambda: bare.write_task(["1"], "x.toml"), lambda: bare.attention(0)):
            with pytest.raises(UsageError, match=r"give the task to scene"):
                wants_text()


def test_supervised_maps_are_fitted_on_train_only(found, toys):
    lda = found.sides[0].maps["lda"]
    assert "fitted on 159 training examples" in lda.note
    with ActivationCache(toys.train) as train, ActivationCache(toys.dev) as dev:
        shown = dev.layer(2) @ fit_discriminant(train.layer(2), train.labels).plane.axes
    np.testing.assert_allclose(pdist(lda.xy[2]), pdist(shown), rtol=1e-4)  # turned, and nothing else
    with pytest.raises(UsageError, match="fitted on the training split of .*give train = TRAIN.h5"):
        scene(toys.dev, projection="lda")
    with pytest.raises(UsageError, match="hold the same examples; directions fitted on"):
        scene(toys.dev, projection="lda", train=toys.dev)
    with pytest.raises(CacheMismatch, match="do not belong together"):
        scene(toys.dev, projection="lda", train=toys.random_train)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_neighbours_are_those_of_the_vectors(found, toys, distance):
    with ActivationCache(toys.random) as cache:
        x = cache.layer(2).astype(np.float64)
    near = found.neighbours(1, 2, "7", k=5, distance=distance)
    expected = cdist(x[7:8], x, distance)[0]
    expected[7] = np.inf
    assert near["distance"].to_numpy() == pytest.approx(np.sort(expected)[:5])
    assert near["id"].tolist() == [found.ids[i] for i in near["point"]]
    with pytest.raises(UsageError, match="did you mean cosine"):
        found.neighbours(0, 0, 0, distance="cosin")


def test_gained_and_lost_are_the_mcnemar_table(found):
    table = found.gained_and_lost(2)
    one, two = (side.prediction[2] == found.labels for side in found.sides)
    known = found.labels >= 0
    assert table.gained.tolist() == found.ids[known & ~one & two].tolist()
    assert table.lost.tolist() == found.ids[known & one & ~two].tolist()
    assert len(table.both_right) + len(table.both_wrong) + len(table.gained) + len(table.lost) == table.n == 79
    if found.groups is None:
        assert table.p == pytest.approx(stats.binomtest(len(table.gained), len(table.gained) + len(table.lost)).pvalue)
    reverse = found.gained_and_lost(2, side=0, against=1)
    assert reverse.p == table.p
    assert reverse.gained.tolist() == table.lost.tolist()
    with pytest.raises(UsageError, match="there is no side 2"):
        found.gained_and_lost(2, side=2)


def test_token_strips_are_the_token_vectors(found, toys):
    with ActivationCache(toys.dev) as cache, ActivationCache(toys.random) as other:
        x, y = (np.array([c.tokens(at)[5][1:-1] for at in c.layers], dtype=np.float64) for c in (cache, other))
        norm, distance = found.token_strip(5), found.token_strip("5", "distance")
        assert norm.tokens == (tuple(found.texts[5][0].split()),) * 2
        np.testing.assert_allclose(norm.values[1], np.linalg.norm(y, axis=2), rtol=1e-6)
        np.testing.assert_allclose(
            distance.values[1], np.linalg.norm(y - x, axis=2) / np.linalg.norm(x, axis=2), rtol=1e-5
        )
        np.testing.assert_allclose(found.token_strip(5, "unit", unit=3).values[0], x[..., 3], rtol=1e-6)
        logit = found.token_strip(5, "logit", label="yes").values[0]
        for layer in range(len(found.layers)):
            logits = found.sources.discriminant(0, layer).logits(cache.layer(layer)[5:6])[0]
            assert logit[layer].mean() == pytest.approx(logits[1] - logits[0], abs=1e-4)  # mean pooling is linear
    assert found.token_strip(5, "logit").values[0] == pytest.approx(logit)
    assert found.token_strip(5, "logit", label=0).values[0] == pytest.approx(-logit)
    with pytest.raises(UsageError, match="unit is 99; expected a number from 0 to 31"):
        found.token_strip(5, "unit", unit=99)
    with pytest.raises(UsageError, match="label is 'maybe'; expected one of no, yes"):
        found.token_strip(5, "logit", label="maybe")


def test_units_and_directions(found, toys):
    view = found.unit(0, 2, 4, k=6, other=1)
    with ActivationCache(toys.dev) as cache, ActivationCache(toys.random) as other:
        x = cache.layer(2)
        np.testing.assert_allclose(view.values, x[:, 4], rtol=1e-6)
        tokens = cache.tokens(2).values[~cache.special_rows()][:, 4]
        assert view.tokens["value"].to_numpy() == pytest.approx(np.sort(tokens)[::-1][:6])
        best = view.similar.iloc[0]
        y = other.layer(best["layer"])[:, int(best["unit"])]
        assert np.corrcoef(x[:, 4], y)[0, 1] == pytest.approx(best["correlation"])
        every = [abs(np.corrcoef(x[:, 4], column)[0, 1]) for at in other.layers for column in other.layer(at).T]
        assert max(every) == pytest.approx(abs(best["correlation"]))
    top = view.tokens.iloc[0]
    text = found.texts[found.index(top["id"])][0].split()
    assert " ".join([*top["before"].split(), top["token"], *top["after"].split()]) == " ".join(text)
    assert sum(count.sum() for count in view.histogram.values()) == len(found)
    assert set(view.histogram) == {"no", "yes", "unlabelled"}
    direction = np.zeros(32)
    direction[4] = 2
    np.testing.assert_allclose(found.unit(0, 2, direction).values, view.values, rtol=1e-6)
    with pytest.raises(UsageError, match="there is no unit 32; the layer has 32"):
        found.unit(0, 2, 32)
    with pytest.raises(UsageError, match="a direction has 32 finite numbers"):
        found.unit(0, 2, np.zeros(32))


def test_ranking_of_units(found, toys):
    with ActivationCache(toys.dev) as cache:
        x, y = cache.layer(1), cache.labels
    known = y >= 0
    expected = [np.corrcoef(column[known], y[known])[0, 1] for column in x.T]
    by_correlation = found.rank_units(0, 1, by="correlation", k=5)
    assert by_correlation["unit"].tolist() == np.argsort(-np.abs(expected))[:5].tolist()
    by_probe = found.rank_units(0, 1, k=32)
    coef = found.sources.discriminant(0, 1).coef
    weights = (coef[1] - coef[0]) * x.std(0)
    assert by_probe["score"].to_numpy() == pytest.approx(weights[by_probe["unit"]])
    assert by_probe["unit"].tolist() == np.argsort(-np.abs(weights), kind="stable").tolist()
    every = replace(found, label_names=(*found.label_names, "maybe")).rank_units(0, 1, k=32)  # of no label in special
    assert every["score"].to_numpy() == pytest.approx(np.sqrt(2) * np.abs(weights[every["unit"]]))
    numbers = replace(found, labels=np.where(known, y, np.nan).astype(float)).rank_units(0, 1, by="correlation", k=5)
    assert numbers["score"].to_numpy() == pytest.approx(mean_differences(x[known], y[known], 0)[numbers["unit"]])


def test_selections_come_back_as_tables_and_tasks(found, toys, tmp_path):
    ids = ["3", "17", "3", "40"]
    table = found.examples(ids, layer=1)
    assert table["id"].tolist() == ["3", "17", "40"]
    assert table["text"].tolist() == [found.texts[i][0] for i in (3, 17, 40)]
    assert table["label"].tolist() == [found.label_names[found.labels[i]] for i in (3, 17, 40)]
    path = found.write_task(ids, tmp_path / "mine.toml")
    task = probekit.load_task(path)
    assert [e.id for e in task.split("dev")] == ["3", "17", "40"]
    assert task.labels("dev").tolist() == found.labels[[3, 17, 40]].tolist()
    assert task.label_names == found.label_names
    assert probekit.check_task(path).splits[0].examples == 3
    with pytest.raises(UsageError, match="exist already and are not replaced"):
        found.write_task(ids, path)
    with pytest.raises(UsageError, match="1 of 2 ids are not points of this scene, such as 'x'"):
        found.examples(["3", "x"])


def test_a_selection_is_compared_with_the_rest(found):
    chosen = found.ids[:20]
    table = found.compare_selection(chosen, layer=2)
    row = table[(table["quantity"] == "accuracy") & (table["model"] == found.sides[0].name)].iloc[0]
    right = (found.sides[0].prediction[2] == found.labels)[found.labels >= 0]
    assert row["selection"] == pytest.approx(right[:19].mean())  # the first example is unlabelled
    assert row["rest"] == pytest.approx(right[19:].mean())
    assert row["n_selection"] == 19
    assert row["ci_low"] < row["difference"] < row["ci_high"]
    assert set(table["quantity"]) == {
        "accuracy", "confidence", "movement", "length", "share of label no", "share of label yes"
    }  # fmt: skip
    assert "without looking" in table.attrs["note"]
    assert len(found.compare_selection(chosen)) > len(table)
    with pytest.raises(UsageError, match="80 of 80 points are selected"):
        found.compare_selection(found.ids)


def test_attention_is_the_models(found, toys, tiny_bert):
    import torch
    from transformers import AutoModel, AutoTokenizer

    shown = found.attention(5, heads=[(2, 1), (0, 3)])
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    net = AutoModel.from_pretrained(tiny_bert, attn_implementation="eager").eval()
    inputs = tokenizer(*found.texts[5], return_tensors="pt")
    with torch.inference_mode():
        expected = net(**inputs, output_attentions=True).attentions
    np.testing.assert_allclose(shown.weights[0], expected[2][0, 1], atol=1e-6)
    np.testing.assert_allclose(shown.weights[1], expected[0][0, 3], atol=1e-6)
    assert shown.tokens == tuple(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]))
    random = found.attention(5, side=1)
    assert random.weights.shape[0] == 12
    assert np.abs(random.weights[9] - shown.weights[0]).max() > 1e-3
    with pytest.raises(UsageError, match=r"there is no head \(3, 0\); the model has blocks 0 to 2 with heads 0 to 3"):
        found.attention(5, heads=[(3, 0)])


def test_exports_read_back(found, tmp_path):
    path = found.to_parquet(tmp_path / "map.parquet", layer=2, neighbours=4)
    table = pd.read_parquet(path)
    np.testing.assert_array_equal(table[["x", "y"]].to_numpy(dtype=np.float32), found.sides[0].maps["pca"].xy[2])
    assert table["text"].tolist() == [text for (text,) in found.texts]
    near = found.neighbours(0, 2, 9, k=4)
    assert table["neighbors"][9]["ids"].tolist() == near["point"].tolist()
    assert table["neighbors"][9]["distances"] == pytest.approx(near["distance"].to_numpy(), abs=1e-5)
    before = path.read_bytes()
    assert found.to_parquet(path, layer=2, neighbours=4).read_bytes() == before
    folder = found.to_projector(tmp_path / "projector", layers=[0, 2])
    vectors = np.loadtxt(folder / "vectors-2.tsv", delimiter="\t")
    np.testing.assert_allclose(vectors, found.sources.vectors(0, 2), rtol=1e-5)
    metadata = pd.read_csv(folder / "metadata.tsv", sep="\t", dtype=str)
    assert metadata["id"].tolist() == found.ids.tolist()
    assert (folder / "projector_config.pbtxt").read_text().count('metadata_path: "metadata.tsv"') == 2


def test_clusters_are_numbered_by_size(found):
    for side in found.sides:
        counts = np.bincount(side.clusters[1])
        assert (np.diff(counts) <= 0).all()
        assert counts.sum() == len(found)


def test_layers_are_named_as_everywhere(found):
    assert found.position(-1) == found.position(3) == found.position("3") == 3
    with pytest.raises(UsageError, match="the scene has no layer 9; it has 0, 1, 2, 3"):
        found.position(9)
    with pytest.raises(UsageError, match="there is no point 80"):
        found.index(80)


def test_a_scene_at_a_glance(found):
    html = found._repr_html_()
    assert html == found._repr_html_()
    for fact in ("80 examples", "layers 0 to 3: pca (trustworthiness 0.", "with predictions of probes", "note 1"):
        assert fact in html
    from dataclasses import replace

    assert "&lt;script&gt;" in replace(found, title="<script>", notes=("<script>",))._repr_html_()
    assert "<script>" not in replace(found, title="<script>", notes=("<script>",))._repr_html_()


def test_a_scene_without_caches_says_so(found):
    from dataclasses import replace

    bare = replace(found, sources=None)
    with pytest.raises(UsageError, match="has no caches"):
        bare.neighbours(0, 0, 0)
    assert json.loads(json.dumps(bare.notes))
