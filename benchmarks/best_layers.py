"""How many of 13 layers the set of best layers keeps, and how often it holds the best one.

    python benchmarks/best_layers.py -n 100

Layer 6 has an accuracy of .85, the twelve others less by a gap; predictions are simulated as in ``rates/curves.py``.
"exchange" is the rule of :func:`probekit.statistics.curves.not_worse`, "intervals" keeps the layers whose simultaneous
interval reaches the highest lower end, which needs no predictions for single examples.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def kept(rng: np.random.Generator, gap: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The sets of both rules, bool (13,) each."""
    from curves import said

    from probekit.statistics.bootstrap import band, bounds
    from probekit.statistics.curves import not_worse

    e = said(rng, np.where(np.arange(13) == 6, 0.85, 0.85 - gap), n)
    exchange = not_worse(e, "accuracy")
    assert exchange is not None  # every value is known
    found = bounds(metric="accuracy", resamples=1000, **e.sample())
    low, high = np.stack([band(found.value, found.ci, found.resampled)[i] for i in range(13)]).T
    return exchange, high >= low.max()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--runs", type=int, default=100, help="simulated curves for each line")
    runs = parser.parse_args().runs
    sys.path[:0] = [str(HERE), str(HERE / "rates")]
    print("| gap | examples | layers kept, exchange | intervals | best layer in the set, exchange | intervals |")
    print("|---|---|---|---|---|---|")
    for gap in (0.02, 0.05):
        for n in (872, 5000):
            sets = np.array([kept(np.random.default_rng([n, i]), gap, n) for i in range(runs)])  # (runs, 2, 13)
            counts = sets.sum(2)
            mean, error = counts.mean(0), counts.std(0, ddof=1) / runs**0.5
            cells = [f"{m:.1f} ± {e:.1f}" for m, e in zip(mean, error, strict=True)]
            holds = [f"{share:.0%}" for share in sets[:, :, 6].mean(0)]
            print(f"| {gap:.2f} | {n:,} | {' | '.join(cells + holds)} |", flush=True)


if __name__ == "__main__":
    main()
