"""From a task in text to rows and a figure, through the front door, with tiny models whose layers see every word."""

import html
import json
import re
import subprocess
import sys
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from builders import word_caches

import probekit
from probekit.activations import ActivationCache
from probekit.analyses.probe import probe
from probekit.cli import main
from probekit.errors import CacheMismatch, UsageError
from probekit.recipe import Recipe
from probekit.rows import layer_labels, read, read_card, read_rows
from probekit.statistics.predictions import Predictions


@pytest.fixture(scope="module")
def caches(tiny_model, tmp_path_factory):
    """Of train and of dev, made when they are asked for."""
    folder, bert = tmp_path_factory.mktemp("caches"), tiny_model("bert")

    class Made(dict):
        def __missing__(self, name):
            how = {"random_weights": 3} if name == "random" else {}
            kind = "sequence-labelling" if name == "cats" else "classification"
            self[name] = word_caches(folder, tiny_model("gpt2") if name == "gpt2" else bert, kind, name=name, **how)
            return self[name]

    return Made()


def gold(rows, name):
    rows = rows.assign(layer_name=layer_labels(rows))
    return rows[(rows["metric"] == name) & (rows["target"] == "gold")]


def test_from_caches_to_rows_and_figures(caches, tmp_path, call):
    out = tmp_path / "rows.parquet"
    result = call("probe", *caches["bert"], "--out", out, "--resamples", 100, "--seed", 2, "--controls", 1)
    assert result.status == 0
    for word in ("majority", "bag-of-pieces", "tf-idf-of-pieces", "length", "accuracy", "shuffled"):
        assert word in result.out
    assert "unlabelled, left out: 1 in train, 1 in dev" in result.out
    rows = read_rows(out)
    assert gold(rows, "f1")["layer_name"].tolist() == ["", "", "", "", "0", "1", "2", "3"]
    assert set(rows["n"]) == {79}
    assert set(rows["analysis"]) == {"probe"}
    assert set(rows["target"]) == {"gold", "shuffled"}
    assert set(rows.loc[rows["target"] == "shuffled", "draw"].fillna(-1)) == {-1, 0}
    best = gold(rows, "accuracy")
    by_layer = best[best["layer_name"] != ""].set_index("layer_name")["value"]
    by_input = best[best["layer_name"] == ""].set_index("representation")["value"]
    assert by_layer["0"] > by_input["none"] + 0.2  # the mean of the embeddings holds the word
    assert by_input["bag-of-pieces"] > by_input["none"] + 0.2
    assert by_input["tf-idf-of-pieces"] > by_input["none"] + 0.2
    noise = rows[(rows["metric"] == "accuracy") & (rows["target"] == "shuffled") & rows["draw"].isna()]["value"]
    assert noise.between(0.3, 0.7).all()
    card = read_card(out)
    with ActivationCache(caches["bert"][0]) as cache:
        assert card["reads"][0]["digest"] == cache.spec_id
    assert card["recipe"]["arguments"]["seed"] == 2
    done = call("probe", *caches["bert"], "--controls", 1, "--no-tfidf", "--no-cosine", "--resamples", 0)
    assert ("tf-idf" in done.out, "bag-of-pieces" in done.out) == (False, True)
    again = probe(*caches["bert"], resamples=100, seed=2, controls=1).rows
    assert again["value"].tolist() == rows["value"].tolist()
    assert again["digest"].tolist() == rows["digest"].tolist()

    more = tmp_path / "more.csv"
    assert call("probe", *caches["random"], "--out", more, "--resamples", 0, "--controls", 0).status == 0
    figures = [tmp_path / f"figure{suffix}" for suffix in (".pdf", ".svg")]
    result = call("plot", "layers", out, more, *(word for f in figures for word in ("--out", f)))
    assert result.out.split() == [*map(str, figures), str(tmp_path / "figure.caption.txt")]
    assert b"%PDF" in figures[0].read_bytes()[:8]
    assert "random weights 3" in figures[1].read_text()


def test_what_each_probe_said_of_each_example(caches, tmp_path, call):
    out = tmp_path / "rows.parquet"
    result = call("probe", *caches["bert"], "--out", out, "--resamples", 0, "--controls", 1, "--layers", "0,2")
    beside = tmp_path / "rows.examples.parquet"
    assert str(beside) in result.out.replace("\n", "")
    found, rows = Predictions.read(beside), read_rows(out)
    with ActivationCache(caches["bert"][1]) as cache:
        assert found.ids.tolist() == cache.ids[cache.labels >= 0].tolist()
        labels = cache.labels[cache.labels >= 0]
    at = int(np.flatnonzero((found.fits["layer"] == 2).fillna(value=False) & (found.fits["target"] == "gold"))[0])
    np.testing.assert_array_equal(found.gold[at], labels)
    row = gold(rows, "accuracy").set_index("layer_name").loc["2"]
    assert row["value"] == pytest.approx((found.predicted[at] == labels).mean())


