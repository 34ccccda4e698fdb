"""Parallel text: WMT, Multi30k (Elliott et al. 2016), NTREX (Federmann et al. 2022) and OpenNMT's example data."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

from probekit.adaptation.pretraining.corpora.kinds import Corpus, CorpusEntry, CorpusKind, Row, Rows
from probekit.adaptation.pretraining.corpora.sources import Folder, Hub, cached_files, columns
from probekit.adaptation.pretraining.corpora.text_files import aligned, held_out_pairs
from probekit.errors import DataError
from probekit.files import stream_lines
from probekit.toml import parse_toml

log = logging.getLogger(__name__)
ISO = {"en": "eng", "de": "deu", "fr": "fra", "ru": "rus"}
SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>")
TABS = {"train": "train.txt", "dev": "val.txt", "test": "test.txt"}
"""The files of jiant's authors: source and target, separated by a tab."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """A corpus of translations.

    Attributes
    ----------
    name, title, source : str
        Name, readable title, and where the files can be had.
    languages : tuple of str
        Source and target, as in the names of files: ``("en", "de")``.
    hint : str
        Part of the name of its folder.
    layouts : Mapping[str, sequence of sequences]
        By split the alternatives; each is one or more names of files that belong together, with the placeholders
        ``{language}``, ``{iso}`` (three letters), ``{side}`` (src, tgt) and ``{role}`` (src, ref). A name that begins
        with ``*/`` may also be in any subfolder.
    hub : Hub, optional
        Its copy on the hub.
    tabs : bool, default False
        Whether it also comes as tab-separated files, those of jiant's authors.
    """

    name: str
    title: str
    languages: tuple[str, str]
    hint: str
    layouts: Mapping[str, Sequence[Sequence[str]]]
    source: str
    hub: Hub | None = None
    tabs: bool = False


def parallel(corpus: Parallel, data_dir: Path | None, seed: int = 0) -> Corpus:
    """A corpus of translations from files whose lines correspond, or from the hub.

    Files may be plain, packed (``.gz``) or WMT's ``.sgm``; WMT's corpora also come in the layout of jiant's authors,
    as tab-separated train.txt, val.txt and test.txt. Pairs with an empty side are left out. Without dev files, one
    training pair in 20 is held out.

    Raises
    ------
    DataError
        If there are no files, or only one language of a split. Files of unequal length raise it when the rows are
        read, with the first line that has no counterpart.
    """
    if data_dir is None:
        if corpus.hub is None:
            message = f"{corpus.title} is not on the Hugging Face hub; give the folder with its files"
            raise DataError(f"{message} (--data-dir, or data_dir in Python; from {corpus.source}).")
        data = corpus.hub.load(corpus.title)
        rows: dict[str, Rows] = {split: partial(_hub_pairs, part, corpus.languages) for split, part in data.items()}
        return Corpus(corpus.name, CorpusKind.PAIRS, rows, cached_files(data))
    folder = Folder(data_dir, corpus.hint, corpus.title, corpus.source)
    rows, files = {}, list[Path]()
    for split, alternatives in corpus.layouts.items():
        found = _pairs_of_files(corpus, folder, alternatives)
        if found:
            rows[split] = partial(_all_pairs, tuple(found))
            files += chain.from_iterable(found)
        elif corpus.tabs and (path := folder.file(TABS[split])):
            rows[split] = partial(tab_separated, path, 2)
            files.append(path)
    if not rows:
        expected = [_name(corpus, name, 0) for names in corpus.layouts.values() for name in names[0]]
        raise folder.nothing(*expected)
    for split in corpus.layouts if "train" in rows else ():
        if split not in rows:
            absent = _name(corpus, corpus.layouts[split][0][0].removeprefix("*/"), 0)
            instead = "; one training pair in 20 is held out for it" if split == "dev" else ""
            log.warning("%s: %s (%s) is not in %s%s.", corpus.title, absent, split, folder.root, instead)
    if "train" in rows and "dev" not in rows:
        rows |= held_out_pairs(rows["train"], files[0], seed)
    return Corpus(corpus.name, CorpusKind.PAIRS, rows, tuple(files))


def _name(corpus: Parallel, pattern: str, side: int) -> str:
    language = corpus.languages[side]
    sides = {"side": ("src", "tgt")[side], "role": ("src", "ref")[side]}
    return pattern.format(language=language, iso=ISO[language], **sides)


def _pairs_of_files(corpus: Parallel, folder: Folder, alternatives: Sequence[Sequence[str]]) -> list[tuple[Path, Path]]:
    """The files of the first alternative of which there is any, as (source, target); missing ones are warned of."""
    for names in alternatives:
        pairs, lacking = [], []
        for name in names:
            expected = [_name(corpus, name.removeprefix("*/"), side) for side in (0, 1)]
            places = ("", "*/", "*/*/") if name.startswith("*/") else ("",)
            source, target = (
                folder.file(*(f"{place}{one}{packed}" for place in places for packed in ("", ".gz")))
                for one in expected
            )
            if source and target:
                pairs.append((source, target))
            elif source or target:
                message = f"has no counterpart; expected {expected[source is not None]} of {corpus.title} too."
                raise DataError(message, file=source or target)
            else:
                lacking.append(expected[0])
        if pairs:
            if lacking:
                message = "%s: %s of %s parts are in %s; %s is not, so this is not the whole published corpus."
                log.warning(message, corpus.title, len(pairs), len(names), folder.root, " and ".join(lacking))
            return pairs
    return []


def _all_pairs(files: Sequence[tuple[Path, Path]]) -> Iterator[Row]:
    for source, target in files:
        yield from aligned(source, target, segments if ".sgm" in source.name else stream_lines)


def segments(path: Path) -> Iterator[str]:
    """The texts between ``<seg>`` tags of an SGML file of WMT, one in each line."""
    for line in stream_lines(path):
        if found := SEGMENT.search(line):
            yield html.unescape(found[1])


def tab_separated(path: Path, count: int) -> Iterator[Row]:
    """The first ``count`` columns of a tab-separated file; rows with an empty one are left out.

    Raises
    ------
    DataError
        If a row has fewer columns.
    """
    for number, line in enumerate(stream_lines(path), start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) < count and line.strip():
            raise DataError(f"found {len(cells)} columns, expected {count} between tabs.", file=path, line=number)
        if len(cells) >= count and all(cells[:count]):
            yield tuple(cells[:count])


def _hub_pairs(data: Any, languages: Sequence[str]) -> Iterator[Row]:
    if "translation" in data.column_names:
        pairs: Iterator[Any] = (
            tuple(row[language] for language in languages) for (row,) in columns(data, ["translation"])
        )
    else:
        pairs = columns(data, languages)
    for source, target in pairs:
        if source.strip() and target.strip():
            yield source.strip(), target.strip()


def _described() -> Iterator[Parallel]:
    """The corpora that ``translation.toml`` describes."""
    file = resources.files("probekit.adaptation.pretraining.corpora") / "translation.toml"
    for name, values in parse_toml(file.read_text("utf-8"), Path(file.name)).items():
        hub = values.pop("hub", None)
        languages = tuple(values.pop("languages"))
        yield Parallel(name, languages=languages, hub=None if hub is None else Hub(*hub), **values)


ENTRIES = {one.name: CorpusEntry(CorpusKind.PAIRS, one.title, partial(parallel, one)) for one in _described()}
