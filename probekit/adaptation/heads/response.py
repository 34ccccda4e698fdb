"""A causal language model's own head, trained on responses to prompts, and decoding."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.adaptation.heads.head import IGNORED, Head, States
from probekit.tasks.task import TaskKind


class Response(Head):
    """A softmax over the pieces, at each piece for the next one; only pieces of the response count.

    Attributes
    ----------
    tied : bool
        Whether its weights are the encoder's input embeddings.
    """

    kinds: ClassVar = frozenset({TaskKind.RESPONSE_GENERATION})

    def __init__(self, width: int, outputs: int, *, tied: bool = False, bias: bool = False) -> None:
        super().__init__()
        self.tied = tied
        self.output = nn.Linear(width, outputs, bias=bias)

    def attach(self, encoder: Any) -> None:
        if self.tied:
            self.output.weight = encoder.get_input_embeddings().weight

    def forward(self, states: States) -> Tensor:
        """The hidden states (b, t, d), since logits of all pieces at once may not fit."""
        return states.hidden

    def nats(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The cross-entropy of each predicted piece in nats, (p,), and its row, int64 (p,)."""
        known = labels[:, 1:] != IGNORED
        scores = self.output(logits[:, :-1][known]).float()
        return functional.cross_entropy(scores, labels[:, 1:][known], reduction="none"), known.nonzero()[:, 0]

    def loss(self, logits: Tensor, labels: Tensor, states: States) -> Tensor:
        """Mean cross-entropy of the pieces of the responses in nats; ``IGNORED`` marks all others in labels (b, t)."""
        nats, _ = self.nats(logits, labels)
        return nats.sum() / max(1, len(nats))


@torch.no_grad()
def continued(
    encoder: Any, output: nn.Module, prompts: Sequence[Sequence[int]], most: Sequence[int], end: int,
    draws: Sequence[torch.Generator] | None = None,
) -> list[list[int]]:  # fmt: skip
    """The pieces that follow each prompt, up to the end of text, without it.

    Parameters
    ----------
    most : Sequence[int]
        The largest number of pieces for each prompt.
    draws : Sequence[torch.Generator], optional
        A generator on the CPU for each prompt, with which pieces are drawn from the softmax (by the maximum of the
        logits with Gumbel noise); None takes the most likely piece. What follows a prompt depends on no other prompt.
    """
    device, width = encoder.device, max(map(len, prompts))
    ids = torch.tensor([[end] * (width - len(p)) + [*p] for p in prompts], device=device)  # padded on the left
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
    position, limit = (mask.cumsum(1) - 1).clamp_min(0), torch.tensor(most, device=device)
    placed = "position_ids" in inspect.signature(encoder.forward).parameters
    found: list[list[int]] = [[] for _ in prompts]
    going, cache = torch.ones(len(prompts), dtype=torch.bool, device=device), None
    for step in range(max(most)):
        more = {"position_ids": position} if placed else {}
        out = encoder(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, **more)
        cache, scores = out.past_key_values, output(out.last_hidden_state[:, -1]).float()
        if draws is not None:
            uniform = torch.stack([torch.rand(scores.shape[1], generator=draw) for draw in draws])
            scores = scores - uniform.clamp(1e-12, 1 - 1e-7).log().neg().log().to(device)
        ids = scores.argmax(-1, keepdim=True)
        going &= (ids[:, 0] != end) & (step < limit)
        for i in going.nonzero()[:, 0].tolist():
            found[i].append(int(ids[i]))
        if not going.any():
            break
        mask, position = torch.cat([mask, torch.ones_like(ids)], 1), position[:, -1:] + 1
    return found
