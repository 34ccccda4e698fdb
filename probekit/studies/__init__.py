"""Studies: combinations of tasks, caches, analyses and figures."""
