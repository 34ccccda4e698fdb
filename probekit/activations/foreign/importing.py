"""Activations of another program in an ordinary cache, which says where they come from and what was certified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.cache import ActivationCache
from probekit.activations.foreign.against import Comparison, compare, said_layers
from probekit.activations.foreign.opening import open_source
from probekit.activations.foreign.options import ImportOptions
from probekit.activations.foreign.source import Array, Source
from probekit.activations.options import NO_POOLING, CacheOptions
from probekit.activations.writing.job import cache_activations
from probekit.activations.writing.journal import journal_path, partial_path
from probekit.constraint import File, MadeOut
from probekit.errors import DataError, NonFiniteError, UsageError
from probekit.files import digest
from probekit.models.encoder import Batch, Edit, Shown, Sink, Text, Tokens
from probekit.public import public
from probekit.runtime import Dtype, Progress, no_progress
from probekit.sites import Site, in_order
from probekit.tasks.files.raw import read_any
from probekit.tasks.task import Example, Split, Task, TaskKind

if TYPE_CHECKING:
    import torch


class ImportedEncoder(Shown):
    """An Encoder (see :mod:`probekit.models.encoder`) whose hidden states are in a file.

    A text is its pieces as numbers: "101 7592 102". Texts with the same pieces have the vectors of the first.

    Attributes
    ----------
    source : Source
        The file.
    pieces : list of np.ndarray
        int64 (t,), the pieces of each text.
    decode : callable
        The text of pieces, without special ones.
    """

    mixed_lengths, batch_tokens, stateful = True, 4096, 0

    def __init__(
        self,
        source: Source,
        arrays: Sequence[tuple[Array, Site]],
        pieces: list[np.ndarray],
        special: Sequence[int],
        spec: dict[str, Any],
        truncated: np.ndarray,
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        self.decode = decode
        self.source, self.arrays, self.pieces = source, [array for array, _ in arrays], pieces
        self.sites = tuple(site for _, site in arrays)
        self.special = np.array(sorted(special), dtype=np.int64)
        self.first = {ids.tobytes(): i for i, ids in reversed(list(enumerate(pieces)))}
        self.cut = {ids.tobytes() for ids, cut in zip(pieces, truncated, strict=True) if cut}
        self.name, self.versions = str(spec["model"]), dict[str, Any]()
        self.max_length = max(map(len, pieces))
        i = next(i for i, ids in enumerate(pieces) if len(ids))
        self.widths: tuple[int, ...] = ()
        self.widths = tuple(self.rows(k, i).shape[1] for k in range(len(arrays)))
        self.spec = spec | {"layers": [*map(str, self.sites)], "max_length": self.max_length}

    def tokenize(self, texts: Sequence[Text]) -> Tokens:
        """The pieces of each text; each that is not special counts as a word."""
        ids = [np.array(str(text).split(), dtype=np.int64) for text in texts]
        length = np.array([len(part) for part in ids], dtype=np.int64)
        flat = np.concatenate([*ids, np.empty(0, np.int64)])
        special = np.isin(flat, self.special)
        words = np.concatenate([np.cumsum(~np.isin(part, self.special)) - 1 for part in ids] or [flat])
        nothing = np.zeros(len(flat), dtype=np.int32)
        cut = np.array([part.tobytes() in self.cut for part in ids], dtype=bool)
        return Tokens(
            flat.astype(np.int32), length, special, nothing.astype(np.uint8),
            np.where(special, -1, words).astype(np.int32), nothing, nothing, cut,
        )  # fmt: skip

    def readable(self, examples: Sequence[Example]) -> list[Example]:
        """Examples with the texts that their pieces stand for, if these have any text."""
        texts = (self.decode([*map(int, example.text.split())]).strip() for example in examples)
        return [replace(e, text=text or e.text) for e, text in zip(examples, texts, strict=True)]

    def encode(self, batch: Batch, sink: Sink, edit: Edit | None = None) -> None:
        """Read the vectors of a batch; raises DataError if a text has more or fewer than pieces."""
        import torch

        stops = np.cumsum(batch.length)[:-1]
        texts = [self.first[ids.tobytes()] for ids in np.split(np.asarray(batch.token_ids, dtype=np.int64), stops)]
        for k in range(len(self.arrays)):
            sink(k, torch.cat([self.rows(k, i) for i in texts]))

    def rows(self, k: int, i: int) -> torch.Tensor:
        """The vectors of text i in array k, (t, width)."""
        import torch

        array, pieces = self.arrays[k], len(self.pieces[i])
        rows = array.views[0].rows(i)
        if self.source.texts:
            rows = rows[:pieces]
        if array.views[0].axes or len(rows) != pieces:
            what = f"its axes are {array.views[0].axes}" if array.views[0].axes else f"it has {len(rows)} positions"
            raise DataError(
                f"{array.name}, text {i}: {what}, for {pieces} pieces; probekit certify --against says what it is.",
                file=self.source.path,
            )
        if not rows.shape[1] or (self.widths and rows.shape[1] != self.widths[k]):
            wanted = f"those before have {self.widths[k]}" if self.widths else "wanted one or more"
            raise DataError(f"{array.name}, text {i}: {rows.shape[1]} columns; {wanted}.", file=self.source.path)
        return rows.to(torch.float32) if rows.dtype == torch.float64 else rows.contiguous()


def check_copies(encoder: ImportedEncoder) -> dict[str, Any]:
    """How far texts with the same pieces are from the first of them, whose vectors are kept; {} if none differ.

    Raises
    ------
    DataError
        If they differ by more than rounding.
    """
    import torch

    from probekit.models.sites.errors import vector_error
    from probekit.models.transformers.encoder import TOLERANCE

    differ, worst = set[int](), 0.0
    for i, ids in enumerate(encoder.pieces):
        if (first := encoder.first[ids.tobytes()]) == i or not len(ids):
            continue
        for k, array in enumerate(encoder.arrays):
            one, other = encoder.rows(k, first), encoder.rows(k, i)
            if torch.equal(one, other):
                continue
            error = vector_error(other, one)
            differ.add(i)
            worst = max(worst, error)
            if error > TOLERANCE[Dtype(encoder.spec["dtype"])]:
                raise DataError(
                    f"{array.name}: texts {first} and {i} have the same pieces, but vectors {error:.1e} apart.",
                    file=encoder.source.path,
                )
    return {"copies": {"texts": len(differ), "relative": worst}} if differ else {}


def imported_task(
    name: str, split: str, encoder: ImportedEncoder, labels: str | None, label_names: Sequence[str] | None
) -> Task:
    """The texts, as pieces, with the labels of a table if there is one.

    Raises
    ------
    DataError
        If the table has no column ``label``, or other rows than there are texts.
    """
    texts = [" ".join(map(str, ids.tolist())) for ids in encoder.pieces]
    ids = [*map(str, encoder.source.names)] or [*map(str, range(len(texts)))]
    if labels is None:
        examples = tuple(Example(i, text) for i, text in zip(ids, texts, strict=True))
        return Task(name, TaskKind.CLASSIFICATION, {split: Split(split, examples)}, tuple(label_names or ()))
    columns = _columns(Path(labels), ids)
    given = [None if value is None or str(value).strip() == "" else str(value).strip() for value in columns["label"]]
    groups = [None if value is None else str(value) for value in columns.get("group", [None] * len(ids))]
    kind, names = _kind(given, label_names)
    if unknown := sorted({value for value in given if value is not None and names and value not in names}):
        raise DataError(f"the label {unknown[0]!r} is none of {', '.join(names)}.", file=labels, column="label")
    numbers: list[Any] = [
        None if value is None else names.index(value) if kind is TaskKind.CLASSIFICATION else float(value)
        for value in given
    ]
    examples = tuple(Example(*row[:3], group=row[3]) for row in zip(ids, texts, numbers, groups, strict=True))
    metrics = ("accuracy", "macro-f1") if kind is TaskKind.CLASSIFICATION else ("pearson", "spearman")
    return Task(name, kind, {split: Split(split, examples)}, names, metrics)


def _columns(path: Path, ids: Sequence[str]) -> dict[str, list[Any]]:
    """The columns of the table of labels, in the order of the texts."""
    columns = read_any(path).columns
    if "label" not in columns:
        raise DataError(f"has no column label; it has {', '.join(columns)}.", file=path)
    if "id" not in columns:
        if len(columns["label"]) != len(ids):
            raise DataError(f"has {len(columns['label'])} rows for {len(ids)} texts, and no column id.", file=path)
        return columns
    rows = {str(value): i for i, value in enumerate(columns["id"])}
    if missing := [i for i in ids if i not in rows]:
        raise DataError(f"has no row with the id {missing[0]!r} ({len(missing)} of {len(ids)} are missing).", file=path)
    return {name: [values[rows[i]] for i in ids] for name, values in columns.items()}


def _kind(given: Sequence[str | None], names: Sequence[str] | None) -> tuple[TaskKind, tuple[str, ...]]:
    """Whether labels are classes or numbers, and the classes in order: numbers by size, words by the alphabet."""
    distinct = {value for value in given if value is not None}
    if names is not None:
        return TaskKind.CLASSIFICATION, tuple(map(str, names))
    if all(_is_whole(value) for value in distinct):
        return TaskKind.CLASSIFICATION, tuple(sorted(distinct, key=int))
    try:
        return (TaskKind.REGRESSION, ()) if [float(value) for value in distinct] else (TaskKind.CLASSIFICATION, ())
    except ValueError:
        return TaskKind.CLASSIFICATION, tuple(sorted(distinct))


def _is_whole(value: str) -> bool:
    return value.removeprefix("-").isdecimal()


@public(options=ImportOptions)
def import_activations(
    source: File,
    /,
    *,
    model: str | Path,
    out: MadeOut,
    options: ImportOptions,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> ActivationCache:
    """Turn activations of vLLM, TransformerLens, nnsight or SAELens into a cache, after a sample was recomputed.

    The cache says from which files the numbers come, with their digest, and what was certified. If an array is not what
    its name says, nothing is written; see ``probekit certify --against``. A text is its pieces; those that are special
    to the tokenizer are left out of means, as elsewhere.

    Parameters
    ----------
    source : str or Path
        safetensors of vLLM's ExampleHiddenStatesConnector, .npz or .safetensors with an array for each site, or a
        folder of SAELens.
    model : str or Path
        Hub id or folder of the model that they are of.
    out : path
        The cache to write.
    options : ImportOptions
        ``layers``, ``labels``, ``pooling`` …; you can also pass them as keyword arguments.
    overwrite : bool
        Replace a cache that holds other activations.
    progress : callable
        Called with the progress.

    Returns
    -------
    ActivationCache
        The opened cache.

    Raises
    ------
    DataError
        If the file is in none of the formats, or its arrays are not what their names say.
    UsageError
        If it does not say which layers it holds, and nothing is certified.

    Examples
    --------
    >>> probekit.import_activations("hidden_states/", model="gpt2", layers="4,8", out="train.h5")  # doctest: +SKIP

    On the command line::

        probekit import hidden_states/ --model Qwen/Qwen3-8B --layers 8,16,24 --dtype bfloat16 --out train.h5
        probekit import activations.npz --model gpt2 --labels labels.csv --pooling last --out train.h5
    """
    from probekit.models.find import resolve_model
    from probekit.models.transformers.tokens import load_tokenizer

    given = open_source(source, said_layers(options.layers))
    found = _certified(given, model, options) if options.certify else None
    sites = _sites(given, found)
    arrays = sorted(_distinct(given, sites), key=lambda pair: in_order(pair[1]))
    folder = resolve_model(model, options.revision)
    tokenizer, (pieces, truncated) = load_tokenizer(folder), _pieces(given, folder)
    if not any(map(len, pieces)):
        raise DataError("has no text with a piece.", file=given.path)
    spec = _spec(given, arrays, found, model, options)
    decode = partial(tokenizer.decode, skip_special_tokens=True)
    encoder = ImportedEncoder(given, arrays, pieces, tokenizer.all_special_ids, spec, truncated, decode)
    encoder.spec["imported"] |= check_copies(encoder)
    task = imported_task(options.task or given.path.stem, options.split, encoder, options.labels, options.label_names)
    how = CacheOptions(pooling=options.pooling or NO_POOLING, tokens=not options.pooled_only, token_level=None)
    try:
        return cache_activations(
            encoder, task, options.split, options=how, out=Path(out), overwrite=overwrite, progress=progress
        )
    except (DataError, NonFiniteError) as error:  # nothing to continue: the file must change
        partial_path(Path(out)).unlink(missing_ok=True)
        journal_path(Path(out)).unlink(missing_ok=True)
        if isinstance(error, DataError):
            raise
        what = f"{str(error).partition(';')[0]} (float64 is stored as float32)"
        raise DataError(f"{what}. Leave that text out of the file.", file=given.path) from error


def _certified(given: Source, model: str | Path, options: ImportOptions) -> Comparison:
    """The comparison of a sample; raises DataError if an array is not what its name says."""
    from probekit.models.loading import load_encoder

    how = {"dtype": options.dtype, "device": options.device, "revision": options.revision}
    encoder = load_encoder(model, random_weights=options.random_weights, **how)
    found = compare(encoder, given, options.certify)
    if not found.passed:
        wrong = [f for f in found if not f.passed]
        raise DataError(
            f"{len(wrong)} of {len(found.findings)} arrays are not what they are said to be; {wrong[0].array}: "
            f"{wrong[0].verdict}. Correct the file or --layers, or import the numbers as they are with --certify 0.",
            file=given.path,
        )
    return found


def _sites(given: Source, found: Comparison | None) -> list[Site]:
    """The site of each array: as the file says it, or as it was found."""
    sites = [array.site for array in given.arrays]
    if found is not None:
        sites = [site or Site.parse(f.site) for site, f in zip(sites, found, strict=True)]
    said = [site for site in sites if site is not None]
    if len(said) < len(sites):
        raise UsageError(f"{given.path} does not say which layers it holds; give --layers, or leave out --certify 0.")
    return said


def _distinct(given: Source, sites: Sequence[Site]) -> list[tuple[Array, Site]]:
    """The arrays and their sites; of several names for the same numbers (TransformerLens's aliases), the first."""
    import torch

    kept: dict[Site, Array] = {}
    for array, site in zip(given.arrays, sites, strict=True):
        one = kept.setdefault(site, array).views[0]
        if kept[site] is not array and not all(
            torch.equal(one.rows(i), array.views[0].rows(i)) for i in range(len(given))
        ):
            raise DataError(
                f"{kept[site].name} and {array.name} are both {site}, with other numbers; leave one out.",
                file=given.path,
            )
    return [(array, site) for site, array in kept.items()]


def _pieces(given: Source, folder: Path) -> tuple[list[np.ndarray], np.ndarray]:
    """The pieces of each text, as the model reads them, and whether it was truncated, bool (n,)."""
    from probekit.models.folder import configuration
    from probekit.models.loading import text_reader

    if not given.texts:
        return [given.pieces(i) for i in range(len(given))], np.zeros(len(given), dtype=bool)
    config = configuration(folder)
    tokens = text_reader(folder, config)(given.texts)
    return np.split(tokens.token_ids.astype(np.int64), np.cumsum(tokens.length)[:-1]), tokens.truncated


def _spec(
    given: Source,
    arrays: Sequence[tuple[Array, Site]],
    found: Comparison | None,
    model: str | Path,
    options: ImportOptions,
) -> dict[str, Any]:
    """What determines the numbers: the model, the files, and what was certified."""
    from probekit.models.identity import identify

    dtypes = {"float32" if array.dtype == "float64" else array.dtype for array, _ in arrays}
    certified = None
    if found is not None:
        certified = {
            "texts": found.texts,
            "dtype": options.dtype,
            "relative": max(f.relative for f in found),
            "tolerance": max(f.tolerance for f in found),
        }
    imported = {
        "format": given.format,
        "files": len(given.files),
        "digest": digest(given.files, given.path if given.path.is_dir() else given.path.parent),
        "arrays": {str(site): array.name for array, site in arrays},
        "certified": certified,
    }
    names = identify(model, revision=options.revision, random_weights=options.random_weights)
    dtype = dtypes.pop() if len(dtypes) == 1 else "float32"
    return names | {"dtype": dtype, "device": "imported", "cut_at": None, "imported": imported}
