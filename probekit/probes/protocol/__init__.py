"""The probing procedure: folds, choice of the penalty, baselines without a model, rows."""
