"""What is fitted: arrays in, coefficients out."""
