"""A run's checkpoint for a model with another number of experts."""
