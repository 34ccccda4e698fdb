"""Statistics of predictions: bootstrap, comparisons, curves, calibration. Arrays in, numbers out."""
