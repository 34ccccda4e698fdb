"""Models: text in, every layer's hidden states out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probekit.models.loading import load_encoder

__all__ = ["load_encoder"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # torch and transformers are imported when a model is loaded, not before
        from probekit.models import loading

        return getattr(loading, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
