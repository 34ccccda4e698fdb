"""Kept probes on caches, tasks and texts: the scores that probe computed, and refusals."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
import tiny

import probekit
from probekit.cli import main
from probekit.errors import CacheMismatch, DataError, ModelError, UsageError
from probekit.metrics import metric
from probekit.tasks.task import Example, Split, Task, TaskKind

TASK = "grammar:sentiment"


def fitted(caches, **how):
    how = {"controls": 0, "resamples": 200, "layers": "1,2", **how}
    return probekit.probe(caches["train"], caches["dev"], **how)


def gold(result, layer):
    """The row of predictions of gold labels at a layer."""
    found = result.predictions[0]
    fits = found.fits
    return found, int(fits.index[(fits["layer"] == layer) & (fits["target"] == "gold")][0])


def scores(result):
    return result.rows[result.rows["metric"] == "probe-score"]


def test_a_cache_has_the_scores_that_probe_computed(kept, caches):
    folder, result = kept
    found = probekit.apply(folder, caches["dev"], layer="2", resamples=200)
    predictions, i = gold(result, 2)
    np.testing.assert_array_equal(found.predictions[0].predicted[0], predictions.predicted[i])
    np.testing.assert_array_equal(found.predictions[0].log_loss[0], predictions.log_loss[i])
    rows = scores(found)
    assert rows["example"].tolist() == caches["dev"].ids.tolist()
    positive = 1 / (1 + np.exp(-rows["value"].to_numpy()))
    np.testing.assert_allclose(np.maximum(positive, 1 - positive), rows["probability"], rtol=1e-5)
    first = found.rows.iloc[0]
    own = result.rows[(result.rows["layer"] == 2) & (result.rows["metric"] == first["metric"])].iloc[0]
    for name, value in (("kept", "value"), ("kept_low", "ci_low"), ("kept_high", "ci_high")):
        assert first[name] == own[value]
    assert first["value"] == own["value"]
    assert "when it was kept" in found.verdict[0]
    assert len(found.predictions[0].ids) == 120


def test_a_task_and_its_texts_have_the_same_scores(kept, caches, encoder, tmp_path):
    folder, _ = kept
    right = scores(probekit.apply(folder, caches["dev"], layer="2", resamples=0))["value"].to_numpy()
    task = probekit.load_task(TASK)
    some = replace(
        task, splits={"dev": Split("dev", tuple(e for e in task.split("dev") if e.id in {*caches["dev"].ids}))}
    )
    found = probekit.apply(folder, some, layer="2", resamples=0, model=encoder)
    np.testing.assert_array_equal(scores(found)["value"].to_numpy(), right)
    texts = [e.text for e in some.split("dev")]
    table = probekit.load_probe(folder, 2).score(texts, model=encoder)
    np.testing.assert_array_equal(table["score"].to_numpy(), right.astype(np.float32))
    assert {*table["class"]} <= {"negative", "positive"}
    (tmp_path / "texts.txt").write_text("\n".join(texts[:5]) + "\n")
    rows = scores(probekit.apply(folder, tmp_path / "texts.txt", layer="2", model=encoder))
    np.testing.assert_array_equal(rows["value"].to_numpy(), right[:5])


def test_pieces(kept, encoder, tmp_path):
    """Of the mean of a text's pieces, a linear score is the mean of those of the pieces."""
    probe = probekit.load_probe(kept[0], 1)
    texts = ["the cat sees a dog", "a dog"]
    whole = probe.score(texts, model=encoder)
    pieces = probe.score(texts, model=encoder, by="piece")
    np.testing.assert_allclose(pieces.groupby("id")["score"].mean(), whole["score"], atol=1e-5)
    assert len(pieces) == sum(len(text.split()) for text in texts)
    examples = tuple(Example(str(i), text) for i, text in enumerate(texts))
    task = Task("texts", TaskKind.CLASSIFICATION, {"dev": Split("dev", examples)}, ("negative", "positive"))
    cache = probekit.cache_activations(encoder, task, "dev", tokens=True, out=tmp_path / "pieces.h5")
    rows = np.concatenate([np.asarray(cache.tokens(1)[i]) for i in range(len(texts))])
    places = zip(cache.index("start"), cache.index("length"), strict=True)
    special = np.concatenate([cache.special_rows()[start : start + length] for start, length in places])
    right = probe.weights.of_pieces(rows[~special])[:, 0]
    np.testing.assert_array_equal(pieces["score"].to_numpy(), right)  # the model reads these with the same bits
    assert [*pieces.columns] == ["id", "piece", "score"]


