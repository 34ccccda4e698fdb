"""``probekit domains``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from probekit.domains import Corpus, Counts, Terms, Tokenize

__all__ = ["domains_command"]

PAIRS = 45
"""Rows of a table of pairs that are shown, the nearest first; all of them are written."""

MATRIX = 10
"""Domains beside each other in a matrix at most."""

HUB = "hub:"


def domains_command(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=PATH]…",
            help="A file, or a folder with all below it: text, .jsonl, .gz of either. NAME=hub:REPO@SPLIT or "
            "NAME=hub:REPO:CONFIG@SPLIT is a data set of the hub; COUNTS.parquet what --counts wrote.",
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
            "bhattacharyya, cosine, euclidean, variational, vocabulary-overlap, proxy-a-distance.",
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
        int, typer.Option("--resamples", min=0, help="Of the documents, for the intervals; 0 for none.")
    ] = 1000,
    draws: Annotated[int, typer.Option("--draws", min=19, help="Of what sampling alone gives.")] = 199,
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

    from probekit.cli.progress import bar
    from probekit.domains import choose_terms, save_counts
    from probekit.domains.explain import explain as explain_pair
    from probekit.domains.rows import domain_rows, size_rows
    from probekit.errors import UsageError
    from probekit.rows import check_out, evidence, make_rows, write_rows

    check_out(out)
    measures = _measures(measure)
    if counts is not None and (counts.suffix != ".parquet" or counts == out):
        raise UsageError(f"counts are written as .parquet, to a file of their own, not to {counts}.")
    began = monotonic()
    wanted = [_pair(words) for words in explain or []]
    left_out = [] if stop_words is None else _terms_of(stop_words, cased=cased)
    options = {"lower": not cased, "unit": document, "blocks": blocks, "seed": seed}
    with bar() as progress:
        counted = _counted(
            sources or [], task, data_dir, split, field, tokenizer=_tokenizer(tokenizer), progress=progress, **options
        )
        if counts is not None:
            typer.echo(save_counts(counts, counted))
        terms = choose_terms(counted, vocabulary=vocabulary, min_count=min_count, leave_out=left_out)
        for pair in wanted:
            _known(pair, terms)
        read = monotonic() - began
        tables = [domain_rows(terms, measures, resamples=resamples, draws=draws, seed=seed, progress=progress)]
    if tables[0].empty:
        raise UsageError(f"{measure} measures pairs; give two domains or more.")
    shares, tokens = terms.distributions, terms.totals.sum(axis=1)
    for a, b in wanted:
        i, j = terms.names.index(a), terms.names.index(b)
        rest = (int(tokens[i]), int(tokens[j]))
        tables.append(explain_pair(shares[i], shares[j], terms.vocabulary, domains=(a, b), tokens=rest, top=top))
    if sizes:
        tables.append(size_rows(terms, seed=seed))
    _show_domains(terms, tables[0])
    for name in dict.fromkeys(tables[0]["metric"]):
        _show_pairs(tables[0][tables[0]["metric"] == name], terms.names)
    for table in tables[1 : 1 + len(wanted)]:
        _show_terms(table)
    if out is not None:
        arguments = {
            "sources": sources, "task": task, "split": split, "measures": measures, "vocabulary": vocabulary,
            "terms": len(terms.vocabulary), "min_count": min_count, "left_out": len(left_out), "tokenizer": tokenizer,
            "resamples": resamples, "draws": draws, **counted[0].settings,
            "domains": {c.name: {"documents": c.documents, "tokens": c.tokens, "pruned": c.pruned} for c in counted},
        }  # fmt: skip
        durations = {"counting": read, "measuring": monotonic() - began - read}
        card = evidence(arguments=arguments, seeds={"seed": seed}, durations=durations)
        rows = make_rows(pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0])
        typer.echo(f"{write_rows(rows, out, card)}  ({len(rows)} rows, {monotonic() - began:.1f} s)")


def _counted(
    sources: Sequence[str], task: str | None, data_dir: Path | None, split: str | None, field: str, **options: object
) -> list[Counts]:
    """The counts of each domain; those of one name that were read from files of counts are merged."""
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
                read[part.name] = merge(read[part.name], part) if part.name in read else part
        else:
            raise UsageError(f"{source!r} names no domain; write NAME={source}, or the name of a file of counts.")
    if task is not None:
        named += _domains_of(task, data_dir, split)
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
    return [*read.values(), *(count(name, corpus, **options) for name, corpus in named)]  # type: ignore[arg-type]


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


def _tokenizer(name: str) -> str | Tokenize:
    """A name that the domains room knows, or the terms of a Hugging Face tokenizer, without special ones."""
    from probekit.domains import Tokenizer

    if name in list(Tokenizer):
        return name
    import tokenizers
    import xxhash

    from probekit.errors import UsageError

    path = Path(name).expanduser()
    path = path / "tokenizer.json" if path.is_dir() else path
    try:
        exists = path.is_file()
        backend = tokenizers.Tokenizer.from_file(str(path)) if exists else tokenizers.Tokenizer.from_pretrained(name)
    except Exception as error:  # tokenizers raises bare Exception
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise UsageError(
            f"{name!r} is no tokenizer ({reason}); wanted {', '.join(Tokenizer)}, a folder with tokenizer.json, or a "
            "hub id."
        ) from error
    backend.no_truncation()
    backend.no_padding()
    called = {number: term for term, number in backend.get_vocab(with_added_tokens=True).items()}

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        found = backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [[called[number] for number in encoding.ids] for encoding in found]

    tokenize.__name__ = f"{Path(name).name} {xxhash.xxh3_64_hexdigest(backend.to_str().encode())}"
    return tokenize


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


def _terms_of(path: Path, *, cased: bool) -> list[str]:
    """Lines of a file, as terms are written."""
    from probekit.tasks.readers import read_lines

    words = [line.strip() for line in read_lines(path)]
    return [word if cased else word.lower() for word in words if word]


def _show_domains(terms: Terms, rows: pd.DataFrame) -> None:
    from rich.markup import escape

    halves = rows[rows["target"] == "halves"].drop_duplicates("domain_a").set_index("domain_a")
    measured = [f"halves: {halves['metric'].iloc[0]}"] if len(halves) else []
    table = _table("domain", "documents", "tokens", "outside", *measured)
    for i, name in enumerate(terms.names):
        cells = [f"{terms.documents[i]:,}", f"{terms.tokens[i]:,}", f"{terms.outside[i] / terms.tokens[i]:.2%}"]
        if len(halves):
            cells.append("{value:.4f}  {ci_low:.4f}–{ci_high:.4f}".format(**halves.loc[name]))
        table.add_row(escape(name), *cells)
    _print(f"{len(terms.names)} domains, {len(terms.vocabulary):,} terms", table)
    for name, pruned in zip(terms.names, terms.pruned, strict=True):
        if pruned:
            typer.echo(f"{name}: {pruned:,} tokens of rare terms are outside because memory is bounded.")


def _show_pairs(rows: pd.DataFrame, names: Sequence[str]) -> None:
    """The matrix of a measure, of few domains, and under it each pair with interval and null."""
    from rich.markup import escape

    rows = rows[rows["target"] == "gold"].sort_values("value", kind="stable")
    if rows.empty:
        return
    metric = str(rows["metric"].iloc[0])
    values = {(a, b): v for a, b, v in zip(rows["domain_a"], rows["domain_b"], rows["value"], strict=True)}
    if len(names) <= MATRIX:
        matrix = _table(metric, *names)
        for a in names:
            found = (values.get((a, b), values.get((b, a), float("nan"))) for b in names)
            matrix.add_row(escape(a), *(f"{v:.3f}" if isfinite(v) else "" if v != v else "∞" for v in found))
        _print("", matrix)
    table = _table("pair", "value", "95 % interval", "raw", "null", "≤ 95 %", "p")
    for column in table.columns:
        column.no_wrap = column is not table.columns[0]
    for row in rows.head(PAIRS).to_dict("records"):
        numbers = [row.get(key, float("nan")) for key in ("raw", "null_mean", "null_high", "p")]
        interval = f"{row['ci_low']:.4f}–{row['ci_high']:.4f}" if isfinite(row["ci_low"]) else ""
        cells = (f"{row['value']:.4f}", interval, *("" if v != v else f"{v:.4f}" for v in numbers))
        table.add_row(escape(f"{row['domain_a']} – {row['domain_b']}"), *cells)
    _print(metric, table)
    if len(rows) > PAIRS:
        typer.echo(f"… and {len(rows) - PAIRS:,} more pairs (--out writes all).")


def _show_terms(rows: pd.DataFrame) -> None:
    from rich.markup import escape

    a, b = rows["domain_a"].iloc[0], rows["domain_b"].iloc[0]
    table = _table("term", "bits", "share", a, b, "mostly")
    for row in rows.to_dict("records"):
        table.add_row(
            escape(row["term"]), f"{row['value']:.5f}", f"{row['share']:.2%}", f"{row['p']:.3%}", f"{row['q']:.3%}",
            escape(row["mostly"]),
        )  # fmt: skip
    _print(f"{a}, {b}: the terms that make up {rows['value'].sum():.4f} bits (raw)", table)


def _table(first: str, *names: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(escape(first), no_wrap=True)
    for name in names:
        table.add_column(escape(name), justify="right", overflow="fold")
    return table


def _print(title: str, table: Table) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    if title:
        console.print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
    console.print(table)
