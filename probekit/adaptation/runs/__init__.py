"""The folder that a training leaves: its card, its weights, what it predicts, its rows."""
