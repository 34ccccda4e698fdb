"""The ten sentence tasks made from a treebank: labels, balance, splits, changed sentences."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from probekit.errors import DataError, UsageError
from probekit.tasks import SENTENCES, Task, load_task
from probekit.tasks.sentences.tasks import SENTENCE_TASKS, sentence_task
from tests.tasks.sentences.treebanks import bracketed, coordinated, simple, treebank

FROM_DEPENDENCIES = [name for name in SENTENCES if name not in ("top-constituents", "tree-depth", "word-content")]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return treebank(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def brackets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("brackets")
    sentences = [s for pair in zip(simple(600), coordinated(600), strict=True) for s in pair]
    trees = (f"f{i // 10}.mrg\t{i % 10}\t{bracketed(words)}\n" for i, words in enumerate(sentences))
    (folder / "all.mrg").write_text("".join(trees))
    return folder


def originals(task: Task, folder: Path) -> dict[str, str]:
    """The sentence of the treebank for each id."""
    return {e.id: " ".join(e.words or ()) for split in load_task("ud", folder).splits.values() for e in split}


def test_the_names_are_those_of_senteval() -> None:
    assert tuple(SENTENCE_TASKS) == SENTENCES
    assert len(SENTENCES) == 10


def test_labels_that_are_too_rare_are_left_out_and_named(toy: Path) -> None:
    task = load_task("treebank:sentence-length", toy)
    assert task.label_names == ("0", "2")  # no sentences of 9 to 12 words, or more than 16
    assert task.notes[0] == "Too rare in train, and left out: 1 (0), 3 (0), 4 (0), 5 (0)."


@pytest.mark.parametrize(
    "name", ["past-present", "subj-number", "obj-number", "bigram-shift", "coordination-inversion"]
)
def test_each_split_is_balanced_and_no_sentence_is_in_two(toy: Path, name: str) -> None:
    task = load_task(f"treebank:{name}", toy)
    assert task.name == f"treebank:{name}:xx_toy"
    source, seen = originals(task, toy), Counter[str]()
    for split in task.splits.values():
        counts = Counter(e.label for e in split)
        assert set(counts) == set(range(len(task.label_names)))
        assert len(set(counts.values())) == 1
        assert all(5 <= len(e.text.split()) <= 28 for e in split)
        assert all(e.group and e.group.startswith(f"xx_toy-ud-{split.name}") for e in split)
        seen.update(source[e.id].lower() for e in split)
    assert max(seen.values()) == 1  # neither the same sentence twice, nor a sentence and its variant


def test_the_labels_are_those_of_the_words(toy: Path) -> None:
    tense, number, thing = (load_task(f"treebank:{n}", toy) for n in ("past-present", "subj-number", "obj-number"))
    for e in tense.split("train"):
        assert tense.label_names[e.label] == ("PRES" if e.text.split()[2] in ("sees", "likes", "hears") else "PAST")
    for e in number.split("dev"):
        assert number.label_names[e.label] == ("NNS" if e.text.split()[1].endswith("s") else "NN")
    for e in thing.split("test"):
        assert thing.label_names[e.label] == ("NNS" if e.text.split()[4].endswith("s") else "NN")


def test_penn_tags_serve_where_features_are_absent(tmp_path: Path, toy: Path) -> None:
    treebank(tmp_path, feats=False)
    for name in ("past-present", "subj-number"):
        ours, theirs = load_task(f"treebank:{name}", tmp_path), load_task(f"treebank:{name}", toy)
        assert {s: part.digest() for s, part in ours.splits.items()} == {
            s: part.digest() for s, part in theirs.splits.items()
        }


def test_one_pair_of_words_is_exchanged(toy: Path) -> None:
    task = load_task("treebank:bigram-shift", toy)
    source = originals(task, toy)
    for e in task.split("train"):
        before, after = source[e.id].split(), e.text.split()
        changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        if task.label_names[e.label] == "O":
            assert not changed
        else:
            i, j = changed
            assert (j, before[i], before[j]) == (i + 1, after[j], after[i])
            assert i > 0
            assert before[j] != "."


def test_one_noun_or_verb_is_replaced_by_an_attested_one(toy: Path) -> None:
    task = load_task("treebank:odd-man-out", toy)
    source = originals(task, toy)
    bigrams = {b for text in source.values() for b in zip(text.lower().split(), text.lower().split()[1:], strict=False)}
    replacements: dict[str, set[str]] = {}
    for split in task.splits.values():
        replacements[split.name] = set()
        for e in split:
            before, after = source[e.id].split(), e.text.split()
            changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
            if task.label_names[e.label] == "O":
                assert not changed
                continue
            (i,) = changed
            assert {(after[i - 1].lower(), after[i]), (after[i], after[i + 1])} <= bigrams
            assert before[i].endswith("s") == after[i].endswith("s")
            replacements[split.name].add(after[i])
    assert not replacements["train"] & replacements["dev"]
    assert not replacements["dev"] & replacements["test"]


def test_clauses_change_places_and_the_rest_stays(toy: Path) -> None:
    task = load_task("treebank:coordination-inversion", toy)
    source = originals(task, toy)
    longer = {"I": Counter[bool](), "O": Counter[bool]()}
    for e in task.split("train"):
        first, _, second = source[e.id].removesuffix(" .").partition(" and ")
        if task.label_names[e.label] == "I":
            first, second = second.capitalize(), first[0].lower() + first[1:]
        assert e.text == f"{first} and {second} ."
        longer[task.label_names[e.label]][len(first) > len(second)] += 1
    assert abs(longer["I"][True] - longer["O"][True]) < 60


def test_brackets_give_the_labels_of_dependencies(toy: Path, brackets: Path) -> None:
    for name in ("past-present", "subj-number", "obj-number"):
        ours, theirs = load_task(f"treebank:{name}", brackets), load_task(f"treebank:{name}", toy)
        known = {e.text: e.label for split in theirs.splits.values() for e in split}
        found = {e.text: e.label for split in ours.splits.values() for e in split}
        both = set(known) & set(found)
        assert len(both) > 500
        assert all(known[text] == found[text] for text in both)


def test_top_constituents_are_those_below_s(brackets: Path) -> None:
    task = load_task("treebank:top-constituents", brackets)
    assert task.label_names == ("NP_VP_.", "S_CC_S_.")
    for e in task.split("train"):
        assert task.label_names[int(e.label)] == ("S_CC_S_." if " and " in e.text else "NP_VP_.")  # type: ignore[arg-type]


def test_rare_constituents_are_other(tmp_path: Path) -> None:
    below = {"NP VP": 200, "NP VP .": 160, "PP NP VP": 130, "SBAR NP": 3, "UH": 2}
    words = (" ".join(w for w, *_ in s) for s in simple(500))
    trees = []
    for labels, n in below.items():
        for i in range(n):
            first, *rest = labels.split()
            leaves = "".join(f"(X {w})" for w in next(words).split())
            inner = "".join(f"({label} (X w{i}))" for label in rest)
            trees.append(f"((S ({first} {leaves}) {inner}))")
    (tmp_path / "my.mrg").write_text("\n".join(trees))
    task = load_task("treebank:top-constituents", tmp_path)
    assert task.label_names == ("NP_VP", "NP_VP_.", "OTHER")  # with PP_NP_VP, too few would be OTHER
    counts = [Counter(e.label for e in split) for split in task.splits.values()]
    assert all(n[0] == n[1] == n[2] >= 5 for n in counts)


def test_documents_stay_whole_where_files_do_not_say_the_split(brackets: Path) -> None:
    task = load_task("treebank:bigram-shift", brackets)
    groups = {name: {e.group for e in split} for name, split in task.splits.items()}
    assert list(groups) == ["train", "dev", "test"]
    assert not groups["train"] & (groups["dev"] | groups["test"])
    assert not groups["dev"] & groups["test"]
    total = sum(map(len, task.splits.values()))
    assert 0.07 < len(task.split("dev")) / total < 0.13


def test_the_same_files_and_seed_give_the_same_task(toy: Path) -> None:
    for name in FROM_DEPENDENCIES:
        first, again, other = (sentence_task(name, toy, seed=seed) for seed in (0, 0, 1))
        assert first == again
        if name in ("bigram-shift", "odd-man-out", "coordination-inversion"):
            assert first.split("train").digest() != other.split("train").digest()


def test_dependencies_have_no_top_constituents(toy: Path) -> None:
    with pytest.raises(DataError, match=r"only dependency trees \(xx_toy\); .* brackets \(.mrg or .ptb files"):
        load_task("treebank:top-constituents", toy)


def test_names_that_are_none(toy: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown task 'treebank:tree-dept'; did you mean treebank:tree-depth"):
        load_task("treebank:tree-dept", toy)
    with pytest.raises(DataError, match="is made from a treebank in a folder"):
        load_task("treebank:tree-depth")
    with pytest.raises(DataError, match="has no treebank 'xx_tox'; did you mean xx_toy"):
        load_task("treebank:tree-depth:xx_tox", toy)
