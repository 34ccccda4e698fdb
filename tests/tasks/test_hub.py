"""Loading from the hub, with small datasets of the hub's own schema in place of the download."""

from __future__ import annotations

from typing import Any

import datasets
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from probekit.errors import DataError
from probekit.tasks import load_task


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Answers of ``load_dataset``; what it was asked is under "asked"."""
    answers: dict[str, Any] = {}

    def load_dataset(repository: str, config: str | None = None, **options: Any) -> DatasetDict:
        answers["asked"] = (repository, config, options)
        return answers["data"]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return answers


def three(features: Features, train: dict, test: dict | None = None) -> DatasetDict:
    parts = {"train": train, "validation": train, "test": test or train}
    return DatasetDict({name: Dataset.from_dict(rows, features=features) for name, rows in parts.items()})


STRING = Value("string")


def test_glue_sentences(hub: dict) -> None:
    features = Features(sentence=STRING, label=ClassLabel(names=["unacceptable", "acceptable"]), idx=Value("int32"))
    hub["data"] = three(
        features,
        {"sentence": ["a ", "b"], "label": [1, 0], "idx": [0, 1]},
        {"sentence": ["c"], "label": [-1], "idx": [0]},
    )
    task = load_task("cola")
    assert hub["asked"] == ("nyu-mll/glue", "cola", {})
    assert [(e.id, e.text, e.label) for s in task.splits.values() for e in s] == [
        ("0", "a ", 1), ("1", "b", 0), ("0", "a ", 1), ("1", "b", 0), ("0", "c", None)
    ]  # fmt: skip


def test_glue_pairs_whatever_the_order_of_classes(hub: dict) -> None:
    features = Features(
        sentence1=STRING, sentence2=STRING, label=ClassLabel(names=["not_entailment", "entailment"]), idx=Value("int32")
    )
    hub["data"] = three(features, {"sentence1": ["a"], "sentence2": ["b"], "label": [0], "idx": [4]})
    task = load_task("rte")
    assert task.label_names[task.labels("train")[0]] == "not_entailment"
    assert task.split("train")[0].pair == "b"


def test_sst2_loses_its_final_blank(hub: dict) -> None:
    features = Features(sentence=STRING, label=ClassLabel(names=["negative", "positive"]), idx=Value("int32"))
    hub["data"] = three(features, {"sentence": ["good film "], "label": [1], "idx": [0]})
    assert load_task("sst2").split("dev")[0].text == "good film"


def test_stsb(hub: dict) -> None:
    features = Features(sentence1=STRING, sentence2=STRING, label=Value("float32"), idx=Value("int32"))
    rows = {"sentence1": ["a"], "sentence2": ["b"], "idx": [0]}
    hub["data"] = three(features, rows | {"label": [2.5]}, rows | {"label": [-1.0]})
    task = load_task("stsb")
    assert [s.examples[0].label for s in task.splits.values()] == [2.5, 2.5, None]


def test_mnli_genres_and_missing_labels(hub: dict) -> None:
    features = Features(
        promptID=Value("int32"), pairID=STRING, premise=STRING, hypothesis=STRING, genre=STRING,
        label=ClassLabel(names=["entailment", "neutral", "contradiction"]),
    )  # fmt: skip
    rows = {"promptID": [1, 2], "pairID": ["1n", "2e"], "premise": ["a", "b"], "hypothesis": ["c", "d"]}
    part = Dataset.from_dict(rows | {"genre": ["fiction", "slate"], "label": [1, -1]}, features=features)
    hub["data"] = DatasetDict(train=part, validation_matched=part, validation_mismatched=part)
    task = load_task("mnli")
    assert hub["asked"][0] == "nyu-mll/multi_nli"
    assert [(e.id, e.label, e.domain) for e in task.split("dev-mismatched")] == [("1n", 1, "fiction")]
    assert len(task.notes) == 3


def test_sick(hub: dict) -> None:
    features = Features(
        sentence_pair_id=Value("int64"), premise=STRING, hypothesis=STRING, relatedness_score=Value("float32"),
        entailment_judgment=ClassLabel(names=["NEUTRAL", "ENTAILMENT", "CONTRADICTION"]),
    )  # fmt: skip
    rows = {"sentence_pair_id": [6], "premise": ["a"], "hypothesis": ["b"], "relatedness_score": [3.3]}
    hub["data"] = three(features, rows | {"entailment_judgment": [0]})
    assert load_task("sick-r").split("test")[0].label == 3.3
    task = load_task("sick-e")
    assert task.label_names[task.labels("test")[0]] == "neutral"
    assert hub["asked"] == ("SemEvalWorkshop/sem_eval_2014_task_1", None, {"revision": "refs/convert/parquet"})


def test_trec(hub: dict) -> None:
    features = Features(
        text=STRING,
        coarse_label=ClassLabel(names=["ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"]),
        fine_label=ClassLabel(names=["NUM:dist", "HUM:ind"]),
    )
    part = Dataset.from_dict({"text": ["How far ?"], "coarse_label": [5], "fine_label": [0]}, features=features)
    hub["data"] = DatasetDict(train=part, test=part)
    for name, wanted in (("trec-6", "NUM"), ("trec-50", "NUM:dist")):
        task = load_task(name)
        assert task.label_names[task.labels("test")[0]] == wanted


def test_named_entities(hub: dict) -> None:
    names = ["O", *(f"{p}-{kind}" for kind in ("PER", "ORG", "LOC", "MISC") for p in "BI")]
    features = Features(id=STRING, tokens=List(STRING), ner_tags=List(ClassLabel(names=names)))
    hub["data"] = three(features, {"id": ["0"], "tokens": [["U.N.", "man"]], "ner_tags": [[3, 0]]})
    task = load_task("conll2003")
    assert [task.label_names[t] for t in task.split("dev")[0].label] == ["B-ORG", "O"]
    assert task.split("dev")[0].text == "U.N. man"
    with pytest.raises(DataError, match=r"has the classes .*B-MISC.*, expected .*B-corporation"):
        load_task("wnut17")


def test_universal_dependencies_without_multiword_tokens(hub: dict) -> None:
    features = Features(
        idx=STRING, text=STRING, tokens=List(STRING), upos=List(ClassLabel(names=["NOUN", "AUX", "_", "PART", "VERB"]))
    )
    rows = {"idx": ["weblog-1"], "text": ["Don't go"], "tokens": [["Don't", "Do", "n't", "go"]], "upos": [[2, 1, 3, 4]]}
    hub["data"] = three(features, rows)
    task = load_task("ud:en_gum")
    assert hub["asked"][2] == {"revision": "refs/convert/parquet", "data_dir": "en_gum"}
    assert task.name == "ud:en_gum"
    assert task.split("train")[0].words == ("Do", "n't", "go")
    assert [task.label_names[t] for t in task.split("train")[0].label] == ["AUX", "PART", "VERB"]


def test_strange_schemas_are_refused(hub: dict) -> None:
    features = Features(text=STRING, label=ClassLabel(names=["bad", "good"]), idx=Value("int32"))
    hub["data"] = three(features, {"text": ["a"], "label": [1], "idx": [0]})
    with pytest.raises(DataError, match=r"has no column 'sentence'; it has 'text', 'label', 'idx'"):
        load_task("cola")
    hub["data"] = hub["data"].rename_column("text", "sentence")
    with pytest.raises(DataError, match=r"has the classes \['bad', 'good'\], expected"):
        load_task("cola")


def test_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach 'nyu-mll/glue'\non the Hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(DataError) as caught:
        load_task("cola")
    assert str(caught.value) == (
        "cola could not be loaded from the Hugging Face hub (nyu-mll/glue, cola): Couldn't reach 'nyu-mll/glue' on the "
        "Hub. Without a network, give a local folder of data (--data-dir, or data_dir in Python), with the files of "
        "cola in it or in a subfolder of that name."
    )
