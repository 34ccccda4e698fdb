"""What a training's options add to keep its weights near those at the start: mixout, and a penalty on the loss."""

from __future__ import annotations

from dataclasses import replace

from probekit.adaptation.optimisation.fisher import fisher_of_run
from probekit.adaptation.optimisation.mixout import add_mixout, linear_layers
from probekit.adaptation.optimisation.options import Penalty
from probekit.adaptation.optimisation.penalties import DistancePenalty
from probekit.adaptation.training.objective import Training
from probekit.adaptation.training.unfreezing import moved_weights
from probekit.errors import UsageError
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

    Raises
    ------
    UsageError
        If none of the weights that they hold is ever trained.
    """
    how = training.options
    _check_effect(training)
    if how.mixout:
        add_mixout(training.learner.encoder, how.mixout)
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


def _check_effect(training: Training) -> None:
    how, learner = training.options, training.learner
    moved = moved_weights(learner.groups(), how) if how.mixout or how.penalty_strength else {}
    if how.mixout:
        weights = {id(weight) for weight in moved.values()}
        if not any(id(one.weight) in weights for one in linear_layers(learner.encoder)):
            raise UsageError(
                "mixout holds the weights of the encoder's linear layers, and this run trains none of them. Leave out "
                "--mixout, or choose another --method, --unfreezing or --order."
            )
    if how.penalty_strength and not moved:
        raise UsageError(
            f"the penalty {how.penalty} holds the encoder's weights, and this run trains none of them. Leave out "
            "--penalty (or set --penalty-strength 0, for --head-penalty alone), or choose another --unfreezing or "
            "--order."
        )
