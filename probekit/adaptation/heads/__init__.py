"""Task models, one file each."""
