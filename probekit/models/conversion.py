"""Older encoders by their published files: ``elmo:OPTIONS,WEIGHTS``, ``skip-thoughts:FOLDER`` and ``vectors:FILE``.

You can use such a name wherever a model's name or folder is expected. The files are converted once, into a model folder
below ``data_cache/models/``; later calls find it by the digest of the files.
"""

from __future__ import annotations

from pathlib import Path

from probekit import files
from probekit.constraint import Out
from probekit.errors import ModelError, UsageError
from probekit.models.kinds import kinds
from probekit.models.options import ConvertOptions, SkipThoughtsOptions
from probekit.public import public

ELMO, SKIP_THOUGHTS, VECTORS = "elmo", "skip-thoughts", "vectors"
"""The model types of the older encoders, in config.json and before the colon."""

BILSTM = "bilstm"
"""The model type of the BiLSTM that is trained from nothing (see :mod:`probekit.models.bilstm`)."""

LAYOUT = 1
"""Version of the conversion; it changes when the written files change."""


def reads_apart(kind: str) -> bool:
    """Whether a model of this type reads the sentences of a pair separately, since it has no input format for both."""
    return kind in kinds()


def default_pooling(kind: str) -> str:
    """The default sentence representation."""
    return kinds()[kind].pooling if kind in kinds() else "mean"


def converted_folder(model: str) -> Path | None:
    """The model folder converted from published files; None if ``model`` names something else.

    Raises
    ------
    ModelError
        If the files are missing, or differ from the published format.
    """
    if (published := _files(model)) is None:
        return None
    for file in published:
        if not file.is_file():
            raise ModelError(f"{model!r}: {file} does not exist; expected {_EXPECTED[_kind(model)]}.")
    digest = files.digest(published)
    out = files.DATA_CACHE / "models" / f"{files.slug(published_name(model))}.{digest[:8]}.{LAYOUT}"
    if not out.is_dir():
        try:
            _convert(_kind(model), published, out)
        except UsageError:
            pass  # another process was faster
        except OSError as error:
            if not out.is_dir():
                raise ModelError(
                    f"{model} cannot be converted into {out} ({error}). Free some space, or convert the model into "
                    f"another folder: probekit convert {_kind(model)} …"
                ) from error
    return out


@public(options=ConvertOptions, more=SkipThoughtsOptions)
def convert(model: str, /, out: Out, *, options: ConvertOptions, more: SkipThoughtsOptions) -> Path:
    """Convert the published files of an older encoder into a model folder, which every function accepts as a model.

    ``elmo:OPTIONS,WEIGHTS`` as a model's name does the same automatically, below data_cache/models/.

    Parameters
    ----------
    model : str
        ``elmo:OPTIONS,WEIGHTS``, ``skip-thoughts:FOLDER``, or ``vectors:FILE`` for word2vec, GloVe or fastText.
    out : path
        The folder to write, with config.json and safetensors; it appears only when it is complete.
    options : ConvertOptions
        ``words``: how to split plain text into words.
    more : SkipThoughtsOptions
        ``eos``, ``raw`` and ``vectors``, for Skip-thoughts only.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    ModelError, DataError
        If a file is missing, or differs from the published format.
    UsageError
        If ``out`` exists, or an option is for another model.
    """
    if (published := _files(model)) is None:
        raise UsageError(f"{model!r} does not name published files; expected {' or '.join(_EXPECTED.values())}.")
    if _kind(model) != SKIP_THOUGHTS and more != SkipThoughtsOptions():
        raise UsageError("eos, raw and vectors are for Skip-thoughts.")
    return _convert(_kind(model), published, Path(out), options, more)


def _convert(
    kind: str,
    published: list[Path],
    out: Path,
    options: ConvertOptions | None = None,
    more: SkipThoughtsOptions | None = None,
) -> Path:
    options, more = options or ConvertOptions(), more or SkipThoughtsOptions()
    if kind == ELMO:
        from probekit.models.elmo.files import convert_elmo

        return convert_elmo(published[0], published[1], out, splitting=options.words)
    if kind == VECTORS:
        from probekit.models.vectors.files import convert_vectors

        return convert_vectors(published[0], out, splitting=options.words)
    from probekit.models.skip_thoughts.files import convert_skip_thoughts

    return convert_skip_thoughts(
        published[0].parent, out, splitting=options.words, use_eos=more.eos, normalise=not more.raw,
        vectors=more.vectors,
    )  # fmt: skip


def names_published(model: str) -> bool:
    """Whether a model's name refers to published files."""
    return _kind(model) in _EXPECTED and ":" in model


def published_name(model: str) -> str:
    """The name in tables: for ELMo that of the weights file without "_weights.hdf5", unless it is a generic one.

    Otherwise, and for Skip-thoughts, the name of the folder. For word vectors the name of the file.
    """
    published = _files(model) or [Path(model)]
    if _kind(model) == VECTORS:
        return published[0].name  # with .bin or .vec: one has sub-words, the other none
    stem = published[-1].stem.removesuffix("_weights")
    return stem if _kind(model) == ELMO and stem not in ("weights", "lm") else published[0].resolve().parent.name


def _kind(model: str) -> str:
    return model.partition(":")[0]


def _files(model: str) -> list[Path] | None:
    """The published files that a model's name refers to; None if it refers to none."""
    if not names_published(model):
        return None
    kind, _, location = model.partition(":")
    if kind == SKIP_THOUGHTS:
        names = ("uni_skip.npz", "bi_skip.npz", "utable.npy", "btable.npy", "dictionary.txt")
        return [Path(location).expanduser() / name for name in names]
    if kind == VECTORS:
        return [Path(location).expanduser()]
    options, comma, weights = location.partition(",")
    if not comma or not options or not weights or "," in weights:
        raise ModelError(f"{model!r} is not a valid name; expected {_EXPECTED[ELMO]}.")
    return [Path(options).expanduser(), Path(weights).expanduser()]


_EXPECTED = {
    ELMO: "elmo:OPTIONS,WEIGHTS, the two published files, such as elmo:options.json,weights.hdf5",
    SKIP_THOUGHTS: "skip-thoughts:FOLDER with uni_skip.npz, bi_skip.npz, utable.npy, btable.npy and dictionary.txt",
    VECTORS: "vectors:FILE, a file of word2vec, GloVe or fastText, such as vectors:glove.6B.300d.txt",
}
