"""Movement: how far the vectors of examples move from a reference model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from probekit.analyses.options import VectorOptions, in_order
from probekit.analysis import Analysis, Corrected, Reads
from probekit.constraint import WRITTEN, Checked, Natural, Seed, Share
from probekit.display import shown, shown_label
from probekit.grid import Column, Grid
from probekit.public import public
from probekit.recipe import option
from probekit.rows.schema import called, layer_labels, layer_order
from probekit.runtime import Progress, no_progress
from probekit.similarity.options import DISTANCES
from probekit.statistics.options import ResamplesOrNone
from probekit.view import EACH, Cells, View, interval

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result


@dataclass(frozen=True, slots=True)
class MovementOptions(Checked):
    """Which distances are measured, and their intervals."""

    measures: tuple[str, ...] = option(
        DISTANCES,
        "Distances, separated by commas: relative-distance, cosine-distance, aligned-distance (after the best shift "
        "and rotation; takes longest).",
    )
    top: Natural = option(10, "Number of examples listed for each layer, those that moved most; 0 for none.")
    resamples: ResamplesOrNone = option(1000, "Bootstrap resamples of the examples; 0 for no intervals.")
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of the resamples, of the folds for the rotation, and of the other examples.")

    def together(self) -> None:
        object.__setattr__(self, "measures", in_order(self.measures, DISTANCES, "distance"))


@public(vectors=VectorOptions, options=MovementOptions)
def movement(
    *caches: str | Path | ActivationCache,
    vectors: VectorOptions,
    options: MovementOptions,
    examples: Annotated[Path | None, WRITTEN] = None,
    progress: Progress = no_progress,
) -> Result:
    """Measure how far the vectors of each layer move from a reference, and which examples move most.

    The first cache is the reference, such as the pretrained model before fine-tuning; each other one is compared with
    it, example by example. For each example and layer it measures the distance between the vector of the model and that
    of the reference:

    - "relative-distance", in units of the length of the reference's vector: 0.5 is half of it;
    - "cosine-distance", 1 minus the cosine of the two, which ignores lengths;
    - "aligned-distance", the relative distance that is left after the shift and the rotation common to all examples,
      which a linear probe that is fitted anew does not notice. They come from other examples than the one measured.

    The table also gives the distance to the vectors of other examples, the distance of an unrelated vector.

    Parameters
    ----------
    *caches : path or ActivationCache
        The reference, then one or more caches of the same split of one task with vectors of the same width:
        checkpoints, other seeds. Examples are matched by id.
    vectors : VectorOptions
        ``pooling``, ``layers`` and ``groups``; each may be given as a keyword.
    options : MovementOptions
        ``measures``, ``top``, ``resamples``, ``level``, ``seed``; each may be given as a keyword.
    examples : path, optional
        Also write the distances of all examples (.parquet), a row for each model, layer and example.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows of each model and layer: the mean of each distance with its interval, and in the column ``others`` the mean
        distance to the reference vectors of *other* examples, which is what an unrelated vector would have. The column
        ``against`` names the reference. Rows with a ``label`` are means over the examples of that class, and
        "difference(relative-distance)" is that mean minus the mean of all other classes, with p from permuted labels
        and p_adjusted for all layers, models, labels and distances (min-p). Rows with an ``example`` are the examples
        that moved most, with their ``text`` if the data can be read. The column ``note`` says where a rotation has too
        few examples.

    Raises
    ------
    UsageError
        For fewer than two caches, for vectors of different width, and as in :func:`probekit.similarity`.
    NonFiniteError
        If a layer contains NaN; the message names the layer.

    See Also
    --------
    probekit.similarity : How alike layers are, also of models with other dimensions.

    Examples
    --------
    >>> result = probekit.movement("cola.dev.h5", "cola.dev-tuned.h5")  # doctest: +SKIP
    >>> result.plot()  # doctest: +SKIP

    On the command line::

        probekit movement pretrained.dev.h5 tuned.dev.h5 --out movement.parquet
        probekit movement 'RUN/step-*.dev.h5' --measures relative-distance --out steps.parquet
        probekit movement pretrained.dev.h5 tuned.dev.h5 --examples distances.parquet
        probekit plot movement movement.parquet
    """
    from probekit.analyses.movement.measure import measure

    return measure(caches, vectors, options, examples, progress)


SHORT = dict(zip(DISTANCES, ("distance", "cosine distance", "after rotation"), strict=True))
"""Headers of tables."""
TEXT = 100
"""Characters of a text in a table."""


def tables(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[tuple[Grid, list[str]]]:
    """The means of each model by layer; then the examples that moved most in its last layer."""
    whole = rows[(rows["label"] == "") & (rows["example"] == "")]
    yield from View(_cells, _title)(whole, options)
    for _, part in rows[rows["example"] != ""].groupby(list(EACH), sort=False, dropna=False):
        last = part[layer_order(part) == layer_order(part).max()]
        title = f"moved most in layer {layer_labels(last).iloc[0]}, {shown_label(called(last.iloc[0]))}"
        columns = [Column("example", align="left", key=True), Column(SHORT[str(last["metric"].iloc[0])])]
        columns += [Column("label", align="left"), Column("text", align="left", wrap=True)]
        names = ["example", "value", "label", "text"]
        lines = [[name, f"{value:.3f}", label, _cut(text)] for name, value, label, text in last[names].to_numpy()]
        yield Grid(columns, lines, title), []


def _cells(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[Cells]:
    for metric in options["measures"]:
        yield Cells(SHORT[metric], metric, form="z.3f")
        yield Cells(interval(options), metric, "interval", "z.3f")
    first = options["measures"][0]
    yield Cells(f"{SHORT[first]}, other examples", first, "others", "z.3f")


def _title(rows: pd.DataFrame, options: Mapping[str, Any]) -> str:
    return f" from {shown_label(rows['against'].iloc[0])}: n = {rows['n'].max():,}"


def _cut(text: object) -> str:
    text = shown(text)
    return text if len(text) <= TEXT else f"{text[: TEXT - 2]} …"


ANALYSIS = Analysis(
    name="movement",
    help="Measure how far each layer moves from a reference model.",
    title="Movement from a reference",
    reads=Reads.REFERENCE,
    corrected=Corrected.CURVE,
    judge="probekit.analyses.movement.sentences:sentences",
    view="probekit.analyses.movement:tables",
    layered=True,
    curves="probekit.plots.movement:mean_distances",
    place=60,
    of_vectors=True,
)
