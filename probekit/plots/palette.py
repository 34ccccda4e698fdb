"""Colours and markers: the same in every figure, distinguishable with every kind of colour vision and in grey."""

__all__ = ["COLOURS", "FAINT", "GREYS", "INK", "MARKERS"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe & Ito's palette without its yellow."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
"""Not as many as colours, so that no pair of both comes back before the 64th curve."""
GREYS = ("#7F7F7F", "#B0B0B0", "#4D4D4D")
INK, FAINT = "#222222", "#DDDDDD"
