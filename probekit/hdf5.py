"""HDF5 that others may have written: nothing is read from outside of the file, and no more than the file can hold."""

from __future__ import annotations

import h5py

from probekit.errors import DataError

__all__ = ["DAMAGE", "own_dataset"]

DAMAGE = (KeyError, ValueError, TypeError, IndexError, AttributeError, OSError, RuntimeError, MemoryError)
"""What h5py raises on a damaged file."""

SMALL = 1 << 26
"""Bytes that a dataset may have whatever is stored of it: what was never written reads as zeros."""

DENSEST = 1000
"""Times that compressed chunks may grow: noise hardly does, text five times, zeros a thousand times and more."""


def own_dataset(group: h5py.Group, name: str) -> h5py.Dataset | None:
    """The dataset of this name, all of whose bytes are in this very file; None where nothing has the name.

    A soft or external link at any depth, external storage and virtual datasets would read other files, with the rights
    of who reads; a shape can declare more than any memory holds. Nothing of the dataset's values is read here.

    Parameters
    ----------
    group : h5py.Group
        A file, or a group of it.
    name : str
        As h5py takes it: ``"/pooled/mean/3"``.

    Raises
    ------
    DataError
        Something of that name is not a dataset of this file, or declares more than the file can hold.
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
            raise DataError(f"{name} is a link, which is not followed; wanted the data in the file itself.")
        found = found[part]
    if not isinstance(found, h5py.Dataset):
        raise DataError(f"{name} is no dataset.")
    if found.external or found.is_virtual:
        raise DataError(f"{name} keeps its data in another file, which is not read; wanted them in the file itself.")
    if (wrong := _declares_too_much(found)) is not None:
        raise DataError(f"{name} {wrong} Is the file whole?")
    return found


def _declares_too_much(dataset: h5py.Dataset) -> str | None:
    """What is wrong where the shape of a dataset asks for more bytes than its file holds of it; None where it fits."""
    declared = int(dataset.size or 0) * int(dataset.id.get_type().get_size())
    within, stored = int(dataset.file.id.get_filesize()), int(dataset.id.get_storage_size())
    offset = dataset.id.get_offset() if dataset.chunks is None else None
    if offset is not None and offset + stored > within:
        return f"lies at bytes {offset} to {offset + stored} of a file of {within}."
    most = max(SMALL, min(stored, within) * (1 if dataset.chunks is None else DENSEST))
    return f"declares {declared} bytes, and {stored} are stored." if declared > most else None
