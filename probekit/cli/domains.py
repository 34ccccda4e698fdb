"""``probekit domains``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from probekit.domains import Corpus, Counts, Terms

__all__ = ["domains_command"]

HUB = "hub:"


def domains_command(
    ctx: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=PATH]…",
            help="A file, a folder with all below it, or a pattern: text, .jsonl, .gz of either. NAME=hub:REPO@SPLIT "
            "or NAME=hub:REPO:CONFIG@SPLIT is a data set of the hub; COUNTS.parquet what --counts wrote.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the rows: .parquet or .csv, an evidence card (.json) beside it.")
    ] = None,
    counts: Annotated[
        Path | None,
        typer.Option(
            "--counts", help="Write the counts of all terms (.parquet), to be read again, alone or with others."
        ),
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="Each domain of a task: the genres of mnli.")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Folder of the task's files.")] = None,
    split: Annotated[str | None, typer.Option("--split", help="Of the task, with commas; all without it.")] = None,
    measure: Annotated[
        str,
        typer.Option(
            "--measure",
            help="With commas: js-divergence, js-divergence-nats, js-distance, js-similarity, kl, renyi, "
            "bhattacharyya, cosine, euclidean, variational, vocabulary-overlap, proxy-a-distance. kl, renyi and "
            "bhattacharyya are in nats; kl is of distributions mixed with .001 of the uniform one, renyi of order .99.",
        ),
    ] = "js-divergence",
    vocabulary: Annotated[
        int, typer.Option("--vocabulary", min=1, help="The most frequent terms of all domains together.")
    ] = 10_000,
    min_count: Annotated[int, typer.Option("--min-count", min=1, help="Of a term, in all domains together.")] = 1,
    stop_words: Annotated[
        Path | None, typer.Option("--stop-words", help="A file of terms, one a line, that are left out.")
    ] = None,
    tokenizer: Annotated[
        str,
        typer.Option(
            "--tokenizer",
            help="word (Unicode letters, digits, marks and _), whitespace, or a Hugging Face tokenizer: a folder, a "
            "tokenizer.json or a hub id, whose terms are taken as they come.",
        ),
    ] = "word",
    cased: Annotated[bool, typer.Option("--cased", help="Do not lower-case the terms.")] = False,
    document: Annotated[
        str,
        typer.Option(
            "--document", help="What is drawn again for the intervals, of files of text: paragraph, line or file."
        ),
    ] = "paragraph",
    field: Annotated[str, typer.Option("--field", help="The text in JSON lines and hub data sets.")] = "text",
    resamples: Annotated[
        int, typer.Option("--resamples", min=0, help="Of the documents, for the intervals: 40 or more; 0 for none.")
    ] = 1000,
    draws: Annotated[
        int, typer.Option("--draws", min=0, help="Of what sampling alone gives: 19 or more; 0 for none.")
    ] = 199,
    blocks: Annotated[
        int, typer.Option("--blocks", min=2, help="That the documents of a domain are dealt to at most.")
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of all that is drawn.")] = 0,
    explain: Annotated[
        list[str] | None,
        typer.Option("--explain", help="Two domains A,B: the terms that make up their divergence. May be repeated."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Terms that --explain tells.")] = 20,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="The divergence of parts of the documents, too: the effect of corpus size.")
    ] = False,
) -> None:
    """Measure how far the texts of domains are from each other, how sure that is, and which terms make it.

    The Jensen-Shannon divergence of term distributions, in bits: 0 for equal, 1 for nothing in common. Two samples of
    one population are not at 0; how much sampling alone gives is shown beside (null), and is taken off the values of
    the Jensen-Shannon family, as far as both have terms in common. Intervals draw documents again. Terms outside the
    vocabulary are left out, and their share is told.

    Examples:

        probekit domains fiction=novels/ wiki=wiki.txt.gz --out domains.parquet

        probekit domains --task mnli --data-dir data/mnli wiki=wiki.txt --explain fiction,wiki

        probekit domains news=news.jsonl --field body --document line --counts news.parquet

        probekit domains news.parquet more-news.parquet wiki.parquet --measure js-distance,kl

        probekit plot domains domains.parquet --out domains.pdf
    """
    import pandas as pd

    from probekit.cli.domain_tables import show_domains, show_pairs, show_terms
    from probekit.cli.progress import bar
    from probekit.domains import Tokenizer, choose_terms, hugging_face, save_counts
    from probekit.domains.explain import explain as explain_pair
    from probekit.domains.rows import domain_rows, size_rows
    from probekit.errors import UsageError
    from probekit.files import read_lines
    from probekit.rows import check_out, evidence, make_rows, write_rows

    check_out(out)
    measures = _measures(measure)
    if counts is not None and (counts.suffix != ".parquet" or counts == out):
        raise UsageError(f"counts are written as .parquet, to a file of their own, not to {counts}.")
    began = monotonic()
    if 0 < draws < 19 or 0 < resamples < 40:
        raise UsageError(
            f"{draws} draws and {resamples} resamples: fewer than 19 draws and 40 resamples say nothing of the ends of "
            "95 %; give more, or 0 for none."
        )
    wanted = [_pair(pair) for pair in explain or []]
    words = [] if stop_words is None else [line.strip() for line in read_lines(stop_words)]
    cut = tokenizer if tokenizer in list(Tokenizer) else hugging_face(tokenizer)
    options = {"tokenizer": cut, "lower": not cased, "unit": document, "blocks": blocks, "seed": seed}
    given = {name for name in ctx.params if (how := ctx.get_parameter_source(name)) and how.name == "COMMANDLINE"}
    with bar() as progress:
        counted, of_task = _counted(sources or [], task, data_dir, split, field, given, progress=progress, **options)
        left_out = _as_terms(words, counted[0])
        if counts is not None:
            typer.echo(save_counts(counts, counted))
        terms = choose_terms(counted, vocabulary=vocabulary, min_count=min_count, leave_out=left_out)
        for pair in wanted:
            _known(pair, terms)
        read = monotonic() - began
        tables = [domain_rows(terms, measures, resamples=resamples, draws=draws, seed=seed, progress=progress)]
        if tables[0].empty:
            raise UsageError(f"{measure} measures pairs; give two domains or more.")
        for side in ("a", "b"):  # which are domains of a task, and which corpora
            of = tables[0][f"domain_{side}"].isin(list(of_task))
            tables[0][f"task_{side}"] = of.map({True: task, False: ""})
        shares, tokens = terms.distributions, terms.totals.sum(axis=1)
        for a, b in wanted:
            i, j = terms.names.index(a), terms.names.index(b)
            rest = (int(tokens[i]), int(tokens[j]))
            tables.append(explain_pair(shares[i], shares[j], terms.vocabulary, domains=(a, b), tokens=rest, top=top))
        if sizes:
            tables.append(size_rows(terms, seed=seed, progress=progress))
    show_domains(terms, tables[0])
    for name in dict.fromkeys(tables[0]["metric"]):
        show_pairs(tables[0][tables[0]["metric"] == name], terms.names)
    for table in tables[1 : 1 + len(wanted)]:
        show_terms(table)
    if out is not None:
        arguments = {
            "sources": sources, "task": task, "split": split, "measures": measures, "vocabulary": vocabulary,
            "terms": len(terms.vocabulary), "min_count": min_count, "left_out": len(left_out), "resamples": resamples,
            "draws": draws, **counted[0].settings,
            "domains": {c.name: {"documents": c.documents, "tokens": c.tokens, "pruned": c.pruned} for c in counted},
        }  # fmt: skip
        durations = {"counting": read, "measuring": monotonic() - began - read}
        card = evidence(arguments=arguments, seeds={"seed": seed}, durations=durations)
        rows = make_rows(pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0])
        typer.echo(f"{write_rows(rows, out, card)}  ({len(rows)} rows, {monotonic() - began:.1f} s)")


def _counted(
    sources: Sequence[str],
    task: str | None,
    data_dir: Path | None,
    split: str | None,
    field: str,
    given: set[str],
    **options: Any,
) -> tuple[list[Counts], set[str]]:
    """The counts of each domain, and which are the task's; those of one name from files of counts are merged.

    given : names of the command's options that were given; options : of counting
    """
    from probekit.domains import count, load_counts, merge
    from probekit.errors import UsageError

    named: list[tuple[str, Corpus]] = []
    read: dict[str, Counts] = {}
    paths = [str(Path(source).resolve()) for source in sources]
    again = sorted({path for path in paths if paths.count(path) > 1})
    if again:
        raise UsageError(f"{again[0]} is given twice; its documents would count double.")
    for source in sources:
        name, equals, path = source.partition("=")
        if equals and name and path:
            named.append((name, _corpus(path, field)))
        elif source.endswith(".parquet"):
            for part in load_counts(source):
                _agrees(source, part, given, options)
                read[part.name] = merge(read[part.name], part) if part.name in read else part
        else:
            raise UsageError(f"{source!r} names no domain; write NAME={source}, or the name of a file of counts.")
    own: list[tuple[str, Corpus]] = []
    if task is not None:
        own = list(_domains_of(task, data_dir, split))
        named += own
    elif data_dir is not None or split is not None:
        raise UsageError("--data-dir and --split belong to --task; name the task.")
    names = [*read, *(name for name, _ in named)]
    if not names:
        raise UsageError("no text was given; write NAME=PATH for each domain, or --task.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"several domains are called {', '.join(map(repr, twice))}; give each a name of its own, or put the files "
            "of one in a folder."
        )
    counted = [*read.values(), *(count(name, corpus, **options) for name, corpus in named)]
    return counted, {name for name, _ in own}


def _agrees(source: str, counts: Counts, given: set[str], options: Mapping[str, Any]) -> None:
    """Refuse options that were given and say otherwise than a file of counts, which cannot follow them any more.

    The seed may be another: what is drawn of the counts follows it, though not which documents are a block.
    """
    from probekit.errors import UsageError

    tokenizer = options["tokenizer"]
    asked = {
        "tokenizer": ("tokenizer", getattr(tokenizer, "__name__", str(tokenizer))),
        "cased": ("lower", int(options["lower"])),
        "document": ("unit", options["unit"]),
        "blocks": ("blocks", options["blocks"]),
    }
    for option, (key, value) in asked.items():
        if option in given and value != (made := counts.settings.get(key)):
            raise UsageError(
                f"--{option} was given, and {source} was counted otherwise ({key} {made}, not {value}); leave it out, "
                "or count the texts anew."
            )


def _corpus(path: str, field: str) -> Corpus:
    from probekit.domains import read_files, read_hub
    from probekit.errors import UsageError

    if not path.startswith(HUB):
        return read_files(path, field=field)
    name, _, split = path.removeprefix(HUB).rpartition("@")
    if not name or not split:
        raise UsageError(f"{path!r} names no split; write hub:REPO@SPLIT or hub:REPO:CONFIG@SPLIT.")
    repository, _, config = name.partition(":")
    return read_hub(repository, split, config=config or None, field=field)


def _domains_of(task: str, data_dir: Path | None, split: str | None) -> Iterator[tuple[str, Corpus]]:
    """Each domain of a task with its sentences; without domains, all as one.

    A document is a first sentence with all second sentences that it has (MNLI's premises have three hypotheses each),
    each read once: apart they would count as several documents that tell the same.
    """
    from probekit.domains import read_texts
    from probekit.tasks import load_task

    loaded = load_task(task, data_dir)
    texts: dict[str, dict[str, dict[str, None]]] = {}
    for name in loaded.splits if split is None else _words(split):
        for example in loaded.split(name):
            own = texts.setdefault(example.domain or loaded.name, {}).setdefault(example.text, {})
            own |= {} if example.pair is None else {example.pair: None}
    for name in sorted(texts):
        yield name, read_texts(["\n".join([first, *others]) for first, others in texts[name].items()], name)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _measures(text: str) -> list[str]:
    from probekit.domains.divergence import Measure
    from probekit.domains.rows import PROXY
    from probekit.errors import UsageError

    known = [*Measure, PROXY]
    if not (words := _words(text)) or (unknown := [word for word in words if word not in known]):
        raise UsageError(f"there is no measure {(unknown if words else [text])[0]!r}; there are {', '.join(known)}.")
    return words


def _pair(text: str) -> tuple[str, str]:
    from probekit.errors import UsageError

    words = _words(text)
    if len(words) != 2 or words[0] == words[1]:
        raise UsageError(f"--explain {text!r}: two domains A,B are wanted.")
    return words[0], words[1]


def _known(pair: tuple[str, str], terms: Terms) -> None:
    from probekit.errors import UsageError

    unknown = [name for name in pair if name not in terms.names]
    if unknown:
        raise UsageError(f"there is no domain {unknown[0]!r} to explain; there are {', '.join(terms.names)}.")


def _as_terms(words: Sequence[str], counts: Counts) -> list[str]:
    """Words as the terms of ``counts`` are written."""
    import unicodedata

    words = [word.lower() if counts.settings["lower"] else word for word in words if word]
    return [unicodedata.normalize("NFC", word) for word in words] if counts.settings.get("form") else words
