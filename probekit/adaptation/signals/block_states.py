"""The outputs of an encoder's blocks in its last call, without running it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from probekit.models.adapted.virtual import prompt_tokens
from probekit.models.transformers.blocks import find_blocks

__all__ = ["BlockStates"]


class BlockStates:
    """Hooks on the blocks of an encoder that hold what each block put out last.

    Attributes
    ----------
    depth : int
        Number of blocks.
    """

    def __init__(self, encoder: nn.Module) -> None:
        blocks = find_blocks(encoder)
        self._before = prompt_tokens(encoder)
        self.depth = len(blocks)
        self._last: dict[int, Tensor] = {}
        for i, block in enumerate(blocks):
            block.register_forward_hook(self._hold(i))

    def _hold(self, i: int) -> Any:
        def hook(_: nn.Module, __: Any, out: Any) -> None:
            self._last[i] = out if isinstance(out, Tensor) else out[0]

        return hook

    def pooled(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The mean of each block's output over the pieces of each sequence, (b, blocks, d), which is then released.

        Special pieces and padding are left out.

        Parameters
        ----------
        inputs : Mapping[str, Tensor]
            ``attention_mask`` and ``special`` (b, t) of the call.
        """
        kept = ((inputs["attention_mask"] > 0) & ~inputs["special"]).unsqueeze(-1)
        count = kept.sum(1).clamp_min(1)
        means = [self._last[i][:, self._before :].masked_fill(~kept, 0.0).sum(1) / count for i in range(self.depth)]
        self._last.clear()
        return torch.stack(means, 1)
