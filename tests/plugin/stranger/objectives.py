"""An objective: which of the two texts of a pair is longer?"""

from __future__ import annotations

import numpy as np

from probekit.adaptation.pretraining.classes import classes
from probekit.adaptation.pretraining.corpora.kinds import CorpusKind
from probekit.adaptation.pretraining.objective import PretrainingObjective, Requested
from probekit.adaptation.pretraining.sequences import SequenceData


def longer(requested: Requested) -> PretrainingObjective:
    """Whether the second text of a pair has more pieces than the first."""
    requested.check(CorpusKind.PAIRS)
    data = [
        SequenceData(first, second, labels=(np.asarray(second.length) > np.asarray(first.length)).astype(np.int64))
        for first, second in requested.read(0, 1).values()
    ]
    return classes(requested, data, ("first", "second"))
