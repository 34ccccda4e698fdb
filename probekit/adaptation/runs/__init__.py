"""The folder of a training run: card, weights, predictions and rows."""
