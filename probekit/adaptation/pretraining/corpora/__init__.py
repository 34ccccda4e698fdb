"""Corpora for pretraining: sentences in order, pairs of sentences, and pairs of clauses with a discourse marker."""
