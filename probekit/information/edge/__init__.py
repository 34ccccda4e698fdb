"""EDGE as published: the ensemble, its hashing and its kernels."""

from probekit.information.edge.ensemble import EdgeDetails, EdgePass, EdgeSettings, edge, edge_details

__all__ = ["EdgeDetails", "EdgePass", "EdgeSettings", "edge", "edge_details"]