def test_two_models_in_one_run(caches, tmp_path, call):
    out = tmp_path / "rows.csv"
    small = ("--resamples", 0, "--controls", 0, "--layers", "0,1")
    assert call("probe", *caches["bert"], *caches["random"], "--out", out, *small).status == 0
    assert set(read_rows(out)["checkpoint"]) == {"", "random-3"}
    assert set(read_rows(out)["random_weights"].dropna()) == {3}
    assert len(read_card(out)["reads"]) == 4
    odd = call("probe", *caches["bert"], caches["random"][0])
    assert odd.status == 2
    assert "caches must be given in pairs, TRAIN.h5 DEV.h5" in odd.err


@pytest.mark.slow
def test_options_reach_the_protocol(caches, tmp_path, call):
    out = tmp_path / "rows.csv"
    words = ["--folds", 3, "--choose-by", "f1", "--balanced", "--calibrate", "--penalties", "0.01,1", "--controls", 1]
    assert call("probe", *caches["bert"], "--out", out, "--resamples", 0, "--layers", 1, *words).status == 0
    rows = read_rows(out)
    assert {"brier", "calibration-error-15"} < set(rows["metric"])
    row = gold(rows, "f1").set_index("layer_name").loc["1"]
    assert row["penalty"] in (0.01, 1)
    assert row["held_out"] < 0  # minus f1
    arguments = read_card(out)["recipe"]["arguments"]
    assert (arguments["folds"], arguments["choose_by"], arguments["balanced"]) == (3, "f1", True)
    other = ("--estimator", "mass-mean", "--held-out", 0.3, "--resamples", 0, "--controls", 0, "--layers", 1)
    assert call("probe", *caches["bert"], "--out", out, *other).status == 0
    assert gold(read_rows(out), "f1").set_index("layer_name").loc["1", "estimator"] == "mass-mean"


