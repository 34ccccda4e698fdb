"""Activations that other programs wrote: their formats, what they hold beside recomputed vectors, import and export."""
