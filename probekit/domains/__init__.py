"""Domains: the terms of their texts, how far their distributions are apart, and how sure that is.

terms = count_domains({"fiction": "novels/", "wiki": "wiki.txt.gz"})
"""

from __future__ import annotations

from probekit.domains.corpora import Corpus, Unit, read_files, read_hub, read_texts
from probekit.domains.counting import Counts, count
from probekit.domains.scanning import Tokenize, Tokenizer, hugging_face
from probekit.domains.terms import Terms, choose_terms, count_domains, load_counts, merge, save_counts

__all__ = [
    "Corpus",
    "Counts",
    "Terms",
    "Tokenize",
    "Tokenizer",
    "Unit",
    "choose_terms",
    "count",
    "count_domains",
    "hugging_face",
    "load_counts",
    "merge",
    "read_files",
    "read_hub",
    "read_texts",
    "save_counts",
]
