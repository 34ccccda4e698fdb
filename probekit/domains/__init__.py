"""Domains: the terms of their texts, and divergences of their distributions with uncertainty.

::

    result = probekit.domains("fiction=novels/", "wiki=wiki.txt.gz")
    terms = probekit.domains.count_domains({"fiction": "novels/", "wiki": "wiki.txt.gz"})

The package has the name of the public function and is callable: see :func:`probekit.analyses.domains.domains`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from probekit.functions import callable_package

if TYPE_CHECKING:
    from probekit.domains.corpora import Corpus, read_files, read_hub, read_texts
    from probekit.domains.counting import Counts, count
    from probekit.domains.divergence import js_divergence
    from probekit.domains.options import DocumentUnit, Tokenization
    from probekit.domains.scanning import Tokenize, hugging_face
    from probekit.domains.terms import Terms, choose_terms, count_domains, load_counts, merge, save_counts

__all__ = [
    "Corpus",
    "Counts",
    "DocumentUnit",
    "Terms",
    "Tokenization",
    "Tokenize",
    "choose_terms",
    "count",
    "count_domains",
    "hugging_face",
    "js_divergence",
    "load_counts",
    "merge",
    "read_files",
    "read_hub",
    "read_texts",
    "save_counts",
]

_HOME = {
    **dict.fromkeys(("Corpus", "read_files", "read_hub", "read_texts"), "corpora"),
    **dict.fromkeys(("Counts", "count"), "counting"),
    "js_divergence": "divergence",
    **dict.fromkeys(("DocumentUnit", "Tokenization"), "options"),
    **dict.fromkeys(("Tokenize", "hugging_face"), "scanning"),
    **dict.fromkeys(("Terms", "choose_terms", "count_domains", "load_counts", "merge", "save_counts"), "terms"),
}

callable_package(__name__)


def __getattr__(name: str) -> Any:
    """Import a name on first use, because options are needed where nothing is counted."""
    if name in _HOME:
        return getattr(import_module(f"probekit.domains.{_HOME[name]}"), name)
    raise AttributeError(f"module 'probekit.domains' has no attribute {name!r}")
