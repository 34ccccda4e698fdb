"""Pretraining from nothing: the training of language models of one's own."""
