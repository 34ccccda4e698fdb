"""Slice heads: further heads that learn which slices an example is in, and the task on each slice."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.adaptation.heads.head import Head, States
from probekit.adaptation.training.learners import Learner
from probekit.adaptation.training.objective import Objective
from probekit.tasks.task import TaskKind

__all__ = ["SliceHeads"]

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

    def __init__(
        self, learner: Learner, objective: Objective, slices: Mapping[str, Set[str]], weight: float
    ) -> None:  # fmt: skip
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

    def __call__(
        self, learner: Learner, batch: Mapping[str, Any], out: Mapping[str, Tensor], step: int, total: int,
        part: int = 0,
    ) -> Tensor:  # fmt: skip
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
