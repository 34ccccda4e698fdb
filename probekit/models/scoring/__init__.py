"""Scores of sentences by language models: log-probabilities and pseudo-log-likelihoods, by the model or by layer."""

from probekit.models.scoring.load import load_scorer
from probekit.models.scoring.scorer import Score, Scorer

__all__ = ["Score", "Scorer", "load_scorer"]
