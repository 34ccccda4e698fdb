"""Structural probes: linear maps under which distances between words are those in a tree."""
