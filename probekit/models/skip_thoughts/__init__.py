"""Skip-thoughts (Kiros et al. 2015)."""
