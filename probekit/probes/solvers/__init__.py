"""Solvers: from arrays to coefficients."""
