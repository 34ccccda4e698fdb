"""Models: text in, every layer's hidden states out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probekit.models.huggingface import HuggingFaceEncoder, load_encoder

__all__ = ["HuggingFaceEncoder", "load_encoder"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # torch and transformers are imported when a model is loaded, not before
        from probekit.models import huggingface

        return getattr(huggingface, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
