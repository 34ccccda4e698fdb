"""How similar layers are: CKA, CCA, RSA, Procrustes, neighbours and predictivity, with their chance level.

::

    result = probekit.similarity("pretrained.h5", "fine-tuned.h5")
    value = probekit.similarity.cka(x, y)

The package has the name of the public function and is callable.
"""

import lazy_loader

from probekit.functions import callable_package

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
callable_package(__name__)
