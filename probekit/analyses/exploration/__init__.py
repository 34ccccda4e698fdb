"""What an explorer shows, as values: maps of layers, predictions, and questions about examples, tokens and units."""

from probekit.analyses.exploration.build import scene
from probekit.analyses.exploration.scene import Map, Scene, Side

__all__ = ["Map", "Scene", "Side", "scene"]
