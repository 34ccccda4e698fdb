"""Probes that are kept: their folder, their scores of new texts, and of what a model writes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
