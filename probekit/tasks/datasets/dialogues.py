"""Dialogues as pairs of a prompt and its response: neighbouring turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from probekit.files import read_lines
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import examples, local_file, locate
from probekit.tasks.task import RESPONSE_METRICS, RESPONSES, Example, Task, TaskKind

__all__ = ["LOADERS", "dailydialog", "twitter_conversations"]

DAILYDIALOG = Dataset(
    "dailydialog",
    "DailyDialog, responses in everyday conversations",
    TaskKind.RESPONSE_GENERATION,
    {"train": 76052, "dev": 7069, "test": 6740},
    RESPONSE_METRICS,
    "Li et al. 2017, http://yanran.li/dailydialog",
    "CC BY-NC-SA 4.0",
    RESPONSES,
    shown="DailyDialog",
)
TWITTER = Dataset(
    "twitter-conversations",
    "Replies in conversations on Twitter",
    TaskKind.RESPONSE_GENERATION,
    {"train": 8703},
    RESPONSE_METRICS,
    "Phylliida 2017, https://github.com/Phylliida/Dialogue-Datasets",
    "not stated",
    RESPONSES,
    shown="Twitter conversations",
)


def dailydialog(root: str | Path | None = None) -> Task:
    """DailyDialog: each turn but the first is a response to the one before it; a dialogue is a group.

    Files: dialogues_train.txt, dialogues_validation.txt and dialogues_test.txt, whose turns end with __eou__.
    """
    names = {"train": "train", "dev": "validation", "test": "test"}
    files = {split: (f"dialogues_{name}.txt", f"{name}/dialogues_{name}.txt") for split, name in names.items()}
    local_file(DAILYDIALOG, root, *(name for known in files.values() for name in known))
    assert root is not None
    splits = {}
    for split, path in locate(root, files, folder="dailydialog", what=DAILYDIALOG.shown).items():
        splits[split] = _pairs(split, ([turn.strip() for turn in line.split("__eou__")] for line in read_lines(path)))
    return DAILYDIALOG.task(splits)


def twitter_conversations(root: str | Path | None = None) -> Task:
    """Conversations on Twitter: each tweet but the first is a response; a conversation is a group.

    File: TwitterConvCorpus.txt, a tweet per line, with three or more empty lines between conversations.
    """
    path = local_file(TWITTER, root, "TwitterConvCorpus.txt")
    dialogues: list[list[str]] = [[]]
    for line in map(str.strip, read_lines(path)):
        if line:
            dialogues[-1].append(line)
        elif dialogues[-1]:
            dialogues.append([])
    return TWITTER.task({"train": _pairs("train", dialogues)})


LOADERS = {DAILYDIALOG: dailydialog, TWITTER: twitter_conversations}


def _pairs(split: str, dialogues: Iterable[Sequence[str]]) -> list[Example]:
    found = [(f"{i}", a, b) for i, turns in enumerate(dialogues) for a, b in pairwise(filter(None, turns))]
    groups, texts, pairs = (list(column) for column in zip(*found, strict=True))
    return examples(split, texts, [0] * len(texts), pairs=pairs, groups=groups)
