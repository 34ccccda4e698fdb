"""More signal for a training: teachers, language modelling, unlabelled text."""
