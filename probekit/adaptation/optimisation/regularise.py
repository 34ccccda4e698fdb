"""What a training's options add to keep its weights near those at the start: mixout, and a penalty on the loss."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from probekit.adaptation.optimisation.fisher import fisher_of_run
from probekit.adaptation.optimisation.mixout import add_mixout
from probekit.adaptation.optimisation.options import Penalty
from probekit.adaptation.optimisation.penalties import DistancePenalty
from probekit.adaptation.training.learners import FineTuning
from probekit.adaptation.training.objective import Training
from probekit.runtime import Progress, no_progress
from probekit.tasks.task import Task

__all__ = ["regularised"]


def regularised(training: Training, old: Task | None, progress: Progress = no_progress) -> Training:
    """The training with mixout and the penalty of its options, from the weights that its learner has now.

    A probability and a strength of 0 leave the training as it is.

    Parameters
    ----------
    old : Task | None
        The old task of EWC.
    """
    how = training.options
    if how.mixout:
        add_mixout(cast("FineTuning", training.learner).encoder, how.mixout)
    if how.penalty is None or (not how.penalty_strength and not how.head_penalty):
        return training
    importance = None
    if how.penalty is Penalty.EWC:
        assert old is not None
        assert training.source is not None
        importance = fisher_of_run(
            training.source, old, how.fisher_split, examples=how.fisher_examples, seed=how.data_seed,
            labels=how.fisher_labels, device=how.device, progress=progress,
        )  # fmt: skip
    term = DistancePenalty(
        str(how.penalty), training.learner, strength=how.penalty_strength or 0.0, head_strength=how.head_penalty,
        importance=importance,
    )  # fmt: skip
    return replace(training, terms=(*training.terms, term))
