"""The head of a language model, applied to the states of any layer."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn

from probekit.errors import ModelError

__all__ = ["Head"]


class Head:
    """A language model in two parts: its layers, and the head that turns a state into predictions.

    The head is whatever the model computes from the last hidden states. Before it, the states of layers below the last
    one pass the model's final norm, if there is one (the logit lens, nostalgebraist 2020).

    Parameters
    ----------
    model : PreTrainedModel
        With its head, in inference mode.
    causal : bool
        Whether it predicts the next piece.

    Attributes
    ----------
    model : PreTrainedModel
        With its head, in inference mode.
    depth : int
        L, the number of blocks.

    Raises
    ------
    ModelError
        If the head needs more than the last hidden states, or a causal model reads the pieces that it predicts, as
        tested on a few pieces.
    """

    def __init__(self, model: Any, *, causal: bool) -> None:
        self.model, self.depth = model, int(model.config.num_hidden_layers)
        self._result = self._replaceable()
        self.norm = self._final_norm()
        ids = torch.arange(6, device=model.device)[None] % model.config.vocab_size
        with torch.inference_mode():
            own = model(input_ids=ids).logits.float()
            states = self.layers(ids)
            found = self._logits(self.normed(states[-1]))
        if states.shape[0] != self.depth + 1 or not torch.allclose(found, own, rtol=1e-3, atol=1e-3 * own.abs().max()):
            raise ModelError(
                f"{type(model).__name__} computes its predictions from more than the last hidden states, so its "
                "sentences cannot be scored."
            )
        if causal:
            self._check_causal(ids, own)

    def _check_causal(self, ids: Tensor, own: Tensor) -> None:
        """Raise ModelError if another last piece changes what is predicted before it."""
        other = ids.clone()
        other[0, -1] = ids[0, 0]
        with torch.inference_mode():
            found = self.model(input_ids=other).logits.float()
        if not torch.allclose(found[:, :-1], own[:, :-1], rtol=1e-3, atol=1e-3 * float(own.abs().max())):
            raise ModelError(
                f"{type(self.model).__name__} reads the pieces that it is to predict, so its sentences cannot be "
                "scored. If it is meant to read from left to right, set is_decoder in its config.json."
            )

    def layers(self, ids: Tensor, *, last_only: bool = False) -> Tensor:
        """The residual stream: (L + 1, b, t, d) for ids (b, t); with ``last_only`` (1, b, t, d), layer L."""
        before: list[Tensor] = []

        def keep(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            before.append(args[0])

        hook = None if self.norm is None else self.norm.register_forward_pre_hook(keep)
        try:
            out = self.model.base_model(input_ids=ids, output_hidden_states=not last_only)
        finally:
            if hook is not None:
                hook.remove()
        last = before[-1] if before else out.last_hidden_state
        return last[None] if last_only else torch.stack([*out.hidden_states[:-1], last])

    def normed(self, states: Tensor) -> Tensor:
        """States of any layer as the head reads them."""
        return states if self.norm is None else self.norm(states)

    def predict(self, last: Tensor) -> Tensor:
        """(b, t, vocabulary), at least float32, for the last hidden states of the model, (b, t, d), normed."""
        return self._logits(last)

    def logits(self, states: Tensor) -> Tensor:
        """(m, vocabulary), at least float32, for states (m, d) of any layer."""
        return self._logits(self.normed(states)[:, None])[:, 0]

    def _logits(self, states: Tensor) -> Tensor:
        """(b, t, vocabulary), at least float32: the model, its layers' result replaced by normed states (b, t, d)."""
        from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

        given = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states)
        given.router_logits = None  # heads of mixtures of experts pass them on
        self._result.given = given
        try:
            ids = torch.zeros(states.shape[:2], dtype=torch.long, device=states.device)
            logits: Tensor = self.model(input_ids=ids).logits
            return logits.to(torch.promote_types(logits.dtype, torch.float32))
        finally:
            self._result.given = None

    def _replaceable(self) -> threading.local:
        """Let the layers return ``given`` of what is returned here instead of running, in a thread that sets it."""
        result, base = threading.local(), self.model.base_model
        forward = base.forward

        def replaced(*args: Any, **kwargs: Any) -> Any:
            given = getattr(result, "given", None)
            return forward(*args, **kwargs) if given is None else given

        base.forward = replaced
        return result

    def _final_norm(self) -> nn.Module | None:
        """The module that turns the stream after the last block into the last hidden states; None if there is none."""
        seen: list[tuple[nn.Module, Tensor]] = []

        def keep(module: nn.Module, _: Any, out: Any) -> None:
            if isinstance(out, Tensor):
                seen.append((module, out))

        base = self.model.base_model
        within = [child for child in base.modules() if isinstance(child, nn.ModuleList)]
        blocks = {id(module) for blocks in within for module in blocks.modules()}
        outside = [m for m in base.modules() if id(m) not in blocks and not any(m.children())]
        hooks = [module.register_forward_hook(keep) for module in outside]
        try:
            with torch.inference_mode():
                last = base(input_ids=torch.zeros((1, 2), dtype=torch.long, device=base.device)).last_hidden_state
        finally:
            for hook in hooks:
                hook.remove()
        found = [module for module, out in seen if out.shape == last.shape and torch.equal(out, last)]
        return found[-1] if found else None
