"""Calibrated hashing: projections, buckets on shifted grids, and the null in closed form."""
