"""``probekit report`` and ``probekit explore``: pages."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

from probekit.cli.made import made
from probekit.cli.show import say
from probekit.errors import UsageError


@made(instead=True)
def report(*sources: str, **options: Any) -> None:
    """The page, and how long it took."""
    from probekit.report.build import report as write_report

    began = monotonic()
    page = write_report(*sources, **options)
    say(f"{page}  ({page.stat().st_size / 1024:,.0f} KiB, {monotonic() - began:.1f} s)")


@made(instead=True)
def explore(
    *more: str | None, task: str | None, data_dir: Path | None = None, out: Path = Path("explore.html"), **options: Any
) -> None:
    """The view as a page, what it leaves out, and how long it took.

    Parameters
    ----------
    data_dir
        Folder with the files of the task.
    out
        The page to write, .html.
    """
    from probekit.explore.build import check_page
    from probekit.explore.build import explore as explore_caches
    from probekit.progress import display
    from probekit.tasks import load_task

    if data_dir is not None and task is None:
        raise UsageError("--data-dir is for --task; name the task, too.")
    if rows := [name for name in more if name and name.endswith(".parquet")]:
        raise UsageError(f"{rows[0]} is a file of rows, not a cache; separate the files of --rows by commas.")
    texts = None if task is None else load_task(task, data_dir)
    began = monotonic()
    check_page(out)
    with display() as progress:
        view = explore_caches(*more, task=texts, progress=progress, **options)
        try:
            page = view.save(out, progress=progress)
            notes = view.scene.notes
        finally:
            view.close()
    for note in notes:
        say(note)
    say(f"{page}  ({page.stat().st_size / 2**20:,.1f} MiB, {monotonic() - began:.1f} s)")
