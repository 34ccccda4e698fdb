"""Training data: batches of text and of cached layers."""
