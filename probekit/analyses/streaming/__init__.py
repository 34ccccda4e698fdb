"""Analyses in one pass over texts that are never stored: sums over the rows, and a sample of them."""
