"""Mutual information between the vectors of a layer and labels, in bits: arrays in, numbers and rows out."""

from probekit.information.dispatch import Estimator, mutual_information
from probekit.information.estimate import Information

__all__ = ["Estimator", "Information", "mutual_information"]
