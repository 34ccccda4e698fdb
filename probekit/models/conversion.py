"""The older encoders by their published files: ``elmo:OPTIONS,WEIGHTS`` and ``skip-thoughts:FOLDER``.

Such a word stands wherever a model's name or folder does. The files are converted once, into a model folder below
``data_cache/models/`` that is found again by their digest.
"""

from __future__ import annotations

from pathlib import Path

from probekit import files
from probekit.errors import ModelError, UsageError
from probekit.models.options import ConvertOptions, SkipThoughtsOptions
from probekit.public import public

__all__ = [
    "ELMO",
    "SKIP_THOUGHTS",
    "convert",
    "converted_folder",
    "default_pooling",
    "names_published",
    "published_name",
    "reads_apart",
]

ELMO, SKIP_THOUGHTS = "elmo", "skip-thoughts"
"""The model types of the older encoders, in config.json and before the colon."""

LAYOUT = 1
"""Of what is converted; another number once it is written otherwise."""


def reads_apart(kind: str) -> bool:
    """Whether a model of this type reads the sentences of a pair apart, for want of a form for both."""
    return kind in (ELMO, SKIP_THOUGHTS)


def default_pooling(kind: str) -> str:
    """The sentence representation where none is asked for; of Skip-thoughts the last state is the published vector."""
    return "last" if kind == SKIP_THOUGHTS else "mean"


def converted_folder(model: str) -> Path | None:
    """The model folder of published files; None where ``model`` names something else.

    Raises
    ------
    ModelError
        Where the files are not there, or not what is published.
    """
    if (published := _files(model)) is None:
        return None
    for file in published:
        if not file.is_file():
            raise ModelError(f"{model!r}: {file} is not there; wanted {_WANTED[_kind(model)]}.")
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
                    f"{model} cannot be converted into {out} ({error}). Make room there, or convert it into another "
                    f"folder: probekit convert {_kind(model)} …"
                ) from error
    return out


@public(options=ConvertOptions, more=SkipThoughtsOptions)
def convert(model: str, /, out: str | Path, *, options: ConvertOptions, more: SkipThoughtsOptions) -> Path:
    """Write the published files of an older encoder as a folder, which every function reads as a model.

    ``elmo:OPTIONS,WEIGHTS`` in the place of a model's name does the same by itself, below data_cache/models/.

    Parameters
    ----------
    model : str
        ``elmo:OPTIONS,WEIGHTS`` or ``skip-thoughts:FOLDER``.
    out : path
        The folder to write, with config.json and safetensors; it appears whole.
    options : ConvertOptions
        ``words``: how plain text will be cut.
    more : SkipThoughtsOptions
        ``eos``, ``raw`` and ``vectors``, of Skip-thoughts alone.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    ModelError
        A file is not there, or not what is published.
    UsageError
        ``out`` is there already, or an option is for another model.
    """
    if (published := _files(model)) is None:
        raise UsageError(f"{model!r} names no published files; wanted {' or '.join(_WANTED.values())}.")
    if _kind(model) == ELMO and more != SkipThoughtsOptions():
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
    from probekit.models.skip_thoughts.files import convert_skip_thoughts

    return convert_skip_thoughts(
        published[0].parent, out, splitting=options.words, use_eos=more.eos, normalise=not more.raw,
        vectors=more.vectors,
    )  # fmt: skip


def names_published(model: str) -> bool:
    """Whether a model's word names published files."""
    return _kind(model) in _WANTED and ":" in model


def published_name(model: str) -> str:
    """The name in tables: of ELMo the weights file's without "_weights.hdf5", where that says something; else the
    folder's, as of Skip-thoughts."""
    published = _files(model) or [Path(model)]
    own = published[-1].stem.removesuffix("_weights")
    return own if _kind(model) == ELMO and own not in ("weights", "lm") else published[0].resolve().parent.name


def _kind(model: str) -> str:
    return model.partition(":")[0]


def _files(model: str) -> list[Path] | None:
    """The files that a word names, those that matter of a folder; None where it is no such word."""
    if not names_published(model):
        return None
    kind, _, rest = model.partition(":")
    if kind == SKIP_THOUGHTS:
        names = ("uni_skip.npz", "bi_skip.npz", "utable.npy", "btable.npy", "dictionary.txt")
        return [Path(rest).expanduser() / name for name in names]
    options, comma, weights = rest.partition(",")
    if not comma or not options or not weights or "," in weights:
        raise ModelError(f"{model!r} is not understood; wanted {_WANTED[ELMO]}.")
    return [Path(options).expanduser(), Path(weights).expanduser()]


_WANTED = {
    ELMO: "elmo:OPTIONS,WEIGHTS, the two published files, such as elmo:options.json,weights.hdf5",
    SKIP_THOUGHTS: "skip-thoughts:FOLDER with uni_skip.npz, bi_skip.npz, utable.npy, btable.npy and dictionary.txt",
}
