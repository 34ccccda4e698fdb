"""The trained modules: an encoder, perhaps compiled, with a head, or a mix of cached layers with a head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from probekit.adaptation.heads.head import Head, States
from probekit.adaptation.training.groups import LayerGroup, layer_groups, layer_names
from probekit.adaptation.training.sharding import whole
from probekit.errors import UsageError, first_line
from probekit.models.scalar_mix import ScalarMix

Inputs = Mapping[str, Tensor]

READ = ("input_ids", "attention_mask", "token_type_ids", "characters")
"""The inputs of the encoder."""


class Learner(nn.Module):
    """The module for transformers' Trainer: from a batch to the loss and, in evaluation, the predictions.

    Attributes
    ----------
    encoder : nn.Module
        The encoder that is fine-tuned, a transformers model or ELMo; feature extraction has none.
    head : Head
        The head of the first objective.
    mix : ScalarMix, optional
        Mix of the layers that the heads read; None if they read the last layer.
    layers : tuple[str, ...], default ()
        Names of the mixed layers.
    auxiliary : nn.ModuleDict
        Modules that only :class:`~probekit.adaptation.training.objective.Term` needs. They are trained at the rate of
        the head, and are not part of the saved run.
    **others
        The heads of further objectives, by module name.
    """

    encoder: Any  # the types of transformers are unknown to mypy
    _keys_to_ignore_on_save = None  # the Trainer reads it if a checkpoint holds tied weights once

    def __init__(self, head: Head, mix: ScalarMix | None = None, layers: tuple[str, ...] = (), **others: Head) -> None:
        super().__init__()
        self.head, self.mix, self.layers = head, mix, layers
        self.auxiliary = nn.ModuleDict()
        for name, other in others.items():
            self.add_module(name, other)

    def groups(self) -> list[LayerGroup]:
        """The trained parameters by layer, bottom to top."""
        return [("head", list(self.named_parameters()))]

    def weights(self) -> dict[str, nn.Parameter]:
        """The weights by name, the encoder's first; one that several modules share has its name in the first of them.

        Those that only auxiliary modules have are left out.
        """
        named = [*self.named_parameters(remove_duplicate=False)]
        own = {name: weight for name, weight in named if not name.startswith("auxiliary.")}
        by_weight: dict[nn.Parameter, str] = {}
        for name in sorted(own, key=lambda name: not name.startswith("encoder.")):
            by_weight.setdefault(own[name], name)
        return {name: weight for weight, name in by_weight.items()}

    def saved_state(self) -> dict[str, Tensor]:
        """The weights of a saved run, by name: all but the auxiliary ones."""
        state = {name: weight for name, weight in self.state_dict().items() if not name.startswith("auxiliary.")}
        return cast("dict[str, Tensor]", whole(state))

    def states(self, inputs: Inputs) -> States:
        """Hidden states of one batch of sequences."""
        raise NotImplementedError

    def read(self, first: Inputs, second: Inputs | None = None) -> States:
        """Hidden states of a batch, with those of the second sequences of separately encoded pairs."""
        states = self.states(first)
        if second is None:
            return states
        return replace(states, second=self.states(second))

    def forward(
        self, labels: Tensor, first: Inputs, second: Inputs | None = None, module: str = "head",
        probabilities: bool = False,
    ) -> dict[str, Tensor]:  # fmt: skip
        """The loss, with the ``logits`` in training and ``predictions`` from :meth:`Head.predict` in evaluation.

        Parameters
        ----------
        labels : Tensor
            int64 (b,), float32 (b,), (b, k) for several labels or numbers, int64 (b, w) for word tags, or int64 (b, 2)
            for answers.
        first, second : Inputs
            The batch of :class:`~probekit.adaptation.data.batches.Data`; ``second`` for separately encoded pairs.
        module : str, default 'head'
            Name of the head for the batch's objective.
        probabilities : bool, default False
            Also return ``probabilities``, if the head has them.
        """
        head = cast("Head", self.get_submodule(module))
        states = self.read(first, second)
        logits = head.of_examples(head(states), states)
        loss = head.loss(logits, labels, states)
        if self.training:
            return {"loss": loss, "logits": logits}
        shares = head.probabilities(logits) if probabilities else None
        more = {} if shares is None else {"probabilities": shares}
        return {"loss": loss, "predictions": head.predict(logits, states), **more}


class FineTuning(Learner):
    """An encoder that is trained together with its head.

    Attributes
    ----------
    encoder : nn.Module
        A transformers model; the head reads its last hidden states and its pooler's output.
    mix : ScalarMix, optional
        Mix of hidden states (inputs of the blocks, and the last ones), which the head reads instead.
    layers : tuple[str, ...], default ()
        Names of the mixed ones.
    changed : frozenset[str], optional
        Names of the encoder's weights that a run keeps; empty if it keeps all.
    """

    def __init__(
        self, encoder: nn.Module, head: Head, mix: ScalarMix | None = None, layers: tuple[str, ...] = (), **others: Head
    ) -> None:
        super().__init__(head, mix, layers, **others)
        self.encoder = encoder
        head.attach(encoder)
        self.changed: frozenset[str] = frozenset()
        names = layer_names(encoder) if layers else ()
        self.mixed = [names.index(layer) for layer in layers]

    def saved_state(self) -> dict[str, Tensor]:
        """The weights of a saved run, by name: of the encoder only those in ``changed``, if there are any."""
        state = super().saved_state()
        if getattr(self.head, "tied", False):
            del state["head.output.weight"]  # the encoder's
        return {n: w for n, w in state.items() if not self.changed or n in self.changed or not n.startswith("encoder.")}

    def groups(self) -> list[LayerGroup]:
        """The layers of the encoder, then the heads with the mix."""
        return layer_groups(self.encoder, **{n: m for n, m in self.named_children() if n != "encoder"})

    def states(self, inputs: Inputs) -> States:
        """The encoder's last hidden states, or the mix of all."""
        of_encoder = {k: v for k, v in inputs.items() if k in READ}
        out = self.encoder(**of_encoder, **({} if self.mix is None else {"output_hidden_states": True}))
        hidden, mask = out.last_hidden_state, inputs["attention_mask"] > 0
        if self.mix is not None:
            every = [*out.hidden_states[:-1], hidden]
            hidden = self.mix(torch.stack([every[i] for i in self.mixed]), mask)
        pooled = getattr(out, "pooler_output", None)
        return States(
            hidden, mask, inputs["special"], inputs.get("words"), pooled=pooled, spans=inputs.get("spans"),
            sequences=inputs.get("sequences"), context=inputs.get("context"),
        )  # fmt: skip


