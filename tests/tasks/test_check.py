"""What is counted of a task, on examples small enough to count by eye."""

from __future__ import annotations

from dataclasses import replace

from probekit.tasks import Example, Split, Task, TaskKind
from probekit.tasks.check import check_task


def task(kind: TaskKind, names: tuple[str, ...] = (), **splits: list[Example]) -> Task:
    return Task("toy", kind, {name: Split(name, tuple(examples)) for name, examples in splits.items()}, names)


def test_classification() -> None:
    train = [
        Example("0", "a b c", 0, domain="x"),
        Example("1", "a b c", 0, domain="x"),
        Example("2", "a b c", 1, domain="y"),
        Example("3", "d", None),
        Example("4", " ", 1),
        Example("5", "bell \x07 \x85", 1),
        Example("6", "no break\u00a0space\tand tab", 0),
    ]
    dev = [Example("0", "d", 1, domain="y"), Example("1", "new", 1, domain="z"), Example("2", "d", 1)]
    report = check_task(task(TaskKind.CLASSIFICATION, ("no", "yes"), train=train, dev=dev))
    first, second = report.splits
    assert (first.examples, first.labelled, first.labels) == (7, 6, {"no": 3, "yes": 3})
    assert (first.repeated, first.duplicates, first.conflicting) == (2, 1, 1)
    assert (first.empty, first.control, first.in_train, first.scores) == (1, 1, None, None)
    assert first.lengths == {"0": 1, "1-5": 6}
    assert first.domains == {"x": 2, "y": 1}
    assert (first.domain_in_train, second.domain_in_train) == (None, 1)
    assert (second.in_train, second.repeated, second.duplicates, second.conflicting) == (2, 1, 1, 0)


def test_pairs_differ_where_either_sentence_does() -> None:
    train = [Example("0", "a", 1.0, "b"), Example("1", "b", 2.0, "a"), Example("2", "a", 4.5, "b")]
    (split,) = check_task(task(TaskKind.REGRESSION, train=train)).splits
    assert (split.repeated, split.duplicates, split.conflicting) == (1, 0, 1)
    assert split.scores == (1.0, 2.5, 4.5)
    assert split.labels == {}
    assert split.lengths == {"1-5": 3}


def test_words_are_counted_by_tag() -> None:
    train = [Example("0", "New York", (1, 2), words=("New", "York")), Example("1", "x", (-1,), words=("x",))]
    (split,) = check_task(task(TaskKind.SEQUENCE_LABELLING, ("O", "B-LOC", "I-LOC"), train=train)).splits
    assert split.labels == {"O": 0, "B-LOC": 1, "I-LOC": 1}


def test_without_a_train_split_nothing_is_compared() -> None:
    (split,) = check_task(task(TaskKind.CLASSIFICATION, dev=[Example("0", "word " * 200)])).splits
    assert (split.in_train, split.labels, split.lengths) == (None, {}, {"161+": 1})


def test_what_a_probe_cannot_know_is_told() -> None:
    train = [Example(str(i), "a b", i % 2) for i in range(4)]
    dev = [Example("0", "word " * 400, 2), Example("1", "b", 1)]
    report = check_task(
        task(TaskKind.CLASSIFICATION, ("no", "yes", "maybe"), train=train, dev=dev, test=[Example("0", "c")])
    )
    assert report.warnings == (
        "dev: train has no example of maybe (1); no probe can learn them.",
        "dev: 1 examples have more than 350 words, the longest 400; models that read 512 word pieces truncate them.",
        "test: no example has a label; you cannot fit or evaluate a probe on it.",
    )
    assert check_task(task(TaskKind.CLASSIFICATION, ("no", "yes"), train=train, dev=train[:2])).warnings == ()
    one = check_task(task(TaskKind.CLASSIFICATION, ("no", "yes"), train=train[::2]))
    assert one.warnings == ("train: all labels are the same; there is nothing to learn.",)


def test_groups_in_train_and_dev_are_counted_and_named() -> None:
    train = [Example(str(i), f"t{i}", i % 2, group=f"g{i // 2}") for i in range(80)]
    dev = [Example(str(i), f"d{i}", i % 2, group=f"g{36 + i // 2}") for i in range(60)]
    report = check_task(task(TaskKind.CLASSIFICATION, ("no", "yes"), train=train, dev=[*dev, Example("x", "d", 0)]))
    first, second = report.splits
    assert (first.group_in_train, first.shared_groups) == (None, ())
    assert (second.group_in_train, second.shared_groups) == (8, ("g36", "g37", "g38", "g39"))
    (warning,) = report.warnings
    assert warning.startswith(
        "dev: 8 of 61 examples are in groups that also occur in train (4: g36, g37, g38 …); results on them say less"
    )
    assert check_task(task(TaskKind.CLASSIFICATION, ("no", "yes"), train=train, dev=dev[8:])).warnings == ()


def test_many_domains_in_train_and_dev_may_be_groups() -> None:
    for domains, many in ((25, True), (10, False)):
        train = [Example(str(i), f"t{i}", i % 2, domain=f"s{i % domains}") for i in range(100)]
        dev = [Example(str(i), f"d{i}", i % 2, domain=f"s{i % domains}") for i in range(100)]
        warnings = check_task(task(TaskKind.CLASSIFICATION, ("no", "yes"), train=train, dev=dev)).warnings
        assert [w[:68] for w in warnings] == [
            "dev: 100 of 100 examples are from domains that also occur in train, "
        ] * many


def test_accuracy_of_unbalanced_classes_is_warned_of() -> None:
    train = [Example(str(i), f"t{i}", i % 2) for i in range(40)]
    for rare, warned in ((1, True), (4, True), (5, False), (0, False)):  # of 40
        dev = [Example(str(i), f"d{i}", int(i < rare)) for i in range(40)]
        toy = task(TaskKind.CLASSIFICATION, ("no", "yes"), train=train, dev=dev)
        warnings = check_task(replace(toy, metrics=("accuracy", "macro-f1"))).warnings
        assert len(warnings) == warned
        assert check_task(replace(toy, metrics=("matthews", "accuracy"))).warnings == ()
    three = task(TaskKind.CLASSIFICATION, ("no", "yes", "so"), train=[*train, Example("x", "s", 2)], dev=[
        Example(str(i), f"d{i}", int(i < 2)) for i in range(40)
    ])  # fmt: skip
    assert check_task(replace(three, metrics=("accuracy",))).warnings == (
        "dev: 95 % of the labels are no, so always predicting it has that accuracy. Choose another main metric: "
        'metrics = ["macro-f1", "accuracy"] in the task file, or probe --metrics macro-f1,accuracy.',
    )
