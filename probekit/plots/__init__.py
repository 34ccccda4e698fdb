"""Plots: rows in, Axes out. Nothing is shown, and nothing is saved except with :func:`save`.

``adaptation_rows``, ``board_values``, ``curve_rows``, ``difference_rows``, ``domain_values``, ``expected_values``,
``mix_rows``, ``relation_rows``, ``score_rows``, ``shift_values``, ``similarity_values``, ``trajectory_grids`` and
``transfer_values`` return the drawn values as tables.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