class FeatureExtraction(Learner):
    """Cached layers of a frozen encoder, mixed by learned scalars (Peters et al. 2018, eq. 1), with a head.

    Attributes
    ----------
    mix : ScalarMix
        Softmax weights times gamma, over the layers of the batches.
    """

    mix: ScalarMix

    def __init__(self, mix: ScalarMix, head: Head, layers: tuple[str, ...] = (), **others: Head) -> None:
        super().__init__(head, mix, layers, **others)

    def states(self, inputs: Inputs) -> States:
        """The padded mix of the layers: from (layers, t, d) packed pieces to (b, longest, d)."""
        hidden, length, special = inputs["hidden"], inputs["length"], inputs["special"]
        mixed = self.mix(hidden.float())
        mask = torch.arange(special.shape[1], device=length.device) < length[:, None]
        out = mixed.new_zeros(*mask.shape, mixed.shape[-1])
        out[mask] = mixed
        return States(out, mask, special, inputs.get("words"))


def compile_encoder(encoder: nn.Module, device: str) -> None:
    """Compile an encoder in place, for batches of any size; names and values of its weights stay.

    Raises
    ------
    UsageError
        If this machine cannot compile, for instance because it has no C++ compiler.
    """
    try:
        torch.compile(_probe)(torch.ones(8, device=device))
    except Exception as error:
        raise UsageError(
            f"torch cannot compile on this machine ({first_line(error)[:200]}). Install a C++ compiler, or leave out "
            "--compile."
        ) from error
    encoder.compile(dynamic=True)


def _probe(x: Tensor) -> Tensor:
    return (x * 2).sin() + 1
