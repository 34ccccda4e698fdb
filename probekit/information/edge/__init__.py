"""EDGE as published: the ensemble, what it hashes, its loops."""

from probekit.information.edge.ensemble import EdgeDetails, EdgePass, EdgeSettings, edge, edge_details

__all__ = ["EdgeDetails", "EdgePass", "EdgeSettings", "edge", "edge_details"]
