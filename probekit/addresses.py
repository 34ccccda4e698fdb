"""Addresses (``s3://bucket/cola``): the one place that opens them, and what refuses those that a file names.

An address that a user types is opened if its scheme is in a closed list. One that stands in a file, such as a study or
an evidence card of another person, is opened only with ``--allow-remote``: whoever wrote the file chose the address.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from probekit.errors import CacheError, DataError, ProbekitError, UsageError

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
    if _closed:
        raise UsageError(
            f"{address} is not opened, since whoever wrote the file that leads to it may have chosen it; if you trust "
            "it, add --allow-remote."
        )
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


_closed: list[None] = []
"""An item for each block that opens none; of all threads, since those that a step starts belong to it."""


@contextmanager
def no_addresses(*, allowed: bool = False) -> Iterator[None]:
    """Open no address in the block, whatever names it: it runs what a file of another person says, unless allowed."""
    if allowed:
        yield
        return
    _closed.append(None)
    try:
        yield
    finally:
        _closed.pop()


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


@contextmanager
def offline() -> Iterator[None]:
    """Fetch nothing from the hub in the block, whose libraries read HF_HUB_OFFLINE only when they are imported."""
    import huggingface_hub.constants as hub

    if "HF_DATASETS_OFFLINE" in os.environ:  # then datasets, which takes a second to import, does not ask hub
        import datasets.config  # noqa: F401

    def switches() -> list[Any]:
        return [hub, *filter(None, [sys.modules.get("datasets.config")])]

    before = {switch: switch.HF_HUB_OFFLINE for switch in switches()}
    for switch in before:
        switch.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for switch in switches():  # datasets, if it was imported meanwhile, took over what hub says
            switch.HF_HUB_OFFLINE = before.get(switch, before[hub])


def check_data_card(repository: str, revision: str | None = None) -> None:
    """Check that a data set, on the hub or in a folder, has all of its files in itself.

    Its README.md may name others (``data_files``), and the library ``datasets`` opens any address that stands there.

    Raises
    ------
    DataError
        If it names files that are elsewhere.
    """
    import yaml  # type: ignore[import-untyped]  # it has no types

    for name in ("README.md", ".huggingface.yaml"):
        path = _card_file(repository, name, revision)
        if path is None:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        head = re.match(r"\ufeff?\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", text, re.DOTALL)
        try:
            content = yaml.safe_load(text if name.endswith(".yaml") else head[1] if head else "")
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise DataError(f"cannot be read as YAML: {' '.join(str(error).split())[:200]}.", file=path) from None
        for one in _texts(content.get("configs") if isinstance(content, Mapping) else None):
            if "::" in one or (":/" in one and not one.startswith("hf://")) or one.startswith(("/", "~")) or (
                ".." in re.split(r"[/\\]", one)
            ):  # fmt: skip
                raise DataError(
                    f"names {one!r}, which is not in the data set; whoever wrote it chose the place, so nothing was "
                    "opened. Copy the files to a folder of your own.",
                    file=path,
                )


def _card_file(repository: str, name: str, revision: str | None) -> Path | None:
    """A file beside the data of a data set; None if there is none, or none can be fetched."""
    if Path(repository).is_dir():
        return path if (path := Path(repository) / name).is_file() else None
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repository, name, repo_type="dataset", revision=revision))
    except (OSError, ValueError):  # absent, offline, private, no name of a repository: loading it says what is wrong
        return None


def _texts(value: Any) -> Iterator[str]:
    """The texts in a value of YAML, at any depth, but names of splits and configurations; what stands twice, once."""
    left, seen = [value], set[int]()
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping | list) and id(one) not in seen:
            seen.add(id(one))
            left += one if isinstance(one, list) else [v for k, v in one.items() if k not in NAMES]


NAMES = ("split", "config_name", "sep", "delimiter")
"""Keys of a data card whose texts name no file."""
