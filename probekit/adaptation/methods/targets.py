"""The layers that LoRA, DoRA and IA3 change: by what they do, or by their names."""

from __future__ import annotations

from typing import Any

from probekit.errors import UsageError, did_you_mean
from probekit.models.adapted.structure import block_linears, linear_names

__all__ = ["ROLES", "target_layers"]

ROLES = ("q", "k", "v", "o", "down", "all")
"""Names by what a layer does; see :class:`~probekit.models.adapted.structure.BlockLinears`."""
DEFAULT = {"lora": ("q", "v"), "ia3": ("k", "v", "down")}
"""LoRA: Hu et al. (2022), table 9. IA3: H. Liu et al. (2022), section 3.3. DoRA takes those of LoRA."""


def target_layers(encoder: Any, method: str, targets: str | None) -> list[str]:
    """The names of the layers to change, in the order of the model.

    Parameters
    ----------
    targets : str, optional
        Ends of names of linear layers inside the blocks, or roles, separated by commas; a name comes before a role.

    Raises
    ------
    UsageError
        If one matches no layer; it gives the nearest names.
    ModelError
        If the parts of a block are not recognised.
    """
    names = list(linear_names(encoder))
    wanted = DEFAULT[method] if targets is None else tuple(one.strip() for one in targets.split(","))
    chosen: set[str] = set()
    for one in wanted:
        named = [] if targets is None else [name for name in names if name == one or name.endswith(f".{one}")]
        if not named and one in ROLES:
            blocks = block_linears(encoder)
            named = [n for block in blocks for n in (block.all if one == "all" else [getattr(block, one)])]
        if not named:
            known = [*ROLES, *dict.fromkeys(name.rpartition(".")[2] for name in names), *names]
            raise UsageError(
                f"--targets: {one!r} matches no linear layer in the blocks of {encoder.config.model_type}; "
                + did_you_mean(one, known, most=3)
            )
        chosen |= set(named)
    return [name for name in names if name in chosen]
