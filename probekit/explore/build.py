"""``probekit.explore``: caches in, a view out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.activations import ActivationCache
from probekit.constraint import File
from probekit.errors import UsageError
from probekit.explore.options import PAGE, ExploreOptions, check_page
from probekit.public import public
from probekit.recipe import Recipe
from probekit.rows import Result
from probekit.runtime import Progress, no_progress
from probekit.tasks import Task

if TYPE_CHECKING:
    from probekit.explore.view import View

__all__ = ["MISSING", "PAGE", "check_page", "explore"]

MISSING = (
    "the explorer needs jupyter-scatter and anywidget, which are not installed; pip install 'probekit-lm[explore]'."
)


@public(options=ExploreOptions)
def explore(
    a: str | Path | ActivationCache,
    b: str | Path | ActivationCache | None = None,
    /,
    *more: str | Path | ActivationCache,
    rows: str | Path | Result | Sequence[str | Path | Result] | None = None,
    train: str | Path | ActivationCache | Sequence[str | Path | ActivationCache] | None = None,
    state: Mapping[str, Any] | File | None = None,
    task: str | Path | Task | None = None,
    options: ExploreOptions,
    progress: Progress = no_progress,
) -> View:
    """Show linked maps of the layers of one model, or of two side by side, with curves, examples and units.

    Each point is an example (or a token); the same example is selected on both maps. A slider changes the layer. Beside
    the maps: the probes' curves with their controls, the examples that fine-tuning gained and lost, the text, tokens
    and neighbours of one example, and units.

    The command writes a page that opens in any browser, offline. In a notebook, the last expression of a cell shows the
    same view, which returns what you select; ``view.save("page.html")`` writes the page.

    Parameters
    ----------
    a : path or ActivationCache
        The cache of the model on the left, such as the pretrained one.
    b : path or ActivationCache, optional
        The cache of the model on the right: the same split in a fine-tuned model, a checkpoint, another model.
    *more : path or ActivationCache
        Further checkpoints, in the order of their training steps; a slider chooses the one on the right.
    rows : path, Result or sequence, optional
        Rows of ``probekit probe`` (and mi, mdl) for these caches, with predictions, separated by commas: for curves,
        predictions, errors, and the gained and lost examples.
    train : path, ActivationCache or sequence, optional
        Caches of the training split, separated by commas: for the projection lda, log odds of tokens and the ranking of
        units.
    state : mapping, JSON or path, optional
        A file with the state of a view (JSON) to begin with; in Python also what ``view.state`` returned.
    task : str, Path or Task, optional
        The task with the texts, if it is not where it was when the caches were made: a name or a TOML file; in Python
        also a task.
    options : ExploreOptions
        Points, layers and projections; they may be given one by one.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    View
        With ``.selection``, ``.state``, ``.save(path)`` and ``.close()``.

    Raises
    ------
    UsageError
        If the extra ``explore`` is not installed, or the caches cannot be shown together.

    Examples
    --------
    >>> view = probekit.explore("minilm.dev.h5", "tuned.dev.h5", rows="probe.parquet")  # doctest: +SKIP
    >>> view  # doctest: +SKIP
    >>> view.selection.ids  # doctest: +SKIP

    On the command line::

        probekit explore pretrained.dev.h5 tuned.dev.h5 --rows probes.parquet -o explore.html
        probekit explore minilm.dev.h5 --projection pca,umap --clusters kmeans
        probekit explore step0.h5 step100.h5 --train step0.train.h5,step100.train.h5 --projection lda,pca
    """
    try:
        from probekit.explore.view import View
    except ImportError as error:
        raise UsageError(MISSING) from error
    from probekit.analyses.exploration import scene

    chosen = {f.name: getattr(options, f.name) for f in fields(options)}
    shown = scene(a, b, *more, rows=rows, train=train, task=task, progress=progress, **chosen)
    return View(shown, state, made_by=str(_recipe(a, b, more, rows, train, chosen)))


def _recipe(a: Any, b: Any, more: Sequence[Any], rows: Any, train: Any, chosen: Mapping[str, Any]) -> Recipe:
    """The call with the names of its files, for the page that it writes."""

    def path(given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [path(one) for one in given]
        where = getattr(given, "path", given)
        return Path(where).name if isinstance(where, str | Path) else where

    files = {"a": path(a), "b": path(b), "more": path(more), "rows": path(rows), "train": path(train)}
    return Recipe.of("explore", {name: value for name, value in files.items() if value} | dict(chosen))
