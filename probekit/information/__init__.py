"""Mutual information between the vectors of a layer and labels, in bits: from arrays to numbers and rows."""

from probekit.information.estimate import Information
from probekit.information.estimators import mutual_information
from probekit.information.options import InformationEstimator

__all__ = ["Information", "InformationEstimator", "mutual_information"]
