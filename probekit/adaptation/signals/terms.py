"""The terms that signals add to a loss: distillation, consistency of two passes, and heads of slices."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from math import ceil
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.adaptation.heads.head import Head, States
from probekit.adaptation.signals.options import Consistency, SignalOptions
from probekit.adaptation.signals.teacher import BlockStates, Lesson
from probekit.adaptation.signals.unlabelled import Unlabelled
from probekit.adaptation.training.learners import Learner
from probekit.adaptation.training.objective import Batch, Objective, Outputs
from probekit.tasks.task import TaskKind

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

    The soft loss is :func:`soft_loss`, for word tags over words, for several labels over all labels; for numbers it is
    the mean squared difference of both outputs.

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

    def __call__(self, learner: Learner, batch: Batch, out: Outputs, step: int, total: int, part: int = 0) -> Tensor:
        logits, first = out["logits"].float(), batch["first"]
        if "words" in first:
            logits = logits[first["words"] >= 0]
        taught = [self.lesson.logits[i] for i in first["example"].tolist()]
        teacher = (torch.cat if "words" in first else torch.stack)(taught).to(logits)
        ours, theirs = (learner.head.alternatives(one).flatten(0, -2) for one in (logits, teacher))
        soft = functional.mse_loss(ours, theirs) if ours.shape[-1] == 1 else soft_loss(ours, theirs, self.temperature)
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

    def __call__(self, learner: Learner, batch: Batch, out: Outputs, step: int, total: int, part: int = 0) -> Tensor:
        mine = self.states.pooled(batch["first"])
        if PROJECTION in learner.auxiliary:
            mine = learner.auxiliary[PROJECTION](mine)
        theirs = self.hidden[batch["first"]["example"].cpu()].to(mine.device)
        return self.weight * hidden_distance(mine, theirs)


CONFIDENCE = 0.8
"""The threshold of UDA for few classes (Xie et al. 2020)."""


def disagreement(first: Tensor, second: Tensor, *, confidence: float = 0.0, sharpening: float = 1.0) -> Tensor:
    """KL(first ‖ second), in nats, of the classes that two passes predict; the first one has no gradient.

    It is the loss of UDA (Xie et al. 2020, section 3.2): texts whose most likely class in the first pass has a
    probability of ``confidence`` or less count as 0, and the mean is over all texts. For numbers, the mean squared
    difference.

    Parameters
    ----------
    first, second : Tensor
        Logits (b, k), or numbers (b, 1); of each of several labels (b, labels, 2), each of which counts as a text, or
        several numbers (b, k, 1).
    confidence : float, default 0.0
        Threshold.
    sharpening : float, default 1.0
        Temperature of the first pass.
    """
    first, second = first.detach().float(), second.float()
    if first.shape[-1] == 1:
        return functional.mse_loss(second, first)
    sure = first.softmax(-1).amax(-1) > confidence
    target = (first / sharpening).log_softmax(-1)
    each = functional.kl_div(second.log_softmax(-1), target, reduction="none", log_target=True).sum(-1)
    return (each * sure).mean()


class ConsistencyTerm:
    """The term W · :func:`disagreement` on a batch of unlabelled text.

    Both passes have dropout, as in the Π-model (Laine & Aila 2017); for word deletion, the second one reads the text
    without some words. The gradient is that of the second pass alone.

    Attributes
    ----------
    texts : Unlabelled
        The texts.
    options : SignalOptions
        What the passes differ in, and the weight of the term.
    confidence : float
        The probability from which a text counts.
    """

    name = "consistency"

    def __init__(self, texts: Unlabelled, options: SignalOptions, confidence: float) -> None:
        self.texts, self.options, self.confidence = texts, options, confidence

    def __call__(self, learner: Learner, batch: Batch, out: Outputs, step: int, total: int, part: int = 0) -> Tensor:
        how, draw, device = self.options, self.texts.draw(step, part), out["logits"].device
        rows = self.texts.rows(draw)
        clean = self.texts.batch(rows, device)
        with torch.no_grad():
            first = self._logits(learner, clean)
        if how.consistency is Consistency.WORD_DELETION:
            second = self._logits(learner, self.texts.without_words(rows, draw, how.deletion, device))
        else:
            second = self._logits(learner, clean)
        found = disagreement(first, second, confidence=self.confidence, sharpening=how.sharpening)
        return how.consistency_weight * found

    def _logits(self, learner: Learner, inputs: Mapping[str, Any]) -> Tensor:
        head = learner.head
        return head.alternatives(head(learner.read(inputs["first"], inputs.get("second"))))


MEMBERSHIP, EXPERTS = "slice_membership", "slice_experts"


class SliceHeads:
    """The term W · Σ over slices (membership loss + expert loss), of slice-based learning (Chen et al. 2019, eq. 1–2).

    The membership loss of a slice is the binary cross-entropy of "is the example in the slice?", mean over the batch;
    its expert loss is that of the task, mean over the examples of the batch that are in the slice, or 0 without any.
    The heads are of the kind of the task's head and read the states that it reads. The paper's attention over the
    experts (eq. 3–5) is left out, so slice heads shape the encoder in training and have no part in predictions.

    Attributes
    ----------
    inside : Tensor
        float32 (n, slices), 1 if a training example is in a slice, by its number.
    weight : float
        W.
    """

    name = "slice-heads"

    def __init__(self, learner: Learner, objective: Objective, slices: Mapping[str, Set[str]], weight: float) -> None:
        task, head = objective.task, objective.head
        ids = objective.train.ids.tolist()
        self.inside = torch.tensor([[float(i in members) for members in slices.values()] for i in ids])
        self.weight = weight
        # a rating's head predicts a number: whether an example is in a slice is a class
        binary = replace(head, head="pair", scale=None) if head.head == "rating" else head
        learner.auxiliary[MEMBERSHIP] = binary.build(
            replace(task, kind=TaskKind.CLASSIFICATION, label_names=tuple(slices))
        )
        learner.auxiliary[EXPERTS] = nn.ModuleList(head.build(task) for _ in slices)
        self._states: list[States] = []
        learner.head.register_forward_pre_hook(self._hold)

    def _hold(self, head: nn.Module, read: tuple[States]) -> None:
        if head.training:
            self._states = [read[0]]

    def __call__(self, learner: Learner, batch: Batch, out: Outputs, step: int, total: int, part: int = 0) -> Tensor:
        states, labels = self._states.pop(), batch["labels"]
        inside = self.inside[batch["first"]["example"].cpu()].to(labels.device)

        def logits(head: nn.Module) -> Tensor:
            return cast("Head", head).of_examples(head(states), states)

        member = logits(learner.auxiliary[MEMBERSHIP]).float()
        loss = len(inside.T) * functional.binary_cross_entropy_with_logits(member, inside)
        for one, expert in zip(inside.T > 0, cast("nn.ModuleList", learner.auxiliary[EXPERTS]), strict=True):
            found = logits(expert)
            loss = loss + (cast("Head", expert).loss(found[one], labels[one], states) if one.any() else 0 * found.sum())
        return self.weight * loss
