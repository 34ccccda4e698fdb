"""Domains: the terms of their texts, and divergences of their distributions with uncertainty.

::

    result = probekit.domains("fiction=novels/", "wiki=wiki.txt.gz")
    terms = probekit.domains.count_domains({"fiction": "novels/", "wiki": "wiki.txt.gz"})

The package has the name of the public function and is callable: see :func:`probekit.analyses.domains.domains`.
"""

import lazy_loader

from probekit.functions import callable_package

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
callable_package(__name__)
