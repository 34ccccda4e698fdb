"""Comments with replies: Reddit, DailyDialog (Li et al. 2017) and conversations from Twitter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from probekit.adaptation.pretraining.corpora.kinds import Corpus, CorpusEntry, CorpusKind, Row, Rows
from probekit.adaptation.pretraining.corpora.sources import Folder, Hub, cached_files, columns
from probekit.adaptation.pretraining.corpora.text_files import check_units, held_out_pairs, is_held_out
from probekit.errors import DataError
from probekit.files import stream_lines
from probekit.tasks.datasets.sources import PARQUET
from probekit.tasks.files.readers import read_json_lines

LONGEST = 250
LETTERS = 0.7
JSON_KEYS = (("comment", "reply"), ("context", "response"))
Dialogue = list[str]


def is_good_comment(text: str) -> bool:
    """Whether a comment or reply passes the filters of jiant's authors (scripts/reddit/data_filtering_v2.py).

    It has fewer than 250 characters, at least 70 % of them letters; has no ``http``; and does not begin with ``/r/``,
    ``@`` or ``[removed]``. We also drop ``[deleted]``, which their filter keeps, and empty texts.

    Examples
    --------
    >>> [is_good_comment(text) for text in ("I like this one.", "See http://a.b", "[removed]", "5 + 5 = 10", "/r/aww")]
    [True, False, False, False, False]
    """
    return (
        0 < len(text) < LONGEST
        and "http" not in text
        and not text.startswith(("/r/", "@", "[removed]", "[deleted]"))
        and sum(map(str.isalpha, text)) >= LETTERS * len(text)
    )


def reddit(data_dir: Path | None, seed: int = 0) -> Corpus:
    """Comments on Reddit with a reply, filtered as by jiant's authors (:func:`is_good_comment`).

    Files: train.csv, val.csv and test.csv of jiant's authors, separated by tabs despite their names, without a
    header: two ids, comment, reply (further columns are ignored; a row with fewer, and one whose comment or reply is
    filtered out, is left out). Or train.jsonl, val.jsonl and test.jsonl with the keys comment and reply, or context
    and response. Without a val file, one pair in 20 is held out.

    Raises
    ------
    DataError
        If there is no training file, or no ``data_dir``: Reddit is not on the hub.
    """
    if data_dir is None:
        raise DataError(
            "Reddit's pairs are not on the Hugging Face hub; give the folder with train.csv (--data-dir, or data_dir)."
        )
    folder = Folder(data_dir, "reddit", "Reddit", "the archives of its comments")
    rows: dict[str, Rows] = {}
    files: list[Path] = []
    for split, name in (("train", "train"), ("dev", "val"), ("test", "test")):
        names = [f"{name}{suffix}" for suffix in (".csv", ".tsv", ".jsonl")]
        if path := folder.file(*names, *(f"{name}.gz" for name in names)):
            rows[split] = partial(_reddit_pairs, path)
            files.append(path)
    if "train" not in rows:
        raise folder.nothing("train.csv", "train.jsonl")
    if "dev" not in rows:
        rows |= held_out_pairs(rows["train"], files[0], seed)
    return Corpus("reddit", CorpusKind.PAIRS, rows, tuple(files))


def _reddit_pairs(path: Path) -> Iterator[Row]:
    pairs = _json_pairs(path) if ".jsonl" in path.suffixes else _tab_pairs(path)
    for comment, reply in pairs:
        if is_good_comment(comment) and is_good_comment(reply):
            yield comment, reply


def _tab_pairs(path: Path) -> Iterator[Row]:
    for line in stream_lines(path):
        cells = line.replace("\r", "").split("\t")
        if len(cells) >= 4:
            yield cells[2].strip(), cells[3].strip()


def _json_pairs(path: Path) -> Iterator[Row]:
    for number, record in read_json_lines(path):
        found = next((keys for keys in JSON_KEYS if all(isinstance(record.get(key), str) for key in keys)), None)
        if found is None:
            expected = " or ".join(" and ".join(map(repr, keys)) for keys in JSON_KEYS)
            raise DataError(f"expected texts under {expected}, found {list(record)}.", file=path, line=number)
        yield record[found[0]].strip(), record[found[1]].strip()


def dailydialog(data_dir: Path | None, seed: int = 0) -> Corpus:
    """DailyDialog: each utterance of a dialogue, but the last, with the one that follows.

    Files: dialogues_train.txt, dialogues_validation.txt and dialogues_test.txt in the folder or in train, validation
    and test, as published: a dialogue in each line, ``__eou__`` after each utterance.

    Raises
    ------
    DataError
        If there is none of the files.
    """
    title = "DailyDialog"
    if data_dir is None:
        data = Hub("li2017dailydialog/daily_dialog", None, PARQUET).load(title)
        rows: dict[str, Rows] = {s: partial(_replies, partial(_hub_dialogues, part)) for s, part in data.items()}
        return Corpus("dailydialog", CorpusKind.PAIRS, rows, cached_files(data))
    folder = Folder(data_dir, "dailydialog", title, "http://yanran.li/dailydialog")
    names = {"train": "train", "dev": "validation", "test": "test"}
    files = folder.splits(
        {split: [f"dialogues_{name}.txt", f"{name}/dialogues_{name}.txt"] for split, name in names.items()}
    )
    rows = {split: partial(_replies, partial(_dialogues, path)) for split, path in files.items()}
    if "train" in files and "dev" not in files:
        rows |= _held_out_dialogues(partial(_dialogues, files["train"]), files["train"], seed)
    return Corpus("dailydialog", CorpusKind.PAIRS, rows, tuple(files.values()))


def _dialogues(path: Path) -> Iterator[Dialogue]:
    for line in stream_lines(path):
        yield [text for part in line.split("__eou__") if (text := part.strip())]


def _hub_dialogues(data: Any) -> Iterator[Dialogue]:
    for (utterances,) in columns(data, ["dialog"]):
        yield [text for utterance in utterances if (text := utterance.strip())]


def _replies(dialogues: Callable[[], Iterable[Dialogue]]) -> Iterator[Row]:
    for dialogue in dialogues():
        yield from pairwise(dialogue)


def _held_out_dialogues(dialogues: Callable[[], Iterator[Dialogue]], path: Path, seed: int) -> dict[str, Rows]:
    """The splits ``train`` and ``dev``, which share no pair: one group of dialogues in 20 is held out."""
    groups = _groups(dialogues())
    units = check_units(int(groups.max(initial=-1)) + 1, path, "conversations that share no pair of utterances")
    return {
        split: partial(_replies, partial(_of_split, dialogues, groups, split == "dev", units, seed))
        for split in ("train", "dev")
    }


def _groups(dialogues: Iterable[Dialogue]) -> np.ndarray:
    """int (n,): the group of each dialogue, numbered from 0; those that begin alike or share a pair have the same."""
    first: dict[int, int] = {}
    links = [
        (i, first.setdefault(xxhash.xxh3_64_intdigest("\0".join(pair).encode()), i))
        for i, dialogue in enumerate(dialogues)
        for pair in pairwise(["", *(dialogue or [str(i)])])
    ]
    if not links:
        return np.zeros(0, np.int64)
    nodes = np.array(links).T
    graph = coo_array((np.ones(len(links)), nodes), shape=(nodes[0, -1] + 1,) * 2)
    of = connected_components(graph, directed=False)[1]
    _, begin, group = np.unique(of, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(begin))[group]


def _of_split(
    dialogues: Callable[[], Iterator[Dialogue]], groups: np.ndarray, held_out: bool, units: int, seed: int
) -> Iterator[Dialogue]:
    """The dialogues of the held-out groups, or all others."""
    for dialogue, group in zip(dialogues(), groups.tolist(), strict=True):
        if is_held_out(group, units, seed) == held_out:
            yield dialogue


def twitter(data_dir: Path | None, seed: int = 0) -> Corpus:
    """Conversations from Twitter: each tweet of a conversation, but the last, with the one that follows.

    File: TwitterConvCorpus.txt with a tweet in each line and empty lines between conversations. There are no official
    splits; one conversation in 20 is held out as dev (:func:`conversations`).

    Raises
    ------
    DataError
        If the file is missing, or no ``data_dir`` is given.
    """
    if data_dir is None:
        raise DataError(
            "The conversations from Twitter are not on the Hugging Face hub; give the folder with "
            "TwitterConvCorpus.txt (--data-dir, or data_dir in Python)."
        )
    name = "TwitterConvCorpus.txt"
    folder = Folder(data_dir, "twitter", "Twitter conversations", "https://github.com/Phylliida/Dialogue-Datasets")
    path = folder.file(name)
    if path is None:
        raise folder.nothing(name)
    return conversations(path, "twitter", "twitter", seed)


def _tweets(path: Path) -> Iterator[Dialogue]:
    conversation: Dialogue = []
    for line in stream_lines(path):
        if text := line.strip():
            conversation.append(text)
        elif conversation:
            yield conversation
            conversation = []
    if conversation:
        yield conversation


def conversations(path: Path, name: str, layout: str, seed: int = 0) -> Corpus:
    """The replies of a file in the layout of DailyDialog or Twitter; one conversation in 20 is held out as dev.

    Conversations that begin with the same utterance or share a pair of utterances are in the same split, so no pair of
    dev is in train. The file is read once to find them; a hash of each pair is kept in memory.

    Parameters
    ----------
    layout : {'dailydialog', 'twitter'}
        A conversation in each line with ``__eou__`` after each utterance, or an utterance in each line and empty
        lines between conversations.

    Raises
    ------
    DataError
        If the file cannot be read, or has fewer than two conversations that share no pair.
    """
    read = _dialogues if layout == "dailydialog" else _tweets
    return Corpus(name, CorpusKind.PAIRS, _held_out_dialogues(partial(read, path), path, seed), (path,))


ENTRIES = {
    "reddit": CorpusEntry(CorpusKind.PAIRS, "Reddit, comments and replies", reddit),
    "dailydialog": CorpusEntry(CorpusKind.PAIRS, "DailyDialog, utterances and replies", dailydialog),
    "twitter": CorpusEntry(CorpusKind.PAIRS, "Twitter, tweets and replies", twitter),
}
