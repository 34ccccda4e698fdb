"""Activations of another program in an ordinary cache, which says where they come from and what was certified."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations.cache import ActivationCache
from probekit.activations.foreign.against import Comparison, compare, said_layers
from probekit.activations.foreign.imported import ImportedEncoder, check_copies, imported_task
from probekit.activations.foreign.opening import open_source
from probekit.activations.foreign.options import ImportOptions
from probekit.activations.foreign.source import Array, Source
from probekit.activations.options import NO_POOLING, CacheOptions
from probekit.activations.writing.job import cache_activations
from probekit.activations.writing.journal import journal_path, partial_path
from probekit.constraint import File, MadeOut
from probekit.errors import DataError, NonFiniteError, UsageError
from probekit.files import digest
from probekit.public import public
from probekit.runtime import Progress, no_progress
from probekit.sites import Site, in_order


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
