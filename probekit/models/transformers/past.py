"""The keys and values of what a decoder has read, while it writes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import DynamicLayer


def change(past: Any, device: torch.device, *, room: int = 0, rows: list[int] | None = None) -> None:
    """Change a key-value cache.

    Parameters
    ----------
    past : Cache
        Of transformers.
    device : torch.device
        Where the model reads pieces.
    room : int
        Make room for this many further pieces; layers of other kinds (sliding windows) stay as they are.
    rows : list of int, optional
        Keep only these texts.
    """
    if rows is not None:
        past.batch_select_indices(torch.tensor(rows, device=device))
    for k, layer in enumerate(getattr(past, "layers", ()) if room else ()):
        if type(layer) is DynamicLayer and layer.is_initialized:
            past.layers[k] = _Roomy(layer, room)


class _Roomy(DynamicLayer):
    """The keys and values of a block with room for those that follow, so that a step need not copy those before it."""

    def __init__(self, first: DynamicLayer, more: int) -> None:
        super().__init__()
        self.lazy_initialization(first.keys, first.values)
        self.room = [nn.functional.pad(x, (0, 0, 0, more)) for x in (first.keys, first.values)]
        self._show(first.get_seq_length())

    def _show(self, count: int) -> None:
        self.keys, self.values = (x[:, :, :count] for x in self.room)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        """Add keys and values (b, heads, t, d); all of them are returned."""
        begin = self.get_seq_length()
        end = begin + key_states.shape[2]
        for x, new in zip(self.room, (key_states, value_states), strict=True):
            x[:, :, begin:end] = new
        self._show(end)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the keys and values of some texts."""
        count = self.get_seq_length()
        self.room = [x[indices] for x in self.room]
        self._show(count)
