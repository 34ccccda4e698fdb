"""Mutual information between the vectors of a layer and labels, in bits: arrays in, numbers and rows out."""
