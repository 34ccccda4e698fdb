"""ELMo (Peters et al. 2018)."""
