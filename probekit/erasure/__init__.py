"""Erasing a concept from vectors."""

from probekit.erasure.leace import Eraser, leace

__all__ = ["Eraser", "leace"]
