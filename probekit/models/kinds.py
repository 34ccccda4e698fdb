"""Types of models that transformers lacks: the entry points ``probekit.encoders``, ours and those of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from probekit.plugins import added


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a folder becomes an encoder whose ``config.json`` has as ``model_type`` the name of the entry point.

    Such a model reads the sentences of a pair apart, and runs whole on one device.

    Attributes
    ----------
    load : str
        "module:function": the model's name or folder and its :class:`~probekit.models.options.LoadOptions`, to an
        :class:`~probekit.models.encoder.Encoder`.
    reader : str
        "module:function": folder, configuration and greatest length or None, to a
        :class:`~probekit.models.loading.TextReader`.
    model : str
        The module that registers the type with transformers, for ``train`` and ``certify``; "" if they cannot use it.
    pooling : str
        The sentence representation by default.
    stateful : bool
        Whether it can carry its state from batch to batch.
    """

    load: str
    reader: str
    model: str = ""
    pooling: str = "mean"
    stateful: bool = False


def kinds() -> Mapping[str, Kind]:
    """All of them, by model type."""
    return added("probekit.encoders", Kind)
