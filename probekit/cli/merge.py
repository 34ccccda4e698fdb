"""``probekit merge``: a whole model from a run that holds only changed weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from probekit.cli.show import say

__all__ = ["merge"]


def merge(run: Path, /, *, out: Annotated[Path, Parameter(name="--out")], base: str | None = None) -> None:
    """Add the changed weights of a run to its base, and write the whole model.

    Examples:

        probekit merge runs/cola-lora --out models/cola

    Parameters
    ----------
    run
        A run of `probekit train --method` lora, dora, ia3, bitfit, norms or last, or one of its checkpoints.
    out
        The folder to write, a run that needs no base.
    base
        Where the base is now, if it was moved: a folder or a hub id.
    """
    import probekit

    say(probekit.merge(run, out, base=base))
