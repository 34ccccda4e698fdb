"""Term distributions of domains over one vocabulary: the most frequent terms of all domains together.

terms = count_domains({"fiction": "novels/", "own": ["one text", "another"]})
terms.distributions[0], terms.outside / terms.tokens

Counts of each domain, of all terms, can be saved and merged: those of two halves give those of the whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.domains.corpora import Corpus, read_files, read_texts
from probekit.domains.counting import Counts, block_of, count
from probekit.errors import DataError, UsageError
from probekit.files import FileKind, whole
from probekit.parquet import about_in, open_parquet, with_digest

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FORMAT = "probekit-counts/1"


def _is_counts(path: Path) -> bool:
    from pyarrow import parquet

    return json.loads((parquet.read_schema(path).metadata or {}).get(b"probekit", b"{}")).get("format") == FORMAT


COUNTS_FILE = FileKind("a file of counts", _is_counts, "give the counts another name")


@dataclass(frozen=True, slots=True)
class Terms:
    """Counts of some domains over one vocabulary of v terms.

    Attributes
    ----------
    names : tuple[str, ...]
        Names of the domains.
    vocabulary : tuple[str, ...]
        The terms, the most frequent first, ties in the order of the terms.
    counts : tuple[csr_array, ...]
        For each domain int64 (blocks, v), sparse. A block is a random sample of its documents, or a single document if
        there are no more documents than blocks.
    outside : np.ndarray
        int64 (domains,), tokens of other terms.
    documents, tokens : np.ndarray
        int64 (domains,), numbers of all documents and tokens.
    pruned : np.ndarray
        int64 (domains,), tokens in ``outside`` whose terms were dropped to limit memory (see :class:`Counts`).
    """

    names: tuple[str, ...]
    vocabulary: tuple[str, ...]
    counts: tuple[csr_array, ...]
    outside: np.ndarray
    documents: np.ndarray
    tokens: np.ndarray
    pruned: np.ndarray

    @property
    def totals(self) -> np.ndarray:
        """int64 (domains, v)."""
        return np.array([count.sum(axis=0) for count in self.counts])

    @property
    def distributions(self) -> np.ndarray:
        """Shares of the terms among those of the vocabulary, float64 (domains, v); each row sums to 1."""
        totals = self.totals
        return totals / totals.sum(axis=1, keepdims=True)


def count_domains(
    sources: Mapping[str, str | Path | Corpus | Iterable[str]]
    | Iterable[tuple[str, str | Path | Corpus | Iterable[str]]],
    *,
    vocabulary: int = 10_000,
    min_count: int = 1,
    leave_out: Collection[str] = (),
    field: str = "text",
    **options: Any,
) -> Terms:
    """Count the terms of domains, given by name: a file or folder, strings (one per document), or a Corpus.

    Parameters
    ----------
    vocabulary, min_count, leave_out : int or Collection[str]
        See :func:`choose_terms`.
    field : str, default 'text'
        The field of JSON lines that contains the text.
    **options
        Options of :func:`probekit.domains.counting.count`: tokenizer, lower, unit, blocks, seed, progress.

    Raises
    ------
    UsageError
        If two domains have the same name.
    DataError
        For text that cannot be read, an empty domain, a domain of one document, and one without a term of the
        vocabulary.
    """
    pairs = list(sources.items()) if isinstance(sources, Mapping) else list(sources)
    _differ([name for name, _ in pairs])
    corpora = [(name, _corpus(source, field)) for name, source in pairs]  # reports missing sources before it reads any
    counts = [count(name, corpus, **options) for name, corpus in corpora]
    return choose_terms(counts, vocabulary=vocabulary, min_count=min_count, leave_out=leave_out)


def _corpus(source: str | Path | Corpus | Iterable[str], field: str) -> Corpus:
    if isinstance(source, Corpus):
        return source
    return read_files(source, field=field) if isinstance(source, (str, Path)) else read_texts(source)


def choose_terms(
    counts: Sequence[Counts], *, vocabulary: int = 10_000, min_count: int = 1, leave_out: Collection[str] = ()
) -> Terms:
    """Counts over the ``vocabulary`` most frequent terms of all domains together (Ruder & Plank 2017, section 4).

    Parameters
    ----------
    min_count : int, default 1
        Rarer terms, counted over all domains together, are left out; their tokens are in ``outside``.
    leave_out : Collection[str], default ()
        Further terms to leave out, such as stop words.

    Raises
    ------
    UsageError
        If names are not unique or the counts were made with different settings.
    DataError
        If a domain is a single document or contains no term of the vocabulary.
    """
    _differ([c.name for c in counts])
    if vocabulary < 1 or not counts:
        raise UsageError(f"expected at least 1 domain and 1 term; got {len(counts)} and {vocabulary}.")
    for c in counts:
        _same(counts[0], c)
        if c.documents < 2:
            raise DataError(
                f"the domain {c.name!r} is a single document, from which the uncertainty of its terms cannot be "
                "estimated. Give more text, or say what counts as a document (--document line)."
            )
    together: Counter[str] = Counter()
    sums = [c.matrix.sum(axis=0) for c in counts]
    for c, totals in zip(counts, sums, strict=True):
        together.update(dict(zip(c.terms, totals.tolist(), strict=True)))
    out = frozenset(leave_out)
    able = [(-n, term) for term, n in together.items() if n >= min_count and term not in out]
    chosen = tuple(term for _, term in sorted(able)[:vocabulary])
    at = {term: k for k, term in enumerate(chosen)}
    tables = tuple(_columns(c, at) for c in counts)
    inside = np.array([table.sum() for table in tables], dtype=np.int64)
    for c, n in zip(counts, inside, strict=True):
        if not n:
            raise DataError(
                f"the domain {c.name!r} has none of the {len(chosen):,} terms of the vocabulary; "
                "use a larger --vocabulary or a smaller --min-count."
            )
    tokens = np.array([c.tokens for c in counts], dtype=np.int64)
    return Terms(
        names=tuple(c.name for c in counts),
        vocabulary=chosen,
        counts=tables,
        outside=tokens - inside,
        documents=np.array([c.documents for c in counts], dtype=np.int64),
        tokens=tokens,
        pruned=np.array([c.pruned for c in counts], dtype=np.int64),
    )


def _columns(counts: Counts, chosen: Mapping[str, int]) -> csr_array:
    """int64 (blocks, chosen), sparse."""
    from scipy.sparse import csr_array

    column = np.array([chosen.get(term, -1) for term in counts.terms])
    cells = counts.matrix.tocoo()
    to = column[cells.col]
    shape = (counts.matrix.shape[0], len(chosen))
    return csr_array((cells.data[to >= 0], (cells.row[to >= 0], to[to >= 0])), shape=shape)


def _differ(names: Sequence[str]) -> None:
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise UsageError(f"several domains are called {', '.join(map(repr, twice))}; give each a different name.")


def _same(a: Counts, b: Counts) -> None:
    settings = {key: (a.settings.get(key), b.settings.get(key)) for key in {**a.settings, **b.settings}}
    other = {key: (x, y) for key, (x, y) in settings.items() if x != y}
    if other:
        ways = "; ".join(f"{key} {x} and {y}" for key, (x, y) in other.items())
        raise UsageError(f"{a.name!r} and {b.name!r} differ in their settings ({ways}); count one of them again.")


def merge(a: Counts, b: Counts) -> Counts:
    """Merge the counts of two parts of a domain; if documents are blocks, those of ``a`` come first.

    The result has the terms and sums of counting both at once, and also its blocks if the parts are whole files.

    Raises
    ------
    UsageError
        If they were counted with different settings.
    """
    _same(a, b)
    terms = tuple(sorted({*a.terms, *b.terms}))
    blocks, deals = int(a.settings["blocks"]), None
    if a.deals is not None and b.deals is not None and len(a.deals) + len(b.deals) <= blocks:
        deals = np.concatenate([a.deals, b.deals])
    total = sum(_spread(part, terms, start, deals, blocks) for part, start in ((a, 0), (b, a.documents)))
    numbers = {key: getattr(a, key) + getattr(b, key) for key in ("documents", "tokens", "pruned", "bound")}
    return replace(a, terms=terms, matrix=total, deals=deals, **numbers)


def _spread(part: Counts, terms: tuple[str, ...], start: int, deals: np.ndarray | None, blocks: int) -> csr_array:
    """The matrix of a part in the shape of the whole: (blocks of the whole, terms)."""
    from scipy.sparse import csr_array

    at = {term: i for i, term in enumerate(terms)}
    columns = np.array([at[term] for term in part.terms])
    cells = part.matrix.tocoo()
    rows = cells.row
    if deals is not None:
        rows = rows + start
    elif part.deals is not None:
        rows = block_of(part.deals, blocks)[rows]
    shape = (blocks if deals is None else len(deals), len(terms))
    return csr_array((cells.data, (rows, columns[cells.col])), shape=shape)


def save_counts(path: str | Path, counts: Sequence[Counts]) -> Path:
    """Write counts of all terms as Parquet: the columns domain, term, block and count, a row for each that is not 0.

    The schema's metadata contain the format, the settings, and for each domain the numbers of documents, tokens and
    pruned tokens (JSON). The file is written atomically.

    Raises
    ------
    UsageError
        If names are not unique or the counts were made with different settings.
    """
    import pyarrow as pa
    from pyarrow import parquet

    path = Path(path)
    _differ([c.name for c in counts])
    for c in counts:
        _same(counts[0], c)
    about = [
        {
            "name": c.name,
            "terms": len(c.terms),
            "blocks": c.matrix.shape[0],
            "deals": None if c.deals is None else c.deals.tolist(),
            **{key: getattr(c, key) for key in ("documents", "tokens", "pruned", "bound")},
        }
        for c in counts
    ]
    metadata = {"format": FORMAT, "settings": counts[0].settings, "domains": about}
    text = pa.dictionary(pa.int32(), pa.string())
    columns = [("domain", text), ("term", text), ("block", pa.int32()), ("count", pa.int64())]
    schema = pa.schema(columns, metadata={"probekit": with_digest(metadata)})
    options: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
    with whole(path, COUNTS_FILE) as new, parquet.ParquetWriter(new, schema, **options) as writer:
        for c in counts:
            cells = c.matrix.tocsc().tocoo()  # term by term, which packs best
            term = pa.DictionaryArray.from_arrays(cells.col.astype(np.int32), pa.array(c.terms))
            name = pa.DictionaryArray.from_arrays(np.zeros(len(cells.col), dtype=np.int32), pa.array([c.name]))
            arrays = [name, term, pa.array(cells.row.astype(np.int32)), pa.array(cells.data)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=max(len(cells.col), 1))
    return path


def load_counts(path: str | Path) -> list[Counts]:
    """Read a file of :func:`save_counts`; raises DataError for any other file."""
    from pyarrow import parquet

    path = Path(path)
    with open_parquet(path) as file:
        metadata = about_in(file, b"probekit", path)
        if metadata.get("format") != FORMAT:
            raise DataError(
                f"contains no counts of terms ({FORMAT}). Make them with probekit domains --counts.", file=path
            )
        options: dict[str, Any] = {"read_dictionary": ["domain", "term"], "page_checksum_verification": True}
        with parquet.ParquetFile(path, **options) as file:
            return _loaded(metadata, [file.read_row_group(i) for i in range(file.num_row_groups)])


def _loaded(metadata: Mapping[str, Any], tables: Sequence[Any]) -> list[Counts]:
    """The counts in the row groups of a file, one per domain."""
    from scipy.sparse import csr_array

    loaded = []
    for about, table in zip(metadata["domains"], tables, strict=True):
        term = table["term"].combine_chunks()
        names, words = term.dictionary.to_pylist(), term.indices.to_numpy()
        order = sorted(range(len(names)), key=names.__getitem__)
        place = np.empty(len(names), dtype=np.int32)
        place[order] = np.arange(len(names), dtype=np.int32)
        cells = (table["count"].to_numpy(), (table["block"].to_numpy(), place[words]))
        matrix = csr_array(cells, shape=(about["blocks"], len(names)))
        matrix.sort_indices()
        deals = None if about["deals"] is None else np.array(about["deals"], dtype=np.uint64)
        numbers = {key: about[key] for key in ("documents", "tokens", "pruned", "bound")}
        terms = tuple(names[i] for i in order)
        loaded.append(Counts(about["name"], terms, matrix, deals, settings=metadata["settings"], **numbers))
    return loaded
