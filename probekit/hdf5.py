"""HDF5 files from untrusted sources: data are read only from the file itself, and no more than it can hold."""

from __future__ import annotations

import h5py

from probekit.errors import DataError

DAMAGE = (KeyError, ValueError, TypeError, IndexError, AttributeError, OSError, RuntimeError, MemoryError)
"""Errors that h5py raises for a damaged file."""

SMALL = 1 << 26
"""Bytes that a dataset may declare even if less is stored: parts that were never written read as zeros."""

DENSEST = 1000
"""Maximum compression ratio: about 1 for noise, 5 for text, 1000 and more for zeros."""


def own_dataset(group: h5py.Group, name: str) -> h5py.Dataset | None:
    """The dataset with this name if all its bytes are in the file itself; None if nothing has the name.

    Soft or external links at any depth, external storage and virtual datasets would read other files with the user's
    permissions; a shape can declare more than fits into memory. This function does not read values.

    Parameters
    ----------
    group : h5py.Group
        A file or group.
    name : str
        Its path, as in h5py: ``"/pooled/mean/3"``.

    Raises
    ------
    DataError
        If the name is not a dataset in this file, or declares more than the file can hold.
    """
    try:
        return _find(group, name)
    except DataError:
        raise
    except DAMAGE as error:
        raise DataError(f"{name} cannot be read ({error}).") from error


def _find(group: h5py.Group, name: str) -> h5py.Dataset | None:
    found: h5py.Group | h5py.Dataset = group
    for part in filter(None, name.split("/")):
        if not isinstance(found, h5py.Group) or (link := found.get(part, getlink=True)) is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise DataError(f"{name} is a link, which probekit does not follow; expected the data in the file itself.")
        found = found[part]
    if not isinstance(found, h5py.Dataset):
        raise DataError(f"{name} is not a dataset.")
    if found.external or found.is_virtual:
        raise DataError(
            f"{name} stores its data in another file, which probekit does not read; expected them in the file itself."
        )
    if (wrong := _declares_too_much(found)) is not None:
        raise DataError(f"{name} {wrong} Is the file complete?")
    return found


def _declares_too_much(dataset: h5py.Dataset) -> str | None:
    """The fault if the shape of a dataset needs more bytes than its file holds; None if it fits."""
    declared = int(dataset.size or 0) * int(dataset.id.get_type().get_size())
    within, stored = int(dataset.file.id.get_filesize()), int(dataset.id.get_storage_size())
    offset = dataset.id.get_offset() if dataset.chunks is None else None
    if offset is not None and offset + stored > within:
        return f"is at bytes {offset} to {offset + stored}, but the file has {within}."
    most = max(SMALL, min(stored, within) * (1 if dataset.chunks is None else DENSEST))
    return f"declares {declared} bytes, but only {stored} are stored." if declared > most else None
