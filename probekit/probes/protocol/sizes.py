"""What probes of very many features need in memory, said before it is taken."""

from __future__ import annotations

from typing import Any

from probekit.errors import UsageError
from probekit.files import in_words
from probekit.probes.protocol.options import Estimator
from probekit.probes.solvers.screening import WIDE
from probekit.runtime import memory


def check_memory(x: Any, n: int, estimator: Estimator, folds: int) -> None:
    """Raise UsageError if probes of n rows of ``x`` (…, d) need more than this machine's memory; up to 8,192 features
    are not checked.
    """
    d = x.shape[1]
    if d <= WIDE:
        return
    needed = {
        Estimator.MLP: 8 * n * d,
        Estimator.MASS_MEAN: 8 * n * d + 24 * d * d,
        Estimator.LOGISTIC: 8 * (folds + 2) * d * d if n >= d else 24 * n * d,
        Estimator.RIDGE: 8 * (folds + 2) * d * d if n >= d else 24 * n * d,
    }.get(estimator, 0)
    if needed > memory():
        raise UsageError(
            f"{estimator} probes of {n:,} examples of {d:,} features need about {in_words(needed)} of memory; this "
            f"machine has {in_words(memory())}. --estimator k-sparse reads them a part at a time; or take fewer "
            "examples."
        )
