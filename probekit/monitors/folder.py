"""Kept probes: read from their folder, and the best of several layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probekit.errors import UsageError
from probekit.monitors.format import read_folder
from probekit.monitors.probe import Probe


def load_probes(folder: str | Path) -> tuple[Probe, ...]:
    """All probes of a folder, in the order of their layers.

    Raises
    ------
    DataError
        If the folder is damaged, or holds no kept probe.
    """
    return tuple(Probe(weights, card) for card, weights in read_folder(Path(folder)))


def load_probe(folder: str | Path, layer: int | str | None = None) -> Probe:
    """A kept probe.

    Parameters
    ----------
    folder : path
        Written by :meth:`Probe.save` or ``probekit probe --keep``.
    layer : int or str, optional
        Its layer, where the folder holds several; by default the best one in its first metric on dev.

    Raises
    ------
    DataError
        If the folder is damaged, or holds no kept probe.
    UsageError
        If it holds no probe of this layer.

    Examples
    --------
    >>> probe = load_probe("kept/cola", layer=4)  # doctest: +SKIP
    >>> probe.score(["The cat sat.", "Cat the sat."])  # doctest: +SKIP
    """
    return chosen(load_probes(folder), layer)


def chosen(probes: Sequence[Probe], layer: int | str | None = None) -> Probe:
    """The probe of a layer; by default the one whose first metric is best on dev, the lowest of equals."""
    if layer is not None:
        for probe in probes:
            if probe.layer == str(layer):
                return probe
        raise UsageError(f"there is no probe of layer {layer}; kept are {', '.join(one.layer for one in probes)}.")
    return max(probes, key=_goodness)


def _goodness(probe: Probe) -> float:
    from probekit.metrics import metric

    first: Mapping[str, Any] = next(iter(probe.card.get("metrics") or ()), {})
    value = first.get("value")
    return -math.inf if value is None else metric(first["metric"]).sign * float(value)
