"""Explore: the layers of two models as linked maps, in a notebook and in one self-contained page.

The package takes calls like the function that it holds: ``probekit.explore("pretrained.h5", "fine-tuned.h5")``.
"""

import lazy_loader

from probekit.functions import callable_package

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
callable_package(__name__)