@pytest.mark.slow
def test_default_figures(caches, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    call("probe", *caches["bert"], "--out", "r.csv", "--resamples", 0, "--layers", "0,3", "--metrics", "f1")
    assert call("plot", "layers", "r.csv").out.split() == [
        *("figures/layers.pdf", "figures/layers.png", "figures/layers.caption.txt")
    ]
    assert read_card("r.csv")["recipe"]["arguments"]["metrics"] == ["f1"]
    assert set(read_rows("r.csv")["layer"].dropna()) == {0, 3}


def test_final_norm_has_a_row(caches):
    few = probe(*caches["gpt2"], resamples=0, controls=0, layers=["final_norm", -1, 0]).rows
    assert (few["site"].iloc[-1], few["layer"].isna().iloc[-1]) == ("final_norm", True)
    assert layer_labels(few).unique().tolist() == ["", "0", "3", "final_norm"]  # in the order of the model


@pytest.mark.slow
def test_words_of_a_token_cache(caches, tmp_path, call):
    rows = probe(*caches["cats"], resamples=0, controls=1, layers=[0]).rows
    values = gold(rows, "span-f1").set_index(["layer_name", "estimator"])["value"]
    assert values["", "majority"] == 0
    assert values["", "type-majority"] == 1.0
    assert values["0", "logistic"] == 1.0  # layer 0 is the word's embedding and its place
    assert rows["n"].iloc[0] == 400
    by_heart = rows[
        (rows["target"] == "control-task") & (rows["metric"] == "token-accuracy") & rows["draw"].isna()
    ].set_index("layer")
    assert by_heart.loc[0, "value"] > 0.9  # 32 dimensions tell its forty words apart
    with pytest.raises(UsageError, match="leave out --pooling"):
        probe(*caches["cats"], pooling="mean")
    shown = call(
        "probe", *caches["cats"], "--out", tmp_path / "cats.parquet", "--controls", 1, "--layers", 0, "--resamples", 0
    )
    head = r"span-f1\s+shuffled\s+token-accuracy\s+control-task"  # tags of types say nothing of spans
    assert re.search(head, shown.out)


@pytest.mark.slow
def test_pieces_of_texts_to_attend_to(caches, tiny_bert, tmp_path, call):
    out = tmp_path / "rows.csv"
    texts = word_caches(tmp_path, tiny_bert, tokens=True)
    how = ("--estimator", "attention", "--layers", 1, "--penalties", "3", "--controls", 0, "--resamples", 0)
    assert call("probe", *texts, "--out", out, *how).status == 0
    rows = gold(read_rows(out), "accuracy").set_index("layer_name")
    assert rows.at["1", "estimator"] == "attention"
    assert rows.at["1", "representation"] == "piece"
    assert rows.at["1", "value"] > 0.9  # one word says the label
    values = {}
    for scores in ("mean", "rolling:50"):  # no text has 50 pieces
        assert call("probe", *texts, "--out", out, "--estimator", "monitor", "--scores", scores, *how[2:]).status == 0
        rows = gold(read_rows(out), "accuracy").set_index("layer_name")
        assert rows.at["1", "estimator"] == f"monitor {scores}"
        values[scores] = rows.at["1", "value"]
    assert call("probe", *texts, "--out", out, *how[2:]).status == 0  # logistic regression on the mean
    assert (
        values["mean"]
        == values["rolling:50"]
        == gold(read_rows(out), "accuracy").set_index("layer_name").at["1", "value"]
    )
    with pytest.raises(UsageError, match="probes and monitors read whole texts, and sequence-labelling labels words"):
        probe(*caches["cats"], estimator="attention")
    with pytest.raises(UsageError, match="read the pieces of one sequence, not --pooling"):
        probe(*texts, estimator="attention", pooling="mean")
    with pytest.raises(UsageError, match="has no token vectors; create a cache with --tokens"):
        probe(*caches["bert"], estimator="attention")


def test_what_cannot_be_probed(caches, tmp_path, call):
    with pytest.raises(CacheMismatch, match="the first was made with the trained weights of bert, the second with"):
        probe(caches["bert"][0], caches["random"][1])
    with pytest.raises(UsageError, match="unknown metric 'acuracy'; did you mean accuracy"):
        probe(*caches["bert"], metrics=["acuracy"])
    with pytest.raises(UsageError, match="it must be one of logistic|did you mean"):
        probe(*caches["bert"], estimator="svm")
    for words, sentence in {
        ("--penalties", "1,x"): "x",
        ("--out", tmp_path / "rows.txt"): ".parquet or .csv",
        ("--estimator", "svm"): "svm",
        ("--choose-by", "acuracy"): "--choose-by must be log-loss or",
        ("--fold", 3): "did you mean",
    }.items():
        refused = call("probe", *caches["bert"], *words)
        assert refused.status == 2
        assert sentence in refused.err
        assert "Traceback" not in refused.err


@pytest.mark.slow
def test_caches_of_different_layers(caches, tiny_model, tmp_path, call):
    some = [
        word_caches(tmp_path, tiny_model("bert"), name=name, layers=layers)
        for name, layers in (("a", "0,2"), ("b", "1"))
    ]
    train, dev = some[0][0], caches["bert"][1]
    refused = call("probe", train, dev)
    assert refused.status == 2
    assert refused.err.splitlines()[-1] == (
        f"probekit: {train} holds layers 0, 2, {dev} 0, 1, 2, 3. Give --layers with those both hold (0,2), or cache "
        "both with the same --layers."
    )
    with pytest.raises(CacheMismatch, match=r"b.dev.h5 1\. Cache both with the same --layers\.$"):
        probe(train, some[1][1])
    how = {"resamples": 0, "controls": 0, "layers": "2,0"}
    both, whole = probe(train, dev, **how).rows, probe(*caches["bert"], **how).rows
    assert gold(both, "accuracy")["layer_name"].tolist() == ["", "0", "2"]
    assert both["value"].tolist() == whole["value"].tolist()
    assert probe(caches["bert"][0], some[0][1], **how).rows["value"].tolist() == whole["value"].tolist()
    assert call("probe", train, dev, "--layers", "0,2", "--controls", 0, "--resamples", 0).status == 0
    for pair in ((train, dev), (caches["bert"][0], some[0][1])):
        with pytest.raises(UsageError, match=r"a\.(train|dev)\.h5 has no layer '?1'?; it has 0, 2"):
            probe(*pair, layers="0-2")


@pytest.mark.slow
def test_a_result_is_worked_with(caches, tmp_path):
    result = probe(*caches["gpt2"], resamples=100, controls=2, folds=3)
    out = tmp_path / "rows.parquet"
    difference = result.compare("shuffled", resamples=200)
    assert set(difference.rows["metric"]) == {"difference(accuracy)"}
    assert layer_labels(difference.rows).tolist() == ["0", "1", "2", "3", "final_norm"]
    assert set(result.summary(resamples=200).rows["metric"]) > {"best-layer", "first-good-layer"}
    best = result.best()
    assert (best.groupby("metric").size() == 1).all()
    mpl.use("agg")
    assert result.plot().axes[0].get_ylabel().startswith("Accuracy")
    saved = result.save(out)
    for given in (saved, out, str(out), tmp_path / "rows.examples.parquet", saved.predictions[0]):
        again = probekit.compare(given, against="shuffled", resamples=200)
        assert again.rows["value"].tolist() == difference.rows["value"].tolist()
    read = probekit.read(out)
    assert read.recipe == saved.recipe
    assert len(repr(read)) < 200
    page = read._repr_html_()
    assert len(page) < 20_000
    assert probekit.compare(saved, out, resamples=200).rows["value"].abs().max() == 0
    assert [r.kind for r in probekit.compare(out, resamples=200).reads] == ["predictions"]
    nested = Recipe.from_json(json.loads(json.dumps(difference.recipe.to_json()))).run()
    assert nested.rows["value"].tolist() == difference.rows["value"].tolist()


def test_a_result_shows_itself_escaped(caches):
    result = probe(*caches["bert"], resamples=0, controls=0, layers=[0])
    evil = "<script>alert(1)</script>"
    rows = result.rows.assign(task=evil, model=evil)
    for shown in (type(result)(rows)._repr_html_(), replace(result, rows=rows, predictions=())._repr_html_()):
        assert evil not in shown
        assert html.escape(evil) in shown


@pytest.mark.slow
def test_a_result_shows_what_its_title_does_not_say(caches, tmp_path):
    result = probe(*caches["bert"], resamples=200, controls=2, layers=[0, 1])
    both = probe(*caches["bert"], *caches["random"], resamples=0, controls=0, layers=[0, 1])
    heads = [re.findall("<th[^>]*>(.*?)</th>", one._repr_html_()) for one in (result, both)]
    assert heads[0][:2] == ["layer", "accuracy"]
    assert [head.count("layer") for head in heads] == [1, 2]  # a table for each model
    difference = result.compare("shuffled", resamples=200)
    assert "difference" in difference._repr_html_()
    assert "<code>" not in difference._repr_html_()  # an unsaved result has no words on a command line
    saved = result.save(tmp_path / "rows.parquet").compare("shuffled", resamples=200)
    assert f"<code>probekit compare {tmp_path / 'rows.parquet'}" in saved._repr_html_()


OWN = ("seconds", "created", "rows")
"""What differs between two cards of the same work, beside the file's name."""


@pytest.mark.slow
def test_script_command_and_another_process_leave_the_same_card(caches, tmp_path):
    options = {"folds": 3, "layers": (0, -1), "resamples": 100, "controls": 1}
    words = ["probe", *map(str, caches["bert"]), "--folds", "3", "--layers", "0,-1", "--resamples", "100"]
    words += ["--controls", "1", "--out"]
    cards = []
    probe(*caches["bert"], **options, out=tmp_path / "script.parquet")
    assert main([*words, str(tmp_path / "command.parquet")]) == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run = [sys.executable, "-m", "probekit", *words, str(tmp_path / "process.parquet")]
    subprocess.run(run, cwd=elsewhere, check=True, capture_output=True)
    for name in ("script", "command", "process"):
        card = read_card(tmp_path / f"{name}.parquet")
        text = json.dumps({k: v for k, v in card.items() if k not in OWN})
        cards.append(text.replace(f"{name}.parquet", "FILE"))
    assert cards[0] == cards[1] == cards[2]


@pytest.mark.slow
def test_predictions_belong_to_their_rows_alone(caches, tmp_path):
    few = probe(*caches["bert"], layers=[0], controls=0, resamples=0).save(tmp_path / "x.csv")
    many = probe(*caches["bert"], layers=[0, 1], controls=1, resamples=0).save(tmp_path / "x.parquet")
    assert len(read(few.path).predictions[0]) == len(few.predictions[0])
    assert len(read(many.path).predictions[0]) == len(many.predictions[0])
    other = tmp_path / "mine.examples.parquet"
    other.write_text("notes of mine")
    with pytest.raises(UsageError, match="is not a file of evaluated examples"):
        many.save(tmp_path / "mine.parquet")
    assert other.read_text() == "notes of mine"


@pytest.mark.slow
def test_what_was_overwritten_since_is_told_by_its_recipe(caches, tmp_path):
    first = probe(*caches["bert"], layers=[0, 1], controls=2, out=tmp_path / "x.parquet")
    assert first.compare("shuffled").recipe.arguments["first"] == str(tmp_path / "x.parquet")
    probe(*caches["bert"], layers=[0], controls=0, out=tmp_path / "x.parquet")
    told = first.compare("shuffled").recipe.arguments["first"]
    assert told["recipe"]["arguments"]["controls"] == 2


@pytest.mark.parametrize("command", ["probe TRAIN.h5 DEV.h5", "mi TRAIN.h5", "mdl TRAIN.h5"])
def test_several_poolings_are_refused_with_what_to_do(command, capsys):
    assert main([*command.split(), "--pooling", "last,mean"]) == 2
    message = capsys.readouterr().err
    assert (
        "an analysis has one pooling, not last,mean. Run it once for each, with --pooling last and another" in message
    )
    assert message.rstrip().endswith("plot layers draws the rows of both, and compare tests their difference.")
