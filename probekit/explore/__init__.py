"""Explore: the layers of two models as linked maps, in a notebook and in one self-contained page.

The package takes calls like the function that it holds: ``probekit.explore("pretrained.h5", "fine-tuned.h5")``.
"""

from probekit.explore.build import explore
from probekit.functions import callable_package

__all__ = ["explore"]

callable_package(__name__)
