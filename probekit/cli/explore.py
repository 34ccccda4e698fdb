"""``probekit explore``."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Annotated

from cyclopts import Parameter

from probekit.cli.show import say
from probekit.errors import UsageError
from probekit.explore.options import ExploreOptions

__all__ = ["explore"]


def explore(
    first: str,
    /,
    *others: str,
    rows: tuple[str, ...] | None = None,
    train: tuple[str, ...] | None = None,
    task: str | None = None,
    data_dir: Path | None = None,
    state: Path | None = None,
    options: Annotated[ExploreOptions, Parameter(name="*")] = ExploreOptions(),
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("explore.html"),
) -> None:
    """Write a page with linked maps of the layers of one model, or of two side by side.

    The page opens in any browser, offline. Each point is an example (or a token); the same example is selected on both
    maps. A slider changes the layer. Beside the maps: the probes' curves with their controls, the examples that
    fine-tuning gained and lost, the text, tokens and neighbours of one example, and units.

    In a notebook, probekit.explore(…) shows the same view and returns what you select.

    Examples:

        probekit explore pretrained.dev.h5 tuned.dev.h5 --rows probes.parquet -o explore.html

        probekit explore minilm.dev.h5 --projection pca,umap --clusters kmeans

        probekit explore step0.h5 step100.h5 --train step0.train.h5,step100.train.h5 --projection lda,pca

    Parameters
    ----------
    first
        The cache of the model on the left, such as the pretrained one.
    others
        Caches of the same split in other models or checkpoints; if there are several, a slider chooses the one on the
        right.
    rows
        Rows of probekit probe (and mi, mdl) for these caches, separated by commas.
    train
        Caches of the training split, separated by commas: for the projection lda, log odds of tokens and the ranking of
        units.
    task
        The task with the texts, if it is not where it was when the caches were made: a name or a TOML file.
    data_dir
        Folder with the files of the task.
    state
        A file with the state of a view (JSON) to begin with.
    out
        The page to write, .html.
    """
    from probekit.cli.progress import bar
    from probekit.explore.build import check_page
    from probekit.explore.build import explore as explore_caches
    from probekit.tasks import load_task

    if data_dir is not None and task is None:
        raise UsageError("--data-dir is for --task; name the task, too.")
    if rows_too := [name for name in others if name.endswith(".parquet")]:
        raise UsageError(f"{rows_too[0]} is a file of rows, not a cache; separate the files of --rows by commas.")
    texts = None if task is None else load_task(task, data_dir)
    began = monotonic()
    check_page(out)
    with bar() as progress:
        view = explore_caches(
            first, *others, rows=rows, train=train, state=state, task=texts, options=options, progress=progress
        )
        try:
            page = view.save(out, progress=progress)
            notes = view.scene.notes
        finally:
            view.close()
    for note in notes:
        say(note)
    say(f"{page}  ({page.stat().st_size / 2**20:,.1f} MiB, {monotonic() - began:.1f} s)")
