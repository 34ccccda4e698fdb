"""Corpora for language modelling: WikiText (Merity et al. 2017) and One Billion Word (Chelba et al. 2014)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from probekit.adaptation.pretraining.corpora.kinds import Corpus, CorpusEntry, CorpusKind, Row, Rows
from probekit.adaptation.pretraining.corpora.sources import Folder, Hub, cached_files, columns
from probekit.adaptation.pretraining.corpora.text_files import HELD_OUT, divided, is_held_out
from probekit.files import stream_lines
from probekit.tasks.datasets.sources import PARQUET

WIKITEXT_SOURCE = "https://huggingface.co/datasets/Salesforce/wikitext"
BILLION_WORD_SOURCE = "https://www.statmt.org/lm-benchmark/"
WIKITEXT_FILES = {"train": ["wiki.train*.tokens"], "dev": ["wiki.valid.tokens"], "test": ["wiki.test.tokens"]}
HEADING = re.compile(r"((?:= )+)(?!= ).*[^=] ((?:= )*=)")
END = {".", "!", "?"}
CLOSING = {"'", "''", ")", "]", "’", "”"}


def wikitext(data_dir: Path | None, seed: int = 0, *, size: str = "103") -> Corpus:
    """WikiText-103 or WikiText-2: sentences of Wikipedia articles, one article a document.

    Files: wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens, as published: a paragraph in each line, headings
    between ``=`` (left out), ``<unk>`` for rare words. Paragraphs are split into sentences by :func:`split_sentences`
    (jiant's authors split them too, but did not publish how). Without wiki.valid.tokens, one article in 20 is
    held out.

    Parameters
    ----------
    data_dir : Path, optional
        Folder with the files; None loads from the hub.
    size : {'103', '2'}
        Which one.

    Raises
    ------
    DataError
        If there is none of the files.
    """
    name, title = f"wikitext-{size}", f"WikiText-{size}"
    if data_dir is None:
        data = Hub("Salesforce/wikitext", f"wikitext-{size}-v1").load(title)
        rows: dict[str, Rows] = {split: partial(_articles_of, partial(_texts, part)) for split, part in data.items()}
        return Corpus(name, CorpusKind.SENTENCES, rows, cached_files(data))
    folder = Folder(data_dir, name, title, WIKITEXT_SOURCE)
    files = folder.splits(WIKITEXT_FILES)
    rows = {split: partial(_articles_of, partial(stream_lines, path)) for split, path in files.items()}
    if "train" in files and "dev" not in files:
        rows |= divided(partial(_articles_in, files["train"]), files["train"], seed)
    return Corpus(name, CorpusKind.SENTENCES, rows, tuple(files.values()))


def _texts(data: Any) -> Iterator[str]:
    return (text for (text,) in columns(data, ["text"]))


def _articles_in(path: Path) -> Iterator[Iterator[str]]:
    return articles(stream_lines(path))


def _articles_of(lines: Callable[[], Iterator[str]]) -> Iterator[Row]:
    """The sentences of articles, with ``("",)`` between articles."""
    begun = False
    for article in articles(lines()):
        gap = begun
        for sentence in article:
            if gap:
                yield ("",)
            gap, begun = False, True
            yield (sentence,)


def articles(lines: Iterable[str]) -> Iterator[Iterator[str]]:
    """The articles of a WikiText file, each an iterator over its sentences, to be read before the next one.

    An article begins with a heading between single ``=`` that follows an empty line; headings are left out.

    Examples
    --------
    >>> text = ["", " = Crab = ", "", " It is blue . It is <unk> . ", " = = Food = = ", "", " = Ox = ", "", " Big . "]
    >>> [list(article) for article in articles(text)]
    [['It is blue .', 'It is <unk> .'], ['Big .']]
    """
    rest = _marked(lines)
    first = next(rest, None)
    while first is not None:
        following: list[str] = []
        article = _until_title(first, rest, following)
        yield article
        for _ in article:
            pass
        first = following.pop() if following else None


def _marked(lines: Iterable[str]) -> Iterator[str]:
    """Paragraphs, and "" for the title of an article."""
    empty = True
    for line in lines:
        text = line.strip()
        heading = HEADING.fullmatch(text)
        if heading and len(heading[1].split()) == len(heading[2].split()):
            if heading[1] == "= " and empty:
                yield ""
        elif text:
            yield text
        empty = not text


def _until_title(first: str, rest: Iterator[str], following: list[str]) -> Iterator[str]:
    """The sentences up to the next title, which is put into ``following``."""
    if first:
        yield from split_sentences(first)
    for paragraph in rest:
        if not paragraph:
            following.append("")
            return
        yield from split_sentences(paragraph)


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph of words between blanks.

    A sentence ends after ``.``, ``!`` or ``?`` as a word of its own, with the closing quotation marks and brackets
    that follow it, unless the next word begins with a small letter. A ``"`` is closing if one is open in the sentence.

    Examples
    --------
    >>> split_sentences('He said " Go . " She went . St. Paul left ( at 5 . ) I know .')
    ['He said " Go . "', 'She went .', 'St. Paul left ( at 5 . )', 'I know .']
    """
    words = paragraph.split()
    sentences, begin, at = [], 0, 0
    while at < len(words):
        at += 1
        if words[at - 1] not in END:
            continue
        while at < len(words) and (
            words[at] in END or words[at] in CLOSING or (words[at] == '"' and words[begin:at].count('"') % 2 == 1)
        ):
            at += 1
        if at == len(words) or not words[at][0].islower():
            sentences.append(" ".join(words[begin:at]))
            begin = at
    if begin < len(words):
        sentences.append(" ".join(words[begin:]))
    return sentences


def billion_word(data_dir: Path | None, seed: int = 0) -> Corpus:
    """The One Billion Word benchmark: shuffled sentences of news, each a document of its own.

    Files: training-monolingual.tokenized.shuffled/news.en-000xx-of-00100, and of
    heldout-monolingual.tokenized.shuffled the shards news.en.heldout-00000-of-00050 (test, as usual) and
    news.en.heldout-00001-of-00050 (dev), in the folder or a subfolder. On the hub all held-out shards are the test
    split, and one training sentence in 20 is held out as dev; so it is where the second shard is missing.

    Raises
    ------
    DataError
        If there are no training shards.
    """
    title = "One Billion Word"
    if data_dir is None:
        data = Hub("billion-word-benchmark/lm1b", "plain_text", PARQUET).load(title)
        texts = {split: partial(_texts, part) for split, part in data.items()}
        files = cached_files(data)
    else:
        folder = Folder(data_dir, "1-billion-word", title, BILLION_WORD_SOURCE)
        train, heldout = "training-monolingual.tokenized.shuffled/news.en-*-of-00100", "news.en.heldout-0000{}-of-00050"
        shards = {"train": folder.files(train, Path(train).name)}
        for split, number in (("dev", 1), ("test", 0)):
            name = heldout.format(number)
            shards[split] = folder.files(f"heldout-monolingual.tokenized.shuffled/{name}", name)
        if not shards["train"]:
            raise folder.nothing(train)
        texts = {split: partial(_chained, tuple(paths)) for split, paths in shards.items() if paths}
        files = tuple(chain.from_iterable(shards.values()))
    rows: dict[str, Rows] = {split: partial(_separate, part) for split, part in texts.items()}
    if "dev" not in rows:
        rows |= {split: partial(_separate, texts["train"], split == "dev", seed) for split in ("train", "dev")}
    return Corpus("billion-word", CorpusKind.SENTENCES, rows, files)


def _chained(paths: Iterable[Path]) -> Iterator[str]:
    return chain.from_iterable(map(stream_lines, paths))


def _separate(texts: Callable[[], Iterator[str]], held_out: bool | None = None, seed: int = 0) -> Iterator[Row]:
    """Sentences, all or those of one part, with ``("",)`` between them."""
    begun = False
    for i, text in enumerate(texts()):
        if text.strip() and (held_out is None or is_held_out(i, HELD_OUT, seed) == held_out):
            if begun:
                yield ("",)
            begun = True
            yield (text.strip(),)


ENTRIES = {
    "wikitext-103": CorpusEntry(CorpusKind.SENTENCES, "WikiText-103", partial(wikitext, size="103")),
    "wikitext-2": CorpusEntry(CorpusKind.SENTENCES, "WikiText-2", partial(wikitext, size="2")),
    "billion-word": CorpusEntry(CorpusKind.SENTENCES, "One Billion Word", billion_word),
}
