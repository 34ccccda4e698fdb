"""From a task in text to rows and a figure, through the front door, with tiny models whose layers see every word."""

import json

import numpy as np
import pytest
import typer
from tiny import WORDS
from typer.testing import CliRunner

from probekit.activations import ActivationCache, cache_activations
from probekit.cli import plot
from probekit.cli.probe import probe_command
from probekit.errors import CacheMismatch, UsageError
from probekit.rows import read_card, read_rows
from probekit.studies.layers import probe
from probekit.tasks.task import Example, Kind, Split, Task

PLAIN = [w for w in WORDS if w.isalpha() and w not in ("good", "cat")]
app = typer.Typer()
app.command("probe")(probe_command)
app.add_typer(plot.app, name="plot")


def toy_task(kind=Kind.CLASSIFICATION):
    """Is "good" in the sentence? Or, word by word: is this a cat?"""
    rng = np.random.default_rng(0)

    def example(i):
        words = list(rng.choice(PLAIN, size=5))
        label = int(rng.random() < 0.5)
        if label:
            words[rng.integers(5)] = "cat" if kind is Kind.SEQUENCE_LABELLING else "good"
        if kind is Kind.SEQUENCE_LABELLING:
            return Example(str(i), " ".join(words), tuple(int(w == "cat") for w in words), words=tuple(words))
        return Example(str(i), " ".join(words), label if i else None)

    splits = {name: Split(name, tuple(example(i) for i in range(n))) for name, n in (("train", 160), ("dev", 80))}
    if kind is Kind.SEQUENCE_LABELLING:
        return Task("cats", kind, splits, ("O", "B-CAT"), ("span-f1", "token-accuracy"))
    return Task("good", kind, splits, ("no", "yes"), ("accuracy", "f1"))


@pytest.fixture(scope="module")
def caches(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("caches")

    def make(name, split, **options):
        task = toy_task(options.pop("kind", Kind.CLASSIFICATION))
        with cache_activations(
            options.pop("model"), task, split, out=folder / f"{name}.{split}.h5", **options
        ) as cache:
            return cache.path

    kinds = {
        "bert": {"model": tiny_model("bert")},
        "gpt2": {"model": tiny_model("gpt2")},
        "cats": {"model": tiny_model("bert"), "kind": Kind.SEQUENCE_LABELLING, "pooling": (), "tokens": "word-first"},
        "random": {"model": tiny_model("bert"), "random_weights": 3},
    }
    return {name: tuple(make(name, s, **how) for s in ("train", "dev")) for name, how in kinds.items()}


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_from_caches_to_rows_and_figures(caches, tmp_path):
    out = tmp_path / "rows.parquet"
    result = call("probe", *caches["bert"], "--out", out, "--resamples", 50, "--seed", 2)
    assert result.exit_code == 0
    assert "majority" in result.output
    assert "accuracy" in result.output
    assert "unlabelled, left out: 1 in train, 1 in dev" in result.output
    rows = read_rows(out)
    assert rows["layer_name"].tolist() == [n for n in ("", "0", "1", "2", "3") for _ in ("accuracy", "f1")]
    assert rows["n"].tolist() == [79] * 10
    best = rows[rows["metric"] == "accuracy"].set_index("layer_name")["value"]
    assert best["0"] > best[""] + 0.2  # the mean of the embeddings holds the word
    card = read_card(out)
    with ActivationCache(caches["bert"][0]) as cache:
        assert card["caches"][0]["spec_id"] == cache.spec_id
    assert card["seeds"] == {"seed": 2}
    again = probe(*caches["bert"], resamples=50, seed=2)
    assert again["value"].tolist() == rows["value"].tolist()

    more = tmp_path / "more.csv"
    assert call("probe", *caches["random"], "--out", more, "--resamples", 0).exit_code == 0
    figures = [tmp_path / f"figure{suffix}" for suffix in (".pdf", ".png", ".svg")]
    result = call("plot", "layers", out, more, *(word for f in figures for word in ("--out", f)))
    assert result.output.split() == [str(f) for f in figures]
    assert b"%PDF" in figures[0].read_bytes()[:8]
    assert "random weights 3" in figures[2].read_text()


def test_default_figures(caches, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call("probe", *caches["bert"], "--out", "r.csv", "--resamples", 0, "--layers", "0,3", "--metrics", "f1")
    assert call("plot", "layers", "r.csv").output.split() == ["figures/layers.pdf", "figures/layers.png"]
    assert json.loads((tmp_path / "r.json").read_text())["arguments"]["layers"] == ["0", "3"]


def test_final_norm_has_a_row(caches):
    rows = probe(*caches["gpt2"], resamples=0)
    assert rows["layer_name"].iloc[-1] == "final_norm"


def test_words_of_a_token_cache(caches):
    rows = probe(*caches["cats"], resamples=20)
    values = rows[rows["metric"] == "span-f1"].set_index("layer_name")["value"]
    assert values[""] == 0
    assert values["0"] == 1.0  # layer 0 is the word's embedding and its place
    assert rows["n"].iloc[0] == 400
    with pytest.raises(UsageError, match="no pooling to choose"):
        probe(*caches["cats"], pooling="mean")


def test_what_cannot_be_probed(caches, tmp_path):
    with pytest.raises(CacheMismatch, match="random_weights is None in train"):
        probe(caches["bert"][0], caches["random"][1])
    with pytest.raises(UsageError, match="unknown metric 'acuracy'; did you mean accuracy"):
        probe(*caches["bert"], metrics=["acuracy"])
    with pytest.raises(UsageError, match="'x' is none"):
        call("probe", *caches["bert"], "--penalties", "1,x")
    with pytest.raises(UsageError, match=r"\.parquet or \.csv"):
        call("probe", *caches["bert"], "--out", tmp_path / "rows.txt")
