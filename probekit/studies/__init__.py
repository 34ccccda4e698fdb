"""Studies: what composes tasks, caches, analyses and figures."""
