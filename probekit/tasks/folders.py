"""Where to find the files of a task in a folder with several data sets."""

from __future__ import annotations

from pathlib import Path


def plain(name: str) -> str:
    """A name in lower case, letters and digits only: SST-2 becomes sst2."""
    return "".join(c for c in name.lower() if c.isalnum())


def task_folders(task: str, data_dir: Path) -> list[Path]:
    """Places in ``data_dir`` where the files of a task may be, the likeliest first.

    First come folders named like the task or like the beginning of its name (``TREC`` for trec-50), the longest name
    first; then ``data_dir`` itself; then folders whose names begin with the task's (``UD_English-EWT`` for ud), the
    shortest name first. Names are compared in the form that :func:`plain` gives them.

    Parameters
    ----------
    task
        A task's name, with or without a domain (``mnli:fiction``), or the usual name of its folder.
    data_dir
        Need not exist; if it does not, it is the only place.

    Examples
    --------
    >>> import tempfile
    >>> data = Path(tempfile.mkdtemp())
    >>> for name in ("TREC", "CoLA", "trec-old"):
    ...     (data / name).mkdir()
    >>> [folder.name for folder in task_folders("trec-6", data)[:-1]]
    ['TREC']
    """
    task_name = plain(task.partition(":")[0])
    names = {p: plain(p.name) for p in sorted(data_dir.iterdir()) if p.is_dir()} if data_dir.is_dir() else {}
    shorter = [p for p, name in names.items() if name and task_name.startswith(name)]
    longer = [p for p, name in names.items() if task_name and name.startswith(task_name) and name != task_name]
    return [*sorted(shorter, key=lambda p: -len(names[p])), data_dir, *sorted(longer, key=lambda p: len(names[p]))]
