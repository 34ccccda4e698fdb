"""Kept probes on files of texts: ids, texts, blank lines, and cards that can be reproduced."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import probekit
from probekit.errors import DataError, UsageError
from probekit.provenance.reproduce import plan_reproduction
from probekit.tasks.task import Example, Split, Task, TaskKind


def test_ids_and_texts_are_those_of_the_file(kept, encoder, tmp_path):
    """In a table, and for each line of monitor; blank lines are left out and counted."""
    lines = ['{"id": "a7", "text": "the cat, or \\"dog\\""}', "", '{"text": "sees a dog"}', '{"id": 4, "text": " "}']
    (tmp_path / "chats.jsonl").write_text("\n".join(lines) + "\n")
    probekit.apply(kept[0], tmp_path / "chats.jsonl", layer="2", model=encoder, out=tmp_path / "scores.csv")
    rows = pd.read_csv(tmp_path / "scores.csv", dtype={"example": str})
    assert rows["example"].tolist() == ["a7", "3", "4"]
    assert rows["text"].tolist() == ['the cat, or "dog"', "sees a dog", " "]
    assert rows["value"].notna().tolist() == [True, True, False]
    assert rows["predicted"].notna().tolist() == [True, True, False]
    answers = list(probekit.monitor(kept[0], tmp_path / "chats.jsonl", layer="2", model=encoder))
    assert [answer["id"] for answer in answers] == ["a7", "3", "4"]
    np.testing.assert_allclose([answers[i]["score"] for i in (0, 1)], rows["value"][:2], rtol=1e-6)
    assert "blank" in answers[2]["error"]
    plain = tmp_path / "chats.txt"
    plain.write_text("\n  \nthe cat\n\nsees a dog")
    found = probekit.apply(kept[0], plain, layer="2", model=encoder)
    assert found.rows["example"].tolist() == ["3", "5"]
    assert [answer["id"] for answer in probekit.monitor(kept[0], plain, layer="2", model=encoder)] == ["3", "5"]
    pieces = probekit.apply(kept[0], plain, layer="2", model=encoder, by="piece").rows
    assert pieces[["example", "piece"]].to_numpy().tolist()[:3] == [["3", "the"], ["3", "cat"], ["5", "sees"]]


def test_cut_texts_and_ids_that_occur_twice_are_said(kept, encoder, tmp_path, caplog):
    """In the rows; a file of texts has no splits, and attention probes score no pieces."""
    texts = [{"id": "a", "text": "the cat"}, {"id": "a", "text": "cat " * 5000}, {"id": "b", "text": " "}]
    file = tmp_path / "chats.jsonl"
    file.write_text("\n".join(map(json.dumps, texts)))
    rows = probekit.apply(kept[0], file, layer=2, model=encoder).rows
    assert rows["truncated"].tolist() == [False, True, False]
    assert "1 of 3 ids occur before" in caplog.text
    pieces = probekit.apply(kept[0], file, layer=2, model=encoder, by="piece").rows
    assert pieces["truncated"].sum() == len(pieces) - 2
    with pytest.raises(UsageError, match=r"chats.jsonl is a file of texts, which has no splits"):
        probekit.apply(kept[0], file, layer=2, model=encoder, split="zzz")
    probe = probekit.load_probe(kept[0], 2)
    attention = replace(probe, weights=replace(probe.weights, form="attention"))
    with pytest.raises(UsageError, match="single pieces, which --by piece and alarms read, have a score of linear"):
        attention.alarm(["the cat"] * 100, model=encoder, rate=0.1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no text"), ("\n \n\t\n", "holds no text"), ('\n{"text": 3}', r"line 2: .*text \(int\)"),
        ('{"text": "a"}\n\n{"words": []}', "line 3: "), ('{"text": "a"}\n{', "line 2.*is not JSON"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_read(text, why, kept, encoder, tmp_path):
    (tmp_path / "bad.jsonl").write_text(text)
    with pytest.raises(DataError, match=why):
        probekit.apply(kept[0], tmp_path / "bad.jsonl", model=encoder)


def test_blank_texts_have_no_score(kept, encoder):
    probe = probekit.load_probe(kept[0], 2)
    table = probe.score(["the cat", " \n", ""], model=encoder)
    assert table["score"].notna().tolist() == [True, False, False]
    assert table["id"].tolist() == ["0", "1", "2"]
    assert table["score"][0] == probe.score(["the cat"], model=encoder)["score"][0]
    with pytest.raises(UsageError, match="the texts are blank"):
        probe.score(["", " "], model=encoder)


@pytest.fixture(scope="module")
def applied(kept, model, tmp_path_factory):
    """A probe in its folder, and its scores of a task and of a file of texts, saved."""
    folder = tmp_path_factory.mktemp("applied")
    (folder / "texts.txt").write_text("the cat\na dog\n")
    lines = [{"sentence": f"the {'cat ' * (i % 5)}sees", "label": ("negative", "positive")[i % 2]} for i in range(12)]
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "own.toml").write_text('text = "sentence"\nlabel = "label"\nsplits = {dev = "own.jsonl"}\n')
    probekit.load_probe(kept[0], 2).save(folder / "kept")
    for data in ("own.toml", "texts.txt"):
        how = {"model": str(model), "resamples": 100, "device": "cpu", "out": folder / f"{data}.parquet"}
        probekit.apply(folder / "kept", folder / data, **how)
    return folder


@pytest.mark.parametrize("data", ["own.toml", "texts.txt"])
def test_a_card_names_what_was_read(data, applied, model, tmp_path):
    """And its recipe makes the same rows again; of a task too, whose cache is gone."""
    rows = applied / f"{data}.parquet"
    card = json.loads(rows.with_name(f"{data}.parquet.json").read_text())
    assert [read["kind"] for read in card["reads"]] == ["probe", "data", "model"]
    assert [read["path"] for read in card["reads"]] == [str(p) for p in (applied / "kept", applied / data, model)]
    assert all(read["digest"] for read in card["reads"])
    plan = plan_reproduction(rows, tmp_path / "again")
    assert (plan.missing, plan.changes) == ((), ())
    plan.scratch.mkdir()
    plan.recipe.run()
    pd.testing.assert_frame_equal(pd.read_parquet(plan.made), pd.read_parquet(rows))


@pytest.mark.slow
def test_a_card_is_reproduced(applied):
    assert str(probekit.reproduce(applied / "own.toml.parquet").verdict) == "to the bit"


def test_another_probe_in_the_folder_is_said(applied, kept, tmp_path):
    shutil.rmtree(applied / "kept")
    probekit.load_probe(kept[0], 1).save(applied / "kept")
    changes = plan_reproduction(applied / "own.toml.parquet", tmp_path / "again").changes
    assert "has changed since" in " ".join(changes)
    shutil.rmtree(applied / "kept")
    missing = plan_reproduction(applied / "own.toml.parquet", tmp_path / "again").missing
    assert "apply reads" in missing[0]


def test_rows_of_a_task_have_their_texts(kept, encoder):
    """Also of several tasks, which have no labels."""
    task = probekit.load_task("grammar:sentiment")
    some = replace(task, splits={"dev": Split("dev", task.split("dev").examples[:20])})
    rows = probekit.apply(kept[0], some, layer="2", model=encoder, resamples=0).rows
    rows = rows[rows["metric"] == "probe-score"]
    assert rows["text"].tolist() == [e.text for e in some.split("dev")]
    both = probekit.load_task("grammar:sentiment+grammar:acceptability")
    few = replace(both, splits={"dev": Split("dev", both.split("dev").examples[-20:])})
    rows = probekit.apply(kept[0], few, layer="2", model=encoder).rows
    assert rows["metric"].unique().tolist() == ["probe-score"]
    assert rows["text"].tolist() == [e.text for e in few.split("dev")]


def test_words_have_their_word(encoder, tmp_path):
    """In a task, and in JSON lines with lists of words."""

    def tagged(name, i):
        words = (*("the cat sees a dog" if i % 2 else "a dog").split(), str(i))
        return Example(f"{name}{i}", " ".join(words), tuple(int(word == "dog") for word in words), words=words)

    splits = {name: Split(name, tuple(tagged(name, i) for i in range(40))) for name in ("train", "dev")}
    tags = Task("tags", TaskKind.SEQUENCE_LABELLING, splits, ("other", "dog"))
    made = [probekit.cache_activations(encoder, tags, s, out=tmp_path / f"{s}.h5") for s in splits]
    how = {"controls": 0, "resamples": 0, "layers": "0", "any_split": True, "metrics": "accuracy"}
    probe = probekit.probe(*made, **how).probe(0)
    rows = probekit.apply(probe, tags, split="dev", model=encoder, resamples=0).rows
    rows = rows[rows["metric"] == "probe-score"]
    assert rows["text"].tolist() == [word for e in splits["dev"] for word in e.words]
    lines = [json.dumps({"id": e.id, "words": e.words}) for e in splits["dev"]]
    (tmp_path / "words.jsonl").write_text("\n".join(lines))
    found = probekit.apply(probe, tmp_path / "words.jsonl", model=encoder).rows
    for name in ("example", "text", "value"):
        assert found[name].tolist() == rows[name].tolist()
