"""Similarity: how alike the layers of one or several models are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Corrected, Reads
from probekit.public import public
from probekit.runtime import Progress, no_progress
from probekit.similarity.options import SimilarityOptions

if TYPE_CHECKING:
    from probekit.activations import ActivationCache
    from probekit.rows import Result


@public(vectors=VectorOptions, options=SimilarityOptions)
def similarity(
    *caches: str | Path | ActivationCache,
    against: Literal["first", "all"] = "first",
    vectors: VectorOptions,
    options: SimilarityOptions,
    progress: Progress = no_progress,
) -> Result:
    """Measure how alike layers are, with the value that chance gives, p and intervals.

    One cache: its layers with each other. Two: all pairs of layers of two models on the same examples; the reference,
    such as the pretrained model, comes first. More: each with the first, such as the checkpoints of a run with step 0.
    Caches may hold the examples in another order and lack some. Models may have other widths and depths.

    Each line of the table is a layer of the first model; the columns show the same layer of the second model, and the
    layer of the second model that is most similar to it. Linear CKA is debiased: unrelated layers have 0 in the mean,
    whatever their width. Other measures have other chance levels; the table shows them next to the value. The
    calibrated value is 0 at the chance level and 1 for equal layers. Groups of examples are permuted and resampled as a
    whole.

    Parameters
    ----------
    *caches : path or ActivationCache
        One or more caches of the same split of one task; examples are matched by id.
    against : {"first", "all"}
        Compare each cache with the first, or all pairs of caches, as a dendrogram of models needs.
    vectors : VectorOptions
        ``pooling``, ``layers`` and ``groups``; each may be given as a keyword.
    options : SimilarityOptions
        ``measures``, ``draws``, ``resamples`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        A row for each measure and pair of layers. ``model``, ``step``, ``layer`` … are those of the first cache of the
        pair, ``model_b``, ``step_b``, ``layer_b``, ``site_b`` … those of the second. ``p`` is one-sided: the
        proportion of permutations that are at least as alike. ``p_adjusted`` is corrected for all pairs of layers of
        all compared caches. ``null_mean``, ``null_low`` and ``null_high`` are the mean and the 2.5 % and 97.5 %
        quantiles of the permutations, ``draws`` their number. ``calibrated`` is 0 at that mean and 1 for equal layers.

    Raises
    ------
    UsageError
        For caches of different tasks or splits, for fewer than 4 shared examples, and for equal ids with different
        labels.
    NonFiniteError
        If a layer contains NaN; the message names the layer.

    See Also
    --------
    probekit.movement : How far each example moves.
    probekit.similarity.options.Similarity : The measures.

    Examples
    --------
    >>> result = probekit.similarity("pretrained.dev.h5", "tuned.dev.h5", measures=("cka", "svcca"))  # doctest: +SKIP
    >>> result.plot()  # doctest: +SKIP

    On the command line::

        probekit similarity pretrained.dev.h5 tuned.dev.h5 --out similarity.parquet
        probekit similarity pretrained.dev.h5 --measures cka,mutual-knn
        probekit similarity 'RUN/step-*.dev.h5' --out steps.parquet
        probekit similarity a.h5 b.h5 c.h5 d.h5 --against all --out models.parquet
        probekit plot similarity similarity.parquet
    """
    from probekit.analyses.similarity.measure import measure

    return measure(caches, against, vectors, options, progress)


ANALYSIS = Analysis(
    name="similarity",
    help="Measure how alike the layers of one or several models are.",
    title="Similarity of layers",
    reads=Reads.MODELS,
    corrected=Corrected.CURVE,
    judge="probekit.analyses.similarity.sentences:sentences",
    view="probekit.analyses.similarity.tables:tables",
    layered=True,
    curves="probekit.plots.similarity:same_layers",
    controls={"permuted": "permuted examples"},
    place=50,
    of_vectors=True,
)