@pytest.mark.parametrize("estimator", ["mass-mean", "k-sparse", "mlp", "attention", "monitor"])
def test_each_estimator(estimator, caches, encoder, tmp_path):
    result = fitted(caches, estimator=estimator, layers="2", keep=tmp_path / "kept", resamples=0)
    found = probekit.apply(tmp_path / "kept", caches["dev"], resamples=0)
    predictions, i = gold(result, 2)
    np.testing.assert_array_equal(found.predictions[0].log_loss[0], predictions.log_loss[i])
    texts = [e.text for e in probekit.load_task(TASK).split("dev") if e.id in {*caches["dev"].ids}]
    table = probekit.load_probe(tmp_path / "kept").score(texts, model=encoder)
    np.testing.assert_allclose(table["score"], scores(found)["value"], atol=1e-5)


def test_cards(kept):
    card = json.loads((kept[0] / "probe.json").read_text())["probes"][1]
    assert card["layer"] == "2"
    assert card["classes"] == ["negative", "positive"]
    assert card["encoder"]["pooling"] == "mean"
    assert "tokens" not in card["encoder"]
    assert sum(one["n"] for one in card["reliability"]) == 120
    for one in card["thresholds"]:
        if one["threshold"] is None:
            assert one["rate"] * one["negatives"] < 1
            assert "cannot resolve" in one["why"]
            continue
        assert one["rate_low"] < one["rate"] < one["rate_high"]
    assert card["metrics"][0]["metric"] == metric(card["metrics"][0]["metric"]).name
    with pytest.raises(UsageError, match="cannot resolve it"):
        probekit.load_probe(kept[0], 2).threshold(0.01)


def test_another_model_is_refused_unless_asked(kept, caches, encoder, tmp_path):
    folder, _ = kept
    other = tiny.tiny_model("bert", tmp_path / "other", seed=7)
    with pytest.raises(UsageError, match="fitted on other vectors: the model's weights"):
        probekit.apply(folder, TASK, model=other, layer="2")
    with pytest.raises(ModelError, match="Give its folder with --model"):
        probekit.load_probe(folder).score(["x"])
    small = probekit.load_task(TASK)
    small = replace(small, splits={"dev": Split("dev", small.split("dev").examples[:30])})
    assert len(probekit.apply(folder, small, model=other, layer="2", anyway=True, resamples=0).rows)
    cut = probekit.cache_activations(encoder, small, "dev", pooling="first", out=tmp_path / "first.h5")
    with pytest.raises(CacheMismatch, match=r"pooling \(mean, now \['first'\]\)"):
        probekit.apply(folder, cut)


