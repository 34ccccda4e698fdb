"""``probekit explain`` through the front door: a planted length, a pure label, pieces, the lens, and refusals."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM

import probekit
from probekit.activations import ActivationCache
from probekit.cli import main
from probekit.errors import ModelError, UsageError
from probekit.models.find import resolve_model
from probekit.models.scoring.lens import lens

QUICK = {"layer": "2", "draws": 99, "resamples": 200, "top": 3}


def shares(rows, *, with_label):
    own = rows[(rows["metric"] == "semi-partial-r2") & (rows["with_label"].astype("boolean") == with_label)]
    return own.set_index("predictor")


def measured(cache):
    """Length, mean log frequency and label of the texts of a cache, in plain Python."""
    texts = [list(pieces) for (ragged,) in [cache.pieces] for pieces in ragged]
    every = [piece for text in texts for piece in text]
    count = {piece: every.count(piece) for piece in set(every)}
    frequency = [np.mean([np.log2(count[piece]) for piece in text]) for text in texts]
    return np.array([len(text) for text in texts], float), np.array(frequency), cache.labels.astype(float)


def planted(monkeypatch, folder, scores):
    """The cache gives vectors of layer 2 that have these scores."""
    direction = probekit.load_probe(folder, 2).direction.astype(float)
    x = (np.outer(scores, direction) / (direction @ direction)).astype(np.float32)
    monkeypatch.setattr(ActivationCache, "layer", lambda self, name, pooling=None: x)


def without(x, y, left_out):
    """Semi-partial R² by least squares, twice."""

    def r2(columns):
        a = np.column_stack([np.ones(len(y)), *columns])
        rest = y - a @ np.linalg.lstsq(a, y, rcond=None)[0]
        return 1 - (rest @ rest) / ((y - y.mean()) @ (y - y.mean()))

    return r2(x.values()) - r2([column for name, column in x.items() if name != left_out])


def test_a_planted_length_is_found_with_the_share_of_least_squares(kept, caches, monkeypatch, tmp_path, capsys):
    length, frequency, label = measured(caches["dev"])
    noise = np.random.default_rng(0).normal(size=len(length))
    scores = 2 * length + 0.5 * label + noise
    planted(monkeypatch, kept[0], scores)
    out = tmp_path / "rows.parquet"
    how = ["--layer", "2", "--draws", "99", "--resamples", "200", "--top", "3", "--out", str(out)]
    assert main(["explain", str(kept[0]), str(caches["dev"].path), *how]) == 0
    said = capsys.readouterr().out
    assert "length goes with" in said
    rows = probekit.read_rows(out)
    x = {"length": length, "frequency": frequency}
    for with_label, predictors in ((False, x), (True, x | {"label": label})):
        found = shares(rows, with_label=with_label)
        for name in predictors:
            assert found["value"][name] == pytest.approx(without(predictors, scores, name), abs=1e-4)  # float32
        assert 1 / 100 <= found["p"]["length"] <= 0.05  # 13 groups
        assert found["ci_low"]["length"] < found["value"]["length"] < found["ci_high"]["length"]
        assert (found["tests"] == len(predictors)).all()
    assert shares(rows, with_label=True)["slope"]["length"] == pytest.approx(2, abs=0.2)
    ends = rows[rows["metric"] == "probe-score"]
    assert ends["place"].tolist() == [1, 2, 3, 1, 2, 3]
    assert ends["example"].iloc[0] == caches["dev"].ids[scores.argmax()]
    assert ends["example"].iloc[3] == caches["dev"].ids[scores.argmin()]


def test_a_score_that_is_the_label_does_not_go_with_length(kept, caches, monkeypatch):
    _, _, label = measured(caches["dev"])
    planted(monkeypatch, kept[0], label + np.random.default_rng(1).normal(size=len(label)) / 4)
    result = probekit.explain(kept[0], caches["dev"], **QUICK)
    found = shares(result.rows, with_label=True)
    assert found["value"]["length"] < 0.02
    assert found["p_adjusted"]["length"] > 0.05
    assert found["ci_low"]["length"] == 0
    assert found["value"]["label"] > 0.5
    assert found["p_adjusted"]["label"] <= 0.05
    assert "length is not shown to go with any of it beyond frequency and the label" in result.verdict[-1]
    again = probekit.explain(kept[0], caches["dev"], **QUICK)
    assert again.rows.equals(result.rows)


def test_texts_tasks_and_pieces(kept, encoder, tmp_path):
    lines = [f"the {'old ' * (i % 4)}cat {('sees', 'runs', 'sleeps')[i % 3]}" for i in range(20)]
    (tmp_path / "texts.txt").write_text("\n\n".join(lines) + "\n")
    rows = probekit.explain(kept[0], tmp_path / "texts.txt", model=encoder, **QUICK).rows
    assert shares(rows, with_label=False).index.tolist() == ["length", "frequency"]
    assert shares(rows, with_label=True).empty
    scored = probekit.apply(kept[0], tmp_path / "texts.txt", model=encoder, layer="2").rows
    best = scored.loc[scored["value"].idxmax()]
    first = rows[rows["metric"] == "probe-score"].iloc[0]
    assert (first["text"], first["value"]) == (best["text"], pytest.approx(best["value"], rel=1e-5))
    result = probekit.explain(kept[0], tmp_path / "texts.txt", model=encoder, by="piece", **QUICK)
    found = shares(result.rows, with_label=False)
    assert found.index.tolist() == ["length", "position", "frequency"]
    pieces = probekit.apply(kept[0], tmp_path / "texts.txt", model=encoder, layer="2", by="piece").rows
    top = pieces.loc[pieces["value"].idxmax()]
    first = result.rows[result.rows["metric"] == "probe-score"].iloc[0]
    assert (first["piece"], first["value"]) == (top["piece"], pytest.approx(top["value"]))
    assert first["text"] in lines
    assert "nan" not in str(
        [row for grid, _ in probekit.view.tables("explain", rows, {"level": None}) for row in grid.rows]
    )
    titles = [grid.title for grid, _ in probekit.view.tables("explain", result.rows, {"level": 0.95})]
    assert len(titles) == 2
    labelled = [{"sentence": text, "label": ("negative", "positive")[i % 2]} for i, text in enumerate(lines)]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, labelled)))
    (tmp_path / "own.toml").write_text('text = "sentence"\nlabel = "label"\nsplits = {dev = "own.jsonl"}\n')
    task = probekit.explain(kept[0], tmp_path / "own.toml", model=encoder, **QUICK)
    assert shares(task.rows, with_label=True).index.tolist() == ["length", "frequency", "label"]
    assert task.rows["text"].iloc[0] in lines


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def decoder(request, tmp_path_factory):
    return tiny.tiny_language_model(request.param, tmp_path_factory.mktemp("lm") / request.param, causal=True)


def test_a_row_of_the_head_has_its_own_piece_first(decoder, tmp_path):
    net = AutoModelForCausalLM.from_pretrained(decoder)
    rows = net.get_output_embeddings().weight.detach().numpy()
    found = lens(resolve_model(decoder), rows[17], normed=True)
    assert found.products.argmax() == 17
    assert found.norm == ""
    own = lens(resolve_model(decoder), rows[17])
    assert own.norm == {"llama": "RMSNorm", "gpt2": "LayerNorm"}[decoder.name]
    norm = net.model.norm if decoder.name == "llama" else net.transformer.ln_f
    d = torch.from_numpy(rows[17] / np.linalg.norm(rows[17]))
    d = norm.weight.detach() * (d - d.mean() if decoder.name == "gpt2" else d)
    by_hand = rows @ d.numpy()
    np.testing.assert_allclose(own.products, (by_hand - by_hand.mean())[: len(own.pieces)], atol=1e-4)
    cache = {
        split: probekit.cache_activations(
            decoder, "grammar:sentiment", split, limit=40, out=tmp_path / f"{split}.h5", device="cpu"
        )
        for split in ("train", "dev")
    }
    kept = probekit.probe(cache["train"], cache["dev"], layers="2", controls=0, resamples=0).probe(layer=2)
    arrays = {**kept.weights.arrays, "weight": rows[17:18] * np.float32(3)}
    planted_probe = replace(kept, weights=replace(kept.weights, arrays=arrays))
    result = probekit.explain(planted_probe, cache["dev"], lens=True, model=decoder, draws=19, resamples=0)
    products = result.rows[result.rows["metric"] == "lens-product"]
    assert products["piece"].iloc[0] == own.pieces[int(own.products.argmax())]
    assert products["place"].tolist() == [*range(1, 11)] * 2
    assert products["p"].notna().sum() == 2
    assert "in the vocabulary" in result.verdict[-1]
    assert [grid.title for grid, _ in probekit.view.tables("explain", result.rows, {"level": None})][2].endswith(
        "vocabulary"
    )


def test_refusals(kept, caches, encoder, tmp_path, monkeypatch):
    folder = kept[0]
    with pytest.raises(UsageError, match=r"has no head of a language model .*leave out --lens"):
        probekit.explain(folder, caches["dev"], lens=True, model=encoder, **QUICK)
    with pytest.raises(ModelError, match="Give its folder with --model"):
        probekit.explain(folder, caches["dev"], lens=True, **QUICK)
    with pytest.raises(UsageError, match="leave out --split and --by"):
        probekit.explain(folder, caches["dev"], by="piece", **QUICK)
    probe = probekit.load_probe(folder, 2)
    several = replace(probe, card={**probe.card, "classes": ["a", "b", "c"]})
    with pytest.raises(UsageError, match="the probe says 3 classes or labels of a text; explain needs a single score"):
        probekit.explain(several, caches["dev"], **QUICK)
    words = replace(probe, card={**probe.card, "vectors": {**probe.card["vectors"], "words": True}})
    with pytest.raises(UsageError, match="scores words or spans"):
        probekit.explain(words, caches["dev"], **QUICK)
    (tmp_path / "same.txt").write_text("the cat\n" * 8)
    with pytest.raises(UsageError, match="are the same everywhere; give other texts"):
        probekit.explain(folder, tmp_path / "same.txt", model=encoder, **QUICK)
    monkeypatch.setattr(ActivationCache, "has_pieces", False)
    with pytest.raises(UsageError, match="does not say which pieces its texts have"):
        probekit.explain(folder, caches["dev"], **QUICK)
