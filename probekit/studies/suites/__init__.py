"""Suites: many probing tasks on the layers of one or several models, from one file."""
