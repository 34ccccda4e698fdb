"""Analyses: caches, runs and models in, results out."""
