"""Calibrated hashing: projections, buckets on shifted grids, and what noise gives, in closed form."""
