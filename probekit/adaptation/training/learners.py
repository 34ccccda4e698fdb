"""What is trained: an encoder with a head, or a mix of cached layers with a head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from probekit.adaptation.heads.head import Head, States
from probekit.adaptation.heads.scalar_mix import ScalarMix
from probekit.adaptation.training.groups import LayerGroup, layer_groups

__all__ = ["FeatureExtraction", "FineTuning", "Learner"]

Inputs = Mapping[str, Tensor]

READ = ("input_ids", "attention_mask", "token_type_ids", "characters")
"""What of the inputs is the encoder's."""


class Learner(nn.Module):
    """What transformers' Trainer trains: a batch in; the loss, and outside training the predictions, out.

    Attributes
    ----------
    head : Head
        Of the first objective.
    mix : ScalarMix, optional
        Of the layers that the heads read; None where they read the last one.
    layers : tuple[str, ...], default ()
        The names of those that are mixed.
    **others
        The heads of further ones, by the names of their modules.
    """

    def __init__(self, head: Head, mix: ScalarMix | None = None, layers: tuple[str, ...] = (), **others: Head) -> None:
        super().__init__()
        self.head, self.mix, self.layers = head, mix, layers
        for name, other in others.items():
            self.add_module(name, other)

    def groups(self) -> list[LayerGroup]:
        """What is trained, by layer, bottom to top."""
        return [("head", list(self.named_parameters()))]

    def states(self, inputs: Inputs) -> States:
        """Hidden states of one batch of sequences."""
        raise NotImplementedError

    def forward(
        self, labels: Tensor, first: Inputs, second: Inputs | None = None, module: str = "head",
        probabilities: bool = False,
    ) -> dict[str, Tensor]:  # fmt: skip
        """The loss, and in evaluation ``predictions`` as :meth:`Head.predict` gives them.

        Parameters
        ----------
        labels : Tensor
            int64 (b,), float32 (b,), or int64 (b, w) of word tags.
        first, second : Inputs
            The batch of :class:`~probekit.adaptation.data.batches.Data`; the second of pairs read apart.
        module : str, default 'head'
            The head of the objective that the batch belongs to.
        probabilities : bool, default False
            Give ``probabilities`` as well, where the head has them.
        """
        head = cast("Head", self.get_submodule(module))
        states = self.states(first)
        if second is not None:
            other = self.states(second)
            states = States(states.hidden, states.mask, states.special, states.words, other, states.pooled)
        logits = head(states)
        loss = head.loss(logits, labels, states)
        if self.training:
            return {"loss": loss}
        shares = head.probabilities(logits) if probabilities else None
        more = {} if shares is None else {"probabilities": shares}
        return {"loss": loss, "predictions": head.predict(logits, states), **more}


class FineTuning(Learner):
    """An encoder that is trained with its head.

    Attributes
    ----------
    encoder : nn.Module
        A transformers model; the head reads its last hidden states, and what its pooler makes of them.
    mix : ScalarMix, optional
        Of its hidden states, what enters each block and the last ones, for the head to read instead.
    """

    def __init__(
        self,
        encoder: nn.Module,
        head: Head,
        mix: ScalarMix | None = None,
        layers: tuple[str, ...] = (),
        **others: Head,
    ) -> None:
        super().__init__(head, mix, layers, **others)
        self.encoder = encoder

    def groups(self) -> list[LayerGroup]:
        """The layers of the encoder, then the heads with the mix."""
        return layer_groups(self.encoder, **{n: m for n, m in self.named_children() if n != "encoder"})

    def states(self, inputs: Inputs) -> States:
        """The encoder's last hidden states, or the mix of all."""
        own = {k: v for k, v in inputs.items() if k in READ}
        out = self.encoder(**own, **({} if self.mix is None else {"output_hidden_states": True}))
        hidden, mask = out.last_hidden_state, inputs["attention_mask"] > 0
        if self.mix is not None:
            hidden = self.mix(torch.stack([*out.hidden_states[:-1], hidden]), mask)
        pooled = getattr(out, "pooler_output", None)
        return States(hidden, mask, inputs["special"], inputs.get("words"), pooled=pooled)


class FeatureExtraction(Learner):
    """Cached layers of a frozen encoder, mixed by learned scalars (Peters et al. 2018, eq. 1), with a head.

    Attributes
    ----------
    mix : ScalarMix
        Softmax weights times gamma, over as many layers as the batches hold.
    """

    mix: ScalarMix

    def __init__(self, mix: ScalarMix, head: Head, layers: tuple[str, ...] = (), **others: Head) -> None:
        super().__init__(head, mix, layers, **others)

    def states(self, inputs: Inputs) -> States:
        """The mix of the layers, padded: of (layers, t, d) packed pieces, (b, longest, d)."""
        hidden, length, special = inputs["hidden"], inputs["length"], inputs["special"]
        mixed = self.mix(hidden.float())
        mask = torch.arange(special.shape[1], device=length.device) < length[:, None]
        out = mixed.new_zeros(*mask.shape, mixed.shape[-1])
        out[mask] = mixed
        return States(out, mask, special, inputs.get("words"))
