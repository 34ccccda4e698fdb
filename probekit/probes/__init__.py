"""Probes, from arrays to rows: models (``solvers``), probing procedure (``protocol``), code lengths (``codes``)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
