"""Any transformers model as an encoder."""
