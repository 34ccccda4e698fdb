"""Where the files of a task lie in a folder that holds those of several."""

from __future__ import annotations

from pathlib import Path

__all__ = ["plain", "task_folders"]


def plain(name: str) -> str:
    """A name without regard to case and to what is neither letter nor digit: SST-2 is sst2."""
    return "".join(c for c in name.lower() if c.isalnum())


def task_folders(task: str, data_dir: Path) -> list[Path]:
    """Where in ``data_dir`` the files of a task may lie, the likeliest place first.

    First folders that are called like the task, or like the beginning of its name (``TREC`` of trec-50), the longest
    name first; then ``data_dir`` itself; then folders whose names begin like the task's (``UD_English-EWT`` of ud), the
    shortest name first. Names are compared as :func:`plain` gives them.

    Parameters
    ----------
    task
        A task's name, with or without a domain (``mnli:fiction``), or the usual name of its folder.
    data_dir
        Need not be there: then it is all there is.

    Examples
    --------
    >>> import tempfile
    >>> data = Path(tempfile.mkdtemp())
    >>> for name in ("TREC", "CoLA", "trec-old"):
    ...     (data / name).mkdir()
    >>> [folder.name for folder in task_folders("trec-6", data)[:-1]]
    ['TREC']
    """
    own = plain(task.partition(":")[0])
    names = {p: plain(p.name) for p in sorted(data_dir.iterdir()) if p.is_dir()} if data_dir.is_dir() else {}
    shorter = [p for p, name in names.items() if name and own.startswith(name)]
    longer = [p for p, name in names.items() if own and name.startswith(own) and name != own]
    return [
        *sorted(shorter, key=lambda p: -len(names[p])),
        data_dir,
        *sorted(longer, key=lambda p: len(names[p])),
    ]
