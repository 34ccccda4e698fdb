"""The sites of a transformer: found in its modules, proven by identities, read in every forward pass."""
