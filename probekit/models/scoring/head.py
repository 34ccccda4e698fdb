"""The head of a language model, applied to the states of any layer."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn

from probekit.errors import ModelError
from probekit.models.folder import text_config
from probekit.models.transformers.blocks import body, find_final_norm
from probekit.models.transformers.packed import switches


def changes_width(part: nn.Module) -> bool:
    """Whether a module turns states into those of another width, as OPT-350m's last one does."""
    return isinstance(part, nn.Linear) and part.in_features != part.out_features


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
    base : PreTrainedModel
        The part of it without the head.
    config : PreTrainedConfig
        The configuration of what reads texts.
    depth : int
        L, the number of blocks.
    by_length : bool
        Whether pieces after a text change what is predicted in it (rotary positions that depend on the longest text of
        a batch), so that only texts of one length are read together.

    Raises
    ------
    ModelError
        If the head needs more than the last hidden states, or a causal model reads the pieces that it predicts, as
        tested on a few pieces.
    """

    def __init__(self, model: Any, *, causal: bool) -> None:
        self.model, self.config = model, text_config(model.config)
        self.base = self._run_by_the_model(body(model))
        self.depth = int(self.config.num_hidden_layers)
        self._result = self._replaceable()
        self.after = self._after_blocks()
        self.by_length = switches(self.config)
        ids = torch.arange(6, device=model.device)[None] % self.config.vocab_size
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

        hook = self.after[0].register_forward_pre_hook(keep) if self.after else None
        try:
            out = self.base(input_ids=ids, output_hidden_states=not last_only)
        finally:
            if hook is not None:
                hook.remove()
        last = before[-1] if before else out.last_hidden_state
        return last[None] if last_only else torch.stack([*out.hidden_states[:-1], last])

    def normed(self, states: Tensor) -> Tensor:
        """States of any layer as the head reads them."""
        for part in self.after:
            states = part(states)
        return states

    def predict(self, last: Tensor) -> Tensor:
        """(b, t, vocabulary), at least float32, for the last hidden states of the model, (b, t, d), normed."""
        for part in self.after:
            last = part(last) if changes_width(part) else last
        return self._logits(last)

    def logits(self, states: Tensor) -> Tensor:
        """(m, vocabulary), at least float32, for states (m, d) of any layer."""
        return self._logits(self.normed(states)[:, None])[:, 0]

    def _logits(self, states: Tensor) -> Tensor:
        """(b, t, vocabulary), at least float32: the model, its layers' result replaced by normed states (b, t, d)."""
        self._result.given = self._kind(last_hidden_state=states)
        try:
            ids = torch.zeros(states.shape[:2], dtype=torch.long, device=states.device)
            logits: Tensor = self.model(input_ids=ids).logits
            return logits.to(torch.promote_types(logits.dtype, torch.float32))
        finally:
            self._result.given = None

    def _run_by_the_model(self, base: Any) -> Any:
        """The base, or its decoder, where the model with its head runs only that (OPT)."""
        runs: list[nn.Module] = []
        hook = base.register_forward_hook(lambda module, *_: runs.append(module))
        ids = torch.arange(2, device=self.model.device)[None] % self.config.vocab_size
        try:
            with torch.inference_mode():
                self.model(input_ids=ids)
        finally:
            hook.remove()
        return base if runs else base.get_decoder()

    def _replaceable(self) -> threading.local:
        """Let the layers return ``given`` of what is returned here instead of running, in a thread that sets it."""
        result, base = threading.local(), self.base
        forward = base.forward

        def replaced(*args: Any, **kwargs: Any) -> Any:
            if (given := getattr(result, "given", None)) is not None:
                return given
            output = forward(*args, **kwargs)
            self._kind = type(output)
            return output

        base.forward = replaced
        return result

    def _after_blocks(self) -> list[nn.Module]:
        """What turns the stream after the last block into the last hidden states: a norm, another width, both, or [].

        The other width is that of the embeddings, which the head reads (OPT-350m).
        """
        ids = torch.arange(2, device=self.model.device)[None] % self.config.vocab_size
        parts: list[nn.Module] = []

        def read() -> Tensor:
            """What the first known part reads, or the last hidden state."""
            given = list[Tensor]()
            hooks = [part.register_forward_pre_hook(lambda _, args: given.append(args[0])) for part in parts[:1]]
            last: Tensor = self.base(input_ids=ids).last_hidden_state
            for hook in hooks:
                hook.remove()
            return given[-1] if given else last

        while (found := find_final_norm(self.base, read)) is not None:
            parts.insert(0, found[0])
            if not changes_width(found[0]):
                break
        return parts
