"""Distillation: a student learns the outputs of a teacher (Hinton, Vinyals & Dean 2015), and its hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.adaptation.signals.block_states import BlockStates
from probekit.adaptation.signals.teacher import Lesson
from probekit.adaptation.training.learners import Learner

__all__ = ["Distillation", "HiddenStates", "hidden_distance", "layer_map", "soft_loss"]

PROJECTION = "projection"


def soft_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² · KL(teacher ‖ student) of the softmaxes at temperature T, in nats, mean over the rows.

    T² keeps the size of the gradient when T changes (Hinton, Vinyals & Dean 2015, section 2).

    Parameters
    ----------
    student, teacher : Tensor
        Logits (n, k).
    temperature : float
        T, above 0.

    Examples
    --------
    >>> logits = torch.tensor([[1.0, 3.0]])
    >>> float(soft_loss(logits, logits, 2.0))
    0.0
    """
    ours, theirs = ((logits / temperature).log_softmax(-1) for logits in (student, teacher))
    return temperature**2 * functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)


class Distillation:
    """The term A · (soft loss − hard loss), which makes the whole loss A · soft + (1 − A) · hard.

    The soft loss is :func:`soft_loss`, for word tags over words; for numbers it is the mean squared difference of both
    outputs.

    Attributes
    ----------
    lesson : Lesson
        The teacher's outputs, by the number of the training example.
    temperature, share : float
        T and A.
    """

    name = "distillation"

    def __init__(self, lesson: Lesson, temperature: float, share: float) -> None:
        self.lesson, self.temperature, self.share = lesson, temperature, share

    def __call__(
        self, learner: Learner, batch: Mapping[str, Any], out: Mapping[str, Tensor], step: int, total: int,
        part: int = 0,
    ) -> Tensor:  # fmt: skip
        logits, first = out["logits"].float(), batch["first"]
        if "words" in first:
            logits = logits[first["words"] >= 0]
        taught = [self.lesson.logits[i] for i in first["example"].tolist()]
        teacher = (torch.cat if "words" in first else torch.stack)(taught).to(logits)
        if logits.shape[-1] == 1:
            soft = functional.mse_loss(logits, teacher)
        else:
            soft = soft_loss(logits, teacher, self.temperature)
        return self.share * (soft - out["loss"])


def layer_map(student: int, teacher: int) -> list[int]:
    """The teacher's block for each of the student's, evenly spaced, both counted from 0.

    With a depth that divides the teacher's, it is the uniform map of TinyBERT (Jiao et al. 2020, 3.1) and PKD-skip
    (Sun et al. 2019, 3.2).

    Examples
    --------
    >>> layer_map(3, 12), layer_map(4, 2)
    ([3, 7, 11], [0, 0, 1, 1])
    """
    return [ceil(m * teacher / student) - 1 for m in range(1, student + 1)]


def hidden_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """The mean squared distance of normalised vectors (…, d), ‖s/‖s‖ − t/‖t‖‖² (Sun et al. 2019, eq. 7)."""
    ours, theirs = (functional.normalize(x.float(), dim=-1) for x in (student, teacher))
    return (ours - theirs).square().sum(-1).mean()


class HiddenStates:
    """The term W · :func:`hidden_distance` between the blocks of both models, mean over blocks and examples.

    The vector of a text is the mean over its pieces, since both models may have their own tokenizer; Sun et al. (2019)
    take the first piece, and leave out the last block. If the widths differ, a learned linear map without bias, the
    same for all blocks, is applied to the student's vectors (Jiao et al. 2020, eq. 8).

    Attributes
    ----------
    lesson : Lesson
        The teacher's vectors, by the number of the training example.
    states : BlockStates
        The student's.
    weight : float
        W.
    """

    name = "hidden-states"

    def __init__(self, learner: Learner, lesson: Lesson, weight: float) -> None:
        assert lesson.hidden is not None
        self.states, self.weight = BlockStates(learner.encoder), weight
        chosen = layer_map(self.states.depth, lesson.hidden.shape[1])
        self.hidden = lesson.hidden[:, chosen]
        width, wanted = int(learner.encoder.config.hidden_size), self.hidden.shape[-1]
        if width != wanted:
            learner.auxiliary[PROJECTION] = nn.Linear(width, wanted, bias=False)

    def __call__(
        self, learner: Learner, batch: Mapping[str, Any], out: Mapping[str, Tensor], step: int, total: int,
        part: int = 0,
    ) -> Tensor:  # fmt: skip
        mine = self.states.pooled(batch["first"])
        if PROJECTION in learner.auxiliary:
            mine = learner.auxiliary[PROJECTION](mine)
        theirs = self.hidden[batch["first"]["example"].cpu()].to(mine.device)
        return self.weight * hidden_distance(mine, theirs)
