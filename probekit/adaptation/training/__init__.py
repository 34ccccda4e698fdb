"""Training: objective, learner, schedules, the loop."""
