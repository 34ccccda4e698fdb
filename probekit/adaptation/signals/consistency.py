"""Consistency: two passes over an unlabelled text must agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from probekit.adaptation.heads.head import Head
from probekit.adaptation.signals.options import Consistency
from probekit.adaptation.signals.unlabelled import Unlabelled
from probekit.adaptation.training.learners import Learner

__all__ = ["CONFIDENCE", "ConsistencyTerm", "disagreement"]

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
        Logits (b, k), or numbers (b, 1).
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
    kind : Consistency
        What the passes differ in.
    weight, confidence, sharpening, deletion : float
        See :class:`~probekit.adaptation.signals.options.SignalOptions`.
    module : str
        Name of the learner's head.
    """

    name = "consistency"

    def __init__(
        self, texts: Unlabelled, kind: Consistency, *, weight: float, confidence: float, sharpening: float,
        deletion: float, module: str = "head",
    ) -> None:  # fmt: skip
        self.texts, self.kind, self.weight, self.module = texts, kind, weight, module
        self.confidence, self.sharpening, self.deletion = confidence, sharpening, deletion

    def __call__(
        self, learner: Learner, batch: Mapping[str, Any], out: Mapping[str, Tensor], step: int, total: int,
        part: int = 0,
    ) -> Tensor:  # fmt: skip
        draw, device = self.texts.draw(step, part), out["logits"].device
        rows = self.texts.rows(draw)
        clean = self.texts.batch(rows, device)
        with torch.no_grad():
            first = self._logits(learner, clean)
        if self.kind is Consistency.WORD_DELETION:
            second = self._logits(learner, self.texts.without_words(rows, draw, self.deletion, device))
        else:
            second = self._logits(learner, clean)
        found = disagreement(first, second, confidence=self.confidence, sharpening=self.sharpening)
        return self.weight * found

    def _logits(self, learner: Learner, inputs: Mapping[str, Any]) -> Tensor:
        head = cast("Head", learner.get_submodule(self.module))
        logits: Tensor = head(learner.read(inputs["first"], inputs.get("second")))
        return logits
