"""Corpora from the hub, with small datasets of the hub's columns in place of the download."""

from __future__ import annotations

from typing import Any

import datasets
import pytest
from datasets import Dataset, DatasetDict

from probekit.adaptation.pretraining.corpora.corpus import load_corpus
from probekit.errors import DataError


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Answers of ``load_dataset``; its arguments are under "asked"."""
    answers: dict[str, Any] = {}

    def load_dataset(repository: str, config: str | None = None, **options: Any) -> DatasetDict:
        answers["asked"] = (repository, config, options)
        return DatasetDict({split: Dataset.from_dict(rows) for split, rows in answers["data"].items()})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return answers


def same(rows: dict) -> dict:
    return {"train": rows, "validation": rows, "test": rows}


def read(name: str) -> dict[str, list]:
    return {split: list(rows()) for split, rows in load_corpus(name).splits.items()}


@pytest.mark.parametrize("size", ["103", "2"])
def test_wikitext(hub, size):
    hub["data"] = same(
        {"text": ["", " = Crab = \n", "", " It is blue . It eats . \n", "", " = Ox = \n", "", " Big . \n"]}
    )
    rows = [("It is blue .",), ("It eats .",), ("",), ("Big .",)]
    assert read(f"wikitext-{size}") == {"train": rows, "dev": rows, "test": rows}
    assert hub["asked"] == ("Salesforce/wikitext", f"wikitext-{size}-v1", {})
    assert read(f"skip-thought:wikitext-{size}")["dev"] == [("It is blue .", "It eats .")]


def test_billion_word_holds_out_training_sentences(hub):
    text = [f"Sentence {i} ." for i in range(2500)]
    hub["data"] = {"train": {"text": text}, "test": {"text": ["Held out ."]}}
    found = {split: [row[0] for row in rows if row[0]] for split, rows in read("billion-word").items()}
    assert hub["asked"] == ("billion-word-benchmark/lm1b", "plain_text", {"revision": "refs/convert/parquet"})
    assert (len(found["train"]), len(found["dev"]), found["test"]) == (2375, 125, ["Held out ."])
    assert sorted(found["train"] + found["dev"]) == sorted(text)


@pytest.mark.parametrize(
    ("name", "repository", "config", "target"),
    [("wmt14-en-de", "wmt/wmt14", "de-en", "de"), ("wmt17-en-ru", "wmt/wmt17", "ru-en", "ru")],
)
def test_wmt(hub, name, repository, config, target):
    hub["data"] = same({"translation": [{target: "x", "en": " a "}, {target: "", "en": "b"}, {target: "z", "en": "c"}]})
    rows = [("a", "x"), ("c", "z")]
    assert read(name) == {"train": rows, "dev": rows, "test": rows}
    assert hub["asked"] == (repository, config, {})


def test_multi30k(hub):
    hub["data"] = same({"de": ["x", "y"], "en": ["a", "b"]})
    assert read("multi30k-en-de")["train"] == [("a", "x"), ("b", "y")]
    assert hub["asked"] == ("bentrevett/multi30k", None, {})


def test_dailydialog(hub):
    hub["data"] = same({"dialog": [["a ", " b", "c"], ["d"]], "act": [[0, 0, 0], [0]]})
    assert read("dailydialog")["dev"] == [("a", "b"), ("b", "c")]
    assert hub["asked"] == ("li2017dailydialog/daily_dialog", None, {"revision": "refs/convert/parquet"})


def test_a_missing_column(hub):
    hub["data"] = same({"line": ["a"]})
    with pytest.raises(DataError, match="the hub's dataset has no column 'text'; it has 'line'"):
        read("wikitext-2")


def test_files_of_the_local_copy(hub, tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"de": "x", "en": "a"}\n')
    monkeypatch.undo()
    data = datasets.load_dataset("json", data_files={"train": str(path)}, cache_dir=str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: data)
    (file,) = load_corpus("multi30k-en-de").files
    assert file.suffix == ".arrow"
    assert file.is_file()


def test_without_a_network(monkeypatch):
    def offline(*_: Any, **__: Any) -> None:
        raise OSError("OfflineModeIsEnabled")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(DataError, match=r"WikiText-103 could not be loaded .* HF_HUB_OFFLINE is set\. .*--data-dir"):
        load_corpus("skip-thought")
