"""Divergence between the texts of domains."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from probekit.domains.corpora import Corpus, HubName, corpus_digest, read_files, read_hub, read_texts
from probekit.domains.counting import Counts, count
from probekit.domains.options import CountOptions, DivergenceOptions, DocumentUnit, Tokenization
from probekit.domains.rows import domain_rows, explain, size_rows
from probekit.domains.scanning import hugging_face
from probekit.domains.terms import COUNTS_FILE, Terms, choose_terms, load_counts, merge, save_counts
from probekit.errors import UsageError
from probekit.files import check_folder, read_lines
from probekit.recipe import Read, current
from probekit.rows import Result, make_rows
from probekit.runtime import Progress
from probekit.tasks import load_task


def measure(
    sources: Sequence[str],
    task: tuple[str | None, str | Path | None, Sequence[str] | None],
    counts: Path | None,
    texts: CountOptions,
    options: DivergenceOptions,
    progress: Progress,
) -> Result:
    """The rows of :func:`probekit.domains`; ``task`` with its folder and splits."""
    _check(sources, counts)
    name, data_dir, split = task
    if name is None and (data_dir is not None or split is not None):
        raise UsageError("--data-dir and --split belong to --task; name the task.")
    stop_words = [] if options.stop_words is None else read_lines(Path(options.stop_words))
    how = _counting(texts, options.seed)
    found = list(_of_sources(sources, texts, how))
    of_task = [] if name is None else list(_of_task(name, data_dir, split))
    counted = _counted([*found, *of_task], how, progress)
    left_out = _as_terms(stop_words, counted[0])
    if counts is not None:
        save_counts(counts, counted)
    terms = choose_terms(counted, vocabulary=options.vocabulary, min_count=options.min_count, leave_out=left_out)
    tables = _tables(terms, options, progress)
    for side in ("a", "b"):  # marks domains of a task; the others are corpora
        is_of_task = tables[0][f"domain_{side}"].isin([one.name for one in of_task])
        tables[0][f"task_{side}"] = is_of_task.map({True: name, False: ""})
    reads = [read for one in (*found, *of_task[:1]) for read in one.reads]
    if options.stop_words is not None:
        reads.append(Read(options.stop_words, "corpus", corpus_digest(options.stop_words)[0]))
    rows = make_rows(pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0])
    return Result(rows, reads=tuple(reads))


def _tables(terms: Terms, options: DivergenceOptions, progress: Progress) -> list[pd.DataFrame]:
    """Rows for pairs and halves, for the terms of each pair in ``explain``, and for sizes."""
    for pair in options.pairs:
        if unknown := [name for name in pair if name not in terms.names]:
            raise UsageError(
                f"cannot explain the unknown domain {unknown[0]!r}; the domains are {', '.join(terms.names)}."
            )
    how: dict[str, Any] = {"resamples": options.resamples, "draws": options.draws}
    tables = [domain_rows(terms, options.measure, **how, seed=options.seed, progress=progress)]
    if tables[0].empty:
        raise UsageError(f"{','.join(options.measure)} compares pairs of domains; give two domains or more.")
    shares, tokens = terms.distributions, terms.totals.sum(axis=1)
    for pair in options.pairs:
        i, j = (terms.names.index(name) for name in pair)
        sizes = (int(tokens[i]), int(tokens[j]))
        tables.append(explain(shares[i], shares[j], terms.vocabulary, domains=pair, tokens=sizes, top=options.top))
    if options.sizes:
        tables.append(size_rows(terms, seed=options.seed, progress=progress))
    return tables


@dataclass(frozen=True, slots=True)
class _Source:
    """A domain, or a part of one: its text or its counts, and the files they were read from."""

    name: str
    content: Corpus | Counts
    reads: tuple[Read, ...]


def _check(sources: Sequence[str], counts: Path | None) -> None:
    """Raise UsageError, before reading anything, for a text given twice or an impossible path for the counts."""
    recipe = current()
    out = recipe.leaves.get("out") if recipe else None
    if counts is not None and (counts.suffix != ".parquet" or str(counts) == out):
        raise UsageError(f"--counts must be a separate .parquet file, not {counts}.")
    if counts is not None:
        COUNTS_FILE.check(counts)
        check_folder(counts.parent)
    paths = [str(Path(source).resolve()) for source in sources]
    if counts is not None and str(counts.resolve()) in paths:
        raise UsageError(f"--counts {counts} is also a source; choose another file.")
    if again := sorted({path for path in paths if paths.count(path) > 1}):
        raise UsageError(f"{again[0]} is given twice; its documents would count double.")


def _counting(texts: CountOptions, seed: int) -> dict[str, Any]:
    """The settings for counting, with defaults for those that were not given."""
    name = texts.tokenizer or Tokenization.WORD
    return {
        "tokenizer": Tokenization(name) if name in list(Tokenization) else hugging_face(name),
        "lower": not texts.cased,
        "unit": texts.document or DocumentUnit.PARAGRAPH,
        "blocks": texts.blocks or 1000,
        "seed": seed,
    }


def _of_sources(sources: Sequence[str], texts: CountOptions, how: Mapping[str, Any]) -> Iterator[_Source]:
    """The texts given as NAME=PATH, and all domains of the files of counts."""
    for source in sources:
        name, equals, place = source.partition("=")
        if equals and name and place:
            hub = HubName.parse(place)
            corpus = None if hub else read_files(place, field=texts.field)  # a missing file is reported first
            known, about = corpus_digest(place)
            if hub:
                at = about.get("revision")
                corpus = read_hub(hub.repository, hub.split, config=hub.config, field=texts.field, revision=at)
            assert corpus is not None
            yield _Source(name, corpus, (Read(place, "corpus", known, {"domain": name, **about}),))
        elif source.endswith(".parquet"):
            for part in load_counts(source):
                _check_counted(source, part, texts, how)
                details = {"domain": part.name, "counting": part.settings}
                yield _Source(part.name, part, (Read(source, "corpus", corpus_digest(source)[0], details),))
        else:
            raise UsageError(
                f"{source!r} has no domain name; write NAME={source}, or give a file of counts (.parquet)."
            )


def _check_counted(source: str, counts: Counts, texts: CountOptions, how: Mapping[str, Any]) -> None:
    """Raise UsageError if an option contradicts a file of counts, whose counting cannot be changed any more.

    The seed may differ: later draws from the counts use it, but the division of documents into blocks does not.
    """
    settings = {
        "tokenizer": ("tokenizer", getattr(how["tokenizer"], "__name__", str(how["tokenizer"]))),
        "cased": ("lower", int(how["lower"])),
        "document": ("unit", str(how["unit"])),
        "blocks": ("blocks", how["blocks"]),
    }
    for option, (key, value) in settings.items():
        if getattr(texts, option) is not None and value != (counted := counts.settings.get(key)):
            raise UsageError(
                f"--{option} contradicts {source}, which was counted with {key} {counted}, not {value}; leave the "
                "option out, or count the texts again."
            )


def _of_task(task: str, data_dir: str | Path | None, splits: Sequence[str] | None) -> Iterator[_Source]:
    """The sentences of each domain of a task; of the whole task if it has no domains.

    A document is a first sentence with all of its second sentences (MNLI has three hypotheses per premise), each read
    once: separately they would count as several documents with the same content.
    """
    loaded = load_task(task, data_dir)
    parts = {name: loaded.split(name) for name in splits or loaded.splits}
    reads = tuple(Read(task, "data", part.digest(), {"split": name}) for name, part in parts.items())
    texts: dict[str, dict[str, dict[str, None]]] = {}
    for part in parts.values():
        for example in part:
            seconds = texts.setdefault(example.domain or loaded.name, {}).setdefault(example.text, {})
            seconds |= {} if example.pair is None else {example.pair: None}
    for name in sorted(texts):
        documents = ["\n".join([first, *others]) for first, others in texts[name].items()]
        yield _Source(name, read_texts(documents, name), reads)


def _counted(sources: Sequence[_Source], how: Mapping[str, Any], progress: Progress) -> list[Counts]:
    """The counts of each domain; those from files of counts come first, and equal names are merged."""
    if not sources:
        raise UsageError("no text was given; write NAME=PATH for each domain, or --task.")
    loaded: dict[str, Counts] = {}
    for one in sources:
        if isinstance(one.content, Counts):
            before = loaded.get(one.name)
            loaded[one.name] = one.content if before is None else merge(before, one.content)
    texts = [(one.name, one.content) for one in sources if isinstance(one.content, Corpus)]
    names = [*loaded, *(name for name, _ in texts)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            f"several domains are called {', '.join(map(repr, twice))}; give each a different name, or put the files "
            "of one domain into one folder."
        )
    return [*loaded.values(), *(count(name, corpus, **how, progress=progress) for name, corpus in texts)]


def _as_terms(words: Sequence[str], counts: Counts) -> list[str]:
    """Normalise words in the same way as the terms of ``counts``."""
    words = [word.lower() if counts.settings["lower"] else word for line in words if (word := line.strip())]
    return [unicodedata.normalize("NFC", word) for word in words] if counts.settings.get("form") else words
