"""The real files: every count, label distribution and quirk that is known of them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from probekit.tasks import Task, load_task
from probekit.tasks.check import SplitReport, check_task

DATA = Path(__file__).parents[2] / "../shared/data"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the shared data sets are not at {DATA}"),
]


@cache
def load(name: str) -> Task:
    return load_task(name, DATA)


@cache
def report(name: str) -> dict[str, SplitReport]:
    return {split.name: split for split in check_task(load(name)).splits}


def domains(name: str) -> dict[str, dict[str, int]]:
    return {split: dict(r.domains) for split, r in report(name).items()}


LABELS = {
    "cola": {
        "train": {"unacceptable": 2528, "acceptable": 6023},
        "dev": {"unacceptable": 322, "acceptable": 721},
        "dev-in-domain": {"unacceptable": 160, "acceptable": 367},
        "dev-out-of-domain": {"unacceptable": 162, "acceptable": 354},
    },
    "sst2": {
        "train": {"negative": 29780, "positive": 37569},
        "dev": {"negative": 428, "positive": 444},
        "test": {"negative": 912, "positive": 909},
    },
    "mrpc": {
        "train": {"not_equivalent": 1194, "equivalent": 2474},
        "dev": {"not_equivalent": 129, "equivalent": 279},
        "test": {"not_equivalent": 578, "equivalent": 1147},
        "original-train": {"not_equivalent": 1323, "equivalent": 2753},
        "original-test": {"not_equivalent": 578, "equivalent": 1147},
    },
    "sick-e": {
        "train": {"entailment": 1299, "neutral": 2536, "contradiction": 665},
        "dev": {"entailment": 144, "neutral": 282, "contradiction": 74},
        "test": {"entailment": 1414, "neutral": 2793, "contradiction": 720},
    },
    "mnli": {
        "train": {"entailment": 4378, "neutral": 4354, "contradiction": 4256},
        "dev-matched": {"entailment": 3479, "neutral": 3123, "contradiction": 3213},
    },
    "wnli": {
        "train": {"not_entailment": 323, "entailment": 312},
        "dev": {"not_entailment": 40, "entailment": 31},
        "test": {},
    },
    "qnli": {"dev": {"entailment": 2702, "not_entailment": 2761}},
    "trec-6": {
        "train": {"ABBR": 86, "DESC": 1162, "ENTY": 1250, "HUM": 1223, "LOC": 835, "NUM": 896},
        "test": {"ABBR": 9, "DESC": 138, "ENTY": 94, "HUM": 65, "LOC": 81, "NUM": 113},
    },
}


@pytest.mark.parametrize("name", LABELS)
def test_labels(name: str) -> None:
    assert {split: r.labels for split, r in report(name).items()} == LABELS[name]


SUPERGLUE = {
    "cb": {"dev": {"entailment": 23, "contradiction": 28, "neutral": 5}, "test": {}},
    "wsc": {"dev": {"false": 66, "true": 38}, "test": {}},
}


@pytest.mark.parametrize("name", SUPERGLUE)
def test_labels_of_superglue(name: str) -> None:
    task = load_task(name, DATA / "superglue_small")
    found = check_task(task).splits
    assert {split.name: split.labels for split in found} == SUPERGLUE[name]
    if name == "wsc":  # a phrase is where its index says, but for two that the texts lack
        assert [len(split) for split in task.splits.values()] == [104, 146]
        assert sum(e.text[s.start : s.end].isalpha() for e in task.split("dev") for s in e.targets[0].spans[1:]) == 104


SIZES = {
    "stsb": {"train": 5749, "dev": 1500, "test": 1379},
    "sick-r": {"train": 4500, "dev": 500, "test": 4927},
    "wnli": {"train": 635, "dev": 71, "test": 146},
    "trec-50": {"train": 5452, "test": 500},
    "wnut17": {"train": 3394, "dev": 1009, "test": 1287},
    "senteval-sentence-length": {"train": 3366, "dev": 294, "test": 366},
    "senteval-word-content": {"train": 2234, "dev": 354, "test": 325},
    "senteval-tree-depth": {"train": 2415, "dev": 190, "test": 265},
    "senteval-top-constituents": {"train": 2094, "dev": 183, "test": 154},
    "senteval-bigram-shift": {"train": 8000, "dev": 1000, "test": 1000},
    "senteval-past-present": {"train": 3480, "dev": 450, "test": 422},
    "senteval-subj-number": {"train": 1164, "dev": 160, "test": 154},
    "senteval-obj-number": {"train": 946, "dev": 132, "test": 154},
    "senteval-odd-man-out": {"train": 6400, "dev": 800, "test": 800},
    "senteval-coordination-inversion": {"train": 330, "dev": 38, "test": 46},
    "universal-ner:en_ewt": {"dev": 2001, "test": 2077},
    "ud:en_ewt": {"train": 12544, "dev": 2001, "test": 2077},
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n == "ud:en_ewt" else []) for n in SIZES])
def test_sizes(name: str) -> None:
    assert {split: r.examples for split, r in report(name).items()} == SIZES[name]
    if name != "wnli":
        assert all(r.labelled == r.examples for r in report(name).values())


@pytest.mark.parametrize(("name", "means"), [("stsb", (2.7010, 2.3639, 2.6079)), ("sick-r", (3.521, 3.594, 3.530))])
def test_scores(name: str, means: tuple[float, ...]) -> None:
    found = [r.scores[1] for r in report(name).values() if r.scores]
    assert found == pytest.approx(means, abs=5e-4 if name == "sick-r" else 5e-5)


def test_cola_quirks() -> None:
    train, inside, outside = (report("cola")[s] for s in ("train", "dev-in-domain", "dev-out-of-domain"))
    assert (train.repeated, train.conflicting, train.control) == (19, 11, 3)
    assert (inside.in_train, outside.in_train) == (4, 12)
    assert set(train.domains) == set(inside.domains)
    assert (len(inside.domains), len(outside.domains)) == (17, 6)
    assert not set(inside.domains) & set(outside.domains)
    both = [*load("cola").split("dev-in-domain"), *load("cola").split("dev-out-of-domain")]
    assert [(e.text, e.label) for e in load("cola").split("dev")] == [(e.text, e.label) for e in both]


def test_sst2_quirks() -> None:
    train, dev, test = (report("sst2")[s] for s in ("train", "dev", "test"))
    assert (train.duplicates, train.conflicting) == (366, 5)
    assert (dev.in_train, test.in_train) == (0, 2)
    assert len({e.text for e in load("sst2").split("train") if " " not in e.text}) == 4014  # different single words


def test_mrpc_quirks() -> None:
    mrpc = load("mrpc")
    assert {e.id for s in ("train", "dev") for e in mrpc.split(s)} == {e.id for e in mrpc.split("original-train")}
    assert any(e.text.startswith('"') for e in mrpc.split("train"))
    assert [(e.id, e.text, e.label) for e in mrpc.split("test")] == [
        (e.id, e.text, e.label) for e in mrpc.split("original-test")
    ]


def test_stsb_quirks() -> None:
    assert domains("stsb") == {
        "train": {"main-news": 3299, "main-captions": 2000, "main-forums": 450},
        "dev": {"main-captions": 625, "main-news": 500, "main-forums": 375},
        "test": {"main-captions": 625, "main-news": 500, "main-forums": 254},
    }
    train, dev, test = report("stsb").values()
    assert (train.repeated, dev.in_train, test.in_train, train.control) == (43, 6, 7, 1)


def test_stsb_original_files_alone_give_the_same(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        (tmp_path / f"sts-{split}.csv").symlink_to((DATA / f"stsb/original_sts-{split}.tsv").resolve())
    alone = load_task("stsb", tmp_path)
    for split in ("train", "dev", "test"):
        assert alone.labels(split) == pytest.approx(load("stsb").labels(split), abs=1e-9)
        assert [e.text for e in alone.split(split)] == [e.text.strip(" ") for e in load("stsb").split(split)]


def test_mnli_genres() -> None:
    assert domains("mnli") == {
        "dev-matched": {"fiction": 1973, "government": 1945, "slate": 1955, "telephone": 1966, "travel": 1976},
        "train": {"fiction": 2547, "government": 2541, "slate": 2605, "telephone": 2754, "travel": 2541},
    }
    assert report("mnli")["dev-matched"].in_train == 0


def test_wnli_dev_is_adversarial() -> None:
    train, dev = load("wnli").split("train"), load("wnli").split("dev")
    seen: dict[str, set] = {}
    for e in train:
        seen.setdefault(e.text, set()).add(e.label)
    known = [e for e in dev if e.text in seen]
    assert (len(known), sum(e.label in seen[e.text] for e in known)) == (65, 11)


def test_trec_quirks() -> None:
    train, test = report("trec-50").values()
    assert [sum(n > 0 for n in r.labels.values()) for r in (train, test)] == [50, 42]
    assert (train.duplicates, train.conflicting, test.in_train) == (70, 1, 10)


def test_wnut17_tokens_and_entities() -> None:
    tokens = {split: sum(r.labels.values()) for split, r in report("wnut17").items()}
    assert tokens == {"train": 62730, "dev": 15733, "test": 23394}
    begins = {s: sum(n for tag, n in r.labels.items() if tag.startswith("B-")) for s, r in report("wnut17").items()}
    assert begins == {"train": 1975, "dev": 836, "test": 1079}


def entities(labels: dict[str, int]) -> dict[str, int]:
    return {tag[2:]: n for tag, n in labels.items() if tag.startswith("B-")}


def test_universal_ner_entities() -> None:
    dev, test = report("universal-ner:en_ewt").values()
    assert entities(dict(dev.labels)) == {"LOC": 399, "PER": 343, "ORG": 224}
    assert entities(dict(test.labels)) == {"PER": 449, "ORG": 322, "LOC": 317}
    assert (sum(dev.labels.values()), sum(test.labels.values())) == (25149, 25097)


def test_universal_ner_ragged_early_release(tmp_path: Path) -> None:
    early = (DATA / "uner_english_ewt/en_ewt-ud-train.PRELIMINARY.iob2").resolve()
    (tmp_path / "en_ewt-ud-train.iob2").symlink_to(early)
    task = load_task("universal-ner", tmp_path)
    tags = Counter(task.label_names[t] for e in task.split("train") for t in e.label)
    assert entities(tags) == {"LOC": 2698, "PER": 2873, "ORG": 1434}
    assert len(task.split("train")) == 12543


def test_ud_words_and_what_is_left_out() -> None:
    words = {split: sum(r.labels.values()) for split, r in report("ud:en_ewt").items()}
    assert words == {"train": 204577, "dev": 25147, "test": 25094}
    assert load("ud:en_ewt").notes == (
        "train: 2614 multiword tokens and 37 empty nodes are left out.",
        "dev: 359 multiword tokens and 4 empty nodes are left out.",
        "test: 354 multiword tokens and 2 empty nodes are left out.",
    )
    assert report("ud:en_ewt")["train"].domains == {
        "weblog": 1585, "email": 3770, "newsgroup": 1833, "answers": 2631, "reviews": 2725
    }  # fmt: skip
    assert all(n > 0 for n in report("ud:en_ewt")["train"].labels.values())
    assert len(load("ud:en_ewt").label_names) == 17


@pytest.mark.parametrize("name", [*LABELS, *SIZES])
def test_ids_are_unique(name: str) -> None:
    for split in load(name).splits.values():
        assert len({e.id for e in split}) == len(split)


@pytest.mark.slow
def test_arguments_of_spr1_are_where_their_trees_say() -> None:
    task = load("spr1")
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 377, "dev": 79, "test": 76}
    assert {name: sum(len(e.targets) for e in split) for name, split in task.splits.items()} == {
        "train": 672, "dev": 80, "test": 78
    }  # fmt: skip
    assert task.notes == ("978 annotated sentences have no tree, and are left out.",)
    verbs = {(e.id, t.spans[0].start): e for split in task.splits.values() for e in split for t in e.targets}
    roleset = {}
    for line in (DATA / "spr1/protoroles_eng_pb_08302015.sample.tsv").read_text().splitlines()[1:]:
        _, sentence, predicate, _, _, name, *_ = line.split("\t")
        if int(sentence[:4]) < 200:
            roleset[sentence, int(predicate)] = name
    assert len(verbs) == len(roleset) == 427
    in_order = zip(sorted(roleset), sorted(verbs), strict=True)  # places differ by the traces before them
    same = [(verbs[at].words or ())[at[1]][:2].lower() == roleset[given][:2] for given, at in in_order]
    assert sum(same) == 405  # the others are irregular forms
