"""Guidelines: which way to adapt a model is preferred, from finished runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from probekit.analysis import Analysis, Corrected, Reads
from probekit.constraint import MOST_DRAWS, Checked, Ge, Most, Seed, Share
from probekit.public import public
from probekit.recipe import option

if TYPE_CHECKING:
    from probekit.adaptation.runs.run import Run
    from probekit.rows import Result

CANNOT_TELL, EITHER = "cannot tell", "either"


class CostKind(StrEnum):
    """A cost of training, also the metric of its rows."""

    TRAINED_PARAMETERS = "trained-parameters"
    CPU_SECONDS = "cpu-seconds"
    PEAK_MEMORY = "peak-memory"


@dataclass(frozen=True, slots=True)
class GuidelinesOptions(Checked):
    """How the regimes are compared, and which differences are too small to matter."""

    metric: str | None = option(None, "Metric that all tasks have (default: the first metric of each task).")
    split: str | None = option(
        None, "Split to compare on (default: the last on which all runs of a task were evaluated)."
    )
    margin: Share = option(0.01, "Largest difference, on the metric's scale, that does not matter in practice.")
    reference: str | None = option(
        None,
        "With several settings: the setting that the others are compared with, by its name in the table (default: full "
        "fine-tuning, otherwise the setting that trains the most weights).",
        metavar="SETTING",
    )
    cost: CostKind = option(
        CostKind.TRAINED_PARAMETERS,
        "With several settings: the cost by which the cheapest one is recommended: trained-parameters, cpu-seconds or "
        "peak-memory.",
    )
    resamples: Annotated[int, Ge(1000), Most(MOST_DRAWS)] = option(5000, "Bootstrap resamples of the examples.")
    seed: Seed = option(0, "Seed of the resampling.")


@public(options=GuidelinesOptions)
def guidelines(*runs: str | Path | Run, options: GuidelinesOptions) -> Result:
    """Recommend a way to adapt for each task and model, with the confidence of the recommendation.

    The two regimes, fine-tuning and feature extraction, are compared on the same examples, and across training seeds if
    there are several. "either" means that the difference lies within the margin, "cannot tell" that the runs do not
    settle it. p is corrected for the number of tasks (Holm).

    With several settings (runs that differ in more than the seed, or in the number of training examples), each is
    compared with a reference, full fine-tuning by default or else the setting that trains the most weights, and the
    cheapest one that is shown not to be worse by the margin is recommended.

    Parameters
    ----------
    *runs : path or Run
        Finished runs on the same data; both regimes, or several settings, are needed. A folder of several seeds counts
        as its runs.
    options : GuidelinesOptions
        ``metric``, ``split``, ``margin``, ``reference``, ``cost``, ``resamples`` and ``seed``; each may be given as a
        keyword.

    Returns
    -------
    Result
        Of both regimes, in the order of the tasks and models, rows with the metric "difference(NAME)" and
        the estimator "fine-tune - feature-extraction": value, ci_low and ci_high (95 %, pointwise), ``p``
        of no difference, n examples. Additional columns:

        fine_tune, feature_extraction, fine_tune_seeds, feature_extraction_seeds
            The means, and the numbers of seeds.
        p_equal, p_adjusted
            p of a difference of ``margin`` or more; the smaller of ``p`` and ``p_equal``, corrected for all rows (Holm
            1979), which decides ``prefer``. With one seed of each regime, ``p_adjusted`` is missing, and ``p`` and
            ``p_equal`` hold only for the two trained models.
        prefer
            "either" if the difference lies within ± margin, the better regime if it is not 0, both with a
            ``p_adjusted`` of at most 0.05; otherwise "cannot tell".
        confidence
            "high" (p_adjusted ≤ 0.01), "moderate" (≤ 0.05) or "none"; "high (one seed)" if one regime has a single
            seed, which is assumed to vary as much as those of the other.
        why, caveat
            One sentence with the numbers; the limits of the comparison, or "".
        kind, margin
            "single sentences", "sentence pairs" or "word tags".

        Of several settings, for each task, model, number of training ``examples`` and setting (``variant``) these rows:
        the metric (mean over seeds, ``sd``, interval over examples and seeds); "failed-runs"; "difference(NAME)" from
        the ``reference`` with ``p`` of no difference, ``p_worse`` of being worse by ``margin`` or more, ``p_adjusted``
        (the smaller one, corrected for all comparisons; Holm 1979) and ``finding``: "better", "not worse", "worse" or
        "cannot tell"; "trained-parameters", "cpu-seconds" (seconds) and "peak-memory" (bytes), medians over seeds. The
        metric's row of the reference has ``prefer``: the setting of least ``cost`` that is found better or not worse,
        the reference if all cheaper ones are worse, or "cannot tell"; with ``confidence``, ``why`` and ``caveat``.

    Raises
    ------
    UsageError
        If the runs are not comparable. A task with only one regime is not an error; its row says "cannot tell".
    DataError
        If a run lacks its predictions for each example.

    Examples
    --------
    >>> probekit.guidelines("runs/mrpc", "runs/mrpc-esim").rows["prefer"]  # doctest: +SKIP

    On the command line::

        probekit guidelines runs/mrpc runs/mrpc-esim
        probekit guidelines runs/* --margin 0.02 --out guidelines.parquet
        probekit guidelines runs/cola-full runs/cola-lora runs/cola-bitfit --cost cpu-seconds
    """
    from probekit.analyses.guidelines.measure import measure

    return measure(runs, options)


ANALYSIS = Analysis(
    name="guidelines",
    help="Compare fine-tuning and feature extraction runs.",
    title="Recommended regime",
    reads=Reads.RUNS,
    corrected=Corrected.CURVE,
    judge="probekit.analyses.guidelines.sentences:sentences",
    view="probekit.analyses.guidelines.tables:tables",
    place=95,
)
