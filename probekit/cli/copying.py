"""``probekit copy-cache``: between folders and object stores."""

from __future__ import annotations

from probekit.cli.show import say

__all__ = ["copy_cache"]


def copy_cache(cache: str, out: str, /) -> None:
    """Copy a cache, file or folder, between folders and object stores.

    Every byte is compared with its digests before it is copied. The manifest of a folder is written last; run the
    command again to continue. s3:// needs the package s3fs, gs:// gcsfs.

    Examples:

        probekit copy-cache data_cache/corpus s3://bucket/corpus

        probekit copy-cache s3://bucket/corpus data_cache/corpus

    Parameters
    ----------
    cache
        The cache: a file, a folder, or a URL.
    out
        Where to copy it.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        say(probekit.copy_cache(cache, out, progress=progress))