def test_other_data_are_refused(kept, encoder, caches, tmp_path):
    probe = probekit.load_probe(kept[0], 2)
    for texts, why in (
        ("one text", "give a list of texts"), ([], "no texts to score"), ([("a", "b")], "fitted on single texts"),
        ([["a", "b"]], "fitted on texts"), ([3], "text 0 is 3"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            probe.score(texts, model=encoder)
    with pytest.raises(UsageError, match="by is 'word'"):
        probe.score(["a"], by="word")
    other = Task(
        "other", TaskKind.CLASSIFICATION, {"dev": Split("dev", (Example("1", "the cat", 0),))}, ("good", "bad")
    )
    with pytest.raises(UsageError, match="the classes good, bad, which the probe does not know"):
        probekit.apply(probe, other, model=encoder)
    with pytest.raises(UsageError, match="a cache has one split"):
        probekit.apply(probe, caches["dev"].path, split="dev")


def test_words_and_numbers(encoder, tmp_path):
    """A probe of words scores lists of words, one of numbers gives numbers."""

    def tagged(name, i):
        words = (*("the cat sees a dog" if i % 2 else "a dog").split(), str(i))
        return Example(f"{name}{i}", " ".join(words), tuple(int(word == "dog") for word in words), words=words)

    splits = {name: Split(name, tuple(tagged(name, i) for i in range(40))) for name in ("train", "dev")}
    tags = Task("tags", TaskKind.SEQUENCE_LABELLING, splits, ("other", "dog"))
    made = {s: probekit.cache_activations(encoder, tags, s, out=tmp_path / f"tags.{s}.h5") for s in tags.splits}
    result = fitted(made, layers="0", any_split=True, metrics="accuracy", resamples=0)
    table = result.probe(0).score([[*e.words] for e in splits["dev"]], model=encoder)
    assert table["id"].tolist()[:4] == ["0", "0", "0", "1"]
    right = probekit.apply(result.probe(0), made["dev"], resamples=0, seed=1)
    np.testing.assert_array_equal(table["score"].astype(float), scores(right)["value"])
    assert scores(right)["example"].tolist()[:4] == ["dev0:0", "dev0:1", "dev0:2", "dev1:0"]
    lengths = Task("length", TaskKind.REGRESSION, {
        name: Split(name, tuple(
            Example(f"{name}{i}", "dog " * (1 + i % 9) + f"cat {i}", float(i % 9)) for i in range(40)
        )) for name in ("train", "dev")
    }, ())  # fmt: skip
    made = {s: probekit.cache_activations(encoder, lengths, s, out=tmp_path / f"n.{s}.h5") for s in lengths.splits}
    result = fitted(made, layers="1", any_split=True, metrics="pearson", resamples=0)
    probe = result.probe(1)
    assert [*probe.score(["dog dog cat"], model=encoder).columns] == ["id", "score"]
    found = probekit.apply(probe, made["dev"], resamples=0)
    np.testing.assert_array_equal(scores(found)["value"], gold(result, 1)[0].predicted[gold(result, 1)[1]])
    with pytest.raises(UsageError, match="no probabilities"):
        probe.predict_proba(made["dev"].layer(1))


def test_a_line_in_a_line_out(kept, encoder, tmp_path, monkeypatch, capsys):
    """Plain texts, JSON, and lines that cannot be read, each answered at once."""
    probe = probekit.load_probe(kept[0], 2)
    lines = ["the cat sees a dog", '{"id": "b", "text": "a dog"}', '{"id": 3}', "{", "", '{"text": "x", "pair": "y"}']
    read = []

    def come():
        for line in lines:
            read.append(line)
            yield line + "\n"

    answers = probekit.monitor(probe, come(), model=encoder)
    first = next(answers)
    assert len(read) == 1
    table = probe.score(["the cat sees a dog", "a dog"], model=encoder)
    assert first == {"id": "1", **{k: v for k, v in table.iloc[0].to_dict().items() if k != "id"}}
    rest = list(answers)
    assert rest[0]["score"] == table["score"][1]
    assert [answer["id"] for answer in rest] == ["b", "3", "4", "6"]
    assert all("error" in answer for answer in rest[1:])
    texts, bom = '\ufeff{"id": "b", "text": "a dog"}\n{the cat} sees\n'.encode(), []
    for name, packed in (("bom.jsonl", texts), ("brace.txt", texts[3:]), ("brace.txt.gz", gzip.compress(texts[3:]))):
        (tmp_path / name).write_bytes(packed)
        bom.append(list(probekit.monitor(probe, tmp_path / name, model=encoder)))
    assert (bom[0][0], "error" in bom[0][1]) == (rest[0], True)
    assert bom[1] == bom[2]  # each line of a .txt is a text, as for apply
    found = probekit.apply(probe, tmp_path / "brace.txt", model=encoder).rows["value"]
    np.testing.assert_allclose([answer["score"] for answer in bom[1]], found, rtol=1e-5)
    given = [{"id": "b", "text": "a dog"}, 3]
    assert next(iter(probekit.monitor(kept[0], given, layer=2, model=encoder))) == rest[0]
    assert "found int" in [*probekit.monitor(probe, given, model=encoder)][1]["error"]
    with pytest.raises(DataError, match=r"none.txt: cannot be read: No such file"):
        next(probekit.monitor(probe, tmp_path / "none.txt", model=encoder))
    (tmp_path / "lines.txt").write_bytes(b"the cat sees\n\xff\xfe\na dog\n")
    told = list(probekit.monitor(probe, tmp_path / "lines.txt", model=encoder))
    assert ["error" in one for one in told] == [False, True, False]
    (tmp_path / "harmless.txt").write_text("\n".join(f"the {'cat ' * k}sees" for k in range(1, 21)))
    how = {"model": encoder, "harmless": tmp_path / "harmless.txt", "rule": "max", "rate": 0.1}
    told = list(probekit.monitor(probe, ["the cat sees", "dog dog dog dog"], **how))
    assert all(isinstance(one["alarm"], bool) and np.isfinite(one["highest"]) for one in told)
    assert main(["monitor", str(tmp_path / "none"), "-"]) == 2  # standard input is no option
    assert "none holds no kept probe" in capsys.readouterr().err
