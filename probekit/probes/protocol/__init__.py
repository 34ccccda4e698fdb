"""How a layer is probed: folds, choice of penalty, baselines without a model, rows."""
