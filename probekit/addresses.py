"""Addresses (``s3://bucket/cola``): the one place that opens them, and what refuses those that a file names.

An address that a user types is opened if its scheme is in a closed list. One that stands in a file, such as a study or
an evidence card of another person, is opened only with ``--allow-remote``: whoever wrote the file chose the address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from probekit.errors import CacheError, DataError, ProbekitError, UsageError

__all__ = ["SCHEMES", "address_of", "addresses_in", "filesystem", "is_address", "refuse_addresses"]

SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "https", "file", "memory")
"""The schemes that are opened. Not http: whoever is on the way could change what arrives, digests included."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def is_address(path: str | Path) -> bool:
    """Whether a path is an address that names a store, and no file here.

    Examples
    --------
    >>> [is_address(path) for path in ("s3://bucket/cola", Path("memory://cola"), "cola.h5", "C:/cola.h5")]
    [True, True, False, False]
    """
    return _SCHEME.match(str(path)) is not None and not Path(path).exists()


def address_of(path: str | Path) -> str:
    """An address as it was given, also where a Path has taken away one of its slashes; that of a file is absolute.

    Raises
    ------
    UsageError
        If its scheme is not one of ``SCHEMES``, it chains several (``::``), or gives options (``?``).

    Examples
    --------
    >>> address_of(Path("s3://bucket/cola/")), address_of(Path("file:///data/cola"))
    ('s3://bucket/cola', 'file:///data/cola')
    """
    text = str(path)
    scheme, _, rest = text.partition(":")
    why = ""
    if scheme not in SCHEMES:
        why = f"probekit opens {', '.join(f'{one}://' for one in SCHEMES)}; copy what is there to a folder here first"
    elif "::" in text:
        why = "it chains several addresses with “::”; give one"
    elif "?" in text and scheme != "https":
        why = f"what follows “?” is not read; set it in the environment or the files that {scheme}:// reads"
    elif scheme == "file" and re.match("//[^/]", rest):
        why = f"write file:///{rest[2:]} for an absolute path, or the path alone"
    if why:
        raise UsageError(f"{text} cannot be opened: {why}.")
    return f"{scheme}://{'/' * (scheme == 'file')}{rest.strip('/')}"


@contextmanager
def filesystem(address: str) -> Iterator[tuple[Any, str]]:
    """The ``fsspec`` file system of an address, and the path in it; errors of the store as CacheError.

    Raises
    ------
    UsageError
        If the address is not one that :func:`address_of` accepts, or the package of its store is not installed.
    CacheError
        If something is missing in the store, or the store cannot be reached.
    """
    from fsspec.core import url_to_fs

    address = address_of(address)
    try:
        fs, path = url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{address} cannot be opened: {error}.") from error
    try:
        yield fs, path.rstrip("/")
    except ProbekitError:
        raise
    except FileNotFoundError as error:
        raise CacheError(f"{address} does not exist, or lacks {error}.") from error
    except Exception as error:  # each store has its own
        raise CacheError(f"{address} cannot be read or written: {str(error) or type(error).__name__}.") from error


def addresses_in(value: Any) -> Iterator[str]:
    """The addresses in a value of JSON or TOML, at any depth."""
    if isinstance(value, str):
        yield from [value] if _SCHEME.match(value.strip()) else []
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from addresses_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from addresses_in(one)


def refuse_addresses(value: Any, file: Path, *, allowed: bool = False) -> None:
    """Raise DataError if a file names an address, unless the user allowed it."""
    found = next(addresses_in(value), None)
    if found is not None and not allowed:
        raise DataError(
            f"names the address {found}, which whoever wrote the file chose. Nothing was opened; if you trust it, add "
            "--allow-remote.",
            file=file,
        )
