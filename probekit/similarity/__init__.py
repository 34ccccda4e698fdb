"""How similar layers are: CKA, CCA, RSA, Procrustes, neighbours and predictivity, with their chance level.

::

    result = probekit.similarity("pretrained.h5", "fine-tuned.h5")
    value = probekit.similarity.cka(x, y)

The package has the name of the public function and is callable.
"""

from __future__ import annotations

from probekit.functions import callable_package

callable_package(__name__)
