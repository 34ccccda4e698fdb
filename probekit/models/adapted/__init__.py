"""Models whose folder holds only the weights that an adaptation has changed, beside a base that stays where it is."""
