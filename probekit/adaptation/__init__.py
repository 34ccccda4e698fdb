"""Adaptation: feature extraction (a task model on frozen layers) and fine-tuning, with checkpoints."""
