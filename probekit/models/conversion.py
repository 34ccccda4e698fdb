"""The older encoders by their published files: ``elmo:OPTIONS,WEIGHTS`` and ``skip-thoughts:FOLDER``.

Such a word stands wherever a model's name or folder does. The files are converted once, into a model folder below
``data_cache/models/`` that is found again by their digest.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from probekit import files as paths
from probekit.errors import ModelError, UsageError

__all__ = ["ELMO", "SKIP_THOUGHTS", "default_pooling", "is_published", "published", "published_name", "reads_apart"]

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


def published(model: str) -> Path | None:
    """The model folder of published files; None where ``model`` names something else.

    Raises ModelError where the files are not there, or not what is published.
    """
    if (files := _files(model)) is None:
        return None
    for file in files:
        if not file.is_file():
            raise ModelError(f"{model!r}: {file} is not there; wanted {_WANTED[_kind(model)]}.")
    digest = _digest(tuple(files), tuple((s.st_size, s.st_mtime_ns) for s in map(Path.stat, files)))
    out = paths.DATA_CACHE / "models" / f"{paths.slug(published_name(model))}.{digest[:8]}.{LAYOUT}"
    if not out.is_dir():
        try:
            _convert(_kind(model), files, out)
        except UsageError:
            pass  # another process was faster
        except OSError as error:
            if not out.is_dir():
                raise ModelError(
                    f"{model} cannot be converted into {out} ({error}). Make room there, or convert it into another "
                    f"folder: probekit convert {_kind(model)} …"
                ) from error
    return out


def _convert(kind: str, files: list[Path], out: Path) -> None:
    if kind == ELMO:
        from probekit.models.elmo.files import convert_elmo

        convert_elmo(files[0], files[1], out)
    else:
        from probekit.models.skip_thoughts.files import convert

        convert(files[0].parent, out)


@lru_cache(maxsize=8)
def _digest(files: tuple[Path, ...], stats: tuple[tuple[int, int], ...]) -> str:
    """The digest of the files' bytes; read once, as long as their sizes and times (``stats``) stay as they are."""
    from probekit.models.folder import file_digest

    return file_digest(files)


def is_published(model: str) -> bool:
    """Whether a model's word names published files."""
    return _kind(model) in _WANTED and ":" in model


def published_name(model: str) -> str:
    """The name in tables: of ELMo the weights file's without "_weights.hdf5", where that says something; else the
    folder's, as of Skip-thoughts."""
    files = _files(model) or [Path(model)]
    own = files[-1].stem.removesuffix("_weights")
    return own if _kind(model) == ELMO and own not in ("weights", "lm") else files[0].resolve().parent.name


def _kind(model: str) -> str:
    return model.partition(":")[0]


def _files(model: str) -> list[Path] | None:
    """The files that a word names, those that matter of a folder; None where it is no such word."""
    if not is_published(model):
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
