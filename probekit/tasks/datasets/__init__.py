"""Published datasets, one file each: ``cola(root) -> Task``."""
