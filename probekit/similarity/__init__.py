"""How similar layers are: CKA, CCA, RSA, Procrustes, neighbours and predictivity, with their chance level.

::

    result = probekit.similarity("pretrained.h5", "fine-tuned.h5")
    value = probekit.similarity.cka(x, y)

The package has the name of the public function and is callable.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from probekit.functions import callable_package

if TYPE_CHECKING:
    from probekit.similarity.layer_pairs import PairValues
    from probekit.similarity.measures import (
        cca,
        cka,
        cka_rbf,
        eigenspace_overlap,
        knn_jaccard,
        knn_rank,
        linear_predictivity,
        minibatch_cka,
        mutual_knn,
        procrustes,
        pwcca,
        rsa,
        svcca,
    )
    from probekit.similarity.options import Similarity, SimilarityOptions

__all__ = [
    "PairValues",
    "Similarity",
    "SimilarityOptions",
    "cca",
    "cka",
    "cka_rbf",
    "eigenspace_overlap",
    "knn_jaccard",
    "knn_rank",
    "linear_predictivity",
    "minibatch_cka",
    "mutual_knn",
    "procrustes",
    "pwcca",
    "rsa",
    "svcca",
]

_HOME = {
    **dict.fromkeys(__all__, "measures"),
    "PairValues": "layer_pairs",
    **dict.fromkeys(("Similarity", "SimilarityOptions"), "options"),
}

callable_package(__name__)


def __getattr__(name: str) -> Any:
    """Import a name on first use, because options are needed where nothing is compared."""
    if name in _HOME:
        return getattr(import_module(f"probekit.similarity.{_HOME[name]}"), name)
    raise AttributeError(f"module 'probekit.similarity' has no attribute {name!r}")
